//! Entries of which a segment can hold no row: each is named as a problem, and as much of it is
//! stored as a row can hold.
//!
//! Scanners bound names and paths, and image readers what they decode, so that this is seldom seen:
//! a server or a damaged file system that gives what no kernel should.

use super::tally::Tally;
use bale_format::entry::OptionalTime;
use bale_format::segment::{check_fields, check_path};
use bale_format::{Content, Entry, EntryFlags};
use bytes::Bytes;

const MODE_MAX: u32 = 0o7777;
const NANOS_MAX: u32 = 999_999_999;
const SIZE_MAX: u64 = i64::MAX as u64;

/// Leaves an entry as it is, if a segment can hold it. If not, that is a problem, and what is left
/// is flagged as unreadable; false: no row can have its path. `last_parent`: of the row stored
/// before it.
pub(super) fn make_storable(
    entry: &mut Entry,
    last_parent: Option<&Bytes>,
    tally: &Tally<'_>,
) -> bool {
    let path = check_path(entry, last_parent.map(|parent| &parent[..]));
    let Err(reason) = path.and_then(|()| check_fields(entry)) else {
        return true;
    };
    let text = format!("a snapshot cannot hold it: {reason}");
    tally.report_problem(&entry.path(), "store", text);
    if path.is_ok() {
        take_details(entry);
    }
    path.is_ok()
}

/// What is left a segment can hold whatever the entry is, but for its path.
fn take_details(entry: &mut Entry) {
    entry.mode &= MODE_MAX;
    entry.size = entry.size.min(SIZE_MAX);
    entry.atime = OptionalTime::NONE;
    for time in [&mut entry.mtime, &mut entry.ctime] {
        time.nanos = time.nanos.min(NANOS_MAX);
    }
    entry.target = Box::default();
    entry.xattrs = Bytes::new();
    (entry.content, entry.content_hash) = (Content::None, None);
    entry.flags.set(EntryFlags::UNREADABLE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::memory_repository::repository;
    use crate::backup::parent::Parent;
    use crate::backup::queue::{ItemSender, PackingItem};
    use crate::backup::rows::RowWriter;
    use crate::backup::stored_segments::StoredSegments;
    use bale_format::Kind;
    use bale_format::snapshot::Totals;
    use bale_pipeline::monitor::Recorder;
    use bale_repository::catalog::{CatalogReader, CatalogWriter, KeyRange};
    use bale_repository::pack::ChunkWriter;
    use bale_repository::pack::WriterCounts;
    use bale_source::read::SmallReader;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn entry(parent: &str, name: &str, kind: Kind) -> Entry {
        Entry::new(
            parent.to_owned().into_bytes().into(),
            name.to_owned().into_bytes().into(),
            kind,
        )
    }

    /// What the packing thread makes of entries: rows, files counted, and problems by path.
    fn stored(entries: Vec<Entry>) -> (Vec<Entry>, u64, BTreeMap<Vec<u8>, String>) {
        let cache = tempfile::tempdir().unwrap();
        let repository = repository(cache.path());
        let writer = ChunkWriter::start(repository.clone(), Default::default(), false);
        let store = Arc::new(writer.unwrap());
        let catalog = CatalogWriter::new(CatalogReader::empty(), StoredSegments(store.clone()));
        let (reader, recorder) = (SmallReader::start(Some(0)), Recorder::default());
        let tally = Tally::new(&recorder, &Parent::none(), Totals::default());
        let mut rows = RowWriter::new(&store, catalog, &reader, &tally, Vec::new());
        let (mut sender, queue) = ItemSender::pair(2);
        for entry in entries {
            let (entry, old) = (Box::new(entry), None);
            assert!(sender.send(PackingItem::Row { entry, old }).is_ok());
        }
        assert!(sender.flush().is_ok());
        drop(sender);
        rows.write_all(queue, |_, _| Ok(())).unwrap();
        let layers = rows.finish().unwrap().layers;
        store.flush().unwrap();
        repository.reload_index().unwrap();
        let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
        let rows = catalog.rows(KeyRange::all()).map(|row| row.unwrap());
        let problems = recorder.problems.lock().unwrap();
        assert_eq!(
            tally.counts(WriterCounts::default()).problems,
            problems.len() as u64
        );
        let problems = problems.iter().map(|problem| {
            assert_eq!(problem.action, "store");
            (problem.path.clone(), problem.text.clone())
        });
        (rows.collect(), tally.totals().files, problems.collect())
    }

    #[test]
    fn an_entry_that_no_row_can_hold_is_a_problem_and_all_others_are_stored() {
        let long = "n".repeat(256);
        let mut late = entry("d", "late", Kind::File);
        late.mtime.nanos = 1_000_000_000;
        let mut link = entry("d", "link", Kind::Symlink);
        link.target = b"some\0where"[..].into();
        let mut huge = entry("d", "huge", Kind::File);
        huge.size = u64::MAX;
        let mut entries = vec![
            entry("d", "a", Kind::File),
            late,
            link,
            entry("d", &long, Kind::Directory),
            huge,
            entry("d", "z", Kind::File),
            entry("d", "zero\0byte", Kind::File),
            entry(&format!("d/{long}"), "below", Kind::File),
            entry("e", "last", Kind::File),
        ];
        entries.sort_by_key(Entry::key);
        let (rows, files, problems) = stored(entries);
        let is_whole = |row: &Entry| !row.flags.has(EntryFlags::UNREADABLE);
        let (whole, rest): (Vec<Entry>, Vec<Entry>) = rows.into_iter().partition(is_whole);
        let names = |rows: &[Entry]| -> Vec<String> {
            let paths = rows.iter().map(Entry::path);
            paths.map(|path| String::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(names(&whole), ["d/a", "d/z", "e/last"]);
        assert_eq!(names(&rest), ["d/huge", "d/late", "d/link"]);
        assert_eq!(files, 5, "those that have a row");
        let long = format!("/d/{long}");
        let below = format!("{long}/below");
        let expected = [
            ("/d/huge", "size is out of range"),
            ("/d/late", "nanoseconds out of range"),
            ("/d/link", "target of a symlink"),
            (&long[..], "name is too long"),
            (&below[..], "name is too long"),
            ("/d/zero\0byte", "name has a slash or a zero byte"),
        ];
        let expected = expected.map(|(path, reason)| {
            let text = format!("a snapshot cannot hold it: {reason}");
            (path.as_bytes().to_vec(), text)
        });
        assert_eq!(problems, BTreeMap::from(expected));
    }
}
