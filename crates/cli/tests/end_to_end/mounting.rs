//! Snapshots as directories: `mount`. What is shown is what was backed up.

use crate::bench::{Bench, have, skipped};
use crate::mounted::{MountedBench, can_mount};
use crate::tree::assert_same;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// All kinds of files and names, attributes, access control lists, links, holes, times.
const EVERYTHING: &str = r#"
    cd source
    mkdir -p many deep/a/b/c/d empty links lists
    for number in $(seq 2000); do echo "content $number" > many/$number; done
    head -c 9000000 /dev/urandom > large; head -c 300000 /dev/urandom > middle; : > nothing
    truncate -s 60M holes; printf data | dd of=holes bs=1 seek=20000000 conv=notrunc status=none
    echo one > links/one; ln links/one links/two; ln links/one deep/a/b/three
    ln large links/large
    ln -s ../large links/soft; ln -s "$(printf 'x%.0s' $(seq 3000))" links/long
    mkfifo fifo; mknod null c 1 3; mknod disk b 259 70000
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    ln fifo links/fifo
    printf a > $'many/new\nline'; printf b > $'many/\xff\xfe\x80'; printf c > 'many/ blank '
    printf d > "many/$(printf 'n%.0s' $(seq 255))"; printf e > 'many/-rf'; printf f > 'many/\040'
    touch -d '1925-03-01 00:00:00.123456789' middle; touch -h -d '2038-01-19 03:14:08.5' links/soft
    chown 1234:5678 middle; chmod 7711 middle; chown -h 77:88 links/soft; chmod 1777 empty
    setfattr -n user.note -v text middle; setfattr -n user.note -v other many
    setfattr -n trusted.note -v hidden middle
    setfattr -n user.long -v "$(printf 'v%.0s' $(seq 3500))" large
    setfacl -m u:1234:r,g:55:rw lists; setfacl -d -m u:1234:rwx lists; setfacl -m u:99:x middle
"#;

fn with_everything() -> Bench {
    let bench = Bench::new();
    bench.sh(EVERYTHING);
    bench.backup();
    bench
}

#[test]
fn what_a_mount_shows_is_the_source() {
    if !can_mount() {
        return;
    }
    let bench = with_everything();
    let mounted = MountedBench::start(&bench, &[]);
    assert_same(&bench.source, &mounted.latest());
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!(
        r#"
        rsync -aHAX --dry-run --itemize-changes --checksum --delete source/ {latest}/ > changes
        if test -s changes; then cat changes; exit 1; fi
        diff -r --no-dereference -x fifo -x socket -x null -x disk source {latest}
        look() {{ (cd "$1"; find . ! -type d -printf '%P %y %m %U %G %n %T@ %l %s\n' | sort
            find . -type d -printf '%P %y %m %U %G %n %T@\n' | sort); }}
        look source > a; look {latest} > b; diff a b; test $(wc -l < a) -gt 2000
        # In both orders, without and with a name looked up before.
        ls -U {latest}/many | sort > a; ls -U source/many | sort > b; cmp a b
        getfacl -pR source | sed 's|^# file: .*||' > a
        getfacl -pR {latest} | sed 's|^# file: .*||' > b; sort a | cmp - <(sort b)
        "#
    ));
    mounted.end();
}

#[test]
fn the_tree_is_the_same_when_the_kernel_remembers_nothing() {
    if !can_mount() {
        return;
    }
    let bench = with_everything();
    let mounted = MountedBench::start(&bench, &[]);
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!(
        "find {latest} -type f -exec cat {{}} + | sha256sum > first
        echo 3 > /proc/sys/vm/drop_caches
        find {latest} -type f -exec cat {{}} + | sha256sum | cmp - first
        cd {latest}/deep/a/b/c; echo 3 > /proc/sys/vm/drop_caches; ls ../../../../many | wc -l
        cat ../three; pwd -P; ls -di . ../c | cut -d' ' -f 1 | sort -u | wc -l | grep -qx 1"
    ));
    assert_same(&bench.source, &mounted.latest());
    mounted.end();
}

#[test]
fn names_of_one_file_have_one_inode_and_files_of_two_snapshots_have_two() {
    if !can_mount() {
        return;
    }
    let bench = with_everything();
    bench.sh("echo more > source/more");
    bench.backup();
    let mounted = MountedBench::start(&bench, &[]);
    let source = bench.source.strip_prefix("/").unwrap();
    let mut inodes = BTreeSet::new();
    for snapshot in fs::read_dir(mounted.dir.join("snapshots")).unwrap() {
        let root = snapshot.unwrap().path().join(source);
        let inode = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().ino();
        let names = ["links/one", "links/two", "deep/a/b/three"];
        let of_names: BTreeSet<u64> = names.map(inode).into_iter().collect();
        assert_eq!(of_names.len(), 1);
        assert_eq!(inode("large"), inode("links/large"));
        assert_ne!(inode("links/one"), inode("large"));
        inodes.extend(of_names);
        inodes.insert(inode("large"));
        inodes.insert(inode("middle"));
    }
    assert_eq!(inodes.len(), 6);
    mounted.end();
}

#[test]
fn holes_of_a_large_file_are_holes_and_cost_nothing() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh(
        "cd source; truncate -s 2T huge; printf first | dd of=huge conv=notrunc status=none
        printf last | dd of=huge bs=1 seek=2000000000000 conv=notrunc status=none",
    );
    bench.backup();
    let mounted = MountedBench::start(&bench, &[]);
    let huge = mounted.latest().join("huge");
    let huge = huge.display();
    mounted.sh(&format!(
        r#"
        test $(stat -c %s {huge}) = 2199023255552; test $(stat -c %b {huge}) -lt 1000
        test "$(head -c 5 {huge})" = first
        dd if={huge} bs=4 skip=500000000000 count=1 status=none | grep -qx last
        python3 - {huge} source/huge <<'END'
import os, sys
def data(path):
    file, at, found = os.open(path, os.O_RDONLY), 0, []
    while True:
        try: at = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == 6, error
            return found
        end = os.lseek(file, at, os.SEEK_HOLE)
        found.append((at, end)); at = end
shown, real = map(data, sys.argv[1:])
assert len(shown) == 2 and len(real) == 2, (shown, real)
for (at, end), (real_at, real_end) in zip(shown, real):
    assert at <= real_at and end >= real_end and end - at < 1 << 23, (shown, real)
END
        cp --sparse=always {huge} copied; cmp -n 100000 copied source/huge
        test $(stat -c %b copied) -lt 100000
        "#
    ));
    mounted.end();
}

#[test]
fn sixteen_readers_at_once_each_read_what_is_there() {
    if !can_mount() {
        return;
    }
    let bench = with_everything();
    bench.sh("cd source; for copy in $(seq 6); do cp -r many more$copy; head -c 5000000 /dev/urandom > l$copy; done");
    bench.backup();
    let mounted = MountedBench::start(&bench, &["--memory", "128M"]);
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!(
        "sum() {{ (cd $1; find . -type f -print0 | sort -z | xargs -0 sha256sum -- | sha256sum); }}
        sum source > wanted
        for reader in $(seq 16); do sum {latest} > sum$reader & done; wait
        for reader in $(seq 16); do cmp wanted sum$reader; done"
    ));
    let peak = mounted.peak_kib();
    assert!(peak < 128 << 10, "{peak} KiB");
    mounted.end();
}

/// A directory of so many names: all of them come, each once, and memory does not grow with them.
fn list_many(names: u64, kib_max: u64) {
    let bench = Bench::new();
    bench.sh(&format!(
        "cd source; python3 -c 'import os
for number in range({names}): os.close(os.open(f\"name-{{number:08}}\", os.O_CREAT))'"
    ));
    bench.backup();
    let mounted = MountedBench::start(&bench, &[]);
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!(
        "test $(ls -U {latest} | wc -l) = {names}
        test $(find {latest} -mindepth 1 -printf '%f\\n' | sort -u | wc -l) = {names}
        echo 3 > /proc/sys/vm/drop_caches
        test $(find {latest} -mindepth 1 -printf '%i\\n' | sort -u | wc -l) = {names}"
    ));
    let peak = mounted.peak_kib();
    println!("{names} names: {peak} KiB");
    assert!(peak < kib_max, "{peak} KiB");
    mounted.end();
}

#[test]
fn a_directory_of_a_hundred_thousand_names_is_listed_in_bounded_memory() {
    if can_mount() {
        list_many(100_000, 160 << 10);
    }
}

#[test]
#[ignore = "takes half an hour and 4 GiB"]
fn a_directory_of_ten_million_names_is_listed_in_the_same_memory() {
    if can_mount() {
        list_many(10_000_000, 200 << 10);
    }
}

#[test]
fn whoever_lists_while_another_one_stops_half_way_gets_every_name() {
    if !can_mount() {
        return;
    }
    let bench = with_everything();
    let mounted = MountedBench::start(&bench, &[]);
    let many = mounted.latest().join("many");
    let wanted = fs::read_dir(bench.source.join("many")).unwrap().count();
    let mut halfway = fs::read_dir(&many).unwrap();
    let first = halfway.by_ref().take(700).count();
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(fs::read_dir(&many).unwrap());
    }
    for reader in readers {
        let names: BTreeSet<_> = reader.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), wanted);
    }
    assert_eq!(first + halfway.count(), wanted);
    mounted.end();
}

#[test]
fn images_and_the_files_in_them_are_files() {
    if !can_mount() {
        return;
    }
    if !["mkfs.ext4", "debugfs"].into_iter().all(have) {
        return skipped("mkfs.ext4, debugfs");
    }
    let bench = Bench::new();
    bench.sh(
        "mkdir in; head -c 3000000 /dev/urandom > in/large; echo small > in/small
        truncate -s 64M disk.raw; mkfs.ext4 -q -d in disk.raw",
    );
    bench.ok(&["backup", "--image", "disk.raw"]);
    let mounted = MountedBench::start(&bench, &[]);
    let listed = bench.ok(&["ls", "latest"]).text();
    mounted.sh(&format!(
        "ls $mnt/latest | sed 's|^|/|' | sort | cmp - <(sort <<< '{}')
        cmp disk.raw $mnt/latest/disk.raw
        dd if=$mnt/latest/disk.raw bs=1M skip=7 count=9 status=none | cmp - \
            <(dd if=disk.raw bs=1M skip=7 count=9 status=none)
        for file in large small; do cmp in/$file $mnt/latest/*/$file; done",
        listed.trim_end()
    ));
    mounted.end();
}

#[test]
fn one_file_of_a_large_snapshot_is_read_without_the_rest() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh("cd source; for part in $(seq 40); do head -c 3000000 /dev/urandom > $part; done");
    bench.backup();
    let mounted = MountedBench::start(&bench, &[]);
    let before = read_bytes(mounted.id());
    let latest = mounted.latest();
    mounted.sh(&format!("cmp {}/7 source/7", latest.display()));
    let read = read_bytes(mounted.id()) - before;
    assert!(read < 40_000_000, "{read} bytes");
    mounted.end();
}

/// What a process has read by calls of the kernel.
fn read_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}
