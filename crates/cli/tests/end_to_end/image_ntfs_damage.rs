//! NTFS in images that is damaged, or holds what a backup cannot read: it is named, counted and
//! turns exit 0 into 3, and costs what it is in.

use crate::bench::Bench;
use crate::image_ntfs::{has_all, script, view};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the partition begins.
const PARTITION: usize = 1 << 20;
const RECORD_BYTES: usize = 1024;

/// An image in memory, and which record of the MFT each path has.
struct Disk {
    bytes: Vec<u8>,
    numbers: BTreeMap<PathBuf, u64>,
}

impl Disk {
    fn of(bench: &Bench) -> Disk {
        let numbers = fs::read_to_string(bench.path("numbers")).unwrap();
        let line = |line: &str| {
            let (number, path) = line.split_once(' ').unwrap();
            (PathBuf::from(path), number.parse().unwrap())
        };
        Disk {
            bytes: fs::read(bench.path("disk.raw")).unwrap(),
            numbers: numbers.split_terminator('\0').map(line).collect(),
        }
    }

    fn number(&self, path: &str) -> u64 {
        self.numbers[Path::new(path)]
    }

    /// The first byte of a record, of which there is one but for the first four.
    fn record(&self, number: u64) -> usize {
        let mut places = (PARTITION..self.bytes.len()).step_by(RECORD_BYTES);
        let is_it = |place: &usize| {
            let record = &self.bytes[*place..*place + RECORD_BYTES];
            record.starts_with(b"FILE") && record[44..48] == (number as u32).to_le_bytes()
        };
        places.find(is_it).unwrap()
    }

    fn record_of(&self, path: &str) -> usize {
        self.record(self.number(path))
    }

    /// The first byte of an attribute of a record.
    fn attribute(&self, path: &str, kind: u32) -> usize {
        let record = self.record_of(path);
        let number = |at: usize| u32::from_le_bytes(*self.bytes[at..].first_chunk().unwrap());
        let mut at = record + usize::from(self.bytes[record + 20]);
        while number(at) != kind {
            assert_ne!(number(at), u32::MAX, "{path}");
            at += number(at + 4) as usize;
        }
        at
    }

    fn write(&self, bench: &Bench) {
        fs::write(bench.path("disk.raw"), &self.bytes).unwrap();
    }
}

/// Backs up, which must end so; what was reported.
fn backup(bench: &Bench, code: i32) -> String {
    let backup = bench.run(&["backup", "--image", "disk.raw"]);
    assert_eq!(backup.code, code, "{backup}");
    backup.err
}

const FILL: &str = "
    mib=40; disk; some() {
        mkdir -p at/a/b at/c; for i in $(seq 60); do
            for d in at at/a at/a/b at/c; do head -c $((i * 71)) /dev/urandom > $d/f$i; done
        done
        head -c 300000 /dev/urandom > at/c/large; printf 'in its record' > at/c/small
        numbers
    }
    mounted some";

#[test]
fn what_a_backup_cannot_read_of_ntfs_is_named_and_everything_else_is_there() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(
        &bench,
        &format!(
            "{FILL}; attach; ntfs-3g -o streams_interface=windows $l at
            head -c 100000 /dev/urandom > at/a/f9:long; printf short > at/a/f9:short
            printf inside > at/a:ofdirectory; umount at; release; seen"
        ),
    );
    let mut disk = Disk::of(&bench);
    // As Windows marks what it encrypted.
    let at = disk.attribute("c/large", 0x80) + 12;
    disk.bytes[at + 1] |= 0x40;
    disk.write(&bench);
    let said = backup(&bench, 3);
    assert!(
        said.contains("p1/c/large") && said.contains("encrypted"),
        "{said}"
    );
    assert!(
        said.contains("user.long") && said.contains("100000 bytes"),
        "{said}"
    );
    assert_eq!(view(&bench)["problems"], 2);
    let listed = bench.ok(&["ls", "-l", "latest:/p1", "--recursive"]).text();
    let flagged: Vec<&str> = listed.lines().filter(|line| line.contains("[")).collect();
    assert_eq!(flagged.len(), 2, "{flagged:?}");
    assert!(
        flagged[0].contains("/p1/a/f9  [xattrs-unreadable]"),
        "{flagged:?}"
    );
    assert!(
        flagged[1].contains("/p1/c/large  [unreadable]"),
        "{flagged:?}"
    );
    script(
        &bench,
        "$bale restore latest:/p1 --target back || test $? = 3; rm -f back/c/large seen/c/large
        diff -r back seen; test $(getfattr --only-values -n user.short back/a/f9) = short
        test $(getfattr --only-values -n user.ofdirectory back/a) = inside",
    );
}

#[test]
fn ntfs_that_was_not_left_cleanly_has_no_view_and_says_so() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, FILL);
    let mut disk = Disk::of(&bench);
    backup(&bench, 0);
    assert!(view(&bench)["not_listed"].is_null());
    // The flag is in a value of $Volume, behind the version.
    let record = disk.record(3);
    let bytes = &disk.bytes[record..record + RECORD_BYTES];
    let version = bytes.windows(4).position(|found| found == [3, 1, 0, 0]);
    disk.bytes[record + version.unwrap() + 2] |= 1;
    disk.write(&bench);
    let said = backup(&bench, 0);
    assert!(said.contains("did not leave it cleanly"), "{said}");
    let view = view(&bench);
    let why = view["not_listed"].as_str().unwrap();
    assert!(
        why.contains("fast start") && view["kind"] == "ntfs",
        "{view}"
    );
    let listed = bench.ok(&["ls", "latest", "--recursive"]).text();
    assert_eq!(listed, "/disk.raw\n");
    let stats = bench.ok(&["stats", "latest"]).text();
    assert!(stats.contains("/p1: ntfs, not listed: "), "{stats}");
}

/// What came back of the view, by path.
fn restored(bench: &Bench) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    bench.sh("rm -rf back");
    let ran = bench.run(&["restore", "latest:/p1", "--target", "back"]);
    assert!([0, 3].contains(&ran.code), "{ran}");
    tree(&bench.path("back"))
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let content = match path.symlink_metadata().unwrap().file_type() {
                kind if kind.is_dir() => {
                    directories.push(path.clone());
                    None
                }
                kind if kind.is_file() => fs::read(&path).ok(),
                _ => None,
            };
            let name = path.strip_prefix(root).unwrap().to_owned();
            found.insert(name, content);
        }
    }
    found
}

#[test]
fn a_damaged_record_costs_its_own_file_and_a_directory_what_is_in_it_and_both_are_named() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, &format!("{FILL}; seen"));
    let whole = Disk::of(&bench);
    let expected = tree(&bench.path("seen"));
    // A sector of another moment; no head; a directory; runs that lead out of the volume, of a
    // file whose name is known.
    let runs = {
        let at = whole.attribute("c/large", 0x80);
        at + usize::from(whole.bytes[at + 32]) + 2
    };
    for (place, bytes, lost, named) in [
        (whole.record_of("a/f7") + 1023, 1, "a/f7", "MFT record"),
        (whole.record_of("c/small"), 4, "c/small", "MFT record"),
        (whole.record_of("a/b") + 510, 1, "a/b", "f1"),
        (runs, 2, "c/large", "p1/c/large"),
    ] {
        let mut disk = Disk::of(&bench);
        disk.bytes.clone_from(&whole.bytes);
        for byte in &mut disk.bytes[place..place + bytes] {
            *byte ^= 0x7f;
        }
        disk.write(&bench);
        let said = backup(&bench, 3);
        assert!(said.contains(named), "{lost}: {said}");
        let mut rest = expected.clone();
        rest.retain(|path, _| !path.starts_with(lost));
        assert!(restored(&bench) == rest, "{lost}");
        assert_ne!(view(&bench)["problems"], 0);
    }
}

#[test]
fn a_name_is_in_the_directory_that_it_was_given_in_and_what_is_of_the_volume_is_left_out() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, &format!("{FILL}; seen"));
    let whole = Disk::of(&bench);
    let expected = tree(&bench.path("seen"));
    let name = whole.attribute("a/b", 0x30);
    let parent = name + usize::from(whole.bytes[name + 20]);
    let number_and_count = |record: usize| {
        let count = u16::from_le_bytes(*whole.bytes[record + 16..].first_chunk().unwrap());
        let number = u32::from_le_bytes(*whole.bytes[record + 44..].first_chunk().unwrap());
        u64::from(number) | u64::from(count) << 48
    };
    let extend = number_and_count(whole.record(11));
    let former = number_and_count(whole.record_of("c")) + (1 << 48);
    // In $Extend is what the volume keeps for itself; a directory whose record was used again is
    // not there any more.
    for (reference, code) in [(extend, 0), (former, 3)] {
        let mut disk = Disk::of(&bench);
        disk.bytes.clone_from(&whole.bytes);
        disk.bytes[parent..parent + 8].copy_from_slice(&reference.to_le_bytes());
        disk.write(&bench);
        let said = backup(&bench, code);
        assert_eq!(said.contains("it is not there: b "), code == 3, "{said}");
        let mut rest = expected.clone();
        rest.retain(|path, _| !path.starts_with("a/b"));
        assert!(restored(&bench) == rest);
    }
}

/// A pseudo-random sequence.
struct Flips(u64);

impl Flips {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Nothing guards most bytes of a record: what is in another one is what must be right.
#[test]
fn of_damaged_images_of_ntfs_files_of_intact_records_come_back() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, &format!("{FILL}; seen"));
    let whole = Disk::of(&bench);
    let expected = tree(&bench.path("seen"));
    let paths: Vec<&PathBuf> = whole
        .numbers
        .keys()
        .filter(|path| path.iter().count() > 0)
        .collect();
    let (mut damaged, mut said_so) = (0, 0);
    for seed in 0..20 {
        let mut flips = Flips(seed);
        let mut disk = Disk::of(&bench);
        disk.bytes.clone_from(&whole.bytes);
        let mut touched = BTreeSet::new();
        for _ in 0..12 {
            let path = paths[flips.below(paths.len())];
            let at = whole.record(whole.numbers[path]) + flips.below(420);
            // The number, by which the next one is found.
            if whole.bytes[at] != 0 && !(44..48).contains(&(at % RECORD_BYTES)) {
                disk.bytes[at] ^= 1 << flips.below(8);
                touched.insert(path);
            }
        }
        disk.write(&bench);
        let ran = bench.run(&["backup", "--image", "disk.raw"]);
        assert!([0, 3].contains(&ran.code), "{seed}: {ran}");
        said_so += usize::from(ran.code == 3);
        let found = restored(&bench);
        for (path, content) in &expected {
            let is_touched = touched.iter().any(|touched| path.starts_with(touched));
            damaged += usize::from(is_touched);
            // The name of another file may have become this one.
            let is_named = ran.err.contains(path.to_str().unwrap());
            let is_there = found.get(path) == Some(content);
            assert!(is_touched || is_there || is_named, "{seed}: {path:?}");
        }
    }
    bench.ok(&["check", "--read-data"]);
    assert!(damaged > 100 && said_so > 10, "{damaged} {said_so}");
}
