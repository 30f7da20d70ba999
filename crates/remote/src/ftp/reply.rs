//! What the replies and errors of an FTP server mean, in the kinds of `io::Error`.

use crate::http::from_wire;
use crate::shown::shown;
use std::io::{self, ErrorKind};
use suppaftp::types::Response;
use suppaftp::{FtpError, Status};

/// The reply to a command that a server does not know. Some have the same for what is not there.
pub fn is_unknown(reply: &Response) -> bool {
    !says_absent(reply)
        && matches!(
            reply.status,
            Status::BadCommand
                | Status::BadArguments
                | Status::NotImplemented
                | Status::NotImplementedParameter
        )
}

pub fn from_library(error: FtpError, is_over: Option<&mut bool>) -> io::Error {
    let (error, ends) = match error {
        FtpError::UnexpectedResponse(reply) => from_reply(&reply),
        FtpError::ConnectionError(error) if error.kind() == ErrorKind::InvalidInput => {
            (error, true)
        }
        FtpError::ConnectionError(error) => (from_wire(error), true),
        FtpError::SecureError(why) => {
            let why = shown(why.as_bytes());
            (
                io::Error::other(format!("no encrypted connection: {why}")),
                true,
            )
        }
        error => {
            let why = shown(error.to_string().as_bytes());
            (
                invalid(&format!(
                    "the server does not speak FTP as it should: {why}"
                )),
                true,
            )
        }
    };
    if let Some(is_over) = is_over {
        *is_over |= ends;
    }
    error
}

/// What a refusal means, and whether it ends the session. 550 is said of what is not there and of
/// what is forbidden; only its words tell.
pub fn from_reply(reply: &Response) -> (io::Error, bool) {
    let said = words(reply);
    let says = |word: &str| said.to_ascii_lowercase().contains(word);
    let is_forbidden = [
        "denied",
        "permission",
        "not allowed",
        "forbidden",
        "privilege",
    ];
    let is_forbidden = is_forbidden.into_iter().any(says);
    let is_absent = says_absent(reply);
    let is_full = ["quota", "no space", "disk full"].into_iter().any(says);
    let kind = match reply.status {
        Status::NotAvailable => {
            let why = format!("the server ends the connection: {said}");
            return (io::Error::new(ErrorKind::ConnectionAborted, why), true);
        }
        // Some say only so that it is the disk.
        Status::TransferAborted | Status::ActionAborted | Status::RequestFileActionIgnored
            if is_full =>
        {
            ErrorKind::StorageFull
        }
        Status::CannotOpenDataConnection
        | Status::TransferAborted
        | Status::HostUnavailable
        | Status::ActionAborted => ErrorKind::ResourceBusy,
        Status::RequestFileActionIgnored if !is_absent => ErrorKind::ResourceBusy,
        Status::RequestedActionNotTaken | Status::ExceededStorage => ErrorKind::StorageFull,
        Status::NotLoggedIn | Status::InvalidCredentials => {
            let why = format!("the server knows no such user with this password: {said}");
            return (io::Error::new(ErrorKind::PermissionDenied, why), false);
        }
        Status::StoringNeedAccount | Status::BadFilename => ErrorKind::PermissionDenied,
        Status::FileUnavailable if is_forbidden => ErrorKind::PermissionDenied,
        Status::FileUnavailable if says("exists") && !is_absent => ErrorKind::AlreadyExists,
        Status::FileUnavailable if is_full || says("full") => ErrorKind::StorageFull,
        Status::FileUnavailable | Status::RequestFileActionIgnored => ErrorKind::NotFound,
        Status::BadArguments if is_absent => ErrorKind::NotFound,
        _ if is_unknown(reply) => ErrorKind::Unsupported,
        // A reply to something else, it may be.
        _ => return (io::Error::other(format!("the server replies {said}")), true),
    };
    (
        io::Error::new(kind, format!("the server replies {said}")),
        false,
    )
}

fn says_absent(reply: &Response) -> bool {
    let said = words(reply).to_ascii_lowercase();
    let absent = ["not found", "no such", "not exist", "n't exist"];
    absent.iter().any(|words| said.contains(words))
}

/// Its last line: in a reply of several, that is the one that counts.
pub fn words(reply: &Response) -> String {
    let mut lines = reply.body.split(|byte| *byte == b'\n');
    let last = lines.rfind(|line| !line.is_empty());
    shown(last.unwrap_or_default())
}

pub fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_owned())
}
