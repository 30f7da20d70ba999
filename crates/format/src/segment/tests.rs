//! What a segment promises: rows survive, bytes depend on rows alone, and nothing that is read is
//! believed.

use super::{SegmentBuilder, SegmentError, SegmentKeys, *};
use crate::entry::{Key, join};
use crate::extent::ImageExtent;
use bytes::Bytes;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn named(parent: &str, name: &str) -> Entry {
    Entry::new(
        parent.as_bytes().to_vec().into(),
        name.as_bytes().to_vec().into(),
        Kind::File,
    )
}

fn made_of(entries: &[Entry]) -> Vec<u8> {
    let mut builder = SegmentBuilder::new();
    for entry in entries {
        builder.push(entry).unwrap();
    }
    builder.finish().unwrap()
}

fn any_component() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no separators", |byte| !matches!(byte, 0 | b'/'));
    let bytes = prop::collection::vec(byte, 1..12);
    prop_oneof![3 => "[a-c]{1,3}".prop_map(String::into_bytes), 1 => bytes]
        .prop_filter("no dots", |name| name != b"." && name != b"..")
}

fn any_time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(Time::from)
}

prop_compose! {
    fn any_metadata()(
        number in 1..8i32, mode in 0..0o10000u32, ids in any::<(u32, u32, u32, u32, u32, u32)>(),
        size in 0..i64::MAX as u64, mtime in any_time(), ctime in any_time(),
        atime in prop::option::of(any_time()),
        numbers in any::<(u64, u64, u32, u32)>(),
        target in prop::collection::vec(1..255u8, 0..20),
        xattrs in prop::option::of(prop::collection::vec(any::<u8>(), 1..30)),
        layout in 0..4, chunk in any::<[u8; 32]>(),
        hash in any::<Option<[u8; 16]>>(), offset in 0..1_000_000u32,
    ) -> Entry {
        let mut entry = named("", "x");
        entry.kind = Kind::from_number(number).unwrap();
        entry.mode = mode;
        (entry.uid, entry.gid, entry.generation, entry.nlink, entry.filesystem, entry.project) =
            ids;
        (entry.inode, entry.rdev, entry.inode_flags, entry.flags.0) = numbers;
        (entry.mtime, entry.ctime, entry.content_hash) = (mtime, ctime, hash);
        entry.atime = atime.into();
        entry.target = target.into();
        entry.xattrs = xattrs.map_or(Bytes::new(), |set| [&[1], &set[..]].concat().into());
        entry.size = size;
        if entry.kind == Kind::File {
            let chunk = ChunkId(chunk);
            entry.content = match layout {
                0 => Content::None,
                1 => Content::Bundled { chunk, offset },
                2 => Content::Pieces { list: chunk },
                _ => Content::Image,
            };
            if layout == 1 {
                entry.size %= 1 << 20;
            }
        }
        entry
    }
}

fn any_entries(count: usize) -> impl Strategy<Value = Vec<Entry>> {
    let parent = prop::collection::vec(any_component(), 0..4).prop_map(|parts| parts.join(&b'/'));
    let keyed = ((parent, any_component()), any_metadata());
    prop::collection::vec(keyed, 1..count).prop_map(|rows| {
        let keyed = rows.into_iter().map(|((parent, name), mut entry)| {
            entry.parent = parent.into();
            entry.name = name.into();
            (entry.key(), entry)
        });
        keyed.collect::<BTreeMap<_, _>>().into_values().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_survive(entries in any_entries(300)) {
        let segment = Segment::decode(&made_of(&entries)).unwrap();
        prop_assert!(segment.entries(0..segment.rows()).eq(entries.iter().cloned()));
        for (row, entry) in entries.iter().enumerate() {
            prop_assert_eq!(segment.keys().find(&entry.key()), Ok(row));
        }
    }

    #[test]
    fn damaged_bytes_never_panic_and_what_decodes_is_in_order(
        entries in any_entries(60),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut file = made_of(&entries);
        for (at, bits) in damage {
            let at = at.index(file.len());
            file[at] ^= bits;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = SegmentKeys::decode(&file);
        if let Ok(segment) = Segment::decode(&file) {
            let entries = segment.entries(0..segment.rows());
            let paths: Vec<Key> = entries.map(|entry| entry.key()).collect();
            prop_assert!(paths.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}

#[test]
fn every_single_bit_of_the_file_may_be_wrong() {
    let mut entries = vec![
        named("", ""),
        named("", "etc"),
        named("etc", "passwd"),
        named("etc", "shadow"),
    ];
    entries[2].content = Content::Bundled {
        chunk: ChunkId([7; 32]),
        offset: 3,
    };
    entries[3].xattrs = Bytes::from_static(&[1, 2, 3]);
    let file = made_of(&entries);
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let _ = Segment::decode(&damaged);
        let _ = Segment::decode(&file[..bit / 8]);
    }
}

#[test]
fn bytes_depend_on_rows_alone() {
    let entries: Vec<Entry> = (0..20_000)
        .map(|n| named("some/where", &format!("{n:06}")))
        .collect();
    let mut builder = SegmentBuilder::new();
    builder.push(&named("other", "rows before")).unwrap();
    builder.clear();
    for entry in &entries {
        builder.push(entry).unwrap();
    }
    let again = builder.encode(0..entries.len()).unwrap();
    assert_eq!(again, made_of(&entries));
    assert_eq!(builder.finish().unwrap(), again, "encoding twice");
    assert_eq!(builder.rows(), 0);
    let part: Vec<u8> = made_of(&entries[100..200]);
    entries
        .iter()
        .for_each(|entry| builder.push(entry).unwrap());
    assert_eq!(
        builder.encode(100..200).unwrap(),
        part,
        "a part is as if made alone"
    );
}

#[test]
fn another_parquet_reader_sees_the_same_rows() {
    let entries: Vec<Entry> = (0..30_000u64)
        .map(|n| {
            let mut entry = named(&format!("d{:03}", n / 100), &format!("{n:06}"));
            (entry.size, entry.mode, entry.mtime.seconds) = (n * n, (n % 8) as u32, -(n as i64));
            entry
        })
        .collect();
    let file = made_of(&entries);
    let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let mut rows = 0;
    for (row, entry) in reader.get_row_iter(None).unwrap().zip(&entries) {
        let row = row.unwrap();
        assert_eq!(row.get_bytes(0).unwrap().data(), &entry.parent[..]);
        assert_eq!(row.get_bytes(1).unwrap().data(), &entry.name[..]);
        assert_eq!(row.get_int(3).unwrap() as u32, entry.mode);
        assert_eq!(row.get_long(6).unwrap() as u64, entry.size);
        assert_eq!(row.get_long(7).unwrap(), entry.mtime.seconds);
        rows += 1;
    }
    assert_eq!(rows, entries.len());
}

/// Entries that must be refused when they are written and when they are read.
fn bad_entries() -> Vec<(&'static str, Entry)> {
    let changed = |what: fn(&mut Entry)| {
        let mut entry = named("p", "n");
        what(&mut entry);
        entry
    };
    let chunk = ChunkId([1; 32]);
    let extent = |name: &str, size, offset| {
        let mut entry = named("disk.raw", name);
        (entry.kind, entry.size) = (Kind::Extent, size);
        entry.content = Content::Bundled { chunk, offset };
        entry
    };
    let mut empty_extent = extent("0000000000000000", 1, 0);
    empty_extent.content = Content::None;
    let mut image_directory = named("p", "n");
    image_directory.kind = Kind::Directory;
    image_directory.content = Content::Image;
    let mut bundled_directory = named("p", "n");
    bundled_directory.kind = Kind::Directory;
    bundled_directory.content = Content::Pieces { list: chunk };
    vec![
        ("slash in a name", named("p", "a/b")),
        ("zero in a name", named("p", "a\0b")),
        ("dot", named("p", ".")),
        ("two dots", named("p", "..")),
        ("no name", named("p", "")),
        ("long name", named("p", &"x".repeat(256))),
        ("absolute parent", named("/p", "n")),
        ("trailing slash", named("p/", "n")),
        ("double slash", named("p//q", "n")),
        ("dots in a parent", named("p/../q", "n")),
        ("dot in a parent", named("./q", "n")),
        ("zero in a parent", named("p\0q", "n")),
        (
            "long parent",
            named(&"p/".repeat(PARENT_BYTES_MAX / 2 + 1), "n"),
        ),
        ("mode", changed(|entry| entry.mode = 0o10000)),
        (
            "nanoseconds",
            changed(|entry| entry.mtime.nanos = 1_000_000_000),
        ),
        (
            "nanoseconds of ctime",
            changed(|entry| entry.ctime.nanos = u32::MAX),
        ),
        (
            "nanoseconds of atime",
            changed(|entry| entry.atime = Time::from((0, 1_000_000_000)).into()),
        ),
        ("size", changed(|entry| entry.size = u64::MAX)),
        ("target", changed(|entry| entry.target = b"a\0b"[..].into())),
        (
            "xattrs",
            changed(|entry| entry.xattrs = Bytes::from_static(b"\x03abc")),
        ),
        (
            "xattrs by id",
            changed(|entry| entry.xattrs = Bytes::from_static(b"\x02abc")),
        ),
        ("content of a directory", bundled_directory),
        ("an image that is a directory", image_directory),
        ("an extent without content", empty_extent),
        ("an extent of no bytes", extent("0000000000000000", 0, 0)),
        ("an extent of a short name", extent("100000", 1, 0)),
        ("an extent in capitals", extent("00000000000A0000", 1, 0)),
        ("an extent of two blocks", extent("00000000000ffffe", 3, 0)),
        (
            "an extent beyond all devices",
            extent("7fffffffffffffff", 1, 0),
        ),
        (
            "an extent beyond its chunk",
            extent("0000000000000000", 2, (16 << 20) - 1),
        ),
        (
            "bundle beyond its chunk",
            changed(|entry| {
                entry.size = 2;
                entry.content = Content::Bundled {
                    chunk: ChunkId([1; 32]),
                    offset: (16 << 20) - 1,
                };
            }),
        ),
    ]
}

#[test]
fn an_image_and_its_extents_survive_and_count_their_bytes_once() {
    let image = Bytes::from_static(b"disk.raw");
    let mut row = named("", "disk.raw");
    (row.size, row.content) = (1 << 40, Content::Image);
    let extent = |start, bytes| ImageExtent {
        start,
        bytes,
        chunk: ChunkId([(start % 251) as u8; 32]),
        offset: 7,
        is_incomplete: start == 1 << 20,
        block_hash: (start == 0).then_some([7; 16]),
    };
    let extents = [
        extent(0, 4096),
        extent(1 << 20, 1 << 20),
        extent((1 << 40) - 1, 1),
    ];
    let entries: Vec<Entry> = std::iter::once(row)
        .chain(extents.iter().map(|extent| extent.row(&image)))
        .collect();
    let file = made_of(&entries);
    let segment = Segment::decode(&file).unwrap();
    assert!(segment.entries(0..4).eq(entries.iter().cloned()));
    let found = segment.entries(1..4).map(|row| ImageExtent::of(&row));
    assert!(found.eq(extents.iter().copied().map(Some)));
    let pointed: Vec<Pointer> = extents.iter().map(|of| Pointer::Bundle(of.chunk)).collect();
    assert_eq!(pointers(&file).unwrap(), pointed);
    let mut builder = SegmentBuilder::new();
    entries
        .iter()
        .for_each(|entry| builder.push(entry).unwrap());
    assert_eq!(builder.file_bytes(0..4), 4096 + (1 << 20) + 1);
}

#[test]
fn what_a_reader_would_refuse_is_refused_by_the_writer() {
    for (what, entry) in bad_entries() {
        let mut builder = SegmentBuilder::new();
        assert!(
            matches!(builder.push(&entry), Err(SegmentError::Refused { .. })),
            "{what}"
        );
        assert_eq!(builder.rows(), 0, "{what}");
    }
    let mut builder = SegmentBuilder::new();
    builder.push(&named("b", "b")).unwrap();
    for (parent, name) in [("b", "b"), ("b", "a"), ("a", "z"), ("", "")] {
        assert!(
            builder.push(&named(parent, name)).is_err(),
            "{parent}/{name} after b/b"
        );
    }
    builder.push(&named("b", "b2")).unwrap();
}

#[test]
fn a_hostile_writer_gets_nothing_past_the_reader() {
    for (what, entry) in bad_entries() {
        let mut builder = SegmentBuilder::new();
        builder.push_unchecked(&entry);
        let decoded = Segment::decode(&builder.finish().unwrap());
        assert!(
            matches!(decoded, Err(SegmentError::Damaged(_))),
            "{what}: {decoded:?}"
        );
    }
    for keys in [
        [("b", "b"), ("b", "b")],
        [("b", "b"), ("a", "z")],
        [("a.b", "x"), ("a/b", "x")],
    ] {
        let mut builder = SegmentBuilder::new();
        for (parent, name) in keys {
            builder.push_unchecked(&named(parent, name));
        }
        let file = builder.finish().unwrap();
        assert!(Segment::decode(&file).is_err(), "{keys:?}");
        assert!(SegmentKeys::decode(&file).is_err(), "{keys:?}");
    }
}

#[test]
fn a_few_bytes_cannot_unfold_to_many() {
    // Every parent is the one before and a byte: a megabyte is written once and would be copied a
    // hundred times.
    let mut parent = vec![b'a'; 1 << 20];
    for at in (0..parent.len()).step_by(100) {
        parent[at] = b'/';
    }
    parent[0] = b'a';
    let mut builder = SegmentBuilder::new();
    for _ in 0..100 {
        parent.extend_from_slice(b"a");
        let entry = Entry::new(parent.clone().into(), Bytes::from_static(b"n"), Kind::File);
        builder.push(&entry).unwrap();
    }
    let file = builder.finish().unwrap();
    assert!(file.len() < 2 << 20);
    assert_eq!(
        Segment::decode(&file).unwrap_err(),
        SegmentError::Damaged("byte strings are too long")
    );
}

#[test]
fn deep_parents_and_all_kinds_of_order_survive() {
    let deep = vec!["d"; 5000].join("/");
    let paths: [(&str, &str); 9] = [
        ("", ""),
        ("", "a"),
        ("", "a-b"),
        ("", "a.b"),
        ("a", "z"),
        ("a/b", "x"),
        ("a-b", "x"),
        ("a.b", "x"),
        (&deep, "x"),
    ];
    let entries: Vec<Entry> = paths
        .iter()
        .map(|(parent, name)| named(parent, name))
        .collect();
    let segment = Segment::decode(&made_of(&entries)).unwrap();
    assert!(segment.entries(0..9).eq(entries));
    assert_eq!(
        segment
            .keys()
            .find(&Key::of_path(&join(deep.as_bytes(), b"x"))),
        Ok(8)
    );
    assert_eq!(segment.keys().find(&Key::of_path(b"a/a")), Err(4));
}

/// Look-ups: a row costs its own pages. The bad row stands for whatever lies in other pages.
#[test]
fn decoding_some_rows_does_not_look_at_the_pages_of_others() {
    let mut builder = SegmentBuilder::new();
    for number in 0..20_000 {
        let mut entry = named("a", &format!("{number:05}"));
        entry.size = number;
        if number == 15_000 {
            entry.mode = 0o10000;
        }
        builder.push_unchecked(&entry);
    }
    let file = builder.finish().unwrap();
    assert!(Segment::decode(&file).is_err());
    let key = named("a", "00042").key();
    let some = Segment::decode_rows(&file, |keys| {
        let row = keys.find(&key).unwrap();
        row..row + 1
    });
    let some = some.unwrap();
    assert_eq!((some.rows(), some.decoded()), (20_000, 42..43));
    assert_eq!(some.entry(42).size, 42);
    let none = Segment::decode_rows(&file, |_| 7..7).unwrap();
    assert!(none.decoded().is_empty());
}

/// Pages of all columns end at other rows where values are long, so every page's share must be
/// found anew.
#[test]
fn rows_are_the_same_whatever_range_is_decoded() {
    let entries: Vec<Entry> = (0..20_000u32)
        .map(|number| {
            let mut entry = named(&format!("d{:03}", number / 100), &format!("{number:05}"));
            entry.kind = Kind::Symlink;
            entry.target = vec![b'x'; (number % 300) as usize].into();
            (entry.inode, entry.uid) = (u64::from(number) * 7, number / 5_000);
            entry
        })
        .collect();
    let file = made_of(&entries);
    for range in [0..1, 8_191..8_193, 3..16_385, 19_999..20_000, 0..20_000] {
        let segment = Segment::decode_rows(&file, |_| range.clone()).unwrap();
        let found: Vec<Entry> = segment.entries(range.clone()).collect();
        assert_eq!(found, entries[range]);
    }
}

proptest! {
    #[test]
    fn pointers_are_what_the_rows_point_at(entries in any_entries(40)) {
        let file = made_of(&entries);
        let mut told = pointers(&file).unwrap();
        let mut expected = Vec::new();
        for entry in &entries {
            match entry.content {
                Content::None | Content::Image => {}
                Content::Bundled { chunk, .. } => expected.push(Pointer::Bundle(chunk)),
                Content::Pieces { list } => expected.push(Pointer::Pieces(list)),
            }
            if let Some((2, id)) = entry.xattrs.split_first() {
                expected.push(Pointer::Xattrs(ChunkId::from_slice(id).unwrap()));
            }
        }
        expected.dedup();
        told.dedup();
        prop_assert_eq!(told, expected);
    }
}
