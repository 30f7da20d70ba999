//! What is damaged, or was never read, takes the place of nothing and is named.

use super::encoded::{Piece, encode_leaf};
use crate::model::*;
use bale_format::{Content, EntryFlags};
use bale_restore::{LossKind, Overwrite, RestoreError};
use std::collections::BTreeSet;
use std::path::Path;

fn names(target: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(target).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

/// A file of two pieces of which the second is damaged.
fn damaged() -> Model {
    let mut model = Model::new();
    let (a, b) = (noise(1, 300_000), noise(2, 200_000));
    model.large("big", &[(300_000, Some(&a)), (200_000, Some(&b))]);
    model.close();
    let second = model.chunk(&b);
    model.broken.lock().unwrap().insert(second);
    model
}

#[test]
fn a_damaged_file_takes_the_place_of_nothing_and_its_salvage_is_beside_it() {
    let place = scratch();
    let target = place.path().join("t");
    let model = damaged();
    let whole = model.contents[&b"big".to_vec()].clone();
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("big"), &whole).unwrap();
    std::fs::write(target.join("big.bale-salvaged"), b"somebody else's").unwrap();
    for overwrite in [Overwrite::IfChanged, Overwrite::Always] {
        let mut options = options();
        options.overwrite = overwrite;
        let (report, watch) = run(&model, &target, &options);
        let report = report.unwrap();
        assert_eq!((report.salvaged, report.files_written), (1, 0));
        let problems = watch.problems();
        let said = |text: &str| {
            problems
                .iter()
                .any(|(path, why)| path == "big" && why.contains(text))
        };
        assert!(said("beside it as big.bale-salvaged.2"), "{problems:?}");
        assert!(said("bytes 300000 to 500000"), "{problems:?}");
        assert!(std::fs::read(target.join("big")).unwrap() == whole);
        let salvage = std::fs::read(target.join("big.bale-salvaged.2")).unwrap();
        assert!(salvage[..300_000] == whole[..300_000] && salvage.len() == whole.len());
        let wanted = ["big", "big.bale-salvaged", "big.bale-salvaged.2"];
        assert_eq!(names(&target), wanted.map(str::to_owned).into());
    }
    let others = std::fs::read(target.join("big.bale-salvaged")).unwrap();
    assert_eq!(others, b"somebody else's");
}

#[test]
fn where_nothing_stands_a_damaged_file_has_its_name_and_the_next_restore_mends_it() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = damaged();
    for _ in 0..2 {
        let (report, watch) = run(&model, &target, &options());
        report.unwrap();
        assert!(!watch.problems().is_empty());
        assert_eq!(names(&target), ["big".to_owned()].into());
    }
    model.broken.lock().unwrap().clear();
    run_exactly(&mut model, &target, &options());
}

#[test]
fn what_the_backup_could_not_read_takes_the_place_of_nothing_and_is_told_every_time() {
    let place = scratch();
    let target = place.path().join("t");
    let mut model = Model::new();
    let a = noise(1, 100_000);
    model.large("big", &[(150_000, None)]);
    let list = [
        (100_000, Piece::Data(model.chunk(&a))),
        (50_000, Piece::Unreadable),
    ];
    let list = model.chunk(&encode_leaf(&list));
    let row = model.row("big");
    row.content = Content::Pieces { list };
    row.flags = EntryFlags::INCOMPLETE;
    model.file("small", b"half").flags = EntryFlags::INCOMPLETE;
    model.close();
    for _ in 0..2 {
        let (report, watch) = run(&model, &target, &options());
        report.unwrap();
        let told: BTreeSet<String> = watch.problems().into_iter().map(|told| told.0).collect();
        assert_eq!(told, ["big", "small"].map(str::to_owned).into());
        assert_eq!(names(&target), ["big", "small"].map(str::to_owned).into());
    }
    let whole = noise(3, 150_000);
    std::fs::write(target.join("big"), &whole).unwrap();
    std::fs::write(target.join("small"), b"both").unwrap();
    let (report, _) = run(&model, &target, &options());
    assert_eq!(report.unwrap().salvaged, 2);
    assert!(std::fs::read(target.join("big")).unwrap() == whole);
    assert_eq!(std::fs::read(target.join("small")).unwrap(), b"both");
    assert_eq!(
        std::fs::read(target.join("small.bale-salvaged")).unwrap(),
        b"half"
    );
}

#[test]
fn what_rows_say_the_backup_did_not_have_is_told_by_name() {
    let place = scratch();
    let mut model = Model::new();
    model.file("plain", b"x");
    model.file("attributes", b"x").flags = EntryFlags::XATTRS_UNREADABLE;
    model.file("changed", b"x").flags = EntryFlags::CHANGED;
    model.dir("mount").flags = EntryFlags::NOT_CROSSED;
    model.dir("closed").flags = EntryFlags::UNREADABLE;
    model.close();
    let wanted = [
        (LossKind::XattrsUnread, "attributes", false),
        (LossKind::Changed, "changed", true),
        (LossKind::NotCrossed, "mount", true),
    ];
    let is_told = |losses: &[bale_restore::Loss]| {
        for (kind, path, is_note) in wanted {
            let loss = losses.iter().find(|loss| loss.kind == kind).unwrap();
            assert_eq!(
                (loss.entries, &loss.paths[..]),
                (1, &[path.as_bytes().to_vec()][..])
            );
            assert_eq!(kind.is_note(), is_note);
        }
    };
    let (report, watch) = run(&model, &place.path().join("t"), &options());
    is_told(&report.unwrap().losses);
    assert_eq!(watch.problems().len(), 1, "{:?}", watch.problems());

    let watch = Watch::default();
    let (image, options) = (place.path().join("image"), options());
    let target = bale_restore::ext4::ImageTarget::look_at(&image, false).unwrap();
    let how = (bale_fsimage::mkext4::Ext4Options::default(), &options);
    let memory = space();
    let report = bale_restore::ext4::restore(&model, &model, &memory, target, how, &watch).unwrap();
    is_told(&report.restored.losses);
    assert_eq!(watch.problems().len(), 1, "{:?}", watch.problems());

    let (watch, mut out) = (Watch::default(), Vec::new());
    let report = bale_restore::dump::dump(&model, &model, &memory, b"", &mut out, &watch).unwrap();
    is_told(&report.losses);
    assert_eq!(watch.problems().len(), 1, "{:?}", watch.problems());
}

#[test]
fn a_selection_of_nothing_is_an_error_before_anything_is_made() {
    struct Nothing;
    impl bale_restore::Selection for Nothing {
        fn includes(&self, _: &[u8], _: bool) -> bool {
            false
        }
        fn excludes(&self, _: &[u8], _: bool) -> bool {
            false
        }
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut options = options();
    options.select = &Nothing;
    let (report, _) = run(&everyday(10), &target, &options);
    assert!(
        matches!(report, Err(RestoreError::NothingSelected)),
        "{report:?}"
    );
    assert!(!target.exists());
}

#[test]
fn rows_below_what_is_no_directory_are_in_no_archive() {
    let mut model = Model::new();
    model.symlink("link", b"/etc");
    model.file("link/passwd", b"evil");
    model.dir("link/sub");
    model.file("link/sub/deep", b"evil");
    model.file("linked", b"fine");
    model.file("orphan/f", b"fine");
    model.close();
    let (watch, mut out) = (Watch::default(), Vec::new());
    let memory = space();
    bale_restore::dump::dump(&model, &model, &memory, b"", &mut out, &watch).unwrap();
    let told: BTreeSet<String> = watch.problems().into_iter().map(|told| told.0).collect();
    let wanted = ["link/passwd", "link/sub", "link/sub/deep"];
    assert_eq!(told, wanted.map(str::to_owned).into());
    let place = scratch();
    std::fs::write(place.path().join("a.tar"), &out).unwrap();
    let listed = std::process::Command::new("tar")
        .args(["-tf", "a.tar"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let listed: BTreeSet<&str> = listed.lines().collect();
    assert_eq!(listed, ["./", "link", "linked", "orphan/f"].into());
}

/// A time that some file systems cannot hold was no reason to take whatever stands there for what
/// was restored.
#[test]
fn no_name_is_linked_to_an_older_file_that_stands_where_its_first_name_failed() {
    for seconds in [-1_000_000, 1 << 33] {
        let place = scratch();
        let target = place.path().join("t");
        let mut model = Model::new();
        model.file("a", b"new content").mtime = bale_format::Time { seconds, nanos: 0 };
        model.link("b", "a");
        model.break_chunk_of("a");
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("a"), b"old content").unwrap();
        let (_, watch) = run(&model, &target, &options());
        assert!(watch.problems().iter().any(|(path, _)| path == "b"));
        assert_eq!(std::fs::read(target.join("a")).unwrap(), b"old content");
        assert!(
            std::fs::read(target.join("b")).is_err(),
            "linked to the old one"
        );
        // And once it can be read, they are one again, by whatever time there is.
        model.broken.lock().unwrap().clear();
        run_exactly(&mut model, &target, &options());
    }
}
