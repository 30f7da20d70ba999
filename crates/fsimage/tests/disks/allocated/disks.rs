//! Disks with partitions and volumes: each file system is found and read as it is by itself.

use super::image::{Copied, Image, can_run, run};
use super::tree::{Random, churn};
use bale_fsimage::allocated::{AllocatedRanges, PartContent};
use bale_fsimage::lvm2::{LinearSegment, PhysicalVolume};
use bale_fsimage::partitions::PartitionTable;
use bale_fsimage::recognize::Recognized;
use bale_fsimage::section::Section;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

const PROGRAMS: [&str; 9] = [
    "mke2fs", "mkfs.xfs", "mkntfs", "ntfs-3g", "mkswap", "sfdisk", "mount", "umount", "losetup",
];
const STEP: u64 = 1 << 20;

/// An image of so many bytes, written to its place on a disk.
fn put(disk: &File, image: &Image, segments: &[LinearSegment]) {
    let source = image.file();
    let mut buffer = vec![0; STEP as usize];
    for segment in segments {
        for at in (0..segment.bytes).step_by(STEP as usize) {
            let part = &mut buffer[..STEP.min(segment.bytes - at) as usize];
            source.read_exact_at(part, segment.offset + at).unwrap();
            disk.write_all_at(part, segment.disk_offset + at).unwrap();
        }
    }
}

/// What is at a place of a disk, as an image.
fn taken(disk: &Image, segments: &[LinearSegment]) -> Image {
    let section = Section::new(Arc::new(disk.file()), segments.to_vec());
    let section: &dyn bale_fsimage::ByteSource = &section;
    let image = Image::new(section.len_bytes());
    let target = image.file();
    let mut buffer = vec![0; STEP as usize];
    for at in (0..section.len_bytes()).step_by(STEP as usize) {
        let part = &mut buffer[..STEP.min(section.len_bytes() - at) as usize];
        section.read_exact_at(at, part).unwrap();
        target.write_all_at(part, at).unwrap();
    }
    image
}

fn sfdisk(disk: &Image, table: &str) -> Vec<LinearSegment> {
    let mut sfdisk = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", &disk.name()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sfdisk.stdin.take().unwrap();
    input.write_all(table.as_bytes()).unwrap();
    drop(input);
    assert!(sfdisk.wait().unwrap().success());
    let table = PartitionTable::read(&disk.file(), None).unwrap().unwrap();
    let places = table.partitions.iter().map(|partition| LinearSegment {
        offset: 0,
        bytes: partition.bytes,
        disk_offset: partition.offset,
    });
    places.collect()
}

fn assert_alike(one: &Image, other: &Image, offset: u64, bytes: u64) {
    let read = |image: &Image| {
        let mut found = vec![0; bytes as usize];
        image.file().read_exact_at(&mut found, offset).unwrap();
        found
    };
    assert!(read(one) == read(other), "at {offset}");
}

fn assert_content(copied: &Copied, name: &str, content: Recognized) {
    assert_eq!(copied.part(name).content, PartContent::Content(content));
}

/// These are the file systems of the disk, and the disk has their bytes.
fn assert_file_systems(disk: &Image, expected: &[(&str, &Image, &[LinearSegment])]) {
    let ranges = AllocatedRanges::of(Arc::new(disk.file()), None);
    let found = ranges.file_systems().iter();
    let names: Vec<&str> = found.map(|one| one.name.as_str()).collect();
    let names_expected: Vec<&str> = expected.iter().map(|one| one.0).collect();
    assert_eq!(names, names_expected);
    for (one, (name, image, segments)) in ranges.file_systems().iter().zip(expected) {
        let (source, image) = (one.source(), image.file());
        let (mut had, mut wanted) = (vec![0; STEP as usize], vec![0; STEP as usize]);
        for at in (0..source.len_bytes()).step_by(STEP as usize) {
            let len = STEP.min(source.len_bytes() - at) as usize;
            source.read_exact_at(at, &mut had[..len]).unwrap();
            image.read_exact_at(&mut wanted[..len], at).unwrap();
            assert!(had[..len] == wanted[..len], "{name} at {at}");
        }
        let place = |one: &LinearSegment| one.disk_offset..one.disk_offset + one.bytes;
        let places: Vec<_> = segments.iter().map(place).collect();
        let on_disk: Vec<_> = one.on_disk(0..source.len_bytes()).collect();
        assert_eq!(on_disk, places);
        // Its own bytes, the table of partitions or the metadata of LVM2, and of no other a byte.
        let depends_on = one.depends_on();
        let is_in = |at: u64| depends_on.iter().any(|range| range.contains(&at));
        assert!(is_in(513) && is_in(places[0].start) && is_in(places[0].end - 1));
        let others = expected.iter().filter(|other| other.0 != *name);
        for place in others.flat_map(|other| other.2.iter().map(place)) {
            assert!(!is_in(place.start) && !is_in(place.end - 1));
        }
    }
}

fn partitions_are_read(table: &str, names: [&str; 5]) {
    if !can_run(&PROGRAMS) {
        return;
    }
    let disk = Image::new(1000 << 20);
    let places = sfdisk(&disk, table);
    let file = disk.file();
    let of = |number: usize| std::slice::from_ref(&places[number]);
    let ext4 = Image::make(places[0].bytes >> 20, "mke2fs -q -F -t ext4");
    churn(&ext4.mount("noatime").path, 1, 5);
    put(&file, &ext4, of(0));
    let xfs = Image::make(places[1].bytes >> 20, "mkfs.xfs -q -f");
    churn(&xfs.mount("noatime,nouuid").path, 2, 5);
    put(&file, &xfs, of(1));
    let swap = Image::make(places[2].bytes >> 20, "mkswap");
    put(&file, &swap, of(2));
    let ntfs = Image::new(places[3].bytes);
    run("mkntfs", &["-q", "-F", "-f", &ntfs.name()]);
    churn(&ntfs.mount_ntfs("noatime").path, 3, 3);
    put(&file, &ntfs, of(3));
    // Partition 5 holds what nobody knows, and so does the space behind it.
    let unknown = Random(9).bytes(2 << 20);
    file.write_all_at(&unknown, places[4].disk_offset).unwrap();
    let gap = places[4].disk_offset + places[4].bytes;
    file.write_all_at(&unknown, gap + 4096).unwrap();

    let expected = [
        (names[0], &ext4, of(0)),
        (names[1], &xfs, of(1)),
        (names[3], &ntfs, of(3)),
    ];
    assert_file_systems(&disk, &expected);
    let copied = disk.copied();
    let [name_ext4, name_xfs, name_swap, name_ntfs, name_unknown] = names;
    for name in [name_ext4, name_xfs, name_swap, name_ntfs] {
        copied.assert_believed(name);
    }
    assert_content(&copied, name_ext4, Recognized::Ext);
    assert_content(&copied, name_xfs, Recognized::Xfs);
    assert_content(&copied, name_swap, Recognized::Swap { page_bytes: 4096 });
    assert_content(&copied, name_ntfs, Recognized::Ntfs);
    assert_eq!(copied.part(name_swap).allocated_bytes, 4096);
    copied.why_whole(name_unknown);
    copied.why_whole("disk");
    let expected = ext4.mount("ro").tree();
    assert_eq!(taken(&copied.image, of(0)).mount("ro").tree(), expected);
    let expected = xfs.mount("ro,nouuid").tree();
    assert_eq!(
        taken(&copied.image, of(1)).mount("ro,nouuid").tree(),
        expected
    );
    let expected = ntfs.mount_ntfs("ro").tree();
    assert_eq!(
        taken(&copied.image, of(3)).mount_ntfs("ro").tree(),
        expected
    );
    // The table, its copy, and all that is in no partition.
    assert_alike(&disk, &copied.image, 0, places[0].disk_offset);
    assert_alike(&disk, &copied.image, places[4].disk_offset, places[4].bytes);
    assert_alike(&disk, &copied.image, gap, (1000 << 20) - gap);
    assert_alike(&disk, &copied.image, places[2].disk_offset, 4096);
}

#[test]
fn of_a_disk_with_a_gpt_each_partition_is_read_as_what_it_holds() {
    let table = "label: gpt\nsize=200MiB\nsize=320MiB\nsize=64MiB\nsize=100MiB\nsize=10MiB\n";
    partitions_are_read(table, ["p1", "p2", "p3", "p4", "p5"]);
}

#[test]
fn of_a_disk_with_an_mbr_logical_partitions_are_read_as_well() {
    let table = "label: dos\nsize=200MiB\nsize=320MiB\nsize=64MiB\ntype=5,size=400MiB\n\
                 size=100MiB\nsize=10MiB\n";
    partitions_are_read(table, ["p1", "p2", "p3", "p5", "p6"]);
}

/// The second partition lost its end, and the third is not there at all.
#[test]
fn of_a_disk_that_is_cut_what_is_before_the_cut_is_read_as_what_it_holds() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for label in ["gpt", "dos"] {
        let disk = Image::new(300 << 20);
        let table = format!("label: {label}\nsize=100MiB\nsize=100MiB\nsize=50MiB\n");
        let places = sfdisk(&disk, &table);
        let file = disk.file();
        let of = |number: usize| std::slice::from_ref(&places[number]);
        let ext4 = Image::make(100, "mke2fs -q -F -t ext4");
        churn(&ext4.mount("noatime").path, 1, 5);
        put(&file, &ext4, of(0));
        put(&file, &Image::make(100, "mke2fs -q -F -t ext4"), of(1));
        let cut = places[1].disk_offset + (60 << 20);
        file.set_len(cut).unwrap();

        assert_file_systems(&disk, &[("p1", &ext4, of(0))]);
        let copied = disk.copied();
        copied.assert_believed("p1");
        for name in ["p2", "p3"] {
            let why = copied.why_whole(name);
            assert!(why.contains("ends behind the end of the disk"), "{why}");
        }
        let expected = ext4.mount("ro").tree();
        let found = taken(&copied.image, of(0));
        assert_eq!(found.mount("ro").tree(), expected, "{label}");
        let from = places[1].disk_offset;
        assert_alike(&disk, &copied.image, from, cut - from);
    }
}

/// The backing device of a loop, detached at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

fn lvm(device: &Loop, command: &str, words: &[&str]) {
    // It looks at no other disk, and needs no device mapper.
    let config = format!(
        "devices {{ filter=[\"a|^{}$|\",\"r|.*|\"] use_devicesfile=0 }} global {{ activation=0 \
         use_lvmlockd=0 use_lvmpolld=0 event_activation=0 }} backup {{ backup=0 archive=0 }}",
        device.0
    );
    let output = Command::new("lvm")
        .args([command, "--config", &config])
        .args(words)
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
}

/// A volume in two runs, the later in front of the earlier on no disk: another is between them.
#[test]
fn of_linear_volumes_each_is_read_as_what_it_holds() {
    if !can_run(&PROGRAMS) || !can_run(&["lvm"]) {
        return;
    }
    let disk = Image::new(700 << 20);
    let group = format!("bale-test-{}", std::process::id());
    {
        let made = run("losetup", &["--find", "--show", &disk.name()]);
        let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        lvm(&device, "pvcreate", &["-ff", "-y", &device.0]);
        lvm(&device, "vgcreate", &[&group, &device.0]);
        for (name, extents) in [("a", "30"), ("b", "80")] {
            let words = ["-an", "-Zn", "-Wn", "-n", name, "-l", extents, &group];
            lvm(&device, "lvcreate", &words);
        }
        lvm(&device, "lvextend", &["-l", "+30", &format!("{group}/a")]);
    }
    let found = PhysicalVolume::read(&disk.file(), 0, 700 << 20).unwrap();
    let segments = |name: &str| {
        let volume = found.volumes.iter().find(|volume| volume.name == name);
        volume.unwrap().segments.clone().unwrap()
    };
    let (a, b) = (segments("a"), segments("b"));
    assert_eq!((a.len(), b.len()), (2, 1));
    let ext4 = Image::make(240, "mke2fs -q -F -t ext4");
    churn(&ext4.mount("noatime").path, 4, 12);
    put(&disk.file(), &ext4, &a);
    let xfs = Image::make(320, "mkfs.xfs -q -f");
    churn(&xfs.mount("noatime,nouuid").path, 5, 5);
    put(&disk.file(), &xfs, &b);
    assert_file_systems(&disk, &[("a", &ext4, &a), ("b", &xfs, &b)]);
    let copied = disk.copied();
    copied.assert_believed("a");
    copied.assert_believed("b");
    assert_content(&copied, "disk", Recognized::Lvm2);
    copied.why_whole("disk");
    let expected = ext4.mount("ro").tree();
    assert_eq!(taken(&copied.image, &a).mount("ro").tree(), expected);
    let expected = xfs.mount("ro,nouuid").tree();
    assert_eq!(taken(&copied.image, &b).mount("ro,nouuid").tree(), expected);
    assert_alike(&disk, &copied.image, 0, 1 << 20);
}
