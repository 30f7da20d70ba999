//! Which directories are meant: the repository, where none or a remote one is named; and the cache,
//! without a home.

use crate::bench::{Bench, Ran, is_root, skipped};
use std::os::unix::process::CommandExt;

/// Issue 13, 17: a dry run, and a job that lost the name of its repository, filled this disk.
#[test]
fn your_own_repository_is_made_only_where_that_is_asked_for() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    let unasked = |words: &[&str]| {
        let mut command = bench.command();
        Ran::from(
            command
                .args(words)
                .env_remove("BALE_INIT")
                .output()
                .unwrap(),
        )
    };
    for words in [
        &["backup", "source"][..],
        &["backup", "source", "--json"],
        &["backup", "source", "--dry-run"],
    ] {
        let ran = unasked(words);
        assert_eq!(ran.code, 10, "{words:?}: {ran}");
        assert!(ran.err.contains("bale init"), "{ran}");
        for word in ["bale init", "no repository", "BALE_REPOSITORY"] {
            assert_eq!(ran.err.matches(word).count(), 1, "{word}: {ran}");
        }
        assert!(!bench.home.join(".local").exists(), "{words:?}");
    }
    let dry = bench.run(&["backup", "source", "--dry-run"]);
    assert_eq!(dry.code, 10, "whatever the environment says: {dry}");
    assert!(!bench.home.join(".local").exists());
    let ran = unasked(&["backup", "source", "--dry-run", "--init"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert_eq!(unasked(&["backup", "source", "--init"]).code, 0);
    assert_eq!(unasked(&["backup", "source"]).code, 0);
}

/// The disk with the repository was not mounted: a job made a new one under the mount point, and
/// ended well ever after.
#[test]
fn no_job_makes_another_repository_in_the_place_of_one_that_is_not_there() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.backup();
    let repository = bench.repository();
    bench.sh(&format!("mv {} away", repository.display()));
    let absent = ["true", "mkdir $r", "mkdir -p $r/lost+found"];
    for place in absent {
        bench.sh(&format!("r={}; {place}", repository.display()));
        for words in [&["backup", "source"][..], &["backup", "source", "--init"]] {
            let ran = bench.run(words);
            assert_eq!(ran.code, 10, "{place}: {ran}");
            for word in ["mounted", "bale init", "repository.key"] {
                assert_eq!(ran.err.matches(word).count(), 1, "{word}: {ran}");
            }
        }
        let found = std::fs::read_dir(&repository).map_or(0, |names| names.count());
        assert_eq!(found, usize::from(place.contains("lost")), "{place}");
        bench.sh(&format!("rm -rf {}", repository.display()));
    }
    // A first backup that was killed left its key, and a beginning of the repository.
    bench.sh(&format!("mkdir -p {}/tmp", repository.display()));
    bench.backup();
    bench.sh(&format!("rm -rf {}", repository.display()));
    bench.ok(&["init"]);
    bench.backup();
}

#[test]
fn on_a_terminal_the_first_backup_makes_your_own_repository() {
    let bench = Bench::new();
    if !crate::bench::have("script") {
        return skipped("script(1) gives no terminal");
    }
    bench.write("source/file", "content");
    let bale = crate::bench::binary().display();
    bench.sh(&format!(
        "unset BALE_INIT; script -qec '{bale} backup source' log < /dev/null > /dev/null"
    ));
    assert!(bench.repository().join("config").exists());
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("Recovery key"), "{log}");
}

#[test]
fn a_variable_that_lost_its_value_is_refused() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    for name in ["BALE_REPOSITORY", "BALE_CACHE_DIR", "BALE_HOST"] {
        let mut command = bench.command();
        command.args(["backup", "source"]).env(name, "");
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 2, "{name}: {ran}");
        assert!(ran.err.contains(name), "{ran}");
    }
}

/// Issue 13, 17: `init -r s3:bucket/x` made a directory of that name.
#[test]
fn a_store_that_nobody_knows_is_refused_and_no_directory_made() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "content");
    for words in [
        &["init"][..],
        &["backup", "source"],
        &["snapshots"],
        &["check", "--scrub"],
    ] {
        let ran = bench.run(&[words, &["-p", "pw", "-r", "swift:bucket:/x"]].concat());
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        assert!(
            ran.err.contains("none of local:, rest:"),
            "{words:?}: {ran}"
        );
        let mut command = bench.command();
        command
            .args(words)
            .args(["-p", "pw"])
            .env("BALE_REPOSITORY", "me@host:/x");
        assert_eq!(Ran::from(command.output().unwrap()).code, 2, "{words:?}");
    }
    assert!(!bench.path("swift:bucket").exists());
    bench.ok(&["init", "-p", "pw", "-r", "./swift:bucket"]);
    assert!(bench.path("swift:bucket/config").exists());
}

/// Issue 13, 17: without HOME, as in a unit of systemd, nothing ran.
#[test]
fn without_a_home_directory_a_named_repository_is_used() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    let homeless = |words: &[&str], uid: Option<u32>| {
        let mut command = bench.command();
        command.env_remove("HOME").env("TMPDIR", bench.path("tmp"));
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Ran::from(
            command
                .args(["-r", "repo", "-p", "pw"])
                .args(words)
                .output()
                .unwrap(),
        )
    };
    let nameless = bench
        .command()
        .env_remove("HOME")
        .arg("snapshots")
        .output()
        .unwrap();
    assert_eq!(Ran::from(nameless).code, 2);
    if !is_root() {
        return skipped("another user needs root");
    }
    bench.sh("mkdir tmp; chmod 1777 tmp .; chmod -R a+rwX repo pw source");
    let ran = homeless(&["backup", "source"], Some(65534));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("--cache-dir"), "{ran}");
    assert_eq!(std::fs::read_dir(bench.path("tmp")).unwrap().count(), 0);
    let named = homeless(&["backup", "source", "--cache-dir", "tmp/c"], Some(65534));
    assert_eq!(named.code, 0, "{named}");
    assert!(!named.err.contains("--cache-dir"), "{named}");
}

#[test]
fn a_cache_that_is_not_private_costs_time_unless_it_was_named() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.ok(&["init"]);
    bench.sh("mkdir -p open tmp; chmod 777 open");
    let backup = |name: &str| {
        let mut command = bench.command();
        command.env(name, bench.path("open/cache"));
        command.env("TMPDIR", bench.path("tmp"));
        Ran::from(
            command
                .args(["backup", "source", "--json"])
                .output()
                .unwrap(),
        )
    };
    let found = backup("XDG_CACHE_HOME");
    assert_eq!(found.code, 0, "{found}");
    let notes = found.of_type("note");
    let told = notes.iter().map(|note| note["message"].as_str().unwrap());
    let told: Vec<_> = told
        .filter(|text| text.contains("changed by everybody"))
        .collect();
    assert_eq!(told.len(), 1, "{found}");
    assert!(told[0].contains("--cache-dir"), "{found}");
    let named = backup("BALE_CACHE_DIR");
    assert_eq!(named.code, 1, "{named}");
    assert!(named.err.contains("--cache-dir"), "{named}");
    for place in ["open", "tmp"] {
        let left = std::fs::read_dir(bench.path(place)).unwrap().count();
        assert_eq!(left, 0, "{place}");
    }
    bench.sh("chmod 700 open");
    assert_eq!(backup("BALE_CACHE_DIR").code, 0);
}

#[test]
fn an_empty_name_of_a_repository_makes_no_sense() {
    let bench = Bench::new();
    bench.backup();
    let hot = bench.repository();
    let key = hot.with_extension("key").display().to_string();
    let hot = hot.display().to_string();
    for words in [
        &["snapshots", "-r", ""][..],
        &["init", "-r", ""],
        &["snapshots", "-r", &hot, "--cold", ""],
        &["mirror", "-r", &hot, "--to", ""],
        &["copy", "-r", &hot, "--from-repo", ""],
    ] {
        let ran = bench.run(&[words, &["--key-file", &key]].concat());
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        assert!(ran.err.contains("empty"), "{ran}");
    }
}

/// Its program ends at once, and said the same for a quarter of an hour.
#[test]
fn a_remote_that_rclone_does_not_know_is_refused_at_once() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    let words = "echo \"CRITICAL: Failed to create file system for \\\"$1\\\": didn't find section in \
                 config file (\\\"nope\\\")\" >&2; exit 1";
    let program = bench.write("rclone", words).display().to_string();
    let mut command = bench.command();
    command.env("BALE_RCLONE_COMMAND", format!("sh {program}"));
    let ran = Ran::from(
        command
            .args(["snapshots", "-p", "pw", "-r", "rclone:nope:r"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 1, "{ran}");
    assert!(!ran.err.contains("trying again"), "{ran}");
    assert!(ran.err.contains("rclone config"), "{ran}");
}

#[test]
fn a_repository_is_not_made_among_other_things() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("full/theirs", "x");
    bench.sh("mkdir empty; mkdir -p begun/packs begun/lost+found");
    let init = |place: &str, more: &[&str]| {
        bench.run(&[&["init", "-p", "pw", "-r", place], more].concat())
    };
    let refused = init("full", &[]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("theirs"), "{refused}");
    assert!(!bench.path("full/packs").exists());
    for place in ["empty", "begun", "new"] {
        assert_eq!(init(place, &[]).code, 0, "{place}");
    }
    assert_eq!(init("full", &["--force"]).code, 0);
    let twice = init("full", &["--force"]);
    assert_eq!(twice.code, 1, "{twice}");
    assert_eq!(twice.err.matches("already").count(), 1, "{twice}");
}

/// `-v` named new files only, without a word that it did.
#[test]
fn talk_tells_new_files_from_changed_ones() {
    let bench = Bench::new();
    bench.write("source/a", "1");
    bench.write("source/b", "1");
    let first = bench.ok(&["backup", "source", "-v"]);
    assert!(first.err.contains("2 files (2 new"), "{first}");
    bench.write("source/b", "two");
    bench.write("source/c", "new");
    for words in [&["-n", "-vv"][..], &["-v"]] {
        let ran = bench.ok(&[&["backup", "source"], words].concat());
        let lines = |sign: &str| {
            let of_sign = ran.err.lines().filter_map(|line| line.strip_prefix(sign));
            let behind = |path: &str| path.rsplit('/').next().unwrap().to_owned();
            of_sign.map(behind).collect::<Vec<_>>()
        };
        let changed = "b  (size, mtime, content)".to_owned();
        assert_eq!(
            (lines("+ "), lines("M ")),
            (vec!["c".to_owned()], vec![changed]),
            "{ran}"
        );
        assert!(
            ran.err.contains("3 files (1 new, 1 changed, 1 unmodified)"),
            "{ran}"
        );
    }
}

/// Why something would be stored is said before anything is.
#[test]
fn a_dry_run_says_why_each_path_would_be_stored() {
    let bench = Bench::new();
    for name in ["mode", "moved", "same", "written"] {
        bench.write(&format!("source/{name}"), "text");
    }
    bench.sh("ln -s here source/link");
    bench.backup();
    bench.sh(
        "cd source; chmod 600 mode; touch written; echo other > written; cp -p moved m; mv m moved
        ln -sfn there link; mkfifo new",
    );
    let dry = bench.ok(&["backup", "source", "--dry-run", "-v", "--json"]);
    let of = |name: &str| {
        let all = dry.of_type("path");
        let found = |path: &&serde_json::Value| path["path"].as_str().unwrap().ends_with(name);
        let found = all.iter().find(found).cloned();
        found.unwrap_or_default()
    };
    let words = |name: &str| of(name)["differs_in"].to_string();
    assert_eq!(words("/mode"), r#"["mode"]"#);
    assert_eq!(words("/moved"), r#"["inode"]"#);
    assert_eq!(words("/written"), r#"["size","mtime","content"]"#);
    assert!(words("/link").contains("content"), "{}", of("/link"));
    assert_eq!(of("/new")["act"], "new");
    assert!(of("/new")["differs_in"].is_null() && of("/same").is_null());
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        1
    );
}

#[test]
fn help_keeps_what_belongs_to_every_command_apart() {
    let bench = Bench::new();
    for command in ["backup", "restore", "ls", "prune"] {
        let help = bench.ok(&[command, "--help"]).text();
        let (own, global) = help.split_once("Options of every command:").unwrap();
        assert!(
            global.contains("--repo") && global.contains("--json"),
            "{help}"
        );
        assert!(
            !own.contains("--repo") && !own.contains("--password-file"),
            "{help}"
        );
    }
    let mut command = bench.command();
    command
        .arg("ls")
        .env("BALE_REPOSITORY", "/x")
        .env("BALE_PASSWORD_FILE", "/x");
    let usage = Ran::from(command.output().unwrap());
    assert!(!usage.err.contains("--repo"), "{usage}");
    let tip = bench.run(&["freez"]);
    assert!(tip.code == 2 && !tip.err.contains("freezer"), "{tip}");
}

/// `prune`, `snapshots`, `ls`, `check` and others went on without it, some with a word that did not
/// say what is wrong.
#[test]
fn a_named_cache_that_is_refused_ends_every_command_before_anything_is_done() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.write("pw", "secret");
    bench.write("file", "x");
    bench.sh("mkdir real theirs; ln -s real link");
    bench.backup();
    let mut refused = vec![("file", "no directory"), ("file/below", "no directory")];
    match is_root() {
        true => {
            bench.sh("chown 1234 theirs");
            refused.push(("theirs", "belongs to user 1234"));
        }
        false => skipped("another owner needs root"),
    }
    let id = bench.ok(&["snapshots", "--json"]).of_type("snapshot")[0]["id"].clone();
    let id = id.as_str().unwrap();
    let address = bench.address("/file");
    for (cache, why) in refused {
        for words in [
            &["snapshots"][..],
            &["ls", "latest"],
            &["find", "file"],
            &["diff", "latest", "latest"],
            &["stats"],
            &["dump", &address],
            &["check"],
            &["prune"],
            &["forget", id],
            &["key", "list"],
            &["key", "add", "--new-key-file", "key"],
            &["catalog", "export", "latest", "exported"],
            &["repair", "index"],
            &["repair", "packs"],
            &["restore", "latest", "-t", "out"],
            &["backup", "source"],
            &["scan", "source"],
            &["init", "-r", "new", "-p", "pw"],
            &["init", "-r", "new", "--new-key-file", "key"],
        ] {
            let ran = bench.run(&[words, &["--cache-dir", cache, "--json"]].concat());
            assert_eq!(ran.code, 1, "{words:?} {cache}: {ran}");
            let text = ran.of_type("error")[0]["message"].to_string();
            assert!(
                text.contains(why) && text.contains("--cache-dir"),
                "{words:?}: {text}"
            );
        }
    }
    for made in ["new", "key", "out", "exported"] {
        assert!(!bench.path(made).exists(), "{made}");
    }
    let left = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(left.len(), 1, "nothing was backed up or forgotten");
    // A link to a directory of one's own is what its owner chose.
    bench.ok(&["snapshots", "--cache-dir", "link"]);
}

/// `scan` took the mode of a directory that is everybody's for one that was to be made private, and
/// no name without a slash.
#[test]
fn a_named_cache_that_is_everybodys_stays_so() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.sh("mkdir shared; chmod 1777 shared");
    for words in [
        &["scan", "source"][..],
        &["backup", "source"],
        &["ls", "latest"],
    ] {
        bench.ok(&[words, &["--cache-dir", "shared"]].concat());
        let mode = std::fs::metadata(bench.path("shared"))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o7777, 0o1777, "{words:?}");
    }
    bench.ok(&["scan", "source", "--cache-dir", "new"]);
}

/// The tag of a directory of the cache did not find room, and a restore that needs none of it ended
/// there.
#[test]
fn a_cache_on_a_full_disk_ends_no_restore() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.write("source/file", "content");
    bench.backup();
    let (bale, address) = (crate::bench::binary().display(), bench.address(""));
    bench.mounting_sh(&format!(
        "mkdir cache; mount -t tmpfs -o size=64k,mode=700 tmpfs cache
        {bale} snapshots --cache-dir cache
        ! head -c 1M /dev/zero >cache/fill 2>told
        {bale} restore {address} -t out --cache-dir cache
        {bale} ls latest --cache-dir cache
        umount cache"
    ));
    assert_eq!(std::fs::read(bench.path("out/file")).unwrap(), b"content");
}
