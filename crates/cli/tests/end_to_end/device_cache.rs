//! What the kernel has in memory of a disk is not what was written through a partition of it, as
//! long as anybody has the disk open.

use crate::bench::{Bench, binary, have, is_root, skipped};
use std::fs::{self, File};
use std::process::{Command, Stdio};

const EXT4: &str = "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0";

/// A disk with a partition that holds a file system. Somebody has the disk open, so that its cache
/// stays.
struct OpenDisk {
    bench: Bench,
    device: String,
    _open: File,
}

impl OpenDisk {
    /// Of so many MiB, with a file system that `mkfs` makes. `None`: not on this machine.
    fn of(mib: u64, mkfs: &str) -> Option<OpenDisk> {
        let needed = [
            "losetup",
            "sfdisk",
            "addpart",
            "delpart",
            "mount",
            mkfs.split(' ').next().unwrap(),
        ];
        if !is_root() || !needed.iter().all(|program| have(program)) {
            skipped("a disk with a partition takes root, losetup, sfdisk, addpart and mkfs");
            return None;
        }
        let bench = Bench::new();
        bench.sh(&format!(
            "truncate -s {mib}M disk.img; echo 'start=2048, type=83' | sfdisk -q disk.img
            mkdir at; losetup --show -f disk.img > device",
        ));
        let device = fs::read_to_string(bench.path("device")).unwrap();
        let device = device.trim().to_owned();
        let open = File::open(&device).unwrap();
        let disk = OpenDisk {
            bench,
            device,
            _open: open,
        };
        let sectors = (mib - 1) * 2048;
        disk.sh(&format!(
            "addpart $d 1 2048 {sectors}
            n=$(cat /sys/block/${{d#/dev/}}/${{d#/dev/}}p1/dev)
            test -b ${{d}}p1 || mknod ${{d}}p1 b ${{n%:*}} ${{n#*:}}
            {mkfs} ${{d}}p1",
        ));
        Some(disk)
    }

    /// With `$d` for the device and `$bale` for the program.
    fn sh(&self, script: &str) {
        let (bale, d) = (binary().display(), &self.device);
        self.bench.sh(&format!("bale={bale}; d={d}; {script}"));
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        let d = &self.device;
        let script = format!("umount at; delpart {d} 1; losetup -d {d}");
        let mut command = self.bench.prepared(Command::new("sh"));
        let command = command.args(["-c", &script]).stderr(Stdio::null());
        let _what_was_not_there = command.status();
    }
}

#[test]
fn what_was_written_through_a_partition_is_in_a_backup_of_the_disk_whoever_has_it_open() {
    let Some(disk) = OpenDisk::of(96, EXT4) else {
        return;
    };
    for round in 0..3 {
        disk.sh(&format!(
            "mount ${{d}}p1 at; head -c 9M /dev/urandom > at/new{round}; cp at/new{round} .; umount at
            $bale backup --image $d -q
            $bale dump latest:/p1/new{round} | cmp - new{round}
            $bale restore latest --target out.raw -q
            mount -o loop,ro,offset=1048576 out.raw at; cmp at/new{round} new{round}; umount at; rm out.raw"
        ));
    }
}

#[test]
fn a_restore_onto_a_disk_writes_all_that_differs_whoever_has_it_open() {
    let Some(disk) = OpenDisk::of(96, EXT4) else {
        return;
    };
    disk.sh(
        "mount ${d}p1 at; head -c 9M /dev/urandom > at/old; umount at
        $bale backup --image $d --read-free -q; cp disk.img as-it-was.img
        $bale restore latest --target $d -q
        mount ${d}p1 at; head -c 9M /dev/urandom > at/old; umount at
        if cmp -s disk.img as-it-was.img; then exit 1; fi
        $bale restore latest --target $d -q; cmp disk.img as-it-was.img
        $bale restore latest --target $d --verify -q",
    );
}

/// The other way round: the partition is open, and what is on it comes through the disk.
#[test]
fn files_of_a_partition_are_those_that_were_written_through_its_disk() {
    let Some(disk) = OpenDisk::of(400, "mkfs.xfs -q -f") else {
        return;
    };
    let _open = File::open(format!("{}p1", disk.device)).unwrap();
    disk.sh(
        "mount ${d}p1 at; mkdir at/x; for i in $(seq 2000); do echo $i > at/x/name$i; done
        cp -a at/x first; umount at; cp disk.img first.img
        mount ${d}p1 at; rm -r at/x; mkdir at/x
        for i in $(seq 4000); do echo $i > at/x/other$i; done; umount at
        $bale backup --scan inode ${d}p1 -q
        dd if=first.img of=$d bs=1M conv=fsync status=none
        $bale backup --scan inode ${d}p1 -q
        $bale restore latest:${d}p1/x --target back -q; diff -r first back/x || diff -r first back",
    );
}
