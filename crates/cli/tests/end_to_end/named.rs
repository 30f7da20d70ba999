//! Trouble with what was named: the option, what it is for, why, and what to name instead.

use crate::bench::{Bench, Ran, binary, have, skipped};

/// A repository `repo` with the password in `pw`, a snapshot, and a file that is no directory.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.write("pw", "secret\n");
    bench.write("file", "x");
    bench.write("source/file", "content");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    bench.ok(&["backup", "source", "-r", "repo", "-p", "pw"]);
    bench
}

/// It ends with 1, names the option and the path once, and says all of these words; with `--json`
/// in an object.
fn refused(bench: &Bench, words: &[&str], told: &[&str]) {
    let ran = bench.run(&[words, &["--json"]].concat());
    assert_eq!(ran.code, 1, "{words:?}: {ran}");
    let errors = ran.of_type("error");
    assert_eq!(errors.len(), 1, "{ran}");
    let text = errors[0]["message"].as_str().unwrap();
    for word in told {
        assert_eq!(text.matches(word).count(), 1, "{words:?}, {word}: {text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_its_option_and_what_it_is_for() {
    let bench = bench();
    let why = "No such file";
    for (words, option, what) in [
        (
            &["snapshots", "-p", "/nope"][..],
            "(--password-file)",
            "password from /nope",
        ),
        (
            &["snapshots", "--key-file", "/nope"],
            "(--key-file)",
            "key from /nope",
        ),
        (
            &["key", "add", "-p", "pw", "--new-password-file", "/nope"],
            "(--new-password-file)",
            "password from /nope",
        ),
        (
            &["backup", "-p", "pw", "--files-from", "/nope"],
            "(--files-from)",
            "paths to back up from /nope",
        ),
        (
            &["backup", "-p", "pw", "--files-from0", "/nope"],
            "(--files-from0)",
            "paths to back up from /nope",
        ),
        (
            &["backup", "-p", "pw", "source", "--exclude-file", "/nope"],
            "(--exclude-file)",
            "patterns of /nope",
        ),
    ] {
        let words = [words, &["-r", "repo"]].concat();
        refused(&bench, &words, &[option, what, why, "Name "]);
    }
    let gen_words = ["gen", "-t", "source", "--verify-manifest", "/nope"];
    refused(
        &bench,
        &gen_words,
        &["(--verify-manifest)", "manifest /nope", why],
    );
    let mut command = bench.command();
    let command = command.args(["snapshots", "-r", "repo"]);
    let ran = Ran::from(command.env("BALE_KEY_FILE", "/nope").output().unwrap());
    assert!(
        ran.code == 1 && ran.err.contains("(BALE_KEY_FILE)"),
        "{ran}"
    );
}

/// Each said `create file: File exists` or the like, some after minutes of work.
#[test]
fn a_place_that_cannot_be_written_to_is_refused_before_anything_is_done() {
    let bench = bench();
    bench.sh("ln -s nowhere link");
    let repository = ["-r", "repo", "-p", "pw"];
    for (words, told) in [
        (
            &["restore", "latest", "-t", "file"][..],
            ["restore to file (--target)", "it is no directory"],
        ),
        (
            &["restore", "latest", "-t", "file/x"],
            ["restore to file/x (--target)", ": file is no directory"],
        ),
        (
            &["restore", "latest", "-t", "link"],
            ["restore to link (--target)", "leads nowhere"],
        ),
        (
            &["restore", "latest", "--to-ext4", "no/x"],
            ["in no/x (--to-ext4)", "no directory no"],
        ),
        (
            &["restore", "latest", "--to-ext4", "source"],
            ["in source (--to-ext4)", "it is a directory"],
        ),
        (
            &["catalog", "export", "latest", "file"],
            ["catalog to file (DIR)", "it is no directory"],
        ),
        (
            &["catalog", "export", "latest", "source"],
            ["catalog to source (DIR)", "other things (file)"],
        ),
        (
            &["key", "add", "--new-key-file", "file/x"],
            ["key to file/x (--new-key-file)", ": file is no directory"],
        ),
        (
            &["key", "add", "--new-key-file", "file"],
            ["key to file (--new-key-file)", "there already"],
        ),
    ] {
        refused(&bench, &[words, &repository].concat(), &told);
    }
    for (words, told) in [
        (
            &["gen", "-t", "no", "--count", "1"][..],
            ["tree in no (--target)", "No such file"],
        ),
        (
            &["gen", "-t", "file", "--count", "1"],
            ["tree in file (--target)", "it is no directory"],
        ),
        (
            &["gen", "--to-ext4", "no/x", "--count", "1"],
            ["in no/x (--to-ext4)", "no directory no"],
        ),
        (
            &[
                "gen",
                "--to-ext4",
                "new",
                "--count",
                "1",
                "--manifest",
                "no/x",
            ],
            ["to no/x (--manifest)", "no directory no"],
        ),
        (
            &["man", "file"],
            ["pages to file (DIR)", "it is no directory"],
        ),
    ] {
        refused(&bench, words, &told);
    }
    let age = bench.run(&["gen", "-t", "no", "--change", "2"]);
    assert!(
        age.code == 2 && age.err.contains("tree in no (--target)"),
        "{age}"
    );
    assert!(!bench.path("new").exists() && !bench.path("nowhere").exists());
    assert_eq!(std::fs::read(bench.path("file")).unwrap(), b"x");
}

/// It ended with 2, as if the words made no sense.
#[test]
fn a_password_command_that_fails_is_an_error_with_its_reason() {
    let bench = bench();
    for (command, why) in [
        ("exit 3", "exit status: 3"),
        ("/no/such", "did not find"),
        ("kill -9 $$", "SIGKILL"),
    ] {
        let words = ["snapshots", "-r", "repo", "--password-command", command];
        refused(&bench, &words, &["of --password-command", why]);
        let mut started = bench.command();
        let started = started.args(["snapshots", "-r", "repo"]);
        let ran = Ran::from(
            started
                .env("BALE_PASSWORD_COMMAND", command)
                .output()
                .unwrap(),
        );
        assert!(
            ran.code == 1 && ran.err.contains("BALE_PASSWORD_COMMAND"),
            "{ran}"
        );
    }
}

/// The repository opened, and the message named the options that open it.
#[test]
fn a_new_secret_that_is_missing_is_told_by_the_options_that_give_one() {
    let bench = bench();
    for command in ["add", "passwd"] {
        let ran = bench.run(&["key", command, "-r", "repo", "-p", "pw", "--json"]);
        assert_eq!(ran.code, 2, "{ran}");
        let text = ran.of_type("error")[0]["message"].to_string();
        for word in ["--new-password-file", "--new-key-file", "--recovery"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(!text.contains("BALE_PASSWORD"), "{text}");
    }
    let init = bench.run(&["init", "-r", "other"]);
    assert!(
        init.code == 2 && init.err.contains("--new-key-file"),
        "{init}"
    );
    let open = bench.run(&["snapshots", "-r", "repo"]);
    assert!(open.code == 2 && open.err.contains("--key-file"), "{open}");
}

/// A password was asked for that nobody had ever chosen, without a word.
#[test]
fn at_a_terminal_a_lost_key_file_of_your_own_repository_is_told() {
    let bench = Bench::new();
    if !have("script") {
        return skipped("script(1) gives no terminal");
    }
    bench.write("source/file", "content");
    bench.backup();
    let key = bench.home.join(".local/share/bale/repository.key");
    std::fs::remove_file(&key).unwrap();
    let bale = binary().display();
    bench.sh(&format!(
        "echo wrong | script -qec '{bale} snapshots' log > shown || true"
    ));
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    let log = log.replace(['\r', '\n'], " ");
    assert!(
        log.contains(key.to_str().unwrap()) && log.contains("recovery key"),
        "{log}"
    );
}

/// 0 is no rule, as in restic: what is left decides, and where nothing is left that is said.
#[test]
fn a_rule_of_zero_keeps_nothing_and_forgets_nothing_by_itself() {
    let bench = bench();
    let forget =
        |rules: &[&str]| bench.run(&[&["forget", "-r", "repo", "-p", "pw"], rules].concat());
    for rules in [
        &["--keep-last", "0"][..],
        &["--keep-daily", "0", "--keep-last", "0"],
    ] {
        let ran = forget(rules);
        assert!(ran.code == 2 && ran.err.contains("is no rule"), "{ran}");
    }
    let none = forget(&[]);
    assert!(
        none.code == 2 && none.err.contains("nothing says what to forget"),
        "{none}"
    );
    let other = forget(&["--keep-daily", "0", "--keep-last", "1"]);
    assert!(other.code == 0 && other.text().contains("keep"), "{other}");
    let wrong = forget(&["--keep-weekly", "x"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("--keep-weekly"),
        "{wrong}"
    );
}
