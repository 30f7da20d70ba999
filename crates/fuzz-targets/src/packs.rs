//! Packs and what is written about them: their parts, indexes, stretches, marks, names.

use crate::input::{keys, text};
use bale_format::limits::{STRETCH_LEN_MAX, STRETCH_PACKS_MAX};
use bale_format::pack::{decode_trailer, encode_trailer};
use bale_format::stretch::{STRETCH_TABLE_BYTES_MAX, parse_trailer};
use bale_format::{
    ChunkId, Codec, Condemned, DamagedPacks, Decompressor, Index, PackFooter, PackHeader,
    RecordHead, SalvageScan, StretchName, StretchRecord, StretchTable, salvage_record,
};
use bale_repository::store::ObjectName;

/// Both ends of a pack, as found, and the head of a record once opened.
pub fn pack_ends(data: &[u8]) {
    let _ = PackHeader::decode(data);
    if let Ok(head) = RecordHead::decode(data) {
        assert!(
            head.payload_bytes <= head.plain_bytes && head.payload_bytes < head.sealed_bytes,
            "the payload is in the body"
        );
    }
    let _ = keys().pack_key_by_ends(data.first_chunk(), data.last_chunk());
    let key = keys().pack_key(&[3; 32]);
    if let Ok(footer) = PackFooter::open(&key, data, data.len() as u64 * 1000) {
        let range = footer.trailer_range();
        assert!(
            range.start <= range.end && range.end <= data.len() as u64 * 1000,
            "outside the pack"
        );
    }
}

/// The opened trailer of a pack: every entry lies inside the pack, none over another.
pub fn pack_trailer(data: &[u8]) {
    const PACK_BYTES: u64 = 1 << 30;
    if let Ok(entries) = decode_trailer(data, PACK_BYTES) {
        assert!(entries.iter().all(|entry| entry.range().end <= PACK_BYTES));
        assert_eq!(encode_trailer(&entries), data);
    }
}

/// A pack without its trailer: record heads are walked, records opened.
pub fn pack_salvage(data: &[u8]) {
    let keys = keys();
    let key = keys.pack_key(&[3; 32]);
    let mut contexts = Decompressor::new();
    let mut scan = SalvageScan::new(data.len() as u64);
    let mut last = None;
    while let Some(at) = scan.next_head_at() {
        assert!(last < Some(at), "the scan goes on");
        last = Some(at);
        let Ok(Some(head)) = scan.take(&key, &data[at as usize..]) else {
            break;
        };
        let end = at + head.record_bytes();
        let record = &data[at as usize..end as usize];
        let _ = salvage_record(&keys, &key, at, record, &mut contexts);
    }
}

/// An opened record: any compressed bytes with any claimed length.
pub fn decompress(data: &[u8]) {
    let Some((length, payload)) = data.split_first_chunk::<3>() else {
        return;
    };
    let plain_bytes = u32::from_le_bytes([length[0], length[1], length[2], 0]) as usize;
    if let Ok(plain) = Decompressor::new().decompress(Codec::Zstd, payload, plain_bytes) {
        assert_eq!(plain.len(), plain_bytes);
    }
}

/// An opened index object, listed and searched.
pub fn index(data: &[u8]) {
    if let Ok(index) = Index::decode(data.to_vec()) {
        assert_eq!(index.iter().count(), index.len());
        for entry in index.iter() {
            assert!(index.find(entry.chunk.id).next().is_some(), "all are found");
        }
        let _ = index.find(ChunkId([0x80; 32])).count();
    }
}

/// The table of a stretch and its record, once opened, and the last bytes of a stretch: what is
/// accepted is written the same, and nothing leads out of the stretch.
pub fn stretch(data: &[u8]) {
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
}

fn check(table: &StretchTable) {
    let entries = table.entries();
    assert!(entries.len() <= STRETCH_PACKS_MAX && table.end() <= STRETCH_LEN_MAX);
    for pair in entries.windows(2) {
        assert!(pair[0].range().end <= pair[1].offset, "one over another");
    }
}
/// An opened list of condemned packs: what is accepted can be written again.
pub fn condemned(data: &[u8]) {
    if let Ok(condemned) = Condemned::from_json(data) {
        assert!(condemned.to_json().is_ok(), "written and read back");
    }
}

/// An opened mark of damaged packs: what is accepted can be written again.
pub fn damaged_packs(data: &[u8]) {
    if let Ok(damaged) = DamagedPacks::from_json(data) {
        assert!(damaged.to_json().is_ok(), "written and read back");
    }
}

/// A name found in a store: what is accepted is written the same.
pub fn object_name(data: &[u8]) {
    let text = text(data);
    if let Some(name) = ObjectName::parse(text) {
        assert_eq!(name.path(), text);
    }
}
