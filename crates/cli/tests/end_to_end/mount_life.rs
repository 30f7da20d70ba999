//! From `mount` to its end: which snapshots are shown, who may look, what goes wrong underneath,
//! and how it is unmounted.

use crate::bench::{Bench, is_root};
use crate::mounted::{MountedBench, can_mount};
use crate::serving;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

fn names(dir: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

fn with_one_file() -> Bench {
    let bench = Bench::new();
    bench.write("source/file", "content\n");
    bench.backup();
    bench
}

#[test]
fn snapshots_are_found_by_time_by_id_and_by_host_and_new_ones_show_up() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    bench.ok(&[
        "backup",
        "source",
        "--host",
        "other/host",
        "--tag",
        "weekly",
    ]);
    let mounted = MountedBench::start(&bench, &[]);
    let dir = |name: &str| names(&mounted.dir.join(name));
    assert_eq!(names(&mounted.dir).len(), 4);
    assert_eq!((dir("snapshots").len(), dir("ids").len()), (2, 2));
    assert!(dir("hosts").contains(&OsString::from("other_host")));
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let newest = listed.last().unwrap();
    let short = newest["short_id"].as_str().unwrap();
    let by_id = fs::canonicalize(mounted.dir.join("ids").join(short)).unwrap();
    let latest = || fs::canonicalize(mounted.dir.join("latest")).unwrap();
    assert_eq!(by_id, latest());
    let of_host = fs::canonicalize(mounted.dir.join("hosts/other_host/latest")).unwrap();
    assert_eq!(of_host, latest());
    assert_eq!(of_host.parent(), Some(&*mounted.dir.join("snapshots")));
    // A second one within the same second has a name of its own, too.
    bench.write("source/file", "changed\n");
    bench.backup();
    mounted.until("the new one is not shown", || dir("snapshots").len() == 3);
    mounted.until("latest is the old one", || latest() != by_id);
    let file = mounted.latest().join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "changed\n");
    bench.ok(&["forget", short]);
    mounted.until("the forgotten one is shown", || {
        dir("snapshots").len() == 2
            && !dir("ids").contains(&OsString::from(short))
            && !dir("hosts").contains(&OsString::from("other_host"))
    });
    mounted.end();
}

#[test]
fn options_and_ids_choose_which_snapshots_are_shown() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    bench.ok(&["backup", "source", "--host", "web1", "--tag", "weekly"]);
    bench.ok(&["backup", "source", "--host", "web2"]);
    let shown = |words: &[&str]| {
        let mounted = MountedBench::start(&bench, words);
        let count = names(&mounted.dir.join("snapshots")).len();
        mounted.end();
        count
    };
    assert_eq!(shown(&[]), 3);
    assert_eq!(shown(&["--host", "web1", "--host", "web2"]), 2);
    assert_eq!(shown(&["--tag", "weekly"]), 1);
    assert_eq!(shown(&["latest"]), 1);
    let mounted = MountedBench::start(&bench, &["latest"]);
    let before = names(&mounted.dir.join("snapshots"));
    bench.ok(&["backup", "source", "--host", "web3"]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(names(&mounted.dir.join("snapshots")), before);
    mounted.end();
    let ran = bench.run(&["mount", "mnt", "ffffffff"]);
    assert_eq!(ran.code, 1, "{ran}");
}

#[test]
fn every_signal_and_every_way_to_unmount_ends_it_well() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    for end in [
        "kill -INT $id",
        "kill -TERM $id",
        "kill -HUP $id",
        "umount $mnt",
        "fusermount3 -u $mnt",
    ] {
        let mut mounted = MountedBench::start(&bench, &[]);
        let latest = mounted.latest();
        mounted.sh(&format!("cat {}/file", latest.display()));
        mounted.sh(&format!("id={}\n{end}", mounted.id()));
        let (code, objects, err) = mounted.wait();
        assert_eq!(code, 0, "{end}: {objects:?} {err}");
        let types: Vec<_> = objects.iter().map(|object| &object["type"]).collect();
        assert_eq!(types, ["unmounted", "summary"], "{end}");
        assert!(!mounted.is_mounted(), "{end}");
    }
}

#[test]
fn one_that_is_in_use_says_so_and_goes_on_and_the_second_signal_unmounts_it_all_the_same() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    let mut mounted = MountedBench::start(&bench, &[]);
    let latest = mounted.latest();
    let open = fs::File::open(latest.join("file")).unwrap();
    mounted.signal("TERM");
    let note = mounted.next();
    assert_eq!(note["type"], "note", "{note}");
    assert!(note["message"].as_str().unwrap().contains("busy"), "{note}");
    assert!(mounted.is_mounted());
    assert_eq!(
        fs::read_to_string(latest.join("file")).unwrap(),
        "content\n"
    );
    mounted.signal("TERM");
    let note = mounted.next();
    assert!(
        note["message"].as_str().unwrap().contains("still reads"),
        "{note}"
    );
    assert!(!mounted.is_mounted());
    assert_eq!(std::io::read_to_string(&open).unwrap(), "content\n");
    drop(open);
    let (code, objects, err) = mounted.wait();
    assert_eq!(code, 0, "{objects:?} {err}");
}

#[test]
fn what_a_killed_one_leaves_is_named_with_what_to_do() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    let mut mounted = MountedBench::start(&bench, &[]);
    mounted.signal("KILL");
    mounted.wait();
    assert!(mounted.is_mounted());
    let ran = bench.run(&["mount", "mnt"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(
        ran.err.contains("left there by a program that is gone"),
        "{ran}"
    );
    bench.sh("umount -l mnt");
    MountedBench::start(&bench, &[]).end();
}

#[test]
fn where_nothing_can_be_mounted_it_says_why_and_what_to_do() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    bench.write("full/file", "x");
    for (dir, why) in [
        ("missing", "make it (mkdir)"),
        ("source/file", "no directory"),
        ("full", "not empty"),
        ("/proc", "mounted there already"),
    ] {
        let ran = bench.run(&["mount", dir]);
        assert_eq!(ran.code, 1, "{dir}: {ran}");
        assert!(ran.err.contains(why) && ran.err.contains(dir), "{ran}");
    }
    let mounted = MountedBench::start(&bench, &[]);
    let ran = bench.run(&["mount", "mnt"]);
    assert!(ran.err.contains("mounted there already"), "{ran}");
    mounted.end();
}

#[test]
fn nothing_can_be_written() {
    if !can_mount() {
        return;
    }
    let bench = with_one_file();
    let mounted = MountedBench::start(&bench, &[]);
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!(
        "for words in 'touch new' 'rm file' 'mkdir d' 'chmod 0 file' 'mv file other' 'ln file other' \
            'truncate -s 0 file' 'setfattr -n user.a -v b file'; do
            if (cd {latest}; $words 2> err); then exit 1; fi
        done 2>/dev/null
        for words in 'touch new' 'rm -r snapshots' 'rm latest'; do
            if (cd $mnt; $words 2>/dev/null); then exit 1; fi
        done
        cmp {latest}/file source/file"
    ));
    mounted.end();
}

#[test]
fn other_users_see_nothing_unless_they_are_let_in_and_then_what_modes_and_lists_let_them() {
    if !can_mount() || !is_root() {
        return;
    }
    let bench = Bench::new();
    bench.sh(
        "chmod 755 . ; cd source; for name in open closed listed masked; do echo text > $name; done
        chmod 644 open; chmod 600 closed listed; setfacl -m u:1234:r listed
        chmod 640 masked; chgrp 1234 masked; setfacl -m u:1234:- masked",
    );
    bench.backup();
    let as_other =
        |command: &str| format!("setpriv --reuid 1234 --regid 1234 --clear-groups {command}");
    let mounted = MountedBench::start(&bench, &[]);
    let ls = as_other("ls $mnt");
    mounted.sh(&format!("if {ls} 2>/dev/null; then exit 1; fi"));
    mounted.end();
    let mounted = MountedBench::start(&bench, &["--allow-other"]);
    let latest = mounted.latest();
    let cat = |name: &str| as_other(&format!("cat {}/{name}", latest.display()));
    mounted.sh(&format!(
        "{}; {}\nif {} 2>/dev/null; then exit 1; fi\nif {} 2>/dev/null; then exit 1; fi",
        cat("open"),
        cat("listed"),
        cat("closed"),
        cat("masked")
    ));
    mounted.end();
}

/// A byte in each pack that holds data.
const DAMAGE: &str = "find home/.local/share/bale/repository/packs -type f -size +700k > packs
    test -s packs; while read pack; do
        printf damaged! | dd of=$pack bs=1 seek=500000 conv=notrunc status=none
    done < packs";

#[test]
fn a_damaged_chunk_fails_the_reads_of_its_files_alone_and_is_named_once() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh("cd source; head -c 6000000 /dev/urandom > damaged; mkdir z
        for n in $(seq 50); do echo $n > z/$n; done");
    bench.backup();
    bench.sh("echo later > source/later");
    bench.backup();
    bench.sh(DAMAGE);
    let mut mounted = MountedBench::start(&bench, &[]);
    let latest = mounted.latest();
    mounted.sh(&format!(
        "cd {}; for again in 1 2 3; do
            if cat damaged > /dev/null 2> $mnt/../err; then exit 1; fi
        done; grep -q 'Input/output error' $mnt/../err; cat later; stat damaged; ls -l z",
        latest.display()
    ));
    mounted.signal("INT");
    let (code, objects, _) = mounted.wait();
    assert_eq!(code, 3, "{objects:?}");
    let problems = objects.iter().filter(|object| object["type"] == "problem");
    let problems: Vec<_> = problems.collect();
    assert_eq!(problems.len(), 1, "{objects:?}");
    let text = problems[0].to_string();
    assert!(
        text.contains("/source/damaged") && text.contains("bale check"),
        "{text}"
    );
}

#[test]
fn a_repository_that_goes_or_is_pruned_underneath_gives_errors_and_comes_back() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh("cd source; for n in $(seq 30); do head -c 900000 /dev/urandom > $n; done");
    bench.ok(&["backup", "source", "--pack-size", "4M"]);
    let mut mounted = MountedBench::start(&bench, &[]);
    let latest = fs::canonicalize(mounted.latest()).unwrap();
    let shown = latest.display();
    mounted.sh(&format!(
        "cmp {shown}/1 source/1; cd home/.local/share/bale/repository; mv packs snapshots .."
    ));
    // What was listed is known, and what is not in memory is an error at once.
    mounted.sh(&format!(
        "sleep 4; ls $mnt/snapshots | grep -q .
        if cat {shown}/* > /dev/null 2> err; then exit 1; fi; grep -q 'Input/output' err
        cd home/.local/share/bale; mv packs snapshots repository/
        cmp {shown}/29 ../../../../source/29"
    ));
    // Everything is replaced, and the packs go at once.
    bench.sh("rm source/*; echo small > source/small");
    bench.backup();
    bench.ok(&["forget", "--keep-last", "1", "--prune", "--grace", "0"]);
    bench.ok(&["prune", "--grace", "0"]);
    mounted.sh(&format!(
        "echo 3 > /proc/sys/vm/drop_caches
        if cat {shown}/* > /dev/null 2> err; then exit 1; fi; grep -q . err"
    ));
    let gone = latest
        .ancestors()
        .find(|dir| dir.parent() == Some(&mounted.dir.join("snapshots")));
    let gone = gone.unwrap().to_owned();
    mounted.until("the forgotten one is shown", || !gone.exists());
    // Of the pack that was read while it was away.
    let small = || fs::read_to_string(mounted.latest().join("small"));
    assert_eq!(small().unwrap(), "small\n");
    mounted.signal("INT");
    let (code, objects, err) = mounted.wait();
    assert_eq!(code, 3, "{objects:?} {err}");
}

#[test]
fn without_a_repository_or_a_snapshot_it_says_so_and_mounts_nothing_or_an_empty_tree() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    fs::create_dir(bench.path("mnt")).unwrap();
    let ran = bench.run(&["mount", "mnt", "-r", "nowhere"]);
    assert_eq!(ran.code, 10, "{ran}");
    bench.ok(&["init"]);
    let mounted = MountedBench::start(&bench, &[]);
    assert_eq!(names(&mounted.dir).len(), 3);
    assert!(!mounted.dir.join("latest").exists());
    bench.write("source/file", "first\n");
    bench.backup();
    mounted.until("there is no latest", || mounted.dir.join("latest").exists());
    mounted.end();
}

/// A program that is started from there keeps it busy, and its own files are mapped.
#[test]
fn a_program_runs_from_a_mount() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh("cp /bin/true source/program");
    bench.backup();
    let mounted = MountedBench::start(&bench, &[]);
    let program = mounted.latest().join("program");
    assert!(Command::new(program).status().unwrap().success());
    mounted.end();
}

/// Its reads fail once it was asked for long enough, and work again once it is back.
#[test]
fn a_server_that_goes_fails_reads_in_time_and_they_work_once_it_is_back() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.sh("cd source; for n in $(seq 20); do head -c 900000 /dev/urandom > $n; done");
    let served = bench.path("served");
    fs::create_dir(&served).unwrap();
    let words = ["--no-auth", served.to_str().unwrap()];
    let (mut server, address) = serving::start(&bench, &words);
    let repository = format!("rest:http://{address}/r/");
    bench.write("pw", "secret");
    let at = ["-p", "pw", "-r", &repository];
    bench.ok(&[&["init"], &at[..]].concat());
    bench.ok(&[&["backup", "source", "--pack-size", "4M"], &at[..]].concat());
    let quickly = ["--retry-for", "2s", "--idle-timeout", "2s"];
    let mut mounted = MountedBench::start(&bench, &[&at[..], &quickly].concat());
    let latest = mounted.latest();
    let latest = latest.display();
    mounted.sh(&format!("ls {latest} > listed; cmp {latest}/1 source/1"));
    server.kill();
    mounted.sh(&format!(
        "if cat {latest}/* > /dev/null 2> err; then exit 1; fi; grep -q 'Input/output' err
        ls {latest} | cmp - listed"
    ));
    let _back = serving::start_at(&bench, &address, &words);
    mounted.sh(&format!("diff -r {latest} source"));
    mounted.signal("INT");
    let (code, objects, err) = mounted.wait();
    assert_eq!(code, 3, "{objects:?} {err}");
}
