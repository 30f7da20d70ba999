//! Dense trees as people know them who test backups: made from a few numbers and a seed, byte for
//! byte the same on every machine, into a directory or straight into an ext4 file system.
//!
//! Everything about a file follows from the seed, its directory and its number, so nothing is
//! remembered: a tree of ten million files takes the memory of some directories (about 200 bytes a
//! name; large directories are made in parts, but for those with odd or realistic names), the pool
//! that content is cut from, and 4 bytes a file of one snapshot for link farms.

mod change;
mod content;
mod dice;
mod error;
mod file;
mod manifest;
mod monitor;
mod mounted;
mod names;
mod options;
mod rows;
mod scratch;
mod to_directory;
mod to_ext4;
mod tree;
mod workers;

use std::io::Write;
use std::path::Path;

use bale_fsimage::mkext4::{BlockSink, Ext4Options, Ext4Summary, Plan, ScratchMaker};

pub use change::{ChangeOptions, Changed, change};
pub use error::GenerateError;
pub use manifest::{DIFFERENCES_LISTED_MAX, Verified, verify_manifest, write_manifest};
pub use monitor::{GenerateMonitor, GenerateProgress, Unwatched};
pub use mounted::{MountAccess, MountedImage};
pub use options::{
    DEPTH_MAX, FILE_BYTES_MIN, GenerateOptions, NAME_BYTES_MAX, NAME_BYTES_MIN, POOL_BYTES,
    SNAPSHOTS_MAX, TIME_DEFAULT_SECONDS,
};
pub use scratch::scratch_in;

use content::Pool;
use dice::Dice;

/// A tree that can be written, counted and listed any number of times.
pub struct Generator {
    options: GenerateOptions,
    pool: Pool,
}

impl Generator {
    /// Checks the options and fills the pool.
    pub fn new(options: GenerateOptions) -> Result<Generator, GenerateError> {
        options.check()?;
        let pool = Pool::new(Dice(options.seed), options.pool_bytes, options.compressible);
        Ok(Generator { options, pool })
    }

    /// What will be written, for a progress bar and for a look before: names in all snapshots,
    /// symbolic links among the files, bytes and links not told apart. Takes about a second for a
    /// million directories.
    pub fn expected(&self) -> GenerateProgress {
        let shape = tree::Shape::new(&self.options);
        let mut one = GenerateProgress::default();
        for plan in shape.snapshot_plans(0) {
            one.directories += u64::from(plan.is_first_part);
            one.files += plan.files;
        }
        let snapshots = u64::from(self.options.snapshots.max(1));
        let own = u64::from(self.options.snapshots > 0);
        GenerateProgress {
            directories: one.directories * snapshots + own,
            files: one.files * snapshots,
            ..one
        }
    }

    /// Writes the tree below a directory that exists. Names that exist are left alone.
    pub fn write_directory(
        &self,
        root: &Path,
        monitor: &dyn GenerateMonitor,
    ) -> Result<GenerateProgress, GenerateError> {
        to_directory::write(&self.options, &self.pool, root, monitor)
    }

    /// Plans a file system for the tree; print its size before [`Generator::write_ext4`].
    pub fn plan_ext4(&self, ext4: &Ext4Options) -> Result<Plan, GenerateError> {
        to_ext4::plan(&self.options, &self.pool, ext4)
    }

    /// Writes the file system that was planned to any sink, such as a file.
    pub fn write_ext4<S: BlockSink>(
        &self,
        plan: Plan,
        sink: S,
        scratch: ScratchMaker,
        monitor: &dyn GenerateMonitor,
    ) -> Result<(S, Ext4Summary, GenerateProgress), GenerateError> {
        to_ext4::write(&self.options, &self.pool, (plan, sink, scratch), monitor)
    }

    /// Writes the list of hashes of the tree, made from the seed and not read back.
    pub fn write_manifest(&self, out: &mut dyn Write) -> Result<(), GenerateError> {
        manifest::of_options(&self.options, &self.pool, out)
    }
}
