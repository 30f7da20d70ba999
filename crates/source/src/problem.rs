//! Trouble with one path while a source is scanned or read.

use std::io;

/// Something that belongs to one path and could not be done.
#[derive(Debug)]
pub struct ScanProblem {
    /// Path without leading slash.
    pub path: Vec<u8>,
    /// `list`, `stat`, `read` ...
    pub action: &'static str,
    pub error: io::Error,
}
