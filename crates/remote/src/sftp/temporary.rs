//! Files that have no name yet, in `tmp/`; those of processes that died are removed once they are a
//! day old, by the server's clock.

use super::Core;
use super::request::Request;
use super::session::Session;
use bale_format::id::{from_hex, hex};
use bale_pipeline::random::draw;
use bale_repository::store::local::TEMPORARY_AGE_MAX;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Directory of the files that have no name yet.
pub(super) const TEMPORARY_DIR: &str = "tmp";

/// Start of their names; 32 random hexadecimal digits follow.
const TEMPORARY_PREFIX: &str = ".tmp-";

/// Files that are looked at in one sweep; others wait for the next.
const SWEPT_MAX: usize = 1 << 12;

impl Core {
    pub(super) fn draw_temporary_name(&self) -> io::Result<String> {
        let random = hex(&draw::<16>(&*self.random)?);
        Ok(format!("{TEMPORARY_DIR}/{TEMPORARY_PREFIX}{random}"))
    }

    /// Removes files that were last written more than a day ago; says how many.
    pub(super) fn sweep(&self, session: &Arc<Session>) -> io::Result<u64> {
        let mut left = Vec::new();
        self.list_names(session, TEMPORARY_DIR, &mut |file| {
            if let Some(name) = temporary_name(&file.name)
                && let Some(modified) = file.attributes.modified
                && file.attributes.is_file()
                && left.len() < SWEPT_MAX
            {
                left.push((modified, format!("{TEMPORARY_DIR}/{name}")));
            }
            Ok(())
        })?;
        if left.is_empty() {
            return Ok(0);
        }
        let Some(now) = self.server_now(session)? else {
            return Ok(0);
        };
        let is_old = |modified: u32| {
            let age = now.saturating_sub(modified);
            u64::from(age) > TEMPORARY_AGE_MAX.as_secs()
        };
        let mut removed = 0;
        for (_, path) in left.iter().filter(|(modified, _)| is_old(*modified)) {
            match session.send(&Request::Remove(&self.at(path)))?.done() {
                Ok(()) => removed += 1,
                // Somebody else sweeps; or this client may only add, and the server sweeps.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// The time of a file that is made now.
    fn server_now(&self, session: &Arc<Session>) -> io::Result<Option<u32>> {
        let temporary = self.create_temporary(session)?;
        let made = session.lstat(temporary.path())?;
        Ok(made.and_then(|made| made.modified))
    }
}

fn temporary_name(name: &[u8]) -> Option<&str> {
    let name = str::from_utf8(name).ok()?;
    from_hex::<16>(name.strip_prefix(TEMPORARY_PREFIX)?).ok()?;
    Some(name)
}
