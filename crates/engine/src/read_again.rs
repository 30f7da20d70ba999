//! Before something is replaced since it was read damaged: a store, or the way to it, may garble an
//! answer now and then, and what is stored is whole.

use bale_repository::repository::READS_BEFORE_MENDING;

/// What is found, read again while it is bad: the first that is not, or the last of so many.
pub(crate) fn unless_always<T>(is_bad: impl Fn(&T) -> bool, mut read: impl FnMut() -> T) -> T {
    let mut found = read();
    for _ in 1..READS_BEFORE_MENDING {
        if !is_bad(&found) {
            break;
        }
        found = read();
    }
    found
}
