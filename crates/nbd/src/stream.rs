//! The two halves of a connection, encrypted or not: one thread reads while others write.
//!
//! An encrypted connection is one state that both halves need. It is locked while bytes are turned
//! into others, and never while a thread waits for the socket: a server that reads nothing until
//! its answers are read would otherwise wait for us, and we for it.

use crate::socket::Socket;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Encrypted bytes taken from a socket at once: a record and a little more.
const RAW_BYTES: usize = 20 << 10;

/// Name of the authorities' file in a directory of certificates, as other NBD programs have it.
const AUTHORITIES_FILE: &str = "ca-cert.pem";

type Tls = Arc<Mutex<ClientConnection>>;

/// Half of a connection that is read from.
pub(crate) struct ReadHalf {
    socket: Socket,
    tls: Option<Tls>,
    /// Encrypted bytes, and how many of them were taken.
    raw: Vec<u8>,
    raw_from: usize,
    /// For whatever is read until it is taken away.
    pub deadline: Option<Instant>,
}

/// Half of a connection that is written to.
pub(crate) struct WriteHalf {
    socket: Socket,
    tls: Option<Tls>,
}

/// Halves of a plain connection.
pub(crate) fn halves(socket: Socket) -> io::Result<(ReadHalf, WriteHalf)> {
    let second = socket.try_clone()?;
    let reader = ReadHalf {
        socket,
        tls: None,
        raw: Vec::new(),
        raw_from: 0,
        deadline: None,
    };
    let writer = WriteHalf {
        socket: second,
        tls: None,
    };
    Ok((reader, writer))
}

fn lock(tls: &Tls) -> MutexGuard<'_, ClientConnection> {
    tls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadHalf {
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Fills the buffer before the deadline.
    pub(crate) fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => buffer = &mut buffer[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_socket(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(left)?;
        }
        (&self.socket).read(buffer)
    }

    /// One step at a time: decrypted bytes are taken before more are decrypted.
    fn read_tls(&mut self, tls: &Tls, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(tls).reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without a farewell is an error here: somebody else may have cut it.
                result => return result,
            }
            if self.raw_from == self.raw.len() {
                let mut raw = std::mem::take(&mut self.raw);
                raw.resize(RAW_BYTES, 0);
                let len = self.read_socket(&mut raw);
                raw.truncate(*len.as_ref().unwrap_or(&0));
                (self.raw, self.raw_from) = (raw, 0);
                len?;
            }
            let mut connection = lock(tls);
            // Of no bytes it learns that the other side has ended.
            let mut rest = &self.raw[self.raw_from..];
            self.raw_from += connection.read_tls(&mut rest)?;
            connection.process_new_packets().map_err(tls_error)?;
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.tls.clone() {
            None => self.read_socket(buffer),
            Some(tls) => self.read_tls(&tls, buffer),
        }
    }
}

impl WriteHalf {
    /// Sends a head and what follows it.
    pub(crate) fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            return send_both(&self.socket, head, data);
        };
        for mut rest in [head, data] {
            while !rest.is_empty() {
                let mut raw = Vec::new();
                {
                    let mut connection = lock(tls);
                    // It takes what its own buffer has room for.
                    let len = connection.writer().write(rest)?;
                    rest = &rest[len..];
                    while connection.wants_write() {
                        connection.write_tls(&mut raw)?;
                    }
                }
                (&self.socket).write_all(&raw)?;
            }
        }
        Ok(())
    }

    pub(crate) fn shut_down(&self) {
        self.socket.shut_down(Shutdown::Both);
    }
}

/// In one call where it can be: two small packets would be sent one after the other.
fn send_both(mut socket: &Socket, head: &[u8], data: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < head.len() {
        let slices = [io::IoSlice::new(&head[sent..]), io::IoSlice::new(data)];
        match socket.write_vectored(&slices) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.write_all(&data[sent - head.len()..])
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Begins to encrypt: from here on nothing is sent in clear. The server's certificate must be for
/// this host.
pub(crate) fn encrypt(
    reader: &mut ReadHalf,
    writer: &mut WriteHalf,
    host: &str,
    certificates: Option<&Path>,
) -> io::Result<()> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "the host is no name"))?;
    let config = client_config(certificates)?;
    let mut connection = ClientConnection::new(config, name).map_err(tls_error)?;
    let mut raw = [0; RAW_BYTES];
    while connection.is_handshaking() {
        let mut out = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut out)?;
        }
        (&writer.socket).write_all(&out)?;
        if !connection.is_handshaking() {
            break;
        }
        let len = reader.read_socket(&mut raw)?;
        if len == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &raw[..len];
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            if let Err(error) = connection.process_new_packets() {
                // Why is said to the server as well, if it still listens.
                let mut out = Vec::new();
                let _ = connection.write_tls(&mut out);
                let _ = (&writer.socket).write_all(&out);
                return Err(tls_error(error));
            }
        }
    }
    let mut out = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut out)?;
    }
    (&writer.socket).write_all(&out)?;
    let tls = Arc::new(Mutex::new(connection));
    reader.tls = Some(tls.clone());
    writer.tls = Some(tls);
    Ok(())
}

fn client_config(certificates: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // A system has a few that nobody can read; a server signed by one of them is refused.
    let (_good, _bad) = roots.add_parsable_certificates(trusted(certificates)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The authorities in a directory of certificates, or those of this system.
fn trusted(certificates: Option<&Path>) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = match certificates {
        None => rustls_native_certs::load_native_certs().certs,
        Some(directory) => {
            let path = directory.join(AUTHORITIES_FILE);
            let read = CertificateDer::pem_file_iter(&path);
            let read = read.and_then(|found| found.collect::<Result<Vec<_>, _>>());
            read.map_err(|error| {
                let why = format!("read certificates from {}: {error}", path.display());
                io::Error::other(why)
            })?
        }
    };
    match found.is_empty() {
        true => Err(io::Error::other(
            "there are no certificates of authorities (package ca-certificates, or \
             tls-certificates=DIRECTORY with ca-cert.pem in it)",
        )),
        false => Ok(found),
    }
}
