//! Files that have no name yet, in `tmp/`; those of processes that died are removed once they are a
//! day old, by the server's clock.

use super::{Core, RemoteFiles};
use bale_format::id::{from_hex, hex};
use bale_pipeline::random::draw;
use bale_repository::store::local::TEMPORARY_AGE_MAX;
use std::io;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// Directory of the files that have no name yet.
pub(super) const TEMPORARY_DIR: &str = "tmp";

/// Start of their names; 32 random hexadecimal digits follow.
const TEMPORARY_PREFIX: &str = ".tmp-";

/// Files that are looked at in one sweep; others wait for the next.
const SWEPT_MAX: usize = 1 << 12;

impl<F: RemoteFiles> Core<F> {
    pub(super) fn draw_temporary_name(&self) -> io::Result<String> {
        let random = hex(&draw::<16>(&self.random)?);
        Ok(format!("{TEMPORARY_DIR}/{TEMPORARY_PREFIX}{random}"))
    }

    /// Before the first object of this process is written: whoever only reads removes nothing.
    /// What goes wrong is left for another day; the write that follows meets it as well.
    pub(super) fn sweep_once(&self) {
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            let _left_for_another_day = self.sweep();
        }
    }

    fn sweep(&self) -> io::Result<()> {
        let mut left = Vec::new();
        self.list_temporary(&mut left)?;
        if left.is_empty() {
            return Ok(());
        }
        let Some(now) = self.server_now()? else {
            return Ok(());
        };
        for (path, modified) in left {
            let age = now.duration_since(modified).unwrap_or_default();
            if age > TEMPORARY_AGE_MAX {
                self.files.remove(&path)?;
            }
        }
        Ok(())
    }

    fn list_temporary(&self, left: &mut Vec<(String, SystemTime)>) -> io::Result<()> {
        self.files.list(TEMPORARY_DIR, &mut |name, there| {
            if is_temporary(name)
                && there.len.is_some()
                && let Some(modified) = there.modified
                && left.len() < SWEPT_MAX
            {
                left.push((format!("{TEMPORARY_DIR}/{name}"), modified));
            }
        })
    }

    /// The time of a file that is made now, as listings have it.
    fn server_now(&self) -> io::Result<Option<SystemTime>> {
        let path = self.draw_temporary_name()?;
        self.files.write(&path, b"\n")?;
        let mut left = Vec::new();
        let listed = self.list_temporary(&mut left);
        self.files.remove(&path)?;
        listed?;
        let made = left.into_iter().find(|(other, _)| *other == path);
        Ok(made.map(|(_, modified)| modified))
    }
}

fn is_temporary(name: &str) -> bool {
    (name.strip_prefix(TEMPORARY_PREFIX)).is_some_and(|digits| from_hex::<16>(digits).is_ok())
}
