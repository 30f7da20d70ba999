//! Answers turned into what was asked for, or into errors whose kind says what callers must know.

use super::connection::Sent;
use super::wire::{SftpAttributes, SftpName, SftpReply, status};
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

/// Kind of a file in `st_mode`.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// A server's refusal, inside of an `io::Error`.
#[derive(Debug)]
struct Refusal {
    request: &'static str,
    code: u32,
    message: String,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code {
            status::EOF => "end of file",
            status::NO_SUCH_FILE => "no such file",
            status::PERMISSION_DENIED => "permission denied",
            status::FAILURE => "failure, without a reason",
            status::OP_UNSUPPORTED => "not supported",
            status::FILE_ALREADY_EXISTS => "the file exists",
            status::NO_SPACE => "no space left",
            status::QUOTA_EXCEEDED => "the quota is used up",
            _ => "refused",
        };
        write!(
            f,
            "the server answers {} with {name} (code {}",
            self.request, self.code
        )?;
        match self.message.is_empty() {
            true => write!(f, ")"),
            false => write!(f, ": {:?})", self.message),
        }
    }
}

fn refusal(request: &'static str, code: u32, message: String) -> io::Error {
    let kind = match code {
        status::EOF => ErrorKind::UnexpectedEof,
        status::NO_SUCH_FILE => ErrorKind::NotFound,
        status::PERMISSION_DENIED => ErrorKind::PermissionDenied,
        status::OK | status::BAD_MESSAGE => ErrorKind::InvalidData,
        status::NO_CONNECTION | status::CONNECTION_LOST => ErrorKind::ConnectionAborted,
        status::OP_UNSUPPORTED => ErrorKind::Unsupported,
        status::FILE_ALREADY_EXISTS => ErrorKind::AlreadyExists,
        status::NO_SPACE => ErrorKind::StorageFull,
        status::QUOTA_EXCEEDED => ErrorKind::QuotaExceeded,
        _ => ErrorKind::Other,
    };
    let refusal = Refusal {
        request,
        code,
        message,
    };
    io::Error::new(kind, refusal)
}

/// Did a server that is alive refuse the request, for whatever reason?
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Refusal>())
}

/// Nothing but that it did not work.
pub(super) fn is_plain_failure(error: &io::Error) -> bool {
    let refusal = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Refusal>());
    refusal.is_some_and(|refusal| refusal.code == status::FAILURE)
}

/// What came is no answer to what was asked.
pub(super) fn invalid(request: &str, what: &str) -> io::Error {
    let text = format!("the server's answer to {request} {what}");
    io::Error::new(ErrorKind::InvalidData, text)
}

impl Sent {
    /// Waits for a status that says OK.
    pub(super) fn done(self) -> io::Result<()> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Status {
                code: status::OK, ..
            } => Ok(()),
            other => Err(unexpected(request, other)),
        }
    }

    pub(super) fn handle(self) -> io::Result<Vec<u8>> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Handle(handle) => Ok(handle),
            other => Err(unexpected(request, other)),
        }
    }

    pub(super) fn extended(self) -> io::Result<Vec<u8>> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Extended(bytes) => Ok(bytes),
            other => Err(unexpected(request, other)),
        }
    }

    /// `None` for a file that is not there.
    pub(super) fn attributes(self) -> io::Result<Option<SftpAttributes>> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Attributes(attributes) => Ok(Some(attributes)),
            SftpReply::Status {
                code: status::NO_SUCH_FILE,
                ..
            } => Ok(None),
            other => Err(unexpected(request, other)),
        }
    }

    /// From 1 to `len_max` bytes; `None` at the end of the file.
    pub(super) fn data(self, len_max: usize) -> io::Result<Option<Vec<u8>>> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Data(bytes) if bytes.is_empty() => Err(invalid(request, "has no bytes")),
            SftpReply::Data(bytes) if bytes.len() > len_max => {
                Err(invalid(request, "has more bytes than were to be read"))
            }
            SftpReply::Data(bytes) => Ok(Some(bytes)),
            SftpReply::Status {
                code: status::EOF, ..
            } => Ok(None),
            other => Err(unexpected(request, other)),
        }
    }

    /// Names, at least one; `None` at the end of the directory.
    pub(super) fn names(self) -> io::Result<Option<Vec<SftpName>>> {
        let request = self.request();
        match self.wait()? {
            SftpReply::Names(names) if names.is_empty() => Err(invalid(request, "has no names")),
            SftpReply::Names(names) => Ok(Some(names)),
            SftpReply::Status {
                code: status::EOF, ..
            } => Ok(None),
            other => Err(unexpected(request, other)),
        }
    }
}

fn unexpected(request: &'static str, reply: SftpReply) -> io::Error {
    match reply {
        SftpReply::Status { code, message } => refusal(request, code, message),
        SftpReply::Handle(_) => invalid(request, "is a handle"),
        SftpReply::Data(_) => invalid(request, "is data"),
        SftpReply::Names(_) => invalid(request, "is a list of names"),
        SftpReply::Attributes(_) => invalid(request, "is attributes"),
        SftpReply::Extended(_) => invalid(request, "is that to an extension"),
    }
}

impl SftpAttributes {
    pub(super) fn is_file(&self) -> bool {
        self.mode.is_some_and(|mode| mode & KIND == REGULAR)
    }

    pub(super) fn is_dir(&self) -> bool {
        self.mode.is_some_and(|mode| mode & KIND == DIRECTORY)
    }

    pub(super) fn modified_time(&self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.modified?.into());
        Some(SystemTime::UNIX_EPOCH + seconds)
    }
}
