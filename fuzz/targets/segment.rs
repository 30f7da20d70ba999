//! A catalog segment: keys alone, then all columns and every row.

#![no_main]

use bale_format::{IMAGE_BLOCK_BYTES, ImageExtent, Kind, Segment, SegmentKeys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let keys = SegmentKeys::decode(data).map(|keys| {
        for row in 0..keys.rows() {
            assert_eq!(keys.find(&keys.key(row)), Ok(row), "keys are in order");
        }
        keys.rows()
    });
    if let Ok(segment) = Segment::decode(data) {
        assert_eq!(keys.ok(), Some(segment.rows()));
        for row in 0..segment.rows() {
            let entry = segment.entry(row);
            if entry.kind == Kind::Extent {
                let extent = ImageExtent::of(&entry).expect("an extent has a place and content");
                let within = extent.start % IMAGE_BLOCK_BYTES;
                assert!(extent.bytes > 0 && within + extent.bytes <= IMAGE_BLOCK_BYTES);
            }
        }
    }
});
