//! The socket that a server listens on.

use super::{NbdServerAddress, NbdServerError};
use crate::socket::Socket;
use crate::uri::NbdTransport;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, chmodat, lstat, unlink};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

pub(super) enum Listener {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Device and inode of the socket, so that nobody else's is removed.
        identity: (u64, u64),
    },
    Tcp(TcpListener, SocketAddr),
}

impl Listener {
    pub(super) fn bind(address: &NbdServerAddress) -> Result<Listener, NbdServerError> {
        match address {
            NbdServerAddress::Unix(path) => bind_unix(path),
            NbdServerAddress::Loopback(address) if !address.ip().is_loopback() => {
                Err(NbdServerError::NotLoopback(*address))
            }
            NbdServerAddress::Loopback(address) | NbdServerAddress::Anywhere(address) => {
                let failed = |error| NbdServerError::Listen(address.to_string(), error);
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok(Listener::Tcp(listener, address))
            }
        }
    }

    pub(super) fn transport(&self) -> NbdTransport {
        match self {
            Listener::Unix { path, .. } => NbdTransport::Unix(path.clone()),
            Listener::Tcp(_, address) => NbdTransport::Tcp {
                host: address.ip().to_string(),
                port: address.port(),
            },
        }
    }

    /// The next connection; `None` once the other end of `woken` is closed.
    pub(super) fn accept(&self, woken: &UnixStream) -> Option<Socket> {
        loop {
            let listening = match self {
                Listener::Unix { listener, .. } => listener.as_fd(),
                Listener::Tcp(listener, _) => listener.as_fd(),
            };
            let mut waits = [
                PollFd::new(woken, PollFlags::IN),
                PollFd::from_borrowed_fd(listening, PollFlags::IN),
            ];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
            if !waits[0].revents().is_empty() {
                return None;
            }
            // One that has gone again, or for which there is no descriptor, costs one turn.
            if let Ok(socket) = self.accept_now() {
                return Some(socket);
            }
        }
    }

    fn accept_now(&self) -> io::Result<Socket> {
        Ok(match self {
            Listener::Unix { listener, .. } => {
                let socket = listener.accept()?.0;
                socket.set_nonblocking(false)?;
                Socket::Unix(socket)
            }
            Listener::Tcp(listener, _) => {
                let socket = listener.accept()?.0;
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                Socket::Tcp(socket)
            }
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, identity, .. } = self
            && identity_of(path).is_ok_and(|found| found == *identity)
        {
            // Somebody may have removed the directory.
            let _ = unlink(path.as_path());
        }
    }
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let found = lstat(path)?;
    Ok((found.st_dev, found.st_ino))
}

/// Nobody can connect before the socket is its owner's alone: it listens after that.
fn bind_unix(path: &Path) -> Result<Listener, NbdServerError> {
    let failed = |error: io::Error| NbdServerError::Listen(path.display().to_string(), error);
    make_room(path)?;
    let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
    let bound = || -> io::Result<_> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &address)?;
        chmodat(
            CWD,
            path,
            Mode::RUSR | Mode::WUSR,
            rustix::fs::AtFlags::empty(),
        )?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((UnixListener::from(socket), identity_of(path)?))
    };
    let (listener, identity) = bound().map_err(failed)?;
    Ok(Listener::Unix {
        listener,
        path: path.to_owned(),
        identity,
    })
}

/// Removes a socket that a program left behind which was killed.
fn make_room(path: &Path) -> Result<(), NbdServerError> {
    let failed = |error: io::Error| NbdServerError::Listen(path.display().to_string(), error);
    let found = match lstat(path) {
        Ok(found) => found,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(NbdServerError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            unlink(path).map_err(|error| failed(error.into()))
        }
        _ => Err(NbdServerError::InUse(path.to_owned())),
    }
}
