//! The digest cache: a keyed digest of the inode tables as of the last snapshot, and one of each
//! inode. Equal tables mean that nothing changed; an equal inode digest means that the parent's row
//! may be reused.
//!
//! Kept in the cache as sixteen bytes that only the holder of the repository's key can make: a
//! keyed hash of the snapshot, of how was asked, and of the digest of all inodes. Losing it costs
//! time. It is kept only of a scan that leaves no doubt: all read, nothing changed meanwhile,
//! nothing as young as the barrier.
//!
//! What they said of each inode is in a file of its own, nine bytes or a little more for each,
//! named by random bytes; a second one of 32 bytes says for which snapshot it was made, sealed in
//! the same way. Rows are kept by it only if they are settled as those of any backup, so it may be
//! kept of a file system in use: without the inodes that changed meanwhile.

use super::parent::Parent;
use super::run::{BackupRun, Outcome};
use super::tally::Tally;
use bale_format::{ObjectId, Time};
use bale_pipeline::private_dir;
use bale_repository::error::{Error, Result};
use bale_source::scan::inode::{
    DIGEST_FILE_NAME_BYTES, Digests, ParentDigests, Sealer, TablesState,
};
use bale_source::scan::{OpenParentDigests, ScanOptions, TablesUnchanged};
use std::path::PathBuf;
use std::sync::Arc;

/// Longest file of a seal, with what it seals.
const SEAL_BYTES_MAX: u64 = 1 << 10;

/// Cache files of one host and list of sources.
pub(super) struct DigestCache {
    run: Arc<bale_repository::repository::Repository>,
    path: PathBuf,
    /// Filter and scope of the scan; digests hold only for the same.
    scan_options: Vec<u8>,
}

/// What a scan learned of inode tables, for the next backup.
pub(super) enum NewDigests {
    /// A walk reads no tables.
    None,
    /// The tables are identical to the parent's.
    OfParent(TablesState),
    Read {
        /// Only if nothing was changed while they were read.
        state: Option<TablesState>,
        digests: Arc<Digests>,
        /// Inodes, sorted, whose rows may not be what was digested; `None`: any may be one.
        outdated: Option<Vec<u64>>,
    },
}

impl DigestCache {
    pub(super) fn of(run: &BackupRun, scan: &ScanOptions) -> Result<DigestCache> {
        let repository = run.repository.clone();
        let mut scan_options = scan.filter.fingerprint().to_vec();
        scan_options.push(u8::from(scan.one_file_system));
        scan_options.extend_from_slice(&scan.left_out.fingerprint());
        // An earlier version did not name what it left out for its size.
        scan_options.push(u8::from(scan.filter.limits_size()));
        Ok(DigestCache {
            path: repository
                .cache_dir()?
                .join("inodes")
                .join(run.name_in_cache()),
            run: repository,
            scan_options,
        })
    }

    /// Keys the digests of inodes, so that nobody can make an inode that looks like what it was.
    pub(super) fn inode_key(&self) -> [u8; 16] {
        self.run.keys().content_hash(b"key of digests of inodes")
    }

    /// Says whether inode tables are as they were for the parent; `None` if that would prove
    /// nothing.
    pub(super) fn recall(&self, parent: &Parent) -> Option<TablesUnchanged> {
        let id = parent.id.filter(|_| parent.is_reusable_whole())?;
        let remembered = private_dir::read(&self.path, SEAL_BYTES_MAX).ok()?;
        let (repository, scan_options) = (self.run.clone(), self.scan_options.clone());
        Some(Arc::new(move |state: &TablesState| {
            state.is_complete && remembered == seal(&repository, &scan_options, &id, state)
        }))
    }

    /// Opens what was said of each inode for the parent; `None` if that would prove nothing.
    pub(super) fn recall_inodes(&self, parent: &Parent) -> Option<OpenParentDigests> {
        let id = parent.id.filter(|_| parent.is_reusable_whole())?;
        let name = self.inodes_of(&id)?;
        let (path, sealer) = (self.inodes_path(), self.sealer());
        Some(Arc::new(move || {
            ParentDigests::open(&path, &name, sealer.clone()).ok()
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
        let note_unless_remembered = |remembered: Result<()>| {
            if let Err(error) = remembered {
                tally.note(&format!(
                    "the next backup will take longer than it could: {error}"
                ));
            }
        };
        match digests {
            NewDigests::None => {}
            NewDigests::OfParent(state) => {
                note_unless_remembered(self.remember_state(outcome, &state));
                note_unless_remembered(self.pass_inodes_on(parent, outcome));
            }
            NewDigests::Read {
                state,
                digests,
                outdated,
            } => {
                if let Some(state) = state {
                    note_unless_remembered(self.remember_state(outcome, &state));
                }
                if let Some(outdated) = outdated {
                    note_unless_remembered(self.remember_inodes(outcome, &digests, &outdated));
                }
            }
        }
    }

    /// Remembers what the tables said for this snapshot, if nothing is left to doubt.
    fn remember_state(&self, outcome: &Outcome, state: &TablesState) -> Result<()> {
        let Some(id) = outcome.id else {
            return Ok(());
        };
        let is_not_racy =
            |barrier: Option<Time>| barrier.is_some_and(|barrier| state.not_racy_from <= barrier);
        let snapshot = &outcome.snapshot;
        let mut barriers = snapshot
            .filesystems
            .iter()
            .map(|filesystem| filesystem.barrier);
        let is_certain =
            state.is_complete && snapshot.counts.problems == 0 && barriers.all(is_not_racy);
        if !is_certain {
            return Ok(());
        }
        Ok(private_dir::keep(
            &self.path,
            &seal(&self.run, &self.scan_options, &id, state),
        )?)
    }

    /// Keeps what was said of each inode, but for those (sorted) that changed meanwhile or were
    /// told by the kernel.
    fn remember_inodes(&self, outcome: &Outcome, digests: &Digests, others: &[u64]) -> Result<()> {
        let Some(id) = outcome.id else {
            return Ok(());
        };
        let path = self.inodes_path();
        let error = |source| Error::local("write", &path)(source);
        if let Some(directory) = path.parent() {
            private_dir::make(directory)?;
        }
        let name = bale_pipeline::random::draw(&bale_pipeline::random::OsRandom).map_err(error)?;
        let new = private_dir::name_beside(&path).map_err(error)?;
        let remembered = digests
            .keep(others, &new, &name, &self.sealer())
            .and_then(|()| std::fs::rename(&new, &path));
        if remembered.is_err() {
            // Whatever is the matter, there may be little room.
            let _ = std::fs::remove_file(&new);
        }
        remembered.map_err(error)?;
        self.link_inodes(&id, &name)
    }

    /// What is kept for the parent is right for this snapshot, too: nothing was changed.
    fn pass_inodes_on(&self, parent: &Parent, outcome: &Outcome) -> Result<()> {
        let known = parent.id.and_then(|id| self.inodes_of(&id));
        match (known, outcome.id) {
            (Some(name), Some(id)) => self.link_inodes(&id, &name),
            _ => Ok(()),
        }
    }

    fn inodes_path(&self) -> PathBuf {
        self.path.with_extension("inodes")
    }

    fn link_path(&self) -> PathBuf {
        self.path.with_extension("snapshot")
    }

    fn sealer(&self) -> Sealer {
        let repository = self.run.clone();
        Arc::new(move |bytes| repository.cache_seal(bytes))
    }

    /// Name of the file that was made for a snapshot.
    fn inodes_of(&self, id: &ObjectId) -> Option<[u8; DIGEST_FILE_NAME_BYTES]> {
        let remembered = private_dir::read(&self.link_path(), SEAL_BYTES_MAX).ok()?;
        let (name, seal) = remembered.split_first_chunk()?;
        (seal == self.seal_link(id, name)).then_some(*name)
    }

    fn link_inodes(&self, id: &ObjectId, name: &[u8; DIGEST_FILE_NAME_BYTES]) -> Result<()> {
        let mut link = name.to_vec();
        link.extend_from_slice(&self.seal_link(id, name));
        Ok(private_dir::keep(&self.link_path(), &link)?)
    }

    fn seal_link(&self, id: &ObjectId, name: &[u8; DIGEST_FILE_NAME_BYTES]) -> [u8; 16] {
        let mut text = b"inodes of snapshot".to_vec();
        text.extend_from_slice(&id.0);
        text.extend_from_slice(name);
        self.run.cache_seal(&text)
    }
}

fn seal(
    repository: &bale_repository::repository::Repository,
    scan_options: &[u8],
    id: &ObjectId,
    state: &TablesState,
) -> Vec<u8> {
    let mut text = b"inode tables, 2, of snapshot".to_vec();
    text.extend_from_slice(&id.0);
    text.extend_from_slice(&(scan_options.len() as u64).to_le_bytes());
    text.extend_from_slice(scan_options);
    text.extend_from_slice(&state.digest);
    repository.cache_seal(&text).to_vec()
}
