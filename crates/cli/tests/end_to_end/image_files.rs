//! The files in images: directories beside them, which come back as those of the mounted file
//! systems are, without mounting anything.

use crate::bench::{Bench, binary, have, is_root, skipped};
use crate::tree::assert_same;
use serde_json::{Value, json};

/// Shell functions of the scripts here: `disk` makes a disk of two partitions with ext4 and XFS,
/// `mounted` runs something with both mounted at `at1` and `at2`.
const FUNCTIONS: &str = r#"
    detach() { umount at1 at2 2>/dev/null || true; losetup -d $l1 $l2 2>/dev/null || true; }
    attach() {
        l1=$(losetup --show -f -o 1MiB --sizelimit 100MiB disk.raw)
        l2=$(losetup --show -f -o 101MiB --sizelimit 320MiB disk.raw)
    }
    # Another test may have the device by then, so it is detached once.
    release() { losetup -d $l1 $l2; l1=; l2=; }
    l1=; l2=; trap detach EXIT; mkdir -p at1 at2
    disk() {
        truncate -s 424M disk.raw
        printf 'label: gpt\nstart=2048, size=204800\nstart=206848, size=655360\n' | sfdisk -q disk.raw
        attach; mkfs.ext4 -q $l1; mkfs.xfs -q -f $l2; release
    }
    mounted() { attach; mount $l1 at1; mount $l2 at2; "$@"; umount at1 at2; release; }
    fill() {
        for at in at1 at2; do
            mkdir -p $at/home/deep/er; printf '' > $at/empty; echo short > $at/home/short
            for i in $(seq 300); do head -c $((i * 37)) /dev/urandom > $at/home/small$i; done
            head -c 5000123 /dev/urandom > $at/home/large
            truncate -s 9000000 $at/home/sparse
            printf x | dd of=$at/home/sparse bs=1 seek=5000000 conv=notrunc status=none
            head -c 3000000 /dev/zero > $at/home/zeros
            fallocate -l 700000 $at/home/promised; printf y | dd of=$at/home/promised conv=notrunc status=none
            ln $at/home/short $at/home/deep/hard; ln -s ../short $at/home/deep/soft
            setfattr -n user.colour -v blue $at/home/large; mkfifo $at/home/deep/er/fifo
            printf 'name' > "$at/home/deep/a b"$'\n'c; chmod 4750 $at/home/small3; chown 7:8 $at/home/small4
            touch -d '2001-02-03 04:05:06.789' $at/home/small5
        done
        # In many pieces, each block beside one of another file.
        for i in $(seq 40); do
            for at in at1 at2; do
                for f in one two; do
                    head -c 4096 /dev/urandom | dd of=$at/$f bs=4096 seek=$i conv=notrunc,fsync status=none
                done
            done
        done
    }
    compare() { for n in 1 2; do rm -rf seen$n; cp -a at$n seen$n; done; }
"#;

fn has_all() -> bool {
    let programs = ["losetup", "sfdisk", "mkfs.ext4", "mkfs.xfs", "setfattr"];
    let has = is_root() && programs.iter().all(|program| have(program));
    if !has {
        skipped(
            "a disk with file systems needs root, losetup, sfdisk, mkfs.ext4, mkfs.xfs, setfattr",
        );
    }
    has
}

fn script(bench: &Bench, script: &str) {
    bench.sh(&format!(
        "bale={}\n{FUNCTIONS}\n{script}",
        binary().display()
    ));
}

/// Both views of a snapshot are what was seen mounted, and the image restores to these bytes.
fn assert_views(bench: &Bench, snapshot: &str) {
    for number in [1, 2] {
        let (from, to) = (format!("{snapshot}:/p{number}"), format!("back{number}"));
        bench.sh(&format!("rm -rf {to}"));
        bench.ok(&["restore", &from, "--target", &to, "--verify"]);
        bench.sh(&format!(
            "chmod --reference=seen{number} {to}; touch -r seen{number} {to}"
        ));
        assert_same(&bench.path(&format!("seen{number}")), &bench.path(&to));
    }
}

fn views(bench: &Bench) -> Vec<Value> {
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let last = listed.last().unwrap();
    last["images"][0]["views"].as_array().unwrap().clone()
}

/// Nobody knows what else was in a directory that files of an image are restored to.
fn assert_deleting_is_refused(bench: &Bench) {
    bench.write("full/of/others", "mine");
    for address in ["latest:/p1", "latest:/p1/home", "latest"] {
        let ran = bench.run(&["restore", address, "--target", "full", "--delete"]);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.err.contains("this snapshot is of images"), "{ran}");
    }
    bench.sh("test \"$(cat full/of/others)\" = mine; test \"$(ls full)\" = of");
}

#[test]
fn files_in_an_image_come_back_one_by_one_and_store_nothing_a_second_time() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, "disk; mounted fill; mounted compare");
    let whole = bench
        .ok(&["backup", "--image", "disk.raw", "--json"])
        .summary();
    let (stored, read) = (&whole["bytes_stored"], &whole["bytes_read"]);
    assert!(stored.as_u64().unwrap() < read.as_u64().unwrap() + (3 << 20));
    assert_views(&bench, "latest");
    // One file, a listing, a search; and a restore of all is the image and nothing else.
    let listed = bench.ok(&["ls", "latest:/p2/home/deep"]).text();
    assert!(listed.contains("/p2/home/deep/soft"), "{listed}");
    let found = bench.ok(&["find", "small77"]).text();
    assert!(
        found.contains("/p1/home/small77") && found.contains("/p2/home/small77"),
        "{found}"
    );
    script(
        &bench,
        "$bale dump latest:/p1/home/large | cmp - seen1/home/large
        $bale restore latest --target all/ --verify; test \"$(ls all)\" = disk.raw
        $bale dump latest:/ | tar t | grep -vq /p1
        $bale check --read-data; $bale diff latest:/p1 latest:/p1",
    );
    assert_deleting_is_refused(&bench);
    let views = views(&bench);
    assert_eq!(
        (&views[0]["path"], &views[1]["kind"]),
        (&"/p1".into(), &"xfs".into())
    );
    assert!(views[0]["files"].as_u64().unwrap() > 300);
    let words = ["backup", "--image", "disk.raw", "--json"];
    let alone = bench.ok(&[&words[..], &["--no-file-catalog"]].concat());
    assert_eq!(alone.summary()["images"][0]["views"], json!([]));
    assert_eq!(
        bench.ok(&["ls", "latest", "--recursive"]).text(),
        "/disk.raw\n"
    );
}

#[test]
fn views_of_later_snapshots_are_what_was_there_whatever_changed() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(&bench, "disk; mounted fill; mounted compare");
    bench.ok(&["backup", "--image", "disk.raw"]);
    // Nothing changed: no row is written.
    let again = bench
        .ok(&["backup", "--image", "disk.raw", "--json"])
        .summary();
    assert_eq!(again["files_unmodified"], 1);
    assert!(again["bytes_stored"].as_u64().unwrap() < 20_000, "{again}");
    // One file system changes, the other keeps its rows.
    script(
        &bench,
        "change() {
            rm -r at1/home/deep; echo other > at1/home/short; head -c 77777 /dev/urandom > at1/new
            mv at1/home/large at1/moved; truncate -s 4000000 at1/moved
        }
        mounted change; mounted compare",
    );
    bench.ok(&["backup", "--image", "disk.raw"]);
    assert_views(&bench, "latest");
    let differences = bench.ok(&["diff", "latest~1:/p1", "latest:/p1"]).text();
    assert!(
        differences.contains("moved") && differences.contains("new"),
        "{differences}"
    );
    // A file system that is gone, and one that is another.
    script(
        &bench,
        "attach; dd if=/dev/zero of=$l1 bs=1M count=99 status=none; mkfs.ext4 -q -F $l2; detach",
    );
    bench.ok(&["backup", "--image", "disk.raw"]);
    let listed = bench.ok(&["ls", "latest", "--recursive"]).text();
    assert_eq!(listed, "/disk.raw\n/p2\n/p2/lost+found\n");
    script(
        &bench,
        "$bale forget latest~1 latest~2 --prune; $bale check --read-data
        $bale restore latest:/disk.raw --target out.raw; cmp out.raw disk.raw",
    );
}

#[test]
fn an_image_that_is_in_use_is_read_whole_and_its_files_are_not_listed() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(
        &bench,
        "disk; mounted fill; attach; mount $l1 at1; rm at1/home/large; sync
        r=0; $bale backup --image disk.raw --json > out || r=$?; test $r = 3; cmp disk.raw disk.raw
        cp disk.raw whole.raw; umount at1; release",
    );
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let image = &listed[0]["images"][0];
    assert_eq!(image["how"], "fuzzy");
    assert_eq!(
        (&image["left_out"], &image["views"]),
        (&json!([]), &json!([]))
    );
    // What was deleted is in the image, since all of it was read; and not once it is unmounted.
    script(
        &bench,
        "$bale restore latest --target out.raw; cmp out.raw whole.raw
        $bale backup --image disk.raw; $bale ls latest:/p1/home > list; ! grep large list",
    );
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_ne!(listed[1]["images"][0]["left_out"], json!([]));
    // Everything is there for who asks for it.
    script(
        &bench,
        "$bale backup --image disk.raw --read-free; $bale restore latest --target all.raw
        cmp all.raw disk.raw",
    );
}

#[test]
fn files_in_a_copy_that_was_not_left_cleanly_are_what_the_kernel_makes_of_it() {
    if !has_all() {
        return;
    }
    let bench = Bench::new();
    script(
        &bench,
        "truncate -s 100M live.raw; mkfs.ext4 -q live.raw; l1=$(losetup --show -f live.raw)
        mount -o data=journal,commit=300 $l1 at1
        for i in $(seq 60); do head -c $((i * 777)) /dev/urandom > at1/f$i; done; sync
        for i in $(seq 1 2 60); do head -c 9000 /dev/urandom > at1/f$i; done; rm at1/f20
        mv at1/f30 at1/moved; sync -f at1/moved
        cp live.raw disk.raw; umount at1; release; cp disk.raw kernel.raw
        test \"$(dumpe2fs -h disk.raw 2>/dev/null | grep -c needs_recovery)\" = 1
        mount -o loop kernel.raw at1; cp -a at1 seen1; umount at1
        $bale backup --image disk.raw; $bale restore latest:/disk --target back1 --verify
        chmod --reference=seen1 back1; touch -r seen1 back1; $bale check --read-data
        $bale restore latest:/disk.raw --target out.raw; cp out.raw again.raw
        mount -o loop again.raw at1; cp -a at1 seen2; umount at1",
    );
    assert_same(&bench.path("seen1"), &bench.path("back1"));
    assert_same(&bench.path("seen1"), &bench.path("seen2"));
}

/// Files of a few blocks that lie beside each other, so that one that changes moves all to another
/// chunk, and one longer than a chunk.
#[test]
fn a_diff_of_files_in_images_names_those_that_changed_and_no_neighbour() {
    if !is_root() || !have("losetup") || !have("mkfs.ext4") {
        skipped("files in an image that changes need root, losetup and mkfs.ext4");
        return;
    }
    let bench = Bench::new();
    bench.sh(
        "truncate -s 64M disk.raw; mkfs.ext4 -q disk.raw; mkdir at; mount -o loop disk.raw at
        for i in $(seq 40); do head -c 3000 /dev/urandom > at/f$i; done
        head -c 3000000 /dev/urandom > at/long; umount at",
    );
    bench.ok(&["backup", "--image", "disk.raw"]);
    bench.sh("mount -o loop disk.raw at
        for f in f7 long; do head -c 2000 /dev/urandom | dd of=at/$f conv=notrunc status=none; done
        chmod 700 at/f9; umount at");
    bench.ok(&["backup", "--image", "disk.raw"]);
    let named = |words: &[&str]| {
        let words = [&["diff", "--json", "latest~1:/disk", "latest:/disk"], words].concat();
        let changes = bench.ok(&words).of_type("change").into_iter();
        let named = changes.map(|change| format!("{} {}", change["change"], change["path"]));
        named.collect::<Vec<_>>().join(", ").replace('"', "")
    };
    let changed = named(&[]);
    assert!(changed.contains("M /disk/f7, "), "{changed}");
    assert!(changed.contains("M /disk/long"), "{changed}");
    // That its mode changed and its content did not cannot be told apart where its block moved.
    let all = named(&["--metadata"]);
    assert!(all.contains(" /disk/f9"), "{all}");
    let names: Vec<_> = all.split(", ").map(|name| &name[2..]).collect();
    assert_eq!(names, ["/disk/f7", "/disk/f9", "/disk/long"]);
}
