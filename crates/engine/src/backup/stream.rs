//! A backup of a stream: what another program writes becomes one file below the root.
//!
//! A stream comes once. What is read is stored before anything else can go wrong, and named now and
//! then, so that the same bytes are not sent again by the next run; there is a snapshot only if
//! whoever wrote the stream says that it is whole.

use super::commit::{StoredPass, commit};
use super::cut_large::FileCutter;
use super::naming::Named;
use super::parent::Parent;
use super::recount::Class;
use super::run::{BackupOptions, BackupRun, Outcome};
use super::stored_segments::StoredSegments;
use super::tally::Tally;
use super::{after_failure, begin, start_writer, unread_index};
use crate::limits::STREAM_BLOCK_BYTES;
use bale_format::snapshot::{PathText, SOURCE_IS_STREAM, Totals};
use bale_format::{Content, Entry, Kind, Snapshot};
use bale_pipeline::amount::counted;
use bale_pipeline::monitor::Monitor;
use bale_repository::catalog::{CatalogReader, CatalogWriter};
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bytes::Bytes;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

/// What is read, once.
pub struct Stream<'a> {
    /// Of the file that it becomes: one component of a path.
    pub name: &'a [u8],
    pub bytes: &'a mut dyn Read,
    /// Asked at the end of the bytes: was that all there is? An error says why not.
    pub is_whole: &'a mut dyn FnMut() -> std::result::Result<(), String>,
}

/// Backs up a stream and commits a snapshot of it.
pub fn backup_stream(
    repository: &Arc<Repository>,
    stream: Stream<'_>,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let path = PathText([b"/", stream.name].concat());
    let draft = Snapshot::begun([0; 16], repository.clock().time());
    let source = (vec![path], vec![SOURCE_IS_STREAM.to_owned()]);
    let run = BackupRun::begin_as(repository, source, draft, options)?;
    let mut stream = Some(stream);
    begin(&run, options, monitor, |parent| match stream.take() {
        Some(stream) => store(&run, parent, stream, options, monitor),
        None => Err(Error::Other(
            "the catalog to compare with is damaged, and what was written cannot be read again: \
             run it again with --force"
                .to_owned(),
        )),
    })
}

fn store(
    run: &BackupRun,
    parent: &Parent,
    stream: Stream<'_>,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let tally = Tally::new(monitor, parent, Totals::default());
    unread_index::report(&run.repository, &tally)?;
    let store = start_writer(run, parent, options)?;
    let done = store_and_commit(run, parent, stream, (&store, &tally), options);
    done.map_err(|error| after_failure(&store, error, monitor))
}

fn store_and_commit(
    run: &BackupRun,
    parent: &Parent,
    stream: Stream<'_>,
    (store, tally): (&Arc<ChunkWriter>, &Tally<'_>),
    options: &BackupOptions,
) -> Result<Outcome> {
    let name = Bytes::copy_from_slice(stream.name);
    let entry = store_bytes(stream, row(run, name), store, tally)?;
    let old = parent.catalog.lookup(&entry.path()).ok().flatten();
    if entry.size == 0 {
        report_empty(&entry, old.as_ref(), parent, tally);
    }
    let is_same = |old: &Entry| old.size == entry.size && old.content_hash == entry.content_hash;
    let class = match &old {
        None => Class::New,
        Some(old) if is_same(old) => Class::Unmodified,
        Some(_) => Class::Changed,
    };
    tally.stored(&entry, class);
    if class != Class::Unmodified {
        tally.report_difference(&entry, old.as_ref());
    }
    let repository = &run.repository;
    let stays = options.skip_if_unchanged && class == Class::Unmodified;
    let mut stored = StoredPass::nothing_but(parent, repository)?;
    if !stays {
        // Of nothing: rows of the parent are of the same file.
        let none = CatalogReader::open(repository.segment_source(), Vec::new())?;
        let mut catalog = CatalogWriter::new(none, StoredSegments(store.clone()));
        catalog.put(&entry)?;
        stored.layers = catalog.finish()?.layers;
        stored.changes = 1;
    }
    commit(run, parent, stored, store, tally, options)
}

/// Behind a pipe nobody learns that whoever writes it failed, but for this.
fn report_empty(entry: &Entry, old: Option<&Entry>, parent: &Parent, tally: &Tally<'_>) {
    let had = old.map_or(0, |old| old.size);
    match parent.id.filter(|_| had > 0) {
        Some(id) => tally.report_problem(
            &entry.path(),
            "back up",
            format!(
                "nothing was written, and it had {} in snapshot {}: did what writes it fail?",
                counted(had, "byte"),
                id.short()
            ),
        ),
        None => tally.note("nothing was written: the file is empty"),
    }
}

/// As somebody would have who writes the stream to a file now.
fn row(run: &BackupRun, name: Bytes) -> Entry {
    let mut entry = Entry::new(Bytes::new(), name, Kind::File);
    entry.mode = 0o600;
    entry.uid = rustix::process::geteuid().as_raw();
    entry.gid = rustix::process::getegid().as_raw();
    entry.mtime = run.draft.time;
    entry.ctime = run.draft.time;
    entry
}

/// Reads to the end, and stores.
fn store_bytes(
    stream: Stream<'_>,
    mut entry: Entry,
    store: &Arc<ChunkWriter>,
    tally: &Tally<'_>,
) -> Result<Entry> {
    let mut cutter = FileCutter::new(store);
    let mut block = vec![0; STREAM_BLOCK_BYTES];
    let (mut bytes_read, mut named) = (0, Named::begin(store, None));
    loop {
        let read = stream.bytes.read(&mut block);
        if tally.interrupted() {
            return Err(Error::Interrupted);
        }
        let len = match read {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                named.when_due(store)?;
                continue;
            }
            Err(error) => {
                let name = String::from_utf8_lossy(stream.name);
                return Err(Error::Other(format!("read what becomes /{name}: {error}")));
            }
        };
        tally.read(len as u64);
        bytes_read += len as u64;
        cutter.data(&block[..len])?;
        tally.report_bytes(bytes_read);
        named.when_due(store)?;
    }
    let list = cutter.finish(&mut entry)?;
    entry.content = list.map_or(Content::None, |list| Content::Pieces { list });
    (stream.is_whole)().map_err(|why| match tally.interrupted() {
        true => Error::Interrupted,
        false => Error::Other(why),
    })?;
    Ok(entry)
}
