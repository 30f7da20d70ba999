//! What metadata says did not change is not read, and the image is what it is all the same.

use crate::bench::{BLOCK, Images, NAME, run};
use crate::trusting::{Mounted, assert_is_bytes, backup, make_ext4, read, restored};
use bale_engine::backup::Outcome;
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn has_tools() -> bool {
    let has = needs::have("mkfs.ext4") && needs::have("mount") && needs::have("debugfs");
    if !has {
        needs::skipped("mkfs.ext4, mount or debugfs is missing");
    }
    has
}

/// An ext4 with large and small files, all of them older than the margin.
fn image(images: &Images, options: &[&str]) {
    make_ext4(images, options);
    settle(images);
}

/// The file system was written to some seconds behind the last change of a file.
fn settle(images: &Images) {
    let image = images.path(NAME);
    let image = image.to_str().unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    let later = later.duration_since(std::time::UNIX_EPOCH).unwrap();
    let done = Command::new("debugfs")
        .args(["-w", "-R", "set_super_value mnt_count 1", image])
        .env("E2FSPROGS_FAKE_TIME", later.as_secs().to_string())
        .status();
    assert!(done.unwrap().success());
}

/// All that is in use is as it is in the image.
fn assert_is(images: &Images, outcome: &Outcome) {
    let target = restored(images, outcome);
    run("e2fsck", &["-fn", target.to_str().unwrap()]);
}

#[test]
fn blocks_of_files_that_did_not_change_are_not_read_and_whatever_changed_is() {
    if !has_tools() {
        return;
    }
    for options in [
        &[][..],
        &["-b", "1024"],
        &["-O", "^has_journal"],
        &["-t", "ext3"],
    ] {
        let mut images = Images::new();
        image(&images, options);
        let (first, notes) = backup(&mut images);
        assert!(
            !notes.iter().any(|note| note.contains("everything")),
            "{notes:?}"
        );
        let whole = read(&first);
        assert!(whole > 36 * BLOCK, "{whole}");
        let (again, _) = backup(&mut images);
        // Of what is small, too: its blocks are its own to their end.
        assert!(
            read(&again) < whole / 2,
            "{options:?}: {} of {whole}",
            read(&again)
        );
        assert_is(&images, &again);
        change(&images);
        settle(&images);
        let (changed, notes) = backup(&mut images);
        assert!(read(&changed) < whole, "{options:?}: {}", read(&changed));
        assert!(
            !notes.iter().any(|note| note.contains("everything")),
            "{notes:?}"
        );
        assert_is(&images, &changed);
    }
}

/// In place, by a map of memory, by holes, by names, by moving what it is in.
fn change(images: &Images) {
    let mounted = Mounted::of(images);
    let shell = format!(
        "set -e; cd {}
        printf x | dd of=large0 bs=1 seek=2000000 conv=notrunc status=none
        touch -r large1 reference
        printf y | dd of=large1 bs=1 seek=2000000 conv=notrunc status=none
        touch -r reference large1
        fallocate -p -o 1M -l 1M large2
        rm small/1?; mv small/20 small/20-renamed
        cp large3 small/copy; truncate -s 1000000 large3
        echo more >> small/30; mkdir -p new/er; cp -r small new/er/",
        mounted.0.display()
    );
    run("sh", &["-c", &shell]);
    // Moved by what changes no time of a file.
    let moved = Command::new("e4defrag").arg(mounted.path("small")).output();
    assert!(moved.is_ok(), "{moved:?}");
    let map = "import mmap,sys
f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); m[2500000:2500004] = b'mmap'; m.flush()";
    let large = mounted.path("large4");
    run("python3", &["-c", map, large.to_str().unwrap()]);
}

#[test]
fn what_the_parent_lacks_or_may_not_have_seen_is_read() {
    if !has_tools() {
        return;
    }
    let mut images = Images::new();
    image(&images, &[]);
    backup(&mut images);
    // A file that changed right in front of the snapshot may have changed right behind it.
    {
        let mounted = Mounted::of(&images);
        fs::write(mounted.path("large5"), noise(77, 3 * MIB)).unwrap();
    }
    backup(&mut images);
    overwrite_past_the_file_system(&images, "large5");
    let (second, _) = backup(&mut images);
    assert_is(&images, &second);
    // Nor of one that was checked: a check writes to directories and leaves their inodes alone.
    settle(&images);
    backup(&mut images);
    let image = images.path(NAME);
    // Behind what `settle` says.
    let later = std::time::SystemTime::now() + Duration::from_secs(60);
    let later = later.duration_since(std::time::UNIX_EPOCH).unwrap();
    let checked = Command::new("e2fsck")
        .args(["-fyD", image.to_str().unwrap()])
        .env("E2FSCK_TIME", later.as_secs().to_string())
        .output()
        .unwrap();
    assert!(
        checked.status.code().is_some_and(|code| code < 2),
        "{checked:?}"
    );
    let (checked, notes) = backup(&mut images);
    assert!(
        notes.iter().any(|note| note.contains("checked since")),
        "{notes:?}"
    );
    assert_is(&images, &checked);
    // Of a file system in use nothing is believed, nor of one that was.
    let image = images.path(NAME);
    let path = image.to_str().unwrap();
    run("debugfs", &["-w", "-R", "feature needs_recovery", path]);
    let (in_use, notes) = backup(&mut images);
    assert!(
        notes.iter().any(|note| note.contains("not frozen")),
        "{notes:?}"
    );
    assert_eq!(read(&in_use), read(&in_use).max(36 * BLOCK));
    assert_is_bytes(&images, &in_use);
    run("debugfs", &["-w", "-R", "feature -needs_recovery", path]);
    let (after, notes) = backup(&mut images);
    assert!(
        notes.iter().any(|note| note.contains("not frozen")),
        "{notes:?}"
    );
    assert_is_bytes(&images, &after);
}

/// Another byte in the content of a file, of which its inode knows nothing.
fn overwrite_past_the_file_system(images: &Images, name: &str) {
    let image = images.path(NAME);
    let query = format!("bmap /{name} 1500");
    let found = Command::new("debugfs")
        .args(["-R", &query, image.to_str().unwrap()])
        .output()
        .unwrap();
    let block: u64 = String::from_utf8(found.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    images.write_at(block * block_bytes(&image), b"past the file system");
}

fn block_bytes(image: &Path) -> u64 {
    let bytes = fs::read(image).unwrap();
    let log = u32::from_le_bytes(bytes[1024 + 24..][..4].try_into().unwrap());
    1024 << log
}
