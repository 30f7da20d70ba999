//! Writing images: in large stretches past the page cache, where a file system takes that, and
//! otherwise so that the page cache gives back what was written.

use bale_sys::buffer::AlignedBuffer;
use rustix::fs::{Advice, OFlags};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// What direct writing asks for: no device has larger blocks.
const PAGE_BYTES: usize = 4096;
/// Smaller writes are gathered by the page cache.
const DIRECT_BYTES_MIN: usize = 256 << 10;
/// Bytes copied at a time to where they are aligned.
const ALIGNED_BYTES: usize = 1 << 20;
/// Writes of at least this much are sent to the device at once, while the next blocks are made, and
/// not at the end.
const SENT_BYTES_MIN: u64 = 1 << 20;
/// What was written longer ago than this is no longer kept in memory: an image is larger than that
/// as a rule.
const KEPT_BYTES: u64 = 64 << 20;

/// Writes large stretches past the page cache, where that is possible: what an image holds is not
/// needed there, and copying it there takes as long as all other work.
pub(crate) struct ImageWriter<F> {
    file: F,
    direct: Option<Direct>,
    sent: Sent,
}

impl<F: Borrow<File>> ImageWriter<F> {
    /// Writes to an open file.
    pub(crate) fn new(file: F) -> ImageWriter<F> {
        ImageWriter {
            direct: Direct::open(file.borrow()).ok(),
            ..ImageWriter::through_cache(file)
        }
    }

    /// The same where what is there is read, too.
    pub(crate) fn through_cache(file: F) -> ImageWriter<F> {
        ImageWriter {
            file,
            direct: None,
            sent: Sent::default(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        self.file.borrow()
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file: &File = self.file.borrow();
        if let Some(direct) = &mut self.direct {
            let (front, back) = whole_pages(offset, bytes.len());
            if back - front < DIRECT_BYTES_MIN {
                return file.write_all_at(bytes, offset);
            }
            let at = |within: usize| offset + within as u64;
            if direct.write(at(front), &bytes[front..back]).is_ok() {
                file.write_all_at(&bytes[..front], offset)?;
                return file.write_all_at(&bytes[back..], at(back));
            }
            // Not every file system takes it; a real fault shows again below.
            self.direct = None;
        }
        let written = file.write_all_at(bytes, offset);
        self.sent.note(file, offset, bytes.len() as u64);
        written
    }
}

/// The part of `len` bytes at `offset` that is whole pages of the file, within these bytes.
fn whole_pages(offset: u64, len: usize) -> (usize, usize) {
    let page = PAGE_BYTES as u64;
    let front = (offset.next_multiple_of(page) - offset) as usize;
    let rest = ((offset + len as u64) % page) as usize;
    match front + rest <= len {
        true => (front, len - rest),
        false => (0, 0),
    }
}

/// A way past the page cache: addresses, offsets and lengths are whole pages.
struct Direct {
    file: File,
    aligned: AlignedBuffer,
}

impl Direct {
    fn open(file: &File) -> io::Result<Direct> {
        let flags = OFlags::DIRECT.bits() as i32;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::options().write(true).custom_flags(flags).open(path)?;
        Ok(Direct {
            file,
            aligned: AlignedBuffer::new(ALIGNED_BYTES),
        })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // Large buffers are aligned by most allocators; a copy is still cheaper than the page
        // cache.
        if bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES) {
            return self.file.write_all_at(bytes, offset);
        }
        let mut offset = offset;
        for part in bytes.chunks(ALIGNED_BYTES) {
            let aligned = &mut self.aligned[..part.len()];
            aligned.copy_from_slice(part);
            self.file.write_all_at(aligned, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }
}

/// Stretches on their way from the page cache to the device.
#[derive(Default)]
struct Sent {
    stretches: VecDeque<(u64, NonZero<u64>)>,
    bytes: u64,
}

impl Sent {
    fn note(&mut self, file: &File, offset: u64, len_bytes: u64) {
        let Some(len) = NonZero::new(len_bytes).filter(|len| len.get() >= SENT_BYTES_MIN) else {
            return;
        };
        self.stretches.push_back((offset, len));
        self.bytes += len_bytes;
        not_needed(file, (offset, len));
        while self.bytes > KEPT_BYTES {
            let Some(oldest) = self.stretches.pop_front() else {
                return;
            };
            self.bytes -= oldest.1.get();
            not_needed(file, oldest);
        }
    }
}

/// What is dirty starts on its way to the device, what is clean leaves the memory. Only advice: an
/// error changes nothing.
fn not_needed(file: &File, (offset, len): (u64, NonZero<u64>)) {
    let _only_advice = rustix::fs::fadvise(file, offset, Some(len), Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stretches of all sizes at all places, over and beside each other, whatever their buffers are
    /// aligned to.
    #[test]
    fn what_was_written_last_is_there_by_either_way() {
        let len = 9 << 20;
        for is_direct in [true, false] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(len as u64).unwrap();
            let mut writer = ImageWriter::new(file.try_clone().unwrap());
            if !is_direct {
                writer.direct = None;
            } else if writer.direct.is_none() {
                println!("SKIPPED: no direct writing in the directory of temporary files");
            }
            let mut expected = vec![0; len];
            let mut state = 3u64;
            for round in 0..200 {
                let mut draw = |below: usize| {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    (state >> 33) as usize % below
                };
                let size = [1024, 4096, DIRECT_BYTES_MIN, 2 << 20][draw(4)] + 1024 * draw(9);
                let unit = [1024, 4096][draw(2)];
                let offset = draw((len - size) / unit) * unit;
                let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + round) as u8).collect();
                writer.write(offset as u64, &bytes).unwrap();
                expected[offset..offset + size].copy_from_slice(&bytes);
            }
            let mut found = vec![0; len];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == expected, "direct: {is_direct}");
        }
    }

    #[test]
    fn whole_pages_lie_within() {
        assert_eq!(whole_pages(0, 8192), (0, 8192));
        assert_eq!(whole_pages(1024, 8192), (3072, 7168));
        assert_eq!(whole_pages(4095, 4098), (1, 4097));
        for (offset, len) in [(1024, 5000), (7, 3), (0, 4095), (4095, 4096), (5, 0)] {
            let (front, back) = whole_pages(offset, len);
            assert!(front == back && back <= len, "{offset} {len}");
        }
    }
}
