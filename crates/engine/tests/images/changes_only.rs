//! Exports with a dirty bitmap: what it says saves reading, and of a server that gives nothing but
//! what changed every snapshot is whole, or says what of it is not, or there is none.

#[path = "../../../nbd/tests/nbd/liar.rs"]
mod liar;

use crate::allocated::{ext4_in_noise, has_tools};
use crate::bench::{BLOCK, Images};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_format::{ChunkId, Entry, EntryFlags, ImageExtent, ObjectId};
use bale_nbd::wire::negotiation::{
    decode_contexts, encode_context, encode_export, option, option_reply,
};
use bale_nbd::wire::reply::{Descriptor, chunk, encode_error, encode_extents};
use bale_nbd::wire::request::{NbdRequest, command};
use bale_nbd::wire::{ALLOCATION_CONTEXT, HeaderStyle, export_flags};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use bale_source::raw::{BitmapChanges, RawImage, RawImageOptions};
use bale_testkit::scene::noise;
use liar::{ALLOCATION, DIRTY, Liar, Line};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

const STYLE: HeaderStyle = HeaderStyle::Structured;

/// What a bitmap counts.
const GRANULE: u64 = 64 << 10;

/// What is wrong with what the server says of its bitmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lie {
    #[default]
    None,
    /// An error, in order.
    Refuses,
    /// A stretch without a length.
    Empty,
    /// Stretches that end behind the export.
    Beyond,
    /// A context that was not chosen.
    OtherContext,
    /// Nothing but the end of the connection.
    Hangs,
}

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    /// Granules that changed.
    dirty: Vec<bool>,
    gives_changes_only: bool,
    has_no_bitmap: bool,
    lie: Lie,
    /// Ranges that the disk itself cannot give.
    bad: Vec<Range<u64>>,
    /// Bytes that were read.
    read: u64,
    /// Requests that the rule forbids.
    forbidden: usize,
    chose_allocation: bool,
    chose_bitmap: bool,
}

/// A server of one disk, and a repository.
struct Served {
    images: Images,
    disk: Arc<Mutex<Disk>>,
    liar: Liar,
}

impl Served {
    fn new(bytes: Vec<u8>) -> Served {
        let dirty = vec![false; bytes.len().div_ceil(GRANULE as usize)];
        let disk = Arc::new(Mutex::new(Disk {
            bytes,
            dirty,
            ..Disk::default()
        }));
        let served = disk.clone();
        Served {
            images: Images::new(),
            disk,
            liar: Liar::start(move |line| serve(line, &served)),
        }
    }

    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// As a machine writes, with account of it.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let mut disk = self.disk();
        let end = offset as usize + bytes.len();
        disk.bytes[offset as usize..end].copy_from_slice(bytes);
        for granule in offset / GRANULE..(end as u64).div_ceil(GRANULE) {
            disk.dirty[granule as usize] = true;
        }
    }

    /// Of all that is there, without the bitmap, which then begins anew.
    fn full(&self) -> Outcome {
        self.disk().gives_changes_only = false;
        let image = self.open(false, false).unwrap();
        let (outcome, problems) = self.backup(image, None);
        assert!(problems.is_empty(), "{problems:?}");
        self.disk().dirty.fill(false);
        outcome.unwrap()
    }

    fn open(&self, has_bitmap: bool, changes_only: bool) -> io::Result<RawImage> {
        let bitmap = if has_bitmap { "&bitmap=b" } else { "" };
        let options = RawImageOptions {
            is_point_in_time: true,
            changes_only,
            ..RawImageOptions::default()
        };
        let uri = format!("{}{bitmap}", self.liar.uri());
        RawImage::open_with(Path::new(&uri), &options)
    }

    fn backup(
        &self,
        image: RawImage,
        since: Option<ObjectId>,
    ) -> (Result<Outcome, Error>, Vec<String>) {
        self.backup_source(ImageSource::untracked(image), since)
    }

    fn backup_source(
        &self,
        mut source: ImageSource,
        since: Option<ObjectId>,
    ) -> (Result<Outcome, Error>, Vec<String>) {
        if let Some(since) = since {
            let changes = source.image.bitmap_changes().unwrap().unwrap();
            source.tracker = Box::new(BitmapChanges { since, changes });
        }
        let options = BackupOptions {
            parent: since,
            ..BackupOptions::default()
        };
        let (monitor, repository) = (Recorder::default(), self.images.scene.repository());
        let outcome = self
            .images
            .backup_into(&repository, &mut [source], &options, &monitor);
        let problems = monitor.problems.lock().unwrap();
        let problems = problems.iter().map(|problem| problem.text.clone());
        (outcome, problems.collect())
    }

    /// Of what changed since a snapshot, under the rule; the bitmap then begins anew.
    fn changes(&self, since: &Outcome) -> (Result<Outcome, Error>, Vec<String>) {
        self.disk().gives_changes_only = true;
        let image = self.open(true, true).unwrap();
        let done = self.backup(image, since.id);
        self.disk().dirty.fill(false);
        done
    }

    fn assert_restores(&self, outcome: &Outcome) {
        let repository = self.images.scene.repository();
        let bytes = self.disk().bytes.clone();
        self.images
            .assert_restores(&repository, outcome.id.unwrap(), &bytes);
    }

    fn snapshots(&self) -> usize {
        self.images.scene.repository().snapshots().unwrap().len()
    }

    /// The row of the image, and its extents.
    fn rows(&self, outcome: &Outcome) -> (Entry, Vec<ImageExtent>) {
        let repository = self.images.scene.repository();
        let (_, snapshot) = Images::named(&repository, outcome.id.unwrap());
        let catalog = CatalogReader::open(repository.segment_source(), snapshot.layers).unwrap();
        let name = b"socket.raw";
        let row = catalog.lookup(name).unwrap().unwrap();
        let extents = catalog.extents(name);
        let extents = extents.map(|row| ImageExtent::of(&row.unwrap()).unwrap());
        (row, extents.collect())
    }

    /// The chunk of a block.
    fn chunk(&self, outcome: &Outcome, block: u64) -> ChunkId {
        let (_, extents) = self.rows(outcome);
        let found = extents.iter().find(|extent| extent.start == block * BLOCK);
        found.unwrap().chunk
    }

    fn lose(&self, chunks: &[ChunkId]) {
        self.images
            .scene
            .lose_from_index(|entry| chunks.contains(&entry.id));
    }
}

/// One connection.
fn serve(line: &mut Line, disk: &Mutex<Disk>) -> io::Result<()> {
    let (len, has_bitmap) = {
        let disk = disk.lock().unwrap();
        (disk.bytes.len() as u64, !disk.has_no_bitmap)
    };
    line.shake_with(STYLE, &mut |line, option, payload| match option {
        option::GO => {
            line.reply(
                option,
                option_reply::INFO,
                &encode_export(len, export_flags::HAS_FLAGS),
            )?;
            line.reply(option, option_reply::ACK, &[])?;
            Ok(true)
        }
        option::SET_META_CONTEXT => {
            let (_, names) = decode_contexts(payload).unwrap();
            let allocation = ALLOCATION_CONTEXT.to_owned();
            {
                let mut disk = disk.lock().unwrap();
                disk.chose_allocation = names.contains(&allocation);
                disk.chose_bitmap = names.iter().any(|name| *name != allocation);
            }
            for name in names {
                let id = if name == ALLOCATION_CONTEXT {
                    ALLOCATION
                } else {
                    DIRTY
                };
                if id == ALLOCATION || has_bitmap {
                    let context = encode_context(id, &name);
                    line.reply(option, option_reply::META_CONTEXT, &context)?;
                }
            }
            line.reply(option, option_reply::ACK, &[])?;
            Ok(true)
        }
        _ => Ok(false),
    })?;
    loop {
        let request = line.request(STYLE)?;
        let range = request.offset..request.offset + request.bytes;
        match request.command {
            command::READ => read(line, &request, range, disk)?,
            command::BLOCK_STATUS => status(line, &request, range, disk)?,
            _ => return Ok(()),
        }
    }
}

/// The rule: what is not dirty cannot be read.
fn read(
    line: &mut Line,
    request: &NbdRequest,
    range: Range<u64>,
    disk: &Mutex<Disk>,
) -> io::Result<()> {
    let answer = {
        let mut disk = disk.lock().unwrap();
        let granules = range.start / GRANULE..range.end.div_ceil(GRANULE);
        let is_clean = |granule: u64| !disk.dirty[granule as usize];
        let is_bad = |bad: &Range<u64>| bad.start < range.end && range.start < bad.end;
        if disk.gives_changes_only && granules.clone().any(is_clean) {
            disk.forbidden += 1;
            Err(22)
        } else if disk.bad.iter().any(is_bad) {
            Err(5)
        } else {
            disk.read += range.end - range.start;
            Ok(disk.bytes[range.start as usize..range.end as usize].to_vec())
        }
    };
    match answer {
        Ok(bytes) => {
            let payload = [&range.start.to_be_bytes()[..], &bytes].concat();
            line.chunk(request, STYLE, true, chunk::OFFSET_DATA, &payload)
        }
        Err(code) => {
            let payload = encode_error(code, "");
            line.chunk(request, STYLE, true, chunk::ERROR_PLAIN, &payload)
        }
    }
}

/// Half of what was requested at a time, as a server may.
fn status(
    line: &mut Line,
    request: &NbdRequest,
    range: Range<u64>,
    disk: &Mutex<Disk>,
) -> io::Result<()> {
    let (lie, dirty, len, allocation, bitmap) = {
        let mut disk = disk.lock().unwrap();
        if disk.gives_changes_only && disk.chose_allocation {
            disk.forbidden += 1;
        }
        let len = disk.bytes.len() as u64;
        let chosen = (disk.chose_allocation, disk.chose_bitmap);
        (disk.lie, disk.dirty.clone(), len, chosen.0, chosen.1)
    };
    let mut list = Vec::new();
    let mut at = range.start;
    let end = (range.start + ((range.end - range.start) / 2).max(1)).next_multiple_of(GRANULE);
    let end = end.min(range.end);
    while at < end {
        let next = ((at / GRANULE + 1) * GRANULE).min(end);
        let flags = u64::from(dirty[(at / GRANULE) as usize]);
        list.push(Descriptor {
            bytes: next - at,
            flags,
        });
        at = next;
    }
    let mut context = DIRTY;
    match lie {
        Lie::None => {}
        _ if !bitmap => {}
        Lie::Refuses => {
            let payload = encode_error(5, "no bitmap today");
            return line.chunk(request, STYLE, true, chunk::ERROR_PLAIN, &payload);
        }
        Lie::Empty => list[0].bytes = 0,
        Lie::Beyond => list.push(Descriptor {
            bytes: len + GRANULE,
            flags: 1,
        }),
        Lie::OtherContext => context = 99,
        Lie::Hangs => return Err(io::ErrorKind::ConnectionAborted.into()),
    }
    if allocation {
        let all = [Descriptor {
            bytes: range.end - range.start,
            flags: 0,
        }];
        let payload = encode_extents(ALLOCATION, &all, STYLE);
        line.chunk(request, STYLE, !bitmap, chunk::BLOCK_STATUS, &payload)?;
    }
    if !bitmap {
        return Ok(());
    }
    let payload = encode_extents(context, &list, STYLE);
    line.chunk(request, STYLE, true, chunk::BLOCK_STATUS, &payload)
}

#[test]
fn of_a_server_of_changes_nothing_else_is_requested_and_every_snapshot_is_whole() {
    let len = 24 * BLOCK + 3 * GRANULE;
    let mut bytes = noise(1, len as usize);
    bytes[5 * BLOCK as usize..9 * BLOCK as usize].fill(0);
    let served = Served::new(bytes);
    let mut last = served.full();
    let mut number = 7u64;
    for round in 0..8 {
        let before = served.disk().read;
        for _ in 0..round {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            let bytes = 1 + (number >> 20) % (3 * GRANULE);
            let offset = (number >> 33) % (len - bytes);
            match number % 4 {
                0 => served.write(offset, &vec![0; bytes as usize]),
                _ => served.write(offset, &noise(number, bytes as usize)),
            }
        }
        // The last granule, which ends with the export, and a block that is all changed.
        served.write(len - 5, &[round as u8; 5]);
        served.write(3 * BLOCK, &noise(round, BLOCK as usize));
        let dirty = served.disk().dirty.iter().filter(|dirty| **dirty).count() as u64;
        let (outcome, problems) = served.changes(&last);
        assert!(problems.is_empty(), "{problems:?}");
        last = outcome.unwrap();
        assert_eq!(last.snapshot.images[0].tracker, "bitmap");
        served.assert_restores(&last);
        assert_eq!(served.disk().read - before, dirty * GRANULE);
    }
    // Nothing changed at all.
    let before = served.disk().read;
    let (outcome, problems) = served.changes(&last);
    assert!(problems.is_empty(), "{problems:?}");
    served.assert_restores(&outcome.unwrap());
    let disk = served.disk();
    assert_eq!((disk.forbidden, disk.read), (0, before));
}

#[test]
fn a_bitmap_saves_reading_where_everything_may_be_read() {
    let served = Served::new(noise(2, 12 * BLOCK as usize));
    let full = served.full();
    served.write(4 * BLOCK + 7, b"changed");
    let image = served.open(true, false).unwrap();
    let (outcome, problems) = served.backup(image, full.id);
    assert!(problems.is_empty(), "{problems:?}");
    let outcome = outcome.unwrap();
    assert_eq!(outcome.snapshot.counts.bytes_read, BLOCK);
    served.assert_restores(&outcome);
}

#[test]
fn what_the_parent_has_lost_is_named_and_of_everything_else_the_snapshot_is_right() {
    let served = Served::new(noise(4, 10 * BLOCK as usize));
    let full = served.full();
    let lost = [2, 6].map(|block| served.chunk(&full, block));
    served.lose(&lost);
    // Of the second block a part changed, of the third all; of the sixth nothing.
    served.write(2 * BLOCK + GRANULE, &noise(5, 2 * GRANULE as usize));
    served.write(3 * BLOCK, &noise(6, BLOCK as usize));
    served.write(8 * BLOCK + 5, b"and a part of one that is there");
    let (outcome, mut problems) = served.changes(&full);
    let outcome = outcome.unwrap();
    problems.sort();
    let named = [
        (2 * BLOCK, 2 * BLOCK + GRANULE),
        (2 * BLOCK + 3 * GRANULE, 3 * BLOCK),
        (6 * BLOCK, 7 * BLOCK),
    ];
    assert_eq!(problems.len(), named.len(), "{problems:?}");
    let mut expected = served.disk().bytes.clone();
    for (from, to) in named {
        let text = format!("bytes {from} to {to}: the parent snapshot has lost it");
        assert!(
            problems.iter().any(|it| it.starts_with(&text)),
            "{problems:?}"
        );
        expected[from as usize..to as usize].fill(0);
    }
    let (row, extents) = served.rows(&outcome);
    assert!(row.flags.has(EntryFlags::INCOMPLETE));
    let incomplete = extents.iter().filter(|extent| extent.is_incomplete);
    let incomplete: Vec<u64> = incomplete.map(|extent| extent.start / BLOCK).collect();
    assert_eq!(incomplete, [2, 6]);
    let repository = served.images.scene.repository();
    let snapshot = Images::named(&repository, outcome.id.unwrap());
    let (target, monitor) = (served.images.path("lost.raw"), Recorder::default());
    let report = served
        .images
        .restore_to(&repository, &snapshot, &target, &monitor);
    report.unwrap();
    assert!(std::fs::read(&target).unwrap() == expected);
    // What follows cannot go on from it, and a full one is right again.
    let (refused, _) = served.changes(&outcome);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("does not have all of the image"), "{text}");
    served.assert_restores(&served.full());
}

#[test]
fn what_may_be_lost_of_the_parent_is_stored_once_more() {
    let served = Served::new(noise(7, 6 * BLOCK as usize));
    let full = served.full();
    // A pack that is to be deleted, with all that it holds.
    let repository = served.images.scene.repository();
    let index = repository.index().unwrap();
    let packs = index.packs().iter().map(|pack| pack.id);
    let condemned: Vec<ObjectId> = packs.collect();
    repository.mark_damaged(condemned).unwrap();
    served.write(BLOCK, b"changed");
    let (outcome, problems) = served.changes(&full);
    assert!(problems.is_empty(), "{problems:?}");
    let outcome = outcome.unwrap();
    served.assert_restores(&outcome);
    assert!(outcome.snapshot.counts.bytes_stored > 5 * BLOCK);
}

#[test]
fn a_server_of_changes_is_refused_without_a_whole_parent_of_the_same_length() {
    let served = Served::new(noise(8, 4 * BLOCK as usize));
    let full = served.full();
    // Without a snapshot that it is relative to.
    let image = served.open(true, true).unwrap();
    let (refused, _) = served.backup(image, None);
    assert!(refused.is_err());
    // Another length.
    {
        let mut disk = served.disk();
        disk.bytes.extend(noise(9, BLOCK as usize));
        disk.dirty.extend([true; 16]);
    }
    let (refused, _) = served.changes(&full);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("the image is longer"), "{text}");
    assert!(text.contains("without --changes-only"), "{text}");
    served.disk().bytes.truncate(3 * BLOCK as usize);
    let (refused, _) = served.changes(&full);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("the image is shorter"), "{text}");
    assert_eq!(served.snapshots(), 1);
}

/// What was free and is not in the parent is in no bitmap once it is in use.
#[test]
fn a_server_of_changes_is_refused_where_the_parent_left_out_what_was_free() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    ext4_in_noise(&images);
    let served = Served::new(images.bytes());
    let full = served.full();
    assert!(!full.snapshot.images[0].left_out.is_empty());
    served.write(BLOCK, b"changed");
    let (refused, _) = served.changes(&full);
    let text = refused.err().unwrap().to_string();
    let words = "blocks were left out as free, which --read-free reads";
    assert!(text.contains(words), "{text}");
    assert!(text.contains("without --changes-only"), "{text}");
    assert_eq!((served.snapshots(), served.disk().forbidden), (1, 0));
    // With what the sentence says, it goes on.
    served.disk().gives_changes_only = false;
    let image = served.open(false, false).unwrap();
    let source = ImageSource {
        reads_free: true,
        ..ImageSource::untracked(image)
    };
    let full = served.backup_source(source, None).0.unwrap();
    served.disk().dirty.fill(false);
    served.write(BLOCK, b"changed again");
    let (outcome, problems) = served.changes(&full);
    assert!(problems.is_empty(), "{problems:?}");
    served.assert_restores(&outcome.unwrap());
}

#[test]
fn a_bitmap_that_is_refused_has_all_read_and_one_that_is_none_stops_the_backup() {
    let served = Served::new(noise(10, 4 * BLOCK as usize));
    let full = served.full();
    served.disk().lie = Lie::Refuses;
    let image = served.open(true, false).unwrap();
    let (outcome, problems) = served.backup(image, full.id);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(outcome.unwrap().snapshot.counts.bytes_read, 4 * BLOCK);
    // Under the rule there is nothing else to read.
    let (refused, _) = served.changes(&full);
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("no bitmap today"), "{text}");
    let before = served.snapshots();
    for lie in [Lie::Empty, Lie::Beyond, Lie::OtherContext, Lie::Hangs] {
        served.disk().lie = lie;
        for changes_only in [false, true] {
            let image = served.open(true, changes_only).unwrap();
            let error = image.bitmap_changes().err();
            assert!(error.is_some(), "{lie:?}");
        }
    }
    served.disk().has_no_bitmap = true;
    let error = served.open(true, false).err().unwrap().to_string();
    assert!(error.contains("no context qemu:dirty-bitmap:b"), "{error}");
    assert_eq!(served.snapshots(), before);
}

#[test]
fn what_the_disk_behind_a_server_of_changes_cannot_give_is_named() {
    let served = Served::new(noise(11, 4 * BLOCK as usize));
    let full = served.full();
    served.write(BLOCK + GRANULE, &noise(12, 4 * GRANULE as usize));
    let bad = BLOCK + 2 * GRANULE..BLOCK + 2 * GRANULE + 4096;
    served.disk().bad.push(bad.clone());
    let (outcome, problems) = served.changes(&full);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = format!("bytes {} to {}: ", bad.start, bad.end);
    assert!(problems[0].starts_with(&text), "{problems:?}");
    assert!(
        served
            .rows(&outcome.unwrap())
            .0
            .flags
            .has(EntryFlags::INCOMPLETE)
    );
    assert_eq!(served.disk().forbidden, 0);
}
