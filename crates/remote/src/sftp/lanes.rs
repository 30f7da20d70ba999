//! Further connections, for large uploads beside each other.
//!
//! A server works on the requests of one connection in turn: while it syncs one pack the next one
//! waits, and what names the first stands behind 16 MiB of the second. So there are as many
//! connections as there were large uploads at the same time, up to a bound. They are made beside
//! the uploads, for those that come next, and nobody waits for them. Where no further one can be
//! had (the server allows one, or would ask for a password again) everything goes over the first.
//!
//! Behind a pack comes the next one, as a rule: its temporary file is opened before the bytes of
//! the one before are sent, so that its own wait for no answer. What is open and not used is
//! removed with the store, or swept like everything that dead processes leave.

use super::connection::{self, Sent};
use super::publish::Temporary;
use super::request::Request;
use super::session::Session;
use super::{Core, Nth};
use bale_repository::limits::UPLOADS_MAX_SFTP;
use bale_repository::store::Area;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections beside the first: together as many as packs are uploaded at a time.
const FURTHER_MAX: usize = UPLOADS_MAX_SFTP - 1;

/// What is smaller goes over the first connection at once, and comes alone.
const UPLOAD_BYTES_MIN: usize = 1 << 20;

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
    /// The connection for an object of this length: the one with the fewest uploads. Further ones
    /// are made meanwhile, for what comes next.
    pub(super) fn lane(self: &Arc<Self>, bytes: usize) -> io::Result<Lane> {
        let first = self.session()?;
        if bytes < UPLOAD_BYTES_MIN {
            return Ok(Lane::over(first));
        }
        let mut further = lock(&self.lanes.further);
        further.sessions.retain(|session| !session.has_ended());
        let lane = Lane::over(further.least(&first));
        let all = further.sessions.iter().chain([&first]);
        let uploads = all.map(|session| session.uploads.load(Ordering::Relaxed));
        let wanted = (uploads.sum::<usize>() - 1).min(FURTHER_MAX);
        let missing = wanted.saturating_sub(further.sessions.len() + further.connecting);
        if missing > 0 && !further.is_refused {
            further.connecting += missing;
            drop(further);
            (0..missing).for_each(|_| self.connect_beside());
        }
        Ok(lane)
    }

    /// Makes a further connection, and nobody waits for it. Without it nothing is lost but time.
    fn connect_beside(self: &Arc<Self>) {
        let core = Arc::clone(self);
        let spawned = connection::spawn("sftp-connect", move || {
            let connected = core.connect(Nth::Further).map(Arc::new).ok();
            core.lanes.connected(connected.clone());
            if let Some(session) = connected {
                let _is_opened_later = core.open_ahead(&session);
            }
        });
        if spawned.is_err() {
            self.lanes.connected(None);
        }
    }

    /// Opens the file of what will come behind this object, if something will, on this connection.
    pub(super) fn open_next_ahead(
        &self,
        session: &Arc<Session>,
        area: Option<Area>,
        bytes: usize,
    ) -> io::Result<()> {
        match area {
            // Another one, and behind the last an index object.
            Some(Area::Packs) if bytes >= UPLOAD_BYTES_MIN => {
                self.open_ahead(session)?;
                self.open_ahead(&self.session()?)
            }
            // A snapshot or the record of a run.
            Some(Area::Index) => self.open_ahead(session),
            _ => Ok(()),
        }
    }

    /// Opens a temporary file on this connection, unless one is, and does not wait for it.
    pub(super) fn open_ahead(&self, session: &Arc<Session>) -> io::Result<()> {
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

impl Lanes {
    /// One that was being made is there, or cannot be had: then no more are tried for.
    fn connected(&self, session: Option<Arc<Session>>) {
        let mut further = lock(&self.further);
        further.connecting -= 1;
        further.is_refused |= session.is_none();
        further.sessions.extend(session);
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
