//! Where a password or key comes from: which source wins, and what is refused. And that no child
//! process gets one.

use crate::bench::{Bench, Ran};

/// A repository in `repo` with the password `secret` in the file `pw`, and another password in
/// `wrong`.
fn repository() -> Bench {
    let bench = Bench::new();
    bench.write("pw", "secret\n");
    bench.write("wrong", "not this\n");
    bench.write("source/file", "content");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    bench
}

fn with(bench: &Bench, variables: &[(&str, &str)], words: &[&str]) -> Ran {
    let mut command = bench.command();
    command.args(words).envs(variables.iter().copied());
    Ran::from(command.output().unwrap())
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let bench = repository();
    for (name, wrong) in [
        ("BALE_PASSWORD_FILE", "wrong"),
        ("BALE_PASSWORD_FILE", "/nonexistent"),
        ("BALE_KEY_FILE", "/nonexistent"),
        ("BALE_PASSWORD_COMMAND", "false"),
        ("BALE_PASSWORD", "not this"),
        ("BALE_PASSWORD", ""),
    ] {
        for words in [&["-p", "pw"][..], &["--password-command", "echo secret"]] {
            let words = [&["-r", "repo", "snapshots"], words].concat();
            let ran = with(&bench, &[(name, wrong)], &words);
            assert_eq!(ran.code, 0, "{name}={wrong} {words:?}: {ran}");
        }
    }
    let words = [
        "-r",
        "repo",
        "snapshots",
        "--password-command",
        "echo other",
    ];
    let ran = with(&bench, &[("BALE_PASSWORD_FILE", "pw")], &words);
    assert_eq!(ran.code, 12, "{ran}");
    let named = [
        ("BALE_REPOSITORY", "/nonexistent"),
        ("BALE_PASSWORD", "secret"),
    ];
    let ran = with(&bench, &named, &["snapshots", "-r", "repo"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn two_secrets_at_one_level_are_a_contradiction() {
    let bench = repository();
    let words = [
        "-r",
        "repo",
        "-p",
        "pw",
        "--password-command",
        "echo secret",
        "snapshots",
    ];
    assert_eq!(bench.run(&words).code, 2);
    let both = [("BALE_PASSWORD_FILE", "pw"), ("BALE_PASSWORD", "secret")];
    let ran = with(&bench, &both, &["-r", "repo", "snapshots"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(
        ran.err.contains("BALE_PASSWORD_FILE") && ran.err.contains("BALE_PASSWORD "),
        "{ran}"
    );
    let ran = with(&bench, &both, &["-r", "repo", "-p", "pw", "snapshots"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn an_empty_secret_makes_and_opens_nothing() {
    let bench = repository();
    bench.write("empty", "\n");
    bench.write("nothing", "");
    for made in ["init", "snapshots"] {
        let place = if made == "init" { "new" } else { "repo" };
        for variable in [
            "BALE_PASSWORD",
            "BALE_PASSWORD_FILE",
            "BALE_KEY_FILE",
            "BALE_PASSWORD_COMMAND",
        ] {
            let ran = with(&bench, &[(variable, "")], &[made, "-r", place]);
            assert_eq!(ran.code, 2, "{made} {variable}: {ran}");
            assert!(ran.err.contains(variable), "{ran}");
        }
        for words in [
            ["--password-file", "empty"],
            ["--password-file", "nothing"],
            ["--key-file", "empty"],
            ["--key-file", "nothing"],
            ["--password-command", "echo"],
            ["--password-command", "true"],
        ] {
            let ran = bench.run(&[&[made, "-r", place], &words[..]].concat());
            assert_eq!(ran.code, 2, "{made} {words:?}: {ran}");
        }
    }
    let ran = bench.run(&[
        "-r",
        "repo",
        "-p",
        "pw",
        "key",
        "add",
        "--new-password-file",
        "empty",
    ]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(!bench.path("new").exists());
}

/// Issue 13, 14: the snapshot command had the password in its environment.
#[test]
fn no_child_process_gets_a_secret() {
    let bench = repository();
    let snapshot = "env > seen; echo directory $BALE_SOURCE; echo ready; cat > /dev/null";
    let words = [
        "-r",
        "repo",
        "backup",
        "source",
        "--snapshot-command",
        snapshot,
    ];
    let ran = with(&bench, &[("BALE_PASSWORD", "secret")], &words);
    assert_eq!(ran.code, 0, "{ran}");
    let seen = std::fs::read_to_string(bench.path("seen")).unwrap();
    assert!(seen.contains("BALE_SOURCE="), "{seen}");
    for name in ["BALE_PASSWORD", "BALE_KEY_FILE", "secret"] {
        assert!(!seen.contains(name), "{name}: {seen}");
    }
    let words = [
        "-r",
        "repo",
        "snapshots",
        "--password-command",
        "env > seen; echo secret",
    ];
    let ran = with(
        &bench,
        &[("BALE_PASSWORD", "secret"), ("BALE_KEY_FILE", "x")],
        &words,
    );
    assert_eq!(ran.code, 0, "{ran}");
    let seen = std::fs::read_to_string(bench.path("seen")).unwrap();
    assert!(
        !seen.contains("BALE_PASSWORD") && !seen.contains("BALE_KEY"),
        "{seen}"
    );
}

/// Issue 13, 22: made with a key file, and from then on opened with the password.
#[test]
fn your_own_repository_is_made_with_the_secret_that_opens_it_later() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    let secret = [("BALE_PASSWORD", "secret")];
    for _ in 0..2 {
        let ran = with(&bench, &secret, &["backup", "source"]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    let data = bench.home.join(".local/share/bale");
    assert!(!data.join("repository.key").exists());
    let ran = with(&bench, &secret, &["snapshots", "--json"]);
    assert_eq!(ran.of_type("snapshot").len(), 2);

    let keyed = Bench::new();
    keyed.write("source/file", "content");
    keyed.backup();
    let ran = with(&keyed, &secret, &["backup", "source"]);
    assert_eq!(ran.code, 12, "what is given is what counts: {ran}");
    assert!(
        ran.err.contains("repository.key"),
        "and the way out is named: {ran}"
    );
}
