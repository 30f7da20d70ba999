//! Who uses a target that is shared with other machines, of which this one knows nothing.

use bale_fsimage::ByteSource;
use bale_fsimage::ext4::user_elsewhere;
use bale_sys::cache::forget_cached;
use std::fs::File;
use std::io;

/// What is on the device, whatever the page cache holds.
struct Uncached<'a>(&'a File);

impl ByteSource for Uncached<'_> {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        forget_cached(self.0);
        self.0.read_exact_at(offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
}

/// Text that follows the path of the target: an ext4 file system with `mmp` is on it, and another
/// machine has it mounted, or checks it. May wait for minutes.
pub(crate) fn user_of_shared(target: &File) -> io::Result<Option<&'static str>> {
    user_elsewhere(&Uncached(target))
}
