//! Finds inodes that changed during the scan by reading the inode tables again: a piece with equal
//! bytes is skipped, in the others inodes are compared by digest.

use super::digests::{Digest, DigestKey, DigestReader, Digests, PieceSeen, RECORD_BYTES};
use super::table_piece::{KnownInodes, ParsedTable, buffer, read_bytes, read_piece};
use crate::image::{Image, TablePiece};
use bale_format::entry::Time;
use bale_pipeline::ordered::in_order;
use bale_sys::buffer::AlignedBuffer;
use std::io;

/// A piece that was read again.
enum PieceAgain {
    Same(PieceSeen),
    Other(Box<ParsedTable>),
}

/// Compares what is read again with what was read, both in the order of numbers.
struct Comparison<'a> {
    reader: DigestReader<'a>,
    /// What is new counts as changed, too.
    wants_new: bool,
    changed: Vec<u64>,
}

impl Comparison<'_> {
    /// What is gone before this number, or cannot be read any more, is as good as changed.
    fn pass_to(&mut self, number: Option<u64>) -> io::Result<()> {
        while let Some(old) = self.reader.here()?
            && number.is_none_or(|number| old.number < number)
        {
            self.changed.push(old.number);
            self.reader.advance();
        }
        Ok(())
    }

    fn look(&mut self, new: Digest) -> io::Result<()> {
        self.pass_to(Some(new.number))?;
        match self.reader.here()? {
            Some(old) if old.number == new.number => {
                if old.digest != new.digest {
                    self.changed.push(new.number);
                }
                self.reader.advance();
            }
            // New: its directory has changed, too. A directory that the kernel did not tell of
            // before was not listed.
            _ if self.wants_new => self.changed.push(new.number),
            _ => {}
        }
        Ok(())
    }

    fn take(&mut self, again: PieceAgain, t0: Time) -> io::Result<()> {
        match again {
            PieceAgain::Same(piece) => {
                self.pass_to(Some(piece.first_inode()))?;
                self.reader.skip(&piece);
            }
            PieceAgain::Other(parsed) => {
                for record in parsed.digests.chunks_exact(RECORD_BYTES) {
                    self.look(Digest::of(record.try_into().expect("exact chunks")))?;
                }
                let young = parsed.directories.iter();
                let young = young.filter(|(_, not_racy_from)| *not_racy_from > t0);
                self.changed.extend(young.map(|(number, _)| *number));
            }
        }
        Ok(())
    }
}

/// Reads the tables again; the numbers of inodes that are not what they were, in order, and of
/// directories that were changed since `t0`. Where a log tells which inodes may be changed, only
/// their pieces are read. `None`: more than `changed_max`.
pub(super) fn changed_inodes(
    image: &Image,
    before: &Digests,
    key: &DigestKey,
    t0: Time,
    logged: Option<&[u64]>,
    changed_max: usize,
) -> io::Result<Option<Vec<u64>>> {
    let mut comparison = Comparison {
        reader: before.read(),
        wants_new: image.names().bulkstat().is_some(),
        changed: Vec::new(),
    };
    let look = Look {
        image,
        before,
        key,
        t0,
        logged,
    };
    let compared = in_order(
        image.tables().pieces(),
        buffer,
        |buffer, piece| look.again(piece, buffer),
        |again| -> io::Result<()> {
            comparison.take(again, t0)?;
            match comparison.changed.len() > changed_max {
                true => Err(io::ErrorKind::QuotaExceeded.into()),
                false => Ok(()),
            }
        },
    );
    match compared {
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => return Ok(None),
        result => result?,
    }
    comparison.pass_to(None)?;
    let mut changed = comparison.changed;
    changed.sort_unstable();
    changed.dedup();
    Ok((changed.len() <= changed_max).then_some(changed))
}

/// Another look at the tables.
struct Look<'a> {
    image: &'a Image,
    before: &'a Digests,
    key: &'a DigestKey,
    t0: Time,
    logged: Option<&'a [u64]>,
}

impl Look<'_> {
    fn again(&self, piece: Result<TablePiece, String>, buffer: &mut AlignedBuffer) -> PieceAgain {
        if let Ok(piece) = &piece
            && let Some(seen) = self.before.piece(piece)
            && seen.is_not_racy(self.t0)
            && (self.is_not_logged(piece, seen) || self.is_equal(piece, seen, buffer))
        {
            return PieceAgain::Same(*seen);
        }
        let known = KnownInodes::default();
        let parsed = read_piece(self.image, self.key, piece, known, buffer, Vec::new());
        PieceAgain::Other(Box::new(parsed))
    }

    /// Does the log tell of no inode of it?
    fn is_not_logged(&self, piece: &TablePiece, seen: &PieceSeen) -> bool {
        self.logged
            .is_some_and(|logged| piece.has_chunks_of(&seen.raw) && !piece.has_any_of(logged))
    }

    fn is_equal(&self, piece: &TablePiece, seen: &PieceSeen, buffer: &mut AlignedBuffer) -> bool {
        let range = read_bytes(self.image, piece, buffer);
        range.is_ok_and(|range| piece.digest(&buffer[range]) == seen.raw)
    }
}
