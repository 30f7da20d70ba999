//! `TapeStore`: charges for what is dear on a tape. It counts, in the order in which they come, the
//! objects that reads go to, the bytes that they fetch and the seeks between them; how long one
//! takes is no matter, so a test says how often the tape is wound on any machine.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store, StoreError, StoreShape,
};
use bytes::Bytes;

/// A store that passes everything on and writes down what is read. Clones share the list.
#[derive(Clone)]
pub struct TapeStore {
    inner: Arc<dyn Store>,
    reads: Arc<Mutex<Vec<TapeRead>>>,
}

/// One read that brought its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeRead {
    pub name: ObjectName,
    pub range: Range<u64>,
}

/// Reads in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapeReads(pub Vec<TapeRead>);

impl TapeReads {
    /// Those in one area: what is small and hot is on no tape.
    pub fn within(&self, area: Area) -> TapeReads {
        let reads = self.0.iter().filter(|read| read.name.area == area);
        TapeReads(reads.cloned().collect())
    }

    /// Bytes that were fetched, twice if twice.
    pub fn bytes(&self) -> u64 {
        let lengths = self.0.iter().map(|read| read.range.end - read.range.start);
        lengths.sum()
    }

    /// How often a read went to another object than the one before.
    pub fn opened(&self) -> usize {
        let changes = self
            .0
            .windows(2)
            .filter(|pair| pair[0].name != pair[1].name);
        changes.count() + usize::from(!self.0.is_empty())
    }

    /// Reads that did not begin where the last one of the same object ended; the first byte of an
    /// object needs none.
    pub fn seeks(&self) -> usize {
        self.jumps().filter(|(from, to)| from != to).count()
    }

    /// Seeks towards the beginning of an object.
    pub fn seeks_back(&self) -> usize {
        self.jumps().filter(|(from, to)| to < from).count()
    }

    /// Bytes that the tape was wound back within objects.
    pub fn bytes_back(&self) -> u64 {
        self.jumps().map(|(from, to)| from.saturating_sub(to)).sum()
    }

    /// Of each read where the tape was in its object, and where it begins.
    fn jumps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut ends: HashMap<ObjectName, u64> = HashMap::new();
        self.0.iter().map(move |read| {
            let end_before = ends.insert(read.name, read.range.end);
            (end_before.unwrap_or(0), read.range.start)
        })
    }
}

impl TapeStore {
    /// Watches what is read of a store.
    pub fn over(inner: impl Store + 'static) -> TapeStore {
        TapeStore {
            inner: Arc::new(inner),
            reads: Arc::default(),
        }
    }

    /// What was read since the last time.
    pub fn take(&self) -> TapeReads {
        TapeReads(std::mem::take(&mut *self.lock()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TapeRead>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &ObjectName, offset: u64, bytes: usize) {
        self.lock().push(TapeRead {
            name: *name,
            range: offset..offset + bytes as u64,
        });
    }
}

impl Store for TapeStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: takes_streams, begin_stream, list_foreign, tiers: no test needs them of it.
    // Not handed on: hot_failed, cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn shape(&self) -> StoreShape {
        self.inner.shape()
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        self.inner.upload(name, pack, content, again)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.inner.begin()
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.inner.begin_pack(content)
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let bytes = self.inner.get(name, len_max)?;
        self.add(name, 0, bytes.len());
        Ok(bytes)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)?;
        self.add(name, offset, buf.len());
        Ok(())
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner.keeps_the_first()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn is_tiered(&self) -> bool {
        self.inner.is_tiered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::ObjectId;
    use bale_repository::store::MemoryStore;

    #[test]
    fn reads_are_charged_by_where_they_go() {
        let store = TapeStore::over(MemoryStore::new());
        let [one, two] = [1, 2].map(|id| ObjectName::pack(ObjectId([id; 32])));
        let index = ObjectName::index(ObjectId([3; 32]));
        for name in [one, two, index] {
            store.put(&name, &[7; 100]).unwrap();
        }
        let read = |name: &ObjectName, range: Range<usize>| {
            let mut buffer = vec![0; range.len()];
            store.read_at(name, range.start as u64, &mut buffer)
        };
        // From the front, on from there, over a gap; the other one from its middle; back.
        for (name, range) in [
            (&one, 0..10),
            (&one, 10..30),
            (&one, 50..60),
            (&two, 40..50),
            (&one, 60..70),
            (&one, 0..5),
        ] {
            read(name, range).unwrap();
        }
        store.get(&index, 100).unwrap();
        assert!(read(&one, 99..101).is_err(), "brings nothing");
        let reads = store.take();
        assert_eq!(reads.bytes(), 165);
        let packs = reads.within(Area::Packs);
        assert_eq!((packs.bytes(), packs.opened()), (65, 3));
        assert_eq!((packs.seeks(), packs.seeks_back()), (3, 1));
        assert_eq!(packs.bytes_back(), 70);
        assert_eq!(store.take(), TapeReads::default());
    }
}
