//! What a walk makes of file systems that promise less than ext4, through the binary.

use super::bench::{Bench, binary, have, is_root, skipped};
use bale_testkit::Ran;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A bench that may mount, if these programs are there.
pub(super) fn bench_with(programs: &[&str]) -> Option<Bench> {
    let missing = programs.iter().find(|program| !have(program));
    match (is_root(), missing) {
        (false, _) => skipped("mounting needs root"),
        (true, Some(missing)) => skipped(&format!("{missing} is not installed")),
        (true, None) => return Some(Bench::new()),
    }
    None
}

/// Unmounts what a test mounted in its directory.
pub(super) struct Unmount<'a>(pub(super) &'a Bench);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let place = self.0.path("");
        let script = "findmnt -rno TARGET | grep -F \"$0\" | sort -r | xargs -r -d '\\n' umount -l";
        let mut command = Command::new("bash");
        let command = command.args(["-c", script]).arg(place);
        let _unmounted_as_far_as_it_goes = command.stdin(Stdio::null()).status();
    }
}

/// A program in Python that runs beside a backup, until this goes, also when the test panics.
pub(super) struct Beside(Child);

impl Beside {
    /// Starts it, and waits for the line that says that it is about its work.
    pub(super) fn start(program: &str, words: &[&OsStr]) -> Beside {
        let mut command = Command::new("python3");
        let command = command.args(["-c", program]).args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        assert!(!said.is_empty(), "it ended before it began");
        Beside(child)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Last names of the paths that problems name.
pub(super) fn named(ran: &Ran) -> BTreeSet<String> {
    let problems = ran.of_type("problem").into_iter();
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    problems
        .filter_map(|problem| problem["path"].as_str().map(name))
        .collect()
}

/// Waits until a backup has stored something, or has ended.
pub(super) fn await_first_pack(bench: &Bench, backup: &mut Child) {
    let has_begun = || {
        let packs = std::fs::read_dir(bench.repository().join("packs")).unwrap();
        let in_directory = |path| std::fs::read_dir(path).unwrap().count();
        packs
            .flatten()
            .any(|directory| in_directory(directory.path()) > 0)
    };
    while !has_begun() && backup.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn files_of(summary: &Value) -> (u64, u64) {
    let count = |name: &str| summary[name].as_u64().unwrap_or(u64::MAX);
    (count("files"), count("files_unmodified"))
}

#[test]
fn on_btrfs_the_names_of_one_file_come_back_as_names_of_one_file() {
    let Some(bench) = bench_with(&["mkfs.btrfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 200M image; mkfs.btrfs -q image; mkdir m; mount -o loop image m; mkdir m/s
         echo one >m/s/a; ln m/s/a m/s/b; ln m/s/a m/s/c",
    );
    bench.ok(&["backup", "m/s"]);
    let address = format!("latest:{}", bench.path("m/s").display());
    bench.ok(&["restore", &address, "--target", "t"]);
    bench.sh("test \"$(stat -c %h t/a t/b t/c | sort -u)\" = 3");
    bench.sh("test \"$(stat -c %i t/a t/b t/c | sort -u | wc -l)\" = 1");
}

/// A view of several file systems passes on the numbers of their inodes.
#[test]
fn equal_numbers_of_two_inodes_in_a_view_give_no_file_the_content_of_another() {
    let Some(bench) = bench_with(&["bindfs", "mkfs.ext4"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir two two/a two/b view
         for i in a b; do truncate -s 32M $i; mkfs.ext4 -q -I 128 $i; mount -o loop $i two/$i; done
         # In one second, so that all times are equal.
         while [ $(date +%N | cut -c1) != 0 ]; do :; done
         for i in a b; do printf \"%1000s\" | tr ' ' $i >two/$i/f1; ln two/$i/f1 two/$i/f2; done
         sync; bindfs two view; sleep 2.1");
    for _ in 0..2 {
        bench.ok(&["backup", "view"]);
        for (file, letter) in [("a/f1", "a"), ("a/f2", "a"), ("b/f1", "b"), ("b/f2", "b")] {
            let address = format!("latest:{}/{file}", bench.path("view").display());
            let dumped = bench.ok(&["dump", &address]).text();
            assert_eq!(dumped, letter.repeat(1000), "{file}");
        }
        bench.sh("touch two/a/new");
    }
}

#[test]
fn a_subvolume_in_an_overlay_is_not_taken_for_the_directory_above_it() {
    let Some(bench) = bench_with(&["mkfs.btrfs", "btrfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 200M image; mkfs.btrfs -q image; mkdir nest view; mount -o loop image nest
         btrfs -q subvolume create nest/low; btrfs -q subvolume create nest/low/home
         mkdir nest/empty; echo precious >nest/low/home/thesis
         mount -t overlay overlay -o lowerdir=nest/low:nest/empty view",
    );
    for words in [&["backup", "view", "-x"][..], &["backup", "view"]] {
        let ran = bench.run(words);
        let address = format!("latest:{}/home/thesis", bench.path("view").display());
        let is_there = bench.run(&["dump", &address]).code == 0;
        // There, or named.
        let is_named = ran.code == 3 && ran.err.contains("home");
        assert!(is_there || is_named, "{words:?}: {ran}");
    }
}

#[test]
fn what_is_in_a_view_at_the_number_of_the_repository_is_backed_up() {
    let Some(bench) = bench_with(&["bindfs", "mkfs.ext4"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir two two/a two/b view
         for i in a b; do truncate -s 64M $i; mkfs.ext4 -q $i; mount -o loop $i two/$i; done
         bindfs two view");
    let repository = bench.path("view/a").display().to_string();
    bench.write("pw", "secret");
    let with = ["-r", &repository, "-p", "pw"];
    bench.sh("rmdir two/a/lost+found");
    bench.ok(&[&["init"][..], &with].concat());
    bench.sh("echo precious >two/b/f");
    let ran = bench.run(&[&["backup", "view"][..], &with].concat());
    let address = format!("latest:{}/b/f", bench.path("view").display());
    let dumped = bench.run(&[&["dump", &address][..], &with].concat());
    assert_eq!(dumped.text(), "precious\n", "{ran}");
}

/// In a snapshot of btrfs an empty directory stands where another subvolume was.
#[test]
fn a_subvolume_that_a_snapshot_of_btrfs_lacks_is_named() {
    let Some(bench) = bench_with(&["mkfs.btrfs", "btrfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 200M image; mkfs.btrfs -q image; mkdir m; mount -o loop image m
         btrfs -q subvolume create m/s; btrfs -q subvolume create m/s/sub; echo 1 >m/s/sub/f
         echo 1 >m/s/g; btrfs -q subvolume snapshot -r m/s m/snap",
    );
    let ran = bench.ok(&["backup", "m/snap", "--json"]);
    let summary = ran.summary();
    assert_eq!(
        (&summary["files"], &summary["not_crossed"]),
        (&1.into(), &1.into()),
        "{ran}"
    );
    let told = bench.ok(&["backup", "m/snap"]);
    assert!(told.err.contains("snap/sub"), "{told}");
}

#[test]
fn another_snapshot_at_the_same_path_is_read_no_more_than_what_changed() {
    let Some(bench) = bench_with(&["mkfs.btrfs", "btrfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 200M image; mkfs.btrfs -q image; mkdir m nap; mount -o loop image m
         btrfs -q subvolume create m/s; for i in 1 2 3 4 5 6; do echo $i >m/s/$i; done
         sync; sleep 0.1
         btrfs -q subvolume snapshot -r m/s m/1; btrfs -q subvolume snapshot -r m/s m/2
         mount --bind m/1 nap",
    );
    bench.ok(&["backup", "nap"]);
    bench.sh("umount nap; mount --bind m/2 nap");
    let summary = bench.ok(&["backup", "nap", "--json"]).summary();
    assert_eq!(files_of(&summary), (6, 6), "{summary}");
}

#[test]
fn mounts_that_came_and_went_leave_nothing_in_the_next_snapshot() {
    let Some(bench) = bench_with(&[]) else { return };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir source/many; echo 1 >source/file");
    let newest = bench.repository().join("snapshots");
    let sizes: Vec<u64> = (0..6)
        .map(|_| {
            bench.sh(
                "for i in $(seq 40); do mkdir -p source/many/$i; mount -t tmpfs tmpfs source/many/$i; done",
            );
            bench.ok(&["backup", "source"]);
            bench.sh("for i in $(seq 40); do umount source/many/$i; done");
            let objects = std::fs::read_dir(&newest).unwrap().flatten();
            let objects = objects.map(|object| object.metadata().unwrap());
            let newest = objects.max_by_key(|object| object.modified().unwrap());
            newest.unwrap().len()
        })
        .collect();
    // Twice as many as there are at a time: those of before are known for one night.
    assert!(sizes[5] <= sizes[1] + sizes[1] / 4, "{sizes:?}");
    let after = bench.ok(&["backup", "source", "--json"]).summary();
    assert_eq!(after["files"], 1, "{after}");
}

#[test]
fn mounted_snapshots_are_not_backed_up_into_what_they_show() {
    let Some(bench) = bench_with(&["fusermount3"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir source/mnt; echo 1 >source/file");
    bench.ok(&["backup", "source"]);
    bench.sh(&format!(
        "{} mount source/mnt >/dev/null 2>&1 &
         until mountpoint -q source/mnt; do sleep 0.05; done; disown",
        binary().display()
    ));
    let ran = bench.ok(&["backup", "source", "--json"]);
    assert_eq!(ran.summary()["files"], 1, "{ran}");
    let told = bench.ok(&["backup", "source"]);
    assert!(told.err.contains("source/mnt"), "{told}");
    bench.sh("fusermount3 -u source/mnt");
}

#[test]
fn what_leads_to_a_file_system_is_looked_at_though_nothing_changed_in_it() {
    let Some(bench) = bench_with(&["mkfs.ext4", "setfattr"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "mkdir -p top/mid; truncate -s 64M image; mkfs.ext4 -q image; mount -o loop image top/mid
         echo 1 >top/mid/f; sync; sleep 2.1",
    );
    let backup = || bench.ok(&["backup", "--scan", "inode", "top/mid"]);
    (0..2).for_each(|_| _ = backup());
    let row = || {
        let address = format!("latest:{}", bench.path("").display());
        let rows = bench
            .ok(&["ls", "--json", address.trim_end_matches('/')])
            .objects();
        rows.into_iter().find(|row| {
            row["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/top"))
        })
    };
    for change in [
        "chmod 700 top",
        "chown 1234:4321 top",
        "setfattr -n user.a -v b top",
    ] {
        let before = row().expect("a row of top");
        bench.sh(change);
        std::thread::sleep(std::time::Duration::from_millis(100));
        backup();
        assert_ne!(row().expect("a row of top"), before, "{change}");
    }
}

#[test]
fn a_directory_that_is_marked_since_yesterday_is_told_once() {
    let bench = Bench::new();
    bench.sh("mkdir source/d; echo 1 >source/d/f; echo 1 >source/g");
    let backup = || bench.run(&["backup", "source", "--exclude-if-present", "NOT"]);
    assert_eq!(backup().code, 0);
    bench.sh("touch source/d/NOT");
    let told = backup();
    assert_eq!(told.code, 3, "{told}");
    assert!(told.err.contains("source/d"), "{told}");
    let again = backup();
    assert_eq!(again.code, 0, "{again}");
}

/// Sets 32 counters all over a file, one after the other, again and again: at every moment each is
/// what the one before is, or one less.
pub(super) const COUNTING: &str = "
import mmap, os, struct, sys, time
path, how, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, 'wb') as file:
    file.truncate(size)
fd = os.open(path, os.O_RDWR)
os.pwrite(fd, b'\\1' * size, 0)
step = size // 32
memory = mmap.mmap(fd, size)
round = 0
while True:
    round += 1
    if how == 'again':
        # Nobody has it open for long.
        os.close(fd)
        memory = None
        time.sleep(0.002)
        fd = os.open(path, os.O_RDWR)
    for at in range(0, size, step):
        number = struct.pack('<Q', round)
        if how == 'map':
            memory[at:at + 8] = number
        else:
            os.pwrite(fd, number, at)
    if round == 3:
        print('begun', flush=True)
";

/// Whether the counters are those of one moment.
pub(super) fn are_of_one_moment(bytes: &[u8]) -> bool {
    let step = bytes.len() / 32;
    let counters: Vec<u64> = (0..32)
        .map(|at| u64::from_le_bytes(bytes[at * step..at * step + 8].try_into().unwrap()))
        .collect();
    let steps: Vec<u64> = counters
        .windows(2)
        .map(|pair| pair[0].wrapping_sub(pair[1]))
        .collect();
    steps.iter().all(|step| *step <= 1) && steps.iter().sum::<u64>() <= 1
}

#[test]
fn a_file_that_is_written_all_the_time_is_of_one_moment_or_named() {
    let Some(bench) = bench_with(&["mkfs.ext4", "python3"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh("mkdir fine coarse memory
         truncate -s 128M a; mkfs.ext4 -q a; mount -o loop a fine
         truncate -s 128M b; mkfs.ext4 -q -I 128 b; mount -o loop b coarse
         mount -t tmpfs tmpfs memory");
    let cases = [
        ("fine", "map", "walk"),
        ("fine", "map", "inode"),
        ("fine", "write", "walk"),
        ("coarse", "write", "walk"),
        ("coarse", "map", "inode"),
        ("coarse", "again", "walk"),
        ("coarse", "again", "inode"),
        ("memory", "map", "walk"),
    ];
    for (place, how, scan) in cases {
        for size in [64 << 10, 8 << 20_u32] {
            let path = bench.path(place).join("counted");
            let size = size.to_string();
            let words = [path.as_os_str(), how.as_ref(), size.as_ref()];
            let writer = Beside::start(COUNTING, &words);
            let ran = bench.run(&["backup", "--scan", scan, place]);
            drop(writer);
            let address = format!("latest:{}", path.display());
            let mut dump = bench.command();
            let dumped = dump.args(["dump", &address]).output().unwrap().stdout;
            let is_named = ran.code == 3 && ran.err.contains("counted");
            assert!(
                is_named || ran.code == 0 && are_of_one_moment(&dumped),
                "{place} {how} {scan} {size}: {ran}"
            );
        }
    }
}

/// Who has a lease is asked to give it back, and does.
#[test]
fn a_file_under_a_lease_is_read() {
    let Some(bench) = bench_with(&["python3"]) else {
        return;
    };
    bench.write("source/leased", "content");
    let holder = "
import fcntl, os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
def give_back(number, frame):
    time.sleep(0.3)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
signal.signal(signal.SIGIO, give_back)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
time.sleep(60)
";
    let _holder = Beside::start(holder, &[bench.path("source/leased").as_os_str()]);
    let ran = bench.run(&["backup", "source"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(
        bench.ok(&["dump", &bench.address("/leased")]).text(),
        "content"
    );
}

/// Another machine that shares the device writes there every few seconds.
#[test]
fn a_file_system_that_another_machine_has_mounted_is_not_read_from_its_device() {
    let Some(bench) = bench_with(&["mkfs.ext4", "dumpe2fs"]) else {
        return;
    };
    bench.sh("truncate -s 64M image; mkfs.ext4 -q -b 4096 -O mmp image
         dumpe2fs -h image 2>/dev/null | sed -n 's/^MMP block number: *//p' >block");
    assert_eq!(bench.run(&["backup", "--scan", "inode", "image"]).code, 0);
    let beating = "
import struct, sys, time
path, block, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sequence = 1
with open(path, 'r+b') as image:
    while True:
        image.seek(block * size + 4)
        image.write(struct.pack('<I', sequence))
        image.flush()
        if sequence == 1:
            print('begun', flush=True)
        sequence += 1
        time.sleep(0.2)
";
    let block = std::fs::read_to_string(bench.path("block")).unwrap();
    let image = bench.path("image");
    let words = [image.as_os_str(), block.trim().as_ref(), "4096".as_ref()];
    let _machine = Beside::start(beating, &words);
    let ran = bench.run(&["backup", "--scan", "inode", "image"]);
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("another machine"), "{ran}");
    // Nor is it overwritten.
    let target = ["restore", "latest", "--to-ext4", "image", "--force"];
    let ran = bench.run(&target);
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("another machine"), "{ran}");
}

/// A directory that comes to the path of a source meanwhile is not the one that was read.
#[test]
fn a_source_that_is_replaced_while_it_is_backed_up_is_told() {
    let bench = Bench::new();
    bench.sh("head -c 300000000 /dev/urandom >source/large; mkdir other; echo 1 >other/f");
    bench.ok(&["init"]);
    let mut command = bench.command();
    let command = command.args(["backup", "source", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    await_first_pack(&bench, &mut child);
    bench.sh(&format!(
        "kill -STOP {pid}; mv source gone; mv other source; kill -CONT {pid}",
        pid = child.id()
    ));
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 3, "{ran}");
    let told = ran.of_type("problem");
    assert!(
        told.iter().any(|problem| problem["action"] == "back up"),
        "{ran}"
    );
}
