//! `bale track`: what changes on a device is known to the kernel, and backups of it read that.

use crate::bench::{Bench, Ran, binary, have, is_root, skipped};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A loop device that is tracked, over `disk.img`.
struct Tracked {
    bench: Bench,
    device: String,
}

impl Tracked {
    /// `None`: not on this machine.
    fn of(bytes: &str) -> Option<Tracked> {
        let disk = Tracked::untracked(bytes)?;
        disk.bench.ok(&["track", "start", &disk.device]);
        Some(disk)
    }

    fn untracked(bytes: &str) -> Option<Tracked> {
        if !is_root() || !have("losetup") {
            skipped("to track a loop device takes root and losetup");
            return None;
        }
        let bench = Bench::new();
        bench.sh(&format!(
            "truncate -s {bytes} disk.img; losetup --show -f disk.img > device"
        ));
        let device = fs::read_to_string(bench.path("device")).unwrap();
        let device = device.trim().to_owned();
        let disk = Tracked { bench, device };
        let ran = disk.bench.run(&["track", "start", &disk.device]);
        let has_types = Path::new("/sys/kernel/btf/vmlinux").exists();
        if !has_types || ran.err.contains("lockdown") {
            skipped("this kernel lets nobody load programs, or does not describe its types");
            return None;
        }
        assert_eq!(ran.code, 0, "{ran}");
        disk.bench.ok(&["track", "stop", &disk.device]);
        Some(disk)
    }

    /// With `$d` for the device and `$bale` for the program.
    fn sh(&self, script: &str) {
        let (bale, d) = (binary().display(), &self.device);
        self.bench.sh(&format!("bale={bale}; d={d}; {script}"));
    }

    fn backup(&self, words: &[&str]) -> Ran {
        let words = [&["backup", "--image", &self.device, "--json"], words].concat();
        self.bench.ok(&words)
    }

    /// What the last snapshot restores to is what is on the device, which stands still.
    fn assert_restores(&self) {
        self.sh(
            "rm -f out.raw; $bale restore latest --target out.raw --quiet; cmp out.raw disk.img",
        );
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let d = &self.device;
        let script = format!(
            "fsfreeze -u at; umount {d} {d}p1; {bale} track stop {d}p1; {bale} track stop {d}; delpart {d} 1; \
             losetup -d {d}",
            bale = binary().display()
        );
        let mut command = self.bench.prepared(Command::new("sh"));
        let command = command.args(["-c", &script]).stderr(Stdio::null());
        let _what_was_not_there = command.status();
    }
}

/// What was noted, wherever.
fn notes(ran: &Ran) -> String {
    format!("{}{}", ran.text(), ran.err)
}

fn read(ran: &Ran) -> u64 {
    ran.summary()["bytes_read"].as_u64().unwrap() >> 20
}

#[test]
fn a_backup_of_a_tracked_device_reads_what_was_written_since_the_one_before() {
    let Some(disk) = Tracked::of("64M") else {
        return;
    };
    disk.sh("head -c 64M /dev/urandom > $d; sync $d");
    assert_eq!(read(&disk.backup(&[])), 64);
    disk.assert_restores();
    assert_eq!(read(&disk.backup(&[])), 0);
    // A write that crosses blocks, a discard, zeroes; the cache is written back by the backup.
    disk.sh(
        "printf x | dd of=$d bs=1 seek=3145727 conv=notrunc status=none
        head -c 3 /dev/urandom | dd of=$d bs=1 seek=10485759 conv=notrunc status=none
        blkdiscard -o 20M -l 1M $d; blkdiscard -z -o 40M -l 2M $d",
    );
    let ran = disk.backup(&[]);
    assert_eq!(read(&ran), 1 + 2 + 1 + 2, "{ran}");
    disk.assert_restores();
    // A discard may end only now, of which the kernel says only where its first range is.
    assert_eq!(read(&disk.backup(&[])), 1);
    assert_eq!(read(&disk.backup(&[])), 0);
    let record = &ran.summary()["images"][0];
    assert_eq!(record["tracker"], "ebpf");
    assert!(record["basis"].is_string(), "{record}");
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn open_or_make(path: &Path) -> File {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(path).unwrap()
}

/// Files made, appended to, overwritten, emptied in the middle and removed.
fn change_files(directory: &Path, numbers: &mut Numbers) {
    for _ in 0..120 {
        let name = format!("d{}/f{}", numbers.below(6), numbers.below(30));
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let len = [100, 5_000, 70_000, 900_000][numbers.below(4) as usize];
        let bytes: Vec<u8> = (0..len).map(|_| numbers.below(256) as u8).collect();
        match numbers.below(10) {
            0..=4 => fs::write(&path, bytes).unwrap(),
            5 | 6 => {
                let file = open_or_make(&path);
                file.write_all_at(&bytes, numbers.below(200_000)).unwrap();
            }
            7 => {
                let file = open_or_make(&path);
                let allocate = rustix::fs::FallocateFlags::empty();
                // Where the file system has no room or no such call, nothing is changed.
                let _may_fail = rustix::fs::fallocate(&file, allocate, 0, 300_000);
            }
            _ => drop(fs::remove_file(&path)),
        }
    }
}

#[test]
fn file_systems_in_use_come_back_block_by_block_from_what_was_read_of_them() {
    for make in [
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0",
        "mkfs.xfs -q -f",
        "mkfs.btrfs -q -f",
    ] {
        let program = make.split(' ').next().unwrap();
        if !have(program) || !have("fsfreeze") || !have("fstrim") {
            skipped(&format!(
                "{program}, fsfreeze and fstrim to track what a file system does"
            ));
            continue;
        }
        let Some(disk) = Tracked::of("320M") else {
            return;
        };
        let mut numbers = Numbers(program.len() as u64 * 7919);
        disk.sh(&format!("{make} $d; mkdir at; mount $d at"));
        let (mut blocks, rounds) = (0, 4);
        for round in 0..rounds {
            change_files(&disk.bench.path("at"), &mut numbers);
            if round == 1 {
                disk.sh("fstrim at");
            }
            // Frozen, so that there is something to compare with, all of it. What is in memory
            // alone of a device that nobody froze is written back by the backup itself.
            disk.sh("fsfreeze -f at");
            let ran = disk.bench.run(&[
                "backup",
                "--image",
                &disk.device,
                "--json",
                "--allow-fuzzy",
                "--read-free",
            ]);
            let restored = disk
                .bench
                .run(&["restore", "latest", "--target", "out.raw", "--quiet"]);
            disk.sh("cmp out.raw disk.img > differs && rm -f differs || true; rm -f out.raw; fsfreeze -u at");
            assert_eq!(
                (ran.code, restored.code),
                (0, 0),
                "{program} {round}: {ran}{restored}"
            );
            let differs = fs::read_to_string(disk.bench.path("differs")).unwrap_or_default();
            assert_eq!(differs, "", "{program} {round}");
            assert!(
                !notes(&ran).contains("everything is read"),
                "{program} {round}: {ran}"
            );
            if round > 0 {
                blocks += read(&ran);
            }
        }
        disk.sh("umount at");
        let ran = disk.backup(&["--read-free"]);
        assert!(
            blocks > 0 && blocks < 320 * (rounds - 1) * 3 / 4,
            "{program}: {blocks}"
        );
        assert!(read(&ran) < 100, "{program}: {ran}");
        disk.assert_restores();
        disk.bench.ok(&["check", "--read-data"]);
    }
}

/// In both directions: the disk is tracked and its partition backed up, and the partition alone.
#[test]
fn a_partition_is_tracked_with_its_disk_or_alone_and_its_blocks_are_where_they_are() {
    if !have("addpart") || !have("delpart") {
        return skipped("partitions of loop devices take addpart and delpart");
    }
    let Some(disk) = Tracked::of("64M") else {
        return;
    };
    // From a place that is no multiple of a block, and not to the end of the disk.
    disk.sh(
        "head -c 64M /dev/urandom > $d; sync $d; addpart $d 1 2050 80001
        n=$(cat /sys/block/${d#/dev/}/${d#/dev/}p1/dev); test -b ${d}p1 || mknod ${d}p1 b ${n%:*} ${n#*:}",
    );
    let part = format!("{}p1", disk.device);
    let same = "dd if=disk.img of=part.img bs=512 skip=2050 count=80001 status=none
        rm -f out.raw; $bale restore latest:/${d##*/}p1.raw --target out.raw --quiet
        cmp out.raw part.img";
    let backup = ["backup", "--image", &part, "--json"];
    for round in 0..2 {
        if round == 1 {
            disk.bench.ok(&["track", "stop", &disk.device]);
            disk.bench.ok(&["track", "start", &part]);
            let ran = disk.bench.ok(&backup);
            assert!(notes(&ran).contains("stopped and started again"), "{ran}");
        } else {
            assert_eq!(read(&disk.bench.ok(&backup)), 80001 / 2048);
        }
        assert_eq!(read(&disk.bench.ok(&backup)), 0);
        disk.sh(same);
        // Through the partition: its first byte, its last, and where one of its blocks ends.
        disk.sh("for at in 0 40960511 1048575 10485760; do
                printf y | dd of=${d}p1 bs=1 seek=$at conv=notrunc,fsync status=none
            done");
        let ran = disk.bench.ok(&backup);
        let blocks = read(&ran);
        assert!((2..=8).contains(&blocks), "{ran}");
        disk.sh(same);
        // Through the disk: just in front of the partition, just within, and behind it.
        disk.sh("blockdev --flushbufs $d
            for at in 1049599 1049600 21037567 42010112; do
                printf z | dd of=$d bs=1 seek=$at conv=notrunc,fsync status=none
            done; blockdev --flushbufs ${d}p1");
        let ran = disk.bench.ok(&backup);
        assert!(read(&ran) <= 6, "{ran}");
        disk.sh(same);
    }
}

#[test]
fn after_any_kill_of_a_backup_the_next_one_into_either_repository_is_right() {
    let Some(disk) = Tracked::of("48M") else {
        return;
    };
    disk.bench.write("password", "a password\n");
    disk.sh(
        "head -c 48M /dev/urandom > $d; sync $d; $bale init -r one -p password -q
        $bale init -r two -p password -q",
    );
    let words = |repository| {
        let image = &disk.device[..];
        [
            "backup", "-r", repository, "-p", "password", "--image", image, "--json",
        ]
    };
    let began = Instant::now();
    for repository in ["one", "two"] {
        disk.bench.ok(&words(repository));
    }
    let mut took = began.elapsed() / 2;
    let device = File::options().write(true).open(&disk.device).unwrap();
    let mut numbers = Numbers(99);
    let mut killed = 0;
    for round in 0..16 {
        for _ in 0..numbers.below(8) {
            let bytes = vec![numbers.below(256) as u8; 1 + numbers.below(2 << 20) as usize];
            let at = numbers.below((48 << 20) - bytes.len() as u64);
            device.write_all_at(&bytes, at).unwrap();
        }
        let repository = ["one", "two"][numbers.below(2) as usize];
        let mut command = disk.bench.command();
        command.args(words(repository));
        let piped = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = piped.spawn().unwrap();
        let moment = took.mul_f64(numbers.below(1000) as f64 / 1000.0);
        std::thread::sleep(moment.min(Duration::from_secs(2)));
        child.kill().unwrap(); // SIGKILL
        killed += usize::from(!child.wait().unwrap().success());
        let repository = ["one", "two"][round % 2];
        // Other tests beside this one come and go: the last one says how long one takes.
        let began = Instant::now();
        let ran = disk.bench.ok(&words(repository));
        took = began.elapsed();
        assert!(!notes(&ran).contains("everything is read"), "{ran}");
        disk.sh(&format!(
            "rm -f out.raw; $bale restore -r {repository} -p password latest --target out.raw --quiet
            cmp out.raw disk.img"
        ));
    }
    assert!(killed > 0, "no kill came before the end");
}

#[test]
fn what_is_tracked_is_begun_shown_and_ended_and_what_cannot_be_is_named() {
    let Some(disk) = Tracked::untracked("16M") else {
        return;
    };
    let (bench, d) = (&disk.bench, &disk.device[..]);
    let ran = bench.run(&["track", "status", d]);
    assert_eq!(
        (ran.code, ran.text().contains("is not tracked")),
        (1, true),
        "{ran}"
    );
    let stopped = bench.run(&["track", "stop", d]);
    assert!(
        stopped.code == 1 && stopped.err.contains("is not tracked"),
        "{stopped}"
    );
    let begun = bench.ok(&["track", "start", d, "--json"]);
    assert_eq!(begun.of_type("track")[0]["action"], "started");
    bench.ok(&["backup", "--image", d]);
    // Again: nothing is lost of what there is.
    let again = bench.ok(&["track", "start", d, "--json"]);
    assert_eq!(again.of_type("track")[0]["action"], "goes-on");
    disk.sh("head -c 2M /dev/urandom | dd of=$d bs=1M seek=3 conv=notrunc,fsync status=none");
    let status = bench.ok(&["track", "status", d, "--json"]);
    let status = &status.of_type("tracking")[0];
    assert_eq!(
        (
            &status["device"],
            &status["tracked"],
            &status["bytes_changed"]
        ),
        (&d.into(), &true.into(), &(2 << 20).into())
    );
    assert_eq!(
        (&status["epoch"], &status["trouble"]),
        (&2.into(), &().into())
    );
    let all = bench.ok(&["track", "status"]);
    assert!(all.text().contains(d), "{all}");
    assert_eq!(read(&disk.backup(&[])), 2);
    for words in [
        ["track", "start", "source"],
        ["track", "start", "/dev/nothing"],
    ] {
        let ran = bench.run(&words);
        assert!(ran.code == 1 && ran.err.contains(words[2]), "{ran}");
    }
}

#[test]
fn whatever_becomes_of_a_tracked_device_the_next_backup_reads_everything_and_says_why() {
    let Some(disk) = Tracked::of("16M") else {
        return;
    };
    let bench = &disk.bench;
    disk.sh("head -c 16M /dev/urandom > $d; sync $d");
    let restart = "$bale track stop $d; $bale track start $d";
    disk.backup(&[]);
    for (why, act, mend) in [
        ("tracking was stopped and started again", restart, "true"),
        (
            "of another size",
            "truncate -s 17M disk.img; losetup -c $d",
            restart,
        ),
        (
            "another disk has its name",
            "losetup -d $d; losetup $d disk.img",
            restart,
        ),
        (
            "attached no more",
            "rm /sys/fs/bpf/bale/$(stat -c %Hr-%Lr $d)/queued-link",
            restart,
        ),
        (
            "nobody keeps account now",
            "$bale track stop $d",
            "$bale track start $d",
        ),
    ] {
        let written = "printf unseen | dd of=$d bs=1 seek=5000000 conv=notrunc,fsync status=none";
        disk.sh(&format!("{act}; {written}"));
        let ran = disk.backup(&[]);
        assert!(notes(&ran).contains("everything is read"), "{why}: {ran}");
        assert!(notes(&ran).contains(why), "{why}: {ran}");
        assert!(read(&ran) >= 16, "{why}: {ran}");
        disk.assert_restores();
        let status = bench.run(&["track", "status", &disk.device]);
        let is_well = why.starts_with("tracking was");
        assert_eq!(status.code == 0, is_well, "{why}: {status}");
        disk.sh(mend);
        disk.backup(&[]);
        assert_eq!(read(&disk.backup(&[])), 0, "{why}");
    }
}
