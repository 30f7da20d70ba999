//! Making repositories, and every way to open one.

use crate::bench::Bench;

#[test]
fn the_first_backup_makes_a_repository_and_its_recovery_key_opens_it() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let first = bench.ok(&["backup", "source"]);
    let key = first
        .err
        .lines()
        .map(str::trim)
        .find(|line| line.len() > 50 && !line.contains(' '));
    let key = key.unwrap_or_else(|| panic!("{first}")).to_owned();

    let second = bench.ok(&["backup", "source", "--json"]);
    assert!(!second.to_string().contains(&key), "printed again");
    let summary = second.summary();
    assert_eq!(summary["bytes_read"], 0);
    assert_eq!(summary["files_unmodified"], 1);

    std::fs::remove_file(bench.home.join(".local/share/bale/repository.key")).unwrap();
    let lost = bench.run(&["snapshots"]);
    assert_eq!(lost.code, 1, "{lost}");
    let file = bench.write("printed", format!("{key}\n"));
    let listed = bench.ok(&["snapshots", "--json", "--key-file", file.to_str().unwrap()]);
    assert_eq!(listed.of_type("snapshot").len(), 2);
}

#[test]
fn a_repository_opens_with_a_password_from_each_place() {
    let bench = Bench::new();
    let file = bench.write("password", "secret\nsecond line\n");
    let file = file.to_str().unwrap();
    let made = bench.ok(&["init", "-r", "repo", "-p", file, "--json"]);
    let initialized = made.of_type("initialized");
    assert!(initialized[0]["recovery_key"].is_string(), "{made}");
    bench.ok(&[
        "-r",
        "repo",
        "snapshots",
        "--password-command",
        "echo secret",
    ]);
    let mut command = bench.command();
    command
        .args(["snapshots"])
        .env("BALE_REPOSITORY", "repo")
        .env("BALE_PASSWORD", "secret");
    assert!(command.output().unwrap().status.success());

    let wrong = bench.run(&[
        "-r",
        "repo",
        "snapshots",
        "--password-command",
        "echo wrong",
        "--json",
    ]);
    assert_eq!(wrong.code, 12, "{wrong}");
    assert_eq!(wrong.objects().pop().unwrap()["code"], 12);
    let twice = bench.run(&["init", "-r", "repo", "-p", file]);
    assert_eq!(twice.code, 1, "{twice}");
    let asked = bench.run(&["-r", "repo", "snapshots"]);
    assert_eq!(asked.code, 2, "no terminal to ask on: {asked}");
}

#[test]
fn a_key_file_opens_what_it_was_made_for() {
    let bench = Bench::new();
    bench.ok(&["init", "-r", "repo", "--new-key-file", "key"]);
    bench.ok(&["-r", "repo", "--key-file", "key", "snapshots"]);
    let mode = std::fs::metadata(bench.path("key")).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
    let again = bench.run(&["init", "-r", "other", "--new-key-file", "key"]);
    assert_eq!(again.code, 1, "an existing key file stays: {again}");
    bench.write("wrong", "0123456789abcdef0123456789abcdef");
    assert_eq!(
        bench
            .run(&["-r", "repo", "--key-file", "wrong", "snapshots"])
            .code,
        12
    );
}

#[test]
fn codes_tell_no_repository_from_wrong_words() {
    let bench = Bench::new();
    for words in [
        &["snapshots"][..],
        &["check", "--scrub"],
        &["ls", "latest"],
        &["backup", "source", "-r", "missing"],
        &["prune", "-r", "missing"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 10, "{words:?}: {ran}");
    }
    for words in [
        &["nonsense"][..],
        &["backup"],
        &["restore", "latest"],
        &["forget"],
        &["backup", "source", "--exclude-larger-than", "much"],
        &["backup", "source", "--exclude", "[z-a]"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
    assert!(!bench.repository().exists(), "wrong words make nothing");
}

#[test]
fn keys_are_added_listed_changed_and_removed_but_the_last_one_stays() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.backup();
    bench.write("one", "first\n");
    bench.write("two", "second\n");
    bench.ok(&[
        "key",
        "add",
        "--new-password-file",
        "one",
        "--label",
        "office",
    ]);
    let keys = bench.ok(&["key", "list", "--json"]).of_type("key");
    assert_eq!(keys.len(), 3);
    assert_eq!(keys.iter().filter(|key| key["current"] == true).count(), 1);
    assert!(
        keys.iter()
            .any(|key| key["label"] == "office" && key["kind"] == "password")
    );

    bench.ok(&["key", "passwd", "-p", "one", "--new-password-file", "two"]);
    assert_eq!(bench.run(&["snapshots", "-p", "one"]).code, 12);
    bench.ok(&["snapshots", "-p", "two"]);
    let recovery = bench.ok(&["key", "add", "--recovery", "--json"]);
    assert!(recovery.of_type("recovery_key")[0]["recovery_key"].is_string());

    let keys = bench.ok(&["key", "list", "--json"]).of_type("key");
    assert_eq!(keys.len(), 4);
    for key in keys.iter().filter(|key| key["current"] == false) {
        bench.ok(&["key", "remove", key["id"].as_str().unwrap()]);
    }
    let last = keys.iter().find(|key| key["current"] == true).unwrap();
    let refused = bench.run(&["key", "remove", last["id"].as_str().unwrap()]);
    assert_eq!(refused.code, 1, "{refused}");
    bench.ok(&["snapshots"]);
}

#[test]
fn init_without_a_name_makes_the_users_own_once() {
    let bench = Bench::new();
    bench.ok(&["init"]);
    assert_eq!(bench.run(&["init"]).code, 1);
    bench.ok(&["snapshots"]);
}

/// CRA-01: killed between the key file and the repository, and run again.
#[test]
fn a_first_backup_killed_behind_its_key_file_is_made_up_for_by_the_next() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.backup();
    std::fs::remove_dir_all(bench.repository()).unwrap();
    assert_eq!(bench.backup()["files"], 1);
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
}

/// CON-01: of those who make the user's own repository at once, one does, and the others use it.
#[test]
fn first_backups_at_once_share_one_repository() {
    for _ in 0..6 {
        let bench = Bench::new();
        bench.write("source/a", "a");
        let started: Vec<_> = (0..4)
            .map(|_| bench.command().args(["backup", "source"]).spawn().unwrap())
            .collect();
        for mut child in started {
            assert!(child.wait().unwrap().success());
        }
        let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
        assert_eq!(listed.len(), 4);
        assert_eq!(bench.ok(&["key", "list", "--json"]).of_type("key").len(), 2);
        bench.ok(&["check", "--read-data"]);
    }
}
