//! A bad line between a client and a server of this machine: bytes go through until the fault comes
//! that was asked for.
//!
//! It knows nothing of what goes through but, for answers that are replaced or come twice, where an
//! answer begins; and of FTP, where a server names the port of a connection for data, which then
//! goes through here as well.

use crate::open_lines::OpenLines;
use crate::servers::loopback_of_its_own;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes read at once: an answer without a large body comes in one piece.
const PIECE_BYTES: usize = 16 << 10;

/// Says how long a body is.
const LENGTH: &str = "content-length";

/// Between two looks whether the proxy is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Which bytes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    Server,
    Client,
}

/// What is spoken on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    Http,
    /// Commands; data goes over lines of its own.
    Ftp,
    /// Anything: each piece that comes is an answer.
    Bytes,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// Nothing does.
    None,
    /// Both ends are cut once so many bytes of all connections have gone there, once.
    CutOnce(Toward, u64),
    /// Every connection is cut after so many bytes.
    CutEach(Toward, u64),
    /// Once so many bytes of all connections have gone there, every connection is cut, and nobody
    /// is let in any more.
    DeadAfter(Toward, u64),
    /// The answer with this number is replaced by one with this status; its request was done.
    Replaced(u64, u16),
    /// The answer with this number comes twice.
    Twice(u64),
    /// From this answer on, nothing comes, and nothing ends.
    Silent(u64),
    /// Answers come byte by byte.
    Slow,
    /// The body of the answer with this number is longer by so many bytes than its head says, or
    /// shorter, and then the line is cut. Of HTTP, and of answers that come with their body.
    OtherLength(u64, i64),
}

struct Line {
    /// Where it listens.
    ip: IpAddr,
    server: SocketAddr,
    spoken: Spoken,
    fault: LineFault,
    to_server: AtomicU64,
    to_client: AtomicU64,
    answers: AtomicU64,
    was_cut: AtomicBool,
    is_dead: AtomicBool,
    is_over: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Where connections are waited for.
    doors: Mutex<Vec<SocketAddr>>,
    /// Cut when the proxy ends.
    ends: OpenLines,
}

/// Listens until it is dropped.
pub struct FaultProxy {
    address: SocketAddr,
    line: Arc<Line>,
    listening: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// In front of a server of HTTP.
    pub fn new(server: SocketAddr, fault: LineFault) -> FaultProxy {
        FaultProxy::of(Spoken::Http, server, fault)
    }

    /// In front of a server.
    pub fn of(spoken: Spoken, server: SocketAddr, fault: LineFault) -> FaultProxy {
        let ip = match spoken {
            Spoken::Ftp => loopback_of_its_own(),
            Spoken::Http | Spoken::Bytes => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let listener = TcpListener::bind((ip, 0)).expect("a port of this machine");
        let address = listener.local_addr().expect("it listens");
        let line = Arc::new(Line {
            ip,
            server,
            spoken,
            fault,
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            was_cut: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            threads: Mutex::default(),
            doors: Mutex::new(vec![address]),
            ends: OpenLines::default(),
        });
        let listens = line.clone();
        let listening = std::thread::spawn(move || listens.listen(&listener));
        FaultProxy {
            address,
            line,
            listening: Some(listening),
        }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that have gone to the server and to clients, and answers that came.
    pub fn counts(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        let line = &self.line;
        (of(&line.to_server), of(&line.to_client), of(&line.answers))
    }

    /// Has the fault come?
    pub fn has_struck(&self) -> bool {
        self.line.was_cut.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.line.is_over.store(true, Ordering::SeqCst);
        // Wakes who waits for a connection.
        for door in std::mem::take(&mut *lock(&self.line.doors)) {
            let _it_may_listen = TcpStream::connect(door);
        }
        if let Some(listening) = self.listening.take() {
            let _ended = listening.join();
        }
        loop {
            self.line.ends.cut();
            // Those of a line for data may begin others.
            let threads = std::mem::take(&mut *lock(&self.line.threads));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                let _ended = thread.join();
            }
        }
    }
}

impl Line {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn listen(self: &Arc<Line>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over() {
                return;
            }
            if let Ok(client) = client {
                let _one_that_fails_is_closed = self.join(client, self.server, self.spoken);
            }
        }
    }

    /// Passes on what client and server send each other.
    fn join(
        self: &Arc<Line>,
        client: TcpStream,
        server: SocketAddr,
        spoken: Spoken,
    ) -> io::Result<()> {
        let server = TcpStream::connect(server)?;
        let [client, server] = [client, server].map(|end| {
            let _slower_without = end.set_nodelay(true);
            self.ends.add(end)
        });
        // Whoever shuts all sees these ends, or is seen here.
        if self.is_over() || self.is_dead.load(Ordering::SeqCst) {
            self.ends.cut();
            return Ok(());
        }
        for toward in [Toward::Server, Toward::Client] {
            let (from, to) = match toward {
                Toward::Server => (client.clone(), server.clone()),
                Toward::Client => (server.clone(), client.clone()),
            };
            let line = self.clone();
            let thread = std::thread::spawn(move || {
                let _either_end_is_gone = line.pass(spoken, toward, &from, &to);
                for end in [from, to] {
                    let _it_was_shut = end.shutdown(Shutdown::Both);
                }
            });
            lock(&self.threads).push(thread);
        }
        Ok(())
    }

    /// A line to a server's port for data, for one connection; the port that clients go to instead.
    fn line_for_data(self: &Arc<Line>, port: u16) -> io::Result<u16> {
        let listener = TcpListener::bind((self.ip, 0))?;
        let door = listener.local_addr()?;
        lock(&self.doors).push(door);
        let (line, server) = (self.clone(), SocketAddr::new(self.server.ip(), port));
        let thread = std::thread::spawn(move || {
            if let Ok((client, _)) = listener.accept()
                && !line.is_over()
            {
                let _one_that_fails_is_closed = line.join(client, server, Spoken::Bytes);
            }
        });
        lock(&self.threads).push(thread);
        match self.is_over() {
            // Nobody wakes it any more.
            true => TcpStream::connect(door).map(|_| door.port()),
            false => Ok(door.port()),
        }
    }

    /// Passes on what one end sends until it ends, or the fault comes.
    fn pass(
        self: &Arc<Line>,
        spoken: Spoken,
        toward: Toward,
        mut from: &TcpStream,
        mut to: &TcpStream,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut passed = 0;
        let mut is_dropped = false;
        loop {
            let read = match from.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) => return Err(error),
            };
            let bytes = &piece[..read];
            let before = self.count(toward).fetch_add(read as u64, Ordering::SeqCst);
            let cut = match self.fault {
                LineFault::CutOnce(at, after) if at == toward => {
                    let is_here = before + (read as u64) > after;
                    (is_here && !self.was_cut.swap(true, Ordering::SeqCst))
                        .then(|| after.saturating_sub(before))
                }
                LineFault::CutEach(at, after) if at == toward => {
                    let is_here = passed + (read as u64) > after;
                    is_here.then(|| after.saturating_sub(passed))
                }
                LineFault::DeadAfter(at, after) if at == toward => {
                    let is_here = before + (read as u64) > after;
                    is_here.then(|| after.saturating_sub(before))
                }
                _ => None,
            };
            if let Some(left) = cut {
                self.was_cut.store(true, Ordering::SeqCst);
                let last = to.write_all(&bytes[..left.min(read as u64) as usize]);
                if matches!(self.fault, LineFault::DeadAfter(..)) {
                    self.is_dead.store(true, Ordering::SeqCst);
                    self.ends.cut();
                }
                return last;
            }
            match toward {
                Toward::Server => to.write_all(bytes)?,
                Toward::Client if spoken == Spoken::Ftp => {
                    let bytes = self.with_port_of_line(bytes)?;
                    self.answer(spoken, &bytes, &mut to, &mut is_dropped)?;
                }
                Toward::Client => self.answer(spoken, bytes, &mut to, &mut is_dropped)?,
            }
            passed += read as u64;
        }
    }

    /// A reply that names a port for data, `229 ... (|||PORT|)`, names that of a line instead.
    fn with_port_of_line(self: &Arc<Line>, reply: &[u8]) -> io::Result<Vec<u8>> {
        let text = String::from_utf8_lossy(reply);
        let named = text.strip_prefix("229 ").and_then(|text| {
            let (words, rest) = text.split_once("(|||")?;
            let (port, rest) = rest.split_once("|)")?;
            Some((words, port.parse().ok()?, rest))
        });
        match named {
            None => Ok(reply.to_vec()),
            Some((words, port, rest)) => {
                let port = self.line_for_data(port)?;
                Ok(format!("229 {words}(|||{port}|){rest}").into_bytes())
            }
        }
    }

    /// `is_dropped`: what comes belongs to an answer that was replaced.
    fn answer(
        &self,
        spoken: Spoken,
        bytes: &[u8],
        to: &mut &TcpStream,
        is_dropped: &mut bool,
    ) -> io::Result<()> {
        let begins = match spoken {
            Spoken::Http => bytes.starts_with(b"HTTP/1.1 "),
            Spoken::Ftp => bytes.iter().take(3).all(u8::is_ascii_digit),
            // Data of FTP is no answer.
            Spoken::Bytes => self.spoken == Spoken::Bytes,
        };
        let number = match begins {
            true => self.answers.fetch_add(1, Ordering::SeqCst),
            false if *is_dropped => return Ok(()),
            false => u64::MAX,
        };
        *is_dropped = false;
        match self.fault {
            LineFault::Replaced(at, status) if at == number => {
                self.was_cut.store(true, Ordering::SeqCst);
                *is_dropped = true;
                let head = match spoken {
                    Spoken::Ftp => format!("{status} X\r\n"),
                    _ => format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"),
                };
                to.write_all(head.as_bytes())
            }
            LineFault::Twice(at) if at == number => {
                self.was_cut.store(true, Ordering::SeqCst);
                to.write_all(&[bytes, bytes].concat())
            }
            LineFault::Silent(from) if number != u64::MAX && number >= from => {
                self.was_cut.store(true, Ordering::SeqCst);
                while !self.is_over() {
                    std::thread::sleep(LOOK);
                }
                Ok(())
            }
            LineFault::OtherLength(at, more) if at == number => match with_length(bytes, more) {
                None => to.write_all(bytes),
                Some(other) => {
                    self.was_cut.store(true, Ordering::SeqCst);
                    to.write_all(&other)?;
                    match more < 0 {
                        // The end of the line.
                        true => Err(io::ErrorKind::ConnectionAborted.into()),
                        false => Ok(()),
                    }
                }
            },
            LineFault::Slow => bytes.chunks(1).try_for_each(|byte| to.write_all(byte)),
            _ => to.write_all(bytes),
        }
    }

    fn count(&self, toward: Toward) -> &AtomicU64 {
        match toward {
            Toward::Server => &self.to_server,
            Toward::Client => &self.to_client,
        }
    }
}

/// An answer whose head promises `more` bytes less than come; `None` of one without a body.
fn with_length(answer: &[u8], more: i64) -> Option<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|bytes| bytes == END)?;
    let (head, body) = answer.split_at(end + END.len());
    let head = str::from_utf8(head).ok()?;
    let lines = head.split_inclusive("\r\n").map(|line| {
        let length = line
            .split_once(':')
            .filter(|(name, _)| name.eq_ignore_ascii_case(LENGTH));
        let promised: Option<i64> = length.and_then(|(_, value)| value.trim().parse().ok());
        match promised {
            Some(promised) => (format!("{LENGTH}: {}\r\n", (promised - more).max(0)), true),
            None => (line.to_owned(), false),
        }
    });
    let lines: Vec<_> = lines.collect();
    if body.is_empty() || !lines.iter().any(|(_, is_length)| *is_length) {
        return None;
    }
    let head: String = lines.into_iter().map(|(line, _)| line).collect();
    Some([head.as_bytes(), body].concat())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
