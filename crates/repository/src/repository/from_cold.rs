//! Chunks of a hot store that are in the cold one: where it has no such pack, that is said; where
//! its bytes are damaged, those of the cold one are read.

use super::Repository;
use crate::error::IN_COLD_STORE;
use crate::store::{ObjectName, StoreError};
use bale_format::ChunkPlace;
use bale_format::error::FormatError;
use bale_format::record::PackKey;
use bytes::Bytes;
use std::io;

impl Repository {
    /// Of a hot store alone it is known where packs are that it does not have.
    pub(super) fn with_cold_advice(&self, error: StoreError) -> StoreError {
        if !error.is_not_found() || !self.is_one_of_two() {
            return error;
        }
        let object = format!("{}{IN_COLD_STORE}", error.object);
        StoreError { object, ..error }
    }

    /// A hot store that rots costs a read of the cold one. `error` is of the hot one's bytes.
    pub(super) fn open_from_cold(
        &self,
        name: &ObjectName,
        key: &PackKey,
        place: &ChunkPlace,
        error: FormatError,
    ) -> std::result::Result<Bytes, FormatError> {
        let Some([hot, cold]) = self.store.tiers() else {
            return Err(error);
        };
        if !matches!(hot.stat(name), Ok(Some(_))) {
            return Err(error);
        }
        let range = place.chunk.range();
        let mut record = vec![0; (range.end - range.start) as usize];
        let read = cold.read_at(name, range.start, &mut record).ok();
        let plain = read.and_then(|()| self.open_record(key, &place.chunk, &record).ok());
        match plain {
            Some(plain) => {
                self.store.hot_failed(&StoreError {
                    action: "read",
                    object: format!("{name} in {}", hot.place()),
                    source: io::Error::new(io::ErrorKind::InvalidData, error),
                });
                Ok(plain)
            }
            None => Err(error),
        }
    }
}
