//! The store: named write-once objects, the only way by which bytes reach or leave a repository.
//!
//! Objects appear whole or not at all, and are durable when the call that made them returns. Every
//! implementation passes the conformance suite in `conformance`. A store knows nothing of keys,
//! packs or snapshots.

pub mod conformance;
pub mod disk;
mod foreign;
mod holding;
pub mod local;
pub mod memory;
mod name;
mod tiered;
pub mod whole;

use bytes::Bytes;
use std::io;
use std::time::SystemTime;

pub use foreign::{ForeignEntry, ForeignKind};
pub use holding::{Archived, ColdClasses, ObjectLocks, Warmth};
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use name::{Area, ObjectName};
pub use tiered::{OnMiss, TieredStore};
pub use whole::WholeWriter;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub name: ObjectName,
    /// Length in bytes.
    pub len: u64,
    /// When the store made it, by the store's clock, where it knows.
    pub modified: Option<SystemTime>,
}

/// `EIO`: a bad sector. `ELOOP`: a link in an object's place. `EBADMSG` and `EUCLEAN`: the file
/// system found a wrong checksum, or is damaged itself.
const BAD_MEDIUM: [i32; 4] = [5, 40, 74, 117];

/// A failure of the store; says what was attempted on what.
#[derive(Debug, thiserror::Error)]
#[error("{action} {object}: {source}")]
pub struct StoreError {
    /// `read`, `write`, `list`, `delete` ...
    pub action: &'static str,
    /// Name of the object or area, with the place of the store.
    pub object: String,
    /// Why. `NotFound`, `AlreadyExists` and `StorageFull` are told apart by kind.
    pub source: io::Error,
}

impl StoreError {
    /// The kind of its cause.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// The place is full, or the quota used up: deleting something would help, trying again would
    /// not.
    pub fn is_storage_full(&self) -> bool {
        matches!(
            self.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// May the same request succeed later: is it the way to the store that failed, or was the store
    /// busy? What was refused, is not there or is full stays so.
    pub fn may_pass(&self) -> bool {
        use io::ErrorKind as Kind;
        matches!(
            self.kind(),
            Kind::TimedOut
                | Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::ConnectionRefused
                | Kind::NotConnected
                | Kind::BrokenPipe
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
                | Kind::NetworkDown
                | Kind::ResourceBusy
                | Kind::Interrupted
                | Kind::WouldBlock
        )
    }

    /// Does the failure say nothing of the object: is there no right to read it, did the store not
    /// answer or not as it should, or must the object be brought back first? Then nobody knows
    /// whether it is whole. It is damaged, or lost, if it is not there, has another length, stands
    /// where no file is, or on a bad sector, of which the system says EIO.
    pub fn is_inconclusive(&self) -> bool {
        use io::ErrorKind as Kind;
        let is_damage = matches!(
            self.kind(),
            Kind::NotFound
                | Kind::UnexpectedEof
                | Kind::FileTooLarge
                | Kind::InvalidData
                | Kind::InvalidInput
                | Kind::IsADirectory
                | Kind::NotADirectory
        );
        let code = self.source.raw_os_error();
        let is_bad_medium = code.is_some_and(|code| BAD_MEDIUM.contains(&code));
        self.is_archived() || self.is_bad_answer() || !(is_damage || is_bad_medium)
    }

    /// The same once more: an `io::Error` cannot be cloned.
    pub fn copied(&self) -> StoreError {
        let text = self.source.to_string();
        let source = match self.source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None if self.is_archived() => io::Error::new(self.kind(), Archived(text)),
            None if self.is_bad_answer() => io::Error::new(self.kind(), BadAnswer(text)),
            None => io::Error::new(self.kind(), text),
        };
        StoreError {
            action: self.action,
            object: self.object.clone(),
            source,
        }
    }

    /// Is the object there, and must be brought back before it is read?
    pub fn is_archived(&self) -> bool {
        let cause = self.source.get_ref();
        cause.is_some_and(|cause| cause.is::<Archived>())
    }

    /// Is it the answer that is none, and not the object?
    pub fn is_bad_answer(&self) -> bool {
        let cause = self.source.get_ref();
        cause.is_some_and(|cause| cause.is::<BadAnswer>())
    }

    /// Is there no directory where the objects of an area should be? What was in it is unknown.
    pub fn is_missing_area(&self) -> bool {
        let cause = self.source.get_ref();
        cause.is_some_and(|cause| cause.is::<MissingArea>())
    }

    /// Did the store say that it gets more requests than it can serve?
    pub fn is_busy(&self) -> bool {
        self.kind() == io::ErrorKind::ResourceBusy
    }
}

/// A server that answers something that fits no such request: nothing is known of the object. A
/// cause of an `io::Error`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadAnswer(pub String);

/// A directory without which a repository is not whole is not there. A cause of an `io::Error`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MissingArea(pub String);

/// How a store takes packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreShape {
    /// The bytes as they come, the name at the end: `begin`.
    Streams,
    /// The name first, so a pack is whole in memory before its first byte leaves: `upload`, of
    /// several packs at a time.
    Whole {
        /// At least 1.
        uploads_max: usize,
    },
}

/// `UnexpectedEof` in words: `len` bytes from `offset` were to be read of an object of `there`.
pub fn ends_early(offset: u64, len: usize, there: u64) -> io::Error {
    let text = format!("it has {there} bytes, and {len} from byte {offset} were to be read");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// What a pack holds: the two are never mixed by writers (docs/FORMAT.md, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackContent {
    /// Bytes of files.
    Data,
    /// What names and describes files.
    Metadata,
}

/// What a store will be asked for in a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'n> {
    /// Parts of this object.
    Read(&'n ObjectName),
    /// To take a pack, whole.
    Upload,
}

/// Result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Keeps named write-once objects.
pub trait Store: Send + Sync {
    /// Makes an object, whole and durable on return. An object of that name that exists already is
    /// left alone and is no error: names are hashes of content (callers look themselves whether
    /// there is a `config`).
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()>;

    /// How it takes packs. A store around another one passes it on.
    fn shape(&self) -> StoreShape {
        StoreShape::Streams
    }

    /// As `put`, of a whole pack, of which is known what it holds. `again` learns of every try that
    /// failed and is followed by another. A store around another one passes it on.
    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        let _is_tried_once_and_in_one_place = (content, again);
        self.put(name, pack)
    }

    /// Starts an object whose name is known only at its end (a pack). Nothing is visible until
    /// `publish`.
    fn begin(&self) -> Result<Box<dyn ObjectWriter>>;

    /// As `begin`, for a pack of which is known what it will hold. A store that keeps data and
    /// metadata in different places looks at it; one around another store passes it on.
    fn begin_pack(&self, _content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.begin()
    }

    /// Can it take an object of any length whose bytes nobody holds: [`Store::begin_stream`]? A
    /// store around another one passes it on.
    fn takes_streams(&self) -> bool {
        self.shape() == StoreShape::Streams
    }

    /// Starts an object of any length, of data: its bytes go where they are to be as they come,
    /// and none are kept. So it is tried once: whatever fails, it must be written again from its
    /// beginning. Only of a store that takes streams; one around another passes it on.
    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Data)
    }

    /// Reads a whole object of at most `len_max` bytes; a longer one is an error of kind
    /// `FileTooLarge`.
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>>;

    /// Fills `buf` from `offset`; an object too short is `UnexpectedEof`.
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Says what it will be asked for soon: one that must open something first does so meanwhile.
    /// Waits for nothing, and promises nothing. A store around another one passes it on.
    fn expect(&self, next: Next<'_>) {
        let _is_as_quick_without = next;
    }

    /// Length and time of one object; `None` if it is not there.
    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>>;

    /// Which of these are there, by their names alone and in one round trip. `None`: a store that
    /// cannot, or where a listing is as quick. A store around another one passes it on.
    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        let _are_listed = names;
        None
    }

    /// Calls `found` for every object of an area, in no order, streaming. What is foreign is
    /// skipped. An object that comes or goes meanwhile may be listed or not.
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()>;

    /// Calls `found` with what stands among the objects of an area and is none. A store that has no
    /// directories, or cannot tell, names nothing; what wraps a store hands this on.
    fn list_foreign(&self, _area: Area, _found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        Ok(())
    }

    /// Removes an object, durably on return; one that is not there is no error.
    fn delete(&self, name: &ObjectName) -> Result<()>;

    /// Where this store is, for messages.
    fn place(&self) -> String;

    /// Of two who `put` one name at the same moment, does the store keep the first for certain?
    /// Names that are hashes do not need it. Where it is not certain, a repository is made with
    /// more looks ([`crate::repository::Repository::init`]); what wraps a store hands this on.
    fn keeps_the_first(&self) -> bool {
        false
    }

    /// Does every request travel to another machine? Then those that do not need each other's
    /// answers are made at once, and what is read again and again is cached on this one.
    fn is_remote(&self) -> bool {
        false
    }

    /// Is it the hot and the cold store of a repository together? What wraps a store hands this on.
    fn is_tiered(&self) -> bool {
        false
    }

    /// The hot and the cold store, where it is both and this is known. What wraps a store and shows
    /// its objects as they are hands this on.
    fn tiers(&self) -> Option<[&dyn Store; 2]> {
        None
    }

    /// What the hot store has under a name is not what it should be, and was read from the cold
    /// one. What wraps a store hands this on.
    fn hot_failed(&self, _error: &StoreError) {}

    /// Classes from which objects must be brought back before they are read, if it has such. What
    /// wraps a store hands this on.
    fn cold_classes(&self) -> Option<&dyn ColdClasses> {
        None
    }

    /// Locks of single objects, if it has such. What wraps a store hands this on.
    fn object_locks(&self) -> Option<&dyn ObjectLocks> {
        None
    }
}

/// An object being written. Dropping it without `publish` leaves nothing visible behind.
pub trait ObjectWriter: Send {
    /// Appends bytes. After an error the writer refuses everything.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the object durable and visible under `name`; one that exists already is kept.
    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()>;
}
