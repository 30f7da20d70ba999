//! Rows of a view on their way into the catalog. What a file has in its inode, and so in no block
//! as it is, goes into bundles: a chunk of its own for each would grow the index with the files.
//! Its row waits until its bundle has an id, and all behind it wait, too; when too many wait, the
//! bundles are closed.

use super::super::bundle::Bundles;
use super::super::dedup::old_place;
use super::super::dedup_cache::{ChunkNumbers, ContentRef};
use super::super::stored_segments::StoredSegments;
use crate::limits::VIEW_ROWS_WAITING_MAX;
use bale_format::{Content, Entry, Kind, Layer};
use bale_repository::catalog::{CatalogReader, CatalogWriter, file_bytes};
use bale_repository::error::Result;
use bale_repository::pack::ChunkWriter;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Writes rows into a catalog, in the order of keys.
pub(super) struct BundledRows<'a> {
    store: &'a Arc<ChunkWriter>,
    catalog: CatalogWriter<StoredSegments>,
    bundles: Bundles,
    chunks: ChunkNumbers,
    waiting: VecDeque<WaitingRow>,
    /// Rows put or removed.
    changes: u64,
}

enum WaitingRow {
    Put {
        entry: Entry,
        /// `None`: the entry says where its content is.
        content: Option<ContentRef>,
        old: Option<Box<Entry>>,
    },
    Gone(Entry),
}

impl<'a> BundledRows<'a> {
    /// Over the rows that there were before.
    pub(super) fn over(before: &CatalogReader, store: &'a Arc<ChunkWriter>) -> BundledRows<'a> {
        BundledRows {
            store,
            catalog: CatalogWriter::new(before.clone(), StoredSegments(store.clone())),
            bundles: Bundles::new(),
            chunks: ChunkNumbers::default(),
            waiting: VecDeque::new(),
            changes: 0,
        }
    }

    /// Puts a row over that of the parent. `content`: of a file that has it in its inode. Of an
    /// entry that has to wait nothing is left.
    pub(super) fn put(
        &mut self,
        entry: &mut Entry,
        content: Option<&[u8]>,
        old: Option<Entry>,
    ) -> Result<()> {
        let content = match content {
            None => None,
            Some(bytes) => self.bundle(bytes, entry, old.as_ref())?,
        };
        if content.is_none() && self.waiting.is_empty() {
            return self.write(entry, old.as_ref());
        }
        let nothing = Entry::new(Bytes::new(), Bytes::new(), Kind::File);
        let entry = std::mem::replace(entry, nothing);
        self.wait(WaitingRow::Put {
            entry,
            content,
            old: old.map(Box::new),
        })
    }

    /// Removes a row of the parent.
    pub(super) fn remove(&mut self, old: Entry) -> Result<()> {
        match self.waiting.is_empty() {
            true => self.write_gone(&old),
            false => self.wait(WaitingRow::Gone(old)),
        }
    }

    /// The layers of the new catalog, and how many rows were put or removed.
    pub(super) fn finish(mut self) -> Result<(Vec<Layer>, u64)> {
        self.close()?;
        Ok((self.catalog.finish()?.layers, self.changes))
    }

    /// Says where the content of a file is, which has a hash from now on: where the parent has it,
    /// or in a bundle that is open.
    fn bundle(
        &mut self,
        bytes: &[u8],
        entry: &mut Entry,
        old: Option<&Entry>,
    ) -> Result<Option<ContentRef>> {
        let hash = self.store.keys().content_hash(bytes);
        entry.content_hash = Some(hash);
        if let Some((chunk, offset)) = old_place(self.store, entry, old) {
            entry.content = Content::Bundled { chunk, offset };
            return Ok(None);
        }
        let (bundle, offset) = self
            .bundles
            .push(bytes, &hash, &mut self.chunks, self.store)?;
        Ok(Some(ContentRef::Bundled { bundle, offset }))
    }

    fn wait(&mut self, row: WaitingRow) -> Result<()> {
        self.waiting.push_back(row);
        match self.waiting.len() >= VIEW_ROWS_WAITING_MAX {
            true => self.close(),
            false => self.settle(),
        }
    }

    /// No row waits then.
    fn close(&mut self) -> Result<()> {
        self.bundles.close(&mut self.chunks, self.store)?;
        self.settle()
    }

    /// Writes the rows at the front that wait for nothing.
    fn settle(&mut self) -> Result<()> {
        while let Some(row) = self.waiting.front_mut() {
            if let WaitingRow::Put {
                entry,
                content: Some(content),
                ..
            } = row
            {
                let Some(content) = self.chunks.content(*content) else {
                    return Ok(());
                };
                entry.content = content;
            }
            match self.waiting.pop_front() {
                Some(WaitingRow::Put { entry, old, .. }) => self.write(&entry, old.as_deref())?,
                Some(WaitingRow::Gone(old)) => self.write_gone(&old)?,
                None => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, entry: &Entry, old: Option<&Entry>) -> Result<()> {
        if old != Some(entry) {
            self.changes += 1;
            self.catalog.put(entry)?;
        }
        Ok(())
    }

    fn write_gone(&mut self, old: &Entry) -> Result<()> {
        self.changes += 1;
        Ok(self.catalog.remove(&old.key(), file_bytes(old))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::memory_repository::repository;
    use bale_format::Key;
    use bale_repository::catalog::KeyRange;
    use bale_repository::pack::WriterOptions;
    use bale_repository::repository::Repository;

    fn row(number: usize, size: usize) -> Entry {
        let name = Bytes::from(format!("{number:06}"));
        let mut row = Entry::new(Bytes::from_static(b"disk"), name, Kind::File);
        row.size = size as u64;
        row
    }

    fn content(number: usize) -> Vec<u8> {
        format!("what is in {number}").into_bytes()
    }

    /// Every third file is in its inode; those of these numbers are gone.
    fn write(
        repository: &Arc<Repository>,
        before: &CatalogReader,
        gone: &[usize],
        rows: usize,
    ) -> (CatalogReader, u64) {
        let options = WriterOptions::default();
        let store = ChunkWriter::start_with(repository.clone(), options).unwrap();
        let store = Arc::new(store);
        let mut written = BundledRows::over(before, &store);
        for number in 0..rows {
            let old = before.lookup(&row(number, 0).path()).unwrap();
            if gone.contains(&number) {
                written.remove(old.unwrap()).unwrap();
                continue;
            }
            let bytes = (number % 3 == 0).then(|| content(number));
            let size = bytes.as_ref().map_or(0, Vec::len);
            let put = written.put(&mut row(number, size), bytes.as_deref(), old);
            put.unwrap();
            assert!(written.waiting.len() < VIEW_ROWS_WAITING_MAX);
        }
        let (layers, changes) = written.finish().unwrap();
        store.flush().unwrap();
        repository.reload_index().unwrap();
        let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
        (catalog, changes)
    }

    #[test]
    fn rows_leave_in_order_whatever_waits() {
        let cache = tempfile::tempdir().unwrap();
        let repository = repository(cache.path());
        let rows = 2 * VIEW_ROWS_WAITING_MAX + 100;
        let (first, changes) = write(&repository, &CatalogReader::empty(), &[], rows);
        assert_eq!(changes, rows as u64);
        let gone = [0, 1, 5, 300, rows - 1];
        let (second, changes) = write(&repository, &first, &gone, rows);
        assert_eq!(changes, gone.len() as u64, "others stay where they are");
        for (catalog, gone) in [(first, &[][..]), (second, &gone)] {
            let found = catalog.rows(KeyRange::all()).map(|row| row.unwrap());
            let found: Vec<Entry> = found.collect();
            let numbers = (0..rows).filter(|number| !gone.contains(number));
            let keys: Vec<Key> = numbers.clone().map(|number| row(number, 0).key()).collect();
            assert_eq!(found.iter().map(Entry::key).collect::<Vec<_>>(), keys);
            for (number, row) in numbers.zip(found) {
                let Content::Bundled { chunk, offset } = row.content else {
                    assert_ne!(number % 3, 0);
                    continue;
                };
                let bytes = repository.read_chunk(&chunk, bale_format::ChunkKind::Data);
                let bytes = bytes.unwrap();
                let there = &bytes[offset as usize..][..row.size as usize];
                assert_eq!(there, content(number));
            }
        }
    }
}
