//! The index of a repository, and reading chunks through it.

use super::Repository;
use super::opening::object_error;
use crate::error::{Error, Result};
use crate::index::{ChunkIndex, Place};
use crate::pack::Published;
use crate::store::{Area, ObjectName};
use bale_format::index::{IndexEntry, IndexObject, PackLen};
use bale_format::pack::{PACK_HEADER_BYTES, PackKey, RECORD_HEAD_BYTES};
use bale_format::sealed::ObjectType;
use bale_format::{ChunkId, ChunkKind, ObjectId};
use bytes::Bytes;
use std::sync::Arc;

impl Repository {
    /// The index, read on first use.
    pub fn index(&self) -> Result<Arc<ChunkIndex>> {
        if let Some(index) = &*self.index.read().expect("holders do not panic") {
            return Ok(index.clone());
        }
        self.reload_index()
    }

    /// Reads the index afresh: other writers may have added to it, a prune may have condemned packs.
    pub fn reload_index(&self) -> Result<Arc<ChunkIndex>> {
        let mut index = ChunkIndex::default();
        for info in self.list(Area::Index)? {
            match self.read_index_object(&info.name) {
                Ok(object) => add_all(&mut index, &object),
                Err(error) if super::objects::is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        for list in self.condemned()? {
            list.record.packs.iter().for_each(|pack| index.condemn(pack));
        }
        index.sort();
        let index = Arc::new(index);
        *self.index.write().expect("holders do not panic") = Some(index.clone());
        Ok(index)
    }

    /// Reads one index object.
    pub fn read_index_object(&self, name: &ObjectName) -> Result<IndexObject> {
        let bytes = self.read_sealed(name, ObjectType::Index)?;
        IndexObject::decode(&bytes).map_err(object_error(name.to_string()))
    }

    /// Names the chunks of published packs in a new index object; tells its length.
    pub fn write_index(&self, packs: &[Published]) -> Result<u64> {
        let mut object = IndexObject::default();
        for (number, pack) in packs.iter().enumerate() {
            object.packs.push(PackLen { id: pack.id, len: pack.len });
            let number = u32::try_from(number).expect("few packs an index object");
            object.entries.extend(pack.entries.iter().map(|record| IndexEntry { pack: number, record: *record }));
        }
        self.write_index_object(object)
    }

    /// Seals and stores an index object; tells its length.
    pub fn write_index_object(&self, mut object: IndexObject) -> Result<u64> {
        object.sort();
        let plain = object.encode().map_err(object_error("new index"))?;
        self.write_sealed(ObjectType::Index, &plain, ObjectName::index)?;
        Ok(plain.len() as u64)
    }

    /// Reads and checks a chunk, trying every copy that the index names.
    pub fn read_chunk(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        if let Some(bytes) = self.cache.lock().expect("holders do not panic").get(id) {
            return Ok(bytes);
        }
        let bytes = self.read_chunk_uncached(id, kind)?;
        self.cache.lock().expect("holders do not panic").put(*id, bytes.clone());
        Ok(bytes)
    }

    /// The same without remembering it: for callers that use each chunk once.
    pub fn read_chunk_uncached(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes> {
        let index = self.index()?;
        let mut trouble = None;
        let lasting_first = index.lasting(id).into_iter().chain(index.copies(id));
        for place in lasting_first {
            match self.read_place(&index, id, kind, &place) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        Err(trouble.unwrap_or(Error::MissingChunk(*id)))
    }

    /// Reads one copy of a chunk.
    pub fn read_place(&self, index: &ChunkIndex, id: &ChunkId, kind: ChunkKind, place: &Place) -> Result<Bytes> {
        let pack = index.pack(place.pack).id;
        let name = ObjectName::pack(pack);
        let what = || format!("chunk {} in {name}", id.short());
        if place.kind != kind as u8 {
            return Err(Error::Other(format!("{}: the index says kind {}, not {}", what(), place.kind, kind as u8)));
        }
        let key = self.pack_key(pack)?;
        let mut record = vec![0; RECORD_HEAD_BYTES + place.sealed_len as usize];
        self.store.read_at(&name, place.offset, &mut record)?;
        let plain = key.open_record(&record, place.plain_len, kind).map_err(object_error(what()))?;
        if self.keys.chunk_id(kind, &plain) != *id {
            let source = bale_format::error::FormatError::damaged("chunk", "its content has another id");
            return Err(Error::Object { object: what(), source });
        }
        Ok(Bytes::from(plain))
    }

    /// The key of a pack, from the salt in its header.
    pub fn pack_key(&self, pack: ObjectId) -> Result<Arc<PackKey>> {
        if let Some(key) = self.pack_keys.lock().expect("holders do not panic").get(&pack) {
            return Ok(key.clone());
        }
        let name = ObjectName::pack(pack);
        let mut header = [0; PACK_HEADER_BYTES];
        self.store.read_at(&name, 0, &mut header)?;
        let key = self.keys.pack_key_from_header(&header).map_err(object_error(name.to_string()))?;
        let key = Arc::new(key);
        let mut keys = self.pack_keys.lock().expect("holders do not panic");
        if keys.len() >= PACK_KEYS_MAX {
            keys.clear();
        }
        keys.insert(pack, key.clone());
        Ok(key)
    }
}

/// Pack keys kept, about 1 KB each.
const PACK_KEYS_MAX: usize = 4096;

fn add_all(index: &mut ChunkIndex, object: &IndexObject) {
    let numbers: Vec<_> = object.packs.iter().map(|pack| index.add_pack(pack.id, pack.len)).collect();
    for entry in &object.entries {
        let record = &entry.record;
        let place = Place {
            pack: numbers[entry.pack as usize],
            offset: record.offset,
            sealed_len: record.sealed_len,
            plain_len: record.plain_len,
            slot: record.slot,
            kind: record.kind as u8,
            codec: record.codec as u8,
        };
        index.add(record.id, place);
    }
}
