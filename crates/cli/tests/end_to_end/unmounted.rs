//! A disk that is not mounted on some nights: what is found in its place is backed up, said, and
//! pushes out no snapshot of the disk.

use crate::bench::{Bench, binary, have, is_root, skipped};

/// Twenty files on a disk that is mounted within another one of its kind, two backups, and three
/// without the disk. `$mkfs` makes each.
const NIGHTS: &str = r#"
    truncate -s 120M outer.img inner.img; $mkfs outer.img; $mkfs inner.img
    mkdir outer; mount -o loop outer.img outer; mkdir outer/data
    mount -o loop inner.img outer/data; rm -rf outer/data/*
    for n in $(seq 20); do echo $n > outer/data/$n; done
    for night in 1 2; do $bale backup -q outer/data; echo more >> outer/data/1; done
    umount outer/data
    for night in 3 4 5; do
        code=0; $bale backup outer/data 2> said || code=$?
        test $code = 3; grep -q 'is its file system mounted' said
    done
    $bale forget -q --keep-last 1 --prune --grace 0
    $bale snapshots --json > left
    grep -q '"files":20,' left; grep -q '"files":0,' left; test $(grep -c '"files":' left) = 2"#;

fn nights(mkfs: &str) {
    if !is_root() {
        return skipped("mounting needs root");
    }
    if !have(mkfs.split(' ').next().unwrap()) {
        return skipped(mkfs);
    }
    let bench = Bench::new();
    let bale = binary().display();
    bench.mounting_sh(&format!("mkfs='{mkfs}'; bale={bale}\n{NIGHTS}"));
}

#[test]
fn of_btrfs_each_disk_is_known_by_its_own_word() {
    nights("mkfs.btrfs -q -f");
}

#[test]
fn of_ext4_too() {
    nights("mkfs.ext4 -qF");
}

/// Like a disk that nobody gave a UUID, or a container that is not told.
#[test]
fn where_no_file_system_has_a_name_every_night_is_told_and_what_is_empty_is_thinned_for_itself() {
    nights("mkfs.ext4 -qF -U 00000000-0000-0000-0000-000000000000");
}
