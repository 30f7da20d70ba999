//! Files whose presence leaves out the rest of their directory.

use bale_sys::open::{open_beneath, open_for_reading};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

/// First bytes of a `CACHEDIR.TAG` that is one.
const CACHEDIR_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// Longest header that is compared.
const HEADER_BYTES_MAX: usize = 4096;

/// A file name and how the file must begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    file: CString,
    header: Vec<u8>,
}

impl Mark {
    /// From `FILE` or `FILE:header`. `None` if the name cannot be one.
    pub fn parse(text: &[u8]) -> Option<Mark> {
        let colon = text.iter().position(|byte| *byte == b':');
        let (file, header) = match colon {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &[][..]),
        };
        let bad = file.is_empty() || file == b"." || file == b".." || file.contains(&b'/');
        if bad || header.len() > HEADER_BYTES_MAX {
            return None;
        }
        Some(Mark {
            file: CString::new(file).ok()?,
            header: header.to_vec(),
        })
    }

    /// `--exclude-caches`.
    pub fn cachedir() -> Mark {
        Mark {
            file: c"CACHEDIR.TAG".into(),
            header: CACHEDIR_SIGNATURE.to_vec(),
        }
    }

    pub fn file(&self) -> &CStr {
        &self.file
    }

    /// How the file must begin; empty: anyhow.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Does the subdirectory `name` bear this mark?
    pub fn is_in(&self, directory: BorrowedFd<'_>, name: &CStr) -> bool {
        let Ok(stat) = self.stat_in(directory, name, StatxFlags::TYPE) else {
            return false;
        };
        let regular = stat.stx_mode & 0o170000 == 0o100000;
        self.header.is_empty() || regular && self.header_is_in(directory, name)
    }

    /// Owner of the file in the subdirectory `name`; `None`: it cannot be said.
    pub fn owner_in(&self, directory: BorrowedFd<'_>, name: &CStr) -> Option<u32> {
        let stat = self.stat_in(directory, name, StatxFlags::UID).ok()?;
        Some(stat.stx_uid)
    }

    fn stat_in(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        mask: StatxFlags,
    ) -> rustix::io::Result<Statx> {
        let mut path = name.to_bytes().to_vec();
        path.push(b'/');
        path.extend_from_slice(self.file.to_bytes());
        let path = CString::new(path).expect("made of C strings");
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(directory, &path, flags, mask)
    }

    fn header_is_in(&self, directory: BorrowedFd<'_>, name: &CStr) -> bool {
        let way = OFlags::PATH | OFlags::DIRECTORY;
        let open = open_beneath(directory, name, way, Mode::empty())
            .and_then(|inner| open_for_reading(inner.as_fd(), &self.file, OFlags::empty()));
        let Ok(fd) = open else {
            return false;
        };
        let mut start = vec![0; self.header.len()];
        let mut filled = 0;
        while filled < start.len() {
            match rustix::io::pread(&fd, &mut start[filled..], filled as u64) {
                Ok(0) | Err(_) => return false,
                Ok(read) => filled += read,
            }
        }
        start == self.header
    }
}
