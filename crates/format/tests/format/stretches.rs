//! Stretches and their records: what was written comes back, and whatever else is there is refused
//! without a panic and without memory for what is only promised.

use bale_format::config::FEATURE_STRETCHES;
use bale_format::limits::{STRETCH_LEN_MAX, STRETCH_PACKS_MAX};
use bale_format::stretch::{
    STRETCH_RECORD_BYTES_MAX, STRETCH_TABLE_BYTES_MAX, parse_trailer, trailer,
};
use bale_format::{
    Config, Fault, FormatError, Keys, ObjectId, ObjectType, RepositoryId, RootKey, StretchEntry,
    StretchName, StretchRecord, StretchTable, UnverifiedConfig,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// The shortest table and the trailer.
const END_BYTES_MIN: u64 = 4096 + 16;

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}

fn entry(id: u32, offset: u64, len: u64) -> StretchEntry {
    let pack = ObjectId(*blake3::hash(&id.to_le_bytes()).as_bytes());
    StretchEntry { pack, offset, len }
}

/// Packs of these lengths with these gaps before them.
fn table(packs: &[(u64, u64)]) -> StretchTable {
    let mut end = 0;
    let entries = packs.iter().zip(0..).map(|((gap, len), id)| {
        let entry = entry(id, end + gap, *len);
        end = entry.offset + len;
        entry
    });
    StretchTable::new(entries.collect()).unwrap()
}

fn record(table: StretchTable, len: u64) -> StretchRecord {
    StretchRecord {
        stretch: StretchName {
            run: [0xab; 16],
            number: 0x0102_0304,
        },
        len,
        hash: [9; 32],
        table,
    }
}

fn fault(error: FormatError) -> Fault {
    match error {
        FormatError::Damaged { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

/// The bytes of a table that no writer makes.
fn plain(entries: &[StretchEntry]) -> Vec<u8> {
    let mut bytes = [&(entries.len() as u32).to_le_bytes()[..], &[0; 4]].concat();
    for entry in entries {
        bytes.extend_from_slice(&entry.pack.0);
        bytes.extend_from_slice(&entry.offset.to_le_bytes());
        bytes.extend_from_slice(&entry.len.to_le_bytes());
    }
    bytes
}

/// Golden: written from docs/FORMAT.md, section 11, by hand.
#[test]
fn a_record_and_a_trailer_have_the_bytes_of_the_format() {
    let entries = vec![
        StretchEntry {
            pack: ObjectId([0x22; 32]),
            offset: 0x1000,
            len: 0x0203,
        },
        StretchEntry {
            pack: ObjectId([0x11; 32]),
            offset: 0,
            len: 0x1000,
        },
    ];
    let record = record(StretchTable::new(entries).unwrap(), 0x1234_5678);
    let golden = [
        "abababababababababababababababab".to_owned(),
        "0403020100000000".to_owned(),
        "7856341200000000".to_owned(),
        "09".repeat(32),
        "0200000000000000".to_owned(),
        "11".repeat(32),
        "00000000000000000010000000000000".to_owned(),
        "22".repeat(32),
        "00100000000000000302000000000000".to_owned(),
    ];
    let bytes = record.encode().unwrap();
    assert_eq!(bale_format::id::hex(&bytes), golden.concat());
    assert_eq!(bytes[64..], record.table.encode());
    assert_eq!(StretchRecord::decode(&bytes), Ok(record));
    assert_eq!(
        bale_format::id::hex(&trailer(0x0102_0304_0506)),
        "060504030201000042414c4553545245"
    );
    assert_eq!(
        [ObjectType::StretchTable, ObjectType::Stretched].map(|kind| kind as u8),
        [6, 7]
    );
}

#[test]
fn only_exact_paths_are_names_of_stretches() {
    let run = "0123456789abcdef".repeat(2);
    let name = StretchName::parse(&format!("stretches/{run}/0000000a")).unwrap();
    assert_eq!((name.run[1], name.number), (0x23, 10));
    assert_eq!(name.to_string(), format!("stretches/{run}/0000000a"));
    for path in [
        String::new(),
        "stretches".to_owned(),
        format!("stretches/{run}"),
        format!("stretches/{run}/"),
        format!("stretches/{run}/0000000A"),
        format!("stretches/{run}/000000a"),
        format!("stretches/{run}/00000000a"),
        format!("stretches/{run}/+000000a"),
        format!("stretches/{run}/0000000a/"),
        format!("stretches//{run}/0000000a"),
        format!("stretches/{}/0000000a", &run[1..]),
        format!("stretched/{run}/0000000a"),
        format!("/stretches/{run}/0000000a"),
    ] {
        assert_eq!(StretchName::parse(&path), None, "{path:?}");
    }
}

#[test]
fn a_table_that_contradicts_itself_is_neither_written_nor_read() {
    let order = Fault::Order { field: "packs" };
    let twice = Fault::Mismatch {
        field: "a pack that is there twice",
    };
    let value = Fault::Value {
        field: "length of a pack",
        found: 0,
    };
    let over = |found| Fault::Over {
        field: "end of a pack",
        found,
        max: STRETCH_LEN_MAX,
    };
    for (entries, expected) in [
        (vec![entry(1, 0, 10), entry(2, 9, 10)], order),
        (vec![entry(1, 0, 10), entry(1, 10, 10)], twice),
        (vec![entry(1, 0, 10), entry(2, 10, 0)], value),
        (
            vec![entry(1, 1, STRETCH_LEN_MAX)],
            over(STRETCH_LEN_MAX + 1),
        ),
        (vec![entry(1, u64::MAX, u64::MAX)], over(u64::MAX)),
    ] {
        let read = StretchTable::decode(&plain(&entries)).map_err(fault);
        assert_eq!(read, Err(expected.clone()));
        let written = StretchTable::new(entries);
        assert!(
            matches!(written, Err(FormatError::Unfit { fault, .. }) if fault == expected),
            "{expected}"
        );
    }
    // Only a writer may come with packs in another order.
    let entries = vec![entry(2, 10, 10), entry(1, 0, 10)];
    assert!(StretchTable::decode(&plain(&entries)).is_err());
    assert_eq!(StretchTable::new(entries).unwrap().end(), 20);
}

#[test]
fn as_many_packs_as_a_stretch_may_have_and_not_one_more() {
    let mut packs: Vec<_> = (0..STRETCH_PACKS_MAX as u32)
        .map(|id| entry(id, u64::from(id) * 3, 3))
        .collect();
    let full = StretchTable::new(packs.clone()).unwrap();
    assert_eq!(StretchTable::decode(&full.encode()), Ok(full.clone()));
    let end = keys().seal_stretch_end(&full, full.end(), [4; 32]).unwrap();
    assert!(end.len() <= STRETCH_TABLE_BYTES_MAX + 16);
    let record = record(full, STRETCH_LEN_MAX);
    let bytes = record.encode().unwrap();
    assert_eq!(bytes.len(), STRETCH_RECORD_BYTES_MAX);
    assert_eq!(StretchRecord::decode(&bytes), Ok(record));
    packs.push(entry(u32::MAX, STRETCH_LEN_MAX - 1, 1));
    let many = StretchTable::decode(&plain(&packs)).map_err(fault);
    let found = packs.len() as u64;
    let max = STRETCH_PACKS_MAX as u64;
    let field = "number of packs";
    assert_eq!(many, Err(Fault::Over { field, found, max }));
    assert!(matches!(
        StretchTable::new(packs),
        Err(FormatError::TooLarge { .. })
    ));
}

/// Goal: a count alone makes nobody allocate.
#[test]
fn a_count_without_its_entries_is_refused() {
    let mut promised = plain(&[]);
    promised[..4].copy_from_slice(&(STRETCH_PACKS_MAX as u32).to_le_bytes());
    assert_eq!(
        StretchTable::decode(&promised).map_err(fault),
        Err(Fault::Length {
            expected: 48 << 16,
            found: 0
        })
    );
    for spoiled in [4, 7] {
        let mut bytes = plain(&[entry(1, 0, 5)]);
        bytes[spoiled] = 1;
        assert!(StretchTable::decode(&bytes).is_err(), "byte {spoiled}");
    }
    let longer = [plain(&[entry(1, 0, 5)]), vec![0]].concat();
    assert!(StretchTable::decode(&longer).is_err());
}

#[test]
fn a_record_whose_packs_leave_no_room_for_the_table_is_neither_written_nor_read() {
    let packs = table(&[(0, 100), (7, 50)]);
    let len = packs.end() + END_BYTES_MIN;
    let good = record(packs.clone(), len).encode().unwrap();
    assert!(StretchRecord::decode(&good).is_ok());
    let at = 24..32;
    for len in [0, END_BYTES_MIN - 1, len - 1, STRETCH_LEN_MAX + 1, u64::MAX] {
        let unfit = record(packs.clone(), len).encode();
        assert!(matches!(unfit, Err(FormatError::Unfit { .. })), "{len}");
        let mut bytes = good.clone();
        bytes[at.clone()].copy_from_slice(&len.to_le_bytes());
        assert!(StretchRecord::decode(&bytes).is_err(), "{len}");
    }
    let mut bytes = good.clone();
    bytes[20] = 1;
    assert!(StretchRecord::decode(&bytes).is_err(), "zeros");
    for end in 0..good.len() {
        assert!(StretchRecord::decode(&good[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn a_record_without_packs_says_that_its_stretch_can_go() {
    let packs = table(&[(0, 100), (0, 50), (0, 9)]);
    let middle = packs.entries()[1].pack;
    let fewer = packs.without(|pack| *pack == middle);
    assert_eq!((fewer.entries().len(), fewer.packs_len()), (2, 109));
    assert_eq!(fewer.end(), packs.end());
    let none = record(packs.without(|_| true), END_BYTES_MIN);
    assert!(none.table.is_empty());
    assert_eq!(StretchRecord::decode(&none.encode().unwrap()), Ok(none));
}

#[test]
fn a_hash_of_zeros_is_no_hash() {
    let mut record = record(table(&[(0, 5)]), 9000);
    assert_eq!(record.known_hash(), Some([9; 32]));
    record.hash = [0; 32];
    assert_eq!(record.known_hash(), None);
    let read = StretchRecord::decode(&record.encode().unwrap());
    assert_eq!(read, Ok(record));
}

#[test]
fn the_table_of_a_stretch_is_found_from_its_end() {
    let packs = table(&[(0, 3000), (20, 1000)]);
    let table_offset = packs.end() + 3;
    let mut stretch = vec![7; table_offset as usize];
    let end = keys()
        .seal_stretch_end(&packs, table_offset, [4; 32])
        .unwrap();
    stretch.extend_from_slice(&end);
    let len = stretch.len() as u64;
    let range = parse_trailer(stretch.last_chunk().unwrap(), len).unwrap();
    assert_eq!(range, table_offset..len - 16);
    let sealed = &stretch[range.start as usize..range.end as usize];
    let open = |sealed: &[u8], offset| keys().open_stretch_table(sealed, offset);
    assert_eq!(open(sealed, range.start), Ok(packs.clone()));
    // A table that somebody put where its packs are.
    assert!(open(sealed, packs.end()).is_ok());
    assert!(open(sealed, packs.end() - 1).is_err());
    let early = keys().seal_stretch_end(&packs, packs.end() - 1, [4; 32]);
    assert!(matches!(early, Err(FormatError::Unfit { .. })));
    let late = keys().seal_stretch_end(&packs, STRETCH_LEN_MAX - 4000, [4; 32]);
    assert!(matches!(late, Err(FormatError::TooLarge { .. })));
    // What is sealed as something else is no table, and a table is nothing else.
    let record = keys()
        .seal_object(ObjectType::Stretched, &packs.encode(), [4; 32])
        .unwrap();
    assert!(open(&record, table_offset).is_err());
    let as_record = keys().open_object(ObjectType::Stretched, sealed, 1 << 20);
    assert!(as_record.is_err());
    for at in 0..sealed.len() {
        let mut flipped = sealed.to_vec();
        flipped[at] ^= 1;
        assert!(open(&flipped, table_offset).is_err(), "byte {at}");
    }
}

#[test]
fn a_trailer_that_leads_out_of_its_stretch_is_refused() {
    let len = 100_000;
    let last = len - END_BYTES_MIN;
    assert_eq!(parse_trailer(&trailer(last), len), Ok(last..len - 16));
    assert_eq!(parse_trailer(&trailer(0), len), Ok(0..len - 16));
    for (offset, len) in [
        (last + 1, len),
        (len, len),
        (u64::MAX, len),
        (0, END_BYTES_MIN - 1),
        (0, 0),
        (0, STRETCH_TABLE_BYTES_MAX as u64 + 17),
        (STRETCH_LEN_MAX - 9999, STRETCH_LEN_MAX + 1),
        (0, u64::MAX),
    ] {
        assert!(parse_trailer(&trailer(offset), len).is_err(), "{offset}");
    }
    let longest = STRETCH_TABLE_BYTES_MAX as u64 + 16;
    assert!(parse_trailer(&trailer(0), longest).is_ok());
    for at in 8..16 {
        let mut bytes = trailer(0);
        bytes[at] ^= 0x20;
        let found = parse_trailer(&bytes, len).map_err(fault);
        assert_eq!(found, Err(Fault::Magic), "byte {at}");
    }
}

#[test]
fn a_repository_with_stretches_says_so_to_everybody() {
    let config = Config::new(RepositoryId([2; 16]), 7);
    assert!(!config.has_stretches());
    assert_eq!(config.stretch_bytes, None);
    let config = config.with_stretches(1 << 40).with_cold_store();
    let bytes = config.encode(&keys()).unwrap();
    let read = UnverifiedConfig::decode(&bytes).unwrap();
    let read = read.verify(&keys()).unwrap();
    assert!(read.has_stretches() && read.has_cold_store());
    assert_eq!(read.stretch_bytes, Some(1 << 40));
    for features in [&read.features_read, &read.features_write, &read.features_gc] {
        assert!(features.iter().any(|feature| feature == FEATURE_STRETCHES));
    }
}

proptest! {
    #[test]
    fn records_come_back(
        packs in vec((0..3_u64, 1..1_u64 << 30), 0..15),
        run: [u8; 16],
        number: u32,
        hash: [u8; 32],
        more in 0..1_u64 << 20,
    ) {
        let table = table(&packs);
        prop_assert_eq!(StretchTable::decode(&table.encode()), Ok(table.clone()));
        let len = table.end() + END_BYTES_MIN + more;
        let stretch = StretchName { run, number };
        prop_assert_eq!(StretchName::parse(&stretch.to_string()), Some(stretch));
        let record = StretchRecord { stretch, len, hash, table };
        prop_assert_eq!(StretchRecord::decode(&record.encode().unwrap()), Ok(record));
    }

    /// The fuzzer's doors: none may panic, and what is accepted is written the same.
    #[test]
    fn any_bytes_get_an_answer(
        bytes in vec(any::<u8>(), 0..300),
        packs in 0..4_u8,
        last: [u8; 16],
        len: u64,
    ) {
        let front = [packs, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [bytes.clone(), [&front[..], &bytes].concat()] {
            if let Ok(table) = StretchTable::decode(&bytes) {
                prop_assert_eq!(table.encode(), &bytes[..]);
            }
            if let Ok(record) = StretchRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), Ok(bytes));
            }
        }
        let mut near = trailer(len / 2);
        near[..4].copy_from_slice(&last[..4]);
        for last in [last, near] {
            for len in [len, len % (STRETCH_LEN_MAX + 2)] {
                if let Ok(range) = parse_trailer(&last, len) {
                    prop_assert!(range.start < range.end && range.end < len);
                }
            }
        }
    }
}
