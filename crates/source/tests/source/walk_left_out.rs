//! What is left out because a backup works with it, and what is not crossed.

use crate::walk_support::{BindMount, TempPlace, Walked, is_root, walk, without_slash};
use bale_format::entry::EntryFlags;
use bale_pipeline::filter::{Filter, FilterOptions, Pattern};
use bale_pipeline::filter::{TAG_NAME, TAG_SIGNATURE};
use bale_repository::store::LocalStore;
use bale_source::scan::{LeftOut, NoteKind, ScanOptions};

fn kinds(walked: &Walked) -> Vec<(Vec<u8>, NoteKind)> {
    let notes = walked.notes.iter();
    notes.map(|note| (note.path.clone(), note.kind)).collect()
}

/// A restore could not know otherwise that they were there, once they are smaller.
#[test]
fn files_left_out_for_their_size_are_named_unless_a_pattern_leaves_them_out() {
    let place = TempPlace::new();
    let files = [
        ("deep/small", 10),
        ("deep/large", 11),
        ("large", 12),
        ("large.o", 12),
    ];
    for (name, len) in files {
        place.write(name, &vec![7; len]);
    }
    let filter = FilterOptions {
        patterns: vec![Pattern {
            text: "*.o".to_owned(),
            ignore_case: false,
        }],
        larger_than_bytes: Some(10),
        ..FilterOptions::default()
    };
    let options = ScanOptions {
        filter: Filter::new(&filter).unwrap(),
        ..ScanOptions::default()
    };
    let walked = walk(&[&place.path], options.clone());
    assert_eq!(walked.below(&place.path), [&b"deep"[..], b"deep/small"]);
    let left = ["large", "deep/large"].map(|name| without_slash(&place.join(name)));
    let mut named = kinds(&walked);
    named.sort_by_key(|(path, _)| std::cmp::Reverse(path.clone()));
    assert_eq!(named, left.map(|path| (path, NoteKind::Size)));
    // Who names it means it.
    let named = walk(&[&place.join("large")], options);
    assert!(named.has(&place.join("large")) && named.notes.is_empty());
}

#[test]
fn what_a_backup_works_with_is_left_out_whatever_path_leads_to_it() {
    let place = TempPlace::new();
    place.write("home/store/packs/pack", b"x");
    place.write("home/store.key", b"x");
    place.write("home/other", b"x");
    let link = place.join("link");
    std::os::unix::fs::symlink(place.join("home"), &link).unwrap();
    let left_out = LeftOut::default()
        .and_in_use(&link.join("store"))
        .and_in_use(&link.join("store.key"))
        .and_in_use(&link.join("nothing"));
    let options = ScanOptions {
        left_out,
        ..ScanOptions::default()
    };
    let home = place.join("home");
    let walked = walk(&[&home], options.clone());
    assert_eq!(walked.below(&home), [&b"other"[..], b"store"]);
    let store = walked.find(&home.join("store")).unwrap();
    assert!(store.flags.has(EntryFlags::NOT_CROSSED));
    let left = ["store", "store.key"].map(|name| without_slash(&home.join(name)));
    assert_eq!(kinds(&walked), left.map(|path| (path, NoteKind::InUse)));
    // Who names it means it.
    let named = walk(&[&home.join("store")], options);
    assert!(named.has(&home.join("store/packs/pack")));
}

#[test]
fn a_repository_is_known_by_its_tag_and_its_config() {
    let place = TempPlace::new();
    let repository = place.join("r");
    LocalStore::create(&repository).unwrap();
    let tag = std::fs::read_to_string(repository.join(TAG_NAME)).unwrap();
    assert!(tag.starts_with(TAG_SIGNATURE));
    // Somebody would like to hide what he has.
    place.write(&format!("planted/{TAG_NAME}"), tag.as_bytes());
    for number in 0..20 {
        place.write(&format!("planted/{number}/file"), b"x");
    }
    let options = |left_out| ScanOptions {
        left_out,
        ..ScanOptions::default()
    };
    let marked = || options(LeftOut::default().and_repositories());
    let without_config = walk(&[&place.path], marked());
    assert!(without_config.has(&repository.join("packs")));
    // Either of the two says what it is.
    std::fs::write(repository.join("config.copy"), "{\"format\":1}\n").unwrap();
    let by_copy = walk(&[&place.path], marked());
    assert!(!by_copy.has(&repository.join("packs")));
    std::fs::remove_file(repository.join("config.copy")).unwrap();
    std::fs::write(repository.join("config"), "{\"format\":1}\n").unwrap();
    let walked = walk(&[&place.path], marked());
    assert!(!walked.has(&repository.join("packs")));
    let row = walked.find(&repository).unwrap();
    assert!(row.flags.has(EntryFlags::NOT_CROSSED));
    let left = (without_slash(&repository), NoteKind::Repository);
    assert_eq!(kinds(&walked), [left]);
    assert!(walked.has(&place.join("planted/7/file")));
    // Nobody else's marks take what is in a directory out of the backup.
    if is_root() {
        let nobody = Some(65_534);
        std::os::unix::fs::chown(repository.join("config"), nobody, None).unwrap();
        assert!(walk(&[&place.path], marked()).has(&repository.join("packs")));
        std::os::unix::fs::chown(&repository, nobody, None).unwrap();
        assert!(!walk(&[&place.path], marked()).has(&repository.join("packs")));
    }
    let asked_for = walk(&[&place.path], options(LeftOut::default()));
    assert!(asked_for.has(&repository.join("packs")));
    let named = walk(&[&repository], marked());
    assert!(named.has(&repository.join("packs")));
}

#[test]
fn what_is_bound_from_the_same_file_system_is_on_it() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    place.write("itself/file", b"x");
    place.write("real/file", b"x");
    place.write("real/deep/file", b"x");
    place.write("bound file", b"");
    for empty in ["bound", "real/deep/loop", "memory"] {
        std::fs::create_dir(place.join(empty)).unwrap();
    }
    let _mounts = [
        BindMount::new(&place.join("real"), &place.join("real/deep/loop")),
        BindMount::new(&place.join("itself"), &place.join("itself")),
        BindMount::new(&place.join("real"), &place.join("bound")),
        BindMount::new(&place.join("real/file"), &place.join("bound file")),
        BindMount::new("/dev/shm".as_ref(), &place.join("memory")),
    ];
    let options = ScanOptions {
        one_file_system: true,
        ..ScanOptions::default()
    };
    let walked = walk(&[&place.path], options);
    for name in ["itself/file", "bound/file", "bound/deep/file", "bound file"] {
        assert!(walked.has(&place.join(name)), "{name}");
    }
    assert!(walked.problems.is_empty(), "{:?}", walked.problems);
    let not_crossed = [
        ("memory", NoteKind::OtherFilesystem),
        ("real/deep/loop", NoteKind::Above),
    ];
    let not_crossed = not_crossed.map(|(name, kind)| (without_slash(&place.join(name)), kind));
    assert_eq!(kinds(&walked), not_crossed);
    for (path, _) in not_crossed {
        let row = walked.entries.iter().find(|entry| entry.path() == path);
        assert!(row.unwrap().flags.has(EntryFlags::NOT_CROSSED));
    }
}
