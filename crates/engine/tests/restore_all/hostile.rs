//! Whatever the repository says and whoever races in the target: nothing outside it is touched.

use super::encoded::{Piece, encode_leaf, encode_node};
use crate::model::*;
use bale_engine::restore::Patterns;
use bale_format::{Content, Entry, EntryFlags, Key, Kind};
use bale_restore::{RestoreError, RestoreOptions, verify};
use bytes::Bytes;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A place with a target `t` and a witness `outside` that must stay as it is.
struct Ground {
    place: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let place = scratch();
        std::fs::create_dir(place.path().join("outside")).unwrap();
        std::fs::write(place.path().join("outside/witness"), b"untouched").unwrap();
        std::fs::create_dir(place.path().join("t")).unwrap();
        Ground { place }
    }

    fn target(&self) -> std::path::PathBuf {
        self.place.path().join("t")
    }

    fn untouched(&self) {
        let names = |path: &Path| {
            let mut names: Vec<_> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(self.place.path()), ["outside", "t"]);
        assert_eq!(names(&self.place.path().join("outside")), ["witness"]);
        let witness = self.place.path().join("outside/witness");
        assert_eq!(std::fs::read(&witness).unwrap(), b"untouched");
        assert_eq!(
            witness.metadata().unwrap().permissions().mode() & 0o7777,
            0o644
        );
        assert_eq!(witness.metadata().unwrap().nlink(), 1);
    }
}

fn evil(parent: &str, name: &str, kind: Kind) -> Entry {
    let mut entry = Entry::new(
        Bytes::copy_from_slice(parent.as_bytes()),
        Bytes::copy_from_slice(name.as_bytes()),
        kind,
    );
    entry.mode = 0o666;
    entry
}

#[test]
fn bad_names_are_refused_and_the_rest_is_restored() {
    let ground = Ground::new();
    let mut model = everyday(10);
    let bad = [
        ("", ".."),
        ("", "."),
        ("", "/etc"),
        ("", "a/b"),
        ("", "../outside/x"),
        ("", "a\0b"),
        ("..", "x"),
        ("../outside", "x"),
        ("/", "x"),
        ("d0/..", "x"),
        ("d0//e0", "x"),
        ("d0/", "x"),
        (".", "x"),
    ];
    for (parent, name) in bad {
        for kind in [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo] {
            let mut entry = evil(parent, name, kind);
            entry.target = b"y"[..].into();
            model.extra.push(entry.clone());
            entry.nlink = 2;
            model.extra.push(entry);
        }
    }
    let (report, watch) = run(&model, &ground.target(), &options());
    assert!(report.unwrap().problems >= 13);
    assert!(
        watch
            .problems()
            .iter()
            .all(|(_, text)| text.contains("refused")),
        "{:?}",
        watch.problems()
    );
    // A verify that follows has nothing of the catalog to tell again; one alone has.
    let after = RestoreOptions {
        is_plan_reported: true,
        ..options()
    };
    let mut refused = Vec::new();
    for options in [after, options()] {
        let watch = Watch::default();
        verify(&model, &model, &space(), &ground.target(), &options, &watch).unwrap();
        let problems = watch.problems();
        let told = problems.iter().filter(|(_, text)| text.contains("refused"));
        refused.push(told.count());
    }
    assert!(refused[0] == 0 && refused[1] >= 13, "{refused:?}");
    check(&model, &ground.target());
    ground.untouched();
}

#[test]
fn a_link_and_then_a_child_of_it_stays_inside() {
    for order in [false, true] {
        let ground = Ground::new();
        let mut model = Model::new();
        model.symlink("evil", b"../outside");
        model.file("evil/witness", b"pwned");
        model.file("evil/new", b"pwned");
        model.dir("evil/dir");
        model.symlink("evil/link", b"x");
        model.large("evil/big", &[(3, Some(b"abc"))]);
        model.file("a", b"first");
        model.link("evil/linked", "a");
        if order {
            // The same name as a directory as well.
            model.extra.push(evil("", "evil", Kind::Directory));
        }
        model.close();
        let (report, _watch) = run(&model, &ground.target(), &options());
        assert!(report.unwrap().problems > 0);
        ground.untouched();
    }
}

#[test]
fn links_that_stand_in_the_target_are_replaced_never_followed() {
    let ground = Ground::new();
    let target = ground.target();
    let mut model = everyday(30);
    symlink("../outside", target.join("d0")).unwrap();
    std::fs::create_dir(target.join("d1")).unwrap();
    symlink("../../outside", target.join("d1/e1")).unwrap();
    symlink("../outside/witness", target.join("d1/big")).unwrap();
    std::fs::create_dir(target.join("d2")).unwrap();
    symlink("../../outside/witness", target.join("d2/again")).unwrap();
    run_exactly(&mut model, &target, &options());
    ground.untouched();
}

#[test]
fn a_hard_link_to_a_file_outside_is_replaced_never_written_through() {
    let ground = Ground::new();
    let witness = ground.place.path().join("outside/witness");
    let mut model = Model::new();
    model.file("a", b"untouched").mode = 0o777;
    model.row("a").mtime = bale_format::Time {
        seconds: witness.metadata().unwrap().mtime(),
        nanos: witness.metadata().unwrap().mtime_nsec() as u32,
    };
    model.large("b", &[(9, Some(b"UNTOUCHED"))]);
    for name in ["a", "b"] {
        std::fs::hard_link(&witness, ground.target().join(name)).unwrap();
    }
    run_exactly(&mut model, &ground.target(), &options());
    ground.untouched();
}

#[test]
fn links_are_made_to_what_was_restored_and_nothing_else() {
    let ground = Ground::new();
    let mut model = Model::new();
    // The first name cannot be restored; at its place stands a link out.
    model.file("a/first", b"content");
    model.link("b", "a/first");
    model.link("c", "a/first");
    symlink("../outside", ground.target().join("a")).unwrap();
    model.symlink("a", b"../outside");
    model.close();
    let (report, _watch) = run(&model, &ground.target(), &options());
    assert!(report.unwrap().problems > 0);
    ground.untouched();
    let b = ground.target().join("b").metadata().unwrap();
    assert_eq!(b.ino(), ground.target().join("c").metadata().unwrap().ino());
    assert_eq!(
        std::fs::read(ground.target().join("b")).unwrap(),
        b"content"
    );
}

#[test]
fn lies_about_lengths_end_as_problems() {
    let ground = Ground::new();
    let mut model = Model::new();
    model.file("good", b"good");
    let data = model.chunk(b"0123456789");
    let leaf = |pieces: &[(u64, Piece)]| encode_leaf(pieces);
    let short = leaf(&[(5, Piece::Data(data))]);
    let long = leaf(&[(100, Piece::Data(data))]);
    let overflow = leaf(&[(u64::MAX, Piece::Hole), (u64::MAX, Piece::Hole)]);
    let empty = leaf(&[]);
    let zero = leaf(&[(0, Piece::Hole)]);
    let deep = encode_node(9, &[(10, data)]);
    let mut count = leaf(&[(10, Piece::Data(data))]);
    count[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut cut = leaf(&[(10, Piece::Data(data))]);
    cut.truncate(20);
    let behind = leaf(&[(10, Piece::Part(data, 1))]);
    let far_behind = leaf(&[(10, Piece::Part(data, u32::MAX))]);
    let unknown = leaf(&[(10, Piece::Data(bale_format::ChunkId([9; 32])))]);
    let lists = [
        short,
        long,
        overflow,
        empty,
        zero,
        deep,
        count,
        cut,
        b"x".to_vec(),
        behind,
        far_behind,
        unknown,
    ];
    for (number, list) in lists.iter().enumerate() {
        let list = model.chunk(list);
        let path = format!("bad{number}");
        model.file(&path, b"");
        let row = model.row(&path);
        row.size = 10;
        row.content = Content::Pieces { list };
    }
    // A list that holds itself.
    let own = model.chunk(b"cycle");
    let cycle = encode_node(1, &[(10, own)]);
    let cycle = model.chunk(&cycle);
    model.file("cycle", b"").size = 10;
    model.row("cycle").content = Content::Pieces { list: cycle };
    for (name, offset, size) in [
        ("out1", 5, 6),
        ("out2", u32::MAX, 1),
        ("out3", 0, u64::MAX / 4),
    ] {
        model.file(name, b"").size = size;
        model.row(name).content = Content::Bundled {
            chunk: data,
            offset,
        };
    }
    model.close();
    let mut forced = options();
    forced.force_space = true;
    let (report, watch) = run(&model, &ground.target(), &forced);
    // Of one the chunk is missing, and of one it is too short for the part; the files are written:
    // each is named for both.
    let report = report.unwrap();
    assert_eq!(report.problems, 18, "{:?}", watch.problems());
    assert_eq!((report.incomplete, report.bytes_missing), (2, 20));
    assert_eq!(
        std::fs::read(ground.target().join("good")).unwrap(),
        b"good"
    );
    let mut names: Vec<_> = std::fs::read_dir(ground.target())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    // A file with a good list keeps what can be had; a file with a bad one is not made.
    assert_eq!(names, ["bad11", "bad9", "good"]);
}

#[test]
fn a_size_beyond_the_target_is_refused_before_anything_is_written() {
    let ground = Ground::new();
    let mut model = everyday(5);
    let data = model.chunk(b"0123456789");
    let list = encode_leaf(&[(1 << 60, Piece::Data(data))]);
    let list = model.chunk(&list);
    model.file("bomb", b"").size = 1 << 60;
    model.row("bomb").content = Content::Pieces { list };
    let (report, _watch) = run(&model, &ground.target(), &options());
    assert!(matches!(report, Err(RestoreError::NoSpace { .. })));
    assert_eq!(std::fs::read_dir(ground.target()).unwrap().count(), 0);
    // A hole of that size is no bomb.
    model.rows.remove(&Key::of_path(b"bomb"));
    model.large("hole", &[(1 << 42, None)]);
    assert!(model.row("hole").flags.has(EntryFlags::SPARSE));
    run_exactly(&mut model, &ground.target(), &options());
}

/// Puts a link in the place of a file, itself careful not to follow the links put elsewhere.
fn flip_file(target: &Path, turn: u64) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let dir = target.join(format!("d{}", turn % 7));
    let dir = rustix::fs::openat(CWD, &dir, flags, Mode::empty())?;
    let dir = rustix::fs::openat(&dir, format!("e{}", turn % 3), flags, Mode::empty())?;
    let name = format!("f{}", turn % 3000);
    rustix::fs::unlinkat(&dir, &name, AtFlags::empty())?;
    rustix::fs::symlinkat("../../../outside/witness", &dir, &name)
}

#[test]
fn somebody_who_flips_directories_to_links_meanwhile_gains_nothing() {
    let ground = Ground::new();
    let target = ground.target();
    let mut model = everyday(3000);
    model.close();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0u64;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                let dir = target.join(format!("d{}", turn % 7));
                let inner = dir.join(format!("e{}", turn % 3));
                let aside = target.join(format!("aside{turn}"));
                let victim = if turn.is_multiple_of(2) { dir } else { inner };
                if std::fs::rename(&victim, &aside).is_ok() {
                    let out = if turn.is_multiple_of(2) {
                        "../outside"
                    } else {
                        "../../outside"
                    };
                    let _raced = symlink(out, &victim);
                }
                let _raced = flip_file(&target, turn);
            }
        });
        for _ in 0..10 {
            let (report, _watch) = run(&model, &target, &options());
            assert!(
                !matches!(report, Err(RestoreError::Target { .. })),
                "{report:?}"
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    let names: Vec<_> = std::fs::read_dir(ground.place.path().join("outside"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["witness"]);
    ground.untouched();
}

/// A file below 200,000 directories of which the catalog has no rows, chosen by a pattern: each of
/// them was looked up, and asked about with all of its path.
#[test]
fn a_chosen_file_below_very_many_directories_costs_no_look_up_for_each() {
    let ground = Ground::new();
    let mut model = Model::new();
    let parent = vec!["d"; 200_000].join("/");
    model.file(format!("{parent}/x"), b"x");
    model.close();
    let patterns = Patterns::new(b"", &["x".to_owned()], &["/e".to_owned()]).unwrap();
    let dry = RestoreOptions {
        dry_run: true,
        ..RestoreOptions::new(&patterns)
    };
    let (report, watch) = run(&model, &ground.target(), &dry);
    assert_eq!(report.unwrap().files_written, 1, "{:?}", watch.problems());
    assert!(model.lookups.load(Ordering::Relaxed) < 5_000);
    ground.untouched();
}
