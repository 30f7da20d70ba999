//! `rclone:REMOTE:PATH`: whatever rclone reaches, through `rclone serve restic --stdio`.
//!
//! rclone is started as `ssh` is for SFTP and speaks the REST protocol as HTTP/2 on its stdin and
//! stdout: no port that others on this machine could use, no socket in a directory, and it ends
//! when we do, since its stdin does. What of the protocol is particular to it is in `rest.rs`. A
//! process that has ended is started again by the next request.

mod http2;
mod place;

use crate::http::url::HttpUrl;
use crate::http::{Answer, HttpTransport};
use crate::process::{self, ServerProcess};
use crate::rest::RestStore;
use crate::throttle::Throttle;
use bale_repository::store::{Result, StoreError};
use http::{HeaderName, Method};
use http2::Http2Connection;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use place::{RclonePlace, RclonePlaceError, without_settings};

/// Its program and the words before the place. It would remember objects that others have deleted.
const COMMAND: [&str; 5] = [
    "rclone",
    "serve",
    "restic",
    "--stdio",
    "--cache-objects=false",
];

/// It would ask for the password of its configuration on the stdin that is ours.
const VARIABLES: [(&str, &str); 1] = [("RCLONE_ASK_PASSWORD", "false")];

/// Without a byte for so long, a request is given up: it answers when its remote has the object,
/// and tries again by itself.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// What it says of a remote that its configuration does not have: the next time, too.
const NOT_CONFIGURED: &str = "didn't find section in config file";

/// Given to a process whose connection has ended, to end by itself.
const END_WAIT: Duration = Duration::from_secs(5);

/// After a request failed, until the connection is known to have ended with it; a stream that was
/// reset alone costs so long before it is tried again.
const CONNECTION_END_WAIT: Duration = Duration::from_millis(500);

/// How rclone is reached.
#[derive(Clone, Debug)]
pub struct RcloneOptions {
    /// A program and its first arguments, run in place of `rclone serve restic --stdio`: the place
    /// is the last argument, and HTTP/2 is spoken on its stdin and stdout.
    pub command: Option<Vec<String>>,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Bytes a second.
    pub throttle: Throttle,
}

impl Default for RcloneOptions {
    fn default() -> Self {
        RcloneOptions {
            command: None,
            idle_timeout: IDLE_TIMEOUT,
            throttle: Throttle::default(),
        }
    }
}

/// The repository at a place that rclone knows. Nothing is started yet.
pub fn open(place: &RclonePlace, options: &RcloneOptions) -> Result<RestStore> {
    let shown = place.to_string();
    // No name of a host: nobody resolves it.
    let url = HttpUrl::parse("http://rclone/").map_err(|error| StoreError {
        action: "open",
        object: shown.clone(),
        source: io::Error::other(error),
    })?;
    let usual = || COMMAND.map(str::to_owned).to_vec();
    let mut command = options.command.clone().unwrap_or_else(usual);
    command.push(place.argument().to_owned());
    let transport = RcloneTransport {
        command,
        options: options.clone(),
        running: Mutex::default(),
    };
    Ok(RestStore::over(Box::new(transport), url, shown))
}

/// Requests to the process, which is started by the first of them.
struct RcloneTransport {
    command: Vec<String>,
    options: RcloneOptions,
    running: Mutex<Option<Arc<Running>>>,
}

/// A process, and the connection to it. The connection is dropped first: its end ends the process.
struct Running {
    connection: Http2Connection,
    process: Ending,
}

/// Reaped with the value.
struct Ending(ServerProcess);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.finish(END_WAIT);
    }
}

impl RcloneTransport {
    /// The process in use, or a new one.
    fn running(&self) -> io::Result<Arc<Running>> {
        let mut slot = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = slot
            .as_ref()
            .filter(|running| !running.connection.has_ended())
        {
            return Ok(running.clone());
        }
        *slot = None;
        let replaced_by = "BALE_RCLONE_COMMAND";
        let started = process::start(&self.command, &VARIABLES, "rclone-words", replaced_by)?;
        let process = Ending(started.process);
        let throttle = self.options.throttle.clone();
        let opened = Http2Connection::open(
            started.stdin,
            started.stdout,
            self.options.idle_timeout,
            throttle,
        );
        let connection = opened.map_err(|error| with_words(&error, &process.0))?;
        let running = Running {
            connection,
            process,
        };
        Ok(slot.insert(Arc::new(running)).clone())
    }
}

impl HttpTransport for RcloneTransport {
    fn request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        let running = self.running()?;
        let answer = running.connection.request(method, url, headers, body);
        let is_over = || running.connection.ends_within(CONNECTION_END_WAIT);
        answer.map_err(|error| match is_over() {
            true => with_words(&error, &running.process.0),
            false => error,
        })
    }
}

/// Why the connection ended is said by the process, if it said something.
fn with_words(error: &io::Error, process: &ServerProcess) -> io::Error {
    let how = process.finish(END_WAIT);
    if how.contains(NOT_CONFIGURED) {
        let text = format!(
            "rclone knows no such remote: {how} (`rclone listremotes` lists those that it knows, \
             `rclone config` makes one)"
        );
        return io::Error::new(ErrorKind::InvalidInput, text);
    }
    let kind = match error.kind() {
        ErrorKind::NotFound => ErrorKind::ConnectionAborted,
        kind => kind,
    };
    io::Error::new(kind, format!("{error}: {how}"))
}
