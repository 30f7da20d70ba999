//! Trees that change, or are broken, while they are walked.

use crate::walk_support::{
    BindMount, LoopMount, TempPlace, Walked, is_root, threads, walk, while_disturbed, without_slash,
};
use bale_format::entry::{EntryFlags, Key, Kind};
use bale_source::scan::{
    BATCH_ENTRIES_MAX, ListedAgain, NoteKind, Renamed, ScanItem, ScanOptions, Scanner, Sources,
    barrier_now,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::symlink;

/// A directory on the way is exchanged with a link to a secret, over and over. Whatever the walk
/// sees, it never leaves the tree.
#[test]
fn nothing_outside_is_reached_when_a_directory_is_swapped_for_a_link() {
    let place = TempPlace::new();
    let outside = TempPlace::new();
    outside.write("deep/secret", b"s");
    place.write("tree/victim/deep/public", b"p");
    let victim = place.join("tree/victim");
    let evil = place.join("evil");
    symlink(&outside.path, &evil).unwrap();
    let mut entered = 0;
    let swap = || renameat_with(CWD, &victim, CWD, &evil, RenameFlags::EXCHANGE).unwrap();
    while_disturbed(swap, || {
        for round in 0..500 {
            let walked = walk(&[&place.join("tree")], threads(1 + round % 4));
            for entry in &walked.entries {
                assert_ne!(&entry.name[..], b"secret");
            }
            entered += usize::from(walked.has(&victim.join("deep/public")));
            for problem in &walked.problems {
                let text = problem.error.to_string();
                let refused = problem.error.raw_os_error().is_some_and(|code| {
                    code == rustix::io::Errno::LOOP.raw_os_error()
                        || code == rustix::io::Errno::NOTDIR.raw_os_error()
                        || code == rustix::io::Errno::XDEV.raw_os_error()
                });
                assert!(refused || text.contains("replaced"), "{text}");
                assert!(!walked.amends.is_empty());
            }
        }
    });
    assert!(entered > 0, "the directory was never seen as itself");
}

#[test]
fn names_that_vanish_while_the_walk_is_under_way_are_notes_and_no_problems() {
    let place = TempPlace::new();
    for number in 0..200 {
        place.write(&format!("d{number}/e/file"), b"x");
    }
    let (sources, _) = Sources::resolve(&[&place.path]).unwrap();
    for count in [0, 8] {
        let mut walked = Walked::default();
        for (number, item) in Scanner::start(&sources, threads(count))
            .unwrap()
            .enumerate()
        {
            if number == 8 {
                for gone in (0..200).skip(count * 5).step_by(3) {
                    let _ = std::fs::remove_dir_all(place.join(&format!("d{gone}")));
                }
            }
            walked.push(item);
        }
        assert!(walked.problems.is_empty(), "{:?}", walked.problems);
        assert!(
            walked
                .notes
                .iter()
                .all(|note| note.kind == NoteKind::Vanished)
        );
        if count == 0 {
            assert!(!walked.notes.is_empty());
        }
    }
}

#[test]
fn directory_replaced_by_another_one_after_it_was_seen_is_refused() {
    let place = TempPlace::new();
    place.write("a/file", b"x");
    place.write("b/other", b"x");
    let (sources, _) = Sources::resolve(&[&place.path]).unwrap();
    let mut walked = Walked::default();
    // Without workers nothing is looked at before it is asked for.
    for item in Scanner::start(&sources, threads(0)).unwrap() {
        if let ScanItem::Entries(batch) = &item
            && batch.entries.iter().any(|entry| &entry.name[..] == b"a")
        {
            let (a, b) = (place.join("a"), place.join("b"));
            renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
        }
        walked.push(item);
    }
    assert_eq!(walked.below(&place.path), [b"a", b"b"]);
    assert_eq!((walked.problems.len(), walked.amends.len()), (2, 2));
    let (key, flags) = &walked.amends[0];
    assert_eq!((&key.name[..], *flags), (&b"a"[..], EntryFlags::UNREADABLE));
}

/// SRC-12: of two directories that were seen, one is mounted over and the other's mount goes away
/// before they are entered. Neither is taken for the other thing that stands there then, and both
/// are named.
#[test]
fn a_mount_that_comes_or_goes_after_it_was_seen_is_refused_and_named() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    place.write("tree/comes/below", b"x");
    place.write("tree/goes/below", b"x");
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(other.path().join("mounted"), b"y").unwrap();
    let (comes, goes) = (place.join("tree/comes"), place.join("tree/goes"));
    for one_file_system in [false, true] {
        let mut mounts = vec![BindMount::new(other.path(), &goes)];
        let (sources, _) = Sources::resolve(&[&place.join("tree")]).unwrap();
        let options = ScanOptions {
            one_file_system,
            ..threads(0)
        };
        let mut walked = Walked::default();
        for item in Scanner::start(&sources, options).unwrap() {
            if let ScanItem::Entries(batch) = &item
                && batch.entries.iter().any(|entry| &entry.name[..] == b"goes")
            {
                mounts.clear();
                mounts.push(BindMount::new(other.path(), &comes));
            }
            walked.push(item);
        }
        drop(mounts);
        assert_eq!(walked.below(&place.join("tree")), [&b"comes"[..], b"goes"]);
        let about: Vec<_> = walked
            .problems
            .iter()
            .map(|problem| problem.path.clone())
            .collect();
        let goes_flags = walked.find(&goes).unwrap().flags;
        match one_file_system {
            false => assert_eq!(about, [without_slash(&comes), without_slash(&goes)]),
            true => {
                assert_eq!(about, [without_slash(&comes)]);
                assert!(goes_flags.has(EntryFlags::NOT_CROSSED));
            }
        }
        assert_eq!(walked.amends.len(), walked.problems.len());
    }
}

#[test]
fn directory_that_the_device_cannot_give_is_unreadable_and_the_rest_is_walked() {
    let place = TempPlace::new();
    let Some(mount) = LoopMount::new(&place, "broken", 32) else {
        return;
    };
    // Both need blocks of their own; the first names come back only from the device after a
    // remount.
    for directory in ["bad", "good"] {
        std::fs::create_dir(mount.point.join(directory)).unwrap();
        for number in 0..200 {
            let name = format!("{directory}/{number:0100}");
            std::fs::File::create(mount.point.join(name)).unwrap();
        }
    }
    let block = first_block(&mount.point.join("bad"));
    crate::walk_support::run("umount", &[mount.point.to_str().unwrap()]);
    spoil(&mount, block);
    crate::walk_support::run("mount", &[&mount.device, mount.point.to_str().unwrap()]);
    let walked = walk(&[&mount.point], ScanOptions::default());
    let bad = mount.point.join("bad");
    let about: Vec<_> = walked
        .problems
        .iter()
        .map(|problem| &problem.path)
        .collect();
    assert_eq!(about, [&without_slash(&bad)], "{:?}", walked.problems);
    let (key, flags) = &walked.amends[0];
    assert_eq!(
        (&key.name[..], *flags),
        (&b"bad"[..], EntryFlags::UNREADABLE)
    );
    let good = walked.below(&mount.point.join("good"));
    assert_eq!(good.len(), 200);
    assert_eq!(walked.find(&bad).unwrap().kind, Kind::Directory);
}

/// OBJ-11: a broken directory has a name twice. Only one of the two can be reached: the other is
/// told of, in a small directory and in one that comes in parts.
#[test]
fn a_name_that_is_listed_twice_is_walked_once_and_told() {
    // As many before them that they are the last of one batch and the first of the next.
    for siblings in [0, BATCH_ENTRIES_MAX - 1] {
        let place = TempPlace::new();
        let plain = [
            "mkfs.ext4",
            "-q",
            "-F",
            "-N",
            "32768",
            "-O",
            "^metadata_csum,^has_journal,^dir_index",
        ];
        let Some(mount) = LoopMount::of_kind(&place, "twins", 64, &plain) else {
            return;
        };
        let directory = mount.point.join("d");
        std::fs::create_dir(&directory).unwrap();
        let (one, two) = ("twin that was made first ", "twin that was made second");
        for name in [one, two] {
            std::fs::write(directory.join(name), name).unwrap();
        }
        for sibling in 0..siblings {
            for letter in ["a", "z"] {
                let name = format!("{letter}{sibling:0200}");
                std::fs::File::create(directory.join(name)).unwrap();
            }
        }
        crate::walk_support::run("umount", &[mount.point.to_str().unwrap()]);
        rename_on_the_device(&mount, two.as_bytes(), one.as_bytes());
        crate::walk_support::run("mount", &[&mount.device, mount.point.to_str().unwrap()]);
        let walked = walk(&[&mount.point], ScanOptions::default());
        let twins = walked.below(&directory);
        let twins = twins.iter().filter(|name| name.starts_with(b"twin"));
        assert!(twins.eq([one.as_bytes()]));
        let [problem] = &walked.problems[..] else {
            panic!("{:?}", walked.problems);
        };
        assert!(problem.path.starts_with(&without_slash(&directory)));
        assert!(problem.error.to_string().contains("listed twice"));
    }
}

/// In the directory block; what the files hold is something else.
fn rename_on_the_device(mount: &LoopMount, from: &[u8], to: &[u8]) {
    use std::os::unix::fs::FileExt;
    let mut options = std::fs::File::options();
    let device = options.read(true).write(true).open(&mount.device).unwrap();
    let mut bytes = vec![0; 64 << 20];
    device.read_exact_at(&mut bytes, 0).unwrap();
    // An entry is its inode, its length, the name's length and kind, and the name.
    let entry = [&[from.len() as u8, 1], from].concat();
    let mut places = (2..bytes.len() - entry.len()).step_by(4);
    let found = places.find(|at| bytes[*at..].starts_with(&entry));
    let at = found.expect("the directory's block") + 2;
    device.write_all_at(to, at as u64).unwrap();
    device.sync_all().unwrap();
}

/// Number of the first block (1 KiB, ext4 of this size) of a directory, by debugfs's older sibling:
/// FIEMAP.
fn first_block(path: &std::path::Path) -> u64 {
    use std::os::fd::AsFd;
    let directory = std::fs::File::open(path).unwrap();
    rustix::fs::syncfs(&directory).unwrap();
    let mut extents = Vec::new();
    bale_sys::extents::extents(directory.as_fd(), 0, u64::MAX, 0, &mut extents).unwrap();
    extents[0].physical
}

/// Overwrites the directory block: its checksum fails, and the kernel says EBADMSG or EUCLEAN.
fn spoil(mount: &LoopMount, offset: u64) {
    use std::os::unix::fs::FileExt;
    let device = std::fs::File::options()
        .write(true)
        .open(&mount.device)
        .unwrap();
    device.write_all_at(&[0x5a; 1024], offset).unwrap();
    device.sync_all().unwrap();
}

/// Every file exists at every moment, under one of two names. Each is found, or its directory is
/// named as one that lacks something.
#[test]
fn a_file_that_is_renamed_in_its_directory_is_found_or_named() {
    const FILES: usize = 300;
    let place = TempPlace::new();
    let name = |number: usize, is_marked: bool| {
        place.join(&format!(
            "m/{number:05}.host:2,{}",
            if is_marked { "S" } else { "" }
        ))
    };
    for number in 0..FILES {
        place.write(&format!("m/{number:05}.host:2,"), b"x");
    }
    let directory = without_slash(&place.join("m"));
    let mut step = 0;
    let mark = || {
        let (number, is_marked) = (step * 7 % FILES, step / FILES % 2 == 1);
        std::fs::rename(name(number, is_marked), name(number, !is_marked)).unwrap();
        step += 1;
    };
    while_disturbed(mark, || {
        for round in 0..100 {
            let walked = walk(&[&place.join("m")], threads(round % 3));
            let files = walked
                .entries
                .iter()
                .filter(|entry| entry.kind == Kind::File);
            let inodes: std::collections::BTreeSet<u64> = files.map(|entry| entry.inode).collect();
            let is_named = (walked.amends.iter()).any(|(key, flags)| {
                *key == Key::of_path(&directory) && *flags == EntryFlags::UNREADABLE
            });
            assert!(
                is_named && !walked.problems.is_empty() || inodes.len() == FILES,
                "{} of {FILES}, and not a word",
                inodes.len()
            );
        }
    });
}

/// A rename copies a file of the lower layer up, and gives it another time of birth.
#[test]
fn a_file_that_is_renamed_in_an_overlay_is_not_taken_for_one_that_was_born_since() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    let [lower, upper, work, view] = ["lower", "upper", "work", "view"].map(|it| place.join(it));
    place.write("lower/old", b"x");
    for directory in [&upper, &work, &view] {
        std::fs::create_dir(directory).unwrap();
    }
    let [lower, upper, work] = [lower, upper, work].map(|it| it.display().to_string());
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let words = ["-t", "overlay", "overlay", "-o", &layers];
    let words = [&words[..], &[view.to_str().unwrap()]].concat();
    let _unmounted = BindMount(view.clone());
    if !crate::walk_support::run("mount", &words) {
        return;
    }
    // Births are told by a clock that lags by ticks.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let began = barrier_now();
    let (entry, directory) = walk(&[&view], threads(1)).get(&view.join("old"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    std::fs::rename(view.join("old"), view.join("new")).unwrap();
    let told = ListedAgain::since(began).check_gone(&directory, &entry);
    assert!(Renamed::is_why(&told.unwrap_err().error));
}

/// What is renamed over a name moves behind the end of a listing on tmpfs and btrfs.
#[test]
fn a_file_that_is_replaced_on_tmpfs_is_found_or_its_directory_is_named() {
    const FILES: usize = 5000;
    if !is_root() || !std::path::Path::new("/dev/shm").is_dir() {
        return crate::walk_support::skipped("no /dev/shm, or not root");
    }
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = place.path().canonicalize().unwrap();
    let directory = place.join("m");
    std::fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        std::fs::write(directory.join(format!("f{number:05}")), "x").unwrap();
    }
    let temporary = place.join("t");
    let mut step = 1_usize;
    let replace = || {
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::fs::write(&temporary, "y").unwrap();
        let name = format!("f{:05}", (step >> 33) % FILES);
        std::fs::rename(&temporary, directory.join(name)).unwrap();
    };
    while_disturbed(replace, || {
        for round in 0..20 {
            let walked = walk(&[&directory], threads(round % 3));
            let found = walked.below(&directory).len();
            assert!(
                found == FILES || !walked.amends.is_empty() && !walked.problems.is_empty(),
                "{found} of {FILES}, and not a word"
            );
        }
    });
}
