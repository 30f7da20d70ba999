//! What changed on a device: lists of other programs, and types of the kernel that is traced.

use bale_source::raw::change_list::{ChangeListFormat, read_change_list};
use bale_source::raw::tracking::{Argument, KernelTypes};

/// A list of changes of another program: an error or ranges of whole blocks, sorted and apart. The
/// first byte says whose list it is.
pub fn change_list(bytes: &[u8]) {
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
}

/// A description of a kernel's types: an error, or fields within what a load can reach.
pub fn kernel_types(bytes: &[u8]) {
    let Ok(types) = KernelTypes::parse(bytes) else {
        return;
    };
    for (of, path) in [
        ("bio", "sector"),
        ("bio", "size"),
        ("bio", "bi_iter.bi_sector"),
    ] {
        for bytes in [4, 8] {
            if let Ok(offset) = types.field(of, path, bytes) {
                assert!(offset + bytes <= i16::MAX as u64);
            }
        }
    }
    let arguments = [Argument::PointerTo("bio"), Argument::Unsigned4];
    if let Ok(found) = types.tracepoint("queue", &arguments) {
        assert_eq!(found.arguments.len(), arguments.len());
    }
}
