//! What `bale find` looks for beside names: size, time, kind, content.
//!
//! Everything that is given must hold. Times are those of the last change of content, as restic's
//! `--oldest` and `--newest` have them.

use crate::args::{FindConditions, FindKind};
use crate::exit::Usage;
use crate::{sizes, times};
use bale_format::{Entry, Kind, Time};

/// Conditions, taken from the words.
pub struct Conditions {
    bytes_min: Option<u64>,
    bytes_max: Option<u64>,
    newer_than: Option<Time>,
    older_than: Option<Time>,
    /// Empty: all.
    kinds: Vec<Kind>,
    content_hash: Option<[u8; CONTENT_HASH_BYTES]>,
}

const CONTENT_HASH_BYTES: usize = 16;

impl Conditions {
    /// `now`: durations are counted back from it.
    pub fn parse(options: &FindConditions, now: Time) -> Result<Conditions, Usage> {
        let bytes = |text: &Option<String>| text.as_deref().map(sizes::parse_bytes).transpose();
        let moment = |text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| times::parse_moment(text, now)).transpose()
        };
        let conditions = Conditions {
            bytes_min: bytes(&options.min_size)?,
            bytes_max: bytes(&options.max_size)?,
            newer_than: moment(&options.newer_than)?,
            older_than: moment(&options.older_than)?,
            kinds: options.kinds.iter().map(kind).collect(),
            content_hash: options.content_hash.as_deref().map(hash).transpose()?,
        };
        let is_empty_range = |least, most| matches!((least, most), (Some(a), Some(b)) if a > b);
        if is_empty_range(conditions.bytes_min, conditions.bytes_max) {
            let text = "--min-size is more than --max-size: nothing can match";
            return Err(Usage(text.to_owned()));
        }
        let (newer, older) = (conditions.newer_than, conditions.older_than);
        if matches!((newer, older), (Some(newer), Some(older)) if newer > older) {
            let text = "--newer-than is after --older-than: nothing can match";
            return Err(Usage(text.to_owned()));
        }
        Ok(conditions)
    }

    /// Is there none? Then everything holds.
    pub fn is_none(options: &FindConditions) -> bool {
        let FindConditions {
            min_size,
            max_size,
            newer_than,
            older_than,
            kinds,
            content_hash,
        } = options;
        let texts = [min_size, max_size, newer_than, older_than, content_hash];
        texts.iter().all(|text| text.is_none()) && kinds.is_empty()
    }

    pub fn hold(&self, entry: &Entry) -> bool {
        let has_bytes = self.bytes_min.is_some() || self.bytes_max.is_some();
        (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            // A size is one of content.
            && (!has_bytes || entry.kind == Kind::File)
            && self.bytes_min.is_none_or(|least| entry.size >= least)
            && self.bytes_max.is_none_or(|most| entry.size <= most)
            && self.newer_than.is_none_or(|time| entry.mtime >= time)
            && self.older_than.is_none_or(|time| entry.mtime <= time)
            && self.content_hash.is_none_or(|hash| entry.content_hash == Some(hash))
    }
}

fn kind(letter: &FindKind) -> Kind {
    match letter {
        FindKind::File => Kind::File,
        FindKind::Directory => Kind::Directory,
        FindKind::Symlink => Kind::Symlink,
        FindKind::BlockDevice => Kind::BlockDevice,
        FindKind::CharDevice => Kind::CharDevice,
        FindKind::Fifo => Kind::Fifo,
        FindKind::Socket => Kind::Socket,
    }
}

fn hash(text: &str) -> Result<[u8; CONTENT_HASH_BYTES], Usage> {
    let digits = text.trim().as_bytes();
    let nibble = |digit: &u8| (*digit as char).to_digit(16).map(|value| value as u8);
    let values: Option<Vec<u8>> = digits.iter().map(nibble).collect();
    let bytes = values.filter(|values| values.len() == 2 * CONTENT_HASH_BYTES);
    let bytes = bytes.ok_or_else(|| {
        Usage(format!(
            "{text:?} is no content hash: give the 32 digits of content_hash, as bale ls --json \
             prints it"
        ))
    })?;
    let mut hash = [0; CONTENT_HASH_BYTES];
    for (byte, pair) in hash.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time {
        seconds: 1_000_000,
        nanos: 0,
    };

    fn file(size: u64, seconds: i64) -> Entry {
        let mut entry = Entry::new(b"d"[..].into(), b"f"[..].into(), Kind::File);
        (entry.size, entry.mtime) = (size, Time { seconds, nanos: 0 });
        entry
    }

    fn holds(options: FindConditions, entry: &Entry) -> bool {
        Conditions::parse(&options, NOW).unwrap().hold(entry)
    }

    #[test]
    fn all_conditions_must_hold_and_bounds_are_in_them() {
        let given = |text: &str| Some(text.to_owned());
        let sizes = || FindConditions {
            min_size: given("1K"),
            max_size: given("2K"),
            ..FindConditions::default()
        };
        for (size, expected) in [(1023, false), (1024, true), (2048, true), (2049, false)] {
            assert_eq!(holds(sizes(), &file(size, 0)), expected, "{size}");
        }
        let mut directory = file(1500, 0);
        directory.kind = Kind::Directory;
        assert!(!holds(sizes(), &directory), "a size is one of content");
        let times = || FindConditions {
            newer_than: given("100s"),
            older_than: given("50s"),
            ..FindConditions::default()
        };
        for (seconds, expected) in [
            (999_899, false),
            (999_900, true),
            (999_950, true),
            (999_951, false),
        ] {
            assert_eq!(holds(times(), &file(1, seconds)), expected, "{seconds}");
        }
        let links = FindConditions {
            kinds: vec![FindKind::Symlink, FindKind::Directory],
            ..FindConditions::default()
        };
        assert!(holds(links.clone(), &directory) && !holds(links, &file(1, 0)));
    }

    #[test]
    fn what_nothing_can_match_is_a_mistake() {
        let given = |text: &str| Some(text.to_owned());
        let none = FindConditions::default;
        for wrong in [
            FindConditions {
                min_size: given("2K"),
                max_size: given("1K"),
                ..none()
            },
            FindConditions {
                newer_than: given("1h"),
                older_than: given("2h"),
                ..none()
            },
            FindConditions {
                newer_than: given("yesterday"),
                ..none()
            },
            FindConditions {
                content_hash: given("12"),
                ..none()
            },
            FindConditions {
                content_hash: given(&"g".repeat(32)),
                ..none()
            },
        ] {
            assert!(Conditions::parse(&wrong, NOW).is_err(), "{wrong:?}");
        }
        let hash = FindConditions {
            content_hash: given(&"0aF1".repeat(8)),
            ..none()
        };
        let mut entry = file(1, 0);
        assert!(!holds(hash.clone(), &entry));
        entry.content_hash = Some([0x0a, 0xf1].repeat(8).try_into().unwrap());
        assert!(holds(hash, &entry));
    }
}
