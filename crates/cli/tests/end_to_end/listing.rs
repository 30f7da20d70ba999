//! How paths are listed: owners by name, headings, sorted, and for ncdu.

use crate::bench::{Bench, have, is_root, skipped};
use serde_json::Value;
use std::collections::BTreeMap;

/// The path below the source, of a line or of an object.
fn below(bench: &Bench, path: &str) -> String {
    let source = bench.source.display().to_string();
    let at = path.rfind(&source).unwrap_or_else(|| panic!("{path}"));
    path[at + source.len()..].to_owned()
}

fn stdout_of(bench: &Bench, script: &str) -> String {
    let mut command = bench.prepared(std::process::Command::new("bash"));
    let output = command.args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Names of owners are those of this machine, and what has none is its number; scripts have numbers
/// in any case.
#[test]
fn owners_are_names_of_this_machine_and_numbers_where_asked_for_or_unknown() {
    let bench = Bench::new();
    bench.sh("cd source; echo known > known; echo other > other");
    let is_other = is_root();
    if is_other {
        bench.sh("chown 54321:54322 source/other");
    }
    bench.backup();
    let user = stdout_of(&bench, "stat -c %U source/known");
    let group = stdout_of(&bench, "stat -c %G source/known");
    let (uid, gid) = (
        stdout_of(&bench, "stat -c %u source/known"),
        stdout_of(&bench, "stat -c %g source/known"),
    );
    let lines = |words: &[&str]| {
        let text = bench.ok(words).text();
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().map(fields).collect::<Vec<Vec<String>>>()
    };
    let address = bench.address("");
    let named = lines(&["ls", "-l", &address]);
    assert_eq!(named[0][2..4], [user.clone(), group.clone()], "{named:?}");
    if is_other {
        assert_eq!(named[1][2..4], ["54321", "54322"], "{named:?}");
    }
    let numbers = lines(&["ls", "-l", &address, "--numeric-owner"]);
    assert_eq!(numbers[0][2..4], [uid.clone(), gid.clone()], "{numbers:?}");
    let found = lines(&["find", "-l", "known"]);
    assert_eq!(found[1][2..4], [user.clone(), group.clone()], "{found:?}");
    for words in [["ls", &address], ["find", "known"]] {
        let words = [&words[..], &["--json"]].concat();
        let entries = bench.ok(&words).of_type("entry");
        let entry = &entries[0];
        assert_eq!(
            (&entry["user"], &entry["group"]),
            (&user.clone().into(), &group.clone().into())
        );
        assert_eq!(entry["uid"].to_string(), uid);
        let words = [&words[..], &["--numeric-owner"]].concat();
        let entry = &bench.ok(&words).of_type("entry")[0];
        assert!(
            entry.get("user").is_none() && entry["uid"].as_u64() == uid.parse().ok(),
            "{entry}"
        );
    }
    if is_other {
        let entry = &bench.ok(&["ls", &address, "--json"]).of_type("entry")[1];
        assert!(
            entry.get("user").is_none() && entry["uid"] == 54321,
            "{entry}"
        );
    } else {
        skipped("an owner without a name: takes root");
    }
}

/// Whoever reads on a terminal sees what the columns are; a pipe gets paths and nothing else.
#[test]
fn lists_of_paths_have_headings_on_a_terminal_alone_and_tables_unless_quiet() {
    let bench = Bench::new();
    bench.sh("cd source; echo a > a");
    bench.backup();
    let address = bench.address("");
    let piped = bench.ok(&["ls", "-l", &address]).text();
    assert!(
        piped.lines().count() == 1 && piped.starts_with("-rw"),
        "{piped}"
    );
    let keys = bench.ok(&["key", "list"]).text();
    assert!(keys.lines().next().unwrap().contains("Created"), "{keys}");
    assert!(!bench.ok(&["key", "list", "-q"]).text().contains("Created"));
    // Local time, to the second, as all lists for people have it.
    let created = &keys.lines().nth(1).unwrap()[22..41];
    assert!(
        created.chars().filter(|letter| *letter == ':').count() == 2,
        "{keys}"
    );
    assert!(!created.contains(['T', 'Z']), "{keys}");
    if !have("script") {
        return skipped("a terminal: script is missing");
    }
    let binary = crate::bench::binary().display();
    let on_terminal = |words: &str| {
        let script = format!("script -qec '{binary} {words}' /dev/null");
        stdout_of(&bench, &script)
    };
    let ls = on_terminal(&format!("ls -l {address}"));
    let lines: Vec<&str> = ls.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("Mode "), "{ls}");
    // Columns stand below their headings.
    for heading in ["Owner", "Group", "Modified", "Path"] {
        let at = lines[0].find(heading).unwrap();
        assert_eq!(&lines[1][at - 1..at], " ", "{heading}: {ls}");
        assert_ne!(&lines[1][at..=at], " ", "{heading}: {ls}");
    }
    assert!(
        !on_terminal(&format!("ls {address}")).contains("Mode"),
        "short lists are paths"
    );
    let find = on_terminal("find -l --latest a");
    assert!(find.starts_with("Snapshot  Time "), "{find}");
}

#[test]
fn a_list_is_sorted_by_name_size_time_and_extension_either_way() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir d; head -c 300 /dev/zero > b.txt; head -c 20 /dev/zero > a.zip; head -c \
         100000 /dev/zero > d/c.txt; touch -d 2001-01-01 b.txt; touch -d 2003-01-01 a.zip; touch \
         -d 2002-01-01 d/c.txt; touch -d 2004-01-01 d",
    );
    bench.backup();
    let listed = |words: &[&str]| {
        let address = bench.address("");
        let text = bench.ok(&[&["ls", &address], words].concat()).text();
        let names: Vec<_> = text.lines().map(|line| below(&bench, line)).collect();
        names.join(" ")
    };
    for (words, expected) in [
        (&["--sort", "name"][..], "/a.zip /b.txt /d"),
        (&["--reverse"], "/d /b.txt /a.zip"),
        (&["--sort", "extension"], "/d /b.txt /a.zip"),
        (&["--sort", "time"], "/b.txt /a.zip /d"),
        (&["--sort", "mtime", "--reverse"], "/d /a.zip /b.txt"),
        (&["-R", "--sort", "name"], " /a.zip /b.txt /d /d/c.txt"),
    ] {
        assert_eq!(listed(words), expected, "{words:?}");
    }
    let by_size = listed(&["-R", "--sort", "size", "--reverse"]);
    assert!(by_size.starts_with("/d/c.txt "), "{by_size}");
    // Sorted or not, scripts get the same objects.
    let objects = |words: &[&str]| {
        let ran = bench.ok(&[&["ls", &bench.address(""), "-R", "--json"], words].concat());
        let mut lines: Vec<String> = ran.text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(objects(&["--sort", "size"]), objects(&[]));
    let wrong = bench.run(&["ls", "latest", "--sort", "colour"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("extension"),
        "{wrong}"
    );
}

/// Names and sizes by path, of what ncdu reads.
fn flatten(value: &Value, above: &str, found: &mut BTreeMap<String, Value>) {
    let (own, children) = match value {
        Value::Array(list) => (&list[0], &list[1..]),
        file => (file, &[][..]),
    };
    let name = own["name"].as_str().unwrap();
    let path = match above {
        "" => name.to_owned(),
        above => format!("{above}/{name}"),
    };
    assert!(
        found.insert(path.clone(), own.clone()).is_none(),
        "{path} twice"
    );
    children
        .iter()
        .for_each(|child| flatten(child, &path, found));
}

#[test]
fn what_ncdu_reads_is_the_whole_tree_once_and_nothing_else() {
    let bench = Bench::new();
    bench.sh(
        r#"cd source; mkdir -p a/b/c a!/x z; echo one > a/one; ln a/one a/b/again
        echo two > a/b/c/two
        echo x > a!/x/f; echo late > zz; ln -s one a/link; mkfifo z/pipe
        head -c 1000 /dev/zero > a.b
        touch "z/$(printf 'odd\377"')"; chmod 4750 a/b/c/two"#,
    );
    bench.backup();
    let root = bench.source.display().to_string();
    let ran = bench.ok(&["ls", &bench.address(""), "--ncdu"]);
    let value: Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!((&value[0], &value[1]), (&1.into(), &2.into()));
    assert_eq!(value[2]["progname"], "bale");
    assert_eq!(value.as_array().unwrap().len(), 4);
    let mut found = BTreeMap::new();
    flatten(&value[3], "", &mut found);
    let listed = bench
        .ok(&["ls", &bench.address(""), "-R", "--json"])
        .of_type("entry");
    assert_eq!(listed.len(), found.len(), "{found:#?}");
    for entry in &listed {
        let path = entry["path"].as_str().unwrap();
        let own = &found[path];
        let is_directory = entry["kind"] == "dir";
        let size = if is_directory {
            0
        } else {
            entry["size"].as_u64().unwrap()
        };
        assert_eq!(own["asize"], size, "{path}");
        assert_eq!(own["ino"], entry["inode"], "{path}");
        assert_eq!(
            own["notreg"] == true,
            !["file", "dir"].contains(&entry["kind"].as_str().unwrap())
        );
        assert_eq!(
            own["hlnkc"] == true,
            !is_directory && entry["nlink"] == 2,
            "{path}"
        );
    }
    assert_eq!(found[&format!("{root}/a.b")]["dsize"], 1024);
    assert_eq!(found[&format!("{root}/a/b/c/two")]["mode"], 0o104750);
    let odd = found.values().find(|one| one.get("name_b64").is_some());
    assert_eq!(odd.unwrap()["name_b64"], "b2Rk/yI=");
    // Of a file there is no tree; of a whole snapshot the root is one.
    let whole: Value = serde_json::from_slice(&bench.ok(&["ls", "latest", "--ncdu"]).out).unwrap();
    assert_eq!(whole[3][0]["name"], "/");
    let both = bench.run(&["ls", "latest", "--ncdu", "--json"]);
    assert_eq!(both.code, 2, "{both}");
}
