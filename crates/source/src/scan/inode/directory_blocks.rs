//! Directory blocks: read in the order of the device, neighbours together; names are sorted by the
//! inode they lead to.

use super::GAP_BYTES_MAX;
use super::directory_lister::NamesLister;
use super::faults::Faults;
use crate::image::{Image, NAMES_PIECE_BYTES, NamesPiece, Span, decode_piece};
use bale_pipeline::ordered::in_order;
use bale_pipeline::spill::{Sorted, Sorter};
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::io;

pub(super) use crate::image::encode_piece;

/// Attempts at a directory block that looks damaged.
const READS_MAX: usize = 3;

/// Sorts by place on the device.
pub(super) fn place_key(piece: &NamesPiece) -> [u8; 8] {
    piece
        .spans
        .first()
        .map_or(0, |span| span.offset)
        .to_be_bytes()
}

/// Key: the inode. Value: the directory, the name.
fn push_name(
    image: &Image,
    names: &mut Sorter,
    directory: u64,
    name: &[u8],
    inode: u64,
) -> io::Result<()> {
    let at = 8 - image.facts().number_bytes;
    let mut value = [0; 8 + NAME_BYTES_MAX];
    value[..8].copy_from_slice(&directory.to_le_bytes());
    let name_at = value.get_mut(8..8 + name.len());
    name_at
        .ok_or(io::ErrorKind::InvalidData)?
        .copy_from_slice(name);
    names
        .push(&inode.to_be_bytes()[at..], &value[..8 + name.len()])
        .map_err(io::Error::other)
}

/// The same for names one behind the other, as [`add`] makes them.
pub(super) fn push_names(image: &Image, names: &mut Sorter, mut added: &[u8]) -> io::Result<()> {
    while let Some((head, behind)) = added.split_first_chunk::<17>() {
        let (name, behind) = behind.split_at(usize::from(head[16]));
        added = behind;
        let number =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 of 17 bytes"));
        push_name(image, names, number(0), name, number(8))?;
    }
    Ok(())
}

/// Longest name of either file system.
const NAME_BYTES_MAX: usize = 255;

/// Pieces that are read at once.
struct BlockGroup {
    span: Span,
    pieces: Vec<NamesPiece>,
}

/// Puts neighbours together.
struct NeighbourGroups {
    places: Sorted,
    waiting: Option<NamesPiece>,
    failed: bool,
}

impl NeighbourGroups {
    fn next_piece(&mut self) -> Option<io::Result<NamesPiece>> {
        if let Some(piece) = self.waiting.take() {
            return Some(Ok(piece));
        }
        match self.places.next_record() {
            Ok(None) => None,
            Ok(Some((_, value))) => Some(
                decode_piece(value).ok_or_else(|| io::Error::other("a temporary file is damaged")),
            ),
            Err(error) => Some(Err(io::Error::other(error))),
        }
    }
}

impl Iterator for NeighbourGroups {
    type Item = io::Result<BlockGroup>;

    fn next(&mut self) -> Option<io::Result<BlockGroup>> {
        if self.failed {
            return None;
        }
        let first = match self.next_piece()? {
            Ok(first) => first,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        let mut span = first.spans[0];
        let is_torn = first.spans.len() > 1;
        let mut pieces = vec![first];
        loop {
            if is_torn {
                break;
            }
            match self.next_piece() {
                Some(Ok(next)) => {
                    let at = next.spans[0];
                    let near = at.offset >= span.offset && at.offset <= span.end() + GAP_BYTES_MAX;
                    let end = span.end().max(at.end());
                    let fits = end - span.offset <= u64::from(NAMES_PIECE_BYTES);
                    if !near || !fits || next.spans.len() > 1 {
                        self.waiting = Some(next);
                        break;
                    }
                    span.len = (end - span.offset) as u32;
                    pieces.push(next);
                }
                Some(Err(error)) => {
                    self.failed = true;
                    return Some(Err(error));
                }
                None => break,
            }
        }
        Some(Ok(BlockGroup { span, pieces }))
    }
}

/// What a group became: names with directory and inode, one behind the other.
#[derive(Default)]
struct ParsedNames {
    /// Directory (8), inode (8), length (1), name.
    names: Vec<u8>,
    incomplete: Vec<(u64, String)>,
}

/// Reads all directory blocks; gives all names by inode.
pub(super) fn read_names(
    image: &Image,
    mut names: Sorter,
    places: Sorter,
    faults: &mut Faults,
) -> io::Result<Sorted> {
    if let Some(bulkstat) = image.names().bulkstat() {
        return NamesLister::new(image, bulkstat, names)?.finish(places, faults);
    }
    let groups = NeighbourGroups {
        places: places.finish().map_err(io::Error::other)?,
        waiting: None,
        failed: false,
    };
    in_order(
        groups,
        || AlignedBuffer::new(NAMES_PIECE_BYTES as usize + 2 * ALIGNMENT),
        |buffer, group| group.map(|group| read_group(image, &group, buffer)),
        |parsed| -> io::Result<()> {
            let parsed = parsed?;
            push_names(image, &mut names, &parsed.names)?;
            for (directory, why) in parsed.incomplete {
                faults.directory(directory, why);
            }
            Ok(())
        },
    )?;
    names.finish().map_err(io::Error::other)
}

fn read_group(image: &Image, group: &BlockGroup, buffer: &mut AlignedBuffer) -> ParsedNames {
    // Growing step by step copies it.
    let mut parsed = ParsedNames {
        names: Vec::with_capacity(group.span.len as usize + group.span.len as usize / 2),
        ..ParsedNames::default()
    };
    if let [piece] = &group.pieces[..]
        && piece.spans.len() > 1
    {
        read_torn(image, piece, buffer, &mut parsed);
        return parsed;
    }
    let range = match image.read_metadata(group.span, buffer) {
        Ok(range) => range,
        Err(_) => {
            // One bad block must not take its neighbours along.
            for piece in &group.pieces {
                read_alone(image, piece, buffer, &mut parsed);
            }
            return parsed;
        }
    };
    let mut again = Vec::new();
    for piece in &group.pieces {
        let start = range.start + (piece.spans[0].offset - group.span.offset) as usize;
        let bytes = &buffer[start..start + piece.spans[0].len as usize];
        if !parse(image, piece, bytes, &mut parsed).is_empty() {
            again.push(piece);
        }
    }
    for piece in again {
        read_alone(image, piece, buffer, &mut parsed);
    }
    parsed
}

/// Adds the names if nothing is wrong; tells what is.
fn parse(image: &Image, piece: &NamesPiece, bytes: &[u8], parsed: &mut ParsedNames) -> Vec<String> {
    let before = parsed.names.len();
    let problems = image.names().parse(piece, bytes, &mut |name, inode| {
        add(&mut parsed.names, piece.directory, inode, name);
    });
    if !problems.is_empty() {
        parsed.names.truncate(before);
    }
    problems
}

/// Appends directory (8), inode (8), length (1), name.
pub(super) fn add(names: &mut Vec<u8>, directory: u64, inode: u64, name: &[u8]) {
    names.extend_from_slice(&directory.to_le_bytes());
    names.extend_from_slice(&inode.to_le_bytes());
    names.push(name.len() as u8);
    names.extend_from_slice(name);
}

/// Reads one piece again, block by block if need be; keeps what is good and tells the rest.
fn read_alone(
    image: &Image,
    piece: &NamesPiece,
    buffer: &mut AlignedBuffer,
    parsed: &mut ParsedNames,
) {
    let mut why = Vec::new();
    for _ in 0..READS_MAX {
        why = match image.read_metadata(piece.spans[0], buffer) {
            Ok(range) => parse(image, piece, &buffer[range], parsed),
            Err(error) => vec![error.to_string()],
        };
        if why.is_empty() {
            return;
        }
    }
    // Names of the good blocks count all the same.
    if let Ok(range) = image.read_metadata(piece.spans[0], buffer) {
        image
            .names()
            .parse(piece, &buffer[range], &mut |name, inode| {
                add(&mut parsed.names, piece.directory, inode, name);
            });
    }
    let incomplete = why.into_iter().map(|why| (piece.directory, why));
    parsed.incomplete.extend(incomplete);
}

/// A directory block in several parts.
fn read_torn(
    image: &Image,
    piece: &NamesPiece,
    buffer: &mut AlignedBuffer,
    parsed: &mut ParsedNames,
) {
    let mut why = Vec::new();
    for _ in 0..READS_MAX {
        let mut bytes = Vec::new();
        let read = piece.spans.iter().try_for_each(|span| {
            let range = image.read_metadata(*span, buffer)?;
            bytes.extend_from_slice(&buffer[range]);
            io::Result::Ok(())
        });
        why = match read {
            Ok(()) => parse(image, piece, &bytes, parsed),
            Err(error) => vec![error.to_string()],
        };
        if why.is_empty() {
            return;
        }
    }
    let incomplete = why.into_iter().map(|why| (piece.directory, why));
    parsed.incomplete.extend(incomplete);
}
