//! A bound on bytes a second, in each direction, for all requests of a process together.
//!
//! Whoever sends or receives asks for each piece first and waits until its turn. Pieces are a tenth
//! of a second of the rate, so that the line is loaded evenly, and no more than one piece of what
//! was not used is saved up.
//!
//! A run that is to end receives no more, and has two minutes for what it sends: what was stored
//! is of use only if its end is told. Beyond them only the beginning of an object goes on, which is
//! all of a record of a run and of most parts of an index.

use crate::waiting::Waiting;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pieces in a second.
const PIECES_A_SECOND: u64 = 10;

/// Bytes of a piece at least and at most.
const PIECE_BYTES_MIN: usize = 512;
const PIECE_BYTES_MAX: usize = 256 << 10;

/// For what is being sent when the run is to end; services are killed after five minutes
/// (`TimeoutStopSec` of their units).
const ENDING_MAX: Duration = Duration::from_secs(120);

/// Of an object so much is sent after that, without waiting.
const LAST_BYTES: usize = 1 << 20;

/// Both directions; without bounds by default. A handle: clones share the bounds.
#[derive(Clone, Default)]
pub struct Throttle {
    up: Option<Arc<Lane>>,
    down: Option<Arc<Lane>>,
}

struct Lane {
    bytes_a_second: NonZeroU64,
    waiting: Arc<dyn Waiting>,
    /// When the next piece may go.
    next: Mutex<Duration>,
    /// When somebody first heard that the run is to end.
    ending_since: Mutex<Option<Duration>>,
}

impl Throttle {
    /// Bytes a second in each direction, where there is a bound.
    pub fn new(
        up: Option<NonZeroU64>,
        down: Option<NonZeroU64>,
        waiting: &Arc<dyn Waiting>,
    ) -> Throttle {
        let lane = |bytes_a_second: Option<NonZeroU64>| {
            bytes_a_second.map(|bytes_a_second| {
                Arc::new(Lane {
                    bytes_a_second,
                    waiting: waiting.clone(),
                    next: Mutex::default(),
                    ending_since: Mutex::default(),
                })
            })
        };
        Throttle {
            up: lane(up),
            down: lane(down),
        }
    }

    /// Bytes that are sent at once at most.
    pub fn upload_piece(&self) -> usize {
        self.up.as_ref().map_or(usize::MAX, |lane| lane.piece())
    }

    /// Waits until so many bytes may be sent, behind so many of the same object;
    /// `ConnectionAborted` if the run should have ended.
    pub fn upload(&self, sent: usize, bytes: usize) -> io::Result<()> {
        (self.up.as_ref()).map_or(Ok(()), |lane| lane.take_to_send(sent, bytes))
    }

    /// Waits until so many bytes may be received, or may have been; `ConnectionAborted` if the run
    /// is to end.
    pub fn download(&self, bytes: usize) -> io::Result<()> {
        self.down.as_ref().map_or(Ok(()), |lane| lane.take(bytes))
    }

    /// How long to wait after so many bytes, for whoever waits himself.
    pub fn pause_of_upload(&self, bytes: usize) -> Duration {
        (self.up.as_ref()).map_or(Duration::ZERO, |lane| lane.pause_of(bytes))
    }

    /// The same of bytes that were received.
    pub fn pause_of_download(&self, bytes: usize) -> Duration {
        (self.down.as_ref()).map_or(Duration::ZERO, |lane| lane.pause_of(bytes))
    }

    /// Reads what is to be sent, piece by piece.
    pub fn uploaded<R: Read>(&self, from: R) -> Throttled<R> {
        Throttled {
            from,
            lane: self.up.clone(),
            sent: Some(0),
        }
    }

    /// Reads what is received, piece by piece.
    pub fn downloaded<R: Read>(&self, from: R) -> Throttled<R> {
        Throttled {
            from,
            lane: self.down.clone(),
            sent: None,
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |lane: &Option<Arc<Lane>>| lane.as_ref().map(|lane| lane.bytes_a_second);
        write!(f, "Throttle({:?}, {:?})", rate(&self.up), rate(&self.down))
    }
}

impl Lane {
    fn piece(&self) -> usize {
        let piece = self.bytes_a_second.get() / PIECES_A_SECOND;
        let piece = usize::try_from(piece).unwrap_or(PIECE_BYTES_MAX);
        piece.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_a_second.get() as f64)
    }

    fn pause_of(&self, bytes: usize) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.waiting.now();
        // A line that was idle may send one piece more, not all it could have sent.
        let start = (*next).max(now.saturating_sub(self.time_of(self.piece())));
        *next = start + self.time_of(bytes);
        start.saturating_sub(now)
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let pause = self.pause_of(bytes);
        match pause.is_zero() || self.waiting.wait(pause) {
            true => Ok(()),
            false => Err(is_to_end()),
        }
    }

    fn take_to_send(&self, sent: usize, bytes: usize) -> io::Result<()> {
        let pause = self.pause_of(bytes);
        let began = self.waiting.now();
        if pause.is_zero() || self.waiting.wait(pause) {
            return Ok(());
        }
        let now = self.waiting.now();
        let mut since = (self.ending_since.lock()).unwrap_or_else(PoisonError::into_inner);
        let since = *since.get_or_insert(now);
        if now.saturating_sub(since) < ENDING_MAX {
            let waited = now.saturating_sub(began);
            self.waiting.wait_all_the_same(pause.saturating_sub(waited));
            return Ok(());
        }
        match sent < LAST_BYTES {
            true => Ok(()),
            false => Err(is_to_end()),
        }
    }
}

fn is_to_end() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "the run is to end")
}

/// A reader whose bytes are counted by a throttle.
pub struct Throttled<R> {
    from: R,
    lane: Option<Arc<Lane>>,
    /// So far, if it is read to be sent.
    sent: Option<usize>,
}

impl<R: Read> Read for Throttled<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(lane) = &self.lane else {
            return self.from.read(buf);
        };
        let len = buf.len().min(lane.piece());
        let read = self.from.read(&mut buf[..len])?;
        if read == 0 {
            return Ok(0);
        }
        match &mut self.sent {
            None => lane.take(read)?,
            Some(sent) => {
                lane.take_to_send(*sent, read)?;
                *sent += read;
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_repository::store::StoreError;

    /// Time passes by waiting only.
    #[derive(Default)]
    struct Told {
        now: Mutex<Duration>,
        is_over: bool,
    }

    impl Waiting for Told {
        fn now(&self) -> Duration {
            *self.now.lock().unwrap()
        }
        fn wait(&self, pause: Duration) -> bool {
            if !self.is_over {
                self.wait_all_the_same(pause);
            }
            !self.is_over
        }
        fn wait_all_the_same(&self, pause: Duration) {
            *self.now.lock().unwrap() += pause;
        }
        fn lot(&self) -> u64 {
            0
        }
        fn again(&self, _: &StoreError, _: Duration) {}
    }

    fn throttle(up: u64, told: &Arc<Told>) -> Throttle {
        let waiting: Arc<dyn Waiting> = told.clone();
        Throttle::new(NonZeroU64::new(up), None, &waiting)
    }

    #[test]
    fn a_second_has_no_more_bytes_than_it_may() {
        let told = Arc::new(Told::default());
        let throttle = throttle(10_000, &told);
        let bytes = vec![7; 50_000];
        let mut sent = Vec::new();
        let mut reader = throttle.uploaded(&bytes[..]);
        reader.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, bytes);
        let took = told.now().as_millis();
        assert!((4_700..=5_000).contains(&took), "{took} ms");
        // The other direction has no bound.
        throttle.download(1 << 30).unwrap();
        assert_eq!(told.now().as_millis(), took);
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let told = Arc::new(Told::default());
        let throttle = throttle(10_000, &told);
        told.wait(Duration::from_secs(3600));
        let before = told.now();
        for _ in 0..10 {
            throttle.upload(0, 1_000).unwrap();
        }
        let took = (told.now() - before).as_millis();
        assert!((700..=900).contains(&took), "{took} ms");
    }

    #[test]
    fn a_run_that_is_to_end_receives_no_more() {
        let told = Arc::new(Told {
            is_over: true,
            ..Told::default()
        });
        let waiting: Arc<dyn Waiting> = told.clone();
        let throttle = Throttle::new(None, NonZeroU64::new(10), &waiting);
        let tries = (0..1_000).map(|_| throttle.download(512));
        let error = tries
            .into_iter()
            .find_map(Result::err)
            .expect("it is to end");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }

    #[test]
    fn a_run_that_is_to_end_sends_for_two_minutes_and_then_what_is_small() {
        let told = Arc::new(Told {
            is_over: true,
            ..Told::default()
        });
        let throttle = throttle(100_000, &told);
        let pack = vec![7; 16 << 20];
        let mut sent = 0;
        let error = loop {
            let piece = pack.len().min(10_000);
            match throttle.upload(sent, piece) {
                Ok(()) => sent += piece,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
        assert_eq!(told.now().as_secs(), 120);
        assert!((11_900_000..12_100_000).contains(&sent), "{sent}");
        let mut record = Vec::new();
        let read = throttle
            .uploaded(&pack[..LAST_BYTES])
            .read_to_end(&mut record);
        assert_eq!(read.unwrap(), LAST_BYTES);
        throttle
            .uploaded(&pack[..])
            .read_to_end(&mut record)
            .unwrap_err();
        assert_eq!(told.now().as_secs(), 120);
    }
}
