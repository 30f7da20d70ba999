//! A server that goes away in the middle of a backup, and comes back.

use crate::bench::{Bench, Ran};
use crate::serving::start;
use bale_testkit::scene::noise;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing that is waited for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Packs that a server has.
fn packs(served: &Path) -> usize {
    let directories = std::fs::read_dir(served.join("packs"));
    let directories = directories.into_iter().flatten().flatten();
    directories
        .filter_map(|directory| std::fs::read_dir(directory.path()).ok())
        .map(Iterator::count)
        .sum()
}

/// A backup that runs, once so many packs of it are on the server.
fn under_way(mut backup: Command, served: &Path, least: usize) -> Child {
    backup.stdout(Stdio::piped()).stderr(Stdio::piped());
    let backup = backup.spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while packs(served) < least {
        assert!(Instant::now() < end, "no pack comes to the server");
        std::thread::yield_now();
    }
    backup
}

#[test]
fn when_its_server_is_gone_a_backup_ends_with_what_it_has_and_the_next_goes_on() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    for number in 0..24 {
        bench.write(&format!("source/{number:02}"), noise(number, 1 << 20));
    }
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (mut server, address) = start(&bench, &["--no-auth", &served]);
    let command = |address: &str, words: &[&str]| {
        let repository = format!("rest:http://{address}/name");
        let mut command = bench.command();
        command.args(words);
        command.args(["-p", "pw", "-r", &repository, "--pack-size", "4M"]);
        command
    };
    let init = Ran::from(command(&address, &["init"]).output().unwrap());
    assert_eq!(init.code, 0, "{init}");

    // Slow enough to be met with some packs there and others not.
    let words = ["backup", "source", "--json", "--retry-for", "2s"];
    let mut slow = command(&address, &words);
    slow.args(["--limit-upload", "4M"]);
    let backup = under_way(slow, &bench.path("served/name"), 2);
    server.kill();
    let ran = Ran::from(backup.wait_with_output().unwrap());
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        ran.err.contains("the repository cannot be reached"),
        "{ran}"
    );
    // Within the first half minute no index names a pack.
    let kept = ["nothing of this run is kept there", "goes on from here"];
    assert!(kept.iter().any(|words| ran.err.contains(words)), "{ran}");
    let durable = packs(&bench.path("served/name"));

    let (_server, address) = start(&bench, &["--no-auth", &served]);
    let again = Ran::from(command(&address, &words).output().unwrap());
    assert_eq!(again.code, 0, "{again}");
    let summary = again.summary();
    assert!(summary["uploads"].as_u64().unwrap() > 0, "{summary}");
    let now = packs(&bench.path("served/name"));
    assert_eq!(now - durable, summary["uploads"].as_u64().unwrap() as usize);
    let check = Ran::from(
        command(&address, &["check", "--read-data"])
            .output()
            .unwrap(),
    );
    assert_eq!(check.code, 0, "{check}");

    // Each of them is in the record, and none more.
    let stats = Ran::from(
        command(&address, &["stats", "--transfers", "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(stats.code, 0, "{stats}");
    let uploads = summary["uploads"].as_u64().unwrap();
    assert_eq!(stats.summary()["transfers"], uploads, "{stats}");
    assert_eq!(
        stats.summary()["bytes"],
        summary["bytes_uploaded"],
        "{stats}"
    );
}

#[test]
fn a_backup_that_is_interrupted_on_a_slow_line_keeps_what_was_on_its_way() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    for number in 0..48 {
        bench.write(&format!("source/{number:02}"), noise(number, 1 << 20));
    }
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (_server, address) = start(&bench, &["--no-auth", &served]);
    let repository = format!("rest:http://{address}/name");
    let on_it = ["-p", "pw", "-r", &repository, "--pack-size", "4M"];
    bench.ok(&[&["init"], &on_it[..]].concat());
    let mut slow = bench.command();
    slow.args(["backup", "source", "--limit-upload", "4M"])
        .args(on_it);
    let backup = under_way(slow, &bench.path("served/name"), 1);
    bench.sh(&format!("kill -TERM {}", backup.id()));
    let ran = Ran::from(backup.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.err.contains("is stored first"), "{ran}");

    let listed = bench.ok(&[&["snapshots", "--json"], &on_it[..]].concat());
    let listed = listed.of_type("snapshot");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["partial"], true);
    // Who begins anew goes on from no record, and says so.
    let served = bench.path("served/name");
    let mut forced = bench.command();
    forced
        .args(["backup", "source", "--force", "--limit-upload", "4M"])
        .args(on_it);
    let backup = under_way(forced, &served, packs(&served) + 1);
    bench.sh(&format!("kill -TERM {}", backup.id()));
    let ran = Ran::from(backup.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.err.contains("stores only the rest"), "{ran}");

    let again = bench.ok(&[&["backup", "source", "--json"], &on_it[..]].concat());
    let summary = again.summary();
    let files = |name: &str| summary[name].as_u64().unwrap();
    assert!(files("files_unmodified") >= 4, "{summary}");
    assert_eq!(files("files_unmodified") + files("files_new"), 48);
    bench.ok(&[&["check", "--read-data"], &on_it[..]].concat());
}

#[test]
fn packs_that_do_not_fit_in_memory_are_refused_with_what_they_need() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (_server, address) = start(&bench, &["--no-auth", &served]);
    let repository = format!("rest:http://{address}/name");
    bench.ok(&["init", "-p", "pw", "-r", &repository]);
    bench.write("source/file", "content");
    let words = ["backup", "source", "-p", "pw", "-r", &repository];
    let with = |more: &[&str]| bench.run(&[&words[..], more].concat());
    let refused = with(&["--pack-size", "128M", "--memory", "256M"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.err.contains("need --memory "), "{refused}");
    for size in ["1M", "129M", "many"] {
        assert_eq!(with(&["--pack-size", size]).code, 2);
    }
    let small = with(&["--pack-size", "4M", "--memory", "128M"]);
    assert_eq!(small.code, 0, "{small}");
    // On a disk they cost no memory.
    bench.ok(&[
        "backup",
        "source",
        "--pack-size",
        "128M",
        "--memory",
        "128M",
    ]);
}
