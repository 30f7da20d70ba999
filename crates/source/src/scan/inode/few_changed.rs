//! The inodes that changed where they are few ([`super::few`]): what rows of theirs are now, which
//! are no more, and what the names of directories in doubt are.

use super::digests::Digests;
use super::emit::Maker;
use super::few::Doubted;
use super::few_names::{NamedInode, NamesSum};
use super::gather::GatheredFew;
use super::tree::{Child, Marks};
use crate::image::{EntryPlace, Image, ImageInode};
use crate::scan::ScanProblem;
use bale_format::entry::Entry;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// The inodes of a file system that nothing writes to that are not what they were for the last
/// backup, and those that are no more.
pub struct FewChanged {
    image: Arc<Image>,
    doubted: Doubted,
    digests: Arc<Digests>,
}

impl FewChanged {
    /// Of what was gathered.
    pub(crate) fn of(gathered: GatheredFew) -> FewChanged {
        FewChanged {
            image: gathered.image,
            doubted: gathered.doubted,
            digests: Arc::new(gathered.digests),
        }
    }

    /// What the inode tables said, for the next scan.
    pub fn digests(&self) -> &Arc<Digests> {
        &self.digests
    }

    /// How many inodes changed, directories that are in doubt among them.
    pub fn count(&self) -> usize {
        self.doubted.inodes.len()
    }

    /// Position of an inode among those that changed.
    pub fn position(&self, inode: u64) -> Option<usize> {
        let inodes = &self.doubted.inodes;
        let found = inodes.binary_search_by_key(&inode, |one| one.number);
        found.ok()
    }

    /// Did the last backup know this inode, and is it no more?
    pub fn is_gone(&self, inode: u64) -> bool {
        self.doubted.gone.binary_search(&inode).is_ok()
    }

    /// Is the inode at this position a directory?
    pub fn is_directory(&self, position: usize) -> bool {
        self.doubted.inodes[position].is_directory
    }

    /// Has the inode at this position to have so many names?
    pub fn is_named(&self, position: usize, names: u32) -> bool {
        let inode = &self.doubted.inodes[position];
        match inode.is_directory {
            true => names == 1,
            false => names == inode.nlink,
        }
    }

    /// Inode number of the top.
    pub fn root(&self) -> u64 {
        self.image.facts().root
    }

    /// Adds a name that a directory had to the sum over its names.
    pub fn add_name(&self, sum: &mut NamesSum, inode: u64, name: &[u8]) {
        sum.add(self.doubted.names.key(), inode, name);
    }

    /// Does the directory have the names still that this sum is of?
    pub fn has_names(&self, directory: u64, sum: NamesSum) -> bool {
        self.doubted.names.sum(directory) == Some(sum)
    }

    /// The names that a directory in doubt has, sorted as rows are. `None`: they are too many to be
    /// held, or it is in no doubt.
    pub fn names(&self, directory: u64) -> Option<&[NamedInode]> {
        self.doubted.names.held(directory)
    }

    /// The row of an inode at this position, by this name. Its file system's number is not set.
    pub fn entry(
        &self,
        position: usize,
        path: &Bytes,
        name: &Bytes,
    ) -> Result<(Entry, EntryPlace), ScanProblem> {
        let inode = &self.doubted.inodes[position];
        let mut maker = Maker {
            image: self.image.clone(),
            barrier: None,
            raw: Vec::new(),
        };
        let mut child = Child {
            inode: inode.number,
            marks: Marks::default(),
            name: name.clone(),
            packed: inode.packed.clone(),
        };
        let made = (maker.inode_of(&mut child))
            .and_then(|inode| maker.entry_of(path, name.clone(), &inode));
        let place = EntryPlace::Image(ImageInode {
            image: self.image.clone(),
            number: inode.number,
            packed: inode.packed.clone(),
        });
        match made {
            Ok(entry) => Ok((entry, place)),
            Err(why) => Err(ScanProblem {
                path: bale_format::entry::join(path, name),
                action: "stat",
                error: io::Error::other(why),
            }),
        }
    }
}
