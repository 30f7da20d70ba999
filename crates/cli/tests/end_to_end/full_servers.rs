//! Servers whose disk runs full under a backup: it says so and ends, nothing half is left, and with
//! room again the next backup is whole.

use crate::bench::{Bench, Ran, is_root, skipped};
use crate::serving::start;
use bale_testkit::servers::{ftp_of_pyftpdlib, sftp_server, webdav_of_wsgidav};
use std::path::{Path, PathBuf};

/// A small disk over a directory, and off it with the value.
struct SmallDisk<'a> {
    bench: &'a Bench,
    dir: PathBuf,
}

impl<'a> SmallDisk<'a> {
    fn over(bench: &'a Bench, dir: &Path) -> SmallDisk<'a> {
        bench.sh(&format!(
            "mount -t tmpfs -o size=10M tmpfs {}",
            dir.display()
        ));
        let dir = dir.to_owned();
        SmallDisk { bench, dir }
    }

    fn grow(&self) {
        let dir = self.dir.display();
        self.bench.sh(&format!("mount -o remount,size=60M {dir}"));
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        self.bench.sh(&format!("umount -l {}", self.dir.display()));
    }
}

/// `None`, and loudly, where nothing can be mounted.
fn bench() -> Option<Bench> {
    if !is_root() {
        skipped("mounting needs root");
        return None;
    }
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.sh("head -c 12000000 /dev/urandom > source/large; echo 1 > source/small");
    Some(bench)
}

fn runs_full(bench: &Bench, disk: &SmallDisk<'_>, repository: &str, variables: &[(&str, &str)]) {
    let run = |words: &[&str]| -> Ran {
        let mut command = bench.command();
        command.args([words, &["-p", "pw", "-r", repository]].concat());
        command.envs(variables.iter().copied());
        Ran::from(command.output().unwrap())
    };
    let ok = |words: &[&str]| {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{repository}: {words:?}: {ran}");
        ran
    };
    ok(&["init"]);
    // What does not pass is not waited for; were it, this would end it.
    let words = ["backup", "source", "--pack-size", "4M", "--retry-for", "8s"];
    let full = run(&words);
    assert!([1, 3].contains(&full.code), "{repository}: {full}");
    let said = full.err.to_lowercase();
    let sentences = ["no space left", "is full", "insufficient storage"];
    let says_so = sentences.iter().any(|words| said.contains(words));
    let tries_again = said.contains("trying again");
    match repository.split_once(':').expect("a scheme").0 {
        "rest" | "sftp" => assert!(says_so && !tries_again, "{full}"),
        // "426 None; transfer aborted", says pyftpdlib, and FTP has no way to look.
        "ftp" => assert!(said.contains("the repository cannot be reached"), "{full}"),
        // It is asked for its room, which may be more than none a moment after it refused.
        _ => assert!(says_so, "{full}"),
    }
    let listed = ok(&["snapshots", "--json"]).of_type("snapshot");
    assert!(listed.iter().all(|snapshot| snapshot["partial"] == true));

    disk.grow();
    ok(&words);
    ok(&["check", "--read-data"]);
    let listed = ok(&["snapshots", "--json"]).of_type("snapshot");
    let whole = listed
        .iter()
        .filter(|snapshot| snapshot["partial"] == false);
    assert_eq!(whole.count(), 1, "{listed:?}");
    ok(&["restore", &bench.address(""), "--target", "back"]);
    bench.sh("diff -r source back");
}

#[test]
fn a_server_of_ours_that_runs_full_says_so_and_goes_on_with_room() {
    let Some(bench) = bench() else { return };
    std::fs::create_dir(bench.path("served")).unwrap();
    let disk = SmallDisk::over(&bench, &bench.path("served"));
    let served = bench.path("served").display().to_string();
    let (_server, address) = start(&bench, &["--no-auth", &served]);
    runs_full(&bench, &disk, &format!("rest:http://{address}/name"), &[]);
}

#[test]
fn a_webdav_server_that_runs_full_is_said_to_be_and_goes_on_with_room() {
    let Some(bench) = bench() else { return };
    let server = webdav_of_wsgidav();
    let disk = SmallDisk::over(&bench, &server.served());
    runs_full(
        &bench,
        &disk,
        &format!("webdav:http://{}/r", server.address()),
        &[],
    );
}

#[test]
fn an_ftp_server_that_runs_full_costs_the_run_only_and_goes_on_with_room() {
    let Some(bench) = bench() else { return };
    let server = ftp_of_pyftpdlib();
    let disk = SmallDisk::over(&bench, &server.served());
    runs_full(
        &bench,
        &disk,
        &format!("ftp://me:s3cr3t@{}/r", server.address()),
        &[],
    );
}

#[test]
fn an_sftp_server_that_runs_full_is_said_to_be_and_goes_on_with_room() {
    let Some(bench) = bench() else { return };
    std::fs::create_dir(bench.path("far")).unwrap();
    let disk = SmallDisk::over(&bench, &bench.path("far"));
    let repository = format!("sftp:h:{}/r", bench.path("far").display());
    let server = sftp_server().display().to_string();
    runs_full(
        &bench,
        &disk,
        &repository,
        &[("BALE_SFTP_COMMAND", &server)],
    );
}
