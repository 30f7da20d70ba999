//! An object whose bytes nobody holds: written at growing offsets to a file in `tmp/`, synced, and
//! named like every other. Each piece is acknowledged before the next one is taken.
//!
//! It lives and dies with the first connection, which counts as taken meanwhile: some servers show
//! a file late to other connections than the one that wrote it. What a server that has gone had
//! taken may not be on its disk, so nothing goes on from there.

use super::lanes::Lane;
use super::publish::{Target, Temporary, sync_whole};
use super::{SftpStore, transfer};
use bale_repository::store::{ObjectName, ObjectWriter, Result};
use std::io;

/// An object on its way.
pub(super) struct SftpStream {
    store: SftpStore,
    lane: Lane,
    /// `None` once something has failed.
    temporary: Option<Temporary>,
    len: u64,
}

impl SftpStore {
    pub(super) fn stream(&self) -> Result<SftpStream> {
        self.said("write", "an object", || {
            let lane = self.core.lane(0)?;
            let temporary = Some(self.core.create_temporary(&lane.session)?);
            Ok(SftpStream {
                store: self.clone(),
                lane,
                temporary,
                len: 0,
            })
        })
    }
}

impl ObjectWriter for SftpStream {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let temporary = self.temporary.take();
        self.temporary = self.store.said("write", "an object", || {
            let temporary = temporary.ok_or_else(failed_before)?;
            let (core, session) = (&self.store.core, &self.lane.session);
            core.room.note(bytes.len() as u64);
            transfer::write_at(session, temporary.file()?, self.len, bytes)
                .and_then(transfer::Written::done)
                .map_err(|error| core.full_or(session, error))?;
            Ok(Some(temporary))
        })?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn publish(mut self: Box<Self>, name: &ObjectName) -> Result<()> {
        let temporary = self.temporary.take();
        let (core, session, len) = (&self.store.core, &self.lane.session, self.len);
        self.store.said("write", name, || {
            let temporary = temporary.ok_or_else(failed_before)?;
            let nothing = transfer::Written::default();
            let named = sync_whole(session, temporary, nothing, len).and_then(|temporary| {
                core.give_name(session, temporary, &Target::object(name), len)
            });
            named.map_err(|error| core.full_or(session, error))
        })
    }
}

fn failed_before() -> io::Error {
    io::Error::other("a part of it could not be written")
}
