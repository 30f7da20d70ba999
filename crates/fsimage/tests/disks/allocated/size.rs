//! What it takes to look at large disks: reads of metadata, a bounded number of bytes.

use super::image::{Image, can_run, run};
use bale_fsimage::ByteSource;
use bale_fsimage::allocated::AllocatedRanges;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is read.
struct Counted {
    file: std::fs::File,
    bytes: AtomicU64,
    longest: AtomicU64,
}

impl ByteSource for Counted {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.longest.fetch_max(buf.len() as u64, Ordering::Relaxed);
        self.file.read_exact_at(offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }
}

fn takes_little(bytes: u64, words: &[&str], read_max: u64) {
    let image = Image::new(bytes);
    let name = image.name();
    run(words[0], &[&words[1..], &[&name]].concat());
    let counted = Arc::new(Counted {
        file: image.file(),
        bytes: AtomicU64::new(0),
        longest: AtomicU64::new(0),
    });
    let mut ranges = AllocatedRanges::of(counted.clone(), None);
    let allocated: u64 = ranges.by_ref().map(|range| range.end - range.start).sum();
    let part = &ranges.parts()[0];
    assert!(
        part.whole.is_none() && part.doubtful_portions == 0,
        "{part:?}"
    );
    assert!(allocated < bytes / 100, "{allocated}");
    let (read, longest) = (&counted.bytes, &counted.longest);
    assert!(read.load(Ordering::Relaxed) < read_max, "{read:?}");
    assert!(longest.load(Ordering::Relaxed) <= 1 << 20, "{longest:?}");
}

#[test]
fn large_disks_take_reads_of_metadata_only() {
    if !can_run(&["mkfs.xfs", "mke2fs"]) {
        return;
    }
    // The largest file of an ext4 is a block shorter.
    takes_little((16 << 40) - (1 << 30), &["mkfs.xfs", "-q", "-f"], 4 << 20);
    let ext4 = [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-J",
        "size=64",
        "-O",
        "meta_bg,^resize_inode",
        "-N",
        "1000000",
        "-E",
        "lazy_itable_init=1,nodiscard",
    ];
    // Descriptors several times, and bitmaps of those groups that have one.
    takes_little(4 << 40, &ext4, 24 << 20);
}
