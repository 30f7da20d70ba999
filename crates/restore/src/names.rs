//! Names from a catalog are foreign words until they have passed here.
//!
//! The decoder refuses bad names too; a restore runs as root in somebody's directory and does not
//! take its word for it.

/// Linux' `NAME_MAX`.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadName {
    /// Nothing names nothing.
    #[error("empty name")]
    Empty,
    /// `.` and `..` lead elsewhere.
    #[error("name is . or ..")]
    Dots,
    /// A slash would be a path.
    #[error("name contains a slash")]
    Slash,
    /// A zero byte would end it early.
    #[error("name contains a zero byte")]
    Zero,
    /// No file system takes it.
    #[error("name is longer than 255 bytes")]
    Long,
}

/// Is this one component that leads exactly one step down?
pub(crate) fn check_name(name: &[u8]) -> Result<(), BadName> {
    match name {
        b"" => return Err(BadName::Empty),
        b"." | b".." => return Err(BadName::Dots),
        _ => {}
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(BadName::Long);
    }
    match name.iter().find(|byte| matches!(byte, b'/' | 0)) {
        Some(0) => Err(BadName::Zero),
        Some(_) => Err(BadName::Slash),
        None => Ok(()),
    }
}

/// Is this empty, or components separated by single slashes, none at the ends?
pub(crate) fn check_path(path: &[u8]) -> Result<(), BadName> {
    if path.is_empty() {
        return Ok(());
    }
    path.split(|byte| *byte == b'/').try_for_each(check_name)
}

/// How our own temporary names begin and end.
const PART_PREFIX: &[u8] = b".bale-";
const PART_SUFFIX: &[u8] = b".part";
const PART_DIGITS: usize = 16;

/// The name under which `name` is written until it is whole: always the same, so that a later run
/// finds and removes it.
pub fn part_name(name: &[u8]) -> Vec<u8> {
    let hash = blake3::hash(name);
    let mut part = Vec::with_capacity(PART_PREFIX.len() + PART_DIGITS + PART_SUFFIX.len());
    part.extend_from_slice(PART_PREFIX);
    part.extend_from_slice(&hash.to_hex().as_bytes()[..PART_DIGITS]);
    part.extend_from_slice(PART_SUFFIX);
    part
}

/// Could `name` be a temporary name of ours? Entries that are so called are restored after all
/// others.
pub(crate) fn is_part_name(name: &[u8]) -> bool {
    name.len() == PART_PREFIX.len() + PART_DIGITS + PART_SUFFIX.len()
        && name.starts_with(PART_PREFIX)
        && name.ends_with(PART_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (name, why) in [
            (&b""[..], BadName::Empty),
            (b".", BadName::Dots),
            (b"..", BadName::Dots),
            (b"/etc", BadName::Slash),
            (b"a/b", BadName::Slash),
            (b"a\0b", BadName::Zero),
        ] {
            assert_eq!(check_name(name), Err(why), "{name:?}");
        }
        assert_eq!(check_name(&[b'x'; 256]), Err(BadName::Long));
        for name in [&b"-rf"[..], b"...", b" ", b"\x1b[31m", b"\xff\xfe", b"a\nb"] {
            assert_eq!(check_name(name), Ok(()));
        }
    }

    #[test]
    fn paths_are_checked_step_by_step() {
        assert!(check_path(b"").is_ok());
        assert!(check_path(b"a/b/c").is_ok());
        for path in [&b"/a"[..], b"a/", b"a//b", b"a/../b", b"..", b"a/./b"] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn temporary_names_are_known_again() {
        assert!(is_part_name(&part_name(b"x")));
        assert_ne!(part_name(b"x"), part_name(b"y"));
        assert!(!is_part_name(b"x"));
    }
}
