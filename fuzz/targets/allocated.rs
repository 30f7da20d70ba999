//! A disk, or a file system: what of it is to be read. What is given is the disk, whose length is
//! rounded up to sectors.

#![no_main]

use bale_fsimage::allocated::AllocatedRanges;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let mut disk = data.to_vec();
    disk.resize(data.len().next_multiple_of(512), 0);
    let len = disk.len() as u64;
    let mut ranges = AllocatedRanges::of(Arc::new(disk), None);
    let (mut end, mut sum) = (None, 0);
    for range in ranges.by_ref() {
        assert!(range.start < range.end && range.end <= len);
        assert!(end.is_none_or(|end| end < range.start));
        end = Some(range.end);
        sum += range.end - range.start;
    }
    let parts = ranges.into_parts();
    assert_eq!(
        sum,
        parts.iter().map(|part| part.allocated_bytes).sum::<u64>()
    );
    assert_eq!(len, parts.iter().map(|part| part.bytes).sum::<u64>());
});
