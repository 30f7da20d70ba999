//! Rows of a view that stay since neither their inode nor the blocks of their content changed:
//! they are those that a listing of everything makes.

use crate::bench::{Images, NAME, run};
use crate::by_metadata_xfs;
use crate::trusting::{Mounted, make_ext4, make_tree};
use crate::xfs_image::Random;
use bale_engine::backup::{BackupOptions, Outcome};
use bale_format::{Entry, ObjectId};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const MIB: usize = 1 << 20;
const ROUNDS: u64 = 10;
const CHANGES_A_ROUND: u64 = 4;

/// In a file system, from its top. Each can be done again and again.
const CHANGES: [&str; 36] = [
    "printf x | dd of=small/$N bs=1 seek=3 conv=notrunc status=none",
    "echo more >> small/$N",
    ": > small/$N",
    "rm small/$N; echo back > small/$N",
    "touch small/$N",
    "chmod 600 small/$N; chown 7:8 small/$N",
    "setfattr -n user.a -v $N small/$N",
    "setfattr -n user.big -v $(head -c 600 /dev/zero | tr '\\0' $(($N % 10))) small/$N",
    "setfattr -x user.big small/$N || true",
    "ln -f small/$N linked-$N",
    "rm -f linked-*",
    "ln -sf short link-$N",
    "ln -sf $(head -c 200 /dev/zero | tr '\\0' $(($N % 10))) long-$N",
    "mv -T small moved; mv -T moved small",
    "mkdir -p d; mv -T d d-$N; mkdir -p d-$N/e; cp small/$N d-$N/e/f; rm -rf d-1*",
    "mv small/$N small/x; cp small/x small/$N; rm small/x",
    // The same inodes by other names, in one directory and in two.
    "mv small/$N small/x; mv small/$(($N % 7 + 8)) small/$N 2>/dev/null || true; mv small/x small/$(($N % 7 + 8))",
    "mkdir -p other; touch other/o; mv small/$N x; mv other/o small/$N; mv x other/o",
    "touch small; chmod 711 small",
    // Names come and go, with numbers of inodes that others had.
    "echo new > small/new-$N; echo new > new-$N",
    "rm -f small/new-* new-*",
    "rm small/$N; echo more > small/a-$N; mv small/a-$N small/$N",
    "mkdir -p e-$N/f/g; for i in $(seq 30); do echo $i > e-$N/f/$i; done; ln e-$N/f/1 e-$N/f/g/one",
    "rm -rf e-*",
    "rm -rf e-$N; echo file > e-$N; rm -f e-$N; mkdir e-$N; cp small/$N e-$N/",
    "rm -rf t; mkdir t; echo $N > t/$N; echo same > t/same",
    "rm -rf t; ln -s small t; rm -rf u; mkdir -p u/v; touch u/v/w; rm -rf u/v; mkfifo u/v",
    "rm -rf m n; mkdir m n; touch m/$N; mv m/$N n/; rmdir m; mv n m",
    "dd if=/dev/urandom of=large$L bs=4096 seek=$N count=3 conv=notrunc status=none",
    "fallocate -p -o 1M -l 300K large$L || true",
    "truncate -s 1M large$L; truncate -s 3M large$L",
    "cp large$L copy; sync; rm copy; cp large$L copy-$L",
    "rm -f copy-*",
    "for i in $(seq 40); do dd if=/dev/urandom of=torn-$L bs=4096 seek=$((i * 7)) count=1 conv=notrunc \
     status=none; sync torn-$L; echo >> small/$i; done",
    "truncate -s $((N * 1000)) sparse-$L; echo end >> sparse-$L",
    "fallocate -l 2M unwritten-$L || true; printf w | dd of=unwritten-$L bs=1 seek=$((N * 4096)) conv=notrunc \
     status=none",
];

pub fn rows(images: &Images, outcome: &Outcome) -> Vec<Entry> {
    let source = images.scene.repository().segment_source();
    let catalog = CatalogReader::open(source, outcome.snapshot.layers.clone()).unwrap();
    let rows: Vec<Entry> = catalog.rows(KeyRange::all()).map(Result::unwrap).collect();
    assert!(rows.len() > 300, "{}", rows.len());
    rows
}

fn backup_since(images: &Images, parent: Option<ObjectId>) -> Outcome {
    backup_as(images, parent, false)
}

fn backup_as(images: &Images, parent: Option<ObjectId>, reads_free: bool) -> Outcome {
    let (monitor, repository) = (Recorder::default(), images.scene.repository());
    let options = BackupOptions {
        parent,
        ..BackupOptions::default()
    };
    let mut sources = [images.source(NAME)];
    sources[0].reads_free = reads_free;
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let problems = monitor.problems.lock().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    outcome.unwrap()
}

/// What the cache has of inodes.
pub fn digests(images: &Images) -> Vec<PathBuf> {
    let inodes = images
        .scene
        .repository()
        .cache_dir()
        .unwrap()
        .join("inodes");
    let files = fs::read_dir(inodes).into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

/// What one backup makes of what changed since a parent with the cache, and one without it.
fn assert_same_rows(images: &Images, parent: &Outcome, reads_free: bool, context: &str) -> Outcome {
    assert!(!digests(images).is_empty(), "{context}");
    let with = backup_as(images, parent.id, reads_free);
    for file in digests(images) {
        fs::remove_file(file).unwrap();
    }
    let without = backup_as(images, parent.id, reads_free);
    let [with_rows, without_rows] = [&with, &without].map(|outcome| rows(images, outcome));
    for (kept, made) in with_rows.iter().zip(&without_rows) {
        assert_eq!(kept, made, "{context}");
    }
    assert_eq!(with_rows.len(), without_rows.len(), "{context}");
    let [with_views, without_views] =
        [&with, &without].map(|outcome| &outcome.snapshot.images[0].views);
    assert_eq!(with_views, without_views, "{context}");
    assert_eq!(with_views.len(), 1, "{context}");
    without
}

/// Where in a file system a large file has its second MiB, if it still holds what it did.
fn place_in(bytes: &[u8], number: u64) -> Option<usize> {
    let content = noise(900 + number, 3 * MIB + 777);
    let wanted = &content[MIB..MIB + 512];
    let mut places = (0..bytes.len()).step_by(1024);
    places.find(|at| bytes[*at..].starts_with(wanted))
}

/// Other bytes in the content of a file, of which its inode knows nothing: found by what it holds.
fn overwrite_past_the_file_system(images: &Images, number: u64) {
    if let Some(at) = place_in(&images.bytes(), number) {
        images.write_at(at as u64 + 100, b"past the file system");
    }
}

fn rows_stay_as_they_are_made(images: &Images, seed: u64) {
    let mut random = Random(seed);
    let mut parent = backup_since(images, None);
    for round in 0..ROUNDS {
        let mut context = format!("seed {seed}, round {round}:");
        if random.below(3) > 0 {
            let mounted = Mounted::of(images);
            for _ in 0..1 + random.below(CHANGES_A_ROUND) {
                let change = CHANGES[random.below(CHANGES.len() as u64) as usize];
                let (number, large) = (1 + random.below(200), random.below(14));
                let root = mounted.0.display();
                let shell = format!("set -e; cd {root}; N={number} L={large}; {change}");
                run("bash", &["-c", &shell]);
                context.push_str(&format!(" [{number} {large} {change}]"));
            }
        }
        for _ in 0..random.below(3) {
            let number = random.below(14);
            overwrite_past_the_file_system(images, number);
            context.push_str(&format!(" [large{number} past the file system]"));
        }
        parent = assert_same_rows(images, &parent, false, &context);
        if random.below(4) == 0 {
            // Nothing changed: the digests go on with the snapshot.
            parent = backup_since(images, parent.id);
        }
    }
}

#[test]
fn rows_of_ext4_stay_as_they_would_be_made() {
    let tools = ["mkfs.ext4", "mount", "setfattr", "fallocate"];
    if !tools.iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4, mount, setfattr or fallocate is missing");
    }
    for (seed, options) in [
        (1, &[][..]),
        (2, &["-b", "1024"]),
        (3, &["-I", "128"]),
        (4, &["-t", "ext3"]),
        // Inode tables in many places, most of which need not be read.
        (
            7,
            &["-b", "1024", "-g", "2048", "-O", "^flex_bg,^resize_inode"],
        ),
    ] {
        rows_stay_as_they_are_made(&small_ext4(options), seed);
    }
}

#[test]
fn rows_of_xfs_stay_as_they_would_be_made() {
    let tools = ["mkfs.xfs", "mount", "setfattr", "fallocate"];
    if !tools.iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.xfs, mount, setfattr or fallocate is missing");
    }
    for (seed, options) in [(5, ""), (6, "-b size=1024")] {
        let images = Images::new();
        by_metadata_xfs::fill(&images, options);
        rows_stay_as_they_are_made(&images, seed);
    }
}

/// A copy of the file system lies behind it, in which a file has other bytes past its inode; then
/// the partition is where the copy is.
#[test]
fn of_a_file_system_that_lies_elsewhere_no_row_stays() {
    if !needs::have("mkfs.ext4") || !needs::have("sfdisk") {
        return needs::skipped("mkfs.ext4 or sfdisk is missing");
    }
    let images = Images::new();
    let tree = make_tree(&images);
    let alone = images.path("alone");
    fs::write(&alone, vec![0; 60 * MIB]).unwrap();
    let always = ["-q", "-F", "-d", tree.to_str().unwrap()];
    run(
        "mkfs.ext4",
        &[&always[..], &[alone.to_str().unwrap()]].concat(),
    );
    let file_system = fs::read(&alone).unwrap();
    images.write(NAME, &vec![0; 130 * MIB]);
    images.write_at(MIB as u64, &file_system);
    images.write_at(64 * MIB as u64, &file_system);
    let at = 64 * MIB + place_in(&file_system, 0).unwrap();
    images.write_at(at as u64, b"other bytes in the copy");
    let image = images.path(NAME);
    let partition = |mib: usize| {
        let table = format!("start={mib}MiB, size=60MiB, type=83");
        let shell = format!("echo '{table}' | sfdisk -q --no-reread {}", image.display());
        run("bash", &["-c", &shell]);
    };
    partition(1);
    let parent = backup_as(&images, None, true);
    partition(64);
    assert_same_rows(&images, &parent, true, "moved");
}

#[test]
fn of_a_file_system_with_other_features_no_row_stays() {
    let tools = ["mkfs.ext4", "debugfs", "tune2fs"];
    if !tools.iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4, debugfs or tune2fs is missing");
    }
    let images = small_ext4(&["-O", "project"]);
    let image = images.path(NAME);
    let image = image.to_str().unwrap();
    run("debugfs", &["-w", "-R", "sif /large1 projid 42", image]);
    let parent = backup_since(&images, None);
    run("tune2fs", &["-O", "^project", image]);
    assert_same_rows(&images, &parent, false, "without projects");
}

/// A file of zeros is removed, and its inode and name come back without its blocks: they are free,
/// and hold something.
#[test]
fn of_blocks_that_are_left_out_no_row_stays() {
    let tools = ["mkfs.ext4", "debugfs", "mount"];
    if !tools.iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4, debugfs or mount is missing");
    }
    let images = small_ext4(&["-b", "4096", "-O", "^metadata_csum,^has_journal"]);
    let (image, inode);
    {
        let mounted = Mounted::of(&images);
        let zeros = mounted.path("zeros");
        fs::write(&zeros, vec![0; 8 * MIB]).unwrap();
        inode = fs::metadata(zeros).unwrap().ino();
        image = images.path(NAME);
    }
    let image = image.to_str().unwrap();
    let blocks = run("debugfs", &["-R", "blocks /zeros", image]);
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let parent = backup_since(&images, None);
    let place = run("debugfs", &["-R", &format!("imap <{inode}>"), image]);
    let (_, place) = place.split_once("located at block ").unwrap();
    let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
    let block: u64 = block.parse().unwrap();
    let place = block * 4096 + u64::from_str_radix(offset, 16).unwrap();
    let raw = images.bytes()[place as usize..][..256].to_vec();
    {
        let mounted = Mounted::of(&images);
        fs::remove_file(mounted.path("zeros")).unwrap();
    }
    images.write_at(place, &raw);
    run(
        "debugfs",
        &["-w", "-R", &format!("ln <{inode}> zeros"), image],
    );
    // Not in the blocks of the image that it shares with others.
    for block in (first + 300..first + 1700).step_by(64) {
        images.write_at(block * 4096, b"written past the file system");
    }
    let found = assert_same_rows(&images, &parent, false, "left out");
    let record = &found.snapshot.images[0];
    let left_out: u64 = record.left_out.iter().map(|(_, count)| count).sum();
    assert!(
        left_out > 4 && record.views[0].bytes_apart > 0,
        "{record:?}"
    );
}

#[test]
fn a_view_of_an_image_that_was_cut_is_listed_anew() {
    if !needs::have("mkfs.ext4") {
        return needs::skipped("mkfs.ext4 is missing");
    }
    let images = small_ext4(&["-O", "^has_journal"]);
    let parent = backup_since(&images, None);
    assert!(parent.snapshot.images[0].views[0].not_listed.is_none());
    images.set_len(94 * MIB as u64);
    let cut = backup_since(&images, parent.id);
    let views = &cut.snapshot.images[0].views;
    assert!(
        views.iter().all(|view| view.not_listed.is_some()),
        "{views:?}"
    );
}

fn small_ext4(options: &[&str]) -> Images {
    let images = Images::new();
    make_ext4(&images, options);
    images
}
