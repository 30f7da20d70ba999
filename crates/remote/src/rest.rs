//! `RestStore`: a repository behind the protocol of restic's REST servers, over HTTP or HTTPS.
//!
//! Objects have the paths of docs/FORMAT.md, section 1, below the URL of the repository. `POST`
//! makes one, `GET` with a range reads a part, `HEAD` stats, `DELETE` removes, `GET` of a directory
//! lists; `POST ?create=true` makes a repository. `bale serve` is such a server, and so is
//! `rclone serve restic`. What is durable and what is replaced is the server's matter: before
//! `config` is written it is looked for, and whoever makes a repository reads it back.
//!
//! Listings of rclone are flat: all objects below a directory, without the directories between. So
//! what is in `runs/RUN/` is found only by who knows RUN. On servers that are not our own, a run
//! therefore leaves `runs/RUN/RUN` beside its records: no object by its name, but a flat listing
//! of `runs/` then names the run, and `runs/RUN/` is listed next. It goes with the last record.
//!
//! Each request is made once. Errors that may pass have the kinds `TimedOut`, `ResourceBusy` and
//! those of connections.

mod ask;
mod listing;

use crate::areas;
use crate::http::answer::{
    RangeAnswer, content_length, expect_success, has_reason, invalid, range_answer, read_to_vec,
    read_whole, refusal, unexpected,
};
use crate::http::url::HttpUrl;
use crate::http::{Answer, HttpClient, HttpOptions, HttpTransport, from_body};
use ask::Ask;
use bale_format::id::{from_hex, hex};
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError, StoreShape, WholeWriter,
    ends_early,
};
use http::{Method, StatusCode};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use listing::read_listing;

/// What `bale serve` puts into each answer.
const OWN_HEADER: &str = "bale-protocol";

/// Unfinished runs in a flat listing at most: 16 bytes each.
const RUNS_MAX: usize = 1 << 16;

/// A repository on a REST server. A handle: clones share connections.
#[derive(Clone)]
pub struct RestStore {
    core: Arc<Core>,
}

struct Core {
    url: HttpUrl,
    transport: Box<dyn HttpTransport>,
    /// For messages.
    place: String,
    /// The server is `bale serve`, whose listing of `runs/` names the runs.
    is_own: AtomicBool,
    /// The run whose marker was written last.
    marked: Mutex<Option<[u8; 16]>>,
}

impl RestStore {
    /// A repository at this URL. Nothing is requested yet.
    pub fn open(url: HttpUrl, options: &HttpOptions) -> Result<RestStore> {
        let place = format!("rest:{url}");
        match HttpClient::new(&url, options) {
            Ok(client) => Ok(RestStore::over(Box::new(client), url, place)),
            Err(source) => Err(StoreError {
                action: "open",
                object: place,
                source,
            }),
        }
    }

    /// A repository that is reached by `transport`; `place` is for messages.
    pub(crate) fn over(transport: Box<dyn HttpTransport>, url: HttpUrl, place: String) -> Self {
        let core = Core {
            url,
            transport,
            place,
            is_own: AtomicBool::new(false),
            marked: Mutex::new(None),
        };
        RestStore {
            core: Arc::new(core),
        }
    }

    /// Lays out a new repository there; `AlreadyExists` if one is there.
    pub fn create(url: HttpUrl, options: &HttpOptions) -> Result<RestStore> {
        let store = RestStore::open(url, options)?;
        store.lay_out()?;
        Ok(store)
    }

    /// `AlreadyExists` if a repository is there.
    pub(crate) fn lay_out(&self) -> Result<()> {
        let (store, core) = (self, &self.core);
        for config in ObjectName::configs() {
            if store.stat(&config)?.is_some() {
                let exists = ErrorKind::AlreadyExists.into();
                return Err(core.error("create", "repository", exists));
            }
        }
        let made = core.request(Method::POST, "?create=true", Ask::Body(&[]));
        let made = made.and_then(expect_success);
        made.map_err(|error| core.error("create", "repository", error))
    }
}

impl Store for RestStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        let put = (self.core.mark_run(name)).and_then(|()| self.core.put_once(name, bytes));
        put.map_err(|error| self.core.error("write", name, error))
    }

    fn shape(&self) -> StoreShape {
        let uploads_max = UPLOADS_MAX;
        StoreShape::Whole { uploads_max }
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let got = self.core.get(name, len_max);
        got.map_err(|error| self.core.error("read", name, error))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.core.read_at(name, offset, buf);
        read.map_err(|error| self.core.error("read", name, error))
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        let stat = self.core.stat(name);
        let len = stat.map_err(|error| self.core.error("stat", name, error))?;
        Ok(len.map(|len| ObjectInfo {
            name: *name,
            len,
            modified: None,
        }))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            self.stat(&single)?.into_iter().for_each(found);
            return Ok(());
        }
        let listed = match area {
            Area::Runs => self.core.list_runs(found),
            area => self.core.list_area(area, found),
        };
        let listed = match listed {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.core.check_may_be_missing(area)
            }
            listed => listed,
        };
        listed.map_err(|error| self.core.error("list", area, error))
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        let deleted = self.core.delete(name);
        deleted.map_err(|error| self.core.error("delete", name, error))
    }

    fn place(&self) -> String {
        self.core.place.clone()
    }

    fn keeps_the_first(&self) -> bool {
        self.core.is_own()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

impl Core {
    fn error(&self, action: &'static str, object: impl Display, source: io::Error) -> StoreError {
        StoreError {
            action,
            object: format!("{object} in {}", self.place),
            source,
        }
    }

    fn request(&self, method: Method, path: &str, ask: Ask<'_>) -> io::Result<Answer> {
        let answer = ask.make(&*self.transport, &method, &self.url.of(path))?;
        if answer.headers().contains_key(OWN_HEADER) {
            self.is_own.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Servers that are not our own replace what is there, may keep half of what they were sent,
    /// and say nothing of its length. So it is looked at before and after.
    fn put_once(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        let is_single = !name.area.is_directory();
        if is_single || !self.is_own() {
            match self.stat(name)? {
                // Only these would have other bytes: whoever wrote them reads them back.
                Some(_) if is_single => return Ok(()),
                Some(there) if there == len => return Ok(()),
                // Nothing whole is replaced: what has the hash of its name has one length.
                Some(_) if !has_hash_of(name, bytes) => return Ok(()),
                // Half of it, which is written again. Nothing is deleted.
                Some(_) | None => {}
            }
        }
        self.put(name, bytes)?;
        if self.is_own() {
            return Ok(());
        }
        match self.stat(name)? {
            Some(there) if there == len => Ok(()),
            there => Err(incomplete(there, len)),
        }
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> io::Result<()> {
        let answer = self.request(Method::POST, &name.path(), Ask::Body(bytes))?;
        let says_present = [
            StatusCode::FORBIDDEN,
            StatusCode::CONFLICT,
            StatusCode::PRECONDITION_FAILED,
        ];
        if !says_present.contains(&answer.status()) {
            return expect_success(answer);
        }
        let is_conflict = answer.status() == StatusCode::CONFLICT;
        let refused = refusal(answer);
        match self.stat(name)? {
            // The first one stays; whoever put this one reads it back.
            Some(_) if !name.area.is_directory() => Ok(()),
            Some(len) if len == bytes.len() as u64 => Ok(()),
            Some(len) => Err(io::Error::new(
                ErrorKind::AlreadyExists,
                format!("it is there with {len} bytes instead of {}", bytes.len()),
            )),
            // Our own server says so of what is no object, and goes on to.
            None if is_conflict && self.is_own() => Err(io::Error::new(
                ErrorKind::AlreadyExists,
                refused.to_string(),
            )),
            None => Err(refused),
        }
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> io::Result<Vec<u8>> {
        let answer = self.request(Method::GET, &name.path(), Ask::Nothing)?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(answer));
        }
        let len = content_length(&answer)?;
        if len > len_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        read_to_vec(answer, len)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let too_short = |len| Err(ends_early(offset, buf.len(), len));
        let Some(last) = (buf.len() as u64).checked_sub(1) else {
            return match self.stat(name)? {
                Some(len) if len < offset => too_short(len),
                Some(_) => Ok(()),
                None => Err(ErrorKind::NotFound.into()),
            };
        };
        // Servers count in signed numbers, and some do not understand what is beyond.
        let last = offset.checked_add(last);
        let Some(last) = last.filter(|last| i64::try_from(*last).is_ok()) else {
            return match self.stat(name)? {
                Some(len) => too_short(len),
                None => Err(ErrorKind::NotFound.into()),
            };
        };
        let ask = Ask::Range(offset, last);
        let answer = self.request(Method::GET, &name.path(), ask)?;
        match range_answer(&answer, offset, last)? {
            RangeAnswer::Range => read_whole(answer, buf),
            RangeAnswer::EndsAt(len) => too_short(len),
            RangeAnswer::NotThere => match self.stat(name)? {
                Some(len) if len <= last => too_short(len),
                Some(_) => Err(unexpected(answer)),
                None => Err(ErrorKind::NotFound.into()),
            },
            RangeAnswer::Whole => Err(unexpected(answer)),
        }
    }

    fn stat(&self, name: &ObjectName) -> io::Result<Option<u64>> {
        let answer = self.request(Method::HEAD, &name.path(), Ask::Nothing)?;
        match answer.status() {
            StatusCode::OK => content_length(&answer).map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(unexpected(answer)),
        }
    }

    fn delete(&self, name: &ObjectName) -> io::Result<()> {
        self.delete_path(&name.path())?;
        match name.run_id() {
            Some(run) if !self.is_own() => self.unmark_run(run),
            _ => Ok(()),
        }
    }

    fn delete_path(&self, path: &str) -> io::Result<()> {
        let answer = self.request(Method::DELETE, path, Ask::Nothing)?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(()),
            StatusCode::FORBIDDEN => Err(refused_delete(answer)),
            _ => expect_success(answer),
        }
    }

    /// Calls `found` with each name that the server lists below a path, and its size.
    fn list_path(&self, path: &str, found: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        let answer = self.request(Method::GET, path, Ask::Listing)?;
        match answer.status() {
            StatusCode::OK => {
                let body = answer.into_body();
                read_listing(body, found).map_err(from_body)
            }
            _ => Err(unexpected(answer)),
        }
    }

    /// What a listing of an area that is not there is: nothing, if it is made when it is needed;
    /// `NotFound`, if there is no repository.
    fn check_may_be_missing(&self, area: Area) -> io::Result<()> {
        for config in ObjectName::configs() {
            if self.stat(&config)?.is_some() {
                return match areas::NEEDED.contains(&area) {
                    true => Err(areas::missing(area)),
                    false => Ok(()),
                };
            }
        }
        Err(ErrorKind::NotFound.into())
    }

    /// Names are relative to the area, or the last part alone.
    fn list_area(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> io::Result<()> {
        self.list_path(&format!("{}/", area.text()), &mut |listed, len| {
            let path = match (area, listed.get(..2)) {
                (Area::Packs, Some(spread)) if !listed.contains('/') => {
                    format!("{}/{spread}/{listed}", area.text())
                }
                _ => format!("{}/{listed}", area.text()),
            };
            found_path(&path, len, found);
        })
    }

    fn list_runs(&self, found: &mut dyn FnMut(ObjectInfo)) -> io::Result<()> {
        let mut runs = Vec::new();
        let mut records_without_run = 0_u64;
        let mut too_many = false;
        self.list_path("runs/", &mut |listed, len| {
            if listed.contains('/') {
                return found_path(&format!("runs/{listed}"), len, found);
            }
            if from_hex::<32>(listed).is_ok() {
                records_without_run += 1;
            } else if let Ok(run) = from_hex::<16>(listed) {
                too_many |= runs.len() >= RUNS_MAX;
                if !too_many {
                    runs.push(run);
                }
            }
        })?;
        if too_many {
            return Err(invalid(format!(
                "the server lists more than {RUNS_MAX} runs"
            )));
        }
        if runs.is_empty() && records_without_run > 0 {
            return Err(invalid(format!(
                "the server lists {records_without_run} records of unfinished runs and does not \
                 say of which runs"
            )));
        }
        runs.iter().try_for_each(|run| self.list_run(run, found))
    }

    fn list_run(&self, run: &[u8; 16], found: &mut dyn FnMut(ObjectInfo)) -> io::Result<()> {
        let dir = run_dir(run);
        let listed = self.list_path(&dir, &mut |listed, len| {
            found_path(&format!("{dir}{listed}"), len, found);
        });
        match listed {
            // Removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            listed => listed,
        }
    }

    fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Leaves the name of a run where a flat listing shows it.
    fn mark_run(&self, name: &ObjectName) -> io::Result<()> {
        let Some(run) = name.run_id() else {
            return Ok(());
        };
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_own() || *marked == Some(run) {
            return Ok(());
        }
        let path = marker(&run);
        // Some of the stores behind such servers keep no empty objects.
        let answer = self.request(Method::POST, &path, Ask::Body(b"\n"))?;
        let is_present = !answer.status().is_success() && !self.is_own() && {
            let there = self.request(Method::HEAD, &path, Ask::Nothing)?;
            there.status() == StatusCode::OK
        };
        if !self.is_own() && !is_present {
            expect_success(answer)?;
        }
        *marked = Some(run);
        Ok(())
    }

    /// Removes what `mark_run` left, if it is all that is left of the run.
    fn unmark_run(&self, run: [u8; 16]) -> io::Result<()> {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_records = false;
        self.list_run(&run, &mut |_| has_records = true)?;
        if !has_records {
            *marked = None;
            self.delete_path(&marker(&run))?;
        }
        Ok(())
    }
}

/// Only such bytes may take the place of others.
fn has_hash_of(name: &ObjectName, bytes: &[u8]) -> bool {
    name.id()
        .is_some_and(|id| id.0 == *blake3::hash(bytes).as_bytes())
}

fn run_dir(run: &[u8; 16]) -> String {
    format!("{}/{}/", Area::Runs.text(), hex(run))
}

fn marker(run: &[u8; 16]) -> String {
    format!("{}{}", run_dir(run), hex(run))
}

/// Names that are none of ours are skipped.
fn found_path(path: &str, len: u64, found: &mut dyn FnMut(ObjectInfo)) {
    if let Some(name) = ObjectName::parse(path) {
        found(ObjectInfo {
            name,
            len,
            modified: None,
        });
    }
}

fn refused_delete(answer: Answer) -> io::Error {
    let says_why = has_reason(&answer);
    let refused = refusal(answer).to_string();
    let text = match says_why || refused.contains("append-only") {
        true => refused,
        false => format!("{refused}: does it only take what is new (append-only)?"),
    };
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// The same request may succeed later.
fn incomplete(there: Option<u64>, len: u64) -> io::Error {
    let there = there.map_or("nothing".to_owned(), |there| format!("{there} bytes"));
    let text = format!("of the {len} bytes that it took, the server has {there}");
    io::Error::new(ErrorKind::ResourceBusy, text)
}
