//! One connection, shared by many threads: requests go out through a short queue, and a thread that
//! reads gives each answer to the request whose number it has.
//!
//! The first thing that goes wrong with the connection as a whole (the server ends, says what is no
//! answer, answers what nobody asked, or says nothing for too long) ends it, and every request that
//! waits gets that as its error. A connection that has ended stays so.

use super::refused;
use super::request::{Request, encode_init};
use super::wire::{SftpReply, SftpVersion, decode_len, decode_reply, decode_version};
use crate::process::ServerProcess;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Packets that wait to be written: 4 MiB, while one is on its way.
const QUEUE_PACKETS_MAX: usize = 16;

/// Given to a process whose connection has ended, to end by itself.
const END_WAIT: Duration = Duration::from_secs(2);

/// A request is given up after so many time-outs even if others get their answers.
const TIMEOUTS_MAX: u32 = 4;

/// Two directions to and from a server.
pub struct SftpLink {
    from_server: Box<dyn Read + Send>,
    to_server: Box<dyn Write + Send>,
    process: Option<ServerProcess>,
}

impl SftpLink {
    /// A server that is reached through a pipe each way. Both must end when the other side ends.
    pub fn over(from_server: Box<dyn Read + Send>, to_server: Box<dyn Write + Send>) -> SftpLink {
        SftpLink {
            from_server,
            to_server,
            process: None,
        }
    }

    pub(super) fn of_process(self, process: ServerProcess) -> SftpLink {
        SftpLink {
            process: Some(process),
            ..self
        }
    }
}

/// A connection that is open, or has ended.
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    process: Option<ServerProcess>,
    timeout: Duration,
    began: Instant,
    /// When the last packet came, in milliseconds from `began`.
    heard_ms: AtomicU64,
}

struct State {
    /// Requests without an answer: as many as are in flight.
    waiting: HashMap<u32, Sender<SftpReply>>,
    next_id: u32,
    /// `None` once it has ended.
    queue: Option<Sender<Vec<u8>>>,
    end: Option<End>,
}

/// Why a connection has ended.
#[derive(Clone)]
struct End {
    kind: ErrorKind,
    text: String,
}

impl End {
    fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.text.clone())
    }
}

/// A request that was sent; its answer may be waited for, or left alone.
pub(super) struct Sent {
    shared: Arc<Shared>,
    answer: Receiver<SftpReply>,
    request: &'static str,
}

impl Connection {
    /// Says hello and waits for the server's first packet.
    pub(super) fn open(link: SftpLink, timeout: Duration) -> io::Result<(Connection, SftpVersion)> {
        let (queue, packets) = bounded(QUEUE_PACKETS_MAX);
        let state = State {
            waiting: HashMap::new(),
            next_id: 0,
            queue: Some(queue.clone()),
            end: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            process: link.process,
            timeout,
            began: Instant::now(),
            heard_ms: AtomicU64::new(0),
        });
        let connection = Connection {
            shared: shared.clone(),
        };
        let (mut to_server, mut from_server) = (link.to_server, link.from_server);
        let writer = shared.clone();
        spawn("sftp-write", move || {
            write(&writer, &mut *to_server, &packets)
        })?;
        let (hello, version) = bounded(1);
        let reader = shared.clone();
        spawn("sftp-read", move || {
            let end = read(&reader, &mut *from_server, &hello);
            reader.end(end);
        })?;
        shared.enqueue(&queue, encode_init(), "INIT")?;
        drop(queue);
        let version = shared.wait(&version, "INIT")?;
        Ok((connection, version))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.lock().end.is_some()
    }

    /// Sends a request; waits while the queue is full.
    pub(super) fn send(&self, request: &Request<'_>) -> io::Result<Sent> {
        let (sender, answer) = bounded(1);
        let (id, queue) = {
            let mut state = self.shared.lock();
            let queue = match (&state.end, &state.queue) {
                (Some(end), _) => return Err(end.error()),
                (None, Some(queue)) => queue.clone(),
                (None, None) => return Err(ErrorKind::NotConnected.into()),
            };
            (state.register(sender), queue)
        };
        (self.shared).enqueue(&queue, request.encode(id), request.name())?;
        Ok(Sent {
            shared: self.shared.clone(),
            answer,
            request: request.name(),
        })
    }
}

impl Connection {
    /// What is in the queue is still written; then the server sees the end of its input.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.queue = None;
        state.end.get_or_insert(End {
            kind: ErrorKind::NotConnected,
            text: "the connection was closed".to_owned(),
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        if let Some(process) = &self.shared.process {
            process.finish(END_WAIT);
        }
    }
}

impl Sent {
    pub(super) fn request(&self) -> &'static str {
        self.request
    }

    /// Waits for the answer.
    pub(super) fn wait(self) -> io::Result<SftpReply> {
        self.shared.wait(&self.answer, self.request)
    }
}

impl State {
    fn register(&mut self, answer: Sender<SftpReply>) -> u32 {
        // Fewer are in flight than there are numbers, by far.
        while self.waiting.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.waiting.insert(id, answer);
        id
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait on, for something that is waited for since `began`.
    fn patience(&self, began: Instant) -> Option<Duration> {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        let last = began.max(self.began + heard);
        let quiet = self.timeout.checked_sub(last.elapsed())?;
        let whole = (self.timeout.saturating_mul(TIMEOUTS_MAX)).checked_sub(began.elapsed())?;
        Some(quiet.min(whole)).filter(|left| !left.is_zero())
    }

    fn enqueue(&self, queue: &Sender<Vec<u8>>, packet: Vec<u8>, request: &str) -> io::Result<()> {
        let began = Instant::now();
        let mut packet = packet;
        while let Some(left) = self.patience(began) {
            packet = match queue.send_timeout(packet, left) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(packet)) => packet,
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.why_ended()),
            };
        }
        Err(self.give_up(request))
    }

    fn wait<T>(&self, answer: &Receiver<T>, request: &str) -> io::Result<T> {
        let began = Instant::now();
        while let Some(left) = self.patience(began) {
            match answer.recv_timeout(left) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.why_ended()),
            }
        }
        Err(self.give_up(request))
    }

    fn give_up(&self, request: &str) -> io::Error {
        let seconds = self.timeout.as_secs_f32();
        self.end(End {
            kind: ErrorKind::TimedOut,
            text: format!("the server has not answered {request} within {seconds} seconds"),
        });
        self.why_ended()
    }

    fn why_ended(&self) -> io::Error {
        let state = self.lock();
        let end = state.end.as_ref();
        end.map_or_else(|| ErrorKind::NotConnected.into(), End::error)
    }

    /// Ends the connection and everything that waits, unless it has ended.
    fn end(&self, mut end: End) {
        if self.lock().end.is_some() {
            return;
        }
        // A server that has gone says why; one that is to go may take no time over it.
        let has_gone = end.kind == ErrorKind::ConnectionAborted;
        if let Some(process) = &self.process {
            let how = process.finish(if has_gone { END_WAIT } else { Duration::ZERO });
            end.text = format!("{}: {how}", end.text);
            // Once the server has answered, whatever ends the connection may pass.
            let has_answered = self.heard_ms.load(Ordering::Relaxed) > 0;
            if has_gone
                && !has_answered
                && let Some((kind, advice)) = refused::what_stays(&how)
            {
                end.kind = kind;
                end.text = format!("{}; {advice}", end.text);
            }
        }
        let mut state = self.lock();
        state.end.get_or_insert(end);
        state.queue = None;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

/// Writes until the queue has no sender any more; the server sees its input end then.
fn write(shared: &Shared, to_server: &mut dyn Write, packets: &Receiver<Vec<u8>>) {
    for packet in packets {
        let written = to_server
            .write_all(&packet)
            .and_then(|()| to_server.flush());
        if let Err(error) = written {
            shared.end(End {
                kind: ErrorKind::ConnectionAborted,
                text: format!("the server takes no requests any more ({error})"),
            });
            return;
        }
    }
}

/// Reads until something is wrong, or the server ends.
fn read(shared: &Shared, from_server: &mut dyn Read, hello: &Sender<SftpVersion>) -> End {
    let first = read_packet(from_server).and_then(|packet| {
        decode_version(&packet).map_err(|error| End {
            kind: ErrorKind::InvalidData,
            text: error.to_string(),
        })
    });
    match first {
        Ok(version) => {
            // Nobody waits for it any more if the time was up.
            let _ = hello.send(version);
        }
        Err(end) if end.kind == ErrorKind::InvalidData => {
            let text = format!(
                "what came first is no SFTP ({}): does the login shell of the server print \
                 something?",
                end.text
            );
            return End { text, ..end };
        }
        Err(end) => return end,
    }
    loop {
        if let Err(end) = read_packet(from_server).and_then(|packet| hand_out(shared, &packet)) {
            return end;
        }
    }
}

fn hand_out(shared: &Shared, packet: &[u8]) -> Result<(), End> {
    let invalid = |text: String| End {
        kind: ErrorKind::InvalidData,
        text: format!("the server sent {text}"),
    };
    let (id, reply) = decode_reply(packet).map_err(|error| invalid(error.to_string()))?;
    let heard = shared.began.elapsed().as_millis();
    (shared.heard_ms).store(u64::try_from(heard).unwrap_or(u64::MAX), Ordering::Relaxed);
    let Some(waiting) = shared.lock().waiting.remove(&id) else {
        return Err(invalid(format!(
            "an answer to request {id}, which nobody made or which is answered"
        )));
    };
    // A request that was left alone has nobody who takes it.
    let _ = waiting.try_send(reply);
    Ok(())
}

fn read_packet(from_server: &mut dyn Read) -> Result<Vec<u8>, End> {
    let gone = |error: io::Error| End {
        kind: ErrorKind::ConnectionAborted,
        text: match error.kind() {
            ErrorKind::UnexpectedEof => "the server has closed the connection".to_owned(),
            _ => format!("the connection is gone ({error})"),
        },
    };
    let mut prefix = [0; 4];
    from_server.read_exact(&mut prefix).map_err(gone)?;
    let len = decode_len(prefix).map_err(|error| End {
        kind: ErrorKind::InvalidData,
        text: error.to_string(),
    })?;
    let mut packet = vec![0; len];
    from_server.read_exact(&mut packet).map_err(gone)?;
    Ok(packet)
}
