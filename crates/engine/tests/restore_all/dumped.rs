//! A dumped tree, extracted by GNU tar, is the tree.

use super::encoded::{Piece, encode_leaf};
use crate::model::*;
use bale_format::{Content, EntryFlags, Kind, Time};
use bale_restore::dump::{DumpError, DumpReport, dump};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn dumped(model: &Model, path: &[u8]) -> (Result<DumpReport, DumpError>, Vec<u8>, Watch) {
    let (watch, mut out) = (Watch::default(), Vec::new());
    let report = dump(model, model, &space(), path, &mut out, &watch);
    (report, out, watch)
}

/// Extracts with GNU tar; `false` if there is none.
fn extracted(test: &str, archive: &[u8], target: &Path) -> bool {
    std::fs::create_dir(target).unwrap();
    let arguments = [
        "--extract",
        "--file=-",
        "--numeric-owner",
        "--same-permissions",
        "--xattrs",
        "--xattrs-include=*",
    ];
    let child = Command::new("tar")
        .args(arguments)
        .arg("-C")
        .arg(target)
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skipped(test, "tar is missing");
        return false;
    };
    child.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(child.wait().unwrap().success());
    true
}

#[test]
fn a_dumped_tree_is_what_tar_makes_of_it() {
    let test = "a_dumped_tree_is_what_tar_makes_of_it";
    if !root_or_skip(test) {
        return;
    }
    let place = scratch();
    let mut model = everyday(200);
    let long = "n".repeat(200);
    model.dir(&long);
    model.file(format!("{long}/{long}"), b"long name");
    model.symlink(format!("{long}/link"), format!("{long}/{long}").as_bytes());
    model.link(format!("{long}/hard"), format!("{long}/{long}"));
    model.file(b"raw \xff\xfe\n", b"raw");
    model.file("old", b"x").mtime = Time {
        seconds: -1_000_000,
        nanos: 5,
    };
    model.file("owned", b"x").uid = u32::MAX - 1;
    model.row("owned").mode = 0o4711;
    model.file("attributed", b"x").xattrs =
        column(&[(b"user.a=b%c", b"\0\xffvalue"), (b"user.empty", b"")]);
    model.special("char", Kind::CharDevice, 1 << 32 | 3);
    model.special("fifo", Kind::Fifo, 0);
    model.special("socket", Kind::Socket, 0);
    model.symlink("many", b"names");
    model.link("many2", "many");
    model.dir("empty").mode = 0o500;
    let data = noise(1, 10_000);
    model.large(
        "sparse",
        &[(1 << 20, None), (10_000, Some(&data)), (1 << 30, None)],
    );
    model.large(
        "dense",
        &[(10_000, Some(&data)), (4096, None), (10_000, Some(&data))],
    );
    model.large("only hole", &[(1 << 20, None)]);
    model.close();
    let (report, archive, watch) = dumped(&model, b"");
    assert_eq!(watch.problems(), []);
    assert_eq!(report.unwrap().entries, model.rows.len() as u64 - 1);
    assert_eq!(archive.len() % 10240, 0);
    assert!(archive.len() < 4 << 20, "holes stay out of the archive");
    // An archive holds no sockets.
    model.rows.retain(|_, row| row.kind != Kind::Socket);
    let target = place.path().join("t");
    if extracted(test, &archive, &target) {
        check(&model, &target);
        assert!(target.join("sparse").metadata().unwrap().blocks() < 100);
        verified(&model, &target);
    }
}

#[test]
fn a_part_is_named_relative_to_itself_and_links_out_of_it_are_files() {
    let test = "a_part_is_named_relative_to_itself_and_links_out_of_it_are_files";
    let place = scratch();
    let model = everyday(30);
    let (report, archive, watch) = dumped(&model, b"d2");
    assert_eq!((report.unwrap().problems, watch.problems()), (0, vec![]));
    let target = place.path().join("t");
    if extracted(test, &archive, &target) {
        assert_eq!(
            std::fs::read(target.join("again")).unwrap(),
            model.contents[&b"d1/big"[..]]
        );
        assert_eq!(
            std::fs::read(target.join("e2/f2")).unwrap(),
            model.contents[&b"d2/e2/f2"[..]]
        );
    }
}

#[test]
fn a_file_is_its_bytes() {
    let mut model = everyday(30);
    model.large(
        "sparse",
        &[(3, Some(b"abc")), (100_000, None), (3, Some(b"def"))],
    );
    for path in ["d0/e0/f21", "d1/big", "sparse", "d0/e0/f0"] {
        let (report, bytes, _) = dumped(&model, path.as_bytes());
        assert!(bytes == model.contents[path.as_bytes()], "{path}");
        assert_eq!(report.unwrap().bytes, bytes.len() as u64);
    }
    assert!(matches!(
        dumped(&model, b"d0/link").0,
        Err(DumpError::NoContent)
    ));
    assert!(matches!(
        dumped(&model, b"nothing").0,
        Err(DumpError::NotFound)
    ));
}

#[test]
fn a_length_without_end_is_left_out_and_told() {
    let mut model = Model::new();
    model.file("good", b"good");
    let data = model.chunk(b"0123456789");
    for (name, length) in [("bomb", 1 << 60), ("most", u64::MAX)] {
        let list = model.chunk(&encode_leaf(&[(length, Piece::Data(data))]));
        for (name, is_sparse) in [(name.to_owned(), false), (format!("{name}-sparse"), true)] {
            let row = model.file(name, b"");
            row.size = length;
            row.content = Content::Pieces { list };
            if is_sparse {
                row.flags.set(EntryFlags::SPARSE);
            }
        }
    }
    model.close();
    let (report, archive, watch) = dumped(&model, b"");
    assert_eq!(report.unwrap().problems, 4, "{:?}", watch.problems());
    assert!(archive.len() < 100_000 && archive.windows(4).any(|part| part == b"good"));
    for name in ["bomb", "most-sparse"] {
        let (report, bytes, _) = dumped(&model, name.as_bytes());
        assert_eq!((report.unwrap().problems, bytes.len()), (1, 0), "{name}");
    }
    // A hole of that size takes no room in an archive.
    let mut model = Model::new();
    model.large("hole", &[(1 << 60, None)]);
    let (report, archive, _) = dumped(&model, b"");
    assert_eq!((report.unwrap().problems, archive.len()), (0, 10_240));
}

#[test]
fn what_cannot_be_read_leaves_an_archive_that_can() {
    let test = "what_cannot_be_read_leaves_an_archive_that_can";
    let place = scratch();
    let mut model = everyday(100);
    model.close();
    model.break_chunk_of("d0/e0/f21");
    model.large(
        "half",
        &[
            (1000, Some(&noise(70, 1000))),
            (1000, Some(&noise(71, 1000))),
        ],
    );
    let second = bale_format::ChunkId(*blake3::hash(&noise(71, 1000)).as_bytes());
    model.broken.lock().unwrap().insert(second);
    model.large("list", &[(3, Some(b"abc"))]);
    model.break_chunk_of("list");
    model.file("late", b"unharmed");
    model.close();
    let (report, archive, watch) = dumped(&model, b"");
    assert_eq!(report.unwrap().problems, watch.problems().len() as u64);
    let target = place.path().join("t");
    if extracted(test, &archive, &target) {
        assert_eq!(std::fs::read(target.join("late")).unwrap(), b"unharmed");
        let half = std::fs::read(target.join("half")).unwrap();
        assert_eq!(
            (&half[..1000], &half[1000..]),
            (&noise(70, 1000)[..], &[0; 1000][..])
        );
        assert!(!target.join("d0/e0/f21").exists());
    }
}

#[test]
fn bad_names_are_not_in_an_archive() {
    use bytes::Bytes;
    let mut model = everyday(5);
    for (parent, name) in [
        ("", ".."),
        ("..", "evil"),
        ("", "/etc/evil"),
        ("d0/../..", "evil"),
    ] {
        for kind in [Kind::File, Kind::Directory, Kind::Symlink] {
            let entry = bale_format::Entry::new(Bytes::from(parent), Bytes::from(name), kind);
            model.extra.push(entry);
        }
    }
    let (report, archive, watch) = dumped(&model, b"");
    assert_eq!(report.unwrap().problems, 12, "{:?}", watch.problems());
    assert!(!archive.windows(4).any(|window| window == b"evil"));
}
