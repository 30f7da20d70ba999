//! What metadata of XFS says did not change is not read, and the image is what it is all the same.

use crate::bench::{Images, NAME, run};
use crate::trusting::{
    Mounted, assert_is_bytes, backup, backup_as, make_tree, read, restored, whole,
};
use crate::xfs_image::operations::operate;
use crate::xfs_image::seen::{assert_same, by_reader};
use crate::xfs_image::{Random, can_run, sealed};
use bale_engine::backup::Outcome;
use bale_format::snapshot::ImageState;
use bale_fsimage::xfs::{ForkKind, Xfs};
use bale_testkit::scene::noise;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const TOOLS: [&str; 6] = [
    "mkfs.xfs",
    "mount",
    "fsfreeze",
    "xfs_io",
    "xfs_fsr",
    "xfs_repair",
];
const MIB: usize = 1 << 20;
const GENERATIONS: u64 = 16;
/// In a generation of the random load, at most, of each kind: most files stay as they are.
const OPERATIONS: u64 = 6;
/// Large files of the random load, and their bytes.
const FILES: u64 = 12;
const FILE_BYTES: u64 = 3 << 20;

/// An XFS with nothing in it.
fn make(images: &Images, options: &str) {
    images.write(NAME, &vec![0; 128 * MIB]);
    let image = images.path(NAME);
    let options: Vec<&str> = options.split_whitespace().collect();
    let always = ["--unsupported", "-K", "-q", "-f", image.to_str().unwrap()];
    run("mkfs.xfs", &[&options[..], &always].concat());
}

/// One with large and small files, all of them older than the margin.
fn image(images: &Images, options: &str) {
    fill(images, options);
    settle(images);
}

/// One with large and small files.
pub fn fill(images: &Images, options: &str) {
    make(images, options);
    let tree = make_tree(images);
    let mounted = Mounted::of(images);
    let (tree, root) = (tree.join("."), &mounted.0);
    run(
        "cp",
        &["-r", tree.to_str().unwrap(), root.to_str().unwrap()],
    );
}

/// Some seconds went by since the last change.
fn settle(images: &Images) {
    let image = File::options()
        .read(true)
        .write(true)
        .open(images.path(NAME));
    sealed::settle(&image.unwrap());
}

/// All that is in use is as it is in the image, and so are all files.
fn assert_is(images: &Images, outcome: &Outcome, context: &str) {
    let target = restored(images, outcome);
    // Of what was frozen the log is not empty.
    if outcome.snapshot.images[0].how != ImageState::Frozen {
        run("xfs_repair", &["-n", target.to_str().unwrap()]);
    }
    let [was, is] = [&images.path(NAME), &target].map(|path| File::open(path).unwrap());
    assert_same(&by_reader(&was), &by_reader(&is), context);
}

fn said(notes: &[String], what: &str) -> bool {
    notes.iter().any(|note| note.contains(what))
}

#[test]
fn blocks_of_xfs_files_that_did_not_change_are_not_read_and_whatever_changed_is() {
    if !can_run(&TOOLS) {
        return;
    }
    for options in [
        "",
        "-b size=1k -m rmapbt=1",
        "-m reflink=0,bigtime=0",
        "-i size=1024,nrext64=1",
    ] {
        let mut images = Images::new();
        image(&images, options);
        let (first, notes) = backup(&mut images);
        assert!(!said(&notes, "everything"), "{notes:?}");
        assert_eq!(read(&first), whole(&images));
        let (again, notes) = backup(&mut images);
        assert!(!said(&notes, "as a whole"), "{notes:?}");
        assert!(read(&again) < whole(&images) / 2, "{options}: {again:?}");
        assert_is(&images, &again, options);
        change(&images, options);
        settle(&images);
        let (changed, notes) = backup(&mut images);
        assert!(!said(&notes, "as a whole"), "{notes:?}");
        assert!(read(&changed) < whole(&images), "{options}: {changed:?}");
        assert_is(&images, &changed, options);
    }
}

/// In place, past the page cache, by a map of memory, by holes, by names, by sharing blocks, by
/// moving what it is in.
fn change(images: &Images, options: &str) {
    let mounted = Mounted::of(images);
    let shell = format!(
        "set -e; cd {}
        printf x | dd of=large0 bs=1 seek=2000000 conv=notrunc status=none
        touch -r large1 reference
        printf y | dd of=large1 bs=1 seek=2000000 conv=notrunc status=none
        touch -r reference large1
        xfs_io -c 'fpunch 1m 1m' large2
        rm small/1?; mv small/20 small/20-renamed
        cp --reflink=auto large3 small/copy; truncate -s 1000000 large3
        xfs_io -c 'mmap -rw 0 3m' -c 'mwrite -S 0x33 2500000 4' -c 'msync -s' large4
        xfs_io -d -c 'pwrite -q -S 0x55 1m 4k' large5
        xfs_io -c 'fzero 1m 64k' -c 'fcollapse 2m 64k' large6
        xfs_io -c 'falloc -k 4m 1m' -c 'pwrite -q -S 0x66 4100k 8k' large7
        echo more >> small/30; mkdir -p new/er; cp -r small new/er/
        xfs_fsr large8 >/dev/null",
        mounted.0.display()
    );
    run("sh", &["-c", &shell]);
    if !options.contains("reflink=0") {
        let shell = format!(
            "set -e; cd {}; cp --reflink=always large9 shared
            printf z | dd of=shared bs=1 seek=1000000 conv=notrunc status=none
            printf z | dd of=large9 bs=1 seek=2000000 conv=notrunc status=none
            cp large10 same; xfs_io -c 'dedupe same 0 0 1m' large10 >/dev/null",
            mounted.0.display()
        );
        run("sh", &["-c", &shell]);
    }
}

#[test]
fn what_the_parent_of_an_xfs_lacks_or_may_not_have_seen_is_read() {
    if !can_run(&TOOLS) {
        return;
    }
    let mut images = Images::new();
    fill(&images, "");
    backup(&mut images);
    // A file that changed right in front of the snapshot may have changed right behind it.
    {
        let mounted = Mounted::of(&images);
        fs::write(mounted.path("large5"), noise(77, 3 * MIB)).unwrap();
    }
    backup(&mut images);
    overwrite_past_the_file_system(&images, "large5");
    let (second, _) = backup(&mut images);
    assert_is(&images, &second, "a file within the margin");
    // A repair may write to whatever is no file.
    let repaired = Command::new("xfs_repair").arg(images.path(NAME)).output();
    assert!(repaired.unwrap().status.success());
    let (repaired, _) = backup(&mut images);
    assert_is(&images, &repaired, "repaired");
    // Another file system with the same marks.
    let image = File::open(images.path(NAME)).unwrap();
    let uuid = Xfs::open(&image).unwrap().superblock().uuid;
    let uuid = uuid.map(|byte| format!("{byte:02x}")).concat();
    let uuid = [
        &uuid[..8],
        &uuid[8..12],
        &uuid[12..16],
        &uuid[16..20],
        &uuid[20..],
    ]
    .join("-");
    make(&images, &format!("-m uuid={uuid}"));
    {
        let mounted = Mounted::of(&images);
        fs::write(mounted.path("other"), noise(78, 20 * MIB)).unwrap();
    }
    let (other, _) = backup(&mut images);
    assert_is(&images, &other, "made again");
}

/// A log that is covered says nothing of what is not in it yet.
#[test]
fn of_an_xfs_that_was_not_unmounted_nothing_is_believed() {
    if !can_run(&TOOLS) {
        return;
    }
    let mut images = Images::new();
    image(&images, "");
    backup(&mut images);
    {
        let mounted = Mounted::of(&images);
        freeze(&mounted, || ());
        // Its inode is written to the log half a minute later.
        let large = mounted.path("large3");
        let large = large.to_str().unwrap();
        run("xfs_io", &["-d", "-c", "pwrite -q -S 0x77 1m 64k", large]);
        copy_as_it_is(&images);
    }
    use_copy(&images);
    let (in_use, notes) = backup(&mut images);
    assert!(said(&notes, "frozen is not said"), "{notes:?}");
    assert_eq!(read(&in_use), whole(&images));
    assert_is_bytes(&images, &in_use);
    // Nor of one that was not, whoever says now that it was frozen.
    drop(Mounted::of(&images));
    let (after, notes) = backup_as(&mut images, true);
    assert!(said(&notes, "frozen was not said"), "{notes:?}");
    assert_is(&images, &after, "unmounted");
    let (again, notes) = backup(&mut images);
    assert!(!said(&notes, "as a whole"), "{notes:?}");
    assert_is(&images, &again, "unmounted, as before");
    // What is in the log alone is not on the device, whatever is said.
    {
        let mounted = Mounted::of(&images);
        fs::write(mounted.path("late"), noise(79, MIB)).unwrap();
        run("sync", &["-f", mounted.0.to_str().unwrap()]);
        copy_as_it_is(&images);
    }
    use_copy(&images);
    let (dirty, notes) = backup_as(&mut images, true);
    assert!(said(&notes, "it is in use"), "{notes:?}");
    assert_is_bytes(&images, &dirty);
}

#[test]
fn an_xfs_that_was_frozen_is_compared_where_that_is_said_of_both_states() {
    if !can_run(&TOOLS) {
        return;
    }
    let mut images = Images::new();
    image(&images, "");
    for generation in 0..3 {
        {
            let mounted = Mounted::of(&images);
            let large = mounted.path(&format!("large{generation}"));
            let large = large.to_str().unwrap();
            run("xfs_io", &["-c", "pwrite -q -S 0x11 1m 64k", large]);
            // The kernel takes the change of one inode for a covered log, and does not cover it.
            fs::write(mounted.path(&format!("new{generation}")), "new").unwrap();
            freeze(&mounted, || copy_as_it_is(&images));
        }
        use_copy(&images);
        settle(&images);
        let (outcome, notes) = backup_as(&mut images, true);
        assert!(!said(&notes, "as a whole"), "{notes:?}");
        let how = outcome.snapshot.images[0].how;
        assert_eq!(how, ImageState::Frozen);
        assert!(generation == 0 || read(&outcome) < whole(&images) / 2);
        let context = format!("frozen, generation {generation}");
        assert_is(&images, &outcome, &context);
    }
}

fn freeze(mounted: &Mounted, meanwhile: impl FnOnce()) {
    let root = mounted.0.to_str().unwrap();
    run("fsfreeze", &["-f", root]);
    meanwhile();
    run("fsfreeze", &["-u", root]);
}

fn copy_as_it_is(images: &Images) {
    let [image, copy] = [images.path(NAME), images.path("copy")];
    run(
        "cp",
        &[
            "--sparse=always",
            image.to_str().unwrap(),
            copy.to_str().unwrap(),
        ],
    );
}

/// What was unmounted since is forgotten.
fn use_copy(images: &Images) {
    let bytes = fs::read(images.path("copy")).unwrap();
    images.write(NAME, &bytes);
}

/// Other bytes in the content of a file, of which its inode knows nothing.
fn overwrite_past_the_file_system(images: &Images, name: &str) {
    let number = {
        let mounted = Mounted::of(images);
        fs::metadata(mounted.path(name)).unwrap().ino()
    };
    let image = File::open(images.path(NAME)).unwrap();
    let xfs = Xfs::open(&image).unwrap();
    let mut buffer = Vec::new();
    let inode = xfs.read_inode(&image, number, &mut buffer).unwrap();
    let mut extents = xfs.extents(&image, &inode, ForkKind::Data).unwrap();
    let extent = extents.next().unwrap().unwrap();
    images.write_at(extent.device_offset + 1_500_000, b"past the file system");
}

/// Generation by generation: what a backup leaves unread is what its parent has.
fn random_load(options: &str, seed: u64) {
    if !can_run(&TOOLS) {
        return;
    }
    let mut images = Images::new();
    make(&images, options);
    {
        let mounted = Mounted::of(&images);
        for number in 0..FILES {
            let name = format!("large{number}");
            fs::write(mounted.path(&name), noise(number, FILE_BYTES as usize)).unwrap();
        }
    }
    let (mut done, mut unread) = (0, 0);
    for generation in 0..GENERATIONS {
        let mut random = Random(seed << 32 | generation);
        {
            let mounted = Mounted::of(&images);
            for _ in 0..1 + random.below(OPERATIONS) {
                done += u64::from(operate(&mounted.0, &mut random).is_ok());
                done += u64::from(on_large(&mounted.0, &mut random));
            }
            if generation % 3 == 0 {
                come_and_go(&mounted.path("many"));
            }
        }
        settle(&images);
        let context = format!("{options}: generation {generation} of seed {seed}");
        let (outcome, notes) = backup(&mut images);
        assert!(!said(&notes, "as a whole"), "{context}: {notes:?}");
        unread += whole(&images) - read(&outcome);
        assert_is(&images, &outcome, &context);
    }
    assert!(done > GENERATIONS, "only {done} succeeded");
    // Else nothing is shown.
    let unread_mean = unread / GENERATIONS;
    assert!(
        unread_mean > FILES * FILE_BYTES / 4,
        "{options}: only {unread_mean}"
    );
}

/// Something that happens to a large file; says whether it did.
fn on_large(root: &Path, random: &mut Random) -> bool {
    let name = |random: &mut Random| root.join(format!("large{}", random.below(FILES)));
    let (file, other) = (name(random), name(random));
    let (file, other) = (file.to_str().unwrap(), other.to_str().unwrap());
    let at = random.below(FILE_BYTES / 4096) * 4096;
    let len = (1 + random.below(16)) * 4096;
    let byte = random.below(256);
    let write = format!("pwrite -q -S {byte} {} {}", at + random.below(4096), len);
    let shell = match random.below(16) {
        0 => format!("xfs_io -f -c 'pwrite -q -S {byte} 0 {FILE_BYTES}' {file}"),
        1 => format!("test -e {file} && xfs_io -c '{write}' {file}"),
        2 => format!(
            "test -e {file} && touch -r {file} {root}/t && xfs_io -c '{write}' {file} && \
             touch -r {root}/t {file}",
            root = root.display()
        ),
        3 => format!("test -e {file} && xfs_io -d -c 'pwrite -q -S {byte} {at} {len}' {file}"),
        4 => format!("test -e {file} && xfs_io -c 'fpunch {at} {len}' {file}"),
        5 => format!("test -e {file} && xfs_io -c 'fzero {at} {len}' {file}"),
        6 => format!("test -e {file} && xfs_io -c 'finsert {at} {len}' {file}"),
        7 => format!("xfs_io -f -c 'falloc -k 0 2m' -c '{write}' {file}"),
        8 => format!("cp --reflink=auto {file} {other}"),
        9 => format!("test -e {file} && xfs_io -c 'dedupe {file} 0 0 {FILE_BYTES}' {other}"),
        10 => format!("test -e {file} && xfs_fsr {file}"),
        11 => format!("test -e {file} && truncate -s {at} {file}"),
        12 => format!(
            "test -s {file} && xfs_io -c 'mmap -rw 0 4k' -c 'mwrite -S {byte} 100 100' \
             -c 'msync -s' {file}"
        ),
        13 => format!("mv {file} {other}"),
        14 => format!("xfs_io -f {} {file}", scattered(random)),
        _ => format!("rm {file}"),
    };
    let done = Command::new("sh").args(["-c", &shell]).output().unwrap();
    done.status.success()
}

/// Writes with gaps, so that extents need a btree; later ones fall into and between earlier ones.
fn scattered(random: &mut Random) -> String {
    let byte = random.below(256);
    let first = random.below(8);
    let writes = (0..60).map(|number| {
        let at = (first + 2 * number) * 4096;
        format!("-c 'pwrite -q -S {byte} {at} 4096'")
    });
    writes.collect::<Vec<_>>().join(" ")
}

/// Many small files, or none: whole inode chunks come and go.
fn come_and_go(directory: &Path) {
    if fs::remove_dir_all(directory).is_ok() {
        return;
    }
    fs::create_dir(directory).unwrap();
    for number in 0..200 {
        fs::write(directory.join(format!("{number}")), "few bytes").unwrap();
    }
}

#[test]
fn random_loads_on_xfs_come_back_as_they_are() {
    random_load("", 1);
}

#[test]
fn random_loads_on_xfs_with_small_blocks_come_back_as_they_are() {
    random_load("-b size=1k -n size=8k -m rmapbt=1", 2);
}

#[test]
fn random_loads_on_xfs_with_large_inodes_come_back_as_they_are() {
    random_load("-i nrext64=1,size=1024 -m bigtime=0,reflink=0", 3);
}
