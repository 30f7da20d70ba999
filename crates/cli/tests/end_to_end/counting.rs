//! `stats --mode`: what restoring would bring, what is stored, and whose it is.

use crate::bench::Bench;
use serde_json::Value;

fn stats(bench: &Bench, words: &[&str]) -> Vec<Value> {
    bench.ok(&[&["stats", "--json"], words].concat()).objects()
}

fn summary(bench: &Bench, words: &[&str]) -> Value {
    stats(bench, words).pop().unwrap()
}

fn stored(value: &Value) -> u64 {
    value["bytes_stored"]
        .as_u64()
        .unwrap_or_else(|| panic!("{value}"))
}

/// Forgetting a snapshot frees what was unique to it: no more and no less.
#[test]
fn what_is_unique_to_a_snapshot_is_what_is_stored_no_more_without_it() {
    let bench = Bench::new();
    let snapshot = |script: &str| {
        bench.sh(script);
        bench.backup()["snapshot"].as_str().unwrap().to_owned()
    };
    // Small files, files of pieces, and one that two of three have.
    let random = |name: &str, bytes: &str| format!("head -c {bytes} /dev/urandom > {name};");
    let first = snapshot(&format!(
        "cd source; {} {} {}",
        random("stays", "200K"),
        random("goes", "5M"),
        random("large", "6M")
    ));
    let second = snapshot(&format!("cd source; rm goes; {}", random("comes", "100K")));
    let third = snapshot("cd source; rm comes; printf x | dd of=large conv=notrunc status=none");
    let each: Vec<u64> = [&first, &second, &third]
        .map(|id| stored(&summary(&bench, &[id, "--mode", "unique"])))
        .into();
    // Small files share a chunk, which stays as long as anybody uses one of them.
    assert!(each[0] > 5 << 20 && each[0] < 6 << 20, "{each:?}");
    let lines = stats(&bench, &["--mode", "unique"]);
    let listed: Vec<u64> = lines[..3].iter().map(stored).collect();
    assert_eq!(listed, each, "one by one and all at once");
    let together = stored(&lines[3]);
    let all = stored(&summary(&bench, &["--mode", "stored"]));
    assert_eq!(together, all, "without all of them nothing is needed");
    assert!(all > each.iter().sum(), "what several have is nobody's own");
    assert_eq!(
        stored(&summary(&bench, &["--mode", "raw-data"])),
        all,
        "restic's word"
    );
    // By what the first alone has, stored shrinks; and so with the next.
    for (id, unique) in [(&first, each[0]), (&second, 0)] {
        let before = stored(&summary(&bench, &["--mode", "stored"]));
        let own = stored(&summary(&bench, &[id, "--mode", "unique"]));
        assert!(unique == 0 || own == unique);
        bench.ok(&["forget", id]);
        let after = stored(&summary(&bench, &["--mode", "stored"]));
        assert_eq!(before - after, own);
    }
    // The only one that is left has all of it.
    let alone = summary(&bench, &[&third, "--mode", "unique"]);
    assert_eq!(
        stored(&alone),
        stored(&summary(&bench, &["--mode", "stored"]))
    );
    let text = bench.ok(&["stats", &third[..8], "--mode", "unique"]);
    assert!(
        text.text().starts_with("ID ") && text.err.contains("would free"),
        "{text}"
    );
}

#[test]
fn sources_are_counted_by_host_and_paths_and_what_they_share_is_nobodys_own() {
    let bench = Bench::new();
    bench.sh(
        "mkdir other; head -c 500K /dev/urandom > source/own; head -c 3M /dev/urandom > \
         source/both; cp source/both other/both; head -c 100K /dev/urandom > other/own",
    );
    bench.backup();
    bench.backup();
    bench.ok(&["backup", "other"]);
    bench.ok(&["backup", "other", "--host", "elsewhere"]);
    let lines = stats(&bench, &["--mode", "by-source"]);
    let sources: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "source")
        .collect();
    assert_eq!(sources.len(), 3, "{lines:?}");
    let of = |path: &str, host: &str| {
        let found = sources.iter().find(|source| {
            let ends = source["paths"][0].as_str().unwrap().ends_with(path);
            ends && (source["host"] == "elsewhere") == (host == "elsewhere")
        });
        (*found.unwrap()).clone()
    };
    let (first, other) = (of("/source", ""), of("/other", ""));
    assert_eq!(
        (&first["snapshots"], &other["snapshots"]),
        (&2.into(), &1.into())
    );
    let unique = |source: &Value| source["unique_bytes_stored"].as_u64().unwrap();
    assert!(
        unique(&first) > 500 << 10 && unique(&first) < 1 << 20,
        "{first}"
    );
    assert!(stored(&first) > 3 << 20, "{first}");
    // The same files under two hosts: nothing but its catalog is anybody's own.
    assert!(unique(&other) < 50 << 10, "{other}");
    assert_eq!(first["bytes"], (500 << 10) + (3 << 20));
    let summary = lines.last().unwrap();
    assert_eq!(
        (&summary["sources"], &summary["snapshots"]),
        (&3.into(), &4.into())
    );
    assert!(stored(summary) < stored(&first) + (300 << 10), "{summary}");
    let one = crate::counting::summary(&bench, &["--host", "elsewhere", "--mode", "stored"]);
    assert_eq!(
        (&one["snapshots"], stored(&one) > 3 << 20),
        (&1.into(), true)
    );
    let text = bench.ok(&["stats", "--mode", "by-source"]).text();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(
        bench
            .ok(&["stats", "--mode", "by-source", "-q"])
            .text()
            .lines()
            .count(),
        3
    );
}

#[test]
fn restore_size_is_the_sum_of_what_is_chosen_and_a_path_has_no_other_mode() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir d; echo one > d/one; echo two > two");
    bench.backup();
    bench.backup();
    let one = summary(&bench, &["latest", "--mode", "restore-size"]);
    assert_eq!((&one["files"], &one["bytes"]), (&2.into(), &8.into()));
    let both = summary(&bench, &["--mode", "restore-size"]);
    assert_eq!(
        (&both["snapshots"], &both["bytes"]),
        (&2.into(), &16.into())
    );
    // Options that choose were ignored without an address.
    let host = one_host(&bench);
    let chosen = summary(&bench, &["--host", &host]);
    assert_eq!(
        (&chosen["snapshots"], &chosen["files"]),
        (&2.into(), &4.into())
    );
    let below = summary(&bench, &[&bench.address("/d"), "--mode", "restore-size"]);
    assert_eq!(below["files"], 1);
    let wrong = bench.run(&["stats", &bench.address("/d"), "--mode", "stored"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("whole snapshots"),
        "{wrong}"
    );
    assert_eq!(bench.run(&["stats", "--mode", "blobs-per-file"]).code, 2);
}

fn one_host(bench: &Bench) -> String {
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    listed[0]["host"].as_str().unwrap().to_owned()
}
