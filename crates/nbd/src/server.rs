//! A server: images of this process for other programs on this machine, such as a hypervisor.
//!
//! It listens on a Unix socket that only its user may connect to, or on a port of the loopback
//! address, which every user of the machine may: nothing is encrypted and nobody is asked for a
//! password, so that other addresses are for who says so. Clients are bounded in number, and so is
//! the memory that they take together; each has a thread.

mod listener;
mod negotiate;
mod transmit;

use crate::export::NbdExport;
use crate::socket::Socket;
use crate::uri::{NbdTransport, NbdUri};
use crate::wire::{OPTION_BYTES_MAX, REQUEST_BYTES_MAX};
use listener::Listener;
use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients at once; further connections are closed.
const CLIENTS_MAX: usize = 16;

/// Memory of a server at most: of each client a piece of data or an option, and extents with their
/// bytes; and one answer that is large.
pub const SERVER_BYTES: usize = CLIENTS_MAX
    * (transmit::PIECE_BYTES as usize + OPTION_BYTES_MAX + transmit::EXTENTS_MAX * 48)
    + REQUEST_BYTES_MAX as usize;

/// For everything that a client says before its first request.
const NEGOTIATION_MAX: Duration = Duration::from_secs(30);

/// For a client that reads nothing of its answer.
const SEND_MAX: Duration = Duration::from_secs(60);

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum NbdServerAddress {
    /// A path at which nothing is, or a socket that nobody listens on any more.
    Unix(PathBuf),
    /// Of the loopback address; port 0 takes a free one.
    Loopback(SocketAddr),
    /// Of any address: whoever reaches it is served.
    Anywhere(SocketAddr),
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum NbdServerError {
    #[error("{0} is not an address of this machine alone, and an export has no password")]
    NotLoopback(SocketAddr),
    #[error("somebody listens on the socket {}", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket", .0.display())]
    NoSocket(PathBuf),
    #[error("listen on {0}")]
    Listen(String, #[source] io::Error),
    #[error("start a thread to listen")]
    Thread(#[source] io::Error),
}

/// A server that runs. Dropping it ends it as `stop` does.
pub struct NbdServer {
    shared: Arc<Served>,
    transport: NbdTransport,
    /// Closing it ends the thread that accepts.
    wake: Option<std::os::unix::net::UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// What all clients have in common.
struct Served {
    exports: Vec<(String, Arc<dyn NbdExport>)>,
    clients: Mutex<Clients>,
    sessions: AtomicU64,
    /// Held for an answer that is large and must be whole.
    large: Mutex<()>,
}

#[derive(Default)]
struct Clients {
    next: u64,
    is_stopping: bool,
    /// A second handle of each socket, and the thread that serves it.
    running: HashMap<u64, (Socket, Option<JoinHandle<()>>)>,
}

impl Served {
    /// The export of a name; without a name the first.
    fn find(&self, name: &str) -> Option<&Arc<dyn NbdExport>> {
        let mut exports = self.exports.iter();
        let found = match name {
            "" => (exports.clone())
                .find(|(named, _)| named.is_empty())
                .or_else(|| exports.next()),
            name => exports.find(|(named, _)| named == name),
        };
        found.map(|(_, export)| export)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NbdServer {
    /// Serves these exports by their names, until it is stopped.
    pub fn start(
        address: &NbdServerAddress,
        exports: Vec<(String, Arc<dyn NbdExport>)>,
    ) -> Result<NbdServer, NbdServerError> {
        let listener = Listener::bind(address)?;
        let transport = listener.transport();
        let shared = Arc::new(Served {
            exports,
            clients: Mutex::default(),
            sessions: AtomicU64::new(0),
            large: Mutex::default(),
        });
        let (wake, woken) =
            std::os::unix::net::UnixStream::pair().map_err(NbdServerError::Thread)?;
        let served = shared.clone();
        let thread = std::thread::Builder::new().name("nbd-accept".to_owned());
        let thread = thread.spawn(move || {
            while let Some(socket) = listener.accept(&woken) {
                serve(&served, socket);
            }
        });
        Ok(NbdServer {
            shared,
            transport,
            wake: Some(wake),
            thread: Some(thread.map_err(NbdServerError::Thread)?),
        })
    }

    /// Where an export of it is.
    pub fn uri(&self, export: &str) -> NbdUri {
        NbdUri {
            transport: self.transport.clone(),
            is_encrypted: false,
            certificates: None,
            export: export.to_owned(),
            bitmap: None,
        }
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients().running.len()
    }

    /// Clients that chose an export, since the beginning.
    pub fn sessions(&self) -> u64 {
        self.shared.sessions.load(Ordering::Relaxed)
    }

    /// Accepts nobody any more, answers what was requested, and closes all connections.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
        let threads: Vec<_> = {
            let mut clients = self.shared.clients();
            clients.is_stopping = true;
            let running = clients.running.values_mut();
            running
                .filter_map(|(socket, thread)| {
                    // What waits for a request reads its end; what answers one goes on.
                    socket.shut_down(Shutdown::Read);
                    thread.take()
                })
                .collect()
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Gives a client its thread, unless there are too many.
fn serve(served: &Arc<Served>, socket: Socket) {
    let Ok(second) = socket.try_clone() else {
        return;
    };
    let mut clients = served.clients();
    if clients.is_stopping || clients.running.len() >= CLIENTS_MAX {
        return;
    }
    clients.next += 1;
    let number = clients.next;
    let shared = served.clone();
    let thread = std::thread::Builder::new().name("nbd-client".to_owned());
    let thread = thread.spawn(move || {
        // A client that speaks another language, or has gone, ends itself alone.
        let _ = serve_client(&shared, socket);
        let gone = shared.clients().running.remove(&number);
        if let Some((socket, _)) = gone {
            socket.shut_down(Shutdown::Both);
        }
    });
    // Without a thread both sockets close.
    if let Ok(thread) = thread {
        clients.running.insert(number, (second, Some(thread)));
    }
}

fn serve_client(served: &Served, socket: Socket) -> io::Result<()> {
    socket.set_write_timeout(SEND_MAX)?;
    let (mut reader, mut writer) = crate::stream::halves(socket)?;
    reader.deadline = Some(std::time::Instant::now() + NEGOTIATION_MAX);
    let Some(session) = negotiate::negotiate(served, &mut reader, &mut writer)? else {
        return Ok(());
    };
    served.sessions.fetch_add(1, Ordering::Relaxed);
    reader.deadline = None;
    // A client may say nothing for days.
    reader.socket().set_no_read_timeout()?;
    transmit::transmit(&session, &served.large, &mut reader, &mut writer)
}
