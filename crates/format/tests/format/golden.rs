//! Golden vectors: computed once by another program from docs/FORMAT.md. If one of these fails, old
//! repositories can no longer be read or deduplicated against: the code is wrong, never the vector.

use bale_format::{
    ChunkKind, ChunkSizes, Codec, Config, Cutter, Keys, ObjectType, PackEntry, PasswordCost,
    RecoveryKey, RepositoryId, RootKey, SlotParameters, SlotSecret,
};

const SALT: [u8; 32] = [0x5a; 32];

fn root_bytes() -> [u8; 32] {
    std::array::from_fn(|position| position as u8)
}

fn repository() -> RepositoryId {
    RepositoryId(std::array::from_fn(|position| 0x10 + position as u8))
}

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes(root_bytes()), repository())
}

fn fixed_data(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new()
        .update(b"cuts")
        .finalize_xof()
        .fill(&mut data);
    data
}

fn hex(bytes: &[u8]) -> String {
    bale_format::id::hex(bytes)
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_string()
}

#[test]
fn chunk_ids_and_content_hashes_are_what_they_always_were() {
    for (kind, id) in [
        (
            ChunkKind::Data,
            "c6fd7d9d3ef598e929ae38b7ccd685a3bff6427df379a96ee73a1e8d679d63b3",
        ),
        (
            ChunkKind::Segment,
            "f34f1c32e1a4ee39326f3a5fe1850c07c8a6b765216df8af7498c6a0284a58aa",
        ),
        (
            ChunkKind::Pieces,
            "1291668f85a0f428bbd95b889e1a3f3198cb8fb3b9f92f260ba9390d7243cca0",
        ),
        (
            ChunkKind::Xattrs,
            "e0865ddfe4c9e33fa6ba76c15139506fe6bcbe438b28d8557eb9083b1c3611f1",
        ),
    ] {
        assert_eq!(keys().chunk_id(kind, b"abc").to_string(), id);
    }
    assert_eq!(
        hex(&keys().content_hash(b"abc")),
        "43f5638a3c8d3796c700da798cc09cd2"
    );
}

#[test]
fn sealed_object_is_what_it_always_was() {
    let golden = "42414c454f424a310100010000000000c6e0628d7c59ae647de190236039e032c28314ca9378bf55\
                  a102e660496d8f5cf81d78dc814a5d0c0bb3fc1d6c649f21ad8ec4af556d80a37ecb6903b59c46e0";
    let golden_hash = "4298d7505064bdf461a7304fbe804f15e1b53c8f5f0991e1b2104844aa7cf737";
    let sealed = keys()
        .seal_object(ObjectType::Index, b"hello", SALT)
        .unwrap();
    assert_eq!(sealed.len(), 4096);
    assert_eq!(hex(&sealed[..80]), golden);
    assert_eq!(hash(&sealed), golden_hash);
}

#[test]
fn pack_record_is_what_it_always_was() {
    let golden = "3fd384cb2bf74fd16f7685dc17085379f2b0c8f735c123e08bdc1a5dd5480c1506e1f528bf2be242\
                  6be8d7b61756876296b3a830de826957df44f5cd55a43c347a71b32bc4f853fc7f7aa558e2339c55";
    let golden_hash = "30c78f9fbb5c5307acabb5dc250bd42d3f6ee144168643a60745816aab17474d";
    let entry = PackEntry {
        id: keys().chunk_id(ChunkKind::Data, b"hello"),
        offset: 48,
        sealed_bytes: 976,
        plain_bytes: 5,
        slot: 7,
        kind: ChunkKind::Data,
        codec: Codec::Stored,
    };
    let mut record = Vec::new();
    keys()
        .pack_key(&SALT)
        .seal_record(&entry, b"hello", &mut record);
    assert_eq!(record.len(), 1024);
    assert_eq!(hex(&record[..80]), golden);
    assert_eq!(hash(&record), golden_hash);
}

#[test]
fn password_slot_is_what_it_always_was() {
    let slot = bale_format::KeySlot::create(
        &RootKey::from_bytes(root_bytes()),
        repository(),
        SlotSecret::Password(b"correct horse"),
        &SlotParameters {
            label: "golden",
            created: 1,
            salt: SALT,
            cost: PasswordCost {
                m_kib: 64,
                t: 1,
                p: 1,
            },
        },
    )
    .unwrap();
    let json = String::from_utf8(slot.encode()).unwrap();
    for golden in [
        "D833M9YD4Ad4WAFpXL/0VE78H1c43b4XgslXrkj5qkg=",
        "6gywP/W9YkFD9CGoaoIvke6yRJdvp9VcBNVHtARo3UVVFcoPkx0oVrpZrogGtwwh",
    ] {
        assert!(json.contains(golden), "{json}");
    }
}

#[test]
fn config_is_what_it_always_was() {
    let bytes = Config::new(repository(), 1_700_000_000)
        .encode(&keys())
        .unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (line, mac) = text.split_once('\n').unwrap();
    assert_eq!(
        line,
        r#"{"format":1,"repository":"101112131415161718191a1b1c1d1e1f","features_read":[],"features_write":[],"features_gc":[],"created":1700000000,"chunk_bytes_min":524288,"chunk_bytes_avg":1048576,"chunk_bytes_max":4194304}"#
    );
    assert_eq!(mac, CONFIG_MAC);
}

const CONFIG_MAC: &str = "008f52df1ff6f0bd5e3dc60299510143fa4ca7834058f9494bd1ccc93adba77d\n";

#[test]
fn recovery_key_text_is_what_it_always_was() {
    let key = RecoveryKey::from_bytes(root_bytes());
    assert_eq!(
        key.to_text().as_str(),
        "000G40R-40M30E2-09185GR-38E1W81-24GK2GA-HC5RR34-D1P70X3-RFYAA79"
    );
}

fn pieces(data: &[u8], sizes: &ChunkSizes) -> Vec<usize> {
    let keys = keys();
    let mut lengths = Vec::new();
    let mut start = 0;
    while start < data.len() {
        let length = keys
            .gear_table()
            .cut(&data[start..], sizes)
            .unwrap_or(data.len() - start);
        lengths.push(length);
        start += length;
    }
    lengths
}

#[test]
fn large_files_are_cut_where_they_always_were() {
    let small = ChunkSizes {
        min: 1024,
        avg: 2048,
        max: 8192,
    };
    assert_eq!(
        pieces(&fixed_data(1 << 16), &small),
        [
            5041, 1624, 5418, 1967, 1273, 6457, 1129, 8192, 2387, 1168, 1483, 3673, 2400, 1631,
            2248, 2110, 1311, 2481, 5194, 1067, 1926, 3893, 1463
        ]
    );
    let data = fixed_data(8 << 20);
    let lengths = pieces(&data, &ChunkSizes::default());
    assert_eq!(
        lengths,
        [1_145_976, 1_810_035, 1_115_489, 2_273_632, 2_043_476]
    );
    assert_eq!(
        keys()
            .chunk_id(ChunkKind::Data, &data[..lengths[0]])
            .to_string(),
        "8dfd2f948e1d39ac080735f4d7a659c994ef63d9b22b39b02ecd5978bea48744"
    );
}

#[test]
fn cuts_do_not_depend_on_how_the_data_arrives() {
    let data = fixed_data(1 << 16);
    let sizes = ChunkSizes {
        min: 1024,
        avg: 2048,
        max: 8192,
    };
    let whole = pieces(&data, &sizes);
    let keys = keys();
    for portion in [1, 7, 63, 64, 1023, 1024, 1025, 5000, 1 << 16] {
        let mut cutter = Cutter::new(&sizes);
        let mut lengths = Vec::new();
        for mut portion in data.chunks(portion) {
            while !portion.is_empty() {
                let before = cutter.length();
                match cutter.push(keys.gear_table(), portion) {
                    Some(count) => {
                        lengths.push(before + count);
                        portion = &portion[count..];
                    }
                    None => break,
                }
            }
        }
        if cutter.length() > 0 {
            lengths.push(cutter.length());
        }
        assert_eq!(lengths, whole, "in portions of {portion}");
    }
}

#[test]
fn equal_data_after_a_hole_is_cut_equally() {
    let data = fixed_data(1 << 16);
    let sizes = ChunkSizes {
        min: 1024,
        avg: 2048,
        max: 8192,
    };
    let keys = keys();
    let mut cutter = Cutter::new(&sizes);
    assert_eq!(cutter.push(keys.gear_table(), &data[40_000..40_900]), None);
    cutter.restart();
    assert_eq!(
        cutter.push(keys.gear_table(), &data),
        keys.gear_table().cut(&data, &sizes)
    );
}
