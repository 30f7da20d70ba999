//! Why a client could not do what it was to do.

use crate::wire::NbdWireError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What was to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdAction {
    Read,
    Write,
    Zero,
    Trim,
    Flush,
    ListExtents,
}

impl fmt::Display for NbdAction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NbdAction::Read => "read",
            NbdAction::Write => "write",
            NbdAction::Zero => "write zeroes to",
            NbdAction::Trim => "trim",
            NbdAction::Flush => "flush",
            NbdAction::ListExtents => "list extents of",
        })
    }
}

/// Why an operation ended; the peer is named as the user named it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NbdError {
    #[error("connect to {peer}")]
    Connect {
        peer: Arc<str>,
        source: Arc<NbdFault>,
    },
    #[error("{peer}: the connection is lost")]
    Lost {
        peer: Arc<str>,
        source: Arc<NbdFault>,
    },
    /// The server says that this did not work; the connection goes on.
    #[error("{peer}: {action} {bytes} bytes at {offset}: the server says {code}{message}")]
    Server {
        peer: Arc<str>,
        action: NbdAction,
        offset: u64,
        bytes: u64,
        code: ServerCode,
        /// With a colon before it if there is one.
        message: String,
    },
    /// It was not tried.
    #[error("{peer}: {action} {bytes} bytes at {offset}: {why}")]
    Impossible {
        peer: Arc<str>,
        action: NbdAction,
        offset: u64,
        bytes: u64,
        why: &'static str,
    },
}

impl NbdError {
    /// The server says no, in order: what was requested else it may still answer.
    pub fn is_of_server(&self) -> bool {
        matches!(self, NbdError::Server { .. })
    }

    /// The device behind the server cannot give this place; others it may.
    pub fn is_of_device(&self) -> bool {
        matches!(self, NbdError::Server { code, .. } if *code == ServerCode::IO)
    }
}

/// The number of an error, as the protocol has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCode(pub u32);

impl ServerCode {
    pub(crate) const PERM: ServerCode = ServerCode(1);
    pub(crate) const IO: ServerCode = ServerCode(5);
    pub(crate) const INVALID: ServerCode = ServerCode(22);
    pub(crate) const NO_SPACE: ServerCode = ServerCode(28);
    pub(crate) const OVERFLOW: ServerCode = ServerCode(75);
}

impl fmt::Display for ServerCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            1 => "that it is not permitted (EPERM)",
            5 => "that the device failed (EIO)",
            12 => "that it has no memory (ENOMEM)",
            22 => "that the request is invalid (EINVAL)",
            28 => "that there is no space left (ENOSPC)",
            75 => "that the request is too large (EOVERFLOW)",
            95 => "that it cannot do that (ENOTSUP)",
            108 => "that it is shutting down (ESHUTDOWN)",
            number => return write!(out, "error {number}"),
        };
        out.write_str(words)
    }
}

/// What is wrong with a connection.
#[derive(Debug, thiserror::Error)]
pub enum NbdFault {
    #[error("the server sent {0}")]
    Wire(#[from] NbdWireError),
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("the server ended the connection")]
    Ended,
    #[error("the server is silent for {} s (time-out)", .0.as_secs())]
    Silent(Duration),
    #[error("it took more than {} s to connect (time-out)", .0.as_secs())]
    Slow(Duration),
    #[error("the server refuses {what}{message}")]
    Refused { what: String, message: String },
    #[error("the server wants encryption: write nbds:// or nbds+unix://")]
    TlsRequired,
    #[error("the server has no encryption")]
    TlsMissing,
    #[error("no encrypted connection: {0}")]
    Tls(String),
    #[error("the server said of the export neither length nor flags")]
    NoExport,
    #[error("the server has no context {0}; which there are is said by `nbdinfo --list`")]
    NoContext(String),
    #[error("the server offers no structured replies, so it can say nothing of extents")]
    NoStructure,
    #[error("a second connection is told another export ({second} bytes, not {first})")]
    Unequal { first: u64, second: u64 },
    #[error("the server repeats itself without end in its answer to an option")]
    Endless,
    #[error("no thread to listen to it: {0}")]
    Thread(#[source] io::Error),
}

impl From<io::Error> for NbdFault {
    fn from(error: io::Error) -> NbdFault {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => NbdFault::Ended,
            _ => NbdFault::Io(error),
        }
    }
}
