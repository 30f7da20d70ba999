//! Damage is found, named, and never makes the reader panic, loop or grow; what is gone is never
//! gone in silence.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use crate::xfs_image::damage::{Scan, for_each_damage, mend_checksum, scan};
use crate::xfs_image::{Image, Random, can_run, run};
use bale_fsimage::xfs::{Xfs, XfsError};

const TOOLS: [&str; 4] = ["mkfs.xfs", "mount", "fsfreeze", "setfacl"];
/// Every form of every structure, with as few inodes as that takes: blocks of 1 KiB keep little in
/// each.
fn populate(root: &Path) {
    let mut random = Random(7);
    for (directory, count) in [("short", 3), ("block", 8), ("leaf", 40), ("btree", 160)] {
        let directory = root.join(directory);
        fs::create_dir(&directory).unwrap();
        for index in 0..count {
            let path = directory.join(format!("{index} {}", "n".repeat(150)));
            // Long targets take blocks between those of the directory.
            if index % 2 == 0 {
                symlink("t".repeat(500 + index), path).unwrap()
            } else {
                drop(File::create(path).unwrap())
            }
        }
    }
    let file = File::create(root.join("extents")).unwrap();
    for index in 0..1500 {
        file.write_all_at(b"x", index * 2048).unwrap();
    }
    for (name, count, value) in [
        ("few", 2, 10),
        ("leaf", 8, 60),
        ("tree", 60, 100),
        ("remote", 3, 20_000),
    ] {
        let path = root.join(format!("attributes {name}"));
        File::create(&path).unwrap();
        for index in 0..count {
            let name = format!("user.{index}");
            rustix::fs::lsetxattr(
                &path,
                name,
                &random.bytes(value),
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
        }
    }
    run(
        "setfacl",
        &["-m", "u:1:r", root.join("attributes few").to_str().unwrap()],
    );
}

/// A small sound image and what a scan finds in it.
fn sound_image() -> Option<(Vec<u8>, Scan)> {
    if !can_run(&TOOLS) {
        return None;
    }
    let image = Image::make(
        64,
        "--unsupported -b size=1k -d agcount=2 -m uuid=01234567-89ab-cdef-0123-456789abcdef",
    );
    let mounted = image.mount();
    populate(&mounted.path());
    mounted.unmount();
    let bytes = fs::read(image.path()).unwrap();
    let sound = scan(&bytes);
    assert!(sound.errors.is_empty(), "{:?}", sound.errors);
    assert!(sound.facts.len() > 2000);
    Some((bytes, sound))
}

#[test]
fn what_checksums_cover_is_never_lost_or_changed_in_silence() {
    let Some((mut image, sound)) = sound_image() else {
        return;
    };
    let mut found = 0;
    for_each_damage(&mut image, &sound, 1000, false, |damaged, round| {
        found += u64::from(!damaged.errors.is_empty());
        assert!(
            damaged.facts.is_subset(&sound.facts),
            "{round}: damage was believed"
        );
        assert!(
            damaged.facts == sound.facts || !damaged.errors.is_empty(),
            "{round}: facts are gone in silence"
        );
    });
    assert!(found > 700, "only {found} rounds of damage were noticed");
}

#[test]
fn damage_with_right_checksums_neither_panics_nor_loops() {
    let Some((mut image, sound)) = sound_image() else {
        return;
    };
    let (mut noticed, mut believed) = (0, 0);
    for_each_damage(&mut image, &sound, 1000, true, |damaged, _| {
        noticed += u64::from(!damaged.errors.is_empty());
        believed += u64::from(damaged.errors.is_empty() && damaged.facts != sound.facts);
    });
    assert!(
        noticed > 200 && believed > 30,
        "checksums were not mended: {noticed} noticed, {believed} believed"
    );
}

#[test]
fn a_device_shorter_than_its_file_system_is_refused() {
    let Some((image, _)) = sound_image() else {
        return;
    };
    let cut = image[..image.len() - 1].to_vec();
    assert!(matches!(
        Xfs::open(&cut),
        Err(XfsError::Damaged {
            fault: "larger than its device",
            ..
        })
    ));
    for short in [vec![0; 4096], vec![0; 100]] {
        assert!(matches!(Xfs::open(&short), Err(XfsError::NotXfs)));
    }
}

#[test]
fn features_that_would_be_read_wrongly_are_refused_by_name() {
    let Some((mut image, _)) = sound_image() else {
        return;
    };
    for (at, byte, expected) in [
        (219, 0x10, "file system marked as needing xfs_repair"),
        (218, 0x01, "metadata directory and realtime groups"),
        (218, 0x02, "zoned realtime device"),
        (216, 0x80, "unknown incompatible features"),
        (23, 0x01, "realtime section"),
        (101, 0x02, "version"),
    ] {
        let before = image[..512].to_vec();
        image[at] |= byte;
        mend_checksum(&mut image, 0);
        match Xfs::open(&image) {
            Err(XfsError::Unsupported { feature, .. }) => assert_eq!(feature, expected),
            other => panic!("byte {at}: {other:?}"),
        }
        image[..512].copy_from_slice(&before);
    }
}
