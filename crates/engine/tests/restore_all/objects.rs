//! Everything a Linux tree holds comes back.

use super::encoded::{Piece, encode_leaf, encode_node, encode_set};
use crate::model::*;
use bale_format::{Content, Key, Kind, Time};
use bale_restore::Overwrite;
use std::os::unix::fs::MetadataExt;

#[test]
fn an_everyday_tree_comes_back_and_every_chunk_is_read_once() {
    let place = scratch();
    let mut model = everyday(500);
    model.close();
    let (report, watch) = run(&model, &place.path().join("t"), &options());
    assert_eq!(watch.problems(), []);
    assert_eq!(model.reads_max(), 1);
    let report = report.unwrap();
    assert_eq!(
        (report.files_written, report.links, report.others),
        (501, 2, 1)
    );
    check(&model, &place.path().join("t"));
    verified(&model, &place.path().join("t"));
}

#[test]
fn every_kind_of_entry_comes_back() {
    if !root_or_skip("every_kind_of_entry_comes_back") {
        return;
    }
    let place = scratch();
    let mut model = Model::new();
    model.dir("d").mode = 0o1777;
    model.file("d/empty", b"");
    model.file("d/suid", b"#!").mode = 0o6755;
    model.file("d/owned", b"x").uid = u32::MAX - 1;
    model.row("d/owned").gid = 12345;
    model.file("d/none", b"secret").mode = 0;
    model.symlink("d/link", b"/nowhere/\xff\n").uid = 77;
    model.special("d/block", Kind::BlockDevice, 7 << 32 | 300);
    model.special("d/char", Kind::CharDevice, 1 << 32 | 3).gid = 5;
    model.special("d/fifo", Kind::Fifo, 0).mode = 0o622;
    model.special("d/socket", Kind::Socket, 0);
    let report = run_exactly(&mut model, &place.path().join("t"), &options());
    assert_eq!(report.losses, []);
}

#[test]
fn names_of_any_bytes_come_back() {
    let place = scratch();
    let mut model = Model::new();
    let long = vec![b'n'; 255];
    let names: Vec<&[u8]> = vec![
        b"\xff\xfe",
        b"a\nb",
        b"\x1b[31m",
        b"-rf",
        b" ",
        b"trailing ",
        b"...",
        b"\xef\xbf\xbd",
        b"\x01",
        b"!",
        b"*",
        &long,
    ];
    for (number, name) in names.iter().enumerate() {
        model.dir([b"dir ".as_slice(), &name[..name.len().min(200)]].concat());
        model.file(
            [b"dir ".as_slice(), &name[..name.len().min(200)], b"/", name].concat(),
            name,
        );
        model.symlink([*name].concat(), format!("{number}").as_bytes());
    }
    run_exactly(&mut model, &place.path().join("t"), &options());
}

#[test]
fn times_from_before_1901_to_after_2106_come_back() {
    let place = scratch();
    let mut model = Model::new();
    for (number, seconds) in [-2_147_483_647i64, -1, 0, 4_294_967_296, 15_032_385_534]
        .into_iter()
        .enumerate()
    {
        let time = Time {
            seconds,
            nanos: 999_999_999,
        };
        model.file(format!("f{number}"), b"x").mtime = time;
        model.dir(format!("d{number}")).mtime = time;
        model.symlink(format!("s{number}"), b"x").mtime = time;
    }
    run_exactly(&mut model, &place.path().join("t"), &options());
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

#[test]
fn attributes_lists_and_capabilities_come_back() {
    if !root_or_skip("attributes_lists_and_capabilities_come_back") {
        return;
    }
    let place = scratch();
    let none = u32::MAX;
    let list = acl(&[
        (1, 6, none),
        (2, 7, 1000),
        (4, 4, none),
        (16, 6, none),
        (32, 4, none),
    ]);
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut model = Model::new();
    model.dir("d").mode = 0o775;
    model.row("d").xattrs = column(&[(b"system.posix_acl_default", &list), (b"user.d", b"1")]);
    model.file("d/plain", b"no list is inherited");
    model.dir("d/sub");
    model.file("d/listed", b"x").xattrs = column(&[
        (b"system.posix_acl_access", &list),
        (b"user.\xff", b"\0\x01"),
    ]);
    model.row("d/listed").mode = 0o664;
    model.file("d/able", b"x").xattrs = column(&[(b"security.capability", &capability)]);
    model.row("d/able").uid = 33;
    model.file("d/trusted", b"").xattrs = column(&[(b"trusted.x", b"y"), (b"user.empty", b"")]);
    let large = noise(5, 2000);
    let set = encode_set(&[(b"user.large", &large)]);
    let id = model.chunk(&set);
    model.file("d/large", b"").xattrs = [&[2], &id.0[..]].concat().into();
    run_exactly(&mut model, &place.path().join("t"), &options());

    // Into a target whose default list new files inherit.
    let target = place.path().join("u");
    std::fs::create_dir(&target).unwrap();
    rustix::fs::setxattr(
        &target,
        "system.posix_acl_default",
        &list,
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    model.rows.remove(&Key::default()); // The list stays.
    let (report, watch) = run(&model, &target, &options());
    assert_eq!((report.unwrap().problems, watch.problems()), (0, vec![]));
    check(&model, &target);
    // And again: nothing to write.
    let report = run_exactly(&mut model, &target, &options());
    assert_eq!(report.files_written, 0);
}

#[test]
fn holes_stay_holes() {
    let place = scratch();
    let mut model = Model::new();
    let data = noise(1, 4096);
    model.large("tail", &[(4096, Some(&data)), (1 << 40, None)]);
    model.large("only", &[(1 << 42, None)]);
    let mut pieces: Vec<(u64, Option<&[u8]>)> = Vec::new();
    for _ in 0..100 {
        pieces.push((4096, Some(&data)));
        pieces.push((65536, None));
    }
    model.large("many", &pieces);
    let target = place.path().join("t");
    run_exactly(&mut model, &target, &options());
    assert!(target.join("tail").metadata().unwrap().blocks() <= 16);
    assert_eq!(target.join("only").metadata().unwrap().blocks(), 0);
    assert!(target.join("many").metadata().unwrap().blocks() <= 100 * 8 + 32);
    // The one chunk of all those pieces and files: once for the restore, once for the comparison.
    assert_eq!(model.reads_max(), 2);
}

#[test]
fn deep_piece_lists_are_walked() {
    let place = scratch();
    let mut model = Model::new();
    let (mut leaves, mut content) = (Vec::new(), Vec::new());
    for number in 0..5u64 {
        let bytes = noise(number, 1000 + number as usize);
        let id = model.chunk(&bytes);
        content.extend_from_slice(&bytes);
        let leaf = encode_leaf(&[(bytes.len() as u64, Piece::Data(id)), (10, Piece::Hole)]);
        content.extend_from_slice(&[0; 10]);
        leaves.push((bytes.len() as u64 + 10, model.chunk(&leaf)));
    }
    let low = encode_node(1, &leaves[..3]);
    let high = encode_node(1, &leaves[3..]);
    let lengths =
        [&leaves[..3], &leaves[3..]].map(|half| half.iter().map(|leaf| leaf.0).sum::<u64>());
    let nodes = [
        (lengths[0], model.chunk(&low)),
        (lengths[1], model.chunk(&high)),
    ];
    let list = model.chunk(&encode_node(2, &nodes));
    model.large("f", &[(1, None)]);
    let size = content.len() as u64;
    let row = model.row("f");
    row.size = size;
    row.content = Content::Pieces { list };
    model.contents.insert(b"f".to_vec(), content);
    run_exactly(&mut model, &place.path().join("t"), &options());
}

#[test]
fn sixty_five_thousand_names_of_one_inode_come_back() {
    let place = scratch();
    let mut model = Model::new();
    model.file("first", b"content");
    model.dir("many");
    model.close();
    let names = 65_000;
    let mut row = model.row("first").clone();
    row.nlink = names;
    for number in 1..names {
        let path = format!("many/{number}");
        let key = Key::of_path(path.as_bytes());
        (row.parent, row.name) = (key.parent.clone(), key.name.clone());
        model.rows.insert(key, row.clone());
    }
    model.row("first").nlink = names;
    let target = place.path().join("t");
    let report = run_exactly(&mut model, &target, &options());
    assert_eq!(report.links, u64::from(names) - 1);
    assert_eq!(
        target.join("first").metadata().unwrap().nlink(),
        u64::from(names)
    );
}

#[test]
fn more_names_than_the_target_allows_become_several_inodes() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    model.file("first", b"content");
    model.close();
    let names = 65_010;
    let mut row = model.row("first").clone();
    row.nlink = names;
    for number in 1..names {
        let key = Key::of_path(format!("n{number}").as_bytes());
        (row.parent, row.name) = (key.parent.clone(), key.name.clone());
        model.rows.insert(key, row.clone());
    }
    model.row("first").nlink = names;
    let (report, watch) = run(&model, &target, &options());
    assert_eq!(watch.problems(), []);
    let report = report.unwrap();
    assert_eq!(report.links + report.files_written, u64::from(names));
    for number in [1, 1000, 65_009] {
        assert_eq!(
            std::fs::read(target.join(format!("n{number}"))).unwrap(),
            b"content"
        );
    }
}

#[test]
fn links_split_by_a_selection_keep_the_content() {
    struct Only;
    impl bale_restore::Selection for Only {
        fn includes(&self, path: &[u8], _: bool) -> bool {
            path.starts_with(b"b/deep/") || path.starts_with(b"b/deep")
        }
        fn excludes(&self, path: &[u8], _: bool) -> bool {
            path.ends_with(b"not")
        }
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    model.dir("a");
    model.dir("b").mode = 0o711;
    model.dir("b/deep");
    model.file("a/one", b"shared");
    model.link("b/deep/two", "a/one");
    model.link("b/deep/three", "a/one");
    model.link("b/deep/not", "a/one");
    model.file("b/beside", b"x");
    let mut options = options();
    options.select = &Only;
    let (report, watch) = run(&model, &target, &options);
    assert_eq!(watch.problems(), []);
    assert_eq!(report.unwrap().links, 1);
    let three = target.join("b/deep/three").metadata().unwrap();
    assert_eq!(three.nlink(), 2);
    assert_eq!(std::fs::read(target.join("b/deep/two")).unwrap(), b"shared");
    assert_eq!(target.join("b").metadata().unwrap().mode() & 0o7777, 0o711);
    assert!(
        !target.join("a").exists()
            && !target.join("b/beside").exists()
            && !target.join("b/deep/not").exists()
    );
}

#[test]
fn an_inode_number_used_twice_joins_nothing() {
    let place = scratch();
    let mut model = Model::new();
    model.file("a", b"first life");
    model.file("b", b"second life");
    let inode = model.row("a").inode;
    model.row("a").nlink = 2;
    model.row("b").nlink = 2;
    model.row("b").inode = inode;
    model.close();
    let target = place.path().join("t");
    let (report, watch) = run(&model, &target, &options());
    assert_eq!(
        (report.unwrap().files_written, watch.problems().len()),
        (2, 0)
    );
    assert_eq!(std::fs::read(target.join("a")).unwrap(), b"first life");
    assert_eq!(std::fs::read(target.join("b")).unwrap(), b"second life");
}

#[test]
fn names_of_one_inode_whose_content_is_stored_twice_are_joined() {
    let place = scratch();
    let mut model = Model::new();
    for (a, b, bytes) in [("a", "b", &b"one content"[..]), ("c", "d", b"other")] {
        model.file(a, bytes).nlink = 2;
        model.file(b, bytes).nlink = 2;
        let first = model.row(a).clone();
        (model.row(b).inode, model.row(b).mtime) = (first.inode, first.mtime);
    }
    for (name, hash) in [
        ("a", [1; 16]),
        ("b", [1; 16]),
        ("c", [2; 16]),
        ("d", [3; 16]),
    ] {
        model.row(name).content_hash = Some(hash);
    }
    model.close();
    let target = place.path().join("t");
    let (report, watch) = run(&model, &target, &options());
    let report = report.unwrap();
    assert_eq!((report.files_written, report.links), (3, 1));
    assert_eq!(watch.problems(), []);
    let stat = |name| std::fs::metadata(target.join(name)).unwrap();
    assert_eq!((stat("a").ino(), stat("a").nlink()), (stat("b").ino(), 2));
    assert_ne!(stat("c").ino(), stat("d").ino(), "a number used twice");
    assert_eq!(std::fs::read(target.join("b")).unwrap(), b"one content");
}

#[test]
fn closed_directories_and_files_come_back() {
    let place = scratch();
    let mut model = Model::new();
    model.dir("r").mode = 0o555;
    model.dir("r/none").mode = 0;
    model.file("r/none/f", b"x").mode = 0;
    model.file("r/g", b"y").mode = 0o444;
    model.large("r/none/big", &[(3, Some(b"abc"))]).mode = 0o400;
    let target = place.path().join("t");
    run_exactly(&mut model, &target, &options());
    let report = run_exactly(&mut model, &target, &options());
    assert_eq!((report.files_written, report.kept), (0, 3));
}

#[test]
fn five_thousand_directories_deep() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    let mut path = String::new();
    for level in 0..5000 {
        path = if level == 0 {
            "d".to_owned()
        } else {
            format!("{path}/d")
        };
        model.dir(&path);
    }
    model.file(format!("{path}/bottom"), b"light");
    model.close();
    let (report, watch) = run(&model, &target, &options());
    assert_eq!(watch.problems(), []);
    assert_eq!(report.unwrap().directories, 5001);
    verified(&model, &target);
    // Replaced by a file, the whole depth goes, without a descriptor for each level.
    let mut flat = Model::new();
    flat.file("d", b"file");
    let mut options = options();
    options.delete = true;
    run_exactly(&mut flat, &target, &options);
}

#[test]
fn identical_files_share_one_reading_of_their_chunk() {
    let place = scratch();
    let mut model = Model::new();
    model.file("f0", b"same");
    model.close();
    let content = model.row("f0").content;
    for number in 1..10_000 {
        let path = format!("f{number}");
        model.file(&path, b"");
        let row = model.row(&path);
        (row.content, row.size) = (content, 4);
        model.contents.insert(path.into_bytes(), b"same".to_vec());
    }
    run_exactly(&mut model, &place.path().join("t"), &options());
    assert_eq!(model.reads_max(), 2); // Once to write, once to verify.
}

#[test]
fn names_like_our_temporary_ones_come_back_too() {
    let place = scratch();
    let mut model = Model::new();
    model.large("big", &[(3, Some(b"abc"))]);
    let part = bale_restore::names::part_name(b"big");
    model.file(&part, b"left over in the source");
    run_exactly(&mut model, &place.path().join("t"), &options());
    let mut options = options();
    options.overwrite = Overwrite::Always;
    run_exactly(&mut model, &place.path().join("t"), &options);
}
