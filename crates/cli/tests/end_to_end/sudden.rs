//! Files that somebody encrypts: the backup says so, and nothing that is older is deleted until a
//! person has decided.

use crate::bench::Bench;

/// Texts, none like another.
const TEXTS: &str =
    "for i in $(seq 300); do seq $((i * 5000)) $((i * 5000 + 3000)) > source/f$i; done";
/// A day's work.
const WORK: &str = "for i in 1 2 3; do echo \"$RANDOM\" >> source/f$((RANDOM % 300 + 1)); done";
/// The same names, lengths and numbers of files.
const NOISE: &str =
    "for f in source/*; do head -c $(stat -c %s $f) /dev/urandom > x; mv x $f; done";

/// A source of texts with a week of work.
fn working() -> Bench {
    let bench = Bench::new();
    bench.sh(TEXTS);
    bench.backup();
    for _ in 0..4 {
        bench.sh(WORK);
        bench.backup();
    }
    bench
}

/// The same, encrypted, with the id of that snapshot.
fn encrypted() -> (Bench, String) {
    let bench = working();
    bench.sh(NOISE);
    let ran = bench.run(&["backup", "source", "--json", "--log-file", "log"]);
    assert_eq!(ran.code, 3, "{ran}");
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    assert!(
        log.contains("exit code 3") && log.contains(" alarm=sudden_change"),
        "{log}"
    );
    let summary = ran.summary();
    let id = summary["snapshot"]
        .as_str()
        .expect("it is saved")
        .to_owned();
    let change = &summary["sudden_change"];
    assert_eq!(change["snapshot"], id.as_str());
    assert_eq!(
        (&change["files_replaced"], &change["files_before"]),
        (&300.into(), &300.into())
    );
    assert!(change["saved_before"].as_f64() > Some(0.3), "{change}");
    let problems = ran.of_type("problem");
    assert_eq!(problems.len(), 1, "{ran}");
    let text = problems[0]["message"].as_str().unwrap();
    assert!(text.contains("300 of 300 files (100 %"), "{text}");
    (bench, id)
}

fn snapshots(bench: &Bench) -> usize {
    bench.ok(&["snapshots", "--json"]).of_type("snapshot").len()
}

#[test]
fn an_encrypted_source_is_named_and_nothing_older_is_deleted_until_somebody_decides() {
    let (bench, id) = encrypted();
    // Life goes on, and the next backup is an ordinary one.
    bench.sh(WORK);
    bench.backup();
    assert_eq!(snapshots(&bench), 7);
    let status = bench.run(&["status", "--json"]);
    assert_eq!(status.code, 3, "{status}");
    let found = status.of_type("source")[0]["findings"].clone();
    assert_eq!(found[0]["kind"], "sudden-change");
    assert!(
        found[0]["message"].as_str().unwrap().contains(&id[..8]),
        "{found}"
    );
    let nagios = bench.run(&["status", "--nagios"]);
    assert_eq!(nagios.code, 2, "{nagios}");
    for words in [
        &["prune"][..],
        &["prune", "--grace", "0"],
        &["forget", "--keep-last", "1"],
        &["forget", "--keep-last", "1", "--prune"],
        &["forget", "latest", "--prune"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        for word in [&id[..8], "300 of 300 files", "--despite-sudden-change"] {
            assert!(ran.err.contains(word), "{word}: {words:?}: {ran}");
        }
        assert_eq!(snapshots(&bench), 7, "{words:?}");
        let dry = bench.run(&[words, &["--dry-run"]].concat());
        assert_eq!(dry.code, 0, "{words:?}: {dry}");
    }
    for word in ["00000000", "latest"] {
        let ran = bench.run(&["prune", "--despite-sudden-change", word]);
        assert_eq!(ran.code, 2, "{ran}");
    }
    // Rules that leave all that was before are no matter, nor is a snapshot that is named.
    bench.ok(&["forget", "--keep-last", "7"]);
    // Who lets go of it alone would keep what it left in the later one.
    let alone = bench.run(&["forget", &id]);
    assert_eq!(alone.code, 1, "{alone}");
    let later = bench.ok(&["snapshots", "--json"]).of_type("snapshot")[6]["short_id"].clone();
    assert!(alone.err.contains(later.as_str().unwrap()), "{alone}");
    bench.ok(&["forget", "latest"]);
    // Who lets go of it ends it.
    bench.ok(&["forget", &id]);
    bench.ok(&["prune"]);
    bench.ok(&["forget", "--keep-last", "2", "--prune"]);
    assert_eq!(snapshots(&bench), 2);
}

#[test]
fn a_change_that_is_confirmed_is_asked_about_no_more() {
    let (bench, id) = encrypted();
    // A dry run confirms nothing.
    bench.ok(&["prune", "--despite-sudden-change", &id, "--dry-run"]);
    assert_eq!(bench.run(&["prune"]).code, 1);
    bench.ok(&[
        "forget",
        "--keep-last",
        "1",
        "--despite-sudden-change",
        &id[..8],
        "-n",
    ]);
    assert_eq!(
        bench.run(&["forget", "--keep-last", "2", "--prune"]).code,
        1
    );
    bench.ok(&["prune", "--despite-sudden-change", &id[..8]]);
    bench.ok(&["prune"]);
    bench.ok(&["prune", "--despite-sudden-change", &id]);
    bench.ok(&["forget", "--keep-last", "2", "--prune"]);
    assert_eq!(snapshots(&bench), 2);
    bench.ok(&["status"]);
}

#[test]
fn neither_forced_backups_nor_films_alarm() {
    let bench = working();
    bench.sh(NOISE);
    let forced = bench
        .ok(&["backup", "source", "--force", "--json"])
        .summary();
    assert!(forced["sudden_change"].is_null(), "{forced}");
    bench.ok(&["prune"]);

    let films = Bench::new();
    films.sh(TEXTS);
    films.sh(NOISE);
    films.backup();
    for _ in 0..4 {
        films.sh(WORK);
        films.backup();
    }
    films.sh(NOISE);
    assert!(films.backup()["sudden_change"].is_null());
    films.ok(&["prune"]);
}

/// Its bytes are in the repository already, and say what they are all the same.
#[test]
fn an_encryption_that_is_backed_up_again_after_its_snapshot_went_is_named_again() {
    let (bench, id) = encrypted();
    bench.ok(&["forget", &id]);
    let again = bench.run(&["backup", "source", "--json"]);
    assert_eq!(again.code, 3, "{again}");
    assert_eq!(again.summary()["sudden_change"]["files_replaced"], 300);
    let rule = bench.run(&["forget", "--keep-last", "1"]);
    assert_eq!((rule.code, snapshots(&bench)), (1, 6), "{rule}");
}

/// As by a source that holds a copy, or is above this one.
#[test]
fn an_encryption_that_another_source_stored_first_is_named() {
    let bench = working();
    bench.sh(NOISE);
    bench.sh("cp -r source copy");
    bench.ok(&["backup", "copy", "--host", "other"]);
    let ran = bench.run(&["backup", "source", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.summary()["sudden_change"]["files_replaced"], 300);
}

/// Read again, and the same.
#[test]
fn files_that_were_touched_are_no_alarm() {
    let bench = working();
    bench.sh("touch source/*");
    bench.backup();
}
