//! What a tree looks like.

use super::error::{GenerateError, Result};

/// Least size of the smallest file, bytes.
pub const FILE_BYTES_MIN: u64 = 511;
/// Least length of a name, bytes.
pub const NAME_BYTES_MIN: u64 = 2;
/// Longest name, leaving room for an extension and a number that makes it unique.
pub const NAME_BYTES_MAX: u64 = 230;
/// Deepest recursion.
pub const DEPTH_MAX: u64 = 1000;
/// The pool must hold a cut at any of many places, and stay in memory.
pub const POOL_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Snapshots of a link farm; a file has one name in each.
pub const SNAPSHOTS_MAX: u32 = 65_000;
/// Seconds since 1970 of every entry where no ages are asked for: the same on every machine.
pub const TIME_DEFAULT_SECONDS: i64 = 1_700_000_000;

/// A tree, by numbers. The same options give the same tree, byte for byte, on every machine.
///
/// Both ends of every pair are reached. Shares are in hundredths of a per cent (10,000 is all).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerateOptions {
    /// `-d`/`-D`: directories in each directory that is not the last of its branch.
    pub directories: (u64, u64),
    /// `-f`/`-F`: files in each directory.
    pub files: (u64, u64),
    /// `-r`/`-R`: recursion depth of each directory in the root. A child's depth is drawn below its
    /// parent's.
    pub depth: (u64, u64),
    /// `-s`/`-S`: bytes of a file, at least 511.
    pub file_bytes: (u64, u64),
    /// `-l`/`-L`: length of a name without its extension; ignored with realistic names.
    pub name_bytes: (u64, u64),
    /// `-P` (there in MB): bytes of the random pool from which content is cut.
    pub pool_bytes: u64,
    /// `-M`: no more files than this; 0 for no limit.
    pub files_max: u64,
    /// `--count`: exactly this many files, by as many directories in the root as that takes.
    pub count: Option<u64>,
    /// `-N`: names of one to four words and an extension.
    pub realistic_names: bool,
    /// `-C`: content that compresses a little (6.6 bits a byte).
    pub compressible: bool,
    /// `--seed`.
    pub seed: u64,
    /// `--links`: this many snapshots of the tree in the manner of rsnapshot, files linked to the
    /// first; 0 for none.
    pub snapshots: u32,
    /// Share of files that are new in each further snapshot.
    pub snapshot_change_share: u32,
    /// Share of files that are symbolic links.
    pub symlink_share: u32,
    /// Share of files that are sparse: data at both ends, a hole of up to 64 times their size
    /// between.
    pub sparse_share: u32,
    /// Share of files with extended attributes of users.
    pub xattr_share: u32,
    /// Share of names with spaces, line ends, quotes, bytes that are no UTF-8, or 255 bytes.
    pub odd_name_share: u32,
    /// Owners from 1000 on; 0 leaves every file to whoever runs this (in an image: to root).
    pub owners: u32,
    /// Oldest modification, days before `time_seconds`: a fifth of the files within 120 days, the
    /// others spread over the rest. 0: in an image all times are `time_seconds`, in a directory the
    /// kernel's.
    pub age_days_max: u32,
    /// The present of the tree, seconds since 1970.
    pub time_seconds: i64,
    /// Threads for directories and manifests; 0 for one on each core. Changes no byte.
    pub threads: u32,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            directories: (5, 10),
            files: (5, 10),
            depth: (5, 10),
            file_bytes: (1024, 1 << 20),
            name_bytes: (5, 15),
            pool_bytes: 50 << 20,
            files_max: 0,
            count: None,
            realistic_names: false,
            compressible: false,
            seed: 1,
            snapshots: 0,
            snapshot_change_share: 100,
            symlink_share: 0,
            sparse_share: 0,
            xattr_share: 0,
            odd_name_share: 0,
            owners: 0,
            age_days_max: 0,
            time_seconds: TIME_DEFAULT_SECONDS,
            threads: 0,
        }
    }
}

impl GenerateOptions {
    /// UUID and hash seed of the file system that holds the tree: from the seed, so that images are
    /// equal too.
    pub fn identity(&self) -> ([u8; 16], [u8; 16]) {
        let mut drawn = [0; 32];
        blake3::Hasher::new_derive_key("bale gen file system identity")
            .update(&self.seed.to_le_bytes())
            .finalize_xof()
            .fill(&mut drawn);
        let (uuid, hash_seed) = drawn.split_at_mut(16);
        // Version 4, variant 1: a random UUID.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let of = |bytes: &[u8]| bytes.try_into().expect("half of 32 bytes");
        (of(uuid), of(hash_seed))
    }

    /// Checks every choice; the message names the letters that a user typed.
    pub fn check(&self) -> Result<()> {
        let pairs = [
            ("-d/-D", self.directories, 1, 1_000_000),
            ("-f/-F", self.files, 1, 100_000_000),
            ("-r/-R", self.depth, 1, DEPTH_MAX),
            ("-s/-S", self.file_bytes, FILE_BYTES_MIN, 1 << 40),
            ("-l/-L", self.name_bytes, NAME_BYTES_MIN, NAME_BYTES_MAX),
        ];
        for (letters, (low, high), least, most) in pairs {
            if low < least || high > most || low > high {
                return refuse(format!(
                    "{letters} of {low} and {high}: both within {least}..={most}, the first not \
                     above the second"
                ));
            }
        }
        if !POOL_BYTES.contains(&self.pool_bytes) {
            return refuse(format!(
                "-P of {} bytes is not within {}..={}",
                self.pool_bytes,
                POOL_BYTES.start(),
                POOL_BYTES.end()
            ));
        }
        let shares = [
            ("symlinks", self.symlink_share),
            ("sparse files", self.sparse_share),
            ("xattrs", self.xattr_share),
            ("odd names", self.odd_name_share),
            ("changes between snapshots", self.snapshot_change_share),
        ];
        if let Some((what, share)) = shares.iter().find(|(_, share)| *share > 10_000) {
            return refuse(format!(
                "a share of {share} hundredths of a per cent of {what} is more than all"
            ));
        }
        if self.symlink_share + self.sparse_share > 10_000 {
            return refuse("symlinks and sparse files together are more than all files".to_owned());
        }
        if self.snapshots > SNAPSHOTS_MAX {
            return refuse(format!(
                "--links {} is above {SNAPSHOTS_MAX}",
                self.snapshots
            ));
        }
        if self.count == Some(0) || (self.count.is_some() && self.files_max > 0) {
            return refuse("--count must be above 0, and takes the place of -M".to_owned());
        }
        if self.owners > 1_000_000 || self.age_days_max > 50_000 {
            return refuse("at most 1000000 owners and ages of 50000 days".to_owned());
        }
        if !(0..=1 << 33).contains(&self.time_seconds) {
            return refuse(format!(
                "the present of {} seconds is not between 1970 and 2242",
                self.time_seconds
            ));
        }
        Ok(())
    }
}

fn refuse(text: String) -> Result<()> {
    Err(GenerateError::Options(text))
}
