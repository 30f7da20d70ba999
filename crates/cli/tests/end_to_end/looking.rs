//! Listing, searching, comparing, counting; completions and manual pages.

use crate::bench::Bench;

fn two_backups() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir d; echo one > d/one; echo two > d/two; echo same > same; chmod 644 same",
    );
    bench.backup();
    bench.sh(
        "cd source; echo 'one, longer' > d/one; rm d/two; echo three > d/three; chmod 600 same",
    );
    bench.backup();
    bench
}

#[test]
fn ls_and_find_tell_what_scripting_documents() {
    let bench = two_backups();
    let entries = bench
        .ok(&["ls", &bench.address(""), "--json", "-R"])
        .of_type("entry");
    let one = entries
        .iter()
        .find(|entry| entry["path"].as_str().unwrap().ends_with("/d/one"));
    let one = one.unwrap();
    for field in [
        "path", "kind", "mode", "uid", "gid", "size", "mtime", "ctime", "inode", "nlink",
    ] {
        assert!(one.get(field).is_some(), "{field} is promised: {one}");
    }
    assert_eq!(one["size"], 12);
    let found = bench.ok(&["find", "three", "--json"]).of_type("entry");
    assert_eq!(found.len(), 1);
    assert!(found[0]["snapshot"].is_string());
    assert_eq!(
        bench
            .ok(&["find", "ONE", "--iname", "--json"])
            .of_type("entry")
            .len(),
        2
    );
    assert_eq!(bench.run(&["find", "nothing"]).code, 1);
    let long = bench.ok(&["ls", "-l", &bench.address("/d")]);
    assert!(long.text().contains("-rw-r--r--"), "{long}");
    // Times of people have no fractions and no letters.
    let line = long.text();
    // The name of the place may have any.
    let line = line.split(" /").next().unwrap_or_default();
    assert!(!line.contains('Z') && !line.contains('T'), "{long}");
}

#[test]
fn a_list_of_snapshots_has_headings_and_shows_the_groups_that_were_asked_for() {
    let bench = two_backups();
    let plain = bench.ok(&["snapshots"]).text();
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(lines.len(), 3, "{plain}");
    assert!(lines[0].starts_with("ID "), "{plain}");
    let grouped = bench.ok(&["snapshots", "--group-by", "host"]).text();
    assert_eq!(grouped.lines().count(), 4, "{grouped}");
    assert!(
        grouped.ends_with(&plain[plain.find('\n').unwrap() + 1..]),
        "{grouped}"
    );
}

#[test]
fn diff_tells_added_removed_changed_and_metadata() {
    let bench = two_backups();
    let ran = bench.ok(&["diff", "latest~1", "latest", "--metadata", "--json"]);
    let told = |sign: &str, name: &str| {
        ran.of_type("change").iter().any(|change| {
            change["change"] == sign && change["path"].as_str().unwrap().ends_with(name)
        })
    };
    assert!(
        told("+", "/d/three") && told("-", "/d/two") && told("M", "/d/one") && told("U", "/same"),
        "{ran}"
    );
    let summary = ran.summary();
    assert_eq!(
        (&summary["added"], &summary["removed"], &summary["changed"]),
        (&1.into(), &1.into(), &1.into())
    );
}

#[test]
fn scan_tells_what_scripting_documents() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -p d/deep; echo one > d/one; ln d/one d/again; ln -s one d/link; mkfifo \
         p; echo x > left.out",
    );
    let ran = bench.ok(&[
        "scan",
        "source",
        "--exclude",
        "*.out",
        "--densest",
        "1",
        "--json",
    ]);
    let scan = ran.of_type("scan").pop().unwrap();
    for (field, value) in [
        ("names", 7),
        ("inodes", 6),
        ("files", 2),
        ("dirs", 3),
        ("symlinks", 1),
        ("fifos", 1),
        ("bytes", 8),
        ("bytes_once", 4),
        ("hard_linked", 1),
        ("hard_linked_names", 2),
        ("problems", 0),
    ] {
        assert_eq!(scan[field], value, "{field}: {scan}");
    }
    let densest = scan["densest"].as_array().unwrap();
    assert_eq!(
        (densest.len(), &densest[0]["children"]),
        (1, &4.into()),
        "{scan}"
    );
    assert!(densest[0]["path"].as_str().unwrap().ends_with("/source/d"));
    assert_eq!(scan["filesystems"][0]["scanner"], "walk");
    let text = bench.ok(&["scan", "source"]);
    assert!(
        text.text().contains("8 B in files") || text.text().contains("10 B in files"),
        "{text}"
    );
}

#[test]
fn scan_lists_as_find_prints() {
    let bench = Bench::new();
    bench.sh(
        r"cd source; mkdir -p d/deep; echo one > d/one; ln d/one d/again; ln -s one d/link; mkfifo p; chmod 4711 d/one; touch 'new
line' d/deep/$(printf 'a\377'); touch -d @-1.5 old",
    );
    // What both have: a directory's size is the file system's own business.
    let format = "%P|%f|%d|%y|%m|%M|%n|%U|%G|%i|%T@|%C@|%l";
    let mut find = bench.prepared(std::process::Command::new("find"));
    let printed = find
        .args([bench.source.as_os_str()])
        .args(["-printf", &format!("{format}\\0")])
        .output();
    let sorted = |bytes: &[u8]| {
        let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    let listed = bench.ok(&["scan", "source", "--list0", "--format", format]);
    assert_eq!(sorted(&listed.out), sorted(&printed.unwrap().stdout));
    let lines = bench.ok(&["scan", "source", "--list", "--format", "%s\\t%P"]);
    let text = lines.text();
    assert!(text.contains("4\td/one\n"), "{text}");
    assert!(
        text.contains("\tnew\\x0aline\n"),
        "no name forges a line: {text}"
    );
    assert_eq!(bench.run(&["scan", "source", "--format", "%q"]).code, 2);
    assert_eq!(bench.run(&["scan", "source/nothing"]).code, 1);
}

#[test]
fn stats_count_the_repository_and_a_snapshot() {
    let bench = two_backups();
    let whole = bench.ok(&["stats", "--json"]).summary();
    assert_eq!(whole["snapshots"], 2);
    let one = bench.ok(&["stats", &bench.address(""), "--json"]).summary();
    assert_eq!(one["files"], 3, "{one}");
    assert_eq!(
        one["snapshot"].as_str().map(str::len),
        Some(64),
        "ids have 64 digits: {one}"
    );
}

#[test]
fn completions_and_manual_pages_are_made() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.ok(&["completions", shell]);
        assert!(script.text().contains("exclude-caches"), "{shell}");
    }
    bench.ok(&["man", "pages"]);
    for page in ["bale.1", "bale-backup.1", "bale-key-add.1"] {
        let text = std::fs::read_to_string(bench.path("pages").join(page));
        assert!(text.is_ok_and(|text| text.contains(".TH")), "{page}");
    }
}

/// Issue 13, 14: names are content, and an archive of them was readable for everybody.
#[test]
fn an_exported_catalog_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bench = two_backups();
    bench.sh("mkdir -m 755 open");
    for directory in ["open", "made"] {
        bench.ok(&["catalog", "export", "latest", directory]);
        let files = std::fs::read_dir(bench.path(directory)).unwrap();
        let modes: Vec<_> = files
            .map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o7777)
            .collect();
        assert!(!modes.is_empty());
        assert!(modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
    }
}

#[test]
fn duckdb_opens_an_exported_catalog() {
    let bench = two_backups();
    let ran = bench.ok(&["catalog", "export", "latest", "exported", "--json"]);
    assert!(ran.summary()["rows"].as_u64().unwrap() >= 4);
    let python = |code: &str| {
        let mut command = bench.prepared(std::process::Command::new("python3"));
        command.args(["-c", code]).output()
    };
    if !python("import duckdb").is_ok_and(|output| output.status.success()) {
        return crate::bench::skipped("python3 with duckdb");
    }
    let count = python(
        "import duckdb; print(duckdb.sql(\"select count(*) from 'exported/*.parquet' where size = \
         12\").fetchall()[0][0])",
    );
    assert_eq!(String::from_utf8_lossy(&count.unwrap().stdout).trim(), "1");
}

/// Patterns with a path say where to look; the rest of the catalog is not read
/// (engine/tests/stores/catalog_reach.rs).
#[test]
fn find_finds_paths_children_and_below() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir -p a/b c; touch a/one a/b/one c/one 'a/[x]'");
    bench.backup();
    let source = bench.source.display();
    let found = |patterns: &[&str]| {
        let mut words = vec!["find".to_owned(), "--json".to_owned()];
        words.extend(patterns.iter().map(|pattern| format!("{source}/{pattern}")));
        let entries = bench.ok(&words).of_type("entry");
        let path = |entry: &serde_json::Value| {
            let path = entry["path"].as_str().unwrap().to_owned();
            path[bench.source.as_os_str().len() + 1..].to_owned()
        };
        entries.iter().map(path).collect::<Vec<_>>()
    };
    assert_eq!(found(&["a/one"]), ["a/one"]);
    assert_eq!(found(&["a/*"]), ["a/[x]", "a/b", "a/one"]);
    assert_eq!(found(&["a/\\[x\\]"]), ["a/[x]"]);
    assert_eq!(found(&["*/one"]), ["a/one", "c/one"]);
    assert_eq!(
        found(&["a/**/one", "a/one", "a/b/one"]),
        ["a/one", "a/b/one"]
    );
    let below = [
        "find",
        "--below",
        &format!("{source}/a"),
        &format!("{source}/*/one"),
        "--json",
    ];
    assert_eq!(bench.ok(&below).of_type("entry").len(), 1);
}

/// `find` had a matcher of its own, in which `x/f` was a whole path and `{a,b}` a choice.
#[test]
fn patterns_mean_to_find_what_they_mean_to_exclude() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir -p a/x b/x/f; touch a/x/f a/f 'a/{f,g}' a/Keep.f a/other.f");
    bench.backup();
    for patterns in [
        &["x/f"][..],
        &["f"],
        &["a/*", "!*.f"],
        &["\\{f,g\\}"],
        &["b/x/"],
        &["**/x/*"],
    ] {
        let find = [&["find", "--json", "--snapshot", "latest"], patterns].concat();
        let found = bench.ok(&find).of_type("entry");
        let found: Vec<_> = found.iter().map(|entry| entry["path"].clone()).collect();
        let mut scan = vec!["scan", "source", "--json", "--list"];
        patterns
            .iter()
            .for_each(|text| scan.extend(["--exclude", text]));
        let left = bench.ok(&scan).of_type("entry");
        let left: Vec<_> = left.iter().map(|entry| entry["path"].clone()).collect();
        assert!(!found.is_empty(), "{patterns:?}");
        assert!(
            !found.iter().any(|path| left.contains(path)),
            "{patterns:?}: {found:?}, {left:?}"
        );
    }
}

/// Patterns that can match nothing, and a path that is nowhere, were answered with exit 1 and no
/// word.
#[test]
fn find_refuses_what_can_match_nothing_and_says_when_nothing_matches() {
    let bench = two_backups();
    for (pattern, advice) in [
        ("./one", "begin with a name"),
        ("!one", "earlier pattern"),
        ("~/one", "whole path"),
        ("d//one", "one slash"),
        (" ", "empty"),
        ("/", "/*"),
        ("{one,two}", "a pattern for each"),
        ("[one", "character class"),
    ] {
        let ran = bench.run(&["find", pattern, "--json"]);
        assert_eq!(ran.code, 2, "{pattern}: {ran}");
        assert!(ran.err.contains(advice), "{pattern}: {ran}");
        assert_eq!(ran.of_type("error").len(), 1, "{ran}");
    }
    let nowhere = bench.run(&["find", "one", "--below", "/nope", "--json"]);
    assert_eq!(nowhere.code, 1, "{nowhere}");
    assert!(
        nowhere
            .err
            .contains("no /nope (--below) in the 2 snapshots"),
        "{nowhere}"
    );
    assert_eq!(bench.run(&["find", "one", "--below", ""]).code, 2);
    let none = bench.run(&["find", "nothing-like-it"]);
    assert_eq!(none.code, 1, "{none}");
    assert!(
        none.err.contains("nothing in 2 snapshots matches"),
        "{none}"
    );
    assert_eq!(bench.run(&["find", "-q", "nothing-like-it"]).err, "");
    let json = bench.run(&["find", "nothing-like-it", "--json"]);
    assert_eq!((json.code, json.of_type("note").len()), (1, 1), "{json}");
    let restore = ["restore", "latest", "-t", "out", "-i", "[one"];
    let restore = bench.run(&restore);
    assert!(
        restore.code == 2 && restore.err.contains("character class"),
        "{restore}"
    );
}

/// As the help of `restore` says.
#[test]
fn patterns_of_a_restore_are_of_paths_below_its_address() {
    let bench = two_backups();
    let (address, whole) = (
        bench.address(""),
        format!("{}/d/one", bench.source.display()),
    );
    bench.ok(&["restore", &address, "-t", "out", "-i", "/d/one"]);
    assert!(bench.path("out/d/one").exists() && !bench.path("out/d/three").exists());
    let nothing = bench.run(&["restore", &address, "-t", "other", "-i", &whole]);
    assert!(
        nothing.code == 1 && nothing.err.contains("below /PATH"),
        "{nothing}"
    );
}
