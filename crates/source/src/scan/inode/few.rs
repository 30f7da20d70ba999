//! What changed since the last backup, where that is little: the inodes that are other than they
//! were, those that are no more, and the names of the directories among them.
//!
//! No other directory need be read, and not all names be sorted: the rows that the last backup made
//! say where everything else is. Whoever holds those rows compares them with the names of
//! directories that are in doubt, or proves these by a sum where they are many.

use super::SORT_PLACES_BYTES;
use super::digest_file::ParentDigests;
use super::digests::DigestKey;
use super::directory_blocks::{self, encode_piece, place_key, read_names};
use super::faults::Faults;
use super::few_names::DoubtedNames;
use crate::image::{FoundInode, Image, NamesPiece};
use bale_fsimage::FileKind;
use bale_pipeline::spill::{Sorter, Spill};
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of inodes that changed, and of places of names in doubt: more is much. As many again are
/// held of names.
pub(crate) const FEW_BYTES_MAX: usize = 8 << 20;
/// Held beside the bytes of an inode, and for a piece of a directory.
const ITEM_BYTES: usize = 64;
const PIECE_BYTES: usize = 128;
const NUMBER_BYTES: usize = size_of::<u64>();

/// An inode that changed.
pub(super) struct FewInode {
    pub(super) number: u64,
    pub(super) nlink: u32,
    pub(super) is_directory: bool,
    pub(super) packed: Bytes,
}

/// The same in a piece of the tables.
struct NotedInode {
    number: u64,
    nlink: u32,
    is_directory: bool,
    /// Place of the packed inode among those of the piece.
    packed: Range<usize>,
}

/// What one piece of the tables has that is other than it was.
#[derive(Default)]
pub(super) struct Noted {
    inodes: Vec<NotedInode>,
    /// Numbers of inodes that are no more.
    gone: Vec<u64>,
    /// Where the names of directories in doubt are.
    pieces: Vec<NamesPiece>,
    /// Those that are in inodes, as [`directory_blocks::add`] makes them.
    names: Vec<u8>,
    /// The directory in doubt whose names come now.
    doubted: Option<u64>,
    /// It is not known what changed.
    is_much: bool,
}

impl Noted {
    /// An inode that is not what it was; `packed`: its place among the packed ones of the piece.
    pub(super) fn inode(&mut self, found: &FoundInode, packed: Range<usize>) {
        let is_directory = found.kind == FileKind::Directory;
        self.doubted = is_directory.then_some(found.number);
        self.inodes.push(NotedInode {
            number: found.number,
            nlink: found.nlink,
            is_directory,
            packed,
        });
    }

    /// The last backup knew these inodes; they are no more.
    pub(super) fn gone(&mut self, numbers: impl Iterator<Item = u64>) {
        self.gone.extend(numbers);
    }

    /// The next inode is what it was.
    pub(super) fn unchanged(&mut self) {
        self.doubted = None;
    }

    pub(super) fn names(&mut self, piece: &NamesPiece) {
        if self.doubted == Some(piece.directory) {
            self.pieces.push(piece.clone());
        }
    }

    /// A name that is in an inode.
    pub(super) fn name(&mut self, directory: u64, inode: u64, name: &[u8]) {
        if self.doubted == Some(directory) {
            directory_blocks::add(&mut self.names, directory, inode, name);
        }
    }

    pub(super) fn much(&mut self) {
        *self = Noted {
            is_much: true,
            ..Noted::default()
        };
    }

    fn bytes(&self) -> usize {
        let inodes = self.inodes.iter();
        let inodes: usize = inodes.map(|inode| inode.packed.len() + ITEM_BYTES).sum();
        let (gone, pieces) = (
            self.gone.len() * NUMBER_BYTES,
            self.pieces.len() * PIECE_BYTES,
        );
        inodes + gone + pieces + self.names.len()
    }
}

/// Gathers what pieces noted, in order, as long as it is little.
pub(super) struct Few {
    inodes: Vec<FewInode>,
    gone: Vec<u64>,
    pieces: Vec<NamesPiece>,
    names: Vec<u8>,
    is_much: bool,
    bytes: usize,
    bytes_max: usize,
}

impl Few {
    /// `None`: nobody asks for it.
    pub(super) fn asked_for(known: Option<&ParentDigests>, spill: Spill<'_>) -> Option<Few> {
        let is_asked_for = known.is_some_and(ParentDigests::are_changes_noted);
        is_asked_for.then(|| Few {
            inodes: Vec::new(),
            gone: Vec::new(),
            pieces: Vec::new(),
            names: Vec::new(),
            is_much: false,
            bytes: 0,
            bytes_max: spill.memory.inode_share(FEW_BYTES_MAX),
        })
    }

    /// What the next piece noted goes there, if it is asked for.
    pub(super) fn take(few: &mut Option<Few>, noted: &mut Noted, packed: &[u8]) {
        if let Some(few) = few {
            few.add(std::mem::take(noted), packed);
        }
    }

    /// What the next piece noted, whose packed inodes these are.
    fn add(&mut self, noted: Noted, packed: &[u8]) {
        self.bytes += noted.bytes();
        self.is_much |= noted.is_much || self.bytes > self.bytes_max;
        if self.is_much {
            (self.inodes, self.pieces) = (Vec::new(), Vec::new());
            (self.gone, self.names) = (Vec::new(), Vec::new());
            return;
        }
        let inodes = noted.inodes.into_iter().map(|inode| FewInode {
            number: inode.number,
            nlink: inode.nlink,
            is_directory: inode.is_directory,
            packed: Bytes::copy_from_slice(&packed[inode.packed]),
        });
        self.inodes.extend(inodes);
        self.gone.extend(noted.gone);
        self.pieces.extend(noted.pieces);
        self.names.extend(noted.names);
    }

    /// Reads the names of directories that are in doubt. `None`: it is much, or something is wrong.
    pub(super) fn finish(
        self,
        image: &Arc<Image>,
        key: DigestKey,
        spill: Spill<'_>,
    ) -> io::Result<Option<Doubted>> {
        let ascend = self
            .inodes
            .is_sorted_by(|one, next| one.number < next.number)
            && self.gone.is_sorted_by(|one, next| one < next);
        if self.is_much || !ascend {
            return Ok(None);
        }
        let sorter = || Sorter::new(spill.directory, spill.memory.inode_share(SORT_PLACES_BYTES));
        let (mut in_inodes, mut places) = (sorter(), sorter());
        directory_blocks::push_names(image, &mut in_inodes, &self.names)?;
        for piece in self.pieces {
            let pushed = places.push(&place_key(&piece), &encode_piece(&piece));
            pushed.map_err(io::Error::other)?;
        }
        let mut faults = Faults::default();
        let mut read = read_names(image, in_inodes, places, &mut faults)?;
        let directories = self.inodes.iter().filter(|inode| inode.is_directory);
        let directories = directories.map(|directory| directory.number);
        let mut names = DoubtedNames::of(key, directories, self.bytes_max);
        while let Some((inode, value)) = read.next_record().map_err(io::Error::other)? {
            let mut number = [0; 8];
            number[8 - inode.len()..].copy_from_slice(inode);
            let Some((directory, name)) = value.split_first_chunk::<8>() else {
                return Err(io::Error::other("a temporary file is damaged"));
            };
            names.add(
                u64::from_le_bytes(*directory),
                name,
                u64::from_be_bytes(number),
            );
        }
        Ok(faults.is_empty().then_some(Doubted {
            inodes: self.inodes,
            gone: self.gone,
            names: names.sorted(),
        }))
    }
}

/// Inodes that changed, those that are no more, and the names of the directories among the first.
pub(super) struct Doubted {
    /// In the order of their numbers.
    pub(super) inodes: Vec<FewInode>,
    /// The same.
    pub(super) gone: Vec<u64>,
    pub(super) names: DoubtedNames,
}
