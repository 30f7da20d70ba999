//! What the allocator does with memory that was freed.

/// Place of `mi_option_purge_delay` in `mi_option_t` (mimalloc.h of version 2.2, the same in 2.1 and 3.0).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has mimalloc give freed pages back to the system at once, not a while later: threads that free what other threads
/// allocated would otherwise keep tens of megabytes. Does nothing where the process has another allocator.
pub fn return_freed_pages_at_once() {
    // SAFETY: sets a number in a table of the allocator, which checks the index; atomically, at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}
