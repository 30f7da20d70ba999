//! What was encoded decodes to the same, for anything; and anything at all decodes to an answer.

use bale_format::xattrs::{decode_xattrs, encode_xattrs};
use bale_format::{
    Access, ChunkId, ChunkKind, Codec, Compressor, Config, Decompressor, FormatError, Index,
    IndexEntry, IndexPack, KeySlot, Keys, ObjectId, ObjectType, PackEntry, PackFooter, PackHeader,
    PackLayout, Payload, Piece, PieceList, PieceListBuilder, PieceStep, PieceWalk, RecordHead,
    RepositoryId, RootKey, Snapshot, UnverifiedConfig, Xattr, XattrsColumn, encode_index,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}

fn any_piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => (1..=16_777_216_u64, any::<[u8; 32]>())
            .prop_map(|(bytes, id)| Piece::whole(bytes, ChunkId(id))),
        3 => (1..=16_000_000_u64, 0..=777_216_u32, any::<[u8; 32]>()).prop_map(
            |(bytes, start, id)| Piece::Data {
                bytes,
                chunk: ChunkId(id),
                start: Some(start),
            }
        ),
        1 => (1..1_u64 << 40).prop_map(|bytes| Piece::Hole { bytes }),
        1 => (1..1_u64 << 40).prop_map(|bytes| Piece::Unreadable { bytes }),
    ]
}

/// Chunks of kind pieces by id, and how often each was fetched.
#[derive(Default)]
struct Lists(HashMap<ChunkId, Vec<u8>>);

impl Lists {
    fn store(&mut self, plain: &[u8]) -> Result<ChunkId, FormatError> {
        let id = ChunkId(*blake3::hash(plain).as_bytes());
        self.0.insert(id, plain.to_vec());
        Ok(id)
    }

    fn build(&mut self, pieces: impl IntoIterator<Item = Piece>) -> (ChunkId, u64) {
        let mut builder = PieceListBuilder::new();
        for piece in pieces {
            builder
                .push(piece, &mut |plain: &[u8]| self.store(plain))
                .unwrap();
        }
        let root = builder
            .finish(&mut |plain: &[u8]| self.store(plain))
            .unwrap();
        assert_eq!(self.0[&root.list], root.plain);
        (root.list, root.bytes)
    }

    /// Pieces with their offsets, and the number of lists fetched.
    fn walk(&self, mut walk: PieceWalk) -> Result<(Vec<(u64, Piece)>, usize), FormatError> {
        let (mut pieces, mut fetches) = (Vec::new(), 0);
        loop {
            match walk.step() {
                PieceStep::Piece { offset, piece } => pieces.push((offset, piece)),
                PieceStep::Fetch(list) => {
                    fetches += 1;
                    walk.supply(&self.0[&list])?;
                }
                PieceStep::End => return Ok((pieces, fetches)),
            }
        }
    }
}

fn merged(pieces: &[Piece]) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(Piece::Hole { bytes }), Piece::Hole { bytes: more })
            | (Some(Piece::Unreadable { bytes }), Piece::Unreadable { bytes: more }) => {
                *bytes += more;
            }
            _ => out.push(*piece),
        }
    }
    out
}

proptest! {
    #[test]
    fn piece_lists_come_back_with_neighbouring_holes_merged(pieces in vec(any_piece(), 1..50)) {
        let mut lists = Lists::default();
        let (root, bytes) = lists.build(pieces.iter().copied());
        let (walked, _) = lists.walk(PieceWalk::new(root, bytes)).unwrap();
        let mut offset = 0;
        for (found, piece) in &walked {
            prop_assert_eq!(*found, offset);
            offset += piece.bytes();
        }
        prop_assert_eq!(offset, bytes);
        let walked: Vec<_> = walked.into_iter().map(|(_, piece)| piece).collect();
        prop_assert_eq!(walked, merged(&pieces));
        prop_assert!(lists.walk(PieceWalk::new(root, bytes + 1)).is_err());
    }

    #[test]
    fn chunks_come_back_from_both_codecs(
        pattern in vec(any::<u8>(), 1..300),
        repeats in 1..2000_usize,
        kind in prop::sample::select(ChunkKind::ALL.to_vec()),
    ) {
        let plain = pattern.repeat(repeats);
        let mut compressor = Compressor::new(3);
        let (codec, bytes) = compressor.compress(kind, &plain);
        prop_assert!(bytes.len() <= plain.len());
        let opened = Decompressor::new().decompress(codec, bytes, plain.len());
        prop_assert_eq!(opened, Ok(plain));
    }

    #[test]
    fn a_record_sealed_where_it_lies_has_the_same_bytes_and_is_verified(
        plain in vec(any::<u8>(), 1..3000),
        before in vec(any::<u8>(), 0..50),
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut layout = PackLayout::new(&keys(), [5; 32]);
        let id = keys().chunk_id(ChunkKind::Data, &plain);
        let payload = Payload { codec: Codec::Stored, bytes: &plain, plain_bytes: plain.len() };
        let entry = layout.place(id, ChunkKind::Data, &payload).unwrap();
        let mut record = Vec::new();
        layout.key().seal_record(&entry, &plain, &mut record);
        let mut buffer = [&before[..], &plain].concat();
        let head = layout.key().seal_in_place(&entry, &mut buffer, before.len());
        prop_assert_eq!(&buffer[..before.len()], before.as_slice());
        let mut sealed = buffer.split_off(before.len());
        prop_assert_eq!([&head[..], &sealed[..]].concat(), record);
        let mut contexts = Decompressor::new();
        let mut verify = |sealed: &[u8]| {
            let key = layout.key();
            key.verify_sealed(&keys(), &entry, &head, sealed, &mut contexts).is_ok()
        };
        prop_assert!(verify(&sealed));
        sealed[flipped.index(plain.len())] ^= 1;
        prop_assert!(!verify(&sealed));
    }

    #[test]
    fn a_chunk_in_portions_has_the_id_of_the_whole(
        portions in vec(vec(any::<u8>(), 0..3000), 0..6),
    ) {
        let mut hasher = keys().chunk_hasher(ChunkKind::Data);
        for _ in 0..2 {
            portions.iter().for_each(|portion| hasher.update(portion));
            let whole = keys().chunk_id(ChunkKind::Data, &portions.concat());
            prop_assert_eq!(hasher.finish(), whole);
        }
    }

    #[test]
    fn sealed_objects_come_back(plain in vec(any::<u8>(), 0..5000), salt in any::<[u8; 32]>()) {
        let sealed = keys().seal_object(ObjectType::Run, &plain, salt).unwrap();
        prop_assert_eq!(keys().open_object(ObjectType::Run, &sealed, plain.len()), Ok(plain));
    }

    #[test]
    fn sets_of_attributes_come_back_sorted(
        set in prop::collection::btree_map(
            vec(1..=255u8, 1..40),
            vec(any::<u8>(), 0..200),
            0..10,
        ),
    ) {
        let xattr = |(name, value)| Xattr { name, value };
        let sorted: Vec<Xattr> = set.into_iter().map(xattr).collect();
        let mut shuffled = sorted.clone();
        shuffled.reverse();
        let bytes = encode_xattrs(&mut shuffled).unwrap();
        prop_assert_eq!(decode_xattrs(&bytes), Ok(sorted));
        let column = XattrsColumn::inline(&bytes);
        let column = column.map(|column| XattrsColumn::decode(&column).unwrap());
        match column {
            None => prop_assert!(bytes.len() > 512),
            Some(XattrsColumn::None) => prop_assert!(bytes.is_empty()),
            Some(XattrsColumn::Inline(inline)) => prop_assert_eq!(&inline[..], &bytes[..]),
            Some(XattrsColumn::Chunk(_)) => prop_assert!(false),
        }
    }

    #[test]
    fn an_index_finds_every_copy_of_every_chunk_and_nothing_else(
        chunks in vec((any::<u8>(), 0..3_u32, 48..10_000_u64, 1..1000_u32), 0..200),
    ) {
        let pack = |n| IndexPack { id: ObjectId([n; 32]), bytes: 1 << 20 };
        let packs: Vec<_> = (0..3).map(pack).collect();
        let mut entries: Vec<_> = chunks
            .iter()
            .map(|(id, pack, offset, plain_bytes)| IndexEntry {
                pack: *pack,
                chunk: PackEntry {
                    id: ChunkId([*id; 32]),
                    offset: *offset,
                    sealed_bytes: plain_bytes + 16,
                    plain_bytes: *plain_bytes,
                    slot: 5,
                    kind: ChunkKind::Data,
                    codec: Codec::Stored,
                },
            })
            .collect();
        let index = Index::decode(encode_index(&packs, &mut entries).unwrap()).unwrap();
        prop_assert_eq!(index.len(), entries.len());
        prop_assert_eq!(index.packs().collect::<Vec<_>>(), packs);
        prop_assert_eq!(index.iter().collect::<Vec<_>>(), entries.clone());
        for id in 0..=255 {
            let id = ChunkId([id; 32]);
            let copies = entries.iter().copied().filter(|entry| entry.chunk.id == id);
            let copies: Vec<_> = copies.collect();
            prop_assert_eq!(index.find(id).collect::<Vec<_>>(), copies);
        }
    }

    /// The fuzzer's doors: none may panic.
    #[test]
    fn any_bytes_get_an_answer(bytes in vec(any::<u8>(), 0..400)) {
        let _ = RecordHead::decode(&bytes);
        let _ = PackHeader::decode(&bytes);
        let _ = keys().pack_key_by_ends(bytes.first_chunk(), bytes.last_chunk());
        let key = keys().pack_key(&[5; 32]);
        let _ = key.open_head(&bytes);
        let _ = PackFooter::open(&key, &bytes, bytes.len() as u64);
        let _ = bale_format::pack::decode_trailer(&bytes, 1 << 30);
        let _ = Index::decode(bytes.clone());
        let _ = PieceList::decode(&bytes);
        let _ = decode_xattrs(&bytes);
        let _ = UnverifiedConfig::decode(&bytes);
        let _ = KeySlot::decode(&bytes);
        let _ = Snapshot::from_json(&bytes);
        let _ = Decompressor::new().decompress(Codec::Zstd, &bytes, 1000);
    }
}

/// Unequal neighbours, so that nothing is merged.
fn many_pieces(count: u64) -> impl Iterator<Item = Piece> {
    (0..count).map(|number| match number % 2 {
        0 => Piece::Hole { bytes: number + 1 },
        _ => Piece::Unreadable { bytes: number + 1 },
    })
}

#[test]
fn a_file_of_many_pieces_gets_lists_of_lists_and_no_more_depth_than_it_needs() {
    for (count, lists_expected) in [(16_384, 1), (16_385, 3), (16_384 * 3, 4)] {
        let mut lists = Lists::default();
        let (root, bytes) = lists.build(many_pieces(count));
        assert_eq!(lists.0.len(), lists_expected);
        let (walked, fetches) = lists.walk(PieceWalk::new(root, bytes)).unwrap();
        assert_eq!(fetches, lists_expected);
        let pieces = walked.into_iter().map(|(_, piece)| piece);
        assert!(pieces.eq(many_pieces(count)));
    }
}

#[test]
fn reading_from_the_middle_fetches_only_the_lists_it_needs() {
    let mut lists = Lists::default();
    let count = 16_384 * 3;
    let (root, bytes) = lists.build(many_pieces(count));
    let (walked, fetches) = lists
        .walk(PieceWalk::starting_at(root, bytes, bytes - 1))
        .unwrap();
    assert_eq!(fetches, 2);
    assert_eq!(
        walked,
        [(bytes - count, Piece::Unreadable { bytes: count })]
    );
}

#[test]
fn a_list_that_is_not_what_its_parent_promised_is_refused() {
    let mut lists = Lists::default();
    let (root, bytes) = lists.build(many_pieces(16_385));
    let (other, _) = lists.build(many_pieces(3));
    let mut walk = PieceWalk::new(root, bytes);
    assert_eq!(walk.step(), PieceStep::Fetch(root));
    walk.supply(&lists.0[&root]).unwrap();
    // A leaf of another length, then a list of the wrong depth: a cycle cannot be built.
    assert!(walk.supply(&lists.0[&other]).is_err());
    let mut walk = PieceWalk::new(root, bytes);
    walk.supply(&lists.0[&root]).unwrap();
    assert!(walk.supply(&lists.0[&root]).is_err());
}

#[test]
fn a_config_comes_back_and_any_change_to_it_is_noticed() {
    let config = Config::new(RepositoryId([2; 16]), 7);
    let bytes = config.encode(&keys()).unwrap();
    let read = |bytes: &[u8]| UnverifiedConfig::decode(bytes)?.verify(&keys());
    assert_eq!(read(&bytes), Ok(config.clone()));
    assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(config.clone()));
    for at in 0..bytes.len() - 1 {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "byte {at}");
        assert!(read(&bytes[..at]).is_err());
    }
    for access in [Access::Read, Access::Write, Access::Delete] {
        assert_eq!(config.check_access(access), Ok(()));
    }
}

#[test]
fn unknown_features_stop_those_whom_they_concern() {
    let mut config = Config::new(RepositoryId([2; 16]), 7);
    config.features_gc = vec!["object-lock".to_owned()];
    let config = UnverifiedConfig::decode(&config.encode(&keys()).unwrap())
        .unwrap()
        .verify(&keys())
        .unwrap();
    assert!(config.check_access(Access::Read).is_ok());
    assert!(config.check_access(Access::Write).is_ok());
    assert!(matches!(
        config.check_access(Access::Delete),
        Err(FormatError::UnknownFeature { .. })
    ));
    config.check_access(Access::Read).unwrap();
    let mut config = config;
    config.features_read = vec!["x".to_owned()];
    for access in [Access::Read, Access::Write, Access::Delete] {
        assert!(config.check_access(access).is_err());
    }
}

#[test]
fn random_bytes_are_stored_and_a_little_text_among_them_is_still_found() {
    let mut plain = vec![0; 1 << 20];
    blake3::Hasher::new()
        .update(b"random")
        .finalize_xof()
        .fill(&mut plain);
    let mut compressor = Compressor::new(3);
    let (codec, _) = compressor.compress(ChunkKind::Data, &plain);
    assert_eq!(codec, Codec::Stored);
    let text = b"some text ".repeat(20_000);
    plain[300_000..300_000 + text.len()].copy_from_slice(&text);
    let (codec, bytes) = compressor.compress(ChunkKind::Data, &plain);
    assert_eq!(codec, Codec::Zstd);
    assert!(bytes.len() < plain.len() - text.len() / 2);
}

/// Goal: a segment's mtime and ctime columns are mostly equal, and lie further apart than level 3
/// looks.
#[test]
fn equal_columns_far_apart_in_a_segment_are_stored_once() {
    let column = |seed: &[u8], bytes: usize| {
        let mut column = vec![0; bytes];
        blake3::Hasher::new()
            .update(seed)
            .finalize_xof()
            .fill(&mut column);
        column
    };
    let times = column(b"times", 500_000);
    let segment = [times.clone(), column(b"others", 2_000_000), times].concat();
    let mut compressor = Compressor::new(3);
    let (codec, bytes) = compressor.compress(ChunkKind::Segment, &segment);
    assert_eq!(codec, Codec::Zstd);
    assert!(bytes.len() < 2_550_000, "{}", bytes.len());
    let opened = Decompressor::new().decompress(codec, bytes, segment.len());
    assert_eq!(opened, Ok(segment));
}
