//! What should not have been backed up, taken out by the command line alone.

use crate::bench::Bench;

const SECRET: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";

#[test]
fn a_key_that_was_backed_up_is_taken_out_of_all_snapshots() {
    let bench = Bench::new();
    bench.write("source/ssh/id_rsa", SECRET);
    bench.sh("cd source; for i in $(seq 50); do echo $i >ssh/file$i; echo $i >other$i; done");
    bench.backup();
    bench.write("source/ssh/config", "Host *");
    bench.backup();
    let key = bench.path("source/ssh/id_rsa");
    let key = key.to_str().unwrap();

    let dry = bench
        .ok(&["rewrite", "--exclude", key, "--dry-run", "--json"])
        .summary();
    assert_eq!(
        (&dry["rewritten"], &dry["dry_run"]),
        (&2.into(), &true.into())
    );
    assert_eq!(
        bench
            .ok(&["find", "id_rsa", "--json"])
            .of_type("entry")
            .len(),
        2
    );

    let ran = bench.ok(&["rewrite", "--exclude", key, "--forget", "--json"]);
    for one in ran.of_type("rewritten") {
        assert_eq!(
            (&one["files"], &one["is_old_removed"]),
            (&1.into(), &true.into()),
            "{one}"
        );
    }
    let next = ran.summary()["next"].to_string();
    assert!(
        next.contains("prune --repack-below 100") && next.contains("--exclude"),
        "{next}"
    );
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(snapshots.len(), 2);
    assert_eq!(bench.run(&["find", "id_rsa"]).code, 1);
    bench.ok(&["prune", "--repack-below", "100", "--grace", "0"]);
    bench.ok(&["check", "--read-data"]);

    // What stayed is whole, and a restore that deletes leaves the key alone, as if the backup had
    // left it out.
    bench.sh("cp -a source out; echo more >out/ssh/gone");
    bench.ok(&["restore", &bench.address(""), "--target", "out", "--delete"]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
    let again = bench.ok(&["rewrite", "--exclude", key, "--json"]).summary();
    assert_eq!(
        (&again["rewritten"], &again["unchanged"]),
        (&0.into(), &2.into())
    );
    assert_eq!(again["next"], serde_json::json!([]));
}

#[test]
fn what_an_image_holds_is_named_and_not_changed() {
    let bench = Bench::new();
    bench.sh("mkdir d; echo secret >d/id_rsa; echo other >d/other
        truncate -s 16M disk.img; mke2fs -q -t ext4 -d d disk.img");
    bench.ok(&["backup", "--image", "disk.img"]);
    let ran = bench.run(&["rewrite", "--exclude", "id_rsa", "--forget", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.of_type("rewritten")[0]["fate"], "holds-images");
    assert_eq!(ran.summary()["held_by"].as_array().unwrap().len(), 1);
    assert_eq!(
        bench
            .ok(&["find", "id_rsa", "--json"])
            .of_type("entry")
            .len(),
        1
    );
}

#[test]
fn patterns_that_match_a_source_or_nothing_are_refused() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.backup();
    let source = bench.source.to_str().unwrap().to_owned();
    let refused = bench.run(&["rewrite", "--exclude", &source, "--forget"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("forget the snapshot"), "{refused}");
    for words in [
        &["rewrite"][..],
        &["rewrite", "--exclude", "~/x"],
        &["rewrite", "--exclude", ""],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        1
    );
}
