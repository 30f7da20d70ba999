//! Further connections, for large uploads beside each other.
//!
//! A server works on the requests of one connection in turn: while it syncs one pack the next one
//! waits, and what names the first stands behind 16 MiB of the second. So an upload that comes
//! while another is under way gets a connection of its own, up to a bound, made when it is first
//! needed and kept. Where no further one can be had (the server allows one, or would ask for a
//! password again) everything goes over the first.

use super::session::Session;
use super::{Core, Nth};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections beside the first: together as many as packs are uploaded at a time.
const FURTHER_MAX: usize = 2;

/// What is smaller goes over the first connection at once.
const UPLOAD_BYTES_MIN: usize = 1 << 20;

/// The connections beside the first.
#[derive(Default)]
pub(super) struct Lanes {
    further: Mutex<Further>,
}

#[derive(Default)]
struct Further {
    sessions: Vec<Arc<Session>>,
    /// One could not be had: no more are tried for.
    is_refused: bool,
}

/// A connection that counts as taken by an upload until this is dropped.
pub(super) struct Lane {
    pub(super) session: Arc<Session>,
}

impl Lane {
    fn over(session: Arc<Session>) -> Lane {
        session.uploads.fetch_add(1, Ordering::Relaxed);
        Lane { session }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.session.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Core {
    /// The connection for an object of this length: one without an upload, if there is one or
    /// another can be made, else the one with the fewest.
    pub(super) fn lane(&self, bytes: usize) -> io::Result<Lane> {
        let first = self.session()?;
        if bytes < UPLOAD_BYTES_MIN {
            return Ok(Lane::over(first));
        }
        let further = self.lanes.further.lock();
        let mut further = further.unwrap_or_else(PoisonError::into_inner);
        further.sessions.retain(|session| !session.has_ended());
        // The first is left to small requests where it can be.
        let all = further.sessions.iter().chain([&first]);
        let uploads = |session: &&Arc<Session>| session.uploads.load(Ordering::Relaxed);
        let least = all.min_by_key(uploads).unwrap_or(&first).clone();
        let may_more = further.sessions.len() < FURTHER_MAX && !further.is_refused;
        if !may_more || uploads(&&least) == 0 {
            return Ok(Lane::over(least));
        }
        match self.connect(Nth::Further) {
            Ok(session) => {
                let session = Arc::new(session);
                further.sessions.push(session.clone());
                Ok(Lane::over(session))
            }
            // Nothing is lost by it but time.
            Err(_) => {
                further.is_refused = true;
                Ok(Lane::over(least))
            }
        }
    }
}
