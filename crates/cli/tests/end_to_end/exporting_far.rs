//! Exports of what is not at hand: a server that goes while they are read and comes back, packs in
//! a cold class, and packs that are lost.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::{OURS, named};
use crate::exporting::Exported;
use crate::serving;
use bale_nbd::{NbdClient, NbdClientOptions, NbdUri};
use bale_testkit::servers;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 1 << 20;

fn connect(exported: &Exported) -> NbdClient {
    let uri = NbdUri::parse(exported.uri()).unwrap();
    NbdClient::connect(&uri, &NbdClientOptions::default()).unwrap()
}

/// Some bytes of a block are those, or cannot be had: an error of the device, and nothing else.
fn is_there(client: &NbdClient, bytes: &[u8], block: usize) -> bool {
    let mut buffer = vec![1; 4096];
    let from = block * BLOCK + 4096;
    match client.read_at(from as u64, &mut buffer) {
        Ok(()) => {
            assert!(buffer == bytes[from..from + 4096], "block {block}");
            true
        }
        Err(error) => {
            assert!(error.is_of_device(), "block {block}: {error}");
            false
        }
    }
}

/// Noise in blocks, so that each is a chunk.
fn noise(bench: &Bench, name: &str, blocks: usize) -> Vec<u8> {
    bench.sh(&format!("head -c {blocks}M /dev/urandom > {name}"));
    fs::read(bench.path(name)).unwrap()
}

#[test]
fn while_a_server_is_away_reads_fail_and_the_export_goes_on_when_it_is_back() {
    let bench = Bench::new();
    let bytes = noise(&bench, "disk.img", 40);
    fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let words = ["--no-auth", served.as_str()];
    let (mut server, address) = serving::start(&bench, &words);
    let repository = format!("rest:http://{address}/name");
    bench.write("pw", "secret");
    let to_it = ["-p", "pw", "-r", &repository, "--retry-for", "1s"];
    bench.ok(&[&["init"], &to_it[..]].concat());
    bench.ok(&[&["backup", "--image", "disk.img"], &to_it[..]].concat());
    let export = [&["latest", "--nbd", "unix:s"], &to_it[..]].concat();
    let exported = Exported::started(bench.command(), &export, 1);
    let client = connect(&exported);
    assert!(is_there(&client, &bytes, 2));

    // Somebody reads all the while: whatever he gets is right.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let client = connect(&exported);
            while !is_over.load(Ordering::Relaxed) {
                for block in 0..24 {
                    is_there(&client, &bytes, block);
                }
            }
        });
        server.kill();
        // What was read before needs no server, and what was not is an error and no silence.
        assert!(is_there(&client, &bytes, 2));
        for block in [30, 35, 30] {
            assert!(!is_there(&client, &bytes, block));
        }
        let _server = serving::start_at(&bench, &address, &words);
        for block in 0..40 {
            assert!(is_there(&client, &bytes, block), "block {block}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(client);
    let (code, summary) = exported.end();
    assert_eq!(code, 3, "{summary}");
    assert!(summary["problems"].as_u64() >= Some(2), "{summary}");
}

/// Whoever waits for a quarter of an hour can be told that it is over.
#[test]
fn an_export_whose_server_is_away_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let bytes = noise(&bench, "disk.img", 12);
    fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let words = ["--no-auth", served.as_str()];
    let (mut server, address) = serving::start(&bench, &words);
    let repository = format!("rest:http://{address}/name");
    bench.write("pw", "secret");
    let to_it = ["-p", "pw", "-r", repository.as_str()];
    bench.ok(&[&["init"], &to_it[..]].concat());
    bench.ok(&[&["backup", "--image", "disk.img"], &to_it[..]].concat());
    let export = [&["latest", "--nbd", "unix:s"], &to_it[..]].concat();
    let mut exported = Exported::started(bench.command(), &export, 1);
    let said = exported.child.as_mut().unwrap().stderr.take().unwrap();
    let client = connect(&exported);
    server.kill();
    std::thread::scope(|threads| {
        let reading = threads.spawn(|| client.read_at(11 << 20, &mut [0; 4096]));
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("trying again")));
        let (code, summary) = exported.end();
        assert_eq!(code, 3, "{summary}");
        let read = reading.join().unwrap();
        assert!(read.is_err(), "{} bytes are there", bytes.len());
    });
}

/// A snapshot whose last block alone is in a pack of its own; the plan of its export.
fn in_two_packs(bench: &Bench, run: &dyn Fn(&[&str]) -> Ran) -> (Vec<u8>, Vec<Value>) {
    noise(bench, "disk.img", 4);
    let ok = |words: &[&str]| {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    };
    ok(&["backup", "--image", "disk.img", "--memory", "128M"]);
    bench.sh("head -c 1M /dev/urandom | dd of=disk.img bs=1M seek=3 conv=notrunc status=none");
    ok(&["backup", "--image", "disk.img", "--memory", "128M"]);
    let plan = ok(&["export", "latest", "--nbd", "unix:s", "--plan"]).of_type("pack");
    assert_eq!(plan.len(), 2, "{plan:?}");
    (fs::read(bench.path("disk.img")).unwrap(), plan)
}

#[test]
fn packs_that_are_lost_fail_the_reads_of_their_blocks_and_everything_else_is_right() {
    let bench = Bench::new();
    let (bytes, plan) = in_two_packs(&bench, &|words| bench.run(words));
    // The one with a single block of it.
    let pack = plan.iter().min_by_key(|pack| pack["bytes"].as_u64());
    let path = pack.unwrap()["path"].as_str().unwrap();
    fs::remove_file(bench.repository().join(path)).unwrap();
    let exported = Exported::started(bench.command(), &["latest", "--nbd", "unix:s"], 1);
    let client = connect(&exported);
    for _ in 0..3 {
        let there: Vec<bool> = (0..4).map(|it| is_there(&client, &bytes, it)).collect();
        assert_eq!(there, [true, true, true, false]);
    }
    drop(client);
    let (code, summary) = exported.end();
    assert_eq!((code, &summary["problems"]), (3, &1.into()), "{summary}");
}

#[test]
fn of_packs_in_a_cold_class_an_export_says_what_to_do_and_brings_them_back_if_asked() {
    if !have("moto_server") {
        return skipped("cold classes of S3: moto_server (PyPI moto[server]) is missing");
    }
    let server = servers::moto("tests");
    let repository = named(&server, "tests/a/prefix");
    let bench = Bench::new();
    bench.write("pw", "secret");
    let to_it = ["-p", "pw", "-r", repository.as_str()];
    let run = |words: &[&str]| {
        let class: &[&str] = match words[0] {
            "backup" => &["--storage-class", "glacier"],
            _ => &[],
        };
        OURS.run(&bench, &[words, &to_it, class].concat())
    };
    assert_eq!(run(&["init"]).code, 0);
    let (bytes, plan) = in_two_packs(&bench, &run);

    let words = [&["latest", "--nbd", "unix:s"], &to_it[..]].concat();
    let exported = Exported::started(OURS.prepared(&bench, &[]), &words, 1);
    let client = connect(&exported);
    assert!((0..4).all(|block| !is_there(&client, &bytes, block)));
    drop(client);
    let (code, objects) = exported.end_saying();
    let summary = objects.last().unwrap();
    assert_eq!((code, &summary["problems"]), (3, &4.into()), "{summary}");
    let said = format!("{objects:?}");
    for word in ["archived", "--warm-up"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    for pack in &plan {
        let id = pack["path"].as_str().unwrap();
        assert!(said.contains(id), "{id}: {said}");
    }

    // Brought back, it is an export as any.
    let body = r#"{"model_name": "s3::keyrestore", "transition": {"progression": "immediate"}}"#;
    let headers = ["content-type: application/json"];
    let path = "/moto-api/state-manager/set-transition";
    server.s3_ok("POST", path, &headers, body.as_bytes());
    let warm = [&words[..], &["--warm-up"]].concat();
    let exported = Exported::started(OURS.prepared(&bench, &[]), &warm, 1);
    let client = connect(&exported);
    assert!((0..4).all(|block| is_there(&client, &bytes, block)));
    drop(client);
    let (code, summary) = exported.end();
    assert_eq!((code, &summary["problems"]), (0, &0.into()), "{summary}");
}
