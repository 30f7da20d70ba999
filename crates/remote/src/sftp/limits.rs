//! How much a server takes at once: asked when the connection is made, and waited for by whoever
//! has more than every server takes.

use super::answer::invalid;
use super::connection::Sent;
use super::wire::decode_limits;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

/// What every server reads or writes at once.
pub(super) const TRANSFER_BYTES_DEFAULT: usize = 32 << 10;

/// What is read or written at once at most: with its header it fits into 256 KiB. And at least,
/// whatever a server says.
const TRANSFER_BYTES_MAX: usize = 255 << 10;
pub(super) const TRANSFER_BYTES_MIN: usize = 1 << 10;

/// Directories that are read at the same time: on a server that says how many handles it has, a
/// part of them.
pub(super) const DIRS_AT_ONCE_DEFAULT: usize = 16;
const DIRS_AT_ONCE_MAX: usize = 256;
const HANDLES_SHARE: u64 = 2;

/// What a server takes at once.
#[derive(Clone, Copy)]
pub(super) struct KnownLimits {
    pub(super) read_bytes_max: usize,
    pub(super) write_bytes_max: usize,
    pub(super) dirs_at_once: usize,
}

impl KnownLimits {
    const DEFAULT: KnownLimits = KnownLimits {
        read_bytes_max: TRANSFER_BYTES_DEFAULT,
        write_bytes_max: TRANSFER_BYTES_DEFAULT,
        dirs_at_once: DIRS_AT_ONCE_DEFAULT,
    };
}

/// The same, known or on its way.
pub(super) struct Limits {
    state: Mutex<LimitsState>,
}

enum LimitsState {
    Asked(Sent),
    Answered(Result<KnownLimits, (ErrorKind, String)>),
}

impl Limits {
    /// `None`: the server does not say them.
    pub(super) fn asked(sent: Option<Sent>) -> Limits {
        let state = match sent {
            Some(sent) => LimitsState::Asked(sent),
            None => LimitsState::Answered(Ok(KnownLimits::DEFAULT)),
        };
        Limits {
            state: Mutex::new(state),
        }
    }

    /// Waits for them.
    pub(super) fn known(&self) -> io::Result<KnownLimits> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = LimitsState::Answered(Ok(KnownLimits::DEFAULT));
        let answered = match std::mem::replace(&mut *state, nothing) {
            LimitsState::Asked(sent) => answer(sent).map_err(|e| (e.kind(), e.to_string())),
            LimitsState::Answered(answered) => answered,
        };
        *state = LimitsState::Answered(answered.clone());
        answered.map_err(|(kind, text)| io::Error::new(kind, text))
    }
}

fn answer(sent: Sent) -> io::Result<KnownLimits> {
    match sent.extended() {
        Ok(bytes) => {
            let limits = decode_limits(&bytes)
                .map_err(|error| invalid("limits@openssh.com", &format!("is {error}")))?;
            Ok(KnownLimits {
                read_bytes_max: transfer_bytes(limits.read_bytes_max),
                write_bytes_max: transfer_bytes(limits.write_bytes_max),
                dirs_at_once: dirs_of_handles(limits.handles_max),
            })
        }
        // Announced and refused.
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(KnownLimits::DEFAULT),
        Err(error) => Err(error),
    }
}

/// 0 says nothing.
fn transfer_bytes(limit: u64) -> usize {
    match usize::try_from(limit) {
        Ok(0) => TRANSFER_BYTES_DEFAULT,
        Ok(limit) => limit.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX),
        Err(_) => TRANSFER_BYTES_MAX,
    }
}

/// 0 says nothing.
fn dirs_of_handles(handles_max: u64) -> usize {
    match usize::try_from(handles_max / HANDLES_SHARE) {
        Ok(_) if handles_max == 0 => DIRS_AT_ONCE_DEFAULT,
        Ok(dirs) => dirs.clamp(1, DIRS_AT_ONCE_MAX),
        Err(_) => DIRS_AT_ONCE_MAX,
    }
}
