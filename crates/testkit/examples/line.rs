//! A line between a client and a server on one machine: so much delay, so many bytes a second.
//!
//!     line LISTEN TARGET ROUND_TRIP_MS MEGABYTES_A_SECOND
//!     line 127.0.0.1:9000 127.0.0.1:8000 50 100
//!     line 127.0.0.1:9000 exec:/usr/lib/openssh/sftp-server 50 100
//!
//! With `exec:` each connection gets a process of that program, which is the server on its stdin
//! and stdout.
//!
//! All connections share the rate, each direction has its own. For measuring (docs/PERF.md), where
//! no kernel with netem is to be had. Ends with a signal.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Read at once: small beside what a line carries in a millisecond would be many wake-ups.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces on their way in one direction of a connection; more than fit on the line.
const PIECES_UNDER_WAY: usize = 1024;

/// How far ahead of the clock the line may be sold.
const AHEAD_MAX: Duration = Duration::from_millis(10);

/// One direction, shared by all connections.
struct Lane {
    delay: Duration,
    bytes_per_second: f64,
    free_from: Mutex<Instant>,
}

impl Lane {
    fn new(delay: Duration, bytes_per_second: f64) -> Lane {
        Lane {
            delay,
            bytes_per_second,
            free_from: Mutex::new(Instant::now()),
        }
    }

    /// When `len` bytes that are ready now arrive; waits while the line is sold out.
    fn arrival(&self, len: usize) -> Instant {
        let sent = {
            let mut free_from = self.free_from.lock().expect("nobody panics with it");
            let begin = (*free_from).max(Instant::now());
            *free_from = begin + Duration::from_secs_f64(len as f64 / self.bytes_per_second);
            *free_from
        };
        let ahead = sent.saturating_duration_since(Instant::now());
        sleep(ahead.saturating_sub(AHEAD_MAX));
        sent + self.delay
    }
}

/// One end of a line.
trait End: Read + Write + Send {
    fn another(&self) -> io::Result<Box<dyn End>>;
    /// Says that nothing more comes.
    fn end_writing(&self) -> io::Result<()>;
}

impl End for TcpStream {
    fn another(&self) -> io::Result<Box<dyn End>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn end_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl End for UnixStream {
    fn another(&self) -> io::Result<Box<dyn End>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn end_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A connection to a server, or a process that is one.
fn connect(target: &str) -> io::Result<Box<dyn End>> {
    let Some(program) = target.strip_prefix("exec:") else {
        let server = TcpStream::connect(target)?;
        server.set_nodelay(true)?;
        return Ok(Box::new(server));
    };
    let (ours, its) = UnixStream::pair()?;
    let stdin = Stdio::from(OwnedFd::from(its.try_clone()?));
    let stdout = Stdio::from(OwnedFd::from(its));
    let mut process = Command::new(program).stdin(stdin).stdout(stdout).spawn()?;
    spawn(move || process.wait());
    Ok(Box::new(ours))
}

fn take(mut from: Box<dyn End>, lane: &Lane, pieces: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let arrival = lane.arrival(len);
        if pieces.send((arrival, buffer[..len].to_vec())).is_err() {
            break;
        }
    }
}

fn give(mut to: Box<dyn End>, pieces: &Receiver<(Instant, Vec<u8>)>) {
    for (arrival, piece) in pieces {
        sleep(arrival.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // The other end may be gone already.
    let _may_be_gone = to.end_writing();
}

fn carry(from: &dyn End, to: &dyn End, lane: &Arc<Lane>) {
    let (sender, receiver) = sync_channel(PIECES_UNDER_WAY);
    let (from, to) = (from.another(), to.another());
    let (from, to) = (from.expect("a descriptor"), to.expect("a descriptor"));
    let lane = Arc::clone(lane);
    spawn(move || take(from, &lane, &sender));
    spawn(move || give(to, &receiver));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, target, round_trip, rate] = &arguments[..] else {
        eprintln!("usage: line LISTEN TARGET ROUND_TRIP_MS MEGABYTES_A_SECOND");
        std::process::exit(2);
    };
    let round_trip: f64 = round_trip.parse().expect("milliseconds");
    let rate: f64 = rate.parse().expect("megabytes a second");
    let delay = Duration::from_secs_f64(round_trip / 2000.0);
    let lanes = [(); 2].map(|()| Arc::new(Lane::new(delay, rate * 1e6)));
    for client in TcpListener::bind(listen).expect("an address").incoming() {
        let Ok(client) = client else { continue };
        client.set_nodelay(true).expect("a socket");
        match connect(target) {
            Ok(server) => {
                carry(&client, &*server, &lanes[0]);
                carry(&*server, &client, &lanes[1]);
            }
            Err(error) => eprintln!("line: no server at {target}: {error}"),
        }
    }
}
