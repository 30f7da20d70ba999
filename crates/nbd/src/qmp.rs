//! The monitor of a QEMU (QMP): commands and answers as lines of JSON over a Unix socket.
//!
//! One command at a time; events are passed over. What QEMU refuses is an error of that command,
//! and the next may be given; a line that cannot be, or silence, ends the connection.

use crate::shown::shown;
use crate::socket::connect_unix;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of one answer: a machine with hundreds of disks describes them in less.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Events before an answer at most.
const EVENTS_MAX: usize = 10_000;

/// For a connection, and for each answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Why QEMU did not do what it was to do.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error(
        "connect to QEMU's monitor {} (a monitor takes one client at a time: is it a socket of its \
         own?)",
        .socket.display()
    )]
    Connect { socket: PathBuf, source: io::Error },
    #[error("{command}: QEMU's monitor {} does not answer", .socket.display())]
    Lost {
        socket: PathBuf,
        command: String,
        source: io::Error,
    },
    #[error("{command}: QEMU says: {message}")]
    Refused { command: String, message: String },
}

/// A connection to a monitor.
pub struct QmpClient {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

impl QmpClient {
    pub fn connect(socket: &Path) -> Result<QmpClient, QmpError> {
        let failed = |source| QmpError::Connect {
            socket: socket.to_owned(),
            source,
        };
        let stream = connect_unix(socket, Instant::now() + ANSWER_MAX).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        let mut client = QmpClient {
            socket: socket.to_owned(),
            stream: BufReader::new(stream),
        };
        let greeting = client.line().map_err(failed)?;
        if greeting.get("QMP").is_none() {
            return Err(failed(io::Error::other("it is no monitor of QEMU")));
        }
        client.execute("qmp_capabilities", json!({}))?;
        Ok(client)
    }

    /// The user and the group that QEMU runs as.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let peer = socket_peercred(self.stream.get_ref())?;
        Ok((peer.uid.as_raw(), peer.gid.as_raw()))
    }

    /// Does one thing; what QEMU returns.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let request = json!({ "execute": command, "arguments": arguments });
        let answer = self.answer(&request).map_err(|source| QmpError::Lost {
            socket: self.socket.clone(),
            command: command.to_owned(),
            source,
        })?;
        match answer {
            Ok(value) => Ok(value),
            Err(message) => Err(QmpError::Refused {
                command: command.to_owned(),
                message,
            }),
        }
    }

    fn answer(&mut self, request: &Value) -> io::Result<Result<Value, String>> {
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())?;
        for _ in 0..EVENTS_MAX {
            let mut line = self.line()?;
            if let Some(value) = line.get_mut("return") {
                return Ok(Ok(value.take()));
            }
            if let Some(error) = line.get("error") {
                let text = error["desc"].as_str().unwrap_or("it failed");
                return Ok(Err(shown(text.as_bytes())));
            }
        }
        Err(io::Error::other("it speaks of everything but what it did"))
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => serde_json::from_slice(&line).map_err(io::Error::other),
            Some(_) if line.len() as u64 >= LINE_BYTES_MAX => {
                Err(io::Error::other("its answer is too long"))
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
