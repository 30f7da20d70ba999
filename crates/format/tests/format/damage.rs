//! Whatever happens to stored bytes is noticed, and nothing that is read from them panics or
//! allocates without bound.

use bale_format::pack::{
    KeyOfEnds, PACK_FOOTER_BYTES, PACK_FRONT_BYTES, PACK_HEADER_BYTES, open_trailer,
};
use bale_format::record::RECORD_HEAD_BYTES;
use bale_format::xattrs::{decode_xattrs, encode_xattrs};
use bale_format::{
    ChunkKind, Codec, Compressor, Condemned, DamagedPacks, Decompressor, Fault, FinishedPack,
    FormatError, Index, IndexEntry, IndexPack, KeySlot, Keys, ObjectId, ObjectType, PackEntry,
    PackFooter, PackHeader, PackKey, PackLayout, Payload, PieceList, RepositoryId, RootKey,
    SalvageScan, Snapshot, Time, UnverifiedConfig, Xattr, encode_index, salvage_record,
};

const SALT: [u8; 32] = [7; 32];

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}

/// Text that compresses and bytes that do not.
fn plains() -> Vec<(ChunkKind, Vec<u8>)> {
    vec![
        (ChunkKind::Data, b"the same again ".repeat(20)),
        (
            ChunkKind::Xattrs,
            blake3::hash(b"x").as_bytes()[..17].to_vec(),
        ),
        (ChunkKind::Data, vec![0]),
    ]
}

fn small_pack(keys: &Keys) -> (Vec<u8>, FinishedPack) {
    let mut compressor = Compressor::new(3);
    let mut layout = PackLayout::new(keys, SALT);
    let mut pack = layout.header().encode().to_vec();
    for (kind, plain) in plains() {
        let (codec, bytes) = compressor.compress(kind, &plain);
        let payload = Payload {
            codec,
            bytes,
            plain_bytes: plain.len(),
        };
        let id = keys.chunk_id(kind, &plain);
        layout.push(id, kind, &payload, &mut pack).unwrap();
    }
    let finished = layout.finish(&mut compressor, &mut pack).unwrap();
    assert_eq!(finished.bytes, pack.len() as u64);
    (pack, finished)
}

fn part(pack: &[u8], range: std::ops::Range<u64>) -> Option<&[u8]> {
    pack.get(range.start as usize..range.end as usize)
}

fn ends(keys: &Keys, pack: &[u8]) -> Result<KeyOfEnds, FormatError> {
    keys.pack_key_by_ends(pack.first_chunk(), pack.last_chunk())
}

fn read_trailer(keys: &Keys, pack: &[u8]) -> Result<Vec<PackEntry>, FormatError> {
    let start = pack.len().saturating_sub(PACK_FOOTER_BYTES);
    let key = ends(keys, pack)?.key;
    let footer = PackFooter::open(&key, &pack[start..], pack.len() as u64)?;
    let record = part(pack, footer.trailer_range()).expect("the footer was checked");
    open_trailer(&key, record, pack.len() as u64)
}

/// Everything a restore would do, by the index's knowledge of the pack.
fn read_all(keys: &Keys, pack: &[u8], entries: &[PackEntry]) -> Result<Vec<Vec<u8>>, FormatError> {
    let key = ends(keys, pack)?.key;
    let mut contexts = Decompressor::new();
    entries
        .iter()
        .map(|entry| {
            let record = part(pack, entry.range()).unwrap_or_default();
            key.open_chunk(keys, entry, record, &mut contexts)
        })
        .collect()
}

#[test]
fn pack_gives_back_what_went_in_and_its_trailer_says_the_same() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    let expected: Vec<_> = plains().into_iter().map(|(_, plain)| plain).collect();
    assert_eq!(read_all(&keys, &pack, &finished.entries), Ok(expected));
    assert_eq!(read_trailer(&keys, &pack), Ok(finished.entries));
}

#[test]
fn every_flipped_bit_of_a_pack_is_noticed() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    for at in 0..pack.len() {
        for bit in [0, 7] {
            let mut flipped = pack.clone();
            flipped[at] ^= 1 << bit;
            let chunks = read_all(&keys, &flipped, &finished.entries);
            let trailer = read_trailer(&keys, &flipped);
            let ends = ends(&keys, &flipped).unwrap();
            let is_in_front = at < PACK_HEADER_BYTES;
            let is_in_footer = at >= pack.len() - PACK_HEADER_BYTES;
            assert_eq!(ends.is_front_right, !is_in_front, "byte {at}");
            assert_eq!(ends.is_footer_right, !is_in_footer, "byte {at}");
            let is_noticed = chunks.is_err() || trailer.is_err();
            assert_eq!(is_noticed, !is_in_front && !is_in_footer, "byte {at}");
        }
    }
}

fn opens_all(keys: &Keys, key: &PackKey, pack: &[u8], entries: &[PackEntry]) -> bool {
    let mut contexts = Decompressor::new();
    entries.iter().all(|entry| {
        let record = part(pack, entry.range()).unwrap();
        key.open_chunk(keys, entry, record, &mut contexts).is_ok()
    })
}

/// Whatever becomes of one copy of the head, and of one of the two seals that show which is right.
#[test]
fn the_key_of_a_pack_is_found_by_either_copy_of_its_head() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    let is_key = |key: &PackKey| opens_all(&keys, key, &pack, &finished.entries);
    let by_front = |pack: &[u8]| keys.pack_key_by_front(pack.first_chunk().unwrap());
    assert!(is_key(&by_front(&pack).unwrap()));
    let footer_at = pack.len() - PACK_FOOTER_BYTES;
    let copy_at = pack.len() - PACK_HEADER_BYTES;
    let heads = (0..PACK_HEADER_BYTES).chain(copy_at..pack.len());
    for at in heads {
        // Neither, that of the first record, that of the trailer.
        for seal in [None, Some(PACK_HEADER_BYTES + 20), Some(footer_at + 20)] {
            let mut damaged = pack.clone();
            damaged[at] ^= 0x10;
            if let Some(seal) = seal {
                damaged[seal] ^= 1;
            }
            let found = ends(&keys, &damaged).unwrap();
            assert!(is_key(&found.key), "byte {at}, seal {seal:?}");
            let alone = by_front(&damaged);
            assert!(alone.is_none_or(|key| is_key(&key)), "byte {at}");
        }
    }
    // One end cannot be read, or is all that is there.
    let front = pack.first_chunk::<PACK_FRONT_BYTES>();
    let footer = pack.last_chunk::<PACK_FOOTER_BYTES>();
    for (front, footer) in [(front, None), (None, footer)] {
        let found = keys.pack_key_by_ends(front, footer).unwrap();
        assert!(is_key(&found.key));
        assert_eq!(found.is_front_right, front.is_some());
        assert_eq!(found.is_footer_right, footer.is_some());
    }
    assert!(keys.pack_key_by_ends(None, None).is_err());
}

/// Both seals are damaged, and the records are not: what looks like a head is believed.
#[test]
fn without_a_seal_a_head_that_looks_like_one_is_believed() {
    let keys = keys();
    let (mut pack, finished) = small_pack(&keys);
    let footer_at = pack.len() - PACK_FOOTER_BYTES;
    pack[PACK_HEADER_BYTES + 20] ^= 1;
    pack[footer_at + 20] ^= 1;
    let readable = |pack: &[u8]| {
        let key = ends(&keys, pack).unwrap().key;
        opens_all(&keys, &key, pack, &finished.entries[1..])
    };
    assert!(readable(&pack));
    pack[0] ^= 1;
    assert!(readable(&pack));
    let copy_at = pack.len() - PACK_HEADER_BYTES;
    pack[copy_at] ^= 1;
    assert!(ends(&keys, &pack).is_err());
}

#[test]
fn a_damaged_chunk_does_not_stop_the_reading_of_others() {
    let keys = keys();
    let (mut pack, finished) = small_pack(&keys);
    pack[finished.entries[1].offset as usize + 20] ^= 1;
    let readable = |entry: &PackEntry| read_all(&keys, &pack, &[*entry]).is_ok();
    let readable: Vec<_> = finished.entries.iter().map(readable).collect();
    assert_eq!(readable, [true, false, true]);
}

#[test]
fn a_pack_cut_off_anywhere_is_noticed_and_never_panics() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    for length in 0..pack.len() {
        assert!(read_trailer(&keys, &pack[..length]).is_err(), "{length}");
        let _ = read_all(&keys, &pack[..length], &finished.entries);
        let _ = keys.pack_key(&SALT).open_head(&pack[..length]);
    }
}

fn salvage(keys: &Keys, pack: &[u8]) -> Vec<PackEntry> {
    let key = ends(keys, pack).unwrap().key;
    let mut scan = SalvageScan::new(pack.len() as u64);
    let mut contexts = Decompressor::new();
    let mut found = Vec::new();
    while let Some(at) = scan.next_head_at() {
        let Ok(Some(head)) = scan.take(&key, &pack[at as usize..]) else {
            break;
        };
        let record = part(pack, at..at + head.record_bytes()).unwrap();
        found.extend(salvage_record(keys, &key, at, record, &mut contexts));
    }
    found
}

#[test]
fn chunks_of_a_pack_without_trailer_are_found_again() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    assert_eq!(salvage(&keys, &pack), finished.entries);
    let end = finished.entries[2].range().start as usize + 5;
    assert_eq!(salvage(&keys, &pack[..end]), finished.entries[..2]);
    let mut damaged = pack.clone();
    damaged[finished.entries[0].offset as usize + RECORD_HEAD_BYTES] ^= 1;
    assert_eq!(salvage(&keys, &damaged), finished.entries[1..]);
    // Nothing but the head says where the next one is.
    let mut damaged = pack.clone();
    damaged[finished.entries[1].offset as usize] ^= 1;
    assert_eq!(salvage(&keys, &damaged), finished.entries[..1]);
}

#[test]
fn swapped_records_wrong_kinds_and_foreign_packs_are_refused() {
    let keys = keys();
    let (pack, finished) = small_pack(&keys);
    let [first, second, third] = finished.entries[..] else {
        panic!("three chunks");
    };
    let key = keys.pack_key(&SALT);
    let mut contexts = Decompressor::new();
    let mut open = |keys: &Keys, entry: &PackEntry, record: &[u8]| {
        key.open_chunk(keys, entry, record, &mut contexts)
    };
    let record = part(&pack, third.range()).unwrap();
    assert!(open(&keys, &third, record).is_ok());
    // Another chunk's record in its place.
    assert!(open(&keys, &third, part(&pack, second.range()).unwrap()).is_err());
    // The right body behind another head: of another slot, or of another kind.
    for changed in [
        PackEntry {
            slot: third.slot + 1,
            ..third
        },
        PackEntry {
            kind: ChunkKind::Pieces,
            ..third
        },
    ] {
        assert!(open(&keys, &changed, record).is_err());
        let mut moved = Vec::new();
        key.seal_record(&changed, &plains()[2].1, &mut moved);
        moved[RECORD_HEAD_BYTES..].copy_from_slice(&record[RECORD_HEAD_BYTES..]);
        assert_eq!(
            open(&keys, &changed, &moved),
            Err(FormatError::Damaged {
                what: "pack record",
                fault: Fault::Seal
            })
        );
    }
    // An index entry that promises another chunk there.
    let lying = PackEntry {
        id: first.id,
        ..third
    };
    assert!(matches!(
        open(&keys, &lying, record),
        Err(FormatError::Damaged {
            fault: Fault::Id { .. },
            ..
        })
    ));
    // The same root key in another repository.
    let other = Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([3; 16]));
    assert!(read_all(&other, &pack, &finished.entries).is_err());
}

#[test]
fn a_plain_length_that_lies_is_refused_without_allocating_it() {
    let keys = keys();
    let key = keys.pack_key(&SALT);
    let plain = vec![0_u8; 1 << 20];
    let mut compressor = Compressor::new(3);
    let (codec, bytes) = compressor.compress(ChunkKind::Data, &plain);
    assert_eq!(codec, Codec::Zstd);
    for plain_bytes in [1_000, (1 << 20) - 1, (1 << 20) + 1] {
        let mut layout = PackLayout::new(&keys, SALT);
        let payload = Payload {
            codec,
            bytes,
            plain_bytes,
        };
        let id = keys.chunk_id(ChunkKind::Data, &plain);
        let entry = layout.place(id, ChunkKind::Data, &payload).unwrap();
        let mut record = Vec::new();
        key.seal_record(&entry, bytes, &mut record);
        let opened = key.open_chunk(&keys, &entry, &record, &mut Decompressor::new());
        assert!(matches!(opened, Err(FormatError::Damaged { .. })));
        let verified = key.verify_record(&keys, &entry, &record, &mut Decompressor::new());
        assert!(matches!(verified, Err(FormatError::NotVerified { .. })));
    }
    let mut contexts = Decompressor::new();
    assert!(
        contexts
            .decompress(codec, bytes, bale_format::limits::CHUNK_BYTES_MAX + 1)
            .is_err()
    );
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_sealed_object_is_noticed() {
    let keys = keys();
    for plain in [b"hello".to_vec(), b"hello again ".repeat(10), Vec::new()] {
        let sealed = keys
            .seal_object(ObjectType::Snapshot, &plain, SALT)
            .unwrap();
        let open = |bytes: &[u8]| keys.open_object(ObjectType::Snapshot, bytes, 1 << 20);
        assert_eq!(open(&sealed), Ok(plain));
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 0x10;
            assert!(open(&flipped).is_err(), "byte {at}");
            assert!(open(&sealed[..at]).is_err(), "cut at {at}");
        }
        let mut longer = sealed.clone();
        longer.push(0);
        assert!(open(&longer).is_err());
    }
}

#[test]
fn an_object_of_another_type_size_or_repository_is_refused() {
    let keys = keys();
    let sealed = keys
        .seal_object(ObjectType::Index, &[0; 1000], SALT)
        .unwrap();
    assert!(keys.open_object(ObjectType::Index, &sealed, 1000).is_ok());
    assert!(keys.open_object(ObjectType::Index, &sealed, 999).is_err());
    let mut relabelled = sealed.clone();
    relabelled[10] = ObjectType::Snapshot as u8;
    for object_type in [
        ObjectType::Snapshot,
        ObjectType::Run,
        ObjectType::Condemned,
        ObjectType::Damaged,
    ] {
        assert!(keys.open_object(object_type, &sealed, 1000).is_err());
        assert!(keys.open_object(object_type, &relabelled, 1000).is_err());
    }
    let other = Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([3; 16]));
    assert!(other.open_object(ObjectType::Index, &sealed, 1000).is_err());
    // Announces another length than the frame has.
    let mut lying = sealed;
    lying[12] ^= 1;
    assert!(keys.open_object(ObjectType::Index, &lying, 2000).is_err());
}

#[test]
fn later_versions_are_called_newer_and_never_damaged() {
    let keys = keys();
    let newer = |result: Result<(), FormatError>| matches!(result, Err(FormatError::Newer { .. }));
    let mut object = keys.seal_object(ObjectType::Run, b"x", SALT).unwrap();
    object[8] = 2;
    assert!(newer(
        keys.open_object(ObjectType::Run, &object, 10).map(drop)
    ));
    let mut header = PackHeader { salt: SALT }.encode();
    header[8] = 2;
    assert!(newer(PackHeader::decode(&header).map(drop)));
    let (mut pack, _) = small_pack(&keys);
    let end = pack.len() - PACK_HEADER_BYTES;
    pack[end..].copy_from_slice(&header);
    assert!(ends(&keys, &pack).is_ok(), "the other copy says 1");
    pack[..PACK_HEADER_BYTES].copy_from_slice(&header);
    assert!(newer(ends(&keys, &pack).map(drop)));
    assert!(newer(
        keys.pack_key_by_ends(pack.first_chunk(), None).map(drop)
    ));
    assert!(newer(
        UnverifiedConfig::decode(b"{\"format\":2}\n?").map(drop)
    ));
    assert!(newer(KeySlot::decode(b"{\"slot\":2}").map(drop)));
    assert!(newer(Snapshot::from_json(b"{\"version\":3}").map(drop)));
    assert!(newer(Condemned::from_json(b"{\"version\":2}").map(drop)));
    assert!(newer(DamagedPacks::from_json(b"{\"version\":2}").map(drop)));
}

fn small_index(keys: &Keys) -> Vec<u8> {
    let (_, finished) = small_pack(keys);
    let packs = [IndexPack {
        id: ObjectId([9; 32]),
        bytes: finished.bytes,
    }];
    let entry = |chunk| IndexEntry { pack: 0, chunk };
    let mut entries: Vec<_> = finished.entries.into_iter().map(entry).collect();
    encode_index(&packs, &mut entries).unwrap()
}

#[test]
fn a_damaged_index_plaintext_never_panics_and_never_points_outside_its_packs() {
    let plain = small_index(&keys());
    for at in 0..plain.len() {
        assert!(Index::decode(plain[..at].to_vec()).is_err());
        for bit in 0..8 {
            let mut flipped = plain.clone();
            flipped[at] ^= 1 << bit;
            let Ok(index) = Index::decode(flipped) else {
                continue;
            };
            for entry in index.iter() {
                let pack = index.pack(entry.pack).unwrap();
                assert!(entry.chunk.range().end <= pack.bytes);
                assert!(index.find(entry.chunk.id).count() > 0);
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_an_index_object_is_noticed() {
    let keys = keys();
    let plain = small_index(&keys);
    let sealed = keys.seal_object(ObjectType::Index, &plain, SALT).unwrap();
    for at in 0..sealed.len() {
        let mut flipped = sealed.clone();
        flipped[at] ^= 1;
        let opened = keys.open_object(ObjectType::Index, &flipped, 1 << 20);
        assert!(opened.is_err(), "byte {at}");
    }
}

#[test]
fn counts_that_lie_are_refused_before_they_are_believed() {
    let mut index = vec![0xff; 8];
    index.extend([0; 100]);
    assert!(Index::decode(index).is_err());
    let mut pieces = vec![0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
    assert!(PieceList::decode(&pieces).is_err());
    pieces[4..].copy_from_slice(&16384_u32.to_le_bytes());
    assert!(PieceList::decode(&pieces).is_err());
    assert!(decode_xattrs(&[1, 0, 0xff, 0xff, 0xff, 0xff, b'a']).is_err());
}

#[test]
fn a_cut_set_of_attributes_never_panics() {
    let attribute = |name: &str| Xattr {
        name: name.as_bytes().to_vec(),
        value: vec![1, 2, 3],
    };
    let set = encode_xattrs(&mut [attribute("user.b"), attribute("user.a")]).unwrap();
    assert_eq!(decode_xattrs(&set).unwrap()[0].name, b"user.a");
    for length in 1..set.len() {
        let whole_attributes = length == set.len() / 2;
        assert_eq!(decode_xattrs(&set[..length]).is_ok(), whole_attributes);
    }
    assert!(encode_xattrs(&mut [attribute("user.a"), attribute("user.a")]).is_err());
}

#[test]
fn an_empty_pack_is_never_written() {
    let layout = PackLayout::new(&keys(), SALT);
    assert_eq!(layout.bytes(), PACK_HEADER_BYTES as u64);
    assert!(
        layout
            .finish(&mut Compressor::new(3), &mut Vec::new())
            .is_err()
    );
}

#[test]
fn marks_of_damaged_packs_come_back_and_bad_times_do_not() {
    let damaged = DamagedPacks::new(
        Time {
            seconds: 5,
            nanos: 6,
        },
        vec![ObjectId([1; 32]), ObjectId([2; 32])],
    );
    let plain = damaged.to_json().unwrap();
    assert_eq!(DamagedPacks::from_json(&plain), Ok(damaged));
    let bad = br#"{"version":1,"time":[0,1000000000],"packs":[]}"#;
    assert!(DamagedPacks::from_json(bad).is_err());
}

#[test]
fn condemned_lists_come_back_and_bad_times_do_not() {
    let condemned = Condemned::new(
        Time {
            seconds: 5,
            nanos: 6,
        },
        vec![ObjectId([1; 32]), ObjectId([2; 32])],
    );
    let plain = condemned.to_json().unwrap();
    assert_eq!(Condemned::from_json(&plain), Ok(condemned));
    let bad = br#"{"version":1,"time":[0,1000000000],"packs":[]}"#;
    assert!(Condemned::from_json(bad).is_err());
}
