//! What a hostile writer with the key may store: the same bytes are refused, or accepted, by check,
//! restore, dump, prune and the reader made from the format page.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bale_engine::dump::dump_snapshot;
use bale_engine::prune::{self, PruneOptions};
use bale_format::segment::{Segment, SegmentBuilder};
use bale_format::{ChunkId, ChunkKind, Content, Entry, XattrsColumn};
use bale_pipeline::monitor::Recorder;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::{Named, Repository};
use bale_restore::ScratchSpace;
use bale_testkit::Scene;
use bale_testkit::scene::noise;

/// A file of these bytes has pieces.
const LARGE_BYTES: usize = 700_000;

/// What is stored in place of what a writer stores for the file `large`.
enum Forged {
    /// Its piece list.
    Pieces(Vec<u8>),
    /// Its extended attributes, in the row.
    AttributesInRow(Vec<u8>),
    /// Its extended attributes, in a chunk.
    AttributesInChunk(Vec<u8>),
}

/// A snapshot of the file `large` alone, with something forged in it.
struct Hostile {
    scene: Scene,
    repository: Arc<Repository>,
    named: Named,
}

impl Hostile {
    fn of(forged: &dyn Fn(&ChunkId, &[u8]) -> Forged) -> Hostile {
        let mut scene = Scene::new();
        scene.write("large", &noise(7, LARGE_BYTES));
        scene.keep();
        let repository = scene.repository();
        let (sound, mut snapshot) = repository.snapshots().unwrap().remove(0);
        let writer = ChunkWriter::start(repository.clone(), Default::default(), false).unwrap();
        let reference = &mut snapshot.layers[0].segments[0];
        let bytes = repository
            .read_chunk_uncached(&reference.id, ChunkKind::Segment)
            .unwrap();
        let segment = Segment::decode(&bytes).unwrap();
        let mut builder = SegmentBuilder::new();
        for mut entry in segment.entries(0..segment.rows()) {
            if let Content::Pieces { list } = entry.content {
                let plain = repository.read_chunk_uncached(&list, ChunkKind::Pieces);
                forge(&writer, &mut entry, forged(&list, &plain.unwrap()));
            }
            builder.push(&entry).unwrap();
        }
        let rows = builder.finish().unwrap();
        reference.id = writer.store(ChunkKind::Segment, rows).unwrap();
        writer.finish().unwrap();
        repository.forget_snapshot(sound).unwrap();
        let id = repository.write_snapshot(&snapshot).unwrap();
        let repository = scene.repository();
        Hostile {
            scene,
            repository,
            named: (id, snapshot),
        }
    }

    fn check_accepts(&self) -> bool {
        self.scene.check(&self.scene.store).unwrap().is_clean()
    }

    fn restore_accepts(&self) -> bool {
        let monitor = Recorder::default();
        let (_, report) = (self.scene).restore(&self.repository, &self.named, &monitor);
        report.is_ok() && monitor.problems.lock().unwrap().is_empty()
    }

    fn dump_accepts(&self) -> bool {
        let monitor = Recorder::default();
        let scratch = ScratchSpace::new(self.repository.spill_dir().unwrap());
        let source = self.scene.source();
        let path = source.to_str().unwrap().trim_start_matches('/');
        let (repository, mut out) = (&self.repository, Vec::new());
        let dumped = dump_snapshot(
            repository,
            &self.named,
            path.as_bytes(),
            &scratch,
            &mut out,
            &monitor,
        );
        dumped.is_ok() && monitor.problems.lock().unwrap().is_empty()
    }

    fn prune_accepts(&self) -> bool {
        let options = PruneOptions {
            grace: Duration::from_secs(3600),
            repack_below_percent: 60,
        };
        prune::plan(&self.repository, &options, &Recorder::default()).is_ok()
    }

    /// `None` where the second reader cannot run.
    fn second_reader_accepts(&self) -> Option<bool> {
        let modules = "import blake3, cryptography, pyarrow, zstandard";
        let has_all = Command::new("python3").args(["-c", modules]).output();
        if !has_all.is_ok_and(|output| output.status.success()) {
            bale_testkit::skipped(
                "the second reader: python3 has not all of blake3, cryptography, pyarrow, \
                 zstandard",
            );
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, key) = (dir.path().join("repository"), dir.path().join("key"));
        for (name, bytes) in self.scene.store.memory().objects() {
            let path = store.join(name.path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let bale_repository::repository::Secret::KeyFile(secret) = Scene::secret() else {
            panic!("scenes have a key file");
        };
        fs::write(&key, secret).unwrap();
        let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
        let read = Command::new("python3")
            .arg(reader)
            .arg(&store)
            .arg("--key-file")
            .arg(&key)
            .args(["restore", &self.named.0.to_string()])
            .arg(dir.path().join("out"))
            .output()
            .unwrap();
        Some(read.status.success())
    }
}

fn forge(writer: &ChunkWriter, entry: &mut Entry, forged: Forged) {
    match forged {
        Forged::Pieces(plain) => {
            let list = writer.store(ChunkKind::Pieces, plain).unwrap();
            entry.content = Content::Pieces { list };
        }
        Forged::AttributesInRow(set) => entry.xattrs = [&[1], &set[..]].concat().into(),
        Forged::AttributesInChunk(set) => {
            let id = writer.store(ChunkKind::Xattrs, set).unwrap();
            entry.xattrs = XattrsColumn::chunk(id);
        }
    }
}

/// Each reader is asked; `wants_prune` is false of what a prune has no need to decode.
fn all_say(
    is_accepted: bool,
    wants_prune: bool,
    story: &str,
    forged: &dyn Fn(&ChunkId, &[u8]) -> Forged,
) {
    let hostile = Hostile::of(forged);
    assert_eq!(hostile.check_accepts(), is_accepted, "check: {story}");
    assert_eq!(hostile.restore_accepts(), is_accepted, "restore: {story}");
    assert_eq!(hostile.dump_accepts(), is_accepted, "dump: {story}");
    assert_eq!(
        hostile.prune_accepts(),
        is_accepted || !wants_prune,
        "prune: {story}"
    );
    if let Some(said) = hostile.second_reader_accepts() {
        assert_eq!(said, is_accepted, "the second reader: {story}");
    }
}

/// A leaf list with one entry more or less than it says, and everything else that a byte of it can
/// be.
#[test]
fn a_piece_list_is_refused_by_all_readers_or_by_none() {
    let say = |is_accepted, story: &str, change: fn(&mut Vec<u8>)| {
        all_say(is_accepted, true, story, &|_, list| {
            let mut forged = list.to_vec();
            change(&mut forged);
            Forged::Pieces(forged)
        });
    };
    say(true, "what the writer wrote", |_| ());
    say(false, "a reserved byte", |list| list[2] = 1);
    say(false, "a byte behind the last entry", |list| list.push(0));
    say(false, "an unknown depth", |list| list[0] = 4);
    say(false, "an unknown tag", |list| list[8] = 4);
    say(false, "an empty piece", |list| list[9..17].fill(0));
    say(false, "no entries", |list| list[4..8].fill(0));
    say(false, "one entry more than there are", |list| list[4] += 1);
    say(false, "cut", |list| {
        list.truncate(list.len().saturating_sub(1))
    });
}

/// A leaf of the first chunk, as a part of it that begins and ends where it is said to.
fn part_of_first_chunk(list: &[u8], start: u32, length: u64) -> Vec<u8> {
    let mut forged = vec![0, 0, 0, 0, 2, 0, 0, 0, 3];
    forged.extend_from_slice(&length.to_le_bytes());
    forged.extend_from_slice(&list[17..49]);
    forged.extend_from_slice(&start.to_le_bytes());
    forged.push(1);
    forged.extend_from_slice(&(LARGE_BYTES as u64 - length).to_le_bytes());
    forged
}

#[test]
fn a_part_of_a_chunk_is_taken_where_it_lies_in_its_chunk_and_refused_by_all_where_not() {
    // Where the file is cut depends on the key, which is drawn: the first piece says how long.
    let say = |is_accepted, wants_prune, story: &str, part: &dyn Fn(u64) -> (u32, u64)| {
        all_say(is_accepted, wants_prune, story, &|_, list| {
            let (start, length) = part(u64::from_le_bytes(list[9..17].try_into().unwrap()));
            Forged::Pieces(part_of_first_chunk(list, start, length))
        });
    };
    say(true, true, "from its middle", &|_| (1000, 5000));
    say(true, true, "up to its end", &|chunk| (1000, chunk - 1000));
    say(false, false, "a byte behind its end", &|chunk| {
        (1000, chunk - 999)
    });
    say(false, true, "behind any chunk", &|_| (1 << 24, 1));
    say(false, true, "at the end of 32 bits", &|_| (u32::MAX, 5000));
}

/// The size of the row is known to all but a prune, which marks what a list names, however long.
#[test]
fn a_piece_list_of_another_length_than_its_file_is_refused() {
    all_say(false, false, "a hole behind the file", &|_, list| {
        let mut forged = list.to_vec();
        forged[4] += 1;
        forged.push(1);
        forged.extend_from_slice(&4096u64.to_le_bytes());
        Forged::Pieces(forged)
    });
}

/// A list that says another depth than the one above it has the right length all the same.
#[test]
fn a_list_of_another_depth_than_the_one_above_says_is_refused() {
    let above = |depth: u8, id: ChunkId| {
        let mut list = vec![depth, 0, 0, 0, 1, 0, 0, 0];
        list.extend_from_slice(&(LARGE_BYTES as u64).to_le_bytes());
        list.extend_from_slice(&id.0);
        list
    };
    for (is_accepted, depth) in [(true, 1), (false, 2), (false, 3)] {
        let story = format!("a leaf below a list of depth {depth}");
        all_say(is_accepted, true, &story, &|leaf, _| {
            Forged::Pieces(above(depth, *leaf))
        });
    }
}

#[test]
fn a_set_of_attributes_is_refused_by_all_readers_or_by_none() {
    let entry = |name: &[u8], value: &[u8]| {
        let mut entry = (name.len() as u16).to_le_bytes().to_vec();
        entry.extend_from_slice(&(value.len() as u32).to_le_bytes());
        entry.extend_from_slice(name);
        entry.extend_from_slice(value);
        entry
    };
    let two = |a: &[u8], b: &[u8]| [entry(a, b"1"), entry(b, b"2")].concat();
    let sound = two(b"user.a", b"user.b");
    let sets = [
        (true, "sorted names", sound.clone()),
        (false, "unsorted names", two(b"user.b", b"user.a")),
        (false, "a name twice", two(b"user.a", b"user.a")),
        (false, "a name of no bytes", two(b"", b"user.a")),
        (false, "a zero byte in a name", entry(b"user.\0a", b"1")),
        (false, "a long name", entry(&[b'a'; 256], b"1")),
        (false, "cut", sound[..sound.len() - 1].to_vec()),
        (false, "a value that ends behind the set", {
            let mut set = sound.clone();
            set[2] = 0xff;
            set
        }),
    ];
    for (is_accepted, story, set) in sets {
        let in_row = |_: &ChunkId, _: &[u8]| Forged::AttributesInRow(set.clone());
        all_say(is_accepted, false, &format!("{story}, in the row"), &in_row);
        let in_chunk = |_: &ChunkId, _: &[u8]| Forged::AttributesInChunk(set.clone());
        all_say(
            is_accepted,
            false,
            &format!("{story}, in a chunk"),
            &in_chunk,
        );
    }
}
