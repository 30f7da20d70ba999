//! Names from a catalog are foreign words until they have passed here.
//!
//! The decoder refuses bad names too; a restore runs as root in somebody's directory and does not
//! take its word for it. The names that a restore gives of its own are here, too.

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

/// Added to the name of a file of which a part could be had.
const SALVAGE_SUFFIX: &str = ".bale-salvaged";

/// Names that are tried for a salvage.
pub(crate) const SALVAGE_NAMES_MAX: u32 = 100;

/// The salvage's name: the first one, and then numbered ones.
pub(crate) fn salvage_name(name: &[u8], number: u32) -> Vec<u8> {
    let suffix = match number {
        1 => SALVAGE_SUFFIX.to_owned(),
        number => format!("{SALVAGE_SUFFIX}.{number}"),
    };
    let kept = name.len().min(NAME_BYTES_MAX - suffix.len());
    [&name[..kept], suffix.as_bytes()].concat()
}

/// Does a name look like one that a restore gave to a salvage?
pub(crate) fn is_salvage_name(name: &[u8]) -> bool {
    let suffix = SALVAGE_SUFFIX.as_bytes();
    let is_digit_or_dot = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = name.iter().rposition(|byte| !is_digit_or_dot(byte));
    let end = end.map_or(0, |last| last + 1);
    let number = std::str::from_utf8(&name[end..]).unwrap_or_default();
    let is_numbered = || {
        let number = number
            .strip_prefix('.')
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| (2..=SALVAGE_NAMES_MAX).contains(&number))
    };
    name[..end].ends_with(suffix) && (number.is_empty() || is_numbered())
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

    #[test]
    fn names_of_salvages_are_names() {
        assert_eq!(salvage_name(b"a", 1), b"a.bale-salvaged");
        assert_eq!(salvage_name(b"a", 2), b"a.bale-salvaged.2");
        for number in [1, SALVAGE_NAMES_MAX] {
            let name = salvage_name(&[b'x'; 255], number);
            assert_eq!(name.len(), NAME_BYTES_MAX);
            assert!(is_salvage_name(&name));
        }
        for other in [
            "",
            "a",
            ".2",
            "a.2",
            "bale-salvaged",
            "a.bale-salvaged.x",
            "a.bale-salvaged.1",
        ] {
            assert!(!is_salvage_name(other.as_bytes()), "{other}");
        }
    }
}
