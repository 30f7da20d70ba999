//! What a file is, beyond its name: kind, size, holes, owner, times, attributes, and how it changes
//! from one snapshot to the next.

use std::ops::Range;

use bale_fsimage::Timestamp;

use super::content::{FileContent, Pool};
use super::dice::Dice;
use super::names::push_name;
use super::options::GenerateOptions;

const FOR_KIND: u64 = 301;
const FOR_SIZE: u64 = 302;
const FOR_HOLE: u64 = 303;
const FOR_OWNER: u64 = 304;
const FOR_GROUP: u64 = 305;
const FOR_MODE: u64 = 306;
const FOR_AGE: u64 = 307;
const FOR_RECENT: u64 = 308;
const FOR_XATTR: u64 = 309;
const FOR_XATTR_BYTES: u64 = 310;
const FOR_VERSION: u64 = 311;
const FOR_CHANGE: u64 = 312;
const FOR_TARGET: u64 = 313;

const SECONDS_PER_DAY: u64 = 86_400;
/// A fifth of the files of a living file system changed in the last so many days.
const RECENT_DAYS: u64 = 120;
const RECENT_SHARE: u32 = 2_000;
/// A hole is at most this many times as long as the data.
const HOLE_FACTOR_MAX: u64 = 64;
const OWNER_FIRST: u64 = 1_000;
const FILE_MODES: [u32; 8] = [0o644, 0o644, 0o644, 0o640, 0o600, 0o664, 0o755, 0o444];
const DIRECTORY_MODES: [u32; 4] = [0o755, 0o755, 0o750, 0o775];

/// A regular file or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileShape {
    pub dice: Dice,
    pub kind: Kind,
    pub attributes: Attributes,
    pub xattr: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular { size_bytes: u64, hole: Range<u64> },
    Symlink { target: Vec<u8> },
}

/// Name of the one attribute that files may have.
pub(crate) const XATTR_NAME: &[u8] = b"user.bale.origin";

/// What every entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
}

impl FileShape {
    /// The file of `dice` as it was written in snapshot `version`.
    pub fn new(dice: Dice, version: u32, options: &GenerateOptions) -> FileShape {
        let dice = if version == 0 {
            dice
        } else {
            dice.part(FOR_VERSION, u64::from(version))
        };
        let draw = dice.within(FOR_KIND, 0, 9_999) as u32;
        let kind = if draw < options.symlink_share {
            let mut target = b"../".to_vec();
            push_name(&mut target, dice.part(FOR_TARGET, 0), false, options);
            Kind::Symlink { target }
        } else {
            let data_bytes = dice.within(FOR_SIZE, options.file_bytes.0, options.file_bytes.1);
            if draw - options.symlink_share < options.sparse_share {
                sparse(dice, data_bytes)
            } else {
                Kind::Regular {
                    size_bytes: data_bytes,
                    hole: 0..0,
                }
            }
        };
        let xattr = (matches!(kind, Kind::Regular { .. })
            && dice.happens(FOR_XATTR, options.xattr_share))
        .then(|| {
            let len = dice.within(FOR_XATTR_BYTES, 1, 64);
            (0..len)
                .map(|position| {
                    b"0123456789abcdef"[(dice.part(FOR_XATTR_BYTES, position).0 & 15) as usize]
                })
                .collect()
        });
        FileShape {
            dice,
            kind,
            attributes: Attributes::new(dice, &FILE_MODES, options),
            xattr,
        }
    }

    /// Content, of a regular file.
    pub fn content<'a>(&self, pool: &'a Pool) -> FileContent<'a> {
        let hole = if let Kind::Regular { hole, .. } = &self.kind {
            hole.clone()
        } else {
            0..0
        };
        FileContent {
            pool,
            dice: self.dice,
            hole,
        }
    }
}

/// The snapshot in which a file was written that is seen in `snapshot`.
pub(crate) fn version_seen_in(dice: Dice, snapshot: u32, options: &GenerateOptions) -> u32 {
    let changes = |at: &u32| {
        dice.part(FOR_CHANGE, u64::from(*at))
            .happens(FOR_CHANGE, options.snapshot_change_share)
    };
    (1..=snapshot).rev().find(changes).unwrap_or(0)
}

/// Data at both ends and a hole between, all of odd lengths.
fn sparse(dice: Dice, data_bytes: u64) -> Kind {
    let front = data_bytes / 2;
    let hole_bytes = dice.within(
        FOR_HOLE,
        data_bytes,
        data_bytes.saturating_mul(HOLE_FACTOR_MAX),
    );
    Kind::Regular {
        size_bytes: data_bytes + hole_bytes,
        hole: front..front + hole_bytes,
    }
}

impl Attributes {
    pub fn of_directory(dice: Dice, options: &GenerateOptions) -> Attributes {
        Attributes::new(dice, &DIRECTORY_MODES, options)
    }

    fn new(dice: Dice, modes: &[u32], options: &GenerateOptions) -> Attributes {
        let owners = u64::from(options.owners);
        let owner = |purpose| match owners {
            0 => 0,
            _ => dice.within(purpose, OWNER_FIRST, OWNER_FIRST + owners - 1) as u32,
        };
        let mode = if owners == 0 {
            0
        } else {
            dice.within(FOR_MODE, 0, modes.len() as u64 - 1)
        };
        Attributes {
            permissions: modes[mode as usize],
            uid: owner(FOR_OWNER),
            gid: owner(FOR_GROUP),
            mtime: mtime(dice, options),
        }
    }
}

fn mtime(dice: Dice, options: &GenerateOptions) -> Timestamp {
    if options.age_days_max == 0 {
        return Timestamp {
            seconds: options.time_seconds,
            nanos: 0,
        };
    }
    let oldest = u64::from(options.age_days_max);
    let recent = RECENT_DAYS.min(oldest);
    let (from, to) = if dice.happens(FOR_RECENT, RECENT_SHARE) {
        (0, recent)
    } else {
        (recent, oldest)
    };
    let age = dice.within(FOR_AGE, from * SECONDS_PER_DAY, to * SECONDS_PER_DAY) as i64;
    let nanos = dice.part(FOR_AGE, 1).within(FOR_AGE, 0, 999_999_999) as u32;
    Timestamp {
        seconds: options.time_seconds - age - 1,
        nanos,
    }
}
