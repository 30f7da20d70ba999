//! Who we are to servers: what is said of a login that is refused, and that each store has its own.

use crate::bench::{Bench, Ran};
use crate::serving::{Server, start};
use std::fs::File;

const HINT: &str = "reaches only /me/ here: name the repository /me/NAME";

/// Serves a directory to one user, each with a place of his own.
fn serve_to(bench: &Bench, user: &str, password: &str) -> (Server, String) {
    let mut hashing = bench.command();
    hashing.args(["serve", "--hash-password", user]);
    let given = bench.write(&format!("{user}-pw"), format!("{password}\n"));
    hashing.stdin(File::open(given).unwrap());
    let line = hashing.output().unwrap().stdout;
    let users = bench.write(&format!("{user}-users"), line);
    let dir = bench.path(&format!("{user}-served"));
    std::fs::create_dir(&dir).unwrap();
    bench.write(&format!("{user}-login"), format!("{user}:{password}\n"));
    let words = ["--private", "--password-file"].map(str::to_owned);
    let paths = [users, dir].map(|path| path.display().to_string());
    let words = [words, paths].concat();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    start(bench, &words)
}

#[test]
fn a_refused_login_is_named_with_where_it_comes_from_and_never_its_password() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    let (_server, address) = serve_to(&bench, "me", "s3cr3t");
    bench.write("wrong", "me:wr0ng\n");
    let init = |login: &str, name: &str, more: &[&str]| -> Ran {
        let repository = format!("rest:http://{login}{address}/{name}");
        let ran = bench.run(&[&["init", "-p", "pw", "-r", &repository], more].concat());
        assert!(!format!("{ran}").contains("s3cr3t"), "{ran}");
        assert!(!format!("{ran}").contains("wr0ng"), "{ran}");
        assert!(!ran.err.contains("trying again"), "{ran}");
        ran
    };
    for (ran, parts) in [
        (
            init("", "me/x", &[]),
            &["no login was given", "--login-file", "BALE_LOGIN_FILE"][..],
        ),
        (
            init("", "me/x", &["--login-file", "wrong"]),
            &["(401)", "\"me\"", "wrong (--login-file)"],
        ),
        (
            init("me:wr0ng@", "me/x", &[]),
            &["(401)", "\"me\"", "from the name of the repository"],
        ),
        (
            init("", "you/x", &["--login-file", "me-login"]),
            &["(403)", "\"me\"", HINT],
        ),
    ] {
        assert_eq!(ran.code, 1, "{ran}");
        for part in parts {
            assert!(ran.err.contains(part), "{part}: {ran}");
        }
    }
    assert_eq!(init("", "me/x", &["--login-file", "me-login"]).code, 0);
}

/// The cold store had no login of its own: its server was told that of the hot one.
#[test]
fn the_server_of_a_cold_store_has_a_login_of_its_own() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x".repeat(100_000));
    let (_hot_server, hot) = serve_to(&bench, "hot", "s3cr3t");
    let (_cold_server, cold) = serve_to(&bench, "cold", "s3cr3t");
    let [hot, cold] =
        [(hot, "hot"), (cold, "cold")].map(|(at, user)| format!("rest:http://{at}/{user}/x"));
    let both = [
        "-r",
        &hot,
        "--cold",
        &cold,
        "-p",
        "pw",
        "--login-file",
        "hot-login",
    ];
    let refused = bench.run(&[&["init"][..], &both].concat());
    assert_eq!(refused.code, 1, "{refused}");
    for part in [
        "no login was given",
        "--cold-login-file",
        "BALE_COLD_LOGIN_FILE",
    ] {
        assert!(refused.err.contains(part), "{part}: {refused}");
    }
    let logged_in = [&both[..], &["--cold-login-file", "cold-login"]].concat();
    bench.ok(&[&["init"][..], &logged_in].concat());
    bench.ok(&[&["backup", "source"][..], &logged_in].concat());
    bench.ok(&[&["check", "--read-data"][..], &logged_in].concat());
    let mut by_variable = bench.command();
    by_variable
        .args(["restore", "latest", "-t", "target"])
        .args(both);
    by_variable.env("BALE_COLD_LOGIN_FILE", bench.path("cold-login"));
    let restored = Ran::from(by_variable.output().unwrap());
    assert_eq!(restored.code, 0, "{restored}");
    bench.sh("rm -r hot-served/hot/x");
    bench.ok(&[&["repair", "hot"][..], &logged_in].concat());
    bench.ok(&[&["check"][..], &logged_in].concat());
    // On one server, one login is enough.
    let second = cold.replace("/x", "/hot");
    let beside = [
        "-r",
        &second,
        "--cold",
        &cold.replace("/x", "/y"),
        "-p",
        "pw",
    ];
    bench.ok(&[&["init"][..], &beside, &["--login-file", "cold-login"]].concat());
}

/// A directory on the server that somebody made for a repository to come.
#[test]
fn a_repository_is_made_in_an_empty_directory_of_a_server() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    // Neither is around the other.
    for (served, name) in [("served", "mine"), ("all", "")] {
        let served = bench.path(served);
        std::fs::create_dir_all(served.join(name)).unwrap();
        let (_server, address) = start(&bench, &["--no-auth", &served.display().to_string()]);
        let repository = format!("rest:http://{address}/{name}");
        let listed = bench.run(&["snapshots", "-p", "pw", "-r", &repository]);
        assert_eq!(listed.code, 10, "{listed}");
        assert!(!listed.err.contains("packs are there"), "{listed}");
        let made = bench.ok(&["init", "-p", "pw", "-r", &repository]);
        assert!(!made.err.contains("trying again"), "{made}");
    }
}

/// It spoke of the repository's variable when the password was in that of the cold store.
#[test]
fn a_password_is_called_seen_only_where_it_is_an_argument_and_the_right_variable_is_named() {
    let bench = Bench::new();
    bench.backup();
    let hot = bench.repository().display().to_string();
    let at = "rest:http://me:s3cr3t@127.0.0.1:1/x";
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = bench.command();
        command.args(["snapshots", "--retry-for", "0s"]).args(words);
        command.envs(variables.iter().copied());
        let ran = Ran::from(command.output().unwrap());
        assert_ne!(ran.code, 0, "{ran}");
        assert!(!format!("{ran}").contains("s3cr3t"), "{ran}");
        ran.err
    };
    let seen = "can be seen by everybody";
    for (words, variables) in [
        (&["-r", &hot][..], &[("BALE_COLD", at)][..]),
        (&[], &[("BALE_REPOSITORY", at)]),
        (&[], &[("BALE_REPOSITORY", &hot), ("BALE_COLD", at)]),
    ] {
        let said = run(words, variables);
        assert!(!said.contains(seen), "{words:?}: {said}");
    }
    for (words, variable, option) in [
        (&["-r", at][..], "BALE_REPOSITORY", "--login-file"),
        (
            &["-r", &hot, "--cold", at],
            "BALE_COLD",
            "--cold-login-file",
        ),
    ] {
        let said = run(words, &[]);
        for part in [seen, variable, option] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
