//! An object that is whole in memory before its first byte leaves: for stores that want the name
//! first, and so that a transfer that failed can be made again.

use super::{ObjectName, ObjectWriter, Result, Store, StoreError};
use std::io;

/// Bytes of one object at most: four packs of the size that remote stores get, since a single large
/// chunk may follow others.
pub const WHOLE_BYTES_MAX: usize = 128 << 20;

/// Gathers an object and gives it to `put` of its store.
pub struct WholeWriter<S> {
    store: S,
    bytes: Vec<u8>,
    /// An `append` failed.
    is_broken: bool,
}

impl<S: Store> WholeWriter<S> {
    /// An empty object of `store`, which is a handle.
    pub fn new(store: S) -> Self {
        WholeWriter {
            store,
            bytes: Vec::new(),
            is_broken: false,
        }
    }

    fn refused(&self, action: &'static str, why: String) -> StoreError {
        StoreError {
            action,
            object: format!("a pack in {}", self.store.place()),
            source: io::Error::new(io::ErrorKind::FileTooLarge, why),
        }
    }
}

impl<S: Store> ObjectWriter for WholeWriter<S> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let len = self.bytes.len().saturating_add(bytes.len());
        if self.is_broken || len > WHOLE_BYTES_MAX {
            self.is_broken = true;
            let why = format!("it would have more than {WHOLE_BYTES_MAX} bytes");
            return Err(self.refused("write", why));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        if self.is_broken {
            return Err(self.refused("write", "a part of it was refused".to_owned()));
        }
        self.store.put(name, &self.bytes)
    }
}
