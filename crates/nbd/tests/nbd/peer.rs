//! NBD programs of others, started for a test and ended with it.

use bale_nbd::{NbdClient, NbdClientOptions, NbdExtent, NbdUri};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Hands a listening socket, which is its input, to a program.
const HAND_OVER: &str = "exec 3<&0 </dev/null || exit; LISTEN_PID=$$; LISTEN_FDS=1; \
                         export LISTEN_PID LISTEN_FDS; exec \"$@\"";

/// Are all these programs here? Said loudly if not.
pub fn have_all(programs: &[&str]) -> bool {
    let missing: Vec<_> = (programs.iter())
        .filter(|program| !bale_testkit::have(program))
        .copied()
        .collect();
    if !missing.is_empty() {
        bale_testkit::skipped(&format!("{} not installed", missing.join(", ")));
    }
    missing.is_empty()
}

/// A server of somebody else.
pub struct Peer {
    child: Child,
    pub dir: TempDir,
}

impl Peer {
    /// Starts a program that takes a listening socket from its starter: it can be connected to at
    /// once, whenever it is ready.
    pub fn start(program: &str, arguments: &[&str]) -> Peer {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let child = Command::new("/bin/sh")
            .args(["-c", HAND_OVER, "sh", program])
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Peer { child, dir }
    }

    pub fn nbdkit(arguments: &[&str]) -> Peer {
        Peer::start("nbdkit", &[&["--foreground"], arguments].concat())
    }

    /// Serves a file, to as many as want it, until it is ended.
    pub fn qemu_nbd(file: &Path, format: &str) -> Peer {
        let format = format!("--format={format}");
        let file = file.to_str().unwrap();
        Peer::start("qemu-nbd", &["--persistent", "--shared=16", &format, file])
    }

    pub fn uri(&self, export: &str) -> NbdUri {
        let socket = self.dir.path().join("socket");
        NbdUri::parse(&format!("nbd+unix:///{export}?socket={}", socket.display())).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(uri: &NbdUri) -> NbdClient {
    NbdClient::connect(uri, &NbdClientOptions::default())
        .unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// An error with its reasons.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut error = error.source();
    while let Some(reason) = error {
        text = format!("{text}: {reason}");
        error = reason.source();
    }
    text
}

pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

/// Bytes that are nowhere alike.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A file of that length with data at some places and holes elsewhere.
pub fn sparse_file(path: &Path, len: u64, data: &[(u64, usize)]) -> PathBuf {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for (offset, bytes) in data {
        file.write_all_at(&pattern(*offset + 1, *bytes), *offset)
            .unwrap();
    }
    file.sync_all().unwrap();
    path.to_owned()
}

/// What `nbdinfo --map` lists: offset, length and type.
pub fn nbdinfo_map(uri: &NbdUri, context: &str) -> Vec<(u64, u64, u64)> {
    let map = format!("--map={context}");
    let output = run("nbdinfo", &["--json", &map, &uri.to_string()]);
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut extents: Vec<(u64, u64, u64)> = Vec::new();
    for extent in listed.as_array().unwrap() {
        let number = |name: &str| extent[name].as_u64().unwrap();
        let (offset, length, kind) = (number("offset"), number("length"), number("type"));
        match extents.last_mut() {
            Some(last) if last.2 == kind => last.1 += length,
            _ => extents.push((offset, length, kind)),
        }
    }
    extents
}

pub fn extents(client: &NbdClient) -> Vec<NbdExtent> {
    client
        .extents(0..client.len())
        .collect::<Result<_, _>>()
        .unwrap()
}

/// As `nbdinfo` lists `base:allocation`.
pub fn allocation(client: &NbdClient) -> Vec<(u64, u64, u64)> {
    let kind = |extent: &NbdExtent| u64::from(extent.is_hole) | u64::from(extent.is_zero) << 1;
    let extents = extents(client);
    extents
        .iter()
        .map(|extent| (extent.offset, extent.bytes, kind(extent)))
        .collect()
}
