//! Files of NTFS in images: they come back as ntfs-3g shows them.

use crate::bench::{Bench, binary, have, is_root, skipped};
use crate::tree::assert_same;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Shell functions of the scripts here: `disk` makes a disk of a partition with NTFS, `mounted`
/// runs something with it mounted at `at`, and `seen` copies what it shows then.
const FUNCTIONS: &str = r#"
    # A device that was given back may be somebody else's by then.
    # It is given back once the server of a mount, which ends after `umount`, has closed it.
    release() {
        local device=$l n
        losetup -d $l; l=
        for n in $(seq 300); do losetup $device 2>/dev/null | grep -q disk.raw || break; sleep 0.1; done
    }
    detach() { umount at to 2>/dev/null || true; losetup -d $l $k 2>/dev/null || true; }
    l=; k=; mib=240; type=type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7
    trap detach EXIT; mkdir -p at to
    attach() { l=$(losetup --show -f -o 1MiB --sizelimit ${mib}MiB disk.raw); }
    disk() {
        truncate -s $((mib + 2))M disk.raw
        printf "label: gpt\nstart=2048, size=$((mib * 2048)), $type\n" | sfdisk -q disk.raw
        attach; mkntfs -q -f "$@" $l; release
    }
    options=streams_interface=xattr,compression
    mounted() { attach; ntfs-3g -o $options $l at; "$@"; umount at; release; }
    seen() {
        attach; ntfs-3g -o ro,$options $l at; rm -rf seen; cp -a at seen; umount at; release
    }
    numbers() { (cd at; find . -printf '%i %P\0') > numbers; }
    flags() { setfattr -h -n system.ntfs_attrib_be -v 0x$1 "$2"; }
    fill() {
        mkdir -p at/home/deep/er "at/Ordner äöü"; : > at/empty; echo short > at/home/short
        for i in $(seq 400); do head -c $((i * 37)) /dev/urandom > at/home/small$i; done
        head -c 5000123 /dev/urandom > at/home/large; head -c 3000000 /dev/zero > at/home/zeros
        truncate -s 9000000 at/home/sparse
        printf x | dd of=at/home/sparse bs=1 seek=5000000 conv=notrunc status=none
        ln at/home/large at/home/deep/hard; ln at/home/short at/home/deep/er/shorter
        ln -s ../short at/home/deep/soft; ln -s "$(printf 'long/%.0s' $(seq 90))" at/home/deep/long
        mkfifo at/home/deep/fifo; mknod at/home/deep/device b 7 77
        printf 'name' > "at/Ordner äöü/Größe 😀, $(printf 'x%.0s' $(seq 120))"
        printf 'name' > 'at/Ordner äöü/ "quoted" <odd>'$'\n''*?|\ name '
        for i in $(seq 60); do ln at/home/small7 "at/home/deep/a name, number $i of sixty"; done
        touch -d '2001-02-03 04:05:06.7891234' at/home/small5
        touch -d '1969-07-20 20:17' at/home/small6
        setfattr -n user.colour -v blue at/home/large; setfattr -n user.colour -v red at/home/deep
        printf 'with a short name' > at/home/with-a-long.name
        setfattr -n system.ntfs_dos_name -v 'WITHAL~1.NAM' at/home/with-a-long.name
        mkdir at/packed; flags 00000800 at/packed
        for i in $(seq 3000); do echo "line $((i % 97)) of some text"; done > at/packed/text
        head -c 2500000 /dev/zero > at/packed/zeros; head -c 300000 /dev/urandom > at/packed/random
        cat at/packed/text at/packed/random at/packed/zeros at/packed/text > at/packed/mixed
        echo tiny > at/packed/tiny
        flags 00000021 at/home/small9; flags 00000006 at/home/small10
    }
    fill_more() {
        mkdir at/many; for i in $(seq 3000); do echo $i > at/many/$i; done
    }
    # In many pieces, each cluster beside one of another file.
    pieces() {
        for i in $(seq 600); do
            for f in one two; do
                head -c 4096 /dev/urandom |
                    dd of=at/$f bs=4096 seek=$i conv=notrunc,fsync status=none
            done
        done
    }
"#;

pub fn has_all() -> bool {
    let programs = [
        "losetup", "sfdisk", "mkntfs", "ntfs-3g", "setfattr", "mknod",
    ];
    let can_mount = Path::new("/dev/fuse").exists();
    let has = is_root() && can_mount && programs.iter().all(|program| have(program));
    if !has {
        skipped("NTFS needs root, FUSE, losetup, sfdisk, mkntfs, ntfs-3g, setfattr, mknod");
    }
    has
}

pub fn script(bench: &Bench, script: &str) {
    bench.sh(&format!(
        "bale={}\n{FUNCTIONS}\n{script}",
        binary().display()
    ));
}

/// The view is what was seen mounted. What NTFS alone has is lost on another file system, which is
/// said.
fn assert_view(bench: &Bench) {
    bench.sh("rm -rf back");
    let restored = bench.run(&["restore", "latest:/p1", "--target", "back"]);
    assert_eq!(restored.code, 3, "{restored}");
    assert!(restored.err.contains("system.ntfs_acl"), "{restored}");
    bench.sh("chmod --reference=seen back; touch -r seen back");
    assert_same(&bench.path("seen"), &bench.path("back"));
}

pub fn view(bench: &Bench) -> Value {
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    listed.last().unwrap()["images"][0]["views"][0].clone()
}

#[test]
fn files_of_ntfs_come_back_as_ntfs_3g_shows_them() {
    if !has_all() {
        return;
    }
    // With clusters of less than a record, records are torn between two runs of the MFT.
    for clusters in ["4096", "512"] {
        let bench = Bench::new();
        script(
            &bench,
            &format!("disk -c {clusters}; mounted fill; mounted pieces; mounted fill_more; seen"),
        );
        let whole = bench.ok(&["backup", "--image", "disk.raw", "--json"]);
        let whole = whole.summary();
        let (stored, read) = (&whole["bytes_stored"], &whole["bytes_read"]);
        assert!(stored.as_u64().unwrap() < read.as_u64().unwrap() + (4 << 20));
        assert_view(&bench);
        let names = bench.ok(&["ls", "latest:/p1", "--recursive"]).text();
        assert!(names.contains("/p1/home/with-a-long.name\n"), "{names}");
        assert!(!names.contains("WITHAL") && !names.contains("$MFT"));
        script(
            &bench,
            "$bale dump latest:/p1/home/large | cmp - seen/home/large
            $bale dump latest:/p1/packed/mixed | cmp - seen/packed/mixed
            $bale find small77 | grep -qx /p1/home/small77; $bale check --read-data",
        );
        let view = view(&bench);
        assert_eq!(
            (&view["kind"], &view["problems"]),
            (&"ntfs".into(), &0.into())
        );
        assert_eq!(view["uuid"].as_str().unwrap().len(), 16);
        assert_eq!(view["densest"][0]["path"], "/p1/many");
        assert_eq!(view["densest"][0]["children"], 3000);
    }
}

#[test]
fn attributes_that_ntfs_alone_has_come_back_on_ntfs() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    // A restore leaves them there, and compares them.
    script(
        &bench,
        "disk; mounted fill; $bale backup --image disk.raw
        truncate -s 200M other.raw; k=$(losetup --show -f other.raw); mkntfs -q -f $k
        attach; ntfs-3g -o ro,$options $l at; ntfs-3g -o $options $k to
        $bale restore latest:/p1/home --target to/back --verify
        umount to; ntfs-3g -o $options $k to
        attributes() { (cd $1; find . | sort | while IFS= read -r f; do echo \"$f\"
            for n in acl attrib; do
                getfattr -h --only-values -n system.ntfs_$n \"$f\" | md5sum; done
            getfattr -h -d -- \"$f\"; done); }
        attributes at/home > one; attributes to/back > other; cmp one other; grep -q blue one",
    );
}

#[test]
fn files_of_ntfs_in_later_snapshots_are_what_is_there() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, "disk; mounted fill; seen");
    bench.ok(&["backup", "--image", "disk.raw"]);
    // Nothing changed: no row is written.
    let again = bench.ok(&["backup", "--image", "disk.raw", "--json"]);
    let again = again.summary();
    assert!(again["bytes_stored"].as_u64().unwrap() < 20_000, "{again}");
    assert_eq!(view(&bench)["densest"][0]["path"], "/p1/home");
    script(
        &bench,
        "change() {
            rm -r at/home/deep at/packed/random; echo other > at/home/short
            head -c 77777 /dev/urandom > at/new; mv at/home/large at/moved
            truncate -s 4000000 at/moved; rm at/home/small1*; mkdir at/home/deep
            for i in $(seq 500); do echo $i > at/home/deep/$i; done; echo x >> at/packed/mixed
        }
        mounted change; seen",
    );
    bench.ok(&["backup", "--image", "disk.raw"]);
    assert_view(&bench);
    assert_eq!(view(&bench)["densest"][0]["path"], "/p1/home/deep");
    let differences = bench.ok(&["diff", "latest~1:/p1", "latest:/p1"]).text();
    for name in ["/moved", "/new", "/home/deep/499", "/packed/random"] {
        assert!(differences.contains(name), "{name} {differences}");
    }
    script(
        &bench,
        "$bale forget latest~1 latest~2 --prune; $bale check --read-data",
    );
    assert_view(&bench);
}

#[test]
fn the_densest_directories_of_an_image_are_said_and_counted_below_a_path() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, "disk; mounted fill; $bale backup --image disk.raw");
    let text = bench.ok(&["stats", "latest"]).text();
    assert!(
        text.contains("/p1: ntfs, ") && text.contains(" in /p1/home\n"),
        "{text}"
    );
    let whole = bench.ok(&["stats", "latest", "--json"]).summary();
    let recorded = &whole["images"][0]["views"][0]["densest"];
    // The directory above is in none of those below it.
    let below = bench.ok(&["stats", "latest:/p1", "--json"]).summary();
    assert_eq!(recorded, &below["densest"]);
    let home = bench
        .ok(&["stats", "latest:/p1/home/deep", "--json"])
        .summary();
    let densest = home["densest"].as_array().unwrap();
    assert_eq!(densest.len(), 2, "{densest:?}");
    assert_eq!(densest[1]["path"], "/p1/home/deep/er");
    assert_eq!(densest[1]["children"], 1);
}

#[test]
fn the_second_reader_restores_files_of_ntfs() {
    let modules = "import argon2, blake3, cryptography, pyarrow, zstandard";
    let python = Command::new("python3").args(["-c", modules]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return skipped("python3 with argon2-cffi, blake3, cryptography, pyarrow, zstandard");
    }
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    bench.write("password", "a password\n");
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    script(
        &bench,
        &format!(
            "disk; mounted fill; seen; words='-r repository -p password'
            $bale init $words > /dev/null; $bale backup --image disk.raw $words
            truncate -s 200M other.raw; k=$(losetup --show -f other.raw); mkntfs -q -f $k
            ntfs-3g -o $options $k to
            python3 {} repository --password-file password restore latest to/out p1
            cp -a to/out/p1 back; chmod --reference=seen back; touch -r seen back",
            reader.display()
        ),
    );
    assert_same(&bench.path("seen"), &bench.path("back"));
}
