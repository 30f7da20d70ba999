//! Memory from the system: large blocks in huge pages, and freed pages back at once.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

/// A huge page of the common processors. Where they are larger, or refused, blocks have pages of
/// the usual size.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An allocator whose blocks of [`HUGE_PAGE_BYTES`] and more come from the system, each by itself,
/// in huge pages. The buffers that all data goes through are few and large, and a virtual machine
/// spends a tenth of its time on finding their pages where these have 4 KiB (docs/PERF.md). Freed,
/// they are the system's again at once: an allocator keeps some for each thread, and what another
/// thread freed until their own comes by. Nothing is asked for what is smaller: huge pages of which
/// a part is used would take a third more memory.
pub struct LargeInHugePages<A>(pub A);

/// Blocks from here to [`HUGE_PAGE_BYTES`] are middle ones: most chunks of large files.
const MIDDLE_BYTES_MIN: usize = 256 << 10;

/// Where middle blocks come from: fixed at the first of them at the latest, so that each goes back
/// to where it came from.
struct MiddleBlocks(AtomicU8);

static MIDDLE_BLOCKS: MiddleBlocks = MiddleBlocks(AtomicU8::new(MiddleBlocks::OPEN));

impl MiddleBlocks {
    const OPEN: u8 = 0;
    const BEHIND: u8 = 1;
    const MAPPED: u8 = 2;

    /// What they come from now and ever.
    fn settle(&self, on: u8) -> u8 {
        let order = Ordering::Relaxed;
        match self.0.load(order) {
            Self::OPEN => match self.0.compare_exchange(Self::OPEN, on, order, order) {
                Ok(_) => on,
                Err(settled) => settled,
            },
            settled => settled,
        }
    }
}

/// Has middle blocks come from the system too, each by itself, in pages of the usual size. The
/// allocator behind keeps freed ones of each size for each thread, and what another thread freed:
/// up to 80 MiB more than is in use where chunks go from thread to thread. It takes time to fault
/// their pages in anew, so this is for those who have little memory. Does nothing once there was
/// such a block.
pub fn return_middle_blocks_at_once() {
    MIDDLE_BLOCKS.settle(MiddleBlocks::MAPPED);
}

/// Bytes that a block has from the system, in whole pages; `None`: it comes from the allocator
/// behind.
#[inline]
fn mapped_bytes(layout: Layout) -> Option<usize> {
    // Asked for every block, and nearly all are small.
    match layout.size() {
        ..MIDDLE_BYTES_MIN => None,
        _ => mapped_bytes_of_large(layout),
    }
}

fn mapped_bytes_of_large(layout: Layout) -> Option<usize> {
    let comes_from_system = match layout.size() {
        ..HUGE_PAGE_BYTES => MIDDLE_BLOCKS.settle(MiddleBlocks::BEHIND) == MiddleBlocks::MAPPED,
        _ => true,
    };
    let is_large = comes_from_system && layout.align() <= page_size_of(layout.size());
    let bytes = layout.size().checked_next_multiple_of(page_size());
    bytes.filter(|bytes| is_large && *bytes < isize::MAX as usize - HUGE_PAGE_BYTES)
}

/// What a mapped block is a multiple of.
fn page_size_of(bytes: usize) -> usize {
    match bytes < HUGE_PAGE_BYTES {
        true => page_size(),
        false => HUGE_PAGE_BYTES,
    }
}

/// Pages of zeros, at a multiple of what [`page_size_of`] says; null if the system has none. What
/// does not fill a huge page at the end has pages of the usual size, so that no more is taken than
/// is used.
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: new pages, which nobody knows of; those that are given back are of these, and have
    // not been used.
    unsafe {
        let Some(exact) = map_anywhere(bytes) else {
            return null_mut();
        };
        if bytes < HUGE_PAGE_BYTES {
            return exact;
        }
        let block = match exact.addr().is_multiple_of(HUGE_PAGE_BYTES) {
            true => exact,
            false => {
                unmap(exact, bytes);
                let Some(wide) = map_anywhere(bytes + HUGE_PAGE_BYTES) else {
                    return null_mut();
                };
                let before = wide.addr().next_multiple_of(HUGE_PAGE_BYTES) - wide.addr();
                let block = wide.byte_add(before);
                unmap(wide, before);
                unmap(block.byte_add(bytes), HUGE_PAGE_BYTES - before);
                block
            }
        };
        let huge = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        // Where it is refused, pages are as usual.
        let _pages_as_usual = madvise(block.cast(), huge, Advice::LinuxHugepage);
        block
    }
}

/// # Safety
///
/// As `mmap` of new pages: none.
unsafe fn map_anywhere(bytes: usize) -> Option<*mut u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the system chooses a place where nothing is.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, access, flags) };
    mapped.ok().map(|pages| pages.cast())
}

/// # Safety
///
/// Nobody may use these pages any more.
unsafe fn unmap(pages: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises. It fails only where the system cannot split its list;
        // then they are lost.
        let _lost = unsafe { munmap(pages.cast(), bytes) };
    }
}

/// Blocks below this are asked for where nobody can do without.
const NEEDED_BYTES: usize = 1 << 20;

/// A small block, or the end of the process with a word to the user. The standard library would
/// abort, after trying to say so in memory that is not there. A large block may be refused: some
/// callers ask for less then.
fn or_end(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() && bytes < NEEDED_BYTES {
        let text = b"bale: out of memory. What was committed is safe, and the rest is done by the \
            same command again; a limit of the address space (ulimit -v) has to be 2 GiB at least, \
            with many processors more\n";
        // SAFETY: the text is that long; then the process ends, and nothing of it runs any more.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(1)
        }
    }
    block
}

/// Where the address space is limited, threads share what the C library reserves for them: by
/// default it is 64 MiB for each.
pub fn spare_address_space() {
    #[cfg(target_env = "gnu")]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::As);
        if limit.current.is_some() {
            // SAFETY: sets a number of the C library's allocator; no other thread runs yet.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }
}

// SAFETY: a block comes from the system or from the allocator behind and goes back to where it came
// from, which its layout tells; that of the system is whole pages, at a multiple of more than any
// layout here asks for.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LargeInHugePages<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match mapped_bytes(layout) {
            Some(bytes) => map(bytes),
            // SAFETY: as the caller promises.
            None => or_end(unsafe { self.0.alloc(layout) }, layout.size()),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match mapped_bytes(layout) {
            Some(bytes) => map(bytes),
            // SAFETY: as the caller promises.
            None => or_end(unsafe { self.0.alloc_zeroed(layout) }, layout.size()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: it was allocated with this layout, so it came from where it goes; nobody uses it
        // any more.
        unsafe {
            match mapped_bytes(layout) {
                Some(bytes) => unmap(block, bytes),
                None => self.0.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout.
        let grown = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (mapped_bytes(layout), mapped_bytes(grown)) {
            // SAFETY: as the caller promises.
            (None, None) => or_end(unsafe { self.0.realloc(block, layout, bytes) }, bytes),
            (before, after) if before == after => block,
            // SAFETY: the new block is another one; both are at least as long as what is copied.
            _ => unsafe {
                let new = self.alloc(grown);
                if !new.is_null() {
                    new.copy_from_nonoverlapping(block, layout.size().min(bytes));
                    self.dealloc(block, layout);
                }
                new
            },
        }
    }
}

/// Place of `mi_option_purge_delay` in `mi_option_t` (mimalloc.h of version 2.2, the same in 2.1
/// and 3.0).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has mimalloc give freed pages back to the system at once, not a while later: threads that free
/// what other threads allocated would otherwise keep tens of megabytes. Does nothing where the
/// process has another allocator.
pub fn return_freed_pages_at_once() {
    // SAFETY: sets a number in a table of the allocator, which checks the index; atomically, at any
    // time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    const ALLOCATOR: LargeInHugePages<System> = LargeInHugePages(System);
    const KIB: usize = 1 << 10;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).unwrap()
    }

    #[test]
    fn large_blocks_are_whole_pages_of_the_system_and_small_ones_as_asked() {
        let bytes = |bytes| mapped_bytes(layout(bytes));
        assert_eq!(bytes(HUGE_PAGE_BYTES - 1), None);
        assert_eq!(bytes(HUGE_PAGE_BYTES), Some(HUGE_PAGE_BYTES));
        let more = HUGE_PAGE_BYTES + 1;
        assert_eq!(bytes(more), Some(HUGE_PAGE_BYTES + page_size()));
        let far = Layout::from_size_align(more, 2 * HUGE_PAGE_BYTES).unwrap();
        assert_eq!(mapped_bytes(far), None, "the system does not promise it");
        assert_eq!(bytes(isize::MAX as usize - 7), None, "refused behind");
    }

    #[test]
    fn where_middle_blocks_come_from_is_settled_once() {
        let blocks = MiddleBlocks(AtomicU8::new(MiddleBlocks::OPEN));
        assert_eq!(blocks.settle(MiddleBlocks::MAPPED), MiddleBlocks::MAPPED);
        assert_eq!(blocks.settle(MiddleBlocks::BEHIND), MiddleBlocks::MAPPED);
        let blocks = MiddleBlocks(AtomicU8::new(MiddleBlocks::OPEN));
        assert_eq!(blocks.settle(MiddleBlocks::BEHIND), MiddleBlocks::BEHIND);
        assert_eq!(blocks.settle(MiddleBlocks::MAPPED), MiddleBlocks::BEHIND);
    }

    #[test]
    fn a_large_block_is_given_back_at_once() {
        let bytes = 64 << 20;
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
            pages * page_size()
        };
        // SAFETY: the block is used within its size, and freed once.
        let (before, with) = unsafe {
            let block = ALLOCATOR.alloc(layout(bytes));
            block.write_bytes(1, bytes);
            let with = resident();
            ALLOCATOR.dealloc(block, layout(bytes));
            (with - bytes / 2, with)
        };
        assert!(resident() < before, "{} of {with}", resident());
    }

    #[test]
    fn blocks_keep_their_bytes_while_they_grow_and_shrink() {
        let sizes = [
            100,
            1500 * KIB,
            2048 * KIB,
            2049 * KIB,
            4000 * KIB,
            9000 * KIB,
            2100 * KIB,
            5 * KIB,
        ];
        // SAFETY: the block is used within its size, and freed once, with the layout it has then.
        unsafe {
            let mut bytes = sizes[0];
            let mut block = ALLOCATOR.alloc_zeroed(layout(bytes));
            for (turn, next) in sizes.into_iter().enumerate() {
                block = ALLOCATOR.realloc(block, layout(bytes), next);
                let kept = std::slice::from_raw_parts(block, bytes.min(next).min(100));
                assert_eq!(kept, vec![turn as u8; kept.len()]);
                bytes = next;
                block.write_bytes(turn as u8 + 1, bytes);
            }
            ALLOCATOR.dealloc(block, layout(bytes));
        }
    }

    #[test]
    fn zeroed_blocks_are_zero_also_where_others_were() {
        for _ in 0..3 {
            let bytes = 5 * HUGE_PAGE_BYTES / 2;
            // SAFETY: as above.
            unsafe {
                let block = ALLOCATOR.alloc_zeroed(layout(bytes));
                let read = std::slice::from_raw_parts_mut(block, bytes);
                assert!(block.addr().is_multiple_of(HUGE_PAGE_BYTES));
                assert!(read.iter().all(|byte| *byte == 0));
                read.fill(7);
                ALLOCATOR.dealloc(block, layout(bytes));
            }
        }
    }
}
