//! Opening a large file: direct reads where they pay, a map of holes where it is believed.

use crate::read::ranges::next_data;
use crate::read::{refresh, settle, stat_of, wait_for_writers};
use crate::scan::Directory;
use bale_format::entry::Entry;
use bale_sys::buffer::ALIGNMENT;
use bale_sys::cache::cachestat;
use rustix::fs::{OFlags, Statx, StatxFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Blocks beyond its data that a file may have (extent maps, preallocation) before a map that tells
/// of no data at all is not believed.
const BLOCKS_WITHOUT_DATA_BYTES_MAX: u64 = 64 << 10;

/// A large file that was opened.
pub(super) struct OpenedFile {
    pub(super) file: OwnedFd,
    pub(super) stat: Statx,
    /// Reads go past the page cache.
    pub(super) direct: bool,
    /// Somebody may write to it, and its stamps may not show that.
    pub(super) unproven: bool,
}

/// Opens for direct reads unless much of the file is in the page cache anyway, or the file system
/// has none.
pub(super) fn open_file(directory: &Arc<Directory>, entry: &mut Entry) -> io::Result<OpenedFile> {
    let file = directory.open_file(entry)?;
    let mut stat = stat_of(file.as_fd())?;
    refresh(entry, &stat)?;
    let mut unproven = false;
    if wait_for_writers(file.as_fd(), entry) {
        unproven = !settle(file.as_fd(), entry)?;
        stat = stat_of(file.as_fd())?;
        refresh(entry, &stat)?;
    }
    let direct = wants_direct(&file, &stat) && set_direct(&file).is_ok();
    Ok(OpenedFile {
        file,
        stat,
        direct,
        unproven,
    })
}

fn wants_direct(file: &OwnedFd, stat: &Statx) -> bool {
    let known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let alignment = stat.stx_dio_offset_align.max(stat.stx_dio_mem_align) as usize;
    if known && (alignment == 0 || alignment > ALIGNMENT) {
        return false;
    }
    let page_bytes = rustix::param::page_size() as u64;
    match cachestat(file.as_fd(), 0, 0) {
        Ok(cache) => cache.cached.saturating_mul(page_bytes) < stat.stx_size / 2,
        Err(_) => true,
    }
}

fn set_direct(file: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)
}

/// A map of holes is asked for only of what is on disk: bytes that wait to be written were missing
/// from it on some file systems. And a map without any data is not believed of a file that has
/// blocks.
pub(crate) fn map_is_sane(file: &impl AsFd, stat: &Statx) -> bool {
    // A file system that cannot write back has nothing waiting.
    let _ = rustix::fs::fdatasync(file);
    match next_data(file.as_fd(), 0, stat.stx_size) {
        Ok(Some(_)) => true,
        Ok(None) => stat.stx_blocks.saturating_mul(512) <= BLOCKS_WITHOUT_DATA_BYTES_MAX,
        Err(_) => false,
    }
}
