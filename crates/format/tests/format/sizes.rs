//! Who has no key learns no length from what is stored but which of the few lengths it was padded
//! to.

use bale_format::chunk::Codec;
use bale_format::pack::PACK_HEADER_BYTES;
use bale_format::padding::padded;
use bale_format::record::record_bytes;
use bale_format::{
    ChunkKind, Compressor, FinishedPack, IndexEntry, IndexPack, Keys, ObjectId, ObjectType,
    PackLayout, Payload, RepositoryId, RootKey, encode_index,
};

const SALT: [u8; 32] = [7; 32];

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}

fn noise(seed: u8, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new()
        .update(&[seed])
        .finalize_xof()
        .fill(&mut noise);
    noise
}

/// A pack of these data chunks and an index object that names it.
fn stored(lengths: &[usize]) -> (Vec<u8>, FinishedPack, Vec<u8>) {
    let keys = keys();
    let mut layout = PackLayout::new(&keys, SALT);
    let mut pack = layout.header().encode().to_vec();
    for (number, length) in lengths.iter().enumerate() {
        let plain = noise(number as u8, *length);
        let payload = Payload {
            codec: Codec::Stored,
            bytes: &plain,
            plain_bytes: plain.len(),
        };
        let id = keys.chunk_id(ChunkKind::Data, &plain);
        layout
            .push(id, ChunkKind::Data, &payload, &mut pack)
            .unwrap();
    }
    let finished = layout.finish(&mut Compressor::new(3), &mut pack).unwrap();
    let packs = [IndexPack {
        id: ObjectId(*blake3::hash(&pack).as_bytes()),
        bytes: finished.bytes,
    }];
    let entry = |chunk: &_| IndexEntry {
        pack: 0,
        chunk: *chunk,
    };
    let mut entries: Vec<_> = finished.entries.iter().map(entry).collect();
    let plain = encode_index(&packs, &mut entries).unwrap();
    let index = keys.seal_object(ObjectType::Index, &plain, SALT).unwrap();
    (pack, finished, index)
}

#[test]
fn files_whose_sizes_differ_within_a_step_leave_objects_of_the_same_lengths() {
    let one = [612_345, 587_654, 17, 1_500_000];
    let other = [607_000, 580_001, 900, 1_490_000];
    let (pack, finished, index) = stored(&one);
    let (other_pack, other_finished, other_index) = stored(&other);
    assert_eq!(pack.len(), other_pack.len());
    assert_eq!(index.len(), other_index.len());
    for (a, b) in finished.entries.iter().zip(&other_finished.entries) {
        assert_eq!(a.range(), b.range());
        assert_ne!(a.plain_bytes, b.plain_bytes);
    }
    // What is the same in both, and so may be known to everybody: magic, version, salt. All else is
    // sealed.
    let same = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    assert_eq!(same(&pack, &other_pack), PACK_HEADER_BYTES);
    assert_eq!(same(&index, &other_index), 16);
}

#[test]
fn no_length_stands_in_the_bytes_of_a_pack_or_an_index_object() {
    let lengths = [612_345, 587_654, 1_500_000, 701_111];
    let (pack, finished, index) = stored(&lengths);
    let trailer_at = finished.entries.last().unwrap().range().end;
    let told = lengths
        .iter()
        .map(|length| *length as u64)
        .chain(finished.entries.iter().map(|entry| entry.offset))
        .chain(
            finished
                .entries
                .iter()
                .map(|entry| u64::from(entry.sealed_bytes)),
        )
        .chain([trailer_at]);
    // Three bytes are in any noise of this length.
    for length in told.filter(|length| *length >= 1 << 16) {
        let bytes = &(length as u32).to_le_bytes()[..];
        for object in [&pack, &index] {
            assert!(!object.windows(4).any(|four| four == bytes), "{length}");
        }
    }
}

#[test]
fn the_length_of_a_pack_does_not_tell_how_many_chunks_are_in_it() {
    let one = record_bytes(1 << 20);
    let two = record_bytes(one / 2 - 100);
    assert_eq!(2 * two, one, "a megabyte or two halves");
}

#[test]
fn records_and_objects_have_few_lengths() {
    for payload_bytes in [1, 500, 948, 949, 5_000, 70_000, 3 << 20, 16 << 20] {
        let bytes = record_bytes(payload_bytes);
        assert!(bytes >= 1024 && padded(bytes) == bytes, "{payload_bytes}");
    }
    for bytes in [0, 100, 4000, 4_017, 20_000, 300_000] {
        let plain = noise(9, bytes);
        let sealed = keys().seal_object(ObjectType::Run, &plain, SALT).unwrap();
        assert!(sealed.len() >= 4096 && padded(sealed.len()) == sealed.len());
    }
}

/// A machine that is set back to an earlier moment draws the same randomness again and counts from
/// the same slot.
#[test]
fn another_content_under_the_same_salt_and_slot_is_sealed_with_another_nonce() {
    let nonce_of = |seed: u8| {
        let keys = keys();
        let mut layout = PackLayout::new(&keys, SALT);
        let plain = noise(seed, 2000);
        let payload = Payload {
            codec: Codec::Stored,
            bytes: &plain,
            plain_bytes: plain.len(),
        };
        let id = keys.chunk_id(ChunkKind::Data, &plain);
        let entry = layout.place(id, ChunkKind::Data, &payload).unwrap();
        let mut record = Vec::new();
        layout.key().seal_record(&entry, &plain, &mut record);
        record[..12].to_vec()
    };
    assert_eq!(nonce_of(1), nonce_of(1));
    assert_ne!(nonce_of(1), nonce_of(2));
    let salt_of = |plain: &[u8]| {
        let sealed = keys().seal_object(ObjectType::Run, plain, SALT).unwrap();
        sealed[16..48].to_vec()
    };
    assert_eq!(salt_of(b"one"), salt_of(b"one"));
    assert_ne!(salt_of(b"one"), salt_of(b"two"));
}
