//! Inode tables: read in the order of the device, in large pieces; inodes go to a file in the order of their numbers.

use super::append::Appender;
use super::gather::Faults;
use super::ordered::in_order;
use super::stored::{self, InodeFile};
use super::{SORT_NAMES_BYTES, SORT_PLACES_BYTES};
use crate::image::{FoundInode, Image, NamesPiece, TABLE_PIECE_BYTES, TablePiece, TableSink};
use crate::spill::Sorter;
use bale_fsimage::Timestamp;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::io;
use std::path::Path;

/// Attempts at an inode that is damaged on a device in use: it may have been caught in the middle of a change.
const READS_MAX: usize = 3;

/// What the inode tables gave.
pub(super) struct Tables {
    pub(super) inodes: InodeFile,
    /// Names of small directories, by inode.
    pub(super) names: Sorter,
    /// Places of directory blocks, by place.
    pub(super) places: Sorter,
    /// Of all inodes as if nobody had read anything: equal digests mean that nothing was changed.
    pub(super) digest: [u8; 32],
    /// The latest change of any inode.
    pub(super) newest: Timestamp,
}

/// What one piece became.
#[derive(Default)]
pub(super) struct Parsed {
    /// Records of the inode file.
    pub(super) inodes: Vec<u8>,
    inodes_count: u64,
    pieces: Vec<NamesPiece>,
    /// Directory, inode, name.
    names: Vec<(u64, u64, Vec<u8>)>,
    damaged: Vec<(u64, String)>,
    incomplete: Vec<(u64, String)>,
    general: Option<String>,
    newest: Timestamp,
    /// All inodes, one behind the other.
    plain: Vec<u8>,
    /// Length of one of these, with its number.
    record_bytes: usize,
    digest: [u8; 32],
}

impl TableSink for Parsed {
    fn inode(&mut self, found: FoundInode, raw: &[u8]) {
        stored::append(&found, raw, &mut self.inodes);
        self.inodes_count += 1;
        self.newest = self.newest.max(found.newest);
        self.plain.extend_from_slice(&found.number.to_le_bytes());
        self.plain.extend_from_slice(raw);
        self.record_bytes = 8 + raw.len();
    }

    fn names(&mut self, piece: NamesPiece) {
        self.pieces.push(piece);
    }

    fn name(&mut self, directory: u64, name: &[u8], inode: u64) {
        self.names.push((directory, inode, name.to_vec()));
    }

    fn damaged(&mut self, number: u64, why: String) {
        self.damaged.push((number, why));
    }

    fn incomplete(&mut self, directory: u64, why: String) {
        self.incomplete.push((directory, why));
    }
}

pub(super) fn buffer() -> AlignedBuffer {
    AlignedBuffer::new(TABLE_PIECE_BYTES + 2 * ALIGNMENT)
}

/// Reads a piece and takes it apart; again, if something in it looks damaged and somebody may be writing.
pub(super) fn read_piece(
    image: &Image,
    piece: Result<TablePiece, String>,
    buffer: &mut AlignedBuffer,
) -> Parsed {
    let mut parsed = Parsed::default();
    let piece = match piece {
        Ok(piece) => piece,
        Err(why) => {
            parsed.general = Some(why);
            return parsed;
        }
    };
    for _ in 0..READS_MAX {
        parsed = Parsed::default();
        match image.read_metadata(piece.span, buffer) {
            Ok(range) => image.parse_table(&piece, &buffer[range], &mut parsed),
            Err(error) => {
                parsed.general = Some(format!(
                    "read inodes from number {} on: {error}",
                    piece.first_inode
                ));
            }
        }
        let sound = parsed.damaged.is_empty() && parsed.general.is_none();
        if sound && parsed.incomplete.is_empty() {
            break;
        }
    }
    for record in parsed.plain.chunks_exact_mut(parsed.record_bytes.max(1)) {
        image.forget_atime(&mut record[8..]);
    }
    parsed.digest = *blake3::hash(&parsed.plain).as_bytes();
    parsed.plain = Vec::new();
    parsed
}

/// Reads all inode tables.
pub(super) fn read_tables(
    image: &Image,
    spill: &Path,
    faults: &mut Faults,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<Tables> {
    let file = Appender::create(spill)?;
    let mut names = Sorter::new(spill, SORT_NAMES_BYTES);
    let mut places = Sorter::new(spill, SORT_PLACES_BYTES);
    let (mut done, expected) = (0, image.inodes_expected());
    let mut digest = blake3::Hasher::new();
    digest.update(&image.uuid());
    let mut newest = Timestamp::default();
    let read = in_order(
        image.tables(),
        buffer,
        |buffer, piece| read_piece(image, piece, buffer),
        |parsed| -> io::Result<()> {
            if !file.append(parsed.inodes) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            digest.update(&parsed.digest);
            newest = newest.max(parsed.newest);
            done += parsed.inodes_count;
            for piece in &parsed.pieces {
                let key = super::names::place_key(piece);
                let value = super::names::encode_piece(piece);
                places.push(&key, &value).map_err(io::Error::other)?;
            }
            for (directory, inode, name) in &parsed.names {
                super::names::push_name(image, &mut names, *directory, name, *inode)?;
            }
            for (number, why) in parsed.damaged {
                faults.inode(number, why);
            }
            for (number, why) in parsed.incomplete {
                faults.directory(number, why);
            }
            parsed
                .general
                .into_iter()
                .for_each(|why| faults.general(why));
            match progress(done, expected) {
                true => Ok(()),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        },
    );
    // Why writing failed says more than that it did.
    let inodes = InodeFile::new(file.finish()?);
    read?;
    Ok(Tables {
        inodes,
        names,
        places,
        digest: *digest.finalize().as_bytes(),
        newest,
    })
}
