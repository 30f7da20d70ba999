//! Small files of an image: they wait to be read with their neighbours, but nobody waits for ever.

use super::image::{Image, can_run};
use bale_format::entry::{Entry, Kind};
use bale_pipeline::memory::{MEMORY_BYTES_MIN, MemoryPlan};
use bale_pipeline::monitor::Recorder;
use bale_source::image::EntryPlace;
use bale_source::read::{SMALL_WINDOW_BYTES_MAX, SmallReader, SmallState};
use bale_source::scan::{ScanItem, ScanMode, ScanOptions, Sources, choose};

const FILES: usize = 3000;

fn content(number: usize) -> Vec<u8> {
    format!("{number} ").repeat(100 + number % 300).into_bytes()
}

/// The files of an image, last ones first.
fn files(image: &Image) -> Vec<(Entry, EntryPlace)> {
    let (sources, _) = Sources::resolve(&[&image.path]).unwrap();
    let options = ScanOptions {
        mode: ScanMode::Inode,
        ..ScanOptions::default()
    };
    let mut files = Vec::new();
    let started = choose(&sources, options, &Recorder::default()).unwrap();
    let (items, _look_again) = started.into_stream();
    for item in items {
        if let ScanItem::Entries(batch) = item {
            for (at, entry) in batch.entries.into_iter().enumerate() {
                if entry.kind == Kind::File {
                    files.push((entry, batch.places.of(at).clone()));
                }
            }
        }
    }
    files.reverse();
    files
}

#[test]
fn files_that_wait_for_neighbours_come_in_order_though_no_more_are_asked_for() {
    let test = "files_that_wait_for_neighbours_come_in_order_though_no_more_are_asked_for";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(64, "-t ext4 -b 1024 -N 12000");
    {
        let mounted = image.mount("relatime");
        for number in 0..FILES {
            std::fs::write(mounted.path.join(number.to_string()), content(number)).unwrap();
        }
    }
    let files = files(&image);
    assert_eq!(files.len(), FILES);
    let least = MemoryPlan::new(MEMORY_BYTES_MIN, 1).unwrap();
    let window_bytes = SMALL_WINDOW_BYTES_MAX as usize;
    for reader in [
        SmallReader::start(Some(0)),
        SmallReader::start(Some(1)),
        SmallReader::start(Some(16)),
        SmallReader::within(&least, 16, window_bytes),
    ] {
        let take = |asked: &[(Entry, EntryPlace)]| {
            for (entry, _) in asked {
                let file = reader.pop().unwrap();
                assert_eq!(file.entry.name, entry.name);
                assert_eq!(file.state, SmallState::Read);
                let number = std::str::from_utf8(&entry.name).unwrap().parse().unwrap();
                assert_eq!(file.bytes, content(number));
            }
        };
        // Not closed after the first few: they come all the same.
        for asked in [&files[..10], &files[10..]] {
            asked
                .iter()
                .for_each(|(entry, place)| reader.push(place, entry.clone()));
            take(asked);
        }
        reader.close();
        assert!(reader.pop().is_none());
    }
}
