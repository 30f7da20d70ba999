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
    // Also one that is shorter than any key file.
    for wrong in ["0123456789abcdef0123456789abcdef", "short"] {
        bench.write("wrong", wrong);
        let ran = bench.run(&["-r", "repo", "--key-file", "wrong", "snapshots"]);
        assert_eq!(ran.code, 12, "{} bytes: {ran}", wrong.len());
    }
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
    let keys = bench.ok(&["key", "list", "--json", "-p", "two"]);
    let mut keys = keys.of_type("key").into_iter();
    let current = keys.find(|key| key["current"] == true).unwrap();
    assert_eq!(
        current["label"], "office",
        "it has the place of the old one"
    );
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

/// A repository with the password in `old`, and another one in `new`.
fn opened_by_old() -> Bench {
    let bench = Bench::new();
    for name in ["old", "new"] {
        bench.write(name, name);
    }
    bench.ok(&["init", "-r", "repo", "-p", "old"]);
    bench
}

/// Ended before the old one was removed, and run again.
#[test]
fn a_password_that_is_there_already_is_not_added_again_by_passwd() {
    let bench = opened_by_old();
    let with = |words: &[&str]| bench.run(&[words, &["-r", "repo", "-p", "old"]].concat());
    assert_eq!(with(&["key", "add", "--new-password-file", "new"]).code, 0);
    let same = with(&["key", "passwd", "--new-password-file", "old"]);
    assert_eq!(same.code, 1, "{same}");
    assert!(same.err.contains("nothing was changed"), "{same}");
    let changed = with(&["key", "passwd", "--new-password-file", "new"]);
    assert_eq!(changed.code, 0, "{changed}");
    assert_eq!(with(&["snapshots"]).code, 12);
    let listed = bench.ok(&["key", "list", "--json", "-r", "repo", "-p", "new"]);
    let keys = listed.of_type("key");
    let passwords = keys.iter().filter(|key| key["kind"] == "password");
    assert_eq!(passwords.count(), 1, "{listed}");
}

/// A password that leaked is in as many slots as somebody put it in.
#[test]
fn passwd_names_another_slot_that_the_old_password_opens() {
    let bench = opened_by_old();
    let with = |words: &[&str]| bench.run(&[words, &["-r", "repo", "-p", "old"]].concat());
    assert_eq!(with(&["key", "add", "--new-password-file", "old"]).code, 0);
    let changed = with(&["key", "passwd", "--new-password-file", "new"]);
    assert_eq!(changed.code, 3, "{changed}");
    assert!(
        changed.err.contains("opens with the old password"),
        "{changed}"
    );
    assert_eq!(with(&["snapshots"]).code, 0);
    let listed = bench.ok(&["key", "list", "--json", "-r", "repo", "-p", "old"]);
    let keys = listed.of_type("key");
    let current = keys.iter().find(|key| key["current"] == true).unwrap();
    let id = current["id"].as_str().unwrap();
    bench.ok(&["key", "remove", id, "-r", "repo", "-p", "new"]);
    assert_eq!(with(&["snapshots"]).code, 12);
}

#[test]
fn init_without_a_name_makes_the_users_own_once() {
    let bench = Bench::new();
    bench.ok(&["init"]);
    assert_eq!(bench.run(&["init"]).code, 1);
    bench.ok(&["snapshots"]);
}

/// CRA-01: killed between the key file and the repository, and run again. Its directories are made
/// before the key: where they are not, a file system is not mounted, probably.
#[test]
fn a_first_backup_killed_behind_its_key_file_is_made_up_for_by_the_next() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.backup();
    bench.sh("find home/.local/share/bale/repository -type f -delete");
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

/// The file of the only slot of a kind, in the repository `repo`.
fn slot_file(bench: &Bench, kind: &str) -> std::path::PathBuf {
    let files = std::fs::read_dir(bench.path("repo/keys")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let is_kind = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        text.contains(&format!("\"kind\": \"{kind}\""))
    };
    files.find(is_kind).unwrap()
}

/// One bit of the letter behind this text.
fn flip_behind(file: &std::path::Path, text: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    let found = bytes.windows(text.len()).position(|w| w == text.as_bytes());
    bytes[found.unwrap() + text.len()] ^= 1;
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(file, bytes).unwrap();
}

/// REP-17, REP-18, REP-19
#[test]
fn a_damaged_slot_is_told_counts_for_no_key_and_can_be_removed() {
    let bench = Bench::new();
    bench.write("password", "secret\n");
    bench.write("next", "another\n");
    bench.ok(&["init", "-r", "repo", "-p", "password"]);
    let file = slot_file(&bench, "recovery");
    flip_behind(&file, "\"wrapped\": \"");
    let recovery = file.file_name().unwrap().to_str().unwrap();
    let with = ["-r", "repo", "-p", "password"];
    let run = |words: &[&str]| bench.run(&[words, &with].concat());

    let listed = run(&["key", "list", "--json"]);
    assert_eq!(listed.code, 3, "{listed}");
    let keys = listed.of_type("key");
    let damaged: Vec<_> = keys.iter().filter(|k| k["state"] == "damaged").collect();
    assert!(
        damaged.len() == 1 && damaged[0]["id"] == recovery,
        "{listed}"
    );
    assert!(run(&["key", "list"]).to_string().contains("DAMAGED"));
    let checked = run(&["check"]);
    assert_eq!(checked.code, 4, "{checked}");
    assert!(checked.to_string().contains(recovery), "{checked}");

    let own = keys.iter().find(|key| key["current"] == true).unwrap();
    let refused = run(&["key", "remove", own["id"].as_str().unwrap()]);
    assert_eq!(refused.code, 1, "{refused}");
    std::fs::write(&file, "").unwrap();
    let changed = run(&["key", "passwd", "--new-password-file", "next"]);
    assert_eq!(changed.code, 0, "{changed}");
    let with = ["-r", "repo", "-p", "next"];
    let run = |words: &[&str]| bench.run(&[words, &with].concat());
    assert_eq!(run(&["key", "remove", recovery]).code, 0);
    assert_eq!(run(&["key", "list"]).code, 0);
    assert_eq!(run(&["check"]).code, 0);

    let file = slot_file(&bench, "password");
    flip_behind(&file, "\"salt\": \"");
    let refused = run(&["snapshots"]);
    assert_eq!(refused.code, 12, "{refused}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(refused.to_string().contains(name), "{refused}");
}
