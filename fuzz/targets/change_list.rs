//! A list of changes of another program: an error or ranges of whole blocks, sorted and apart. The
//! first byte says whose list it is.

#![no_main]

use bale_source::raw::change_list::{ChangeListFormat, read_change_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, list)) = bytes.split_first() else {
        return;
    };
    let (format, block_bytes) = match first % 3 {
        0 => (ChangeListFormat::ThinDelta, None),
        1 => (ChangeListFormat::EraInvalidate, Some(4096)),
        _ => (ChangeListFormat::Json, None),
    };
    let Ok(ranges) = read_change_list(list, format, block_bytes) else {
        return;
    };
    assert!(
        ranges
            .iter()
            .all(|range| range.start < range.end && range.start % (1 << 20) == 0)
    );
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
});
