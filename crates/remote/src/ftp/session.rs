//! One login at an FTP server, its commands, and what its replies mean; the only file that knows
//! how the library is used.
//!
//! A session of which it is not certain what its next reply belongs to is over. Nothing is ever
//! appended to, and no transfer is resumed: the offset before a `RETR` is that of a range.

mod upload;

use super::FtpOptions;
use super::facts::{FtpEntry, read_facts, read_listing};
use super::place::FtpPlace;
use super::reply::{from_library, invalid, is_unknown, words};
use crate::files::FileInfo;
use crate::http::{NAME_NOT_RESOLVED, from_wire};
use crate::login::{StoreLogin, as_whom};
use crate::throttle::Throttle;
use bale_cloud::trust;
use bale_repository::store::ends_early;
use rustix::net::sockopt;
use rustls::ClientConfig;
use std::io::{self, BufReader, ErrorKind, Read};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use suppaftp::types::FileType;
use suppaftp::{FtpError, FtpResult, Mode, RustlsConnector, RustlsFtpStream, Status};
use suppaftp::{TlsConnector, TransferStream};

/// How long a reply is waited for that ends a transfer which we ended.
const ABANDONED_WAIT: Duration = Duration::from_secs(10);

/// A connection that says nothing shows after so long that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Bytes that are asked of a data connection at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Replies that begin a transfer.
const BEGINS: [Status; 2] = [Status::AboutToSend, Status::AlreadyOpen];

pub use upload::FtpUpload;

type Transfer = TransferStream<<RustlsConnector as TlsConnector>::Stream>;

/// How sessions at one server begin.
pub struct Dial {
    pub place: FtpPlace,
    options: FtpOptions,
    tls: Option<Arc<ClientConfig>>,
}

/// A login at a server.
pub struct Session {
    stream: RustlsFtpStream,
    /// The directory of the repository, absolute.
    root: String,
    /// The server says of one name what it is; SIZE may say 0 of a directory.
    has_mlst: bool,
    idle_timeout: Duration,
    throttle: Throttle,
    is_over: bool,
    used: Instant,
}

impl Dial {
    /// Reads certificates; makes no connection.
    pub fn new(place: FtpPlace, options: FtpOptions) -> io::Result<Dial> {
        let tls = match place.is_encrypted {
            true => Some(trust::client_config(options.ca_file.as_deref())?),
            false => None,
        };
        Ok(Dial {
            place,
            options,
            tls,
        })
    }

    /// Logs in.
    pub fn session(&self) -> io::Result<Session> {
        let stream = self.connect()?;
        let mut session = Session {
            stream,
            root: String::new(),
            has_mlst: false,
            idle_timeout: self.options.idle_timeout,
            throttle: self.options.throttle.clone(),
            is_over: false,
            used: Instant::now(),
        };
        self.log_in(&mut session).map_err(|error| {
            // That there is no such object is something else.
            let kind = Some(error.kind()).filter(|kind| *kind != ErrorKind::NotFound);
            let text = format!("log in ({}): {error}", as_whom(self.login()));
            io::Error::new(kind.unwrap_or(ErrorKind::Other), text)
        })?;
        Ok(session)
    }

    fn connect(&self) -> io::Result<RustlsFtpStream> {
        let server = (self.place.host.as_str(), self.place.port);
        let addresses = server.to_socket_addrs().map_err(|error| {
            let text = format!("{NAME_NOT_RESOLVED}: {error}");
            io::Error::new(ErrorKind::HostUnreachable, text)
        })?;
        let mut last = ErrorKind::HostUnreachable.into();
        for address in addresses {
            match dial(address, &self.options) {
                Ok(socket) => return self.greet(socket),
                Err(error) => last = error,
            }
        }
        Err(from_wire(last))
    }

    fn greet(&self, socket: TcpStream) -> io::Result<RustlsFtpStream> {
        let options = self.options.clone();
        let data = move |address| dial(address, &options).map_err(FtpError::ConnectionError);
        let line = socket.try_clone()?;
        let stream = RustlsFtpStream::connect_with_stream(socket);
        let stream = stream.map_err(|error| cut_or(from_library(error, None), &line))?;
        // An address that a server names is not gone to: the data is where the server is.
        let mut stream = stream.passive_stream_builder(data);
        stream.set_passive_nat_workaround(true);
        stream.set_mode(Mode::ExtendedPassive);
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        let connector = RustlsConnector::from(tls.clone());
        let secure = stream.into_secure(connector, &self.place.host);
        secure.map_err(|error| match error {
            FtpError::UnexpectedResponse(reply) => {
                let said = words(&reply);
                io::Error::other(format!("the server does not encrypt (AUTH TLS): {said}"))
            }
            error => from_library(error, None),
        })
    }

    fn login(&self) -> Option<&StoreLogin> {
        self.place.login.as_ref().or(self.options.login.as_ref())
    }

    fn log_in(&self, session: &mut Session) -> io::Result<()> {
        let (user, password) = match self.login() {
            Some(login) => (login.user.as_str(), login.password.as_str()),
            None => ("anonymous", "anonymous@"),
        };
        let done = session.stream.login(user, password);
        session.check(done)?;
        let done = session.stream.transfer_type(FileType::Binary);
        session.check(done)?;
        let features = features(&mut session.stream);
        let features = session.check(features)?.to_ascii_uppercase();
        let has = |feature: &str| {
            features
                .lines()
                .any(|line| line.trim().starts_with(feature))
        };
        session.has_mlst = has("MLST");
        if !has("MLSD") && !session.has_mlst {
            let why = "the server has no listings for programs (MLSD of RFC 3659), and what it \
                       shows to people cannot be read safely: it cannot keep a repository";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        session.root = match self.place.path.starts_with('/') {
            true => self.place.path.clone(),
            false => {
                let home = session.stream.pwd();
                let home = session.check(home)?;
                if !home.starts_with('/') || home.chars().any(char::is_control) {
                    return Err(invalid("the server's directory has no path"));
                }
                format!("{}/{}", home.trim_end_matches('/'), self.place.path)
            }
        };
        Ok(())
    }
}

/// The lines of a server's reply to FEAT, however they are indented.
fn features(stream: &mut RustlsFtpStream) -> FtpResult<String> {
    // The library reads on to the last line only of a reply that was not expected.
    match stream.custom_command("FEAT", &[Status::Help]) {
        Ok(reply) => Ok(String::from_utf8_lossy(&reply.body).into_owned()),
        Err(FtpError::UnexpectedResponse(reply)) if reply.status == Status::System => {
            Ok(String::from_utf8_lossy(&reply.body).into_owned())
        }
        Err(FtpError::UnexpectedResponse(reply)) if is_unknown(&reply) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// A reply that cannot be read, or is none to its command, may be the beginning of one: then the
/// connection has ended.
fn cut_or(error: io::Error, line: &TcpStream) -> io::Error {
    let has_ended = || {
        line.set_nonblocking(true).is_err()
            || match line.peek(&mut [0]) {
                Ok(more) => more == 0,
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
            || line.set_nonblocking(false).is_err()
    };
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::Other if has_ended() => {
            let why = "the server ended the connection in the middle of a reply";
            io::Error::new(ErrorKind::ConnectionAborted, why)
        }
        _ => error,
    }
}

fn dial(address: std::net::SocketAddr, options: &FtpOptions) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, options.connect_timeout)?;
    socket.set_read_timeout(Some(options.idle_timeout))?;
    socket.set_write_timeout(Some(options.idle_timeout))?;
    socket.set_nodelay(true)?;
    // Of the two connections, one is silent for as long as the other carries a large file: what is
    // between here and there would forget it. Not every system lets it be set.
    let _is_kept_by_luck = sockopt::set_socket_keepalive(&socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE));
    Ok(socket)
}

impl Session {
    /// Can another command be sent?
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Since its last command.
    pub fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    /// The directory of the repository, absolute.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// A path of the repository as the server knows it.
    fn at(&self, path: &str) -> String {
        match path {
            "" => self.root.clone(),
            path => format!("{}/{path}", self.root),
        }
    }

    fn check<T>(&mut self, done: FtpResult<T>) -> io::Result<T> {
        self.used = Instant::now();
        done.map_err(|error| {
            let error = from_library(error, Some(&mut self.is_over));
            cut_or(error, &self.stream.get_ref())
        })
    }

    /// Is it still there?
    pub fn is_alive(&mut self) -> bool {
        let done = self.stream.noop();
        self.check(done).is_ok()
    }

    /// What a file is; `None` if there is no file of that name.
    pub fn stat(&mut self, path: &str) -> io::Result<Option<FileInfo>> {
        let path = self.at(path);
        let info = match self.has_mlst {
            true => {
                let done = self.stream.mlst(Some(&path));
                self.check(done)
                    .and_then(|line| self.facts_of(&path, &line))
            }
            false => {
                let done = self.stream.size(path);
                self.check(done).map(|len| FileInfo {
                    len: Some(len as u64),
                    modified: None,
                })
            }
        };
        match info {
            Ok(info) => Ok(Some(info).filter(|info| info.len.is_some())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a line says, if it speaks of that name. Otherwise it replies to another command, and
    /// so would all that follow.
    fn facts_of(&mut self, path: &str, line: &str) -> io::Result<FileInfo> {
        let named = line.split_once(' ').map_or("", |(_, name)| name);
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        if last(named) != last(path) {
            self.is_over = true;
            return Err(invalid("the server says what a file is by something else"));
        }
        read_facts(line).map(|facts| facts.0)
    }

    /// Bytes of a file; `None` if there is no file of that name.
    pub fn size(&mut self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.stat(path)?.and_then(|info| info.len))
    }

    /// Is there a directory of this absolute path?
    pub fn has_dir(&mut self, path: &str) -> io::Result<bool> {
        let done = self.stream.cwd(path);
        match self.check(done) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Is there a directory of the repository?
    pub fn is_dir(&mut self, path: &str) -> io::Result<bool> {
        self.has_dir(&self.at(path))
    }

    /// Makes a directory of this absolute path.
    pub fn make(&mut self, path: &str) -> io::Result<()> {
        let done = self.stream.mkdir(path);
        self.check(done)
    }

    /// Makes a directory of the repository; one that is there is no error.
    pub fn make_dir(&mut self, path: &str) -> io::Result<()> {
        match self.make(&self.at(path)) {
            Err(error) if !self.is_over && !self.is_dir(path)? => Err(error),
            _ if self.is_over => Err(ErrorKind::NotConnected.into()),
            _ => Ok(()),
        }
    }

    /// Removes a file; one that is not there is no error.
    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        let done = self.stream.rm(self.at(path));
        match self.check(done) {
            // It is said of what cannot be removed as well.
            Err(error) if error.kind() == ErrorKind::NotFound => match self.size(path)? {
                None => Ok(()),
                Some(_) => Err(io::Error::new(
                    ErrorKind::PermissionDenied,
                    error.to_string(),
                )),
            },
            removed => removed,
        }
    }

    /// A directory in which something is stays.
    pub fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let path = self.at(path);
        let done = self.stream.rmdir(path);
        self.check(done)
    }

    /// Servers replace what has that name.
    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.at(from), self.at(to));
        let done = self.stream.rename(from, to);
        self.check(done)
    }

    /// Writes a file from its beginning.
    pub fn store(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut transfer = self.begin_store(path)?;
        let sent = self.send(&mut transfer, bytes);
        self.end_store(transfer, sent)
    }

    /// A whole file of `len` bytes.
    pub fn retrieve(&mut self, path: &str, len: u64) -> io::Result<Vec<u8>> {
        let path = self.at(path);
        let mut transfer = self.begin(|stream| stream.retr_as_stream(&path))?;
        let mut bytes = Vec::new();
        let mut read = || {
            let body = (&mut transfer).take(len);
            self.throttle.downloaded(body).read_to_end(&mut bytes)?;
            match bytes.len() as u64 == len {
                true => transfer.read(&mut [0]).map(|more| more == 0),
                false => {
                    let why = format!("{len} bytes were promised, and {} came", bytes.len());
                    Err(io::Error::new(ErrorKind::ConnectionAborted, why))
                }
            }
        };
        match read() {
            Ok(true) => {
                let done = transfer.finish();
                self.check(done).map(|()| bytes)
            }
            Ok(false) => {
                self.abandon(transfer);
                Err(invalid("the server sends more than it promised"))
            }
            Err(error) => {
                self.abandon(transfer);
                Err(from_wire(error))
            }
        }
    }

    /// Fills `buf` from `offset`, on a data connection of its own.
    pub fn retrieve_range(&mut self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(|_| ends_early(offset, buf.len(), 0))?;
        let path = self.at(path);
        let begun = self.begin(|stream| {
            stream.resume_transfer(at)?;
            stream.retr_as_stream(&path)
        });
        let mut transfer = begun?;
        match self.throttle.downloaded(&mut transfer).read_exact(buf) {
            Ok(()) => {
                self.end_early(transfer);
                Ok(())
            }
            Err(error) => {
                self.abandon(transfer);
                // Its length says whether it is too short; that is the caller's to find out.
                let is_short = error.kind() == ErrorKind::UnexpectedEof;
                Err(match is_short {
                    true => error,
                    false => from_wire(error),
                })
            }
        }
    }

    /// Names in a directory.
    pub fn list(&mut self, path: &str, found: &mut dyn FnMut(FtpEntry<'_>)) -> io::Result<()> {
        let command = format!("MLSD {}", self.at(path));
        let transfer = self.begin(|stream| {
            let begun = stream.custom_data_command(&command, &BEGINS);
            begun.map(|(_, transfer)| transfer)
        })?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, transfer);
        let listed = read_listing(&mut reader, found);
        let transfer = reader.into_inner();
        match listed {
            Ok(()) => {
                let done = transfer.finish();
                self.check(done)
            }
            Err(error) => {
                self.abandon(transfer);
                Err(match error.kind() {
                    ErrorKind::InvalidData => error,
                    _ => from_wire(error),
                })
            }
        }
    }

    /// Begins a transfer; where the server does not know extended passive mode, in the old one.
    fn begin(
        &mut self,
        mut transfer: impl FnMut(&mut RustlsFtpStream) -> FtpResult<Transfer>,
    ) -> io::Result<Transfer> {
        match transfer(&mut self.stream) {
            Err(FtpError::UnexpectedResponse(reply)) if is_unknown(&reply) => {
                self.stream.set_mode(Mode::Passive);
                let begun = transfer(&mut self.stream);
                self.check(begun)
            }
            begun => self.check(begun),
        }
    }

    /// Ends a transfer of which enough has come. The server replies once, that it was cut or that
    /// it had sent all already; a command after it shows whether there was a second reply.
    fn end_early(&mut self, transfer: Transfer) {
        self.set_patience(ABANDONED_WAIT);
        let ended = match transfer.finish() {
            Ok(()) | Err(FtpError::UnexpectedResponse(_)) => self.stream.noop().is_ok(),
            Err(_) => false,
        };
        self.is_over = !ended;
        self.set_patience(self.idle_timeout);
    }

    /// Ends a transfer that went wrong, and the session.
    fn abandon(&mut self, transfer: Transfer) {
        self.is_over = true;
        // Else dropping it would wait for a reply.
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
        drop(transfer);
    }

    fn set_patience(&mut self, patience: Duration) {
        if self
            .stream
            .get_ref()
            .set_read_timeout(Some(patience))
            .is_err()
        {
            self.is_over = true;
        }
    }
}
