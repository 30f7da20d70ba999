//! Inode tables: read in the order of the device, in large pieces; inodes go to a file in the order
//! of their numbers.

use super::append::Appender;
use super::digest_file::{IsReplaced, ParentDigests};
use super::digests::{Digest, DigestKey, Digests, DigestsWriter, digest_of};
use super::faults::Faults;
use super::few::{Few, Noted};
use super::inode_file::{self, InodeFile};
use super::piece_places::{self, PiecePlaces, PlacesSeen};
use super::{SORT_NAMES_BYTES, SORT_PLACES_BYTES};
use crate::image::{
    FoundInode, Image, NamesPiece, PieceDigest, TABLE_PIECE_BYTES, TablePiece, TableSink, time_of,
};
use bale_format::Time;
use bale_fsimage::FileKind;
use bale_pipeline::ordered::in_order;
use bale_pipeline::spill::{Sorter, Spill};
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

/// Attempts at an inode that is damaged on a device in use: it may have been caught in the middle
/// of a change.
const READS_MAX: usize = 3;

/// What the inode tables gave.
pub(super) struct Tables {
    pub(super) inodes: Arc<InodeFile>,
    /// What they said, inode by inode.
    pub(super) digests: Digests,
    /// Names of small directories, by inode.
    pub(super) names: Sorter,
    /// Places of directory blocks, by place.
    pub(super) places: Sorter,
    /// Of all inodes as if nobody had read anything: equal digests mean that nothing was changed.
    pub(super) digest: [u8; 32],
    /// From then on no change leaves the ctime that any inode has.
    pub(super) not_racy_from: Time,
    /// What is not as it was for the last backup, where that is asked for.
    pub(super) few: Option<Few>,
    /// Pieces were left out, as nothing of them changed: what was read is not all.
    pub(super) are_in_part: bool,
}

/// What one piece became.
#[derive(Default)]
pub(super) struct ParsedTable {
    /// Records of the inode file.
    pub(super) inodes: Vec<u8>,
    inodes_count: u64,
    pieces: Vec<NamesPiece>,
    /// As [`super::directory_blocks::add`] makes them.
    names: Vec<u8>,
    damaged: Vec<(u64, String)>,
    incomplete: Vec<(u64, String)>,
    general: Option<String>,
    not_racy_from: Time,
    /// Number of the first inode of the piece.
    first_inode: u64,
    /// Of the piece's bytes, if they could be read.
    raw: Option<PieceDigest>,
    /// Number and digest of each inode.
    pub(super) digests: Vec<u8>,
    /// Directories, and from when on no change leaves the ctime that they have.
    pub(super) directories: Vec<(u64, Time)>,
    scratch: Vec<u8>,
    /// What is not as it was.
    noted: Noted,
    /// Where the content of its inodes lies, where that is noted and known.
    places: Option<PiecePlaces>,
    /// It was not read.
    is_kept: bool,
}

/// Takes a piece apart.
struct Parsing<'a> {
    image: &'a Image,
    key: &'a DigestKey,
    known: KnownInodes<'a>,
    /// Where content lies, if that is noted.
    places: Option<PlacesSeen>,
    parsed: &'a mut ParsedTable,
}

/// What the last backup knew of the inodes of a piece.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownInodes<'a> {
    /// Those not yet passed.
    pub(super) digests: &'a [Digest],
    /// What differs is noted.
    is_noted: bool,
    /// Places of content are noted.
    are_placed: bool,
    /// What else must be as it was, if rows depend on it.
    pub(super) is_replaced: Option<&'a IsReplaced>,
}

impl<'a> KnownInodes<'a> {
    fn of(digests: &'a [Digest], is_replaced: Option<&'a IsReplaced>) -> KnownInodes<'a> {
        KnownInodes {
            digests,
            is_noted: false,
            are_placed: false,
            is_replaced,
        }
    }

    fn noting(self, is_noted: bool, are_placed: bool) -> KnownInodes<'a> {
        KnownInodes {
            is_noted,
            are_placed,
            ..self
        }
    }
}

impl Parsing<'_> {
    /// True if the parent has this digest for this inode. Digests are read in order; an inode out
    /// of order counts as changed.
    fn has_parents_digest(&mut self, new: Digest) -> bool {
        let digests = &mut self.known.digests;
        let gone = digests.partition_point(|old| old.number < new.number);
        let (gone, rest) = digests.split_at(gone);
        *digests = rest;
        if self.known.is_noted {
            (self.parsed.noted).gone(gone.iter().map(|old| old.number));
        }
        let old = digests.first().filter(|old| old.number == new.number);
        if old.is_some() {
            *digests = &digests[1..];
        }
        old == Some(&new)
    }

    /// True if its row may be another one all the same.
    fn row_may_differ(&self, number: u64, raw: &[u8]) -> bool {
        self.known
            .is_replaced
            .is_some_and(|is_replaced| self.image.row_may_differ(number, raw, &**is_replaced))
    }
}

impl TableSink for Parsing<'_> {
    fn inode(&mut self, found: FoundInode, raw: &[u8]) {
        let number = found.number;
        let digest = digest_of(self.image, self.key, number, raw, &mut self.parsed.scratch);
        let digest = Digest { number, digest };
        let is_directory = found.kind == FileKind::Directory;
        if let Some(places) = &mut self.places {
            let mut see = |range: &Range<u64>| {
                places.see(range);
                true
            };
            if !self.image.places_of(number, raw, &mut see) {
                places.unknown();
            }
        }
        let is_same = self.has_parents_digest(digest) && !self.row_may_differ(number, raw);
        // What directories hold is needed anyway.
        let is_unchanged = is_same && !is_directory;
        let parsed = &mut *self.parsed;
        let at = parsed.inodes.len() + inode_file::HEAD_BYTES;
        inode_file::append(&found, (!is_unchanged).then_some(raw), &mut parsed.inodes);
        match self.known.is_noted {
            true if !is_same => parsed.noted.inode(&found, at..parsed.inodes.len()),
            _ => parsed.noted.unchanged(),
        }
        parsed.inodes_count += 1;
        let not_racy_from = time_of(found.ctime).end_of_stamp();
        parsed.not_racy_from = parsed.not_racy_from.max(not_racy_from);
        digest.append(&mut parsed.digests);
        if is_directory {
            parsed.directories.push((number, not_racy_from));
        }
    }

    fn names(&mut self, piece: NamesPiece) {
        self.parsed.noted.names(&piece);
        self.parsed.pieces.push(piece);
    }

    fn name(&mut self, directory: u64, name: &[u8], inode: u64) {
        self.parsed.noted.name(directory, inode, name);
        super::directory_blocks::add(&mut self.parsed.names, directory, inode, name);
    }

    fn damaged(&mut self, number: u64, why: String) {
        self.parsed.damaged.push((number, why));
    }

    fn incomplete(&mut self, directory: u64, why: String) {
        self.parsed.incomplete.push((directory, why));
    }
}

/// Most records of the inode file are no longer than this: room that is made at once.
const RECORD_BYTES_USUAL: usize = 160;

impl ParsedTable {
    /// From then on no change leaves the ctime that a directory in it has.
    fn directories_not_racy_from(&self) -> Time {
        let from = self.directories.iter().map(|(_, from)| *from).max();
        from.unwrap_or_default()
    }

    /// `are_all`: no digest of the last backup was left out.
    fn knowing(mut self, are_all: bool) -> ParsedTable {
        if !are_all {
            self.noted.much();
        }
        self
    }

    /// Of a piece that is not read, as nothing of it changed.
    fn kept(places: PiecePlaces, known: &[Digest]) -> ParsedTable {
        let mut parsed = ParsedTable {
            places: Some(places),
            is_kept: true,
            inodes_count: known.len() as u64,
            ..ParsedTable::default()
        };
        known.iter().for_each(|one| one.append(&mut parsed.digests));
        parsed
    }

    /// With room for what most pieces hold: that of `spare`, as far as it has some.
    fn of(piece: &TablePiece, mut spare: Vec<u8>) -> ParsedTable {
        let inodes_max = (piece.span.len as usize / INODE_BYTES_USUAL).min(piece.inodes_max());
        spare.clear();
        spare.reserve(inodes_max * RECORD_BYTES_USUAL);
        ParsedTable {
            inodes: spare,
            digests: Vec::with_capacity(inodes_max * super::digests::RECORD_BYTES),
            first_inode: piece.first_inode,
            ..ParsedTable::default()
        }
    }
}

/// Size of most inodes in their table.
const INODE_BYTES_USUAL: usize = 256;

pub(super) fn buffer() -> AlignedBuffer {
    AlignedBuffer::new(TABLE_PIECE_BYTES + 2 * ALIGNMENT)
}

/// Reads a piece and takes it apart; again, if something in it looks damaged and somebody may be
/// writing. Inodes with a digest among the `known` are what they were.
pub(super) fn read_piece(
    image: &Image,
    key: &DigestKey,
    piece: Result<TablePiece, String>,
    known: KnownInodes<'_>,
    buffer: &mut AlignedBuffer,
    spare: Vec<u8>,
) -> ParsedTable {
    let mut parsed = ParsedTable {
        inodes: spare,
        ..ParsedTable::default()
    };
    let piece = match piece {
        Ok(piece) => piece,
        Err(why) => {
            parsed.general = Some(why);
            return parsed;
        }
    };
    for _ in 0..READS_MAX {
        parsed = ParsedTable::of(&piece, parsed.inodes);
        match read_bytes(image, &piece, buffer) {
            Ok(range) => {
                let bytes = &buffer[range];
                parsed.raw = Some(piece.digest(bytes));
                let mut parsing = Parsing {
                    image,
                    key,
                    known,
                    places: known.are_placed.then(PlacesSeen::default),
                    parsed: &mut parsed,
                };
                image.tables().parse(&piece, bytes, &mut parsing);
                let places = parsing.places.take();
                let rest = parsing.known.digests.iter();
                let rest = rest.filter(|_| known.is_noted).map(|old| old.number);
                parsing.parsed.noted.gone(rest);
                parsed.places = places.and_then(|places| places.of_piece(&piece, key));
            }
            Err(error) => {
                let first = image.content().shown_number(piece.first_inode);
                parsed.general = Some(format!("read inodes from number {first} on: {error}"));
            }
        }
        let sound = parsed.damaged.is_empty() && parsed.general.is_none();
        if sound && parsed.incomplete.is_empty() {
            return parsed;
        }
        parsed.places = None;
    }
    parsed
}

pub(super) fn read_bytes(
    image: &Image,
    piece: &TablePiece,
    buffer: &mut AlignedBuffer,
) -> io::Result<std::ops::Range<usize>> {
    image.read_table(piece, buffer)
}

/// Digests of the last backup that go along with one piece: it has no more inodes.
const PARENT_DIGESTS_PER_PIECE_MAX: usize = TABLE_PIECE_BYTES / 128;
pub(super) const PARENT_DIGESTS_PER_PIECE_BYTES: usize =
    PARENT_DIGESTS_PER_PIECE_MAX * size_of::<Digest>();

/// Pieces of the inode tables, each with what is known of its inodes.
struct WithParentDigests<'a, I: Iterator<Item = Result<TablePiece, String>>> {
    pieces: Peekable<I>,
    known: Option<ParentDigests>,
    /// Pieces of which nothing changed are told from others, by digests of this key.
    keeping: Option<&'a DigestKey>,
}

/// What is known of the inodes of a piece.
#[derive(Default)]
struct KnownOfPiece {
    digests: Vec<Digest>,
    /// These are all of its range.
    are_all: bool,
    /// Nothing of it changed.
    kept: Option<PiecePlaces>,
}

impl<I: Iterator<Item = Result<TablePiece, String>>> Iterator for WithParentDigests<'_, I> {
    type Item = (Result<TablePiece, String>, KnownOfPiece);

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.pieces.next()?;
        let mut of_piece = KnownOfPiece::default();
        if let (Some(known), Ok(piece)) = (&mut self.known, &piece) {
            let end = match self.pieces.peek() {
                Some(Ok(next)) => Some(next.first_inode),
                _ => None,
            };
            let end = end.filter(|end| *end > piece.first_inode);
            of_piece.are_all = known.take(
                piece.first_inode,
                end,
                PARENT_DIGESTS_PER_PIECE_MAX,
                &mut of_piece.digests,
            );
            let kept = self.keeping.filter(|_| of_piece.are_all);
            of_piece.kept = kept.and_then(|key| known.kept_places(piece, key));
        }
        Some((piece, of_piece))
    }
}

fn note_faults(image: &Image, faults: &mut Faults, parsed: &mut ParsedTable) {
    let damaged = std::mem::take(&mut parsed.damaged);
    let incomplete = std::mem::take(&mut parsed.incomplete);
    for (number, why) in damaged {
        match image.names().are_with_inodes() {
            true => faults.general(why),
            false => faults.inode(number, why),
        }
    }
    for (number, why) in incomplete {
        faults.directory(number, why);
    }
    if let Some(why) = parsed.general.take() {
        faults.general(why);
    }
}

/// Where directory blocks are, to be sorted by that.
fn push_places(places: &mut Sorter, pieces: &[NamesPiece]) -> io::Result<()> {
    for piece in pieces {
        let key = super::directory_blocks::place_key(piece);
        let value = super::directory_blocks::encode_piece(piece);
        places.push(&key, &value).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Reads all inode tables.
pub(super) fn read_tables(
    image: &Image,
    key: &DigestKey,
    known: Option<ParentDigests>,
    spill: Spill<'_>,
    faults: &mut Faults,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<Tables> {
    let file = Appender::create(spill.directory)?;
    let spares = file.spares();
    let are_placed = piece_places::are_noted(image);
    let mut digests = DigestsWriter::create(spill.directory, are_placed)?;
    let mut names = Sorter::new(spill.directory, spill.memory.inode_share(SORT_NAMES_BYTES));
    let mut places = Sorter::new(spill.directory, spill.memory.inode_share(SORT_PLACES_BYTES));
    let (mut done, expected) = (0, image.tables().inodes_expected());
    let mut digest = blake3::Hasher::new();
    digest.update(&image.facts().uuid);
    let mut not_racy_from = Time::default();
    let is_replaced = known.as_ref().and_then(ParentDigests::is_replaced);
    let mut few = Few::asked_for(known.as_ref(), spill);
    let (is_noted, is_by_kernel) = (few.is_some(), image.names().bulkstat().is_some());
    let mut are_in_part = false;
    let read = in_order(
        WithParentDigests {
            pieces: image.tables().pieces().peekable(),
            known,
            keeping: (is_noted && are_placed).then_some(key),
        },
        buffer,
        |buffer, (piece, of_piece)| {
            if let Some(places) = of_piece.kept {
                return ParsedTable::kept(places, &of_piece.digests);
            }
            let spare = spares.try_recv().unwrap_or_default();
            let known = KnownInodes::of(&of_piece.digests, is_replaced.as_ref());
            let known = known.noting(is_noted, are_placed);
            let parsed = read_piece(image, key, piece, known, buffer, spare);
            parsed.knowing(of_piece.are_all)
        },
        |mut parsed| -> io::Result<()> {
            if let Some(why) = parsed.general.take_if(|_| is_by_kernel) {
                // What the kernel does not tell cannot be missed by a checksum.
                return Err(io::Error::other(why));
            }
            Few::take(&mut few, &mut parsed.noted, &parsed.inodes);
            are_in_part |= parsed.is_kept;
            if let Some(places) = &parsed.places {
                digests.add_places(places)?;
            }
            note_faults(image, faults, &mut parsed);
            digest.update(blake3::hash(&parsed.digests).as_bytes());
            let directories_from = parsed.directories_not_racy_from();
            let (first, raw) = (parsed.first_inode, parsed.raw);
            let is_written = digests.add(first, raw, directories_from, parsed.digests);
            if !is_written || !file.append(parsed.inodes) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            not_racy_from = not_racy_from.max(parsed.not_racy_from);
            done += parsed.inodes_count;
            push_places(&mut places, &parsed.pieces)?;
            super::directory_blocks::push_names(image, &mut names, &parsed.names)?;
            match progress(done, expected) {
                true => Ok(()),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        },
    );
    // Why writing failed says more than that it did.
    let inodes = Arc::new(InodeFile::new(file.finish()?));
    let digests = digests.finish()?;
    read?;
    Ok(Tables {
        inodes,
        digests,
        names,
        places,
        digest: *digest.finalize().as_bytes(),
        not_racy_from,
        few,
        are_in_part,
    })
}
