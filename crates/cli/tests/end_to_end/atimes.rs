//! Times of last access: stored only when they are asked for, given back by every kind of restore,
//! and no change of a file.

use crate::bench::{Bench, have, is_root, skipped};
use crate::mounted::{MountedBench, can_mount};
use serde_json::Value;

/// Can images of these file systems be made and mounted?
fn can_run(kinds: &[&str]) -> bool {
    let mkfs = kinds.iter().map(|kind| format!("mkfs.{kind}"));
    let missing: Vec<String> = mkfs.filter(|tool| !have(tool)).collect();
    if !is_root() || !missing.is_empty() {
        skipped(&format!("mounting needs root, and {missing:?}"));
        return false;
    }
    true
}

/// Mounts made here end with it.
struct Unmounting<'a>(&'a Bench);

impl Drop for Unmounting<'_> {
    fn drop(&mut self) {
        self.0
            .sh("findmnt -rno TARGET | grep -F \"$PWD/\" | sort -r | xargs -r umount -l");
    }
}

/// Before 1970, behind 2038, and to the nanosecond; of all kinds of entries.
const FILL: &str = "truncate -s 64M source.img; mkfs.ext4 -q -I 256 source.img
    mount -o loop,noatime source.img source; cd source; rmdir lost+found
    mkdir d; echo a >d/a; ln d/a d/also; echo b >'b b'; ln -s nowhere link; mkfifo pipe; : >empty
    head -c 3000000 /dev/urandom >large; echo late >late
    find . -exec touch -h -m -d '2001-02-03 04:05:06.7' {} +
    touch -a -d '1955-01-01 00:00:00.999999999' d/a; touch -a -d '2099-01-01 00:00:00.000000001' late
    touch -a -d '2010-01-01 01:01:01.123456789' 'b b' large
    touch -h -a -d '2011-01-01 01:01:01.5' link pipe empty
    touch -a -d '2012-12-12 12:12:12.25' d .";

/// All of a directory; mounted with noatime, so that to look is no access.
const LIST: &str = "find . -printf '%P %y %A@ %T@\\n' | LC_ALL=C sort";

fn assert_same(bench: &Bench, directory: &str) {
    assert_same_but(bench, directory, "");
}

fn assert_same_but(bench: &Bench, directory: &str, but: &str) {
    let list = |place: &str| format!("(cd {place}; {LIST} {but})");
    let (source, directory) = (list("source"), list(directory));
    bench.sh(&format!("diff <{source} <{directory} >&2"));
}

#[test]
fn times_of_last_access_come_back_by_every_kind_of_restore() {
    let kinds = ["ext4", "xfs", "btrfs"];
    if !can_run(&kinds) {
        return;
    }
    let bench = Bench::new();
    let _mounts = Unmounting(&bench);
    bench.sh(FILL);
    bench.ok(&["backup", "--with-atime", "source"]);
    for kind in kinds {
        bench.sh(&format!(
            "truncate -s 400M {kind}.img; mkfs.{kind} -q {kind}.img; mkdir {kind}
            mount -o loop,strictatime {kind}.img {kind}; mkdir {kind}/out"
        ));
        let out = format!("{kind}/out");
        let words = ["restore", &bench.address(""), "--verify", "--target", &out];
        bench.ok(&words);
        let only_looking = format!("mount -o remount,noatime {kind}");
        bench.sh(&only_looking);
        // To compare where a link leads is an access.
        assert_same_but(&bench, &out, "| grep -v '^link '");
        bench.sh(&format!("find {out} -exec touch -h -a {{}} +"));
        bench.ok(&[
            "restore",
            &bench.address(""),
            "--metadata-only",
            "--target",
            &out,
        ]);
        assert_same(&bench, &out);
    }
    bench.ok(&[
        "restore",
        &bench.address(""),
        "--verify",
        "--to-ext4",
        "new.img",
    ]);
    bench.sh("mkdir new; mount -o loop,ro,noatime new.img new; ls new | grep -q lost+found");
    bench.sh(&format!(
        "cmp <(cd source; {LIST} | tail -n +2) <(cd new; {LIST} | grep -v '^lost+found' | tail -n +2)"
    ));
    bench.ok(&["dump", &bench.address(""), "--target", "out.tar"]);
    let read = "import os, sys, tarfile
from decimal import Decimal
seen = 0
for member in tarfile.open('out.tar'):
    stat = os.lstat(os.path.join('source', member.name))
    text = member.pax_headers['atime']
    assert Decimal(text) == Decimal(stat.st_atime_ns).scaleb(-9), (member.name, text)
    seen += 1
assert seen >= 9, seen";
    if have("python3") {
        bench.write("read.py", read);
        bench.sh("python3 read.py");
    }
    if can_mount() {
        let mounted = MountedBench::start(&bench, &[]);
        let latest = mounted.latest();
        assert_same(&bench, latest.to_str().unwrap());
    }
}

/// Paths and times of all that a snapshot has at an address, of the repository that words name.
fn listed(bench: &Bench, address: &str, repository: &[&str]) -> Vec<(String, Option<String>)> {
    let words = [repository, &["ls", "-R", "--json", address]].concat();
    let entries = bench.ok(&words).of_type("entry");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let entries = entries.iter();
    entries
        .map(|entry| (text(&entry["path"]).unwrap(), text(&entry["atime"])))
        .collect()
}

#[test]
fn without_the_option_nothing_is_stored_and_with_it_a_read_file_is_no_changed_one() {
    if !can_run(&["ext4"]) {
        return;
    }
    let bench = Bench::new();
    let _mounts = Unmounting(&bench);
    bench.sh(FILL);
    bench.sh("mount -o remount,strictatime source; echo here >here.pw; echo far >far.pw");
    let (here, far) = (
        ["-r", "here", "-p", "here.pw"],
        ["-r", "far", "-p", "far.pw"],
    );
    let run = |words: &[&str]| bench.ok(&[&here[..], words].concat());
    run(&["init"]);
    let says_so = || {
        let snapshots = run(&["snapshots", "--json"]).of_type("snapshot");
        snapshots.last().unwrap()["atimes"].clone()
    };
    let all = || listed(&bench, &bench.address(""), &here);
    run(&["backup", "source"]);
    assert!(all().iter().all(|(_, atime)| atime.is_none()));
    assert_eq!(says_so(), false);
    let with = ["backup", "--with-atime", "source", "--json"];
    run(&with);
    assert!(
        all().iter().all(|(_, atime)| atime.is_some()),
        "{:?}",
        all()
    );
    assert_eq!(says_so(), true);
    // Others write in the directories above, meanwhile.
    let (old, new) = (
        format!("latest~1:{}", bench.source.display()),
        bench.address(""),
    );
    let diff = |more: &[&str]| run(&[&["diff", "--json", &old, &new][..], more].concat());
    let summary = diff(&["--metadata"]).summary();
    for name in ["added", "removed", "changed", "metadata"] {
        assert_eq!(summary[name], 0, "one has none: {summary}");
    }
    bench.sh("cat 'source/b b' source/d/also >/dev/null");
    let summary = run(&with).summary();
    for name in ["files_new", "files_changed", "bytes_read"] {
        assert_eq!(summary[name], 0, "{summary}");
    }
    assert!(diff(&[]).of_type("change").is_empty());
    let changes = diff(&["--metadata"]).of_type("change").into_iter();
    let mut paths: Vec<String> = changes
        .map(|change| {
            assert_eq!(change["change"], "U");
            let path = change["path"].as_str().unwrap();
            path[bench.source.as_os_str().len()..].to_owned()
        })
        .collect();
    // To read where a link leads is an access, and a directory may be listed by anybody.
    paths.retain(|path| !["", "/d", "/link"].contains(&&path[..]));
    assert_eq!(paths, ["/b b", "/d/a", "/d/also"]);
    // A copy has what was copied, and so has what something was taken out of.
    bench.ok(&[&far[..], &["init"]].concat());
    let from = [
        "--from-repo",
        "here",
        "--from-password-file",
        "here.pw",
        "latest",
    ];
    bench.ok(&[&far[..], &["copy"], &from].concat());
    let mut before = all();
    assert_eq!(listed(&bench, &bench.address(""), &far), before);
    run(&["rewrite", "--exclude", "late"]);
    before.retain(|(path, _)| !path.ends_with("/late"));
    assert_eq!(all(), before);
}

/// How an image of a file system is made and mounted; `$o` is an option of the mount.
const IMAGES: [(&str, &str, &str); 3] = [
    (
        "ext4",
        "mkfs.ext4 -q disk.raw",
        "mount -o loop,$o disk.raw at",
    ),
    (
        "xfs",
        "mkfs.xfs -q disk.raw",
        "mount -o loop,$o disk.raw at",
    ),
    (
        "ntfs",
        "mkntfs -q -F -f disk.raw 2>/dev/null",
        "ntfs-3g -o $o disk.raw at",
    ),
];

/// Images whose blocks are stored, and the files in them.
#[test]
fn files_in_images_have_times_of_last_access_once_somebody_asks() {
    if !can_run(&["ext4", "xfs", "ntfs"]) || !have("ntfs-3g") {
        return skipped("ntfs-3g");
    }
    for (kind, make, mount) in IMAGES {
        let bench = Bench::new();
        let _mounts = Unmounting(&bench);
        // NTFS counts in units of 100 ns.
        bench.sh(&format!(
            "truncate -s 400M disk.raw; {make}; mkdir at; o=noatime; {mount}
            mkdir at/d; echo a >at/d/a; echo b >at/b
            touch -a -d '2009-08-07 06:05:04.123456700' at/d/a; umount at"
        ));
        let backup = |words: &[&str]| {
            let words = [&["backup", "--image", "disk.raw", "--json"][..], words].concat();
            bench.ok(&words).summary()
        };
        let time = |path: &str| {
            let path = format!("/disk{path}");
            let all = listed(&bench, &format!("latest:{path}"), &[]);
            let found = all.into_iter().find(|(found, _)| *found == path);
            found.unwrap().1
        };
        backup(&[]);
        assert_eq!(time("/d/a"), None, "{kind}");
        // No block of the image changed.
        backup(&["--with-atime"]);
        let first = Some("2009-08-07T06:05:04.1234567Z".to_owned());
        assert_eq!(time("/d/a"), first, "{kind}");
        let stamping = match kind {
            "ntfs" => "atime",
            _ => "strictatime",
        };
        bench.sh(&format!(
            "o={stamping}; {mount}; cat at/d/a >/dev/null; umount at"
        ));
        backup(&["--with-atime"]);
        let second = time("/d/a");
        assert!(second > first, "{kind}: {second:?}");
        backup(&[]);
        assert_eq!(time("/d/a"), None, "{kind}");
    }
}
