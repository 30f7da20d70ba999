//! The first half of an inode scan: everything is read and put in order; then it is known what
//! there is.

use super::digest_file::ParentDigests;
use super::digests::{DigestKey, Digests, key_of_filesystem};
use super::directory_blocks::read_names;
use super::directory_lister::NamesLister;
use super::faults::Faults;
use super::few::Doubted;
use super::join::join;
use super::tables::read_tables;
use super::tree::Tree;
use crate::image::Image;
use crate::scan::Atime;
use bale_format::entry::Time;
use bale_format::snapshot::Totals;
use bale_pipeline::spill::Spill;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Everything that a file system holds, in the order of directories.
pub struct Gathered {
    pub(super) image: Arc<Image>,
    pub(super) tree: Tree,
    /// What the tables said: to be compared with what they say after another barrier.
    digests: Arc<Digests>,
    key: DigestKey,
    /// What is wrong with inodes that no file could be made of, and with directories that lack
    /// names.
    pub(super) faults: Faults,
    totals: InodeTotals,
    state: TablesState,
}

/// What the inode tables say as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablesState {
    /// Of all inodes but what reading files changes in them, and of where in the file system the
    /// tree begins: equal digests mean that nothing was changed in between.
    pub digest: [u8; 32],
    /// From then on no change leaves the ctime that any inode has ([`Time::end_of_stamp`]).
    pub not_racy_from: Time,
    /// False if a part of the tables could not be read: the digest then proves nothing.
    pub is_complete: bool,
}

/// What came of reading the inode tables.
pub enum Gather {
    /// The tables are identical to the parent's: nothing else was read.
    Unchanged(TablesState),
    /// Little is other than it was for the parent, which was asked for: nothing else was read.
    Few(Box<GatheredFew>),
    /// More is other than was asked for, and not all was read that says it.
    Much,
    /// Everything was read.
    Whole(Box<Gathered>),
}

/// The inodes that changed, and what the tables said.
pub struct GatheredFew {
    pub(super) image: Arc<Image>,
    pub(super) doubted: Doubted,
    pub(super) digests: Digests,
    pub(crate) state: TablesState,
}

/// What an inode scan found, before a byte of content is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeTotals {
    /// Regular files, every inode once.
    pub files: u64,
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Everything else.
    pub others: u64,
    /// Names, of which those beyond the first of an inode.
    pub names: u64,
    /// Names of regular files.
    pub file_names: u64,
    /// Inodes with more than one name.
    pub hard_linked: u64,
    /// Bytes of regular files, every inode once.
    pub bytes: u64,
    /// Bytes of regular files, every name counted.
    pub bytes_named: u64,
    /// Inodes that have links but no name.
    pub nameless: u64,
}

impl InodeTotals {
    pub fn inodes(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.others
    }

    /// As a snapshot counts.
    pub fn expected(&self) -> Totals {
        Totals {
            files: self.file_names,
            dirs: self.directories,
            bytes: self.bytes_named,
            ..Totals::default()
        }
    }
}

impl Gathered {
    /// Reads inode tables and directories; `inside` says where the sources are in the file system.
    /// Temporary files go to `spill`; `progress` is told inodes done and expected; where
    /// `tables_unchanged` may say that enough is known, it is asked before names are read.
    pub fn gather(
        image: Arc<Image>,
        key: &DigestKey,
        parent_digests: Option<ParentDigests>,
        inside: &Path,
        spill: Spill<'_>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
        tables_unchanged: Option<&dyn Fn(&TablesState) -> bool>,
    ) -> io::Result<Gather> {
        let facts = image.facts();
        let mut context = facts.inode_context.to_vec();
        context.extend((image.atime() == Atime::Taken).then_some(WITH_ATIMES));
        let key = key_of_filesystem(key, &facts.uuid, &context);
        let mut faults = Faults::default();
        let mut parent_digests = parent_digests;
        let mut read = || {
            let known = parent_digests.take();
            read_tables(&image, &key, known, spill, &mut faults, progress)
        };
        let (listing, mut tables) = match image.names().bulkstat() {
            Some(bulkstat) if tables_unchanged.is_none() => {
                let (listing, tables) =
                    NamesLister::while_reading(&image, bulkstat, spill, &mut read)?;
                (Some(listing), tables)
            }
            _ => (None, read()?),
        };
        let state = TablesState {
            digest: digest_of_part(&tables.digest, inside),
            not_racy_from: tables.not_racy_from,
            is_complete: faults.is_empty(),
        };
        if tables_unchanged.is_some_and(|tables_unchanged| tables_unchanged(&state)) {
            return Ok(Gather::Unchanged(state));
        }
        // Names that come with their inodes are in no blocks that could be in doubt.
        let may_be_few = state.is_complete && !image.names().are_with_inodes();
        if let (Some(few), None, true) = (tables.few.take(), &listing, may_be_few)
            && let Some(doubted) = few.finish(&image, key, spill)?
        {
            return Ok(Gather::Few(Box::new(GatheredFew {
                image,
                doubted,
                digests: tables.digests,
                state,
            })));
        }
        if tables.are_in_part {
            return Ok(Gather::Much);
        }
        let names = match listing {
            Some(listing) => listing.finish(tables.places, &mut faults)?,
            None => read_names(&image, tables.names, tables.places, &mut faults)?,
        };
        let joined = join(&image, &tables.inodes, names, spill, &mut faults)?;
        Ok(Gather::Whole(Box::new(Gathered {
            image,
            tree: joined.tree,
            digests: Arc::new(tables.digests),
            key,
            faults,
            totals: joined.totals,
            state,
        })))
    }

    /// What the inode tables say as a whole; not sound if anything could not be read.
    pub fn state(&self) -> TablesState {
        TablesState {
            is_complete: self.faults.is_empty(),
            ..self.state
        }
    }

    /// What the tables said, inode by inode.
    pub fn digests(&self) -> &Arc<Digests> {
        &self.digests
    }

    pub fn totals(&self) -> InodeTotals {
        self.totals
    }

    /// Does a path without leading slash lead to something? Links are not followed.
    pub fn has_path(&self, path: &Path) -> io::Result<bool> {
        let mut tree = self.tree.again();
        let mut at = self.image.facts().root;
        for name in path {
            match tree.child(at, name.as_bytes())? {
                Some(child) => at = child.inode,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The file system.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Looks at the inode tables again and tells which inodes are not as they were when they were
    /// gathered, in order, and which directories were changed after `t0`: their names may have been
    /// read in the middle of a change, and further changes in the same tick of the clock show
    /// nowhere. `logged` are those that a log tells of since before the first barrier, sorted: no
    /// other one is changed. `None`: more than `changed_max`.
    pub fn changed_inodes(
        &self,
        t0: Time,
        logged: Option<&[u64]>,
        changed_max: usize,
    ) -> io::Result<Option<Vec<u64>>> {
        let (image, digests) = (&self.image, &self.digests);
        super::second_look::changed_inodes(image, digests, &self.key, t0, logged, changed_max)
    }
}

/// Behind the numbers of a file system, in the key of digests that access times are part of.
const WITH_ATIMES: u32 = 1;

/// One mount point may show one part of a file system today and another tomorrow.
fn digest_of_part(digest: &[u8; 32], inside: &Path) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(digest);
    hasher.update(inside.as_os_str().as_bytes());
    *hasher.finalize().as_bytes()
}
