//! Inode tables: read in the order of the device, in large pieces; inodes go to a file in the order
//! of their numbers.

use super::append::Appender;
use super::digest_file::ParentDigests;
use super::digests::{Digest, DigestKey, Digests, DigestsWriter};
use super::faults::Faults;
use super::few::Few;
use super::inode_file::InodeFile;
use super::piece_places::{self, PiecePlaces};
use super::table_piece::{KnownInodes, ParsedTable, buffer, read_piece};
use super::{SORT_NAMES_BYTES, SORT_PLACES_BYTES};
use crate::image::{Image, NamesPiece, TABLE_PIECE_BYTES, TablePiece};
use bale_format::Time;
use bale_pipeline::ordered::in_order;
use bale_pipeline::spill::{Sorter, Spill};
use std::io;
use std::iter::Peekable;
use std::sync::Arc;

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

/// What takes the pieces of the tables, in order.
struct Taking<'a> {
    image: &'a Image,
    faults: &'a mut Faults,
    inodes: Appender,
    digests: DigestsWriter,
    names: Sorter,
    places: Sorter,
    digest: blake3::Hasher,
    not_racy_from: Time,
    few: Option<Few>,
    are_in_part: bool,
    /// Inodes.
    done: u64,
}

impl Taking<'_> {
    fn of<'a>(
        image: &'a Image,
        known: Option<&ParentDigests>,
        spill: Spill<'_>,
        faults: &'a mut Faults,
    ) -> io::Result<Taking<'a>> {
        let sorter = |bytes| Sorter::new(spill.directory, spill.memory.inode_share(bytes));
        let mut digest = blake3::Hasher::new();
        digest.update(&image.facts().uuid);
        Ok(Taking {
            image,
            faults,
            inodes: Appender::create(spill.directory)?,
            digests: DigestsWriter::create(spill.directory, piece_places::are_noted(image))?,
            names: sorter(SORT_NAMES_BYTES),
            places: sorter(SORT_PLACES_BYTES),
            digest,
            not_racy_from: Time::default(),
            few: Few::asked_for(known, spill),
            are_in_part: false,
            done: 0,
        })
    }

    fn take(&mut self, mut parsed: ParsedTable) -> io::Result<()> {
        Few::take(&mut self.few, &mut parsed.noted, &parsed.inodes);
        self.are_in_part |= parsed.is_kept;
        if let Some(places) = &parsed.places {
            self.digests.add_places(places)?;
        }
        note_faults(self.image, self.faults, &mut parsed);
        self.digest.update(blake3::hash(&parsed.digests).as_bytes());
        let directories_from = parsed.directories_not_racy_from();
        let (first, raw) = (parsed.first_inode, parsed.raw);
        let is_written = (self.digests).add(first, raw, directories_from, parsed.digests);
        if !is_written || !self.inodes.append(parsed.inodes) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.not_racy_from = self.not_racy_from.max(parsed.not_racy_from);
        self.done += parsed.inodes_count;
        push_places(&mut self.places, &parsed.pieces)?;
        super::directory_blocks::push_names(self.image, &mut self.names, &parsed.names)
    }

    /// `read`: what came of reading all of them.
    fn finish(self, read: io::Result<()>) -> io::Result<Tables> {
        // Why writing failed says more than that it did.
        let inodes = Arc::new(InodeFile::new(self.inodes.finish()?));
        let digests = self.digests.finish()?;
        read?;
        Ok(Tables {
            inodes,
            digests,
            names: self.names,
            places: self.places,
            digest: *self.digest.finalize().as_bytes(),
            not_racy_from: self.not_racy_from,
            few: self.few,
            are_in_part: self.are_in_part,
        })
    }
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
    let mut taking = Taking::of(image, known.as_ref(), spill, faults)?;
    let expected = image.tables().inodes_expected();
    let is_replaced = known.as_ref().and_then(ParentDigests::is_replaced);
    let (is_noted, is_by_kernel) = (taking.few.is_some(), image.names().bulkstat().is_some());
    let are_placed = piece_places::are_noted(image);
    let spares = taking.inodes.spares();
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
            taking.take(parsed)?;
            match progress(taking.done, expected) {
                true => Ok(()),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        },
    );
    taking.finish(read)
}
