//! `tools/bale_read.py`, which shares no code with this crate, restores what this crate wrote: the
//! format page is enough.

mod stretches;

use bale_format::snapshot::{Counts, PathText, Totals};
use bale_format::xattrs::encode_xattrs;
use bale_format::{
    ChunkId, ChunkKind, Compressor, Config, Content, Entry, EntryFlags, IndexEntry, IndexPack, Key,
    KeySlot, Keys, Kind, Layer, ObjectId, ObjectType, PackLayout, PasswordCost, Payload, Piece,
    PieceListBuilder, RecoveryKey, RepositoryId, RootKey, SegmentBuilder, SegmentRef,
    SlotParameters, SlotSecret, Snapshot, Time, Xattr, XattrsColumn, encode_index,
};
use bytes::Bytes;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const REPOSITORY: RepositoryId = RepositoryId([2; 16]);
const BIG_HOLE_BYTES: u64 = 3 << 20;
const SECONDS: i64 = 1_600_000_000;

/// A repository with one pack, one index and one snapshot, written by hand.
struct Writer<'a> {
    root: &'a Path,
    keys: Keys,
    layout: PackLayout,
    pack: Vec<u8>,
    compressor: Compressor,
    salts: u8,
}

impl<'a> Writer<'a> {
    fn new(root: &'a Path) -> Writer<'a> {
        let keys = Keys::derive(&RootKey::from_bytes([1; 32]), REPOSITORY);
        let layout = PackLayout::new(&keys, [8; 32]);
        Writer {
            root,
            pack: layout.header().encode().to_vec(),
            keys,
            layout,
            compressor: Compressor::new(3),
            salts: 20,
        }
    }

    fn object(&self, directory: &str, bytes: &[u8]) -> ObjectId {
        let id = ObjectId(*blake3::hash(bytes).as_bytes());
        let directory = self.root.join(directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(id.to_string()), bytes).unwrap();
        id
    }

    fn sealed(&mut self, directory: &str, object_type: ObjectType, plain: &[u8]) -> ObjectId {
        self.salts += 1;
        let salt = [self.salts; 32];
        let sealed = self.keys.seal_object(object_type, plain, salt).unwrap();
        self.object(directory, &sealed)
    }

    fn chunk(&mut self, kind: ChunkKind, plain: &[u8]) -> ChunkId {
        let id = self.keys.chunk_id(kind, plain);
        let (codec, bytes) = self.compressor.compress(kind, plain);
        let payload = Payload {
            codec,
            bytes,
            plain_bytes: plain.len(),
        };
        self.layout
            .push(id, kind, &payload, &mut self.pack)
            .unwrap();
        id
    }

    fn segment(&mut self, entries: &[Entry]) -> SegmentRef {
        let mut builder = SegmentBuilder::new();
        for entry in entries {
            builder.push(entry).unwrap();
        }
        let file = builder.finish().unwrap();
        SegmentRef {
            id: self.chunk(ChunkKind::Segment, &file),
            rows: entries.len() as u32,
            bytes: 0,
            first: entries[0].key(),
            last: entries[entries.len() - 1].key(),
            from: None,
            to: None,
        }
    }

    fn finish(mut self, layers: Vec<Layer>) {
        let finished = self
            .layout
            .finish(&mut self.compressor, &mut self.pack)
            .unwrap();
        self.layout = PackLayout::new(&self.keys, [9; 32]);
        let name = blake3::hash(&self.pack).to_hex();
        let pack = self.object(&format!("packs/{}", &name[..2]), &self.pack);
        let packs = [IndexPack {
            id: pack,
            bytes: finished.bytes,
        }];
        let entry = |chunk| IndexEntry { pack: 0, chunk };
        let mut entries: Vec<_> = finished.entries.into_iter().map(entry).collect();
        let index = encode_index(&packs, &mut entries).unwrap();
        self.sealed("index", ObjectType::Index, &index);
        let plain = snapshot(layers).to_json().unwrap();
        self.sealed("snapshots", ObjectType::Snapshot, &plain);
        let config = Config::new(REPOSITORY, SECONDS).encode(&self.keys).unwrap();
        for name in ["config", "config.copy"] {
            fs::write(self.root.join(name), &config).unwrap();
        }
    }
}

fn snapshot(layers: Vec<Layer>) -> Snapshot {
    let time = Time {
        seconds: SECONDS,
        nanos: 0,
    };
    Snapshot {
        version: 1,
        run: "00".repeat(16),
        partial: false,
        until: None,
        time,
        finished: time,
        host: "somehost".to_owned(),
        user: String::new(),
        program: String::new(),
        tags: Vec::new(),
        paths: vec![PathText(b"/tree".to_vec())],
        source_filesystems: Vec::new(),
        pinned: false,
        replaces: Vec::new(),
        excludes: Vec::new(),
        withheld: Vec::new(),
        withheld_more: false,
        atimes: false,
        parent: None,
        original: None,
        filesystems: Vec::new(),
        images: Vec::new(),
        totals: Totals {
            files: 6,
            ..Totals::default()
        },
        counts: Counts::default(),
        transfers: Default::default(),
        problems: Vec::new(),
        layers,
        thin: Vec::new(),
    }
}

fn write_keys(root: &Path) {
    let directory = root.join("keys");
    fs::create_dir_all(&directory).unwrap();
    let recovery = RecoveryKey::from_bytes([6; 32]);
    let cost = PasswordCost {
        m_kib: 64,
        t: 2,
        p: 2,
    };
    for (number, secret) in [
        SlotSecret::Password(b"secret words"),
        SlotSecret::KeyFile(&[5; 64]),
        SlotSecret::Recovery(&recovery),
    ]
    .into_iter()
    .enumerate()
    {
        let new = SlotParameters {
            label: "",
            created: 0,
            salt: [number as u8; 32],
            cost,
        };
        let slot =
            KeySlot::create(&RootKey::from_bytes([1; 32]), REPOSITORY, secret, &new).unwrap();
        let bytes = slot.encode();
        let name = blake3::hash(&bytes).to_hex();
        fs::write(directory.join(name.as_str()), bytes).unwrap();
    }
    fs::write(root.join("../password"), "secret words\n").unwrap();
    fs::write(root.join("../keyfile"), [5; 64]).unwrap();
    fs::write(root.join("../recovery"), recovery.to_text().as_bytes()).unwrap();
}

fn entry(path: &[u8], kind: Kind, mode: u32) -> Entry {
    let key = Key::of_path(path);
    let mut entry = Entry::new(key.parent, key.name, kind);
    entry.mode = mode;
    entry.mtime = Time {
        seconds: SECONDS + path.len() as i64,
        nanos: 123_456_789,
    };
    entry
}

fn bundled(
    writer: &Writer<'_>,
    path: &[u8],
    bundle: (ChunkId, &[u8]),
    range: std::ops::Range<usize>,
) -> Entry {
    let mut entry = entry(path, Kind::File, 0o640);
    entry.size = range.len() as u64;
    entry.content = Content::Bundled {
        chunk: bundle.0,
        offset: range.start as u32,
    };
    entry.content_hash = Some(writer.keys.content_hash(&bundle.1[range]));
    entry
}

fn big_file(writer: &mut Writer<'_>, data: &[u8]) -> Entry {
    let chunk = writer.chunk(ChunkKind::Data, data);
    let bytes = data.len() as u64;
    let mut builder = PieceListBuilder::new();
    let mut store = |plain: &[u8]| -> Result<ChunkId, bale_format::FormatError> {
        Ok(writer.chunk(ChunkKind::Pieces, plain))
    };
    let part = |range: std::ops::Range<u32>| Piece::Data {
        bytes: range.len() as u64,
        chunk,
        start: Some(range.start),
    };
    for piece in [
        Piece::whole(bytes, chunk),
        Piece::Hole {
            bytes: BIG_HOLE_BYTES,
        },
        part(0..100_000),
        part(100_000..bytes as u32),
        Piece::Hole { bytes: 5 },
    ] {
        builder.push(piece, &mut store).unwrap();
    }
    let root = builder.finish(&mut store).unwrap();
    let mut entry = entry(b"tree/big", Kind::File, 0o4755);
    entry.size = root.bytes;
    entry.content_hash = Some(writer.keys.content_hash(&root.plain));
    entry.content = Content::Pieces { list: root.list };
    entry
}

fn write_repository(root: &Path, big: &[u8]) {
    let mut writer = Writer::new(root);
    let bundle = b"first file|second file|old";
    let bundle = (writer.chunk(ChunkKind::Data, bundle), &bundle[..]);
    let mut first = bundled(&writer, b"tree/d/first", bundle, 0..10);
    (first.nlink, first.inode) = (2, 77);
    let mut also = first.clone();
    also.name = Bytes::from_static(b"also");
    let odd = bundled(&writer, b"tree/d/odd\xff\n", bundle, 11..22);
    // A number that was used twice: of another file, and of one that only looks like it.
    let mut reused = bundled(&writer, b"tree/d/reused", bundle, 11..22);
    (reused.nlink, reused.inode) = (2, 77);
    let mut renewed = first.clone();
    renewed.name = Bytes::from_static(b"renewed");
    renewed.generation = 5;
    let gone = bundled(&writer, b"tree/gone", bundle, 0..10);
    let old = bundled(&writer, b"tree/new", bundle, 23..26);
    let mut new = bundled(&writer, b"tree/new", bundle, 0..5);
    new.mode = 0o600;
    let mut link = entry(b"tree/link", Kind::Symlink, 0o777);
    link.target = b"d/first"[..].into();
    link.size = 7;
    let mut tree = entry(b"tree", Kind::Directory, 0o750);
    let mut set = [Xattr {
        name: b"user.bale".to_vec(),
        value: vec![b'v'; 600],
    }];
    let set = encode_xattrs(&mut set).unwrap();
    tree.xattrs = XattrsColumn::chunk(writer.chunk(ChunkKind::Xattrs, &set));
    let rows = [
        tree,
        big_file(&mut writer, big),
        entry(b"tree/d", Kind::Directory, 0o500),
        entry(b"tree/empty", Kind::File, 0o444),
        entry(b"tree/fifo", Kind::Fifo, 0o600),
        gone,
        link,
        old,
        also,
        first,
        odd,
        renewed,
        reused,
    ];
    // The first segment also has rows that the second one replaced.
    let mut start = writer.segment(&rows[..6]);
    start.to = Some(rows[4].key());
    let end = writer.segment(&rows[4..]);
    let base = Layer {
        rows: 13,
        segments: vec![start, end],
    };
    let mut removed = entry(b"tree/gone", Kind::File, 0);
    removed.flags = EntryFlags::REMOVED;
    let newer = Layer {
        rows: 2,
        segments: vec![writer.segment(&[removed, new])],
    };
    writer.finish(vec![base, newer]);
    write_keys(root);
}

fn reader(arguments: &[&Path]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    Command::new("python3")
        .arg("-B")
        .arg(script)
        .args(arguments)
        .output()
        .expect("python3 starts: it was tried before")
}

/// Loudly, and as a failure where everything must run.
fn reader_can_run() -> bool {
    let modules = "import cryptography, blake3, zstandard, argon2, pyarrow";
    let can = Command::new("python3")
        .args(["-c", modules])
        .output()
        .is_ok_and(|output| output.status.success());
    if !can {
        println!(
            "SKIPPED: needs python3 with cryptography, blake3, zstandard, argon2-cffi, pyarrow"
        );
        assert!(std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none());
    }
    can
}

fn check_restored(target: &Path, big: &[u8]) {
    let tree = target.join("tree");
    let read = |name: &str| fs::read(tree.join(name)).unwrap();
    assert_eq!(read("d/first"), b"first file");
    assert_eq!(
        fs::read(
            tree.join("d")
                .join(std::ffi::OsStr::from_bytes(b"odd\xff\n"))
        )
        .unwrap(),
        b"second file"
    );
    assert_eq!(read("new"), b"first");
    assert_eq!(read("empty"), b"");
    assert!(!tree.join("gone").exists());
    assert_eq!(
        read("big"),
        [big, &vec![0; BIG_HOLE_BYTES as usize], big, &[0; 5]].concat()
    );
    assert!(fs::metadata(tree.join("big")).unwrap().blocks() * 512 < BIG_HOLE_BYTES);
    assert_eq!(
        fs::read_link(tree.join("link")).unwrap(),
        Path::new("d/first")
    );
    let inode = |name: &str| fs::metadata(tree.join(name)).unwrap().ino();
    assert_eq!(inode("d/first"), inode("d/also"));
    assert_eq!(read("d/reused"), b"second file");
    for other in ["d/reused", "d/renewed"] {
        assert_ne!(inode("d/first"), inode(other), "{other}");
    }
    assert!(
        fs::symlink_metadata(tree.join("fifo"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    for (name, mode, path_bytes) in [
        ("", 0o750, 4),
        ("d", 0o500, 6),
        ("d/first", 0o640, 12),
        ("big", 0o4755, 8),
        ("empty", 0o444, 10),
        ("new", 0o600, 8),
        ("fifo", 0o600, 9),
    ] {
        let found = fs::symlink_metadata(tree.join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
        assert_eq!(found.mtime(), SECONDS + path_bytes, "{name}");
        assert_eq!(found.mtime_nsec(), 123_456_789, "{name}");
    }
}

#[test]
fn the_reader_restores_everything_with_every_kind_of_secret() {
    if !reader_can_run() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository");
    let mut big = vec![0; 300_000];
    blake3::Hasher::new()
        .update(b"big")
        .finalize_xof()
        .fill(&mut big);
    write_repository(&repository, &big);
    for (option, secret) in [
        ("--password-file", "password"),
        ("--key-file", "keyfile"),
        ("--key-file", "recovery"),
    ] {
        let target = scratch.path().join(format!("from-{secret}"));
        let secret = scratch.path().join(secret);
        let common = [&repository, Path::new(option), &secret];
        let listed = reader(&[&common[..], &[Path::new("list")]].concat());
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            listed.status.success() && text.contains("somehost 6 files"),
            "{text}"
        );
        let restore = [Path::new("restore"), Path::new("latest"), &target];
        let restored = reader(&[&common[..], &restore[..]].concat());
        let errors = String::from_utf8_lossy(&restored.stderr).into_owned();
        assert!(restored.status.success(), "{errors}");
        check_restored(&target, &big);
    }
}

fn only_pack(repository: &Path) -> PathBuf {
    let only = |directory: &Path| {
        let mut children = fs::read_dir(directory).unwrap();
        children.next().unwrap().unwrap().path()
    };
    only(&only(&repository.join("packs")))
}

#[test]
fn the_reader_restores_with_either_copy_of_the_head_of_a_pack() {
    if !reader_can_run() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository");
    let big = [7; 300_000];
    write_repository(&repository, &big);
    let pack = only_pack(&repository);
    let whole = fs::read(&pack).unwrap();
    // Magic, version, zeros and salt at the start; salt at the end.
    for at in [0, 8, 12, 30, whole.len() - 5] {
        let mut bytes = whole.clone();
        bytes[at] ^= 3;
        fs::write(&pack, bytes).unwrap();
        let target = scratch.path().join(format!("target-{at}"));
        let restored = reader(&[
            &repository,
            Path::new("--password-file"),
            &scratch.path().join("password"),
            Path::new("restore"),
            Path::new("latest"),
            &target,
        ]);
        let errors = String::from_utf8_lossy(&restored.stderr).into_owned();
        assert!(restored.status.success(), "byte {at}: {errors}");
        check_restored(&target, &big);
    }
}

#[test]
fn the_reader_takes_whichever_config_is_sound() {
    if !reader_can_run() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository");
    write_repository(&repository, &[7; 300_000]);
    let secret = scratch.path().join("keyfile");
    let list = || {
        let words = [
            &repository,
            Path::new("--key-file"),
            &secret,
            Path::new("list"),
        ];
        let listed = reader(&words);
        let told = String::from_utf8_lossy(&listed.stderr).into_owned();
        (listed.status.success(), told)
    };
    let whole = fs::read(repository.join("config")).unwrap();
    assert_eq!(list(), (true, String::new()));
    for name in ["config", "config.copy"] {
        let path = repository.join(name);
        for at in [3, 12, 40, whole.len() - 2] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, flipped).unwrap();
            let (is_read, told) = list();
            assert!(is_read && told.contains(name), "{name} {at}: {told}");
        }
        fs::remove_file(&path).unwrap();
        assert!(list().0, "{name} missing");
        fs::write(&path, &whole).unwrap();
    }
    for name in ["config", "config.copy"] {
        fs::write(repository.join(name), b"{}\n").unwrap();
    }
    assert!(!list().0);
}

#[test]
fn the_reader_names_damage_and_restores_the_rest() {
    if !reader_can_run() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository");
    write_repository(&repository, &[7; 300_000]);
    let pack = only_pack(&repository);
    let mut bytes = fs::read(&pack).unwrap();
    // The first chunk: the bundle of the small files.
    bytes[48 + 16 + 3] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let target = scratch.path().join("target");
    let restored = reader(&[
        &repository,
        Path::new("--password-file"),
        &scratch.path().join("password"),
        Path::new("restore"),
        Path::new("latest"),
        &target,
    ]);
    let errors = String::from_utf8_lossy(&restored.stderr).into_owned();
    assert_eq!(restored.status.code(), Some(3), "{errors}");
    assert!(
        errors.contains("d/first") && errors.contains("seal broken"),
        "{errors}"
    );
    assert!(fs::metadata(target.join("tree/big")).unwrap().len() > BIG_HOLE_BYTES);
    let wrong = reader(&[
        &repository,
        Path::new("--key-file"),
        &scratch.path().join("password"),
        Path::new("list"),
    ]);
    assert!(!wrong.status.success());
}
