//! A connection to another process, over TCP or a Unix socket, made within a time.

use crate::uri::NbdTransport;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two tries to get into the queue of a socket that is full.
const LOOK: Duration = Duration::from_millis(20);

/// Either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects before the deadline.
    pub(crate) fn connect(transport: &NbdTransport, deadline: Instant) -> io::Result<Socket> {
        match transport {
            NbdTransport::Tcp { host, port } => connect_tcp(host, *port, deadline),
            NbdTransport::Unix(path) => connect_unix(path, deadline).map(Socket::Unix),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(socket) => socket.try_clone().map(Socket::Tcp),
            Socket::Unix(socket) => socket.try_clone().map(Socket::Unix),
        }
    }

    pub(crate) fn set_read_timeout(&self, wait: Duration) -> io::Result<()> {
        // Zero would mean for ever.
        let wait = Some(wait.max(Duration::from_millis(1)));
        match self {
            Socket::Tcp(socket) => socket.set_read_timeout(wait),
            Socket::Unix(socket) => socket.set_read_timeout(wait),
        }
    }

    pub(crate) fn set_no_read_timeout(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_read_timeout(None),
            Socket::Unix(socket) => socket.set_read_timeout(None),
        }
    }

    pub(crate) fn set_write_timeout(&self, wait: Duration) -> io::Result<()> {
        let wait = Some(wait.max(Duration::from_millis(1)));
        match self {
            Socket::Tcp(socket) => socket.set_write_timeout(wait),
            Socket::Unix(socket) => socket.set_write_timeout(wait),
        }
    }

    /// Ends one direction or both; who waits in another thread for it returns.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // An error means that the other side has ended it.
        let _ = match self {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        };
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(buffer),
            Socket::Unix(socket) => (&*socket).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write(bytes),
            Socket::Unix(socket) => (&*socket).write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write_vectored(slices),
            Socket::Unix(socket) => (&*socket).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::HostUnreachable, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                // Requests are small, and each is waited for.
                socket.set_nodelay(true)?;
                return Ok(Socket::Tcp(socket));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The queue of a socket whose owner accepts nothing is full, and a plain call waits for ever.
pub(crate) fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK);
    }
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}
