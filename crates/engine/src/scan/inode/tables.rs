//! Inode tables: read in the order of the device, in large pieces; inodes go to a file in the order of their numbers.

use super::gather::Faults;
use super::ordered::in_order;
use super::{SORT_BYTES, SORT_PLACES_BYTES};
use crate::image::{
    FoundInode, Image, NamesPiece, TABLE_PIECE_BYTES, TablePiece, TableSink, pack_inode,
};
use crate::spill::{Sorter, unnamed_file};
use bale_fsimage::Timestamp;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Buffer for writing and reading the file of inodes.
const FILE_BUFFER_BYTES: usize = 1 << 20;
/// Before a packed inode: number (8), links (4), is it a directory (1), length (4).
pub(super) const HEAD_BYTES: usize = 17;
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

/// Inodes in the order of their numbers, in an unnamed file.
pub(super) struct InodeFile {
    file: File,
}

/// One inode of the file.
pub(super) struct StoredInode {
    pub(super) number: u64,
    pub(super) nlink: u32,
    pub(super) is_directory: bool,
    pub(super) packed: Vec<u8>,
}

impl InodeFile {
    /// From the first on.
    pub(super) fn read(&self) -> io::Result<InodeReader> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(InodeReader {
            file: BufReader::with_capacity(FILE_BUFFER_BYTES, file),
        })
    }
}

/// Reads the file of inodes.
pub(super) struct InodeReader {
    file: BufReader<File>,
}

impl InodeReader {
    /// The next inode, into the same place as the one before; false at the end.
    pub(super) fn next_into(&mut self, inode: &mut StoredInode) -> io::Result<bool> {
        let mut head = [0; HEAD_BYTES];
        match self.file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            result => result?,
        }
        inode.number = u64::from_le_bytes(head[..8].try_into().expect("8 of 17 bytes"));
        inode.nlink = u32::from_le_bytes(head[8..12].try_into().expect("4 of 17 bytes"));
        inode.is_directory = head[12] != 0;
        let len = u32::from_le_bytes(head[13..17].try_into().expect("4 of 17 bytes"));
        inode.packed.resize(len as usize, 0);
        self.file.read_exact(&mut inode.packed)?;
        Ok(true)
    }
}

impl StoredInode {
    pub(super) fn empty() -> StoredInode {
        StoredInode {
            number: 0,
            nlink: 0,
            is_directory: false,
            packed: Vec::new(),
        }
    }
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
        let at = self.inodes.len();
        self.inodes.extend_from_slice(&found.number.to_le_bytes());
        self.inodes.extend_from_slice(&found.nlink.to_le_bytes());
        self.inodes
            .extend_from_slice(&[u8::from(found.is_directory), 0, 0, 0, 0]);
        pack_inode(raw, &mut self.inodes);
        let len = (self.inodes.len() - at - HEAD_BYTES) as u32;
        self.inodes[at + 13..at + 17].copy_from_slice(&len.to_le_bytes());
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
    let mut file = BufWriter::with_capacity(FILE_BUFFER_BYTES, unnamed_file(spill)?);
    let mut names = Sorter::new(spill, SORT_BYTES);
    let mut places = Sorter::new(spill, SORT_PLACES_BYTES);
    let (mut done, expected) = (0, image.inodes_expected());
    let mut digest = blake3::Hasher::new();
    digest.update(&image.uuid());
    let mut newest = Timestamp::default();
    in_order(
        image.tables(),
        buffer,
        |buffer, piece| read_piece(image, piece, buffer),
        |parsed| -> io::Result<()> {
            file.write_all(&parsed.inodes)?;
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
    )?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(Tables {
        inodes: InodeFile { file },
        names,
        places,
        digest: *digest.finalize().as_bytes(),
        newest,
    })
}
