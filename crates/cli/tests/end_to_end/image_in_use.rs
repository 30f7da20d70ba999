//! What no file system of a disk has in use is left out of its image: of linear volumes of LVM, and
//! of NTFS. Everything else comes back as it was, and the file systems whole.

use crate::bench::{Bench, binary, have, is_root, skipped};
use bale_fsimage::allocated::AllocatedRanges;
use serde_json::Value;
use std::fs::{self, File};
use std::ops::Range;
use std::sync::Arc;

const BLOCK: usize = 1 << 20;

/// Shell functions of the scripts here. `fill` makes a tree and leaves holes in it, `seen` copies
/// what is in a file system that is mounted, `lvm` looks at no other device and needs no device
/// mapper.
const FUNCTIONS: &str = r#"
    detach() { umount at 2>/dev/null || true; [ -z "$loop" ] || losetup -d "$loop"; loop=; }
    loop=; trap detach EXIT; mkdir -p at
    attach() { loop=$(losetup --show -f "$1"); }
    noise() { head -c "$2"M /dev/urandom > "$1"; }
    fill() {
        mkdir -p at/a/b
        for i in $(seq 120); do head -c $((i * 1777)) /dev/urandom > at/a/f$i; done
        head -c 9000123 /dev/urandom > at/a/b/large; echo short > at/short
        for i in $(seq 1 3 120); do rm at/a/f$i; done
        head -c 7000000 /dev/urandom > at/gone; sync; rm at/gone
    }
    seen() { rm -rf "$1"; cp -a at "$1"; }
    lvm() {
        LVM_SUPPRESS_FD_WARNINGS=1 command lvm "$1" --config "devices { filter=[\"a|^$loop\$|\",\"r|.*|\"] use_devicesfile=0 }
            global { activation=0 use_lvmlockd=0 use_lvmpolld=0 event_activation=0 } backup { backup=0 archive=0 }" "${@:2}" >/dev/null
    }
"#;

fn script(bench: &Bench, script: &str) {
    bench.sh(&format!(
        "bale={}\n{FUNCTIONS}\n{script}",
        binary().display()
    ));
}

fn can_run(programs: &[&str]) -> bool {
    let has = is_root() && programs.iter().all(|program| have(program));
    if !has {
        skipped(&format!("a disk in use needs root and {programs:?}"));
    }
    has
}

/// Backs up `disk.raw` and restores it to `out.raw`: each block is as it was, or named as left out,
/// zeros, and of no file system's use. How many were left out.
fn backed_up_and_back(bench: &Bench) -> usize {
    let done = bench.ok(&["backup", "--image", "disk.raw", "--json"]);
    bench.ok(&["restore", "latest:/disk.raw", "--target", "out.raw"]);
    bench.ok(&["check", "--read-data"]);
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let left_out = listed.last().unwrap()["images"][0]["left_out"].clone();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let runs = left_out.as_array().unwrap().iter();
    let runs: Vec<Range<usize>> = runs
        .map(|run| number(&run[0])..number(&run[0]) + number(&run[1]))
        .collect();
    let source = Arc::new(File::open(bench.path("disk.raw")).unwrap());
    let used: Vec<Range<u64>> = AllocatedRanges::of(source, None).collect();
    let (was, back) = (bench.path("disk.raw"), bench.path("out.raw"));
    let (was, back) = (fs::read(was).unwrap(), fs::read(back).unwrap());
    assert_eq!(was.len(), back.len());
    let mut zeros = 0;
    for (block, (was, back)) in was.chunks(BLOCK).zip(back.chunks(BLOCK)).enumerate() {
        if was == back {
            continue;
        }
        assert!(runs.iter().any(|run| run.contains(&block)), "{block}");
        assert!(back.iter().all(|byte| *byte == 0), "{block}");
        let bytes = (block * BLOCK) as u64..((block + 1) * BLOCK) as u64;
        let mut used = used.iter();
        let is_used = used.any(|used| used.start < bytes.end && bytes.start < used.end);
        assert!(!is_used, "{block} is in use");
        zeros += 1;
    }
    let read = number(&done.summary()["bytes_read"]);
    assert_eq!(read, was.len() - zeros * BLOCK);
    zeros
}

#[test]
fn of_linear_volumes_what_is_free_is_left_out_and_each_comes_back_whole() {
    if !can_run(&[
        "lvm",
        "losetup",
        "mkfs.ext4",
        "e2fsck",
        "mkfs.xfs",
        "xfs_repair",
    ]) {
        return;
    }
    let bench = Bench::new();
    // The volume `a` is in two runs with `b` between them; behind them is what no volume has.
    script(
        &bench,
        "noise disk.raw 648; attach disk.raw; group=bale-test-$$
        lvm pvcreate -ff -y $loop; lvm vgcreate $group $loop
        lvm lvcreate -an -Zn -Wn -n a -l 20 $group; lvm lvcreate -an -Zn -Wn -n b -l 80 $group
        lvm lvextend -l +20 $group/a; detach
        cat > move <<'END'
            # put or take the volumes: extents of 4 MiB from the first MiB on
            part() { dd if=$1 of=$2 bs=1M skip=$3 seek=$4 count=$5 conv=notrunc status=none; }
            case $1 in
                put) part a.raw disk.raw 0 1 80; part a.raw disk.raw 80 401 80
                    part b.raw disk.raw 0 81 320;;
                take) part out.raw a.out 1 0 80; part out.raw a.out 401 80 80
                    part out.raw b.out 81 0 320;;
            esac
END
        noise a.raw 160; mkfs.ext4 -q -F -E nodiscard a.raw
        attach a.raw; mount $loop at; fill; seen a.seen; detach
        noise b.raw 320; mkfs.xfs -q -f -K b.raw
        attach b.raw; mount $loop at; fill; seen b.seen; detach
        bash move put",
    );
    let left_out = backed_up_and_back(&bench);
    assert!(left_out > 300, "{left_out}");
    script(
        &bench,
        "bash move take; e2fsck -fn a.out >/dev/null 2>&1; xfs_repair -n b.out 2>/dev/null
        for volume in a b; do
            attach $volume.out; mount -o ro $loop at; diff -r --no-dereference at $volume.seen; detach
        done
        # What no volume has is no file system's to say.
        cmp -i 481M disk.raw out.raw
        $bale restore latest:/a --target a.back; diff -r --no-dereference a.back a.seen
        $bale restore latest:/b --target b.back; diff -r --no-dereference b.back b.seen",
    );
}

#[test]
fn of_an_ntfs_what_is_free_is_left_out_and_it_comes_back_whole() {
    if !can_run(&["sfdisk", "losetup", "mkfs.ntfs", "ntfs-3g", "ntfsfix"]) {
        return;
    }
    let bench = Bench::new();
    script(
        &bench,
        "noise disk.raw 202
        printf 'label: gpt\\nstart=2048, size=409600, type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7\\n' |
            sfdisk -q disk.raw
        noise p1.raw 200; mkfs.ntfs -q -F -f p1.raw; ntfs-3g p1.raw at; fill; seen seen; umount at
        dd if=p1.raw of=disk.raw bs=1M seek=1 conv=notrunc status=none",
    );
    let left_out = backed_up_and_back(&bench);
    assert!(left_out > 140, "{left_out}");
    script(
        &bench,
        "dd if=out.raw of=out.p1 bs=1M skip=1 count=200 status=none; ntfsfix -n out.p1 >/dev/null
        ntfs-3g -o ro out.p1 at; diff -r --no-dereference at seen",
    );
}
