//! Large files: every byte, every hole, past the page cache; changes and damage are told.

use crate::walk_support::{LoopMount, TempPlace, walk, while_disturbed};
use bale_format::entry::EntryFlags;
use bale_source::read::{BLOCK_BYTES, FinishedFile, LargeFile, LargeReader, ReadPiece};
use bale_source::scan::ScanOptions;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn open(reader: &LargeReader, path: &Path) -> LargeFile {
    let (entry, at) = walk(&[path], ScanOptions::default()).get(path);
    reader.open(&at, entry).unwrap()
}

/// Kind of a piece and its bytes: neighbours of one kind joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Data(u64),
    Hole(u64),
    Bad(u64),
}

fn read_all(mut file: LargeFile) -> (Vec<u8>, Vec<Run>, FinishedFile) {
    let mut bytes = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    while let Some(piece) = file.next_piece() {
        let run = match piece {
            ReadPiece::Data(block) => {
                assert!(!block.is_empty() && block.len() <= BLOCK_BYTES);
                bytes.extend_from_slice(&block);
                Run::Data(block.len() as u64)
            }
            ReadPiece::Hole(hole) => {
                bytes.resize(bytes.len() + hole as usize, 0);
                Run::Hole(hole)
            }
            ReadPiece::Bad(bad) => {
                bytes.resize(bytes.len() + bad as usize, 0);
                Run::Bad(bad)
            }
        };
        match (runs.last_mut(), run) {
            (Some(Run::Data(last)), Run::Data(more)) => *last += more,
            (Some(Run::Hole(last)), Run::Hole(more)) => *last += more,
            (Some(Run::Bad(last)), Run::Bad(more)) => *last += more,
            _ => runs.push(run),
        }
    }
    (bytes, runs, file.finish())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 977) as u8).collect()
}

fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn files_of_every_awkward_length_come_back_whole() {
    let place = TempPlace::new();
    let reader = LargeReader::start();
    for len in [
        1,
        4095,
        4096,
        4097,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES + 1,
        5 * BLOCK_BYTES + 12_345,
    ] {
        let bytes = pattern(len);
        let path = place.write("file", &bytes);
        for cached in [true, false] {
            if !cached {
                forget(&path);
            }
            let (read, runs, finished) = read_all(open(&reader, &path));
            assert!(read == bytes, "{len} {cached}");
            assert_eq!(runs, [Run::Data(len as u64)]);
            assert!(!finished.changed && finished.problems.is_empty());
            assert_eq!(finished.entry.flags, EntryFlags::default());
            assert_eq!(finished.entry.size, len as u64);
        }
    }
}

#[test]
fn reading_a_file_that_was_not_cached_leaves_it_uncached() {
    let place = TempPlace::new();
    let bytes = pattern(8 * BLOCK_BYTES);
    let path = place.write("file", &bytes);
    forget(&path);
    let cached = || {
        let file = File::open(&path).unwrap();
        bale_sys::cache::cachestat(file.as_fd(), 0, 0)
            .unwrap()
            .cached
    };
    if cached() != 0 {
        return crate::walk_support::skipped(
            "this file system keeps pages that it was asked to drop",
        );
    }
    let (read, ..) = read_all(open(&LargeReader::start(), &path));
    assert!(read == bytes);
    assert_eq!(cached(), 0);
}

#[test]
fn holes_are_told_and_not_read() {
    let place = TempPlace::new();
    let path = place.join("sparse");
    let file = File::create(&path).unwrap();
    let gib = 1u64 << 30;
    file.set_len(64 * gib + 5).unwrap();
    file.write_all_at(&pattern(10_000), 3 * gib + 100).unwrap();
    file.write_all_at(b"end", 64 * gib + 2).unwrap();
    let mut large = open(&LargeReader::start(), &path);
    let mut pieces = Vec::new();
    let mut data = Vec::new();
    while let Some(piece) = large.next_piece() {
        match piece {
            ReadPiece::Data(block) => {
                let at: u64 = pieces.iter().map(|(len, _)| *len).sum();
                data.push((at, block.to_vec()));
                pieces.push((block.len() as u64, true));
            }
            ReadPiece::Hole(len) => pieces.push((len, false)),
            ReadPiece::Bad(_) => panic!("nothing is bad"),
        }
    }
    let finished = large.finish();
    assert!(!finished.changed);
    assert!(finished.entry.flags.has(EntryFlags::SPARSE));
    assert_eq!(
        pieces.iter().map(|(len, _)| *len).sum::<u64>(),
        64 * gib + 5
    );
    let read: u64 = pieces
        .iter()
        .filter(|(_, data)| *data)
        .map(|(len, _)| *len)
        .sum();
    assert!(read < 200_000, "{read}");
    let mut checked = 0;
    for (start, bytes) in data {
        for (index, byte) in bytes.iter().enumerate() {
            let at = start + index as u64;
            let first = 3 * gib + 100;
            let expected = match at {
                _ if (first..first + 10_000).contains(&at) => {
                    checked += 1;
                    pattern(10_000)[(at - first) as usize]
                }
                _ if at >= 64 * gib + 2 => b"end"[(at - 64 * gib - 2) as usize],
                _ => 0,
            };
            assert_eq!(*byte, expected);
        }
    }
    assert_eq!(checked, 10_000);
}

#[test]
fn alternating_holes_and_preallocated_space_come_back_exactly() {
    let place = TempPlace::new();
    let path = place.join("comb");
    let file = File::create(&path).unwrap();
    let mut model = vec![0; 4 << 20];
    for at in (0..model.len()).step_by(16384) {
        let bytes = pattern(4096);
        file.write_all_at(&bytes, at as u64).unwrap();
        model[at..at + 4096].copy_from_slice(&bytes);
    }
    file.set_len(model.len() as u64).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 1 << 20, 1 << 20).unwrap();
    let (read, runs, finished) = read_all(open(&LargeReader::start(), &path));
    assert!(read == model);
    assert!(!finished.changed);
    assert!(runs.len() > 100, "{}", runs.len());
}

/// SRC-09: bytes that were just written, not synced, into a hole.
#[test]
fn bytes_not_written_back_yet_are_never_taken_for_a_hole() {
    let place = TempPlace::new();
    let path = place.join("dirty");
    let file = File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let reader = LargeReader::start();
    let mut model = vec![0u8; 8 << 20];
    for round in 0..20u8 {
        let at = usize::from(round) * 300_000;
        let bytes = vec![round + 1; 5000];
        file.write_all_at(&bytes, at as u64).unwrap();
        model[at..at + 5000].copy_from_slice(&bytes);
        let (read, ..) = read_all(open(&reader, &path));
        assert!(read == model, "round {round}");
    }
}

#[test]
fn file_that_shrinks_while_it_is_read_gives_what_is_left_and_says_so() {
    let place = TempPlace::new();
    let len = 40 * BLOCK_BYTES;
    let path = place.write("file", &pattern(len));
    forget(&path);
    let mut file = open(&LargeReader::start(), &path);
    let mut read = 0;
    let mut first = true;
    while let Some(piece) = file.next_piece() {
        let ReadPiece::Data(block) = piece else {
            panic!("data was expected");
        };
        read += block.len();
        if std::mem::take(&mut first) {
            let writer = File::options().write(true).open(&path).unwrap();
            writer.set_len(20 * BLOCK_BYTES as u64 + 777).unwrap();
        }
    }
    let finished = file.finish();
    assert!(finished.changed && finished.entry.flags.has(EntryFlags::CHANGED));
    assert_eq!(read, 20 * BLOCK_BYTES + 777);
    assert_eq!(finished.entry.size, read as u64);
    assert!(finished.problems.is_empty());
}

#[test]
fn file_that_grows_while_it_is_read_ends_where_it_ended_when_it_was_opened() {
    let place = TempPlace::new();
    let len = 10 * BLOCK_BYTES + 5;
    let path = place.write("file", &pattern(len));
    let mut file = open(&LargeReader::start(), &path);
    let writer = File::options().append(true).open(&path).unwrap();
    let mut read = 0;
    while let Some(ReadPiece::Data(block)) = file.next_piece() {
        read += block.len();
        writer.write_at(&pattern(2 * BLOCK_BYTES), 0).unwrap();
    }
    let finished = file.finish();
    assert_eq!(read, len);
    assert!(finished.changed);
    assert_eq!(finished.entry.size, len as u64);
}

/// SRC-05: the content is swapped, and the mtime put back.
#[test]
fn rewrite_in_place_with_the_old_mtime_is_noticed() {
    let place = TempPlace::new();
    let path = place.write("file", &pattern(6 * BLOCK_BYTES));
    let mut file = open(&LargeReader::start(), &path);
    assert!(file.next_piece().is_some());
    let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    writer
        .write_all_at(b"other", 5 * BLOCK_BYTES as u64)
        .unwrap();
    writer.set_modified(mtime).unwrap();
    while file.next_piece().is_some() {}
    assert!(file.finish().changed);
}

#[test]
fn many_files_may_be_open_at_once_and_dropped_half_read() {
    let place = TempPlace::new();
    let reader = LargeReader::start();
    let bytes = pattern(6 * BLOCK_BYTES + 99);
    let path = place.write("file", &bytes);
    let mut files: Vec<LargeFile> = (0..8).map(|_| open(&reader, &path)).collect();
    for file in &mut files {
        assert!(file.next_piece().is_some());
    }
    files.truncate(3);
    for file in files {
        let (rest, ..) = read_all(file);
        assert!(rest == bytes[BLOCK_BYTES..]);
    }
    let file = open(&reader, &path);
    drop(reader);
    assert!(read_all(file).0 == bytes);
}

#[test]
fn vanished_file_is_not_found() {
    let place = TempPlace::new();
    let path = place.write("file", &pattern(1000));
    let (entry, at) = walk(&[&path], ScanOptions::default()).get(&path);
    std::fs::remove_file(&path).unwrap();
    let error = LargeReader::start().open(&at, entry).err().unwrap();
    assert_eq!(error.error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn blocks_that_the_device_cannot_give_are_named_and_the_rest_is_read() {
    let place = TempPlace::new();
    let Some(mount) = LoopMount::new(&place, "failing", 64) else {
        return;
    };
    let len = 6 * BLOCK_BYTES;
    let path = mount.point.join("file");
    std::fs::write(&path, vec![7; len]).unwrap();
    let (file, mut extents) = (File::open(&path).unwrap(), Vec::new());
    file.sync_all().unwrap();
    bale_sys::extents::extents(file.as_fd(), 0, u64::MAX, 0, &mut extents).unwrap();
    drop(file);
    mount.remount();
    let large = open(&LargeReader::start(), &path);
    drop(large);
    forget(&path);
    let (entry, at) = walk(&[&path], ScanOptions::default()).get(&path);
    let image = File::options().write(true).open(&mount.image).unwrap();
    let cut = 2 * BLOCK_BYTES as u64 + 40_960;
    assert!(
        extents[0].length > cut,
        "the file is in pieces: {extents:?}"
    );
    image.set_len(extents[0].physical + cut).unwrap();
    let reader = LargeReader::start();
    let (bytes, runs, finished) = read_all(reader.open(&at, entry).unwrap());
    image.set_len(64 << 20).unwrap();
    assert!(finished.entry.flags.has(EntryFlags::INCOMPLETE));
    assert_eq!(finished.problems.len(), 1);
    assert_eq!(bytes.len(), len);
    assert_eq!(runs.len(), 2, "{runs:?}");
    let (Run::Data(good), Run::Bad(bad)) = (runs[0], runs[1]) else {
        panic!("{runs:?}");
    };
    assert_eq!((good + bad, good % 4096), (len as u64, 0));
    assert!(good >= cut && good < cut + 8192, "{good}");
    assert!(bytes[..good as usize].iter().all(|byte| *byte == 7));
    assert!(!finished.changed);
}

#[test]
fn retries_of_a_file_that_is_always_written_come_to_an_end() {
    let place = TempPlace::new();
    let path = place.write("file", &pattern(3 * BLOCK_BYTES));
    let writer = File::options().write(true).open(&path).unwrap();
    let mut value = 0u8;
    let rewrite = || {
        value = value.wrapping_add(1);
        writer.write_all_at(&[value; 100], 0).unwrap();
        std::thread::yield_now();
    };
    while_disturbed(rewrite, || {
        let reader = LargeReader::start();
        // The writer may have to wait for its turn.
        let is_changed = (0..10_000).any(|_| {
            let (bytes, _, finished) = read_all(open(&reader, &path));
            assert_eq!(bytes.len(), 3 * BLOCK_BYTES);
            finished.changed
        });
        assert!(is_changed);
    });
}
