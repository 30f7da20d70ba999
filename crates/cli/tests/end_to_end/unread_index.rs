//! An index object that is damaged where it is kept: whoever misses what it names says so, and what
//! mends it.

use crate::bench::{Bench, Ran};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn index_objects(bench: &Bench) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(bench.repository().join("index")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Two snapshots with a catalog each, and the name of the damaged object of the second one's index.
fn damaged() -> (Bench, String) {
    let bench = Bench::new();
    bench.write("source/one", "1".repeat(10_000));
    bench.backup();
    let before = index_objects(&bench);
    bench.write("source/two", "2".repeat(10_000));
    bench.ok(&["backup", "source", "--force"]);
    let after = index_objects(&bench);
    let new: Vec<_> = after.difference(&before).collect();
    let [new] = new[..] else {
        panic!("one index object was to come: {new:?}")
    };
    let mut bytes = fs::read(new).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(new, bytes).unwrap();
    let name = new.file_name().unwrap().to_str().unwrap().to_owned();
    (bench, format!("index/{name}"))
}

fn names_it(ran: &Ran, name: &str) {
    let said = format!("{}{}", ran.err, ran.text());
    for part in [name, "damaged", "bale repair index", "bale check"] {
        assert!(said.contains(part), "{part}: {ran}");
    }
}

#[test]
fn a_backup_names_an_index_object_that_it_cannot_read_and_ends_with_3_until_it_is_mended() {
    let (bench, name) = damaged();
    let first = bench.run(&["backup", "source", "--json"]);
    assert_eq!(first.code, 3, "{first}");
    assert!(first.summary()["snapshot"].is_string(), "{first}");
    assert_eq!(first.summary()["problems"], 1, "{first}");
    let problems = first.of_type("problem");
    assert_eq!(problems.len(), 1, "{first}");
    assert_eq!(problems[0]["path"], "", "{first}");
    names_it(&first, &name);
    // What is stored now does not rely on it.
    let listed = bench.ok(&["ls", &bench.address("")]);
    assert!(!listed.err.contains("index"), "{listed}");
    for words in [
        &["backup", "source"][..],
        &["backup", "source", "--dry-run"],
    ] {
        let again = bench.run(words);
        assert_eq!(again.code, 3, "{again}");
        names_it(&again, &name);
    }
    bench.ok(&["repair", "index"]);
    bench.ok(&["backup", "source"]);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn whoever_looks_names_it_only_where_something_is_missing_for_it() {
    let (bench, name) = damaged();
    let ids: Vec<String> = bench
        .ok(&["snapshots", "--json"])
        .of_type("snapshot")
        .iter()
        .map(|snapshot| snapshot["id"].as_str().unwrap().to_owned())
        .collect();
    let (whole, lacking) = (&ids[0], &ids[1]);
    let one = bench.ok(&["ls", &bench.address_in(whole, "")]);
    assert!(!one.err.contains("index"), "{one}");
    for words in [
        &["ls", lacking][..],
        &["stats", &bench.address_in(lacking, "/one")],
        &["diff", whole, lacking],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        names_it(&ran, &name);
    }
    // What is about all snapshots goes on with the others.
    for words in [&["find", "one"][..], &["find", "one", "--json"]] {
        let found = bench.run(words);
        assert_eq!(found.code, 3, "{found}");
        assert!(found.text().contains("/source/one"), "{found}");
        names_it(&found, &name);
        let said = format!("{}{}", found.err, found.text());
        assert!(said.contains(&lacking[..8]), "{found}");
    }
    let below = format!("{}/nowhere", bench.source.display());
    let nothing = bench.run(&["find", "one", "--below", &below]);
    assert_eq!(nothing.code, 3, "{nothing}");
    let counted = bench.run(&["stats"]);
    assert_eq!(counted.code, 3, "{counted}");
    names_it(&counted, &name);
    bench.ok(&["repair", "index"]);
    for words in [&["find", "one"][..], &["stats"], &["ls", lacking]] {
        bench.ok(words);
    }
}
