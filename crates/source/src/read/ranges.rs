//! Which ranges of a file hold data, and reading around what the device cannot give.

use super::SALVAGE_BYTES;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// The next range of data that begins at or after `from` and before `end`. `None`: a hole up to
/// `end`.
///
/// The map is asked for range by range, so a file of a billion extents takes no memory.
pub(crate) fn next_data(
    fd: BorrowedFd<'_>,
    from: u64,
    end: u64,
) -> rustix::io::Result<Option<Range<u64>>> {
    if from >= end {
        return Ok(None);
    }
    let start = match rustix::fs::seek(fd, SeekFrom::Data(from)) {
        Ok(start) if start < end => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        // A file system without a map: all is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(from..end)),
        Err(errno) => return Err(errno),
    };
    let stop = match rustix::fs::seek(fd, SeekFrom::Hole(start)) {
        Ok(stop) => stop.min(end),
        Err(_) => end,
    };
    Ok(Some(start.max(from)..stop.max(start + 1)))
}

/// What a read of a range gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Bytes in the buffer; fewer than asked for: the file ends there.
    pub(crate) len: usize,
    /// Ranges of the buffer that could not be read and are zero.
    pub(crate) bad: Vec<Range<usize>>,
    /// The first reason.
    pub(crate) error: Option<Errno>,
}

/// Fills `buffer` from `offset`, at least up to `enough` bytes: a direct read cannot go on after
/// the end of a file, where nothing is aligned any more. Errors other than of the device are
/// returned at once.
pub(crate) fn read_range(
    fd: impl AsFd,
    offset: u64,
    buffer: &mut [u8],
    enough: usize,
) -> Result<Filled, Errno> {
    read_range_with(offset, buffer, enough, |buffer, at| {
        rustix::io::pread(&fd, buffer, at)
    })
}

fn read_range_with(
    offset: u64,
    buffer: &mut [u8],
    enough: usize,
    read: impl Fn(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<Filled, Errno> {
    let mut filled = Filled::default();
    while filled.len < enough.min(buffer.len()) {
        let at = filled.len;
        match read(&mut buffer[at..], offset + at as u64) {
            Ok(0) => break,
            Ok(got) => filled.len += got,
            Err(Errno::INTR) => {}
            Err(errno) if is_of_device(errno) => {
                filled.error.get_or_insert(errno);
                if !salvage(offset, buffer, &mut filled, &read)? {
                    break;
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Reads step by step up to the end of the buffer. False: the file ended.
fn salvage(
    offset: u64,
    buffer: &mut [u8],
    filled: &mut Filled,
    read: &impl Fn(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<bool, Errno> {
    while filled.len < buffer.len() {
        let at = filled.len;
        let position = offset + at as u64;
        let step = SALVAGE_BYTES - (position % SALVAGE_BYTES as u64) as usize;
        let end = (at + step).min(buffer.len());
        match read(&mut buffer[at..end], position) {
            Ok(0) => return Ok(false),
            Ok(got) => filled.len += got,
            Err(Errno::INTR) => {}
            Err(errno) if is_of_device(errno) => {
                buffer[at..end].fill(0);
                match filled.bad.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => filled.bad.push(at..end),
                }
                filled.len = end;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

/// Errors of a place, not of a file: bad sectors, failed checksums, lost servers.
fn is_of_device(errno: Errno) -> bool {
    const EUCLEAN: i32 = 117;
    matches!(
        errno,
        Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::ILSEQ | Errno::REMOTEIO
    ) || errno.raw_os_error() == EUCLEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `len` bytes of value 7 in which reads that touch `bad` fail.
    fn device(len: u64, bad: Range<u64>) -> impl Fn(&mut [u8], u64) -> Result<usize, Errno> {
        move |buffer, at| {
            let end = (at + buffer.len() as u64).min(len);
            if at >= end {
                return Ok(0);
            }
            if at < bad.end && bad.start < end {
                return Err(Errno::IO);
            }
            buffer[..(end - at) as usize].fill(7);
            Ok((end - at) as usize)
        }
    }

    #[test]
    fn everything_around_a_bad_place_is_read_and_the_place_is_named() {
        let mut buffer = vec![1; 64 << 10];
        let filled =
            read_range_with(4096, &mut buffer, 64 << 10, device(1 << 20, 20000..20001)).unwrap();
        assert_eq!(filled.len, buffer.len());
        assert_eq!(
            filled.bad,
            [Range {
                start: 12288,
                end: 16384
            }]
        );
        assert_eq!(filled.error, Some(Errno::IO));
        assert!(buffer[12288..16384].iter().all(|byte| *byte == 0));
        assert!(
            buffer[..12288]
                .iter()
                .chain(&buffer[16384..])
                .all(|byte| *byte == 7)
        );
    }

    #[test]
    fn a_bad_end_is_bad_only_up_to_the_end_asked_for() {
        let mut buffer = vec![1; 10_000];
        let filled =
            read_range_with(0, &mut buffer, 10_000, device(10_000, 9_000..10_000)).unwrap();
        assert_eq!(filled.len, 10_000);
        assert_eq!(
            filled.bad,
            [Range {
                start: 8192,
                end: 10_000
            }]
        );
    }

    #[test]
    fn a_file_shorter_than_asked_for_gives_what_it_has() {
        let mut buffer = vec![1; 10_000];
        let filled = read_range_with(0, &mut buffer, 10_000, device(6_000, 4096..4097)).unwrap();
        assert_eq!(
            filled.bad,
            [Range {
                start: 4096,
                end: 8192
            }]
        );
        assert!(filled.len >= 6_000);
        let filled = read_range_with(0, &mut buffer, 10_000, device(6_000, 0..0)).unwrap();
        assert_eq!(filled.len, 6_000);
    }
}
