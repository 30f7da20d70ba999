//! The table of a stretch and its record, once opened, and the last bytes of a stretch: what is
//! accepted is written the same, and nothing leads out of the stretch.

#![no_main]

use bale_format::limits::{STRETCH_LEN_MAX, STRETCH_PACKS_MAX};
use bale_format::stretch::{STRETCH_TABLE_BYTES_MAX, parse_trailer};
use bale_format::{StretchName, StretchRecord, StretchTable};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(table) = StretchTable::decode(data) {
        check(&table);
        assert_eq!(table.encode(), data);
    }
    if let Ok(record) = StretchRecord::decode(data) {
        check(&record.table);
        assert!(record.table.end() < record.len && record.len <= STRETCH_LEN_MAX);
        assert_eq!(record.encode().as_deref(), Ok(data));
    }
    if let (Some(trailer), Some(len)) = (data.last_chunk(), data.first_chunk())
        && let Ok(range) = parse_trailer(trailer, u64::from_le_bytes(*len))
    {
        assert!(
            range.start < range.end && range.end - range.start <= STRETCH_TABLE_BYTES_MAX as u64
        );
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(name) = StretchName::parse(text)
    {
        assert_eq!(name.to_string(), text);
    }
});

fn check(table: &StretchTable) {
    let entries = table.entries();
    assert!(entries.len() <= STRETCH_PACKS_MAX && table.end() <= STRETCH_LEN_MAX);
    for pair in entries.windows(2) {
        assert!(pair[0].range().end <= pair[1].offset, "one over another");
    }
}
