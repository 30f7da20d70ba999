//! Times of last access in segments: optional, and of no cost to rows that have none.

use bale_format::entry::{Entry, Kind, Time};
use bale_format::segment::{Segment, SegmentBuilder, SegmentError};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

fn rows(count: usize) -> Vec<Entry> {
    let row = |number: usize| {
        let name = format!("{number:05}").into_bytes();
        let mut row = Entry::new(b"some/where"[..].into(), name.into(), Kind::File);
        (row.size, row.inode, row.mode) = (number as u64 * 7, number as u64, 0o644);
        row.mtime = Time::from((number as i64 * 1_000, number as u32));
        row
    };
    (0..count).map(row).collect()
}

fn made_of(rows: &[Entry]) -> Vec<u8> {
    let mut builder = SegmentBuilder::new();
    rows.iter().for_each(|row| builder.push(row).unwrap());
    builder.finish().unwrap()
}

fn columns(file: &[u8]) -> Vec<String> {
    let file = bytes::Bytes::copy_from_slice(file);
    let reader = SerializedFileReader::new(file).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns = schema.columns().iter();
    columns.map(|column| column.name().to_owned()).collect()
}

/// Computed by the version before there were such times.
#[test]
fn rows_without_access_times_give_the_bytes_that_they_always_gave() {
    let file = made_of(&rows(10_000));
    let golden = "7dce5c5bb093916b44c89ee5527fbc66af2975a14d1b04ed5663344201a14609";
    assert_eq!(blake3::hash(&file).to_string(), golden);
}

#[test]
fn access_times_survive_beside_rows_that_have_none() {
    let mut rows = rows(20_000);
    for (seconds, at) in [(i64::MIN, 9_000), (-1, 9_001), (i64::MAX, 19_999)] {
        rows[at].atime = Time::from((seconds, 999_999_999)).into();
    }
    rows[12_000].atime = Time::default().into();
    let file = made_of(&rows);
    let segment = Segment::decode(&file).unwrap();
    assert!(segment.entries(0..rows.len()).eq(rows.iter().cloned()));
    for range in [8_999..9_002, 19_999..20_000, 0..1] {
        let some = Segment::decode_rows(&file, |_| range.clone()).unwrap();
        let found: Vec<Option<Time>> = range.clone().map(|row| some.atime(row)).collect();
        let expected: Vec<_> = (rows[range].iter()).map(|row| row.atime.get()).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(columns(&file)[25..], ["atime_s", "atime_ns"]);
}

/// Where a catalog is cut, and what was in the builder before, says nothing of the rows.
#[test]
fn a_segment_has_the_columns_only_if_one_of_its_own_rows_has_such_a_time() {
    let mut rows = rows(300);
    rows[200].atime = Time::default().into();
    let mut builder = SegmentBuilder::new();
    rows.iter().for_each(|row| builder.push(row).unwrap());
    for (range, columns_found) in [(0..200, 25), (200..201, 27), (100..300, 27), (201..300, 25)] {
        let part = builder.encode(range.clone()).unwrap();
        assert_eq!(columns(&part).len(), columns_found, "{range:?}");
        assert_eq!(part, made_of(&rows[range]));
    }
    builder.clear();
    rows[..200]
        .iter()
        .for_each(|row| builder.push(row).unwrap());
    assert_eq!(builder.finish().unwrap(), made_of(&rows[..200]));
}

#[test]
fn one_column_without_the_other_is_damage() {
    let mut rows = rows(3);
    rows[1].atime = Time::default().into();
    let file = made_of(&rows);
    for name in [&b"atime_s"[..], b"atime_ns"] {
        let mut damaged = file.clone();
        let places = (0..file.len() - name.len()).filter(|at| file[*at..].starts_with(name));
        for at in places.collect::<Vec<_>>() {
            damaged[at] = b'x';
        }
        let decoded = Segment::decode(&damaged);
        assert!(
            matches!(decoded, Err(SegmentError::Damaged(_))),
            "{decoded:?}"
        );
    }
}

/// Bounds of memory are sums of rows that are held; without such times a row took as much.
#[test]
fn an_access_time_takes_no_room_that_a_row_did_not_have() {
    assert!(size_of::<Entry>() <= 280, "{}", size_of::<Entry>());
}
