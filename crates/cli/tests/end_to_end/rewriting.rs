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

/// Whoever takes a secret out learns where else it is.
#[test]
fn other_names_of_what_is_excluded_are_named() {
    let bench = Bench::new();
    bench.write("source/ssh/id_rsa", SECRET);
    bench.sh(
        "mkdir other; cp source/ssh/id_rsa other/unchosen; cd source; ln ssh/id_rsa linked
        cp ssh/id_rsa copied; cp ssh/id_rsa also.pem; head -c 3000000 /dev/urandom > large
        cp large large-copied; echo else > else; touch empty ssh/empty",
    );
    bench.backup();
    bench.ok(&["backup", "other"]);
    let rewrite = |patterns: &[&str], more: &[&str]| {
        let patterns = patterns.iter().flat_map(|pattern| ["--exclude", pattern]);
        let source = bench.source.to_str().unwrap();
        let words = ["rewrite", "--path", source].into_iter().chain(patterns);
        let words: Vec<&str> = words.chain(more.iter().copied()).collect();
        bench.run(&words)
    };
    let names = |patterns: &[&str], code: i32, expected: &[(&str, bool)]| {
        let ran = rewrite(patterns, &["--dry-run", "--json"]);
        assert_eq!(ran.code, code, "{ran}");
        let named = ran.of_type("other_name");
        let mut named: Vec<_> = (named.iter())
            .map(|one| {
                let path = std::path::Path::new(one["path"].as_str().unwrap());
                let path = path.strip_prefix(bench.path("")).unwrap();
                (
                    path.to_str().unwrap().to_owned(),
                    one["is_same_file"] == true,
                )
            })
            .collect();
        named.sort();
        let expected = expected.iter().map(|(path, is)| ((*path).to_owned(), *is));
        assert_eq!(named, expected.collect::<Vec<_>>(), "{patterns:?}");
        let next = ran.summary()["next"].to_string();
        assert_eq!(next.contains("same content"), !named.is_empty(), "{next}");
    };
    let copies = [("other/unchosen", false), ("source/copied", false)];
    let linked = [("source/linked", true)];
    names(&["id_rsa", "*.pem"], 3, &[&copies[..], &linked].concat());
    names(&["id_rsa", "*.pem", "linked"], 0, &copies);
    names(&["large"], 0, &[("source/large-copied", false)]);
    names(&["else"], 0, &[]);
    names(&["ssh/empty"], 0, &[]);
    let quiet = rewrite(&["id_rsa", "*.pem"], &["--forget", "-q"]);
    assert_eq!(quiet.code, 3, "{quiet}");
    assert!(quiet.err.contains("source/linked stays"), "{quiet}");
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
