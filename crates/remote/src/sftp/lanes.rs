//! Further connections, for large uploads beside each other.
//!
//! A server works on the requests of one connection in turn: while it syncs one pack the next one
//! waits, and what names the first stands behind 16 MiB of the second. So an upload that comes
//! while another is under way gets a connection of its own, up to a bound, made when it is first
//! needed and kept. Where no further one can be had (the server allows one, or would ask for a
//! password again) everything goes over the first.
//!
//! Behind a pack comes the next one, as a rule: its temporary file is opened while the one before
//! is being synced and named, so that its bytes wait for no answer. What is open and not used is
//! removed with the store, or swept like everything that dead processes leave.

use super::connection::Sent;
use super::publish::Temporary;
use super::request::Request;
use super::session::Session;
use super::{Core, Nth};
use bale_repository::limits::UPLOADS_MAX_SFTP;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections beside the first: together as many as packs are uploaded at a time.
const FURTHER_MAX: usize = UPLOADS_MAX_SFTP - 1;

/// What is smaller goes over the first connection at once.
const UPLOAD_BYTES_MIN: usize = 1 << 20;

/// What is as large is a pack, behind which another one comes: the first of a run has 4 MiB.
const PACK_BYTES_MIN: usize = 3 << 20;

/// The connections beside the first, and files that were opened ahead.
#[derive(Default)]
pub(super) struct Lanes {
    further: Mutex<Further>,
    /// One for each connection at most.
    ahead: Mutex<Vec<OpenedAhead>>,
}

/// A temporary file that nobody waits for yet; removed, without waiting, unless it is taken.
struct OpenedAhead {
    session: Arc<Session>,
    path: String,
    opening: Option<Sent>,
}

impl OpenedAhead {
    /// Waits for the server. `None`: it could not be opened.
    fn take(mut self) -> Option<Temporary> {
        let opened = self.session.opened(self.opening.take()?).ok()?;
        let path = std::mem::take(&mut self.path);
        Some(Temporary::new(&self.session, path, opened))
    }
}

impl Drop for OpenedAhead {
    fn drop(&mut self) {
        if self.opening.is_some() {
            let _is_swept_otherwise = self.session.send(&Request::Remove(&self.path));
        }
    }
}

#[derive(Default)]
struct Further {
    sessions: Vec<Arc<Session>>,
    /// Those that are being made.
    connecting: usize,
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
        {
            let mut further = lock(&self.lanes.further);
            further.sessions.retain(|session| !session.has_ended());
            let least = further.least(&first);
            let all = further.sessions.len() + further.connecting;
            let may_more = all < FURTHER_MAX && !further.is_refused;
            if !may_more || least.uploads.load(Ordering::Relaxed) == 0 {
                return Ok(Lane::over(least));
            }
            further.connecting += 1;
        }
        // Meanwhile others may take what is free, or connect, too.
        let connected = self.connect(Nth::Further);
        let mut further = lock(&self.lanes.further);
        further.connecting -= 1;
        match connected {
            Ok(session) => {
                let session = Arc::new(session);
                further.sessions.push(session.clone());
                Ok(Lane::over(session))
            }
            // Nothing is lost by it but time.
            Err(_) => {
                further.is_refused = true;
                Ok(Lane::over(further.least(&first)))
            }
        }
    }

    /// Opens the temporary file of the next pack on this connection, behind one of this length,
    /// and does not wait for it.
    pub(super) fn open_ahead(&self, session: &Arc<Session>, bytes: usize) -> io::Result<()> {
        if bytes < PACK_BYTES_MIN {
            return Ok(());
        }
        let path = self.at(&self.draw_temporary_name()?);
        let mut ahead = lock(&self.lanes.ahead);
        ahead.retain(|file| !file.session.has_ended());
        if ahead.iter().any(|file| Arc::ptr_eq(&file.session, session)) {
            return Ok(());
        }
        let opening = Some(session.send(&Request::OpenNew(&path))?);
        ahead.push(OpenedAhead {
            session: session.clone(),
            path,
            opening,
        });
        Ok(())
    }

    /// The file that was opened ahead on this connection, for whatever comes next; `None`: there is
    /// none.
    pub(super) fn opened_ahead(&self, session: &Arc<Session>) -> Option<Temporary> {
        let mut ahead = lock(&self.lanes.ahead);
        let at = (ahead.iter()).position(|file| Arc::ptr_eq(&file.session, session))?;
        let file = ahead.swap_remove(at);
        // Others need not wait for the server, too.
        drop(ahead);
        file.take()
    }
}

impl Drop for Core {
    /// Servers end together, and not each after the one before was waited for.
    fn drop(&mut self) {
        lock(&self.lanes.ahead).clear();
        let mut sessions = std::mem::take(&mut lock(&self.lanes.further).sessions);
        sessions.extend(lock(&self.slot).session.take());
        sessions.iter().for_each(|session| session.close());
    }
}

impl Further {
    /// The connection with the fewest uploads. The first is left to small requests where it can be.
    fn least(&self, first: &Arc<Session>) -> Arc<Session> {
        let all = self.sessions.iter().chain([first]);
        let uploads = |session: &&Arc<Session>| session.uploads.load(Ordering::Relaxed);
        all.min_by_key(uploads).unwrap_or(first).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
