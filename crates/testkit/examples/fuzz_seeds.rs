//! Writes seeds of `bale-fuzz-targets`: one small valid input for each decoder of the format.
//!
//!     cargo run -p bale-testkit --example fuzz_seeds fuzz/seeds

use bale_format::pack::{PACK_FOOTER_BYTES, encode_trailer};
use bale_format::snapshot::{Counts, Filesystem, PathText, Totals};
use bale_format::xattrs::encode_xattrs;
use bale_format::{
    ChunkId, ChunkKind, Compressor, Condemned, Config, DamagedPacks, Entry, FinishedPack,
    IndexEntry, IndexPack, Key, KeySlot, Keys, Kind, Layer, ObjectId, PackLayout, PasswordCost,
    Payload, Piece, PieceListBuilder, RecoveryKey, RepositoryId, RootKey, SegmentBuilder,
    SegmentRef, SlotParameters, SlotSecret, Snapshot, StretchEntry, StretchName, StretchRecord,
    StretchTable, Time, Xattr, encode_index,
};
use std::path::Path;

/// The salt that the target of packs opens records with.
const SALT: [u8; 32] = [3; 32];
const REPOSITORY: RepositoryId = RepositoryId([2; 16]);

fn root() -> RootKey {
    RootKey::from_bytes([1; 32])
}

fn write(seeds: &Path, target: &str, bytes: &[u8]) {
    let directory = seeds.join(target);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("valid"), bytes).unwrap();
}

fn pack(keys: &Keys) -> (Vec<u8>, FinishedPack) {
    let mut compressor = Compressor::new(3);
    let mut layout = PackLayout::new(keys, SALT);
    let mut pack = layout.header().encode().to_vec();
    for plain in [b"the same again ".repeat(20), b"short".to_vec()] {
        let (codec, bytes) = compressor.compress(ChunkKind::Data, &plain);
        let payload = Payload {
            codec,
            bytes,
            plain_bytes: plain.len(),
        };
        let id = keys.chunk_id(ChunkKind::Data, &plain);
        layout
            .push(id, ChunkKind::Data, &payload, &mut pack)
            .unwrap();
    }
    let finished = layout.finish(&mut compressor, &mut pack).unwrap();
    (pack, finished)
}

fn write_packs(seeds: &Path, keys: &Keys) {
    let (pack, finished) = pack(keys);
    write(seeds, "pack_salvage", &pack);
    write(seeds, "pack_ends", &pack[pack.len() - PACK_FOOTER_BYTES..]);
    write(seeds, "pack_trailer", &encode_trailer(&finished.entries));
    let packs = [IndexPack {
        id: ObjectId([7; 32]),
        bytes: finished.bytes,
    }];
    let mut entries: Vec<_> = finished
        .entries
        .iter()
        .map(|chunk| IndexEntry {
            pack: 0,
            chunk: *chunk,
        })
        .collect();
    write(seeds, "index", &encode_index(&packs, &mut entries).unwrap());

    let plain = b"over and over ".repeat(9);
    let mut compressor = Compressor::new(3);
    let (_, compressed) = compressor.compress(ChunkKind::Data, &plain);
    let length = &(plain.len() as u32).to_le_bytes()[..3];
    write(seeds, "decompress", &[length, compressed].concat());
}

fn write_stretch(seeds: &Path) {
    let entry = |id: u8, offset, len| StretchEntry {
        pack: ObjectId([id; 32]),
        offset,
        len,
    };
    let entries = vec![entry(7, 0, 64 << 20), entry(6, 64 << 20, 3000)];
    let record = StretchRecord {
        stretch: StretchName {
            run: [1; 16],
            number: 3,
        },
        len: 65 << 20,
        hash: [2; 32],
        table: StretchTable::new(entries).unwrap(),
    };
    write(seeds, "stretch", &record.encode().unwrap());
}

fn write_keys(seeds: &Path, keys: &Keys) {
    let config = Config::new(REPOSITORY, 1_700_000_000);
    write(seeds, "config", &config.encode(keys).unwrap());
    let new = SlotParameters {
        label: "seed",
        created: 1,
        salt: SALT,
        cost: PasswordCost {
            m_kib: 64,
            t: 1,
            p: 1,
        },
    };
    let slot = KeySlot::create(&root(), REPOSITORY, SlotSecret::Password(b"secret"), &new).unwrap();
    write(seeds, "key_slot", &slot.encode());
    let key = RecoveryKey::from_bytes([9; 32]);
    write(seeds, "recovery_key", key.to_text().as_bytes());
    write(seeds, "sealed_object", b"any plaintext");
}

fn write_catalog(seeds: &Path) {
    let mut builder = SegmentBuilder::new();
    for (name, kind) in [
        ("a", Kind::Directory),
        ("b", Kind::File),
        ("c", Kind::Symlink),
    ] {
        let mut entry = Entry::new(b"home"[..].into(), name.as_bytes().to_vec().into(), kind);
        entry.mode = 0o644;
        builder.push(&entry).unwrap();
    }
    write(seeds, "segment", &builder.finish().unwrap());

    let mut attributes = [("user.a", "1"), ("security.b", "\0\u{1}")].map(|(name, value)| Xattr {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    });
    write(seeds, "xattrs", &encode_xattrs(&mut attributes).unwrap());

    let mut builder = PieceListBuilder::new();
    let mut list = Vec::new();
    let mut keep = |plain: &[u8]| {
        list = plain.to_vec();
        Ok::<_, bale_format::FormatError>(ChunkId([1; 32]))
    };
    for piece in [
        Piece::whole(1000, ChunkId([2; 32])),
        Piece::Data {
            bytes: 1000,
            chunk: ChunkId([3; 32]),
            start: Some(4096),
        },
        Piece::Hole { bytes: 5 << 20 },
        Piece::Unreadable { bytes: 4096 },
    ] {
        builder.push(piece, &mut keep).unwrap();
    }
    builder.finish(&mut keep).unwrap();
    write(seeds, "piece_list", &list);
}

fn snapshot(time: Time) -> Snapshot {
    let segment = SegmentRef {
        id: ChunkId([1; 32]),
        rows: 3,
        bytes: 10,
        first: Key::of_path(b"a"),
        last: Key::of_path(b"b/\xff"),
        from: None,
        to: Some(Key::of_path(b"c")),
    };
    Snapshot {
        version: 1,
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        partial: true,
        until: Some(Key::of_path(b"b")),
        time,
        finished: time,
        host: "host".to_owned(),
        user: "user".to_owned(),
        program: "bale".to_owned(),
        tags: vec!["daily".to_owned()],
        pinned: true,
        replaces: vec![ObjectId([6; 32])],
        paths: vec![PathText(b"/home/\xff\n".to_vec())],
        source_filesystems: vec!["00010203-0405-0607-0809-0a0b0c0d0eff".to_owned()],
        excludes: vec!["*.tmp".to_owned()],
        withheld: vec![PathText(b"/home/key".to_vec())],
        withheld_more: false,
        // So that the field is fuzzed.
        atimes: true,
        parent: Some(ObjectId([4; 32])),
        original: None,
        filesystems: vec![Filesystem {
            uuid: "u".to_owned(),
            kind: "ext4".to_owned(),
            mount: PathText(b"/".to_vec()),
            scanner: "inode".to_owned(),
            barrier: Some(time),
        }],
        images: Vec::new(),
        totals: Totals::default(),
        counts: Counts::default(),
        transfers: Default::default(),
        problems: Vec::new(),
        layers: vec![Layer {
            rows: 3,
            segments: vec![segment],
        }],
        thin: vec![ChunkId([5; 32])],
    }
}

fn main() {
    let seeds = std::env::args_os()
        .nth(1)
        .expect("fuzz_seeds takes a directory");
    let seeds = Path::new(&seeds);
    let keys = Keys::derive(&root(), REPOSITORY);
    write_packs(seeds, &keys);
    write_stretch(seeds);
    write_keys(seeds, &keys);
    write_catalog(seeds);
    let time = Time {
        seconds: -5,
        nanos: 9,
    };
    write(seeds, "snapshot", &snapshot(time).to_json().unwrap());
    let condemned = Condemned::new(time, vec![ObjectId([6; 32])]);
    write(seeds, "condemned", &condemned.to_json().unwrap());
    let damaged = DamagedPacks::new(time, vec![ObjectId([6; 32])]);
    write(seeds, "damaged_packs", &damaged.to_json().unwrap());
    write(
        seeds,
        "exclude_patterns",
        b"# caches\n*.o\n/home/*/.cache/\n!keep.o\n[a-z]{x}?\\*\n",
    );
    write(
        seeds,
        "sources",
        b"latest~2:/home/./x//\n# none\r\n/srv\0CACHEDIR.TAG:Signature",
    );
    let name = format!("packs/ab/{}", "ab".repeat(32));
    write(seeds, "object_name", name.as_bytes());
}
