//! One connection: requests that are in flight, and their end, whatever it is.

use super::handshake::Negotiated;
use super::listen::listen;
use super::pending::{Answer, Expected};
use crate::error::{NbdError, NbdFault};
use crate::stream::{ReadHalf, WriteHalf};
use crate::wire::HeaderStyle;
use crate::wire::request::{NbdRequest, command, encode_request};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests in flight on one connection at most, and bytes of their buffers; one larger request
/// goes alone.
const FLIGHTS_MAX: usize = 32;
const FLIGHT_BYTES_MAX: u64 = 32 << 20;

/// Looks at a silent server in one time-out.
const LOOKS: u32 = 4;

type Result<T> = std::result::Result<T, NbdError>;

/// An open connection. Dropping it says farewell and ends its thread.
pub(super) struct Connection {
    shared: Arc<Flights>,
    writer: Mutex<WriteHalf>,
    style: HeaderStyle,
    thread: Option<JoinHandle<()>>,
}

/// Requests that are in flight.
pub(super) struct Flights {
    pub peer: Arc<str>,
    pub idle_max: Duration,
    state: Mutex<State>,
    /// Something has ended.
    room: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    pending: HashMap<u64, Flight>,
    /// In number and bytes; also those whose reply is being read.
    count: usize,
    bytes: u64,
    /// When the last request was begun or sent: a long one takes its time.
    sent: Option<Instant>,
    lost: Option<Arc<NbdFault>>,
}

/// A request that is in flight.
pub(super) struct Flight {
    pub expected: Expected,
    bytes: u64,
    answer: Sender<Result<Answer>>,
}

/// Stands for a request that is in flight.
pub(super) struct Ticket(Receiver<Result<Answer>>, Arc<Flights>);

impl Ticket {
    pub(super) fn wait(self) -> Result<Answer> {
        // A sender that is gone had nothing to say: the thread has panicked.
        self.0.recv().unwrap_or_else(|_| Err(self.1.lost_error()))
    }
}

impl Connection {
    pub(super) fn start(
        peer: Arc<str>,
        reader: ReadHalf,
        writer: WriteHalf,
        negotiated: &Negotiated,
        idle_max: Duration,
    ) -> std::result::Result<Connection, NbdFault> {
        let look = (idle_max / LOOKS).min(Duration::from_secs(5));
        reader.socket().set_read_timeout(look)?;
        let shared = Arc::new(Flights {
            peer,
            idle_max,
            state: Mutex::default(),
            room: Condvar::new(),
        });
        let (flights, style) = (shared.clone(), negotiated.style);
        let thread = std::thread::Builder::new().name("nbd".to_owned());
        let thread = thread.spawn(move || listen(reader, &flights, style));
        Ok(Connection {
            shared,
            writer: Mutex::new(writer),
            style,
            thread: Some(thread.map_err(NbdFault::Thread)?),
        })
    }

    /// Sends a request, once there is room for it.
    pub(super) fn submit(
        &self,
        command: u16,
        flags: u16,
        expected: Expected,
        data: &[u8],
    ) -> Result<Ticket> {
        let request = NbdRequest {
            flags,
            command,
            cookie: 0,
            offset: expected.offset,
            bytes: expected.bytes,
        };
        let weight = expected.answer.buffer.len().max(data.len()) as u64;
        let (answer, receiver) = bounded(1);
        let cookie = self.shared.enter(Flight {
            expected,
            bytes: weight,
            answer,
        })?;
        let head = encode_request(&NbdRequest { cookie, ..request }, self.style);
        let sent = lock(&self.writer).send(&head, data);
        if sent.is_ok() {
            lock(&self.shared.state).sent = Some(Instant::now());
        }
        if let Err(error) = sent {
            self.shared.lose(match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                    NbdFault::Silent(self.shared.idle_max)
                }
                _ => error.into(),
            });
            // The listener ends, and no later request gets in behind half of this one.
            lock(&self.writer).shut_down();
        }
        Ok(Ticket(receiver, self.shared.clone()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let farewell = NbdRequest {
            flags: 0,
            command: command::DISCONNECT,
            cookie: 0,
            offset: 0,
            bytes: 0,
        };
        {
            let mut writer = lock(&self.writer);
            if !self.shared.is_lost() {
                // It may have ended by itself.
                let _ = writer.send(&encode_request(&farewell, self.style), &[]);
            }
            self.shared.lose(NbdFault::Ended);
            writer.shut_down();
        }
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Flights {
    /// Waits for room. The cookie of the request.
    fn enter(&self, flight: Flight) -> Result<u64> {
        let mut state = lock(&self.state);
        loop {
            if let Some(fault) = &state.lost {
                let source = fault.clone();
                let peer = self.peer.clone();
                return Err(NbdError::Lost { peer, source });
            }
            let has_room = state.count < FLIGHTS_MAX
                && (state.count == 0 || state.bytes + flight.bytes <= FLIGHT_BYTES_MAX);
            if has_room {
                break;
            }
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.sent = Some(Instant::now());
        state.count += 1;
        state.bytes += flight.bytes;
        state.next += 1;
        let cookie = state.next;
        state.pending.insert(cookie, flight);
        Ok(cookie)
    }

    /// For as long as a message of its reply is read.
    pub(super) fn take(&self, cookie: u64) -> Option<Flight> {
        lock(&self.state).pending.remove(&cookie)
    }

    /// More of its reply is to come.
    pub(super) fn put_back(&self, cookie: u64, flight: Flight) {
        let mut state = lock(&self.state);
        match &state.lost {
            None => {
                state.pending.insert(cookie, flight);
            }
            Some(fault) => {
                let source = fault.clone();
                let peer = self.peer.clone();
                flight.end(Err(NbdError::Lost { peer, source }));
            }
        }
    }

    /// A request has ended.
    pub(super) fn leave(&self, flight: Flight, answer: Result<Answer>) {
        {
            let mut state = lock(&self.state);
            state.count -= 1;
            state.bytes -= flight.bytes;
        }
        self.room.notify_all();
        flight.end(answer);
    }

    /// When the last request was sent; `None` if none is in flight.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.sent.filter(|_| state.count > 0)
    }

    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).lost.is_some()
    }

    fn lost_error(&self) -> NbdError {
        let fault = lock(&self.state).lost.clone();
        NbdError::Lost {
            peer: self.peer.clone(),
            source: fault.unwrap_or_else(|| Arc::new(NbdFault::Ended)),
        }
    }

    /// Ends all requests, those that are in flight and those to come. The first reason stays.
    pub(super) fn lose(&self, fault: NbdFault) {
        let flights = {
            let mut state = lock(&self.state);
            state.lost.get_or_insert_with(|| Arc::new(fault));
            std::mem::take(&mut state.pending)
        };
        self.room.notify_all();
        for flight in flights.into_values() {
            flight.end(Err(self.lost_error()));
        }
    }
}

impl Flight {
    fn end(self, answer: Result<Answer>) {
        // Nobody may wait for it any more.
        let _ = self.answer.send(answer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
