//! Packs in cold classes of S3: what needs none of them goes on, a restore says which it needs, and
//! has them brought back.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::{OURS, named};
use crate::tree::assert_same;
use bale_testkit::servers::{self, ObjectServer};
use std::process::Stdio;
use std::time::Duration;

const BUCKET: &str = "tests";
const PREFIX: &str = "a/prefix";
const PARTS: usize = 3;

/// A repository on moto, whose packs of data are archived: one for each backup.
struct Scene {
    bench: Bench,
    server: ObjectServer,
    repository: String,
}

impl Scene {
    fn new() -> Option<Scene> {
        if !have("moto_server") {
            skipped("cold classes of S3: moto_server (PyPI moto[server]) is missing");
            return None;
        }
        let server = servers::moto(BUCKET);
        let repository = named(&server, &format!("{BUCKET}/{PREFIX}"));
        let bench = Bench::new();
        bench.write("pw", "secret");
        let scene = Scene {
            bench,
            server,
            repository,
        };
        scene.ok(&["init"]);
        for number in 0..PARTS {
            scene.bench.sh(&format!(
                "mkdir -p source/d{number}; head -c 30000 /dev/urandom > source/d{number}/first
                 head -c 2000000 /dev/urandom > source/d{number}/large"
            ));
            scene.ok(&["backup", "source", "--storage-class", "glacier"]);
        }
        Some(scene)
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [words, &["-p", "pw", "-r", &self.repository]].concat()
    }

    fn run(&self, words: &[&str]) -> Ran {
        OURS.run(&self.bench, &self.words(words))
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    /// Paths of objects and their classes.
    fn classes(&self) -> Vec<(String, String)> {
        let listed = self
            .server
            .s3_ok("GET", &format!("/{BUCKET}?list-type=2"), &[], b"");
        let (keys, classes) = (listed.elements("Key"), listed.elements("StorageClass"));
        assert!(keys.len() == classes.len() && keys.len() < 1000);
        keys.into_iter().zip(classes).collect()
    }

    /// Paths of the packs that a restore needs, below the repository.
    fn plan(&self) -> Vec<String> {
        let address = self.bench.address("");
        let planned = self.ok(&["restore", &address, "--plan"]);
        let packs = planned.of_type("pack");
        let path = |pack: &serde_json::Value| pack["path"].as_str().unwrap().to_owned();
        packs.iter().map(path).collect()
    }

    /// From now on what is brought back arrives at once, or never.
    fn let_arrive(&self, at_once: bool) {
        let progression = match at_once {
            true => r#"{"progression": "immediate"}"#,
            false => r#"{"progression": "manual", "times": 1000000}"#,
        };
        let body = format!(r#"{{"model_name": "s3::keyrestore", "transition": {progression}}}"#);
        let path = "/moto-api/state-manager/set-transition";
        let headers = ["content-type: application/json"];
        self.server.s3_ok("POST", path, &headers, body.as_bytes());
    }
}

#[test]
fn only_packs_of_data_get_the_class_and_what_needs_none_of_them_goes_on() {
    let Some(scene) = Scene::new() else { return };
    let planned = scene.plan();
    assert_eq!(planned.len(), PARTS);
    let classes = scene.classes();
    assert!(classes.iter().any(|(key, _)| key.contains("/packs/")));
    for (key, class) in &classes {
        let is_data = planned.iter().any(|pack| key.ends_with(pack.as_str()));
        let expected = if is_data { "GLACIER" } else { "STANDARD" };
        assert_eq!(class, expected, "{key}");
    }
    scene.bench.write("source/d0/new", "new");
    scene.ok(&["backup", "source"]);
    scene.ok(&["ls", "--recursive", "latest"]);
    scene.ok(&["diff", "latest~1", "latest"]);
    scene.ok(&["check"]);
    for words in [&["--storage-class", "a b"][..], &["--storage-class", ""]] {
        let refused = scene.run(&[&["backup", "source"], words].concat());
        assert_eq!(refused.code, 2, "{refused}");
    }
    let local = scene
        .bench
        .run(&["backup", "source", "--storage-class", "GLACIER"]);
    assert_eq!(local.code, 2, "{local}");
}

#[test]
fn a_restore_says_which_packs_are_archived_and_what_to_do() {
    let Some(scene) = Scene::new() else { return };
    let address = scene.bench.address("");
    let restored = scene.run(&["restore", &address, "--target", "target"]);
    assert_eq!(restored.code, 3, "{restored}");
    for pack in scene.plan() {
        assert!(restored.err.contains(&pack), "{pack}: {restored}");
    }
    assert!(restored.err.contains("archived"), "{restored}");
    assert!(restored.err.contains("--warm-up"), "{restored}");
    let dumped = scene.run(&["dump", &scene.bench.address("/d0/first")]);
    assert_eq!(dumped.code, 3, "{dumped}");
    assert!(dumped.err.contains("--warm-up"), "{dumped}");
}

/// Nobody stores everything again because it is archived.
#[test]
fn what_is_archived_is_not_read_by_a_check_and_not_marked_as_damaged() {
    let Some(scene) = Scene::new() else { return };
    let checked = scene.run(&["check", "--read-data", "--json"]);
    assert_eq!(checked.code, 3, "{checked}");
    let summary = checked.summary();
    assert_eq!(summary["packs_archived"], PARTS, "{summary}");
    assert_eq!(summary["damage"], 0, "{summary}");
    assert_eq!(summary["packs_marked"], 0, "{summary}");
    assert!(summary["packs_read"].as_u64() > Some(0), "{summary}");
    let scrubbed = scene.run(&["check", "--scrub"]);
    assert_eq!(scrubbed.code, 3, "{scrubbed}");
    let again = scene.ok(&["backup", "source", "--json"]).summary();
    assert_eq!(again["files_new"], 0, "{again}");
    assert_eq!(
        again["bytes_stored"].as_u64().unwrap() / 1_000_000,
        0,
        "{again}"
    );
}

/// Neither gives up, marks or stores again what it cannot read.
#[test]
fn archived_packs_are_left_alone_by_a_repair_and_a_prune() {
    let Some(scene) = Scene::new() else { return };
    let pack = scene.plan().remove(0);
    let id = pack.rsplit('/').next().unwrap();
    let repaired = scene.run(&["repair", "packs", id]);
    assert_eq!(repaired.code, 3, "{repaired}");
    assert!(
        repaired.text().contains("archived, left alone"),
        "{repaired}"
    );
    let repaired = scene.run(&["repair", "packs", id, "--json"]);
    let summary = repaired.summary();
    assert_eq!(summary["packs_archived"], 1, "{summary}");
    assert_eq!(summary["packs_damaged"], 0, "{summary}");
    // Of its pack little is used from now on.
    scene.bench.sh("rm source/d0/large");
    scene.ok(&["backup", "source"]);
    let forgotten = scene.run(&["forget", "--keep-last", "1", "--prune", "--grace", "0s"]);
    assert_eq!(forgotten.code, 3, "{forgotten}");
    assert!(forgotten.err.contains("archived"), "{forgotten}");
    assert!(!forgotten.err.contains("repair packs"), "{forgotten}");
    let marks = scene.classes();
    assert!(!marks.iter().any(|(key, _)| key.contains("/damaged/")));
    let checked = scene.run(&["check", "--read-data", "--json"]);
    assert_eq!(checked.code, 3, "{checked}");
}

#[test]
fn packs_are_brought_back_and_read_as_they_come() {
    let Some(scene) = Scene::new() else { return };
    let address = scene.bench.address("");
    // One of them was brought back before.
    let first = scene.ok(&["dump", &scene.bench.address("/d1/first"), "--plan"]);
    let pack = first.of_type("pack")[0]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    let body = b"<RestoreRequest><Days>1</Days></RestoreRequest>";
    let target = format!("/{BUCKET}/{PREFIX}/{pack}?restore");
    scene.server.s3_ok("POST", &target, &[], body);
    scene.let_arrive(false);
    let words = ["restore", &address, "--target", "target", "--warm-up"];
    let mut command = OURS.prepared(&scene.bench, &scene.words(&words));
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let there = |number: usize| {
        scene
            .bench
            .path(&format!("target/d{number}/first"))
            .exists()
    };
    while !there(1) {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!there(0) && !there(2));
    scene.bench.sh(&format!("kill -INT {}", child.id()));
    let ended = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{ended}");
    assert!(ended.err.contains("2 of 3 packs are archived"), "{ended}");
    // The same command goes on.
    scene.let_arrive(true);
    scene.ok(&words);
    assert_same(&scene.bench.source, &scene.bench.path("target"));
    let address = scene.bench.address("/d2/large");
    let dumped = scene.ok(&["dump", &address, "--warm-up=1"]);
    assert!(dumped.out == std::fs::read(scene.bench.path("source/d2/large")).unwrap());
}

#[test]
fn a_store_without_cold_classes_says_so_and_words_that_contradict_are_refused() {
    let bench = Bench::new();
    bench.write("source/one", "1");
    bench.backup();
    let address = bench.address("");
    let refused = bench.run(&["restore", &address, "--target", "target", "--warm-up"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.err.contains("--warm-command"), "{refused}");
    for words in [
        &["--plan", "--warm-up"][..],
        &["--target", "target", "--warm-up", "--warm-command", "true"],
        &["--target", "target", "--dry-run", "--warm-up"],
        &["--target", "target", "--warm-up=0"],
        &["--target", "target", "--warm-up=words"],
    ] {
        let refused = bench.run(&[&["restore", &address], words].concat());
        assert_eq!(refused.code, 2, "{words:?}: {refused}");
    }
}
