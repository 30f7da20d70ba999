//! Memory from the system: large blocks in huge pages, and freed pages back at once.

use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout};

/// A huge page of the common processors. Where they are larger, or refused, blocks have pages of the usual size.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An allocator whose blocks of [`HUGE_PAGE_BYTES`] and more are in huge pages. The buffers that all data goes through are
/// few and large, and a virtual machine spends a tenth of its time on finding their pages where these have 4 KiB
/// (docs/PERF.md). Nothing is
/// asked for what is smaller: huge pages of which a part is used would take a third more memory.
pub struct LargeInHugePages<A>(pub A);

/// As it is asked of the allocator behind.
fn asked(layout: Layout) -> Layout {
    let huge = || {
        let bytes = layout.size().checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        Layout::from_size_align(bytes, layout.align().max(HUGE_PAGE_BYTES)).ok()
    };
    match layout.size() {
        0..HUGE_PAGE_BYTES => layout,
        _ => huge().unwrap_or(layout),
    }
}

/// Tells the system which pages a large block is to have.
fn advise(block: *mut u8, asked: Layout, advice: Advice) {
    if !block.is_null() && asked.size() >= HUGE_PAGE_BYTES {
        // SAFETY: whole pages of a block that is allocated; the advice changes nothing that is in them. A refusal leaves
        // them as they are.
        let _pages_as_usual = unsafe { madvise(block.cast(), asked.size(), advice) };
    }
}

fn advised(block: *mut u8, asked: Layout) -> *mut u8 {
    advise(block, asked, Advice::LinuxHugepage);
    block
}

/// Blocks below this are asked for where nobody can do without.
const NEEDED_BYTES: usize = 1 << 20;

/// A small block, or the end of the process with a word to the user. The standard library would abort, after trying to say
/// so in memory that is not there. A large block may be refused: some callers ask for less then.
fn or_end(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() && bytes < NEEDED_BYTES {
        let text = b"bale: out of memory. What was committed is safe, and the rest is done by the same command again; a limit \
of the address space (ulimit -v) has to be 2 GiB at least, with many processors more\n";
        // SAFETY: the text is that long; then the process ends, and nothing of it runs any more.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(1)
        }
    }
    block
}

/// Where the address space is limited, threads share what the C library reserves for them: by default it is 64 MiB for each.
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

// SAFETY: blocks come from the allocator behind and go back to it, with the same layout made of the same one; that layout
// is never smaller, nor less aligned, than what was asked for.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LargeInHugePages<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let asked = asked(layout);
        // SAFETY: as the caller promises; a larger size is not zero either.
        or_end(
            advised(unsafe { self.0.alloc(asked) }, asked),
            layout.size(),
        )
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < HUGE_PAGE_BYTES {
            // SAFETY: as the caller promises.
            return or_end(unsafe { self.0.alloc_zeroed(layout) }, layout.size());
        }
        // The allocator behind would touch the pages before they are advised.
        // SAFETY: as in `alloc`; the block is that long.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let asked = asked(layout);
        advise(block, asked, Advice::LinuxNoHugepage);
        // SAFETY: it was allocated with this layout, so with what is asked for it.
        unsafe { self.0.dealloc(block, asked) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout.
        let grown = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        let (before, after) = (asked(layout), asked(grown));
        if before == after {
            return block;
        }
        if layout.size().max(bytes) < HUGE_PAGE_BYTES {
            // SAFETY: as the caller promises.
            return or_end(unsafe { self.0.realloc(block, layout, bytes) }, bytes);
        }
        // SAFETY: the new block is another one; both are at least as long as what is copied.
        unsafe {
            let new = self.alloc(grown);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Place of `mi_option_purge_delay` in `mi_option_t` (mimalloc.h of version 2.2, the same in 2.1 and 3.0).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has mimalloc give freed pages back to the system at once, not a while later: threads that free what other threads
/// allocated would otherwise keep tens of megabytes. Does nothing where the process has another allocator.
pub fn return_freed_pages_at_once() {
    // SAFETY: sets a number in a table of the allocator, which checks the index; atomically, at any time.
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
    fn large_blocks_are_whole_huge_pages_and_small_ones_as_asked() {
        let rounded = |bytes| (asked(layout(bytes)).size(), asked(layout(bytes)).align());
        assert_eq!(rounded(HUGE_PAGE_BYTES - 1), (HUGE_PAGE_BYTES - 1, 8));
        assert_eq!(rounded(HUGE_PAGE_BYTES), (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES));
        let more = HUGE_PAGE_BYTES + 1;
        assert_eq!(rounded(more), (2 * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES));
        let far = Layout::from_size_align(more, 4 * HUGE_PAGE_BYTES).unwrap();
        assert_eq!(asked(far).align(), 4 * HUGE_PAGE_BYTES);
        let most = layout(isize::MAX as usize - 7);
        assert_eq!(
            asked(most),
            most,
            "what cannot be rounded is refused behind"
        );
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
