//! Rules, reasons, and space that comes back.

use crate::bench::Bench;

fn stored_bytes(bench: &Bench) -> u64 {
    let stats = bench.ok(&["stats", "--json"]).summary();
    stats["bytes_stored"].as_u64().unwrap()
}

#[test]
fn forgetting_with_prune_gives_space_back() {
    let bench = Bench::new();
    bench.sh("head -c 4000000 /dev/urandom > source/gone; echo stays > source/stays");
    bench.backup();
    bench.sh("rm source/gone; echo more > source/more");
    bench.backup();
    let before = stored_bytes(&bench);

    let dry = bench.ok(&["forget", "--keep-last", "1", "--dry-run", "--json"]);
    let decisions = dry.of_type("decision");
    assert_eq!(decisions.len(), 2);
    let kept: Vec<_> = decisions
        .iter()
        .filter(|decision| decision["keep"] == true)
        .collect();
    assert_eq!(kept.len(), 1);
    assert!(!kept[0]["reasons"].as_array().unwrap().is_empty(), "{dry}");
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        2
    );

    bench.ok(&["forget", "--keep-last", "1", "--prune", "--grace", "0"]);
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        1
    );
    let after = stored_bytes(&bench);
    assert!(after + 3_900_000 < before, "{before} to {after}");
    bench.ok(&["check", "--read-data"]);
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
}

#[test]
fn what_was_deleted_is_given_back_also_among_many_files_and_bit_by_bit() {
    let bench = Bench::new();
    bench.sh("cd source; for i in $(seq 500); do echo $i >small$i; done
        for i in 1 2 3 4 5; do head -c 600000 /dev/urandom >large$i; done
        head -c 2000000 /dev/urandom >stays");
    bench.backup();
    for number in 1..=5 {
        bench.sh(&format!("rm source/large{number}"));
        bench.backup();
    }
    bench.ok(&["forget", "--keep-last", "1", "--prune", "--grace", "0"]);
    let after = stored_bytes(&bench);
    // Of 3 MB that were deleted: the last file waits for company, and a pack that is mostly used
    // stays as it is.
    assert!(after < 4_000_000, "{after}");
    bench.ok(&["check", "--read-data"]);
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
}

#[test]
fn prune_waits_for_the_grace_period_and_a_dry_run_changes_nothing() {
    let bench = Bench::new();
    bench.sh("head -c 2000000 /dev/urandom > source/gone");
    bench.backup();
    bench.sh("rm source/gone; echo new > source/new");
    bench.backup();
    bench.ok(&["forget", "latest~1"]);
    let before = stored_bytes(&bench);
    let plan = bench
        .ok(&["prune", "--dry-run", "--json", "--grace", "0"])
        .of_type("plan");
    assert_eq!(plan[0]["dry_run"], true);
    assert_eq!(stored_bytes(&bench), before);
    bench.ok(&["prune"]);
    assert!(stored_bytes(&bench) >= before, "condemned, not deleted");
    bench.ok(&["prune", "--grace", "0"]);
    assert!(stored_bytes(&bench) < before);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn tags_keep_and_rules_that_would_remove_everything_are_refused() {
    let bench = Bench::new();
    bench.write("source/f", "1");
    bench.ok(&["backup", "source", "--tag", "release,big"]);
    bench.backup();
    bench.backup();
    let refused = bench.run(&["forget", "--keep-tag", "typo"]);
    assert_eq!(refused.code, 1, "{refused}");
    let plan = bench.ok(&[
        "forget",
        "--keep-tag",
        "release",
        "--keep-daily",
        "1",
        "--json",
    ]);
    assert_eq!(plan.summary()["removed"], 1, "{plan}");
    assert_eq!(
        bench
            .ok(&["snapshots", "--json", "--tag", "release"])
            .of_type("snapshot")
            .len(),
        1
    );
    assert_eq!(bench.run(&["forget", "--keep-last", "many"]).code, 2);
}

/// Everything that was said is read before anything is done.
#[test]
fn a_forget_whose_prune_options_make_no_sense_removes_nothing() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        bench.sh(&format!("echo {name} > source/{name}"));
        bench.backup();
    }
    for more in [
        &["--prune", "--grace", "xyz"][..],
        &["--prune", "--repack-below", "150"],
        &["--grace", "24h"],
        &["--repack-below", "10"],
    ] {
        let words = [&["forget", "--keep-last", "1"], more].concat();
        assert_eq!(bench.run(&words).code, 2, "{words:?}");
        let left = bench.ok(&["snapshots", "--json"]).of_type("snapshot").len();
        assert_eq!(left, 2, "{words:?}");
    }
}

/// Rules go on with what can be read, say what cannot, and end with 3; its id removes it, and
/// prunes work again.
#[test]
fn a_damaged_snapshot_hinders_no_rule_and_goes_by_its_id() {
    let bench = Bench::new();
    let ids: Vec<String> = (0..3)
        .map(|number| {
            bench.sh(&format!("echo {number} > source/f{number}"));
            bench.backup()["snapshot"].as_str().unwrap().to_owned()
        })
        .collect();
    let object = bench.repository().join("snapshots").join(&ids[0]);
    std::fs::write(&object, b"not a snapshot").unwrap();
    // A prune would refuse: nothing goes before it is known that it does not.
    let all = bench.run(&["forget", "--keep-last", "1", "--prune"]);
    assert_eq!(all.code, 1, "{all}");
    assert!(all.to_string().contains("nothing is removed"), "{all}");
    assert!(bench.repository().join("snapshots").join(&ids[1]).exists());
    let forgot = bench.run(&["forget", "--keep-last", "1", "--json"]);
    assert_eq!(forgot.code, 3, "{forgot}");
    assert_eq!(forgot.summary()["removed"], 1, "{forgot}");
    let problems = forgot.of_type("problem");
    assert!(
        problems[0]["path"].as_str().unwrap().contains(&ids[0]),
        "{forgot}"
    );
    assert!(object.exists());
    let refused = bench.run(&["prune"]);
    let advice = format!("bale forget {}", ids[0]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.to_string().contains(&advice), "{refused}");
    bench.ok(&["forget", &ids[0][..12]]);
    assert!(!object.exists());
    bench.ok(&["prune", "--grace", "0"]);
    bench.ok(&["check", "--read-data"]);
}

/// Two summaries of one command have two types, and what is not given back yet is told with its
/// day.
#[test]
fn a_forget_with_prune_tells_of_both_and_of_what_comes_back_later() {
    let bench = Bench::new();
    bench.sh("head -c 2000000 /dev/urandom > source/gone");
    bench.backup();
    bench.sh("rm source/gone; echo new > source/new");
    bench.backup();
    let words = ["forget", "--keep-last", "1", "--prune", "--json"];
    let ran = bench.ok(&words);
    assert_eq!(ran.of_type("summary").len(), 1, "{ran}");
    assert_eq!(ran.of_type("summary")[0]["removed"], 1, "{ran}");
    assert_eq!(ran.of_type("prune_summary")[0]["packs_deleted"], 0, "{ran}");
    let packs = bench.repository().join("packs");
    let packs = packs.display();
    bench.sh(&format!(
        "find {packs} -type f -exec touch -d '3 days ago' {{}} +"
    ));
    let ran = bench.ok(&["prune"]);
    let text = "freed 0 B (0 packs); ";
    assert!(ran.err.contains(text), "{ran}");
    assert!(ran.err.contains("MiB, "), "{ran}");
    assert!(ran.err.contains(" with a prune after 20"), "{ran}");
}
