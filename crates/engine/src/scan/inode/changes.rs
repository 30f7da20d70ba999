//! What changed since the inode tables were read: they are read again. A piece whose bytes are what they were is not even
//! taken apart; of the others, every inode is compared by its digest.

use super::digests::{Digest, DigestKey, DigestReader, Digests, PieceSeen, RECORD_BYTES};
use super::ordered::in_order;
use super::tables::{Parsed, buffer, read_bytes, read_piece};
use crate::image::{Image, TablePiece};
use bale_format::entry::Time;
use bale_sys::buffer::AlignedBuffer;
use std::io;

/// A piece that was read again.
enum Again {
    Same(PieceSeen),
    Other(Box<Parsed>),
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
            // New: its directory has changed, too. A directory that the kernel did not tell of before was not listed.
            _ if self.wants_new => self.changed.push(new.number),
            _ => {}
        }
        Ok(())
    }

    fn take(&mut self, again: Again, t0: Time) -> io::Result<()> {
        match again {
            Again::Same(piece) => {
                self.pass_to(Some(piece.first_inode()))?;
                self.reader.skip(&piece);
            }
            Again::Other(parsed) => {
                for record in parsed.digests.chunks_exact(RECORD_BYTES) {
                    self.look(Digest::of(record.try_into().expect("exact chunks")))?;
                }
                let young = parsed.directories.iter();
                let young = young.filter(|(_, settles)| *settles > t0);
                self.changed.extend(young.map(|(number, _)| *number));
            }
        }
        Ok(())
    }
}

/// Reads the tables again; the numbers of inodes that are not what they were, in order, and of directories that were changed
/// since `t0`. `None`: more than `changed_max`.
pub(super) fn changed_inodes(
    image: &Image,
    before: &Digests,
    key: &DigestKey,
    t0: Time,
    changed_max: usize,
) -> io::Result<Option<Vec<u64>>> {
    let mut comparison = Comparison {
        reader: before.read(),
        wants_new: image.told().is_some(),
        changed: Vec::new(),
    };
    let compared = in_order(
        image.tables(),
        buffer,
        |buffer, piece| read_again(image, before, key, t0, piece, buffer),
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

fn read_again(
    image: &Image,
    before: &Digests,
    key: &DigestKey,
    t0: Time,
    piece: Result<TablePiece, String>,
    buffer: &mut AlignedBuffer,
) -> Again {
    if let Ok(piece) = &piece
        && let Some(seen) = before.piece(piece)
        && seen.is_settled(t0)
        && let Ok(range) = read_bytes(image, piece, buffer)
        && piece.digest(&buffer[range]) == seen.raw
    {
        return Again::Same(*seen);
    }
    Again::Other(Box::new(read_piece(
        image,
        key,
        piece,
        &[],
        buffer,
        Vec::new(),
    )))
}
