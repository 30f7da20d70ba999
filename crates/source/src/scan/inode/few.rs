//! What changed since the last backup, where that is little: the inodes that are other than they
//! were, if all names are what they were.
//!
//! Names are what they were if the tables have just the inodes that they had, and each directory is
//! as it was, or has the same names still. Then no other directory need be read, and nothing need
//! be sorted: the rows that the last backup made say where everything is. Whoever holds those rows
//! proves the names of directories that are in doubt by a sum over them ([`NamesSum`]).

use super::SORT_PLACES_BYTES;
use super::digest_file::ParentDigests;
use super::digests::{DigestKey, sip_hash_2_4};
use super::directory_blocks::{encode_piece, place_key, read_names};
use super::faults::Faults;
use crate::image::{FoundInode, Image, NamesPiece};
use bale_fsimage::FileKind;
use bale_pipeline::spill::{Sorter, Spill};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of inodes that changed, and of places of names in doubt: more is much.
pub(crate) const FEW_BYTES_MAX: usize = 8 << 20;
/// Held beside the bytes of an inode, and for a piece of a directory.
const ITEM_BYTES: usize = 64;
const PIECE_BYTES: usize = 128;

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
    /// Where the names of directories in doubt are.
    pieces: Vec<NamesPiece>,
    /// The directory in doubt whose names come now.
    doubted: Option<u64>,
    /// Numbers of inodes came or went, or names are where no sum is taken of them.
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
    pub(super) fn name(&mut self, directory: u64) {
        self.is_much |= self.doubted == Some(directory);
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
        inodes + self.pieces.len() * PIECE_BYTES
    }
}

/// Gathers what pieces noted, in order, as long as it is little.
pub(super) struct Few {
    inodes: Vec<FewInode>,
    pieces: Vec<NamesPiece>,
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
            pieces: Vec::new(),
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
            return;
        }
        let inodes = noted.inodes.into_iter().map(|inode| FewInode {
            number: inode.number,
            nlink: inode.nlink,
            is_directory: inode.is_directory,
            packed: Bytes::copy_from_slice(&packed[inode.packed]),
        });
        self.inodes.extend(inodes);
        self.pieces.extend(noted.pieces);
    }

    /// Reads the names of directories that are in doubt. `None`: it is much, or something is wrong.
    pub(super) fn finish(
        self,
        image: &Arc<Image>,
        key: DigestKey,
        spill: Spill<'_>,
    ) -> io::Result<Option<Doubted>> {
        let Few {
            inodes,
            pieces,
            is_much,
            ..
        } = self;
        let ascend = inodes.is_sorted_by(|one, next| one.number < next.number);
        if is_much || !ascend {
            return Ok(None);
        }
        let directories = inodes.iter().filter(|inode| inode.is_directory);
        let mut sums: HashMap<u64, NamesSum> = directories
            .map(|directory| (directory.number, NamesSum::default()))
            .collect();
        let sorter = || Sorter::new(spill.directory, spill.memory.inode_share(SORT_PLACES_BYTES));
        let mut places = sorter();
        for piece in pieces {
            let pushed = places.push(&place_key(&piece), &encode_piece(&piece));
            pushed.map_err(io::Error::other)?;
        }
        let mut faults = Faults::default();
        let mut names = read_names(image, sorter(), places, &mut faults)?;
        while let Some((inode, value)) = names.next_record().map_err(io::Error::other)? {
            let mut number = [0; 8];
            number[8 - inode.len()..].copy_from_slice(inode);
            let Some((directory, name)) = value.split_first_chunk::<8>() else {
                return Err(io::Error::other("a temporary file is damaged"));
            };
            let sum = sums.get_mut(&u64::from_le_bytes(*directory));
            if let Some(sum) = sum {
                sum.add(&key, u64::from_be_bytes(number), name);
            }
        }
        Ok(faults.is_empty().then_some(Doubted { inodes, sums, key }))
    }
}

/// Inodes that changed, and sums of the names of the directories among them.
pub(super) struct Doubted {
    /// In the order of their numbers.
    pub(super) inodes: Vec<FewInode>,
    /// By directory.
    pub(super) sums: HashMap<u64, NamesSum>,
    pub(super) key: DigestKey,
}

/// Over the names of a directory and the inodes that they lead to, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesSum {
    names: u64,
    sum: u64,
}

impl NamesSum {
    pub(super) fn add(&mut self, key: &DigestKey, inode: u64, name: &[u8]) {
        self.names += 1;
        let hash = sip_hash_2_4(key, [&inode.to_le_bytes(), name]);
        self.sum = self.sum.wrapping_add(hash);
    }
}
