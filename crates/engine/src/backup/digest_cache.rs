//! The digest cache: a keyed digest of the inode tables as of the last snapshot, and one of each
//! inode. Equal tables mean that nothing changed; an equal inode digest means that the parent's row
//! may be reused.
//!
//! One file for each host and list of sources ([`DigestFile`]), nine bytes or a little more for
//! each inode, sealed with what only the holder of the repository's key has: for one snapshot, one
//! host and these sources. Losing it costs time. The key of the digests stands in the file, so that
//! a scan can begin before the repository is open.
//!
//! The digest of the tables is of how the scan was asked for, too. It is stored only of a scan that
//! leaves no doubt: all read, nothing changed meanwhile, nothing as young as the barrier. Rows are
//! reused by the digests of inodes only if they are reusable as those of any backup, so these may
//! be stored of a file system in use: without the inodes that changed meanwhile.

use super::parent::Parent;
use super::run::{BackupRun, Outcome};
use super::tally::Tally;
use bale_format::id::hex;
use bale_format::{ObjectId, Time};
use bale_pipeline::private_dir;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_source::scan::fingerprint_above;
use bale_source::scan::inode::{
    AllInodesDigest, DigestFile, DigestKey, Digests, IsReplaced, Sealer, TablesState,
};
use bale_source::scan::{OpenParentDigests, ScanOptions, Sources, TablesUnchanged};
use std::path::Path;
use std::sync::Arc;

/// Of the cache of a repository.
const DIRECTORY: &str = "inodes";

/// Are there digests of any sources, of any repository that has its cache here?
pub(super) fn has_digests(cache: &Path) -> bool {
    let of_repositories = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let mut directories = of_repositories.map(|entry| entry.path().join(DIRECTORY));
    directories.any(|directory| {
        let mut files = std::fs::read_dir(directory).into_iter().flatten();
        files.next().is_some()
    })
}

/// The digests of one host and list of sources.
pub(super) struct DigestCache {
    file: DigestFile,
    inode_key: DigestKey,
    /// Filter and scope of the scan, and the directories that lead to it; the digest of the tables
    /// holds only for the same.
    scan_options: Vec<u8>,
}

/// What a scan learned of inode tables, for the next backup.
pub(super) enum NewDigests {
    /// A walk reads no tables.
    None,
    /// The tables are identical to the parent's; `None`: nothing was read to tell.
    OfParent(Option<TablesState>),
    Read {
        /// Only if nothing was changed while they were read.
        state: Option<TablesState>,
        digests: Arc<Digests>,
        /// Inodes, sorted, whose rows may not be what was digested; `None`: any may be one.
        outdated: Option<Vec<u64>>,
    },
}

impl DigestCache {
    /// With the key that the digests of the parent have.
    pub(super) fn of(
        run: &BackupRun,
        sources: &Sources,
        scan: &ScanOptions,
        parent: &Parent,
    ) -> Result<DigestCache> {
        let repository = run.repository.clone();
        let mut scan_options = scan.filter.fingerprint().to_vec();
        scan_options.push(u8::from(scan.one_file_system));
        scan_options.extend_from_slice(&scan.left_out.fingerprint());
        // An earlier version did not name what it left out for its size.
        scan_options.push(u8::from(scan.filter.limits_size()));
        // Nothing equals what cannot be said.
        match fingerprint_above(sources) {
            Some(above) => scan_options.extend_from_slice(&above),
            None => scan_options.extend_from_slice(&run.id),
        }
        DigestCache::named(run.name_in_cache(), repository, scan_options, parent)
    }

    /// The same of the file system that is a view of an image, of this name.
    pub(super) fn of_view(run: &BackupRun, view: &[u8], parent: &Parent) -> Result<DigestCache> {
        let repository = run.repository.clone();
        let of = [run.name_in_cache().as_bytes(), b" view ", view].concat();
        let name = hex(&repository.keys().content_hash(&of));
        DigestCache::named(name, repository, Vec::new(), parent)
    }

    fn named(
        name: String,
        repository: Arc<Repository>,
        scan_options: Vec<u8>,
        parent: &Parent,
    ) -> Result<DigestCache> {
        let directory = repository.cache_dir()?.join(DIRECTORY);
        let path = directory.join(&name).with_extension("inodes");
        let file = DigestFile::new(path, sealer(&repository, name));
        let of_parent = parent.id.and_then(|id| file.key(&id));
        let of_repository = || {
            let keys = repository.keys();
            keys.content_hash(b"key of digests of inodes")
        };
        Ok(DigestCache {
            inode_key: of_parent.unwrap_or_else(of_repository),
            file,
            scan_options,
        })
    }

    /// For digests of this key, which have nothing in common with those that are there.
    pub(super) fn with_key(self, inode_key: DigestKey) -> DigestCache {
        DigestCache { inode_key, ..self }
    }

    /// Keys the digests of inodes, so that nobody can make an inode that looks like what it was.
    pub(super) fn inode_key(&self) -> DigestKey {
        self.inode_key
    }

    /// Says whether inode tables are as they were for the parent; `None` if that would prove
    /// nothing.
    pub(super) fn recall(&self, parent: &Parent) -> Option<TablesUnchanged> {
        let id = parent.id.filter(|_| parent.is_reusable_whole())?;
        let stored = self.file.all_inodes(&id)?;
        let scan_options = self.scan_options.clone();
        Some(Arc::new(move |state: &TablesState| {
            state.is_complete && stored == digest_of_all(&scan_options, state)
        }))
    }

    /// Opens what was said of each inode for the parent; `None` if that would prove nothing.
    pub(super) fn recall_inodes(&self, parent: &Parent) -> Option<OpenParentDigests> {
        let id = parent.id.filter(|_| parent.is_reusable_whole())?;
        let file = self.file.clone();
        let _is_there = file.open(&id)?;
        Some(Arc::new(move || file.open(&id)))
    }

    /// As [`DigestCache::recall_inodes`], for rows that say where on the device content is: but for
    /// those of which some is replaced. `are_changes_noted`: few changes are told alone.
    pub(super) fn recall_placed(
        &self,
        parent: &Parent,
        is_replaced: IsReplaced,
        are_changes_noted: bool,
    ) -> Option<OpenParentDigests> {
        let open = self.recall_inodes(parent)?;
        Some(Arc::new(move || {
            let digests = open()?.but_for(is_replaced.clone());
            Some(match are_changes_noted {
                true => digests.noting_changes(),
                false => digests,
            })
        }))
    }

    /// For the next backup. Caches only save time: failing to write one is a note, the snapshot is
    /// complete.
    pub(super) fn remember(
        &self,
        digests: NewDigests,
        parent: &Parent,
        outcome: &Outcome,
        tally: &Tally<'_>,
    ) {
        let Some(id) = outcome.id else {
            return;
        };
        let certain = |state: &TablesState| is_certain(outcome, state);
        let all = |state: TablesState| digest_of_all(&self.scan_options, &state);
        let remembered = match digests {
            NewDigests::None => Ok(()),
            NewDigests::OfParent(state) => {
                let all = state.filter(certain).map(all);
                self.pass_on(parent, &id, all)
            }
            NewDigests::Read {
                state,
                digests,
                outdated,
            } => {
                let all = state.filter(certain).map(all);
                self.write(&id, all, &digests, outdated.as_deref())
            }
        };
        if let Err(error) = remembered {
            tally.note(&format!("the next backup will be slower: {error}"));
        }
    }

    /// What holds for the parent holds for this snapshot, too: nothing was changed.
    fn pass_on(&self, parent: &Parent, id: &ObjectId, all: Option<AllInodesDigest>) -> Result<()> {
        let Some(parent) = parent.id else {
            return Ok(());
        };
        // If another backup has replaced it meanwhile, it is that one's.
        let passed = self.file.pass_on(&parent, id, all);
        passed.map_err(Error::local("write", self.file.path()))?;
        Ok(())
    }

    /// Stores what was said of each inode, but for those that are `outdated`.
    fn write(
        &self,
        id: &ObjectId,
        all: Option<AllInodesDigest>,
        digests: &Digests,
        outdated: Option<&[u64]>,
    ) -> Result<()> {
        if all.is_none() && outdated.is_none() {
            return Ok(());
        }
        let path = self.file.path();
        if let Some(directory) = path.parent() {
            private_dir::make(directory)?;
        }
        let (digests, without) = (outdated.map(|_| digests), outdated.unwrap_or_default());
        let named = (id, &self.inode_key);
        let written = self.file.write(named, all, digests, without);
        written.map_err(Error::local("write", path))
    }
}

/// Seals for one host and list of sources.
fn sealer(repository: &Arc<Repository>, name: String) -> Sealer {
    let repository = repository.clone();
    Arc::new(move |bytes| {
        let parts = [&b"digests of inodes "[..], name.as_bytes(), bytes];
        repository.cache_seal(&parts.concat())
    })
}

/// Is nothing left to doubt?
fn is_certain(outcome: &Outcome, state: &TablesState) -> bool {
    let is_not_racy =
        |barrier: Option<Time>| barrier.is_some_and(|barrier| state.not_racy_from <= barrier);
    let snapshot = &outcome.snapshot;
    let mut barriers = snapshot
        .filesystems
        .iter()
        .map(|filesystem| filesystem.barrier);
    state.is_complete && snapshot.counts.problems == 0 && barriers.all(is_not_racy)
}

/// Of the tables, and of how the scan was asked for.
fn digest_of_all(scan_options: &[u8], state: &TablesState) -> AllInodesDigest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(scan_options.len() as u64).to_le_bytes());
    hasher.update(scan_options);
    hasher.update(&state.digest);
    *hasher.finalize().as_bytes()
}
