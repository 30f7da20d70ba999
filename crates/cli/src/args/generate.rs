//! `gen`: letters as people know them from the generator of a commercial suite, words for what that
//! lacked.

use super::ext4::Ext4Choices;
use super::global::NoSecrets;
use crate::exit::Usage;
use crate::sizes;
use bale_tune::generate::{ChangeOptions, GenerateOptions};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Bytes of the `MB` that `-P` counts in.
const POOL_UNIT_BYTES: u64 = 1 << 20;

/// `gen`
#[derive(Debug, Args)]
pub struct Generate {
    /// Stands in the place of the global --repo, which this command does not have: -r is a depth
    /// here.
    #[arg(long = "no-repository", hide = true)]
    pub repo: Option<OsString>,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoSecrets,
    /// Existing directory to fill; with --change, --new, --delete or --verify-manifest also an
    /// image or device (as root)
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// Write an ext4 file system with the tree to a file or device instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "target")]
    pub to_ext4: Option<PathBuf>,
    /// Write over what the file or device of --to-ext4 holds; fill a directory that seems to have
    /// too little space
    #[arg(long)]
    pub force: bool,
    /// What the tree looks like.
    #[command(flatten)]
    pub tree: TreeArgs,
    /// What becomes of a tree.
    #[command(flatten)]
    pub ageing: Ageing,
    /// The file system.
    #[command(flatten)]
    pub ext4: Ext4Choices,
    /// Write the list of hashes of the tree (without a target: only that)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub manifest: Option<PathBuf>,
    /// Make nothing: compare the target directory with a list of hashes
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "target",
        conflicts_with = "manifest",
    )]
    pub verify_manifest: Option<PathBuf>,
    /// Threads; they change no byte [default: one a core, two where a directory is filled]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub threads: u32,
}

/// A tree by numbers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tree")]
pub struct TreeArgs {
    /// Least directories in each directory that is not the last of its branch [default: 5]
    #[arg(short = 'd', value_name = "N")]
    pub directories_min: Option<u64>,
    /// Most directories; this and every other maximum is reached [default: 10]
    #[arg(short = 'D', value_name = "N")]
    pub directories_max: Option<u64>,
    /// Least files in each directory [default: 5]
    #[arg(short = 'f', value_name = "N")]
    pub files_min: Option<u64>,
    /// Most files in each directory [default: 10]
    #[arg(short = 'F', value_name = "N")]
    pub files_max: Option<u64>,
    /// Least recursion depth of each base directory, which is one directly in the target [default:
    /// 5]
    #[arg(short = 'r', value_name = "N")]
    pub depth_min: Option<u64>,
    /// Most recursion depth of each base directory [default: 10]
    #[arg(short = 'R', value_name = "N")]
    pub depth_max: Option<u64>,
    /// Least size of a file in bytes or as 4K, 1M; at least 511 [default: 1024]
    #[arg(short = 's', value_name = "SIZE")]
    pub size_min: Option<String>,
    /// Most size of a file [default: 1048576]
    #[arg(short = 'S', value_name = "SIZE")]
    pub size_max: Option<String>,
    /// Least length of a name, its extension not counted; ignored with -N [default: 5]
    #[arg(short = 'l', value_name = "N")]
    pub name_min: Option<u64>,
    /// Most length of a name; ignored with -N [default: 15]
    #[arg(short = 'L', value_name = "N")]
    pub name_max: Option<u64>,
    /// Size of the pool of random bytes that content is cut from, MB [default: 50]
    #[arg(short = 'P', value_name = "MB")]
    pub pool: Option<u64>,
    /// Stop after this many files; 0: never [default: 0]
    #[arg(
        short = 'M',
        value_name = "N",
        default_value = "0",
        hide_default_value = true
    )]
    pub stop_after: u64,
    /// Exactly this many files, by as many directories in the target as that takes
    #[arg(long, value_name = "N", conflicts_with = "stop_after")]
    pub count: Option<u64>,
    /// Semi-realistic names: one to four words and an extension
    #[arg(short = 'N')]
    pub realistic: bool,
    /// Content that compresses a little
    #[arg(short = 'C')]
    pub compressible: bool,
    /// The same seed and options give the same tree, byte for byte
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// This many snapshots of the tree in the manner of rsnapshot, unchanged files linked
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub links: u32,
    /// Files that are new in each further snapshot of --links
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    pub links_change: String,
    /// Files that are symbolic links
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        hide_default_value = true
    )]
    pub symlinks: String,
    /// Files with a hole
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        hide_default_value = true
    )]
    pub sparse: String,
    /// Files with extended attributes
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        hide_default_value = true
    )]
    pub xattrs: String,
    /// Names with spaces, line ends, quotes, bytes that are no UTF-8, or 255 bytes
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        hide_default_value = true
    )]
    pub odd_names: String,
    /// Owners from 1000 on; 0: whoever runs this, in an image root
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub owners: u32,
    /// Oldest mtime, days before --time: a fifth of the files within 120 days
    #[arg(
        long,
        value_name = "DAYS",
        default_value = "0",
        hide_default_value = true
    )]
    pub ages: u32,
    /// The present of the tree, seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    pub time: Option<i64>,
}

/// Ageing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ageing (of a tree that is there)")]
pub struct Ageing {
    /// Change the content of this many files, chosen by --seed: the same seed and tree give the
    /// same result
    #[arg(long, value_name = "PERCENT")]
    pub change: Option<String>,
    /// Make this many new files
    #[arg(long, value_name = "PERCENT")]
    pub new: Option<String>,
    /// Delete this many
    #[arg(long, value_name = "PERCENT")]
    pub delete: Option<String>,
}

impl Generate {
    /// The tree that the words describe.
    pub fn options(&self) -> Result<GenerateOptions, Usage> {
        let usual = GenerateOptions::default();
        let tree = &self.tree;
        let size = |text: &Option<String>| text.as_deref().map(sizes::parse_bytes).transpose();
        Ok(GenerateOptions {
            directories: pair(
                tree.directories_min,
                tree.directories_max,
                usual.directories,
            ),
            files: pair(tree.files_min, tree.files_max, usual.files),
            depth: pair(tree.depth_min, tree.depth_max, usual.depth),
            file_bytes: pair(
                size(&tree.size_min)?,
                size(&tree.size_max)?,
                usual.file_bytes,
            ),
            name_bytes: pair(tree.name_min, tree.name_max, usual.name_bytes),
            pool_bytes: tree.pool.map_or(usual.pool_bytes, |units| {
                units.saturating_mul(POOL_UNIT_BYTES)
            }),
            files_max: tree.stop_after,
            count: tree.count,
            realistic_names: tree.realistic,
            compressible: tree.compressible,
            seed: tree.seed,
            snapshots: tree.links,
            snapshot_change_share: share(&tree.links_change)?,
            symlink_share: share(&tree.symlinks)?,
            sparse_share: share(&tree.sparse)?,
            xattr_share: share(&tree.xattrs)?,
            odd_name_share: share(&tree.odd_names)?,
            owners: tree.owners,
            age_days_max: tree.ages,
            time_seconds: tree.time.unwrap_or(usual.time_seconds),
            threads: self.threads,
        })
    }

    /// How a tree that is there shall change, if it shall.
    pub fn change(&self) -> Result<Option<ChangeOptions>, Usage> {
        let Ageing {
            change,
            new,
            delete,
        } = &self.ageing;
        if change.is_none() && new.is_none() && delete.is_none() {
            return Ok(None);
        }
        let of = |text: &Option<String>| text.as_deref().map_or(Ok(0), share);
        Ok(Some(ChangeOptions {
            changed_share: of(change)?,
            new_share: of(new)?,
            deleted_share: of(delete)?,
            seed: self.tree.seed,
        }))
    }
}

/// Both ends of a range; an end that was not given makes way for the other.
fn pair(low: Option<u64>, high: Option<u64>, usual: (u64, u64)) -> (u64, u64) {
    match (low, high) {
        (Some(low), Some(high)) => (low, high),
        (Some(low), None) => (low, usual.1.max(low)),
        (None, Some(high)) => (usual.0.min(high), high),
        (None, None) => usual,
    }
}

/// `5`, `0.25`, `12%`: hundredths of a per cent.
fn share(text: &str) -> Result<u32, Usage> {
    let number: f64 = text
        .trim()
        .trim_end_matches('%')
        .parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number))
        .ok_or_else(|| Usage(format!("{text:?} is no share: write for example 5 or 0.25")))?;
    Ok((number * 100.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_hundredths_of_a_per_cent() {
        assert_eq!(share("5").unwrap(), 500);
        assert_eq!(share("0.05%").unwrap(), 5);
        for wrong in ["", "x", "-1", "100.5", "NaN", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_end_that_was_not_given_makes_way() {
        assert_eq!(pair(Some(20), None, (5, 10)), (20, 20));
        assert_eq!(pair(None, Some(3), (5, 10)), (3, 3));
        assert_eq!(pair(None, Some(30), (5, 10)), (5, 30));
    }
}
