//! A repository in a cloud, as a store.
//!
//! An object is made only if it is not there. Amazon, Google and Azure decide that themselves;
//! other servers of S3 may ignore or refuse the condition, so there a look goes before each object
//! but a new pack until it is seen that they keep to it, and who makes a repository looks more
//! often (`keeps_the_first`). A bucket that is missing is never taken for an empty one.

mod holding;

use crate::options::CloudOptions;
use crate::place::{Cloud, CloudPlace};
use crate::service::{self, BucketService, Stat, StoredAs};
use crate::transport::Transport;
use bale_pipeline::ordered::{ReadAhead, in_order_within};
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{
    Area, ColdClasses, ForeignEntry, ForeignKind, ObjectInfo, ObjectLocks, ObjectName,
    ObjectWriter, PackContent, Result, Store, StoreError, StoreShape, WholeWriter,
};
use bytes::Bytes;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A client under the policy of `bale init --print-policy put-only` gets no further.
const MAY_ONLY_ADD: &str = "if they may only add (put-only), forget, prune and removing keys are \
    for whoever has keys that may delete";

/// More objects than these are looked for in a listing: it names 1,000 with one request.
const LOOKED_AT_ALONE_MAX: usize = 64;
/// At a time.
const LOOKS_AT_ONCE: usize = 16;

/// What becomes of the condition that an object is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Conditions {
    /// Nobody knows.
    Unknown,
    /// The server kept to it once.
    Seen,
    /// The server refuses requests that have it.
    Refused,
    /// The provider says that one of many is first.
    Certain,
}

/// A repository in a cloud. A handle: clones share connections.
#[derive(Clone)]
pub struct CloudStore {
    core: Arc<Core>,
}

struct Core {
    place: CloudPlace,
    options: CloudOptions,
    transport: Transport,
    /// Made with the first request.
    service: Mutex<Option<Arc<dyn BucketService>>>,
    conditions: AtomicU8,
    /// Something was found in the bucket, or it was looked at.
    is_bucket_seen: AtomicBool,
}

impl CloudStore {
    /// A repository at this place. Nothing is requested yet.
    pub fn open(place: CloudPlace, options: &CloudOptions) -> Result<CloudStore> {
        let transport = service::must_be_built(place.cloud).and_then(|()| Transport::new(options));
        let transport = transport.map_err(|source| StoreError {
            action: "open",
            object: place.to_string(),
            source,
        })?;
        let is_certain = match place.cloud {
            Cloud::S3 => place.is_amazon(),
            Cloud::B2 => false,
            Cloud::Gcs | Cloud::Azure => true,
        };
        let conditions = match is_certain {
            true => Conditions::Certain,
            false => Conditions::Unknown,
        };
        let core = Core {
            place,
            options: options.clone(),
            transport,
            service: Mutex::new(None),
            conditions: AtomicU8::new(conditions as u8),
            is_bucket_seen: AtomicBool::new(false),
        };
        Ok(CloudStore {
            core: Arc::new(core),
        })
    }
}

impl Store for CloudStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        let content = match name.area {
            Area::Packs => StoredAs::Pack,
            _ => StoredAs::Other,
        };
        let bytes = Bytes::copy_from_slice(bytes);
        let put = self.core.put(&name.path(), &bytes, content);
        put.map_err(|error| self.core.error("write", name, error))
    }

    fn shape(&self) -> StoreShape {
        let uploads_max = UPLOADS_MAX;
        StoreShape::Whole { uploads_max }
    }

    /// Without a copy of the pack, and without a look before: its name is the hash of what was
    /// sealed with a new salt, so nothing but an earlier try of this one can be there, with the
    /// same bytes.
    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        _again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        let content = match content {
            PackContent::Data => StoredAs::DataPack,
            PackContent::Metadata => StoredAs::Pack,
        };
        let put = match self.core.is_cut(content) {
            // A second try is spared the bytes.
            true => self.core.put(&name.path(), pack, content),
            false => self.core.put_unseen(&name.path(), pack, content),
        };
        put.map_err(|error| self.core.error("write", name, error))
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let service = self.core.service();
        let got = service.and_then(|service| service.get(&name.path(), len_max));
        got.map_err(|error| self.core.error("read", name, error))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.core.read_at(&name.path(), offset, buf);
        read.map_err(|error| self.core.error("read", name, error))
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        let stat = self.core.stat(&name.path());
        let stat = stat.map_err(|error| self.core.error("stat", name, error))?;
        Ok(stat.map(|stat| info(*name, stat)))
    }

    /// Looks at a few are less than a listing of everything: some servers read each object for it
    /// (rclone's, for the hash that it lists).
    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        if names.len() > LOOKED_AT_ALONE_MAX {
            return None;
        }
        let ahead = ReadAhead {
            threads: LOOKS_AT_ONCE.min(names.len()),
            results: LOOKS_AT_ONCE,
        };
        let mut there = Vec::new();
        let look = |_: &mut (), name: &ObjectName| self.stat(name);
        let looked = in_order_within(
            ahead,
            names.iter(),
            || (),
            look,
            |found| {
                there.push(found?.is_some());
                Ok(())
            },
        );
        Some(looked.map(|()| there))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if let Some(single) = ObjectName::single(area) {
            self.stat(&single)?.into_iter().for_each(found);
            return Ok(());
        }
        let listed = self.core.service().and_then(|service| {
            service.list(&format!("{}/", area.text()), &mut |path, stat| {
                if let Some(name) = ObjectName::parse(path) {
                    found(info(name, stat));
                }
            })
        });
        listed.map_err(|error| self.core.error("list", area, error))
    }

    /// A bucket has no directories, so nothing stands in the place of an object.
    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        if !area.is_directory() {
            return Ok(());
        }
        let listed = self.core.service().and_then(|service| {
            service.list(&format!("{}/", area.text()), &mut |path, _| {
                if ObjectName::parse(path).is_none() && !is_marker(path) {
                    let (path, kind) = (path.to_owned(), ForeignKind::Name);
                    found(ForeignEntry { path, kind });
                }
            })
        });
        listed.map_err(|error| self.core.error("list", area, error))
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        let deleted = self.core.service();
        let deleted = deleted.and_then(|service| service.delete(&name.path()));
        deleted.map_err(|error| self.core.error("delete", name, refused_delete(error)))
    }

    fn place(&self) -> String {
        self.core.place.to_string()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn keeps_the_first(&self) -> bool {
        self.core.conditions() == Conditions::Certain
    }

    fn cold_classes(&self) -> Option<&dyn ColdClasses> {
        (self.core.place.cloud == Cloud::S3).then_some(self as &dyn ColdClasses)
    }

    fn object_locks(&self) -> Option<&dyn ObjectLocks> {
        let has_locks = matches!(self.core.place.cloud, Cloud::S3 | Cloud::B2);
        has_locks.then_some(self as &dyn ObjectLocks)
    }
}

/// Who can only add is told so.
fn refused_delete(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{error}; {MAY_ONLY_ADD}"),
        ),
        _ => error,
    }
}

/// What names a run for flat listings, where the bucket was reached through rclone: `runs/RUN/RUN`.
fn is_marker(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    parts.next() == parts.next()
}

fn info(name: ObjectName, stat: Stat) -> ObjectInfo {
    ObjectInfo {
        name,
        len: stat.len,
        modified: stat.modified,
    }
}

impl Core {
    fn service(&self) -> io::Result<Arc<dyn BucketService>> {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = &*service {
            return Ok(service.clone());
        }
        let opened = service::open(&self.place, &self.options, &self.transport)?;
        Ok(service.insert(Arc::from(opened)).clone())
    }

    fn error(&self, action: &'static str, object: impl Display, source: io::Error) -> StoreError {
        StoreError {
            action,
            object: format!("{object} in {}", self.place),
            source,
        }
    }

    fn conditions(&self) -> Conditions {
        let is =
            |conditions: &Conditions| self.conditions.load(Ordering::Relaxed) == *conditions as u8;
        let known = [Conditions::Seen, Conditions::Refused, Conditions::Certain];
        let known = known.into_iter().find(is);
        known.unwrap_or(Conditions::Unknown)
    }

    fn learn(&self, conditions: Conditions) {
        if self.conditions() == Conditions::Unknown {
            self.conditions.store(conditions as u8, Ordering::Relaxed);
        }
    }

    fn put(&self, path: &str, bytes: &Bytes, stored: StoredAs) -> io::Result<()> {
        let conditions = self.conditions();
        let is_looked_at = matches!(conditions, Conditions::Unknown | Conditions::Refused);
        // A pack under a condition is cut on Google's way, and so goes without, behind a look.
        let is_looked_at = is_looked_at || self.is_cut(stored);
        if is_looked_at && self.service()?.stat(path)?.is_some() {
            return Ok(());
        }
        self.put_unseen(path, bytes, stored)
    }

    /// Without a look before. A server that ignores conditions replaces what is there.
    fn put_unseen(&self, path: &str, bytes: &Bytes, stored: StoredAs) -> io::Result<()> {
        let service = self.service()?;
        let conditions = self.conditions();
        let if_absent = conditions != Conditions::Refused && !self.is_cut(stored);
        match service.put(path, bytes.clone(), stored, if_absent) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.learn(Conditions::Seen);
                Ok(())
            }
            Err(error)
                if error.kind() == ErrorKind::Unsupported && conditions == Conditions::Unknown =>
            {
                self.learn(Conditions::Refused);
                service.put(path, bytes.clone(), stored, false)
            }
            put => put,
        }
    }

    /// With a condition Google's way takes a request for each 8 MiB, after one that begins.
    fn is_cut(&self, stored: StoredAs) -> bool {
        self.place.cloud == Cloud::Gcs && stored != StoredAs::Other
    }

    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let service = self.service()?;
        if !buf.is_empty() {
            return service.read_at(path, offset, buf);
        }
        match service.stat(path)? {
            Some(stat) if stat.len < offset => {
                Err(bale_repository::store::ends_early(offset, 0, stat.len))
            }
            Some(_) => Ok(()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Of an object that is not there, most servers do not say whether its bucket is.
    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let service = self.service()?;
        let stat = service.stat(path)?;
        if stat.is_none() && !self.is_bucket_seen.load(Ordering::Relaxed) {
            match service.look_at_bucket() {
                // Who may not list sees objects all the same.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                looked => looked?,
            }
        }
        self.is_bucket_seen.store(true, Ordering::Relaxed);
        Ok(stat)
    }
}
