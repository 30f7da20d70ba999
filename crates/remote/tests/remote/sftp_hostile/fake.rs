//! An SFTP server in this process that keeps files in memory and misbehaves as it is told.
//!
//! Written from the protocol's document and not from our client, so that a mistake in one is not
//! in both.

pub mod scene;
mod talk;

use bale_remote::sftp::{SftpLink, SftpServer};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The server's clock.
pub const NOW: u32 = 1_700_000_000;

/// Longer than any test waits for an answer that comes.
pub const PATIENCE: Duration = Duration::from_secs(600);

pub const EXTENSIONS: [(&str, &str); 4] = [
    ("fsync@openssh.com", "1"),
    ("hardlink@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
];

/// What is done to one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twist {
    /// The request is not carried out, and fails.
    Fails,
    /// The request is carried out, and fails.
    FailsAfter,
    /// The request is not carried out, and succeeds.
    Lies,
    WrongId,
    Twice,
    Oversize,
    WrongType,
    Garbage,
    Empty,
    /// It does not come.
    Silent,
}

/// How it behaves.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Names of extensions that are announced.
    pub announced: Vec<&'static str>,
    /// Those that are refused when they are used.
    pub refused: Vec<&'static str>,
    /// Bytes of the first connection's output before it is cut.
    pub cut_after: Option<usize>,
    /// Number of an answer of the first connection, from 0, without the greeting.
    pub twist: Option<(usize, Twist)>,
    /// Bytes that fit.
    pub room: usize,
    pub read_bytes_max: usize,
    /// Reads and writes are answered in groups of so many, the last first.
    pub group: usize,
    /// Further connections are refused.
    pub connections_max: usize,
    pub rename_replaces: bool,
    pub endless_listing: bool,
    /// Somebody else makes a directory just after it was missing.
    pub dirs_appear: bool,
    /// A file that somebody else makes when a temporary one is opened.
    pub made_meanwhile: Option<(String, Vec<u8>)>,
}

impl Default for Manners {
    fn default() -> Self {
        Manners {
            announced: EXTENSIONS.map(|(name, _)| name).to_vec(),
            refused: Vec::new(),
            cut_after: None,
            twist: None,
            room: usize::MAX,
            read_bytes_max: usize::MAX,
            group: 1,
            connections_max: usize::MAX,
            rename_replaces: false,
            endless_listing: false,
            dirs_appear: false,
            made_meanwhile: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Dir,
    File { bytes: Arc<Vec<u8>>, modified: u32 },
}

#[derive(Clone, Default)]
pub struct FakeServer {
    state: Arc<Mutex<State>>,
    manners: Arc<Mutex<Manners>>,
}

#[derive(Default)]
struct State {
    tree: BTreeMap<String, Node>,
    connections: usize,
    /// That have written.
    writers: usize,
    /// Answers and bytes of the first connection.
    answers: usize,
    written: usize,
    requests: Vec<String>,
}

impl FakeServer {
    pub fn new(manners: Manners) -> FakeServer {
        let server = FakeServer::default();
        server.behave(manners);
        server
    }

    /// From now on so; the next connection is the first.
    pub fn behave(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
        let mut state = self.lock();
        (state.connections, state.answers, state.written) = (0, 0, 0);
        state.writers = 0;
    }

    /// As a client reaches it; the repository is `repo`.
    pub fn reach(&self, timeout: Duration) -> SftpServer {
        let fake = self.clone();
        SftpServer::over("repo", timeout, move || {
            let connections_max = fake.manners.lock().unwrap().connections_max;
            if fake.connections() >= connections_max {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = UnixStream::pair()?;
            let fake = fake.clone();
            std::thread::spawn(move || fake.serve(theirs));
            let reader = ours.try_clone()?;
            Ok(SftpLink::over(Box::new(reader), Box::new(Closing(ours))))
        })
    }

    pub fn tree(&self) -> BTreeMap<String, Node> {
        self.lock().tree.clone()
    }

    pub fn set(&self, path: &str, node: Option<Node>) {
        match node {
            Some(node) => self.lock().tree.insert(path.to_owned(), node),
            None => self.lock().tree.remove(path),
        };
    }

    /// Answers and bytes of the first connection so far.
    pub fn sent(&self) -> (usize, usize) {
        let state = self.lock();
        (state.answers, state.written)
    }

    /// That were made since it behaves as it does.
    pub fn connections(&self) -> usize {
        self.lock().connections
    }

    /// Connections that have written since it behaves as it does.
    pub fn writers(&self) -> usize {
        self.lock().writers
    }

    /// Names of requests since this was called last.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve(&self, stream: UnixStream) {
        let manners = self.manners.lock().unwrap().clone();
        let is_first = {
            let mut state = self.lock();
            state.connections += 1;
            state.connections == 1
        };
        talk::hold(self.clone(), manners, is_first, stream);
    }
}

/// A stream that tells the other side when it is dropped.
struct Closing(UnixStream);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

pub fn file(bytes: &[u8], modified: u32) -> Node {
    Node::File {
        bytes: Arc::new(bytes.to_vec()),
        modified,
    }
}
