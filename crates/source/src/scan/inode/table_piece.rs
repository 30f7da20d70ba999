//! One piece of the inode tables, taken apart: its inodes, names that are in them, where others
//! are, and what of it is not as the last backup knew it.

use super::digest_file::IsReplaced;
use super::digests::{Digest, DigestKey, digest_of};
use super::few::Noted;
use super::inode_file;
use super::piece_places::{PiecePlaces, PlacesSeen};
use crate::image::{
    FoundInode, Image, NamesPiece, PieceDigest, TABLE_PIECE_BYTES, TablePiece, TableSink, time_of,
};
use bale_format::Time;
use bale_fsimage::FileKind;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::io;
use std::ops::Range;

/// Attempts at an inode that is damaged on a device in use: it may have been caught in the middle
/// of a change.
const READS_MAX: usize = 3;

/// What one piece became.
#[derive(Default)]
pub(super) struct ParsedTable {
    /// Records of the inode file.
    pub(super) inodes: Vec<u8>,
    pub(super) inodes_count: u64,
    pub(super) pieces: Vec<NamesPiece>,
    /// As [`super::directory_blocks::add`] makes them.
    pub(super) names: Vec<u8>,
    pub(super) damaged: Vec<(u64, String)>,
    pub(super) incomplete: Vec<(u64, String)>,
    pub(super) general: Option<String>,
    pub(super) not_racy_from: Time,
    /// Number of the first inode of the piece.
    pub(super) first_inode: u64,
    /// Of the piece's bytes, if they could be read.
    pub(super) raw: Option<PieceDigest>,
    /// Number and digest of each inode.
    pub(super) digests: Vec<u8>,
    /// Directories, and from when on no change leaves the ctime that they have.
    pub(super) directories: Vec<(u64, Time)>,
    pub(super) scratch: Vec<u8>,
    /// What is not as it was.
    pub(super) noted: Noted,
    /// Where the content of its inodes lies, where that is noted and known.
    pub(super) places: Option<PiecePlaces>,
    /// It was not read.
    pub(super) is_kept: bool,
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
    pub(super) fn of(
        digests: &'a [Digest],
        is_replaced: Option<&'a IsReplaced>,
    ) -> KnownInodes<'a> {
        KnownInodes {
            digests,
            is_noted: false,
            are_placed: false,
            is_replaced,
        }
    }

    pub(super) fn noting(self, is_noted: bool, are_placed: bool) -> KnownInodes<'a> {
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
    pub(super) fn directories_not_racy_from(&self) -> Time {
        let from = self.directories.iter().map(|(_, from)| *from).max();
        from.unwrap_or_default()
    }

    /// `are_all`: no digest of the last backup was left out.
    pub(super) fn knowing(mut self, are_all: bool) -> ParsedTable {
        if !are_all {
            self.noted.much();
        }
        self
    }

    /// Of a piece that is not read, as nothing of it changed.
    pub(super) fn kept(places: PiecePlaces, known: &[Digest]) -> ParsedTable {
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
