//! A bound on bytes a second, as whoever keeps it tells it: how long to wait after so many bytes.

use std::fmt::Debug;
use std::time::Duration;

/// Keeps to a number of bytes a second, over all requests of a process.
pub trait Pace: Debug + Send + Sync {
    /// Bytes that are sent at once at most.
    fn upload_piece(&self) -> usize;

    /// How long to wait once so many bytes are sent.
    fn upload(&self, bytes: usize) -> Duration;

    /// The same of bytes received.
    fn download(&self, bytes: usize) -> Duration;
}
