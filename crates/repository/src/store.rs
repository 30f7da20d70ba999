//! The store: named write-once objects, the only way by which bytes reach or leave a repository.
//!
//! Objects appear whole or not at all, and are durable when the call that made them returns. Every
//! implementation passes the conformance suite in `conformance`. A store knows nothing of keys,
//! packs or snapshots.

pub mod conformance;
pub mod disk;
pub mod local;
pub mod memory;
mod name;

use std::io;
use std::time::SystemTime;

pub use local::LocalStore;
pub use memory::MemoryStore;
pub use name::{Area, ObjectName};

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub name: ObjectName,
    /// Length in bytes.
    pub len: u64,
    /// When the store made it, by the store's clock, where it knows.
    pub modified: Option<SystemTime>,
}

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
}

/// `UnexpectedEof` in words: `len` bytes from `offset` were to be read of an object of `there`.
pub fn ends_early(offset: u64, len: usize, there: u64) -> io::Error {
    let text = format!("it has {there} bytes, and {len} from byte {offset} were to be read");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Keeps named write-once objects.
pub trait Store: Send + Sync {
    /// Makes an object, whole and durable on return. An object of that name that exists already is
    /// left alone and is no error: names are hashes of content (callers look themselves whether
    /// there is a `config`).
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()>;

    /// Starts an object whose name is known only at its end (a pack). Nothing is visible until
    /// `publish`.
    fn begin(&self) -> Result<Box<dyn ObjectWriter>>;

    /// Reads a whole object of at most `len_max` bytes; a longer one is an error of kind
    /// `FileTooLarge`.
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>>;

    /// Fills `buf` from `offset`; an object too short is `UnexpectedEof`.
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Length and time of one object; `None` if it is not there.
    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>>;

    /// Calls `found` for every object of an area, in no order, streaming. Foreign names are
    /// skipped. An object that comes or goes meanwhile may be listed or not.
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()>;

    /// Removes an object, durably on return; one that is not there is no error.
    fn delete(&self, name: &ObjectName) -> Result<()>;

    /// Where this store is, for messages.
    fn place(&self) -> String;
}

/// An object being written. Dropping it without `publish` leaves nothing visible behind.
pub trait ObjectWriter: Send {
    /// Appends bytes. After an error the writer refuses everything.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the object durable and visible under `name`; one that exists already is kept.
    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()>;
}
