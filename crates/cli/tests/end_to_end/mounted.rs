//! A mount that runs, for the tests of `bale mount`.

use crate::bench::{Bench, Ran, is_root, skipped};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A listing is looked at again every three seconds, and the kernel believes it for one.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// Can this machine mount by FUSE, and has it rsync and what sets attributes?
pub fn can_mount() -> bool {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        skipped("mounting needs root and /dev/fuse");
        return false;
    }
    for program in [
        "rsync",
        "fusermount3",
        "setfacl",
        "setfattr",
        "findmnt",
        "fuser",
    ] {
        if !crate::bench::have(program) {
            skipped(program);
            return false;
        }
    }
    true
}

/// Killed and unmounted if nobody ends it.
pub struct MountedBench<'a> {
    pub bench: &'a Bench,
    pub dir: PathBuf,
    child: Option<Child>,
    rest: Option<BufReader<ChildStdout>>,
}

impl<'a> MountedBench<'a> {
    /// At `mnt`, and there.
    pub fn start(bench: &'a Bench, words: &[&str]) -> MountedBench<'a> {
        MountedBench::at(bench, "mnt", words)
    }

    pub fn at(bench: &'a Bench, name: &str, words: &[&str]) -> MountedBench<'a> {
        let dir = bench.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = bench.command();
        command.args(["mount", "--json", name]).args(words);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        loop {
            let mut line = String::new();
            if rest.read_line(&mut line).unwrap() == 0 {
                let ran = Ran::from(child.wait_with_output().unwrap());
                panic!("{words:?}: {ran}");
            }
            let object: Value = serde_json::from_str(&line).unwrap();
            if object["type"] == "mounted" {
                break;
            }
        }
        MountedBench {
            bench,
            dir,
            child: Some(child),
            rest: Some(rest),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn signal(&self, name: &str) {
        self.sh(&format!("kill -{name} {}", self.id()));
    }

    /// In the directory of the bench, with `mnt` where it is mounted, and not for ever.
    pub fn sh(&self, script: &str) {
        let script = format!("mnt={}\n{script}", self.dir.display());
        let mut command = self.bench.prepared(Command::new("timeout"));
        let command = command.args(["-k", "5", "300", "bash", "-euo", "pipefail", "-c", &script]);
        let output = command.output().unwrap();
        let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        let out = String::from_utf8_lossy(&out);
        assert!(output.status.success(), "{script}: {out}\n{err}");
    }

    /// The source, as the latest snapshot has it.
    pub fn latest(&self) -> PathBuf {
        let source = self.bench.source.strip_prefix("/").unwrap();
        self.dir.join("latest").join(source)
    }

    /// Until this holds, which takes as long as the kernel believes a listing.
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < SEEN_WITHIN, "{what} for too long");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Peak of its memory so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.unwrap().trim().trim_end_matches(" kB");
        peak.parse().unwrap()
    }

    /// Ended by somebody: code, what it said since it was mounted, what is on stderr.
    pub fn wait(&mut self) -> (i32, Vec<Value>, String) {
        let mut text = String::new();
        let mut rest = self.rest.take().unwrap();
        rest.read_to_string(&mut text).unwrap();
        let ran = Ran::from(self.child.take().unwrap().wait_with_output().unwrap());
        let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (ran.code, objects.collect(), ran.err)
    }

    /// Unmounts it; it must end well, and have had no trouble.
    pub fn end(mut self) {
        self.signal("INT");
        let (code, objects, err) = self.wait();
        assert_eq!(code, 0, "{objects:?} {err}");
        assert!(!self.is_mounted());
    }

    pub fn is_mounted(&self) -> bool {
        let found = Command::new("findmnt").arg("-rn").arg(&self.dir).output();
        found.unwrap().status.success()
    }

    /// The next line that it says.
    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.rest.as_mut().unwrap().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for MountedBench<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut unmount = Command::new("umount");
        let unmount = unmount.arg("-l").arg(&self.dir);
        let _it_may_be_gone = unmount.stderr(Stdio::null()).status();
    }
}
