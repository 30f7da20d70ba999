//! What metadata says did not change is not read, and the image is what it is all the same.

use crate::bench::{BLOCK, Images, NAME, run};
use bale_engine::backup::{BackupOptions, Outcome};
use bale_fsimage::allocated::AllocatedRanges;
use bale_pipeline::monitor::Recorder;
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Unmounts when it goes.
struct Mounted(PathBuf);

impl Mounted {
    fn of(images: &Images) -> Mounted {
        let at = images.path("mounted");
        let _is_there = fs::create_dir(&at);
        let image = images.path(NAME);
        let (image, path) = (image.to_str().unwrap(), at.to_str().unwrap());
        run("mount", &["-o", "loop", image, path]);
        Mounted(at)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

fn has_tools() -> bool {
    let has = needs::have("mkfs.ext4") && needs::have("mount") && needs::have("debugfs");
    if !has {
        needs::skipped("mkfs.ext4, mount or debugfs is missing");
    }
    has
}

/// An ext4 with large and small files, all of them older than the margin.
fn image(images: &Images, options: &[&str]) {
    let tree = images.path("tree");
    fs::create_dir_all(tree.join("small")).unwrap();
    for number in 0..300u64 {
        let name = tree.join(format!("small/{number}"));
        fs::write(name, noise(number, 1 + number as usize * 41)).unwrap();
    }
    for number in 0..14u64 {
        let name = tree.join(format!("large{number}"));
        fs::write(name, noise(900 + number, 3 * MIB + 777)).unwrap();
    }
    images.write(NAME, &vec![0; 96 * MIB]);
    let (image, tree) = (images.path(NAME), tree.to_str().unwrap().to_owned());
    let image = image.to_str().unwrap();
    run(
        "mkfs.ext4",
        &[&["-q", "-F", "-d", &tree][..], options, &[image]].concat(),
    );
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

/// With `trusts_metadata`; what was said.
fn backup(images: &mut Images) -> (Outcome, Vec<String>) {
    let mut sources = [images.source(NAME)];
    sources[0].trusts_metadata = true;
    let (options, monitor) = (BackupOptions::default(), Recorder::default());
    let repository = images.scene.repository();
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let problems = monitor.problems.lock().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let notes = monitor.notes.lock().unwrap();
    (outcome.unwrap(), notes.clone())
}

/// All that is in use is as it is in the image.
fn assert_is(images: &Images, outcome: &Outcome) {
    let target = images.path("restored.raw");
    let _was_not_there = fs::remove_file(&target);
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, outcome.id.unwrap());
    let monitor = Recorder::default();
    let report = images.restore_to(&repository, &snapshot, &target, &monitor);
    assert_eq!(report.unwrap().problems, 0);
    let (back, was) = (fs::read(&target).unwrap(), images.bytes());
    assert_eq!(back.len(), was.len());
    for used in AllocatedRanges::of(Arc::new(was.clone()), None) {
        let used = used.start as usize..used.end as usize;
        assert!(back[used.clone()] == was[used.clone()], "{used:?}");
    }
    run("e2fsck", &["-fn", target.to_str().unwrap()]);
}

fn read(outcome: &Outcome) -> u64 {
    outcome.snapshot.counts.bytes_read
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

fn assert_is_bytes(images: &Images, outcome: &Outcome) {
    let repository = images.scene.repository();
    images.assert_restores(
        &repository,
        outcome.id.unwrap(),
        &zeros_where_free(images, outcome),
    );
}

/// The image with what was left out as zeros.
fn zeros_where_free(images: &Images, outcome: &Outcome) -> Vec<u8> {
    let mut bytes = images.bytes();
    for (first, count) in &outcome.snapshot.images[0].left_out {
        let from = (first * BLOCK) as usize;
        let to = ((first + count) * BLOCK) as usize;
        let to = to.min(bytes.len());
        bytes[from..to].fill(0);
    }
    bytes
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
