//! What an NBD server answers to requests: chunks one after the other, each in every way that it is
//! read. What it says of a range stays in the range, and data comes once.

#![no_main]

use bale_nbd::wire::HeaderStyle;
use bale_nbd::wire::reply::{
    MAGIC_BYTES, ReadCoverage, ReplyHead, Requested, StatusRange, check_chunk, decode_error,
    decode_extents, decode_head, decode_hole, head_bytes, kept_bytes,
};
use libfuzzer_sys::fuzz_target;

const RANGE: StatusRange = StatusRange {
    offset: 4096,
    bytes: 8192,
    export_len: 65536,
};

fuzz_target!(|data: &[u8]| {
    let Some((choice, mut rest)) = data.split_first() else {
        return;
    };
    let style = match choice % 3 {
        0 => HeaderStyle::Simple,
        1 => HeaderStyle::Structured,
        _ => HeaderStyle::Extended,
    };
    let mut coverage = ReadCoverage::new(RANGE.offset, RANGE.bytes);
    while let Some((magic, after)) = rest.split_first_chunk::<MAGIC_BYTES>() {
        let Ok(len) = head_bytes(*magic, style) else {
            return;
        };
        let Some((head, after)) = after.split_at_checked(len) else {
            return;
        };
        let Ok(ReplyHead::Chunk(head)) = decode_head(head) else {
            return;
        };
        let kinds = [Requested::Read, Requested::Status, Requested::Nothing];
        if !(kinds.iter()).any(|kind| check_chunk(&head, *kind, RANGE.bytes, style).is_ok()) {
            return;
        }
        let Some((payload, after)) = after.split_at_checked(head.len as usize) else {
            return;
        };
        let _ = decode_error(head.kind, payload);
        if let Ok((offset, bytes)) = decode_hole(payload)
            && let Ok(start) = coverage.push(offset, bytes)
        {
            assert!(start + bytes <= RANGE.bytes);
        }
        let kept = &payload[..kept_bytes(&head) as usize];
        if let Ok((_, extents)) = decode_extents(kept, head.len, RANGE, style) {
            assert!(extents.iter().all(|extent| extent.bytes > 0));
            assert!(extents.iter().map(|extent| extent.bytes).sum::<u64>() <= RANGE.bytes);
        }
        let _ = coverage.finish();
        rest = after;
    }
});
