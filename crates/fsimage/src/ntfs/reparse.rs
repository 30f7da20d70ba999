//! Reparse points that are links: symbolic links of Windows and of Linux on Windows, and junctions.

use super::bytes::{u16_at, u32_at};
use super::names::text_at;

const SYMLINK: u32 = 0xa000_000c;
const JUNCTION: u32 = 0xa000_0003;
const LINUX_SYMLINK: u32 = 0xa000_001d;
/// Of the flags of a symbolic link: its target begins where it is.
const RELATIVE: u32 = 1;
const HEAD_BYTES: usize = 8;
const LINUX_HEAD_BYTES: usize = 4;

/// Longer values are of no link.
pub(super) const REPARSE_BYTES_MAX: u64 = 64 << 10;

/// The target of a link; `None` if the point is none, or is damaged. One that begins where the link
/// is, is a path of Linux as well, and others are as Windows shows them, with backslashes.
pub(super) fn link_target(value: &[u8]) -> Option<Vec<u8>> {
    let tag = u32_at(value, 0)?;
    let len = usize::from(u16_at(value, 4)?);
    let data = value.get(HEAD_BYTES..)?.get(..len)?;
    let names_at = match tag {
        SYMLINK => 12,
        JUNCTION => 8,
        LINUX_SYMLINK => {
            let target = data.get(LINUX_HEAD_BYTES..)?;
            let is_good = !target.is_empty() && !target.contains(&0);
            return is_good.then(|| target.to_vec());
        }
        _ => return None,
    };
    let name = |at: usize| {
        let start = names_at + usize::from(u16_at(data, at)?);
        text_at(data, start, usize::from(u16_at(data, at + 2)?))
    };
    // The name that is shown, else the one that Windows follows.
    let mut target = name(4)
        .filter(|name| !name.is_empty())
        .or_else(|| name(0))
        .filter(|name| !name.is_empty() && !name.contains(&0))?;
    if tag == SYMLINK && u32_at(data, 8)? & RELATIVE != 0 {
        let slashes = target.iter_mut().filter(|byte| **byte == b'\\');
        slashes.for_each(|byte| *byte = b'/');
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(tag: u32, flags: &[u8], followed: &str, shown: &str) -> Vec<u8> {
        let units =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        let (followed, shown) = (units(followed), units(shown));
        let mut data = Vec::new();
        for number in [0, followed.len(), followed.len(), shown.len()] {
            data.extend((number as u16).to_le_bytes());
        }
        data.extend(flags);
        data.extend(followed);
        data.extend(shown);
        let head = [
            &tag.to_le_bytes()[..],
            &(data.len() as u16).to_le_bytes(),
            &[0, 0],
        ];
        [head.concat(), data].concat()
    }

    #[test]
    fn links_lead_where_windows_shows_that_they_do() {
        let symlink = point(SYMLINK, &[0, 0, 0, 0], r"\??\C:\ä", r"C:\ä");
        assert_eq!(link_target(&symlink).unwrap(), r"C:\ä".as_bytes());
        let relative = point(SYMLINK, &[1, 0, 0, 0], r"..\ä\b", r"..\ä\b");
        assert_eq!(link_target(&relative).unwrap(), "../ä/b".as_bytes());
        let junction = point(JUNCTION, &[], r"\??\C:\b", "");
        assert_eq!(link_target(&junction).unwrap(), br"\??\C:\b");
        let linux = [
            &LINUX_SYMLINK.to_le_bytes()[..],
            &[7, 0, 0, 0],
            &[2, 0, 0, 0],
            b"a/b",
        ];
        assert_eq!(link_target(&linux.concat()).unwrap(), b"a/b");
        assert_eq!(link_target(&point(0x8000_0017, &[], "x", "y")), None);
        for end in 0..symlink.len() {
            assert_eq!(link_target(&symlink[..end]), None);
        }
    }
}
