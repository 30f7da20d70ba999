//! What is said: once, with the reason, and with what to do next.

use crate::bench::{Bench, Ran};
use std::path::PathBuf;

fn objects(bench: &Bench, area: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![bench.repository().join(area)];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

fn with_snapshot() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "cd source; for i in $(seq 9); do echo $i > f$i; done; head -c 900000 /dev/urandom > big",
    );
    bench.ok(&["backup", "source", "--host", "web1", "--tag", "daily"]);
    bench
}

fn flip_all(bench: &Bench, area: &str) {
    for path in objects(bench, area) {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.iter_mut().skip(60).for_each(|byte| *byte ^= 1);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &bytes).unwrap();
    }
}

fn says(ran: &Ran, text: &str) {
    assert!(ran.to_string().contains(text), "no word of {text:?}: {ran}");
}

/// No line says a name of the store, or a reason, twice.
fn says_nothing_twice(ran: &Ran, reasons: &[&str]) {
    for line in ran.to_string().lines() {
        // What is to be typed may name it again.
        let line = line.split("bale forget").next().unwrap();
        let words = line.split([' ', ',', ';']).filter(|word| word.len() > 60);
        for word in words.map(|word| word.trim_matches([':', '(', ')'])) {
            assert_eq!(line.matches(word).count(), 1, "{word} in {line}");
        }
        for reason in reasons {
            assert!(line.matches(reason).count() <= 1, "{reason} in {line}");
        }
    }
}

#[test]
fn a_reason_is_told_once() {
    let bench = with_snapshot();
    bench.write("file", "x");
    let ran = bench.run(&["restore", "latest", "--target", "file"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(ran.err.matches("it is no directory").count(), 1, "{ran}");
    flip_all(&bench, "packs");
    for words in [
        &["restore", "latest", "--target", "out"][..],
        &["dump", "latest:/"],
        &["ls", "latest"],
        &["catalog", "export", "latest", "out"],
        &["backup", "source"],
        &["prune"],
        &["check", "--read-data"],
    ] {
        let ran = bench.run(words);
        says_nothing_twice(&ran, &["authentication tag does not match", "is damaged"]);
    }
}

#[test]
fn what_is_damaged_is_named_once() {
    for area in ["snapshots", "index"] {
        let bench = with_snapshot();
        flip_all(&bench, area);
        for words in [
            &["check"][..],
            &["snapshots"],
            &["forget", "--keep-last", "1"],
            &["prune"],
            &["backup", "source"],
        ] {
            let ran = bench.run(words);
            says_nothing_twice(&ran, &["name contradicts"]);
        }
    }
}

#[test]
fn a_check_counts_what_a_lost_snapshot_holds() {
    let bench = with_snapshot();
    flip_all(&bench, "snapshots");
    let ran = bench.run(&["check"]);
    assert_eq!(ran.code, 4, "{ran}");
    says(
        &ran,
        "all of 1 snapshot, and 0 paths cannot be restored whole",
    );
}

#[test]
fn after_index_objects_were_lost_every_command_names_repair_index_and_nothing_is_called_lost_for_good()
 {
    let bench = with_snapshot();
    let entries = bench.ok(&["ls", "latest", "-R", "--json"]).of_type("entry");
    for path in objects(&bench, "index") {
        std::fs::remove_file(path).unwrap();
    }
    let check = bench.run(&["check"]);
    assert_eq!(check.code, 4, "{check}");
    let all = entries.len();
    says(
        &check,
        &format!("lost: {all} paths from here on").replace("lost: ", ""),
    );
    says(&check, &format!("{all} paths cannot be restored whole"));
    says(&check, "bale repair index");
    assert!(!check.err.contains("what they have not is lost"), "{check}");
    for words in [
        &["prune"][..],
        &["restore", "latest", "--target", "out"],
        &["ls", "latest"],
        &["dump", "latest:/"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        says(&ran, "bale repair index");
        assert!(!ran.err.contains("more lost"), "{ran}");
    }
    let dry = bench.ok(&["backup", "source", "--host", "web1", "--dry-run"]);
    says(&dry, "bale repair index");
    bench.ok(&["repair", "index"]);
    bench.ok(&["check"]);
}

#[test]
fn a_filter_that_matches_nothing_names_what_there_is() {
    let bench = with_snapshot();
    bench.ok(&["backup", "source", "--host", "web2"]);
    for (words, told) in [
        (
            &["--host", "TYPO"][..],
            "--host TYPO (hosts here: web1, web2)",
        ),
        (&["--tag", "dayly"], "--tag dayly (tags here: daily)"),
        (&["--path", "/x"], "--path /x (paths here: /"),
        (
            &["--host", "web2", "--tag", "daily"],
            "--host web2 --tag daily",
        ),
    ] {
        for command in [
            &["snapshots"][..],
            &["forget", "--keep-last", "1"],
            &["find", "f1"],
            &["ls", "latest"],
            &["restore", "latest", "-t", "out"],
        ] {
            let ran = bench.run(&[command, words].concat());
            says(&ran, &format!("no snapshot matches {told}"));
            assert_eq!(ran.err.matches("no snapshot matches").count(), 1, "{ran}");
            let is_list = matches!(command[0], "snapshots" | "forget");
            assert_eq!(ran.code, if is_list { 0 } else { 1 }, "{ran}");
        }
        let json = bench.ok(&[&["snapshots", "--json"], words].concat());
        assert_eq!(json.of_type("note").len(), 1, "{json}");
    }
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        2
    );
    let fine = bench.ok(&["snapshots", "--host", "web1"]);
    assert!(!fine.err.contains("no snapshot matches"), "{fine}");
}

#[test]
fn where_there_is_no_repository_it_is_told_what_was_looked_for_and_how_to_make_one() {
    let bench = Bench::new();
    let named = bench.run(&["snapshots", "-r", "/nowhere/at-all"]);
    let own = bench.run(&["snapshots"]);
    for (ran, place, advice) in [
        (
            &named,
            "/nowhere/at-all".to_owned(),
            "bale init -r /nowhere/at-all",
        ),
        (
            &own,
            bench.repository().display().to_string(),
            "BALE_REPOSITORY",
        ),
    ] {
        assert_eq!(ran.code, 10, "{ran}");
        says(ran, "\"config\"");
        says(ran, &place);
        says(ran, advice);
        assert_eq!(ran.err.matches("no repository at").count(), 1, "{ran}");
    }
}

#[test]
fn no_repository_is_made_over_packs_whose_config_is_lost() {
    let bench = with_snapshot();
    for name in ["config", "config.copy"] {
        std::fs::remove_file(bench.repository().join(name)).unwrap();
    }
    bench.write("pw", "secret");
    let place = bench.repository().display().to_string();
    for words in [
        &["snapshots"][..],
        &["init"],
        &["backup", "source", "--init"],
        &["init", "-r", &place, "-p", "pw"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 10, "{words:?}: {ran}");
        says(&ran, "its packs are there");
    }
    assert!(!bench.repository().join("config").exists());
}

#[test]
fn one_thing_is_not_told_in_the_plural() {
    let bench = Bench::new();
    bench.write("source/file", "x");
    bench.sh("mkdir tree");
    let made = bench.ok(&["gen", "-t", "tree", "--count", "1", "-d", "1"]);
    let backup = bench.ok(&["backup", "source/file"]);
    let exported = bench.ok(&["catalog", "export", "latest", "out"]);
    let scanned = bench.ok(&["scan", "source/file"]);
    for ran in [&made, &backup, &exported, &scanned] {
        let text = ran.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "1") {
            assert!(
                !pair[1].trim_end_matches(',').ends_with('s'),
                "{pair:?}: {ran}"
            );
        }
    }
}

#[test]
fn a_key_is_not_made_in_the_repository_that_it_opens() {
    let bench = Bench::new();
    bench.sh("mkdir real; ln -s real link");
    for (repository, key) in [
        ("new", "new/key"),
        ("new", "./x/../new/packs/key"),
        ("real/new", "link/new/key"),
        ("link/new", "real/new/key"),
    ] {
        let ran = bench.run(&["init", "-r", repository, "--new-key-file", key]);
        assert_eq!(ran.code, 2, "{repository}, {key}: {ran}");
        assert!(!bench.path(repository).exists(), "{repository}");
    }
    bench.ok(&["init", "-r", "new", "--new-key-file", "new.key"]);
    let open = ["-r", "new", "--key-file", "new.key", "key", "add"];
    let within = bench.run(&[&open[..], &["--new-key-file", "new/second"]].concat());
    assert_eq!(within.code, 2, "{within}");
    assert!(!bench.path("new/second").exists());
    bench.ok(&[&open[..], &["--new-key-file", "second"]].concat());
}

#[test]
fn words_that_make_no_sense_give_one_error_object_that_says_all() {
    let bench = Bench::new();
    for (words, told) in [
        (&["restore", "--json"][..], "--target <DIR>"),
        (&["restore", "x", "--json", "--bogus"], "'--bogus'"),
        (&["--json", "nonsense"], "'nonsense'"),
        (&["backup", "--scan", "zz", "--json"], "auto, walk, inode"),
        (&["forget", "--json"], "--keep"),
        (&["backup", "source", "-e", "a//b", "--json"], "//"),
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        let errors = ran.of_type("error");
        assert_eq!(errors.len(), 1, "{ran}");
        assert_eq!(errors[0]["code"], 2);
        let message = errors[0]["message"].as_str().unwrap();
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn damage_that_nothing_needs_is_not_told_below_no_damage_found() {
    let bench = with_snapshot();
    flip_all(&bench, "packs");
    bench.ok(&["forget", "latest"]);
    bench.sh("mkdir other; echo other > other/file");
    bench.ok(&["backup", "other"]);
    let ran = bench.run(&["check", "--read-data"]);
    says(
        &ran,
        "damaged or missing, of which no snapshot needs anything",
    );
    assert_eq!(ran.code, 0, "{ran}");
    assert!(!ran.err.contains("no damage found"), "{ran}");
    says(&ran, "nothing that a snapshot needs is lost or damaged");
}

#[test]
fn what_delete_leaves_is_told_only_if_there_is_something() {
    let bench = with_snapshot();
    bench.sh("mkdir target; echo x > target/mine");
    let address = bench.address("");
    let words = ["restore", &address, "--target", "target", "--delete"];
    let ran = bench.ok(&words);
    says(&ran, "deleted 1 that the snapshot does not have");
    assert!(!ran.err.contains("left 0"), "{ran}");
}

#[test]
fn with_v_a_backup_tells_what_is_new_changed_and_gone() {
    let bench = with_snapshot();
    bench.sh(
        "cd source; mkdir gone; echo g > gone/file; ln -s a link; echo same > same; mkdir emptied; \
         touch emptied/x",
    );
    bench.ok(&["backup", "source"]);
    bench.sh(
        "cd source; rm -r gone f1 emptied/x; echo changed > f2; echo n > new; mkdir dir; ln -sfn b \
         link; mkfifo fifo",
    );
    let expected = [
        ("+", "/dir"),
        ("+", "/fifo"),
        ("+", "/new"),
        ("-", "/emptied/x"),
        ("-", "/f1"),
        ("-", "/gone"),
        ("-", "/gone/file"),
        ("M", "/f2"),
        ("M", "/link"),
    ];
    let ran = bench.ok(&["backup", "source", "-v", "--dry-run"]);
    // In what it differs is the promise of another test.
    let without_why = |path: &str| match path.rsplit_once("  (") {
        Some((path, _)) => path.to_owned(),
        None => path.to_owned(),
    };
    let signs = ran.err.lines().filter_map(|line| line.split_once("  /"));
    let mut told: Vec<_> = signs
        .map(|(sign, path)| format!("{sign}  /{}", without_why(path)))
        .collect();
    told.sort();
    let source = bench.source.display();
    let line = |(sign, path): &(&str, &str)| format!("{sign}  {source}{path}");
    let mut lines: Vec<_> = expected.iter().map(line).collect();
    lines.sort();
    assert_eq!(told, lines);
    let json = bench.ok(&["backup", "source", "-v", "--json"]);
    let word = |sign: &str| match sign {
        "+" => "new",
        "-" => "removed",
        _ => "changed",
    };
    let of_path = |value: &serde_json::Value| {
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        (text("act"), text("path"))
    };
    let mut told: Vec<_> = json.of_type("path").iter().map(of_path).collect();
    told.sort();
    let object = |(sign, path): &(&str, &str)| (word(sign).to_owned(), format!("{source}{path}"));
    let mut objects: Vec<_> = expected.iter().map(object).collect();
    objects.sort();
    assert_eq!(told, objects);
    let quiet = bench.ok(&["backup", "source", "-v", "--json"]);
    assert_eq!(quiet.of_type("path").len(), 0, "nothing changed");
}

/// Of a snapshot and of an image they came without a slash in front; below a target they have none.
#[test]
fn paths_in_a_snapshot_and_in_an_image_begin_with_a_slash() {
    let bench = Bench::new();
    bench.sh("head -c 3000000 /dev/urandom > source/big");
    bench.backup();
    let packs = objects(&bench, "packs");
    let data = packs
        .iter()
        .max_by_key(|pack| pack.metadata().unwrap().len());
    let mut bytes = std::fs::read(data.unwrap()).unwrap();
    let end = bytes.len() - 10_000;
    bytes[2_000..end]
        .iter_mut()
        .step_by(5_000)
        .for_each(|byte| *byte ^= 1);
    std::fs::remove_file(data.unwrap()).unwrap();
    std::fs::write(data.unwrap(), bytes).unwrap();
    let (address, whole) = (bench.address(""), format!("{}/big", bench.source.display()));
    let dump = bench.run(&["dump", &address]);
    assert_eq!(dump.code, 3, "{dump}");
    says(&dump, &format!(" {whole}: "));
    for (words, path) in [
        (&["restore", "latest", "--to-ext4", "image"][..], &whole[..]),
        (&["restore", &address, "--to-ext4", "part"], "/big"),
        (&["restore", &address, "-t", "out"], "big"),
    ] {
        let ran = bench.run(&[words, &["--json"]].concat());
        assert_eq!(ran.code, 3, "{ran}");
        let problems = ran.of_type("problem");
        assert!(
            !problems.is_empty() && problems.iter().all(|it| it["path"] == path),
            "{path}: {ran}"
        );
    }
}
