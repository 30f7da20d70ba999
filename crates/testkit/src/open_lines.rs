//! Ends of lines that a proxy holds: all can be cut at once, and one that nobody uses any more is
//! closed at once, whatever was not read of it.
//!
//! A socket that is shut and still held by somebody takes bytes until its buffer is full, and then
//! its other end waits; one that is closed says so.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Those of one proxy.
#[derive(Default)]
pub struct OpenLines(Mutex<Vec<Weak<TcpStream>>>);

impl OpenLines {
    /// Cut with the others, for as long as it is used.
    pub fn add(&self, end: TcpStream) -> Arc<TcpStream> {
        let end = Arc::new(end);
        let mut ends = self.ends();
        ends.retain(|other| other.strong_count() > 0);
        ends.push(Arc::downgrade(&end));
        end
    }

    /// Cuts all.
    pub fn cut(&self) {
        for end in std::mem::take(&mut *self.ends()) {
            if let Some(end) = end.upgrade() {
                let _it_was_cut = end.shutdown(Shutdown::Both);
            }
        }
    }

    fn ends(&self) -> MutexGuard<'_, Vec<Weak<TcpStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
