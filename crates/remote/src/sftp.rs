//! `SftpStore`: a repository in a directory of a host that the user's own `ssh` reaches.
//!
//! Our own client of SFTP version 3, so that the user's configuration, agents, host keys and jump
//! hosts are used as they are. One connection is shared by all threads, with many requests in
//! flight; large uploads beside each other get further ones where they can be had. An object is
//! written in `tmp/`, synced if the server can, and given its name by a link, which never replaces
//! what is there; so a name stands for a whole object. Whether directories are durable is for the
//! server to see to: there is no request for it.
//!
//! Every request is made once. After the connection has ended, the next request makes a new one.
//! Nothing that a server says is believed further than it can be checked.

use crate::process;
use crate::room::Room;
use crate::throttle::Throttle;
use bale_pipeline::amount::counted;
use bale_pipeline::filter::{TAG_NAME, TAG_SIGNATURE};
use bale_pipeline::random::{OsRandom, Random};
use bale_repository::limits::UPLOADS_MAX_SFTP;
use bale_repository::store::{
    Area, ForeignEntry, Next, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError,
    StoreShape, WholeWriter, ends_early,
};
use lanes::Lanes;
use listing::Listed;
use place::Asking;
use publish::Target;
use request::Request;
use session::Session;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

mod answer;
mod connection;
mod lanes;
mod layout;
mod limits;
mod listing;
mod open_files;
mod permits;
mod place;
mod publish;
mod refused;
mod request;
mod session;
mod stream;
mod temporary;
mod transfer;
pub mod wire;

pub use connection::SftpLink;
pub use place::{SftpCommandError, SftpPlace, SftpPlaceError, split_command};

/// Without an answer for so long, a request is given up.
pub const SFTP_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Room for bytes before they come; the rest grows as it arrives.
const RESERVED_BYTES_MAX: u64 = 16 << 20;

/// The longest file that there can be.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// How a server is reached.
#[derive(Clone, Debug)]
pub struct SftpOptions {
    /// A program and its arguments, run in place of `ssh`: SFTP is spoken on its stdin and stdout.
    pub command: Option<Vec<String>>,
    /// Without an answer for so long, a request is given up.
    pub timeout: Duration,
    /// Bytes a second.
    pub throttle: Throttle,
}

impl Default for SftpOptions {
    fn default() -> Self {
        SftpOptions {
            command: None,
            timeout: SFTP_TIMEOUT,
            throttle: Throttle::default(),
        }
    }
}

type Dial = Box<dyn Fn(Nth) -> io::Result<SftpLink> + Send + Sync>;

/// Which connection of a store is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nth {
    First,
    /// One beside the first, which the store can do without.
    Further,
}

/// A server, and the directory of the repository on it.
pub struct SftpServer {
    dial: Dial,
    root: String,
    place: String,
    timeout: Duration,
    throttle: Throttle,
}

impl SftpServer {
    /// Reached through `ssh`, or what stands in its place.
    pub fn at(place: &SftpPlace, options: &SftpOptions) -> SftpServer {
        let own = &options.command;
        let usual = || place.ssh_command(Asking::Allowed);
        let first = own.clone().unwrap_or_else(usual);
        // Nobody is asked for his password a second time, in the middle of something.
        let further = own.clone();
        let further = further.unwrap_or_else(|| place.ssh_command(Asking::Never));
        SftpServer {
            dial: Box::new(move |nth| {
                let command = match nth {
                    Nth::First => &first,
                    Nth::Further => &further,
                };
                let started = process::start(command, &[], "sftp-words", "BALE_SFTP_COMMAND")?;
                let pipes = SftpLink::over(Box::new(started.stdout), Box::new(started.stdin));
                Ok(pipes.of_process(started.process))
            }),
            root: place.path().to_owned(),
            place: place.to_string(),
            timeout: options.timeout,
            throttle: options.throttle.clone(),
        }
    }

    /// Reached by whatever `dial` returns, for each connection anew.
    pub fn over(
        root: &str,
        timeout: Duration,
        dial: impl Fn() -> io::Result<SftpLink> + Send + Sync + 'static,
    ) -> SftpServer {
        SftpServer {
            dial: Box::new(move |_| dial()),
            root: root.to_owned(),
            place: format!("sftp:{root}"),
            timeout,
            throttle: Throttle::default(),
        }
    }
}

/// A repository on a server; a handle.
#[derive(Clone)]
pub struct SftpStore {
    core: Arc<Core>,
}

struct Core {
    server: SftpServer,
    slot: Mutex<Slot>,
    lanes: Lanes,
    /// Connections that could not be made.
    failures: AtomicU64,
    room: Room,
    random: Arc<dyn Random>,
}

/// The connection in use.
#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    /// Why the last attempt has failed.
    failure: Option<(ErrorKind, String)>,
}

impl SftpStore {
    /// Lays out a new repository, making its directory where it is missing. `AlreadyExists` if one
    /// is there. What an interrupted `create` left is completed.
    pub fn create(server: SftpServer) -> Result<Self> {
        let store = Self::new(server);
        store.lay_out()?;
        Ok(store)
    }

    pub(crate) fn lay_out(&self) -> Result<()> {
        self.with("create", "repository", |core, session| {
            core.lay_out(session)
        })?;
        self.with("write", TAG_NAME, |core, session| {
            let text = format!("{TAG_SIGNATURE}\n");
            core.publish(session, &Target::top(TAG_NAME), text.as_bytes())
        })
    }

    /// Opens a repository, changing nothing.
    pub fn open(server: SftpServer) -> Result<Self> {
        let store = Self::new(server);
        store.connect()?;
        Ok(store)
    }

    /// Makes a connection, unless there is one.
    pub(crate) fn connect(&self) -> Result<()> {
        self.with("open", "repository", |_, _| Ok(()))
    }

    /// Opens a repository and removes what dead processes left in `tmp/`.
    pub fn open_to_write(server: SftpServer) -> Result<Self> {
        let store = Self::new(server);
        store.sweep()?;
        Ok(store)
    }

    /// Removes temporary files that were last written more than a day ago by the server's clock;
    /// says how many.
    pub fn sweep(&self) -> Result<u64> {
        self.with("list", temporary::TEMPORARY_DIR, Core::sweep)
    }

    /// The same beside everything else, for whoever has no use for the answer. What is not removed
    /// when the process ends is for another day.
    pub(crate) fn sweep_beside(&self) {
        let store = self.clone();
        let _left_for_another_day = connection::spawn("sftp-sweep", move || {
            let _left_for_another_day = store.sweep();
        });
    }

    /// A repository there. Nothing is requested yet.
    pub(crate) fn new(server: SftpServer) -> Self {
        let core = Core {
            server,
            slot: Mutex::default(),
            lanes: Lanes::default(),
            failures: AtomicU64::new(0),
            room: Room::for_uploads(UPLOADS_MAX_SFTP),
            random: Arc::new(OsRandom),
        };
        SftpStore {
            core: Arc::new(core),
        }
    }

    /// Does something on the connection, and says what was attempted on what if it fails.
    fn with<T>(
        &self,
        action: &'static str,
        object: impl fmt::Display,
        work: impl FnOnce(&Core, &Arc<Session>) -> io::Result<T>,
    ) -> Result<T> {
        let session = self.core.session();
        self.said(action, object, || work(&self.core, &session?))
    }

    /// Says what was attempted on what if it fails.
    fn said<T>(
        &self,
        action: &'static str,
        object: impl fmt::Display,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T> {
        work().map_err(|source| StoreError {
            action,
            object: format!("{object} in {}", self.core.server.place),
            source,
        })
    }
}

impl Store for SftpStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.said("write", name, || {
            let lane = self.core.lane(bytes.len())?;
            let target = Target::object(name);
            self.core.publish(&lane.session, &target, bytes)
        })
    }

    fn shape(&self) -> StoreShape {
        let uploads_max = UPLOADS_MAX_SFTP;
        StoreShape::Whole { uploads_max }
    }

    fn takes_streams(&self) -> bool {
        true
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(self.stream()?))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.with("read", name, |core, session| {
            core.get(session, name, len_max)
        })
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with("read", name, |core, session| {
            core.read_at(session, name, offset, buf)
        })
    }

    fn expect(&self, next: Next<'_>) {
        let opened = self.core.session().and_then(|session| match next {
            Next::Read(name) => session.open_soon(&self.core.at(&name.path())),
            Next::Upload => self.core.open_ahead(&session),
        });
        let _is_opened_later = opened;
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.with("stat", name, |core, session| {
            match session.lstat(&core.at(&name.path()))? {
                Some(there) => listing::object_info(*name, &there),
                None => Ok(None),
            }
        })
    }

    /// Instead of a listing of 256 directories.
    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        let what = counted(names.len() as u64, "object");
        Some(self.with("stat", what, |core, session| {
            let sent: Vec<_> = (names.iter())
                .map(|name| session.send(&Request::Lstat(&core.at(&name.path()))))
                .collect::<io::Result<_>>()?;
            let answers = sent.into_iter().map(|sent| {
                let there = sent.attributes()?;
                Ok(there.is_some_and(|there| there.is_file()))
            });
            answers.collect()
        }))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            self.stat(&single)?.into_iter().for_each(found);
            return Ok(());
        }
        self.with("list", area, |core, session| {
            let foreign = &mut |_| {};
            core.list_area(session, area, &mut Listed { found, foreign })
        })
    }

    fn list_foreign(&self, area: Area, foreign: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            let found = self.with("stat", single, |core, session| {
                core.foreign_single(session, &single)
            })?;
            found.into_iter().for_each(foreign);
            return Ok(());
        }
        self.with("list", area, |core, session| {
            let found = &mut |_| {};
            let listed = &mut Listed { found, foreign };
            if area == Area::Packs {
                core.foreign_among_packs(session, listed)?;
            }
            core.list_area(session, area, listed)
        })
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.with("delete", name, |core, session| core.remove(session, name))
    }

    fn place(&self) -> String {
        self.core.server.place.clone()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

impl Core {
    /// The connection in use, or a new one. Who waited while another failed to make one fails with
    /// him.
    fn session(&self) -> io::Result<Arc<Session>> {
        let failures = self.failures.load(Ordering::SeqCst);
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = slot.session.as_ref().filter(|session| !session.has_ended()) {
            return Ok(session.clone());
        }
        slot.session = None;
        if let Some((kind, text)) = &slot.failure
            && self.failures.load(Ordering::SeqCst) != failures
        {
            return Err(io::Error::new(*kind, text.clone()));
        }
        match self.connect(Nth::First) {
            Ok(session) => Ok(slot.session.insert(Arc::new(session)).clone()),
            Err(error) => {
                // That there is no such object is something else.
                let kind = Some(error.kind()).filter(|kind| *kind != ErrorKind::NotFound);
                let kind = kind.unwrap_or(ErrorKind::NotConnected);
                let text = format!("cannot connect: {error}");
                slot.failure = Some((kind, text.clone()));
                self.failures.fetch_add(1, Ordering::SeqCst);
                Err(io::Error::new(kind, text))
            }
        }
    }

    fn connect(&self, nth: Nth) -> io::Result<Session> {
        let link = (self.server.dial)(nth)?;
        Session::open(link, self.server.timeout, self.server.throttle.clone())
    }

    fn root(&self) -> &str {
        &self.server.root
    }

    /// A path of the repository as the server knows it.
    fn at(&self, path: &str) -> String {
        match (self.root(), path) {
            (root, "") => root.to_owned(),
            ("/", path) => format!("/{path}"),
            (root, path) => format!("{root}/{path}"),
        }
    }

    fn get(&self, session: &Arc<Session>, name: &ObjectName, len_max: u64) -> io::Result<Vec<u8>> {
        let path = self.at(&name.path());
        // Both at once.
        let there = session.send(&Request::Lstat(&path))?;
        let file = session.send(&Request::Open(&path))?;
        let (there, file) = (there.attributes()?, session.opened(file));
        let info = there
            .map(|there| listing::object_info(*name, &there))
            .transpose()?;
        let Some(info) = info.flatten() else {
            return Err(ErrorKind::NotFound.into());
        };
        if info.len > len_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        let reserved = usize::try_from(info.len.min(RESERVED_BYTES_MAX)).unwrap_or_default();
        bytes.try_reserve_exact(reserved)?;
        let read = transfer::read(session, &file?, 0..info.len, &mut |piece| {
            bytes.try_reserve(piece.len())?;
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        match usize::try_from(info.len) {
            Ok(len) if read < info.len => Err(ends_early(0, len, read)),
            Ok(_) => Ok(bytes),
            Err(_) => Err(ErrorKind::FileTooLarge.into()),
        }
    }

    fn read_at(
        &self,
        session: &Arc<Session>,
        name: &ObjectName,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let path = self.at(&name.path());
        let file = session.open_cached(&path)?;
        let len = buf.len();
        let end = offset
            .checked_add(len as u64)
            .filter(|end| *end <= FILE_BYTES_MAX);
        let mut filled = 0;
        let read = match end {
            Some(end) => transfer::read(session, &file, offset..end, &mut |piece| {
                // Never more than was asked for.
                buf[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
                Ok(())
            })?,
            None => 0,
        };
        if read as usize == len && end.is_some() {
            return Ok(());
        }
        let there = session.lstat(&path)?.and_then(|there| there.len);
        Err(ends_early(offset, len, there.unwrap_or_default()))
    }
}
