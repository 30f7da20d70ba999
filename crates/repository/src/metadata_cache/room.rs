//! Room in the metadata cache: how much of it is in use, and which files go when it is full.
//!
//! Nothing is held for each file: times are counted in buckets, and the directory is read twice.
//! What others add or remove meanwhile does no harm, and is counted the next time.

use std::collections::BTreeMap;
use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a file takes of a disk is a multiple of this.
const BLOCK_BYTES: u64 = 4096;
/// Times told apart, in seconds: 16 bytes each. The oldest are thrown together.
const TIMES_MAX: usize = 64 << 10;

/// What a file of so many bytes takes.
pub(super) fn on_disk(len: u64) -> u64 {
    len.max(1).next_multiple_of(BLOCK_BYTES)
}

/// Bytes of all files.
pub(super) fn used(dir: &Path) -> u64 {
    let mut bytes = 0;
    for_each_file(dir, &mut |_, meta| bytes += on_disk(meta.len()));
    bytes
}

/// Removes the files that were not used for longest until an eighth of the room is free; tells what
/// is in use then.
pub(super) fn make(dir: &Path, bytes_max: u64) -> u64 {
    let mut by_time: BTreeMap<i64, u64> = BTreeMap::new();
    let mut bytes = 0;
    for_each_file(dir, &mut |_, meta| {
        bytes += on_disk(meta.len());
        *by_time.entry(meta.mtime()).or_default() += on_disk(meta.len());
        if by_time.len() > TIMES_MAX
            && let Some((_, oldest)) = by_time.pop_first()
            && let Some(mut next) = by_time.first_entry()
        {
            *next.get_mut() += oldest;
        }
    });
    let stays = bytes_max - bytes_max / 8;
    let mut excess = bytes.saturating_sub(stays);
    // The time of the last files that go.
    let mut counted = 0;
    let last = by_time.into_iter().find(|(_, of_time)| {
        counted += of_time;
        counted >= excess
    });
    let Some((last, _)) = last else {
        return bytes;
    };
    for_each_file(dir, &mut |entry, meta| {
        let goes = meta.mtime() <= last && excess > 0;
        if goes && std::fs::remove_file(entry.path()).is_ok() {
            excess = excess.saturating_sub(on_disk(meta.len()));
            bytes = bytes.saturating_sub(on_disk(meta.len()));
        }
    });
    bytes
}

/// All regular files below the directories of `dir`, half written ones, too.
fn for_each_file(dir: &Path, each: &mut dyn FnMut(&DirEntry, &Metadata)) {
    let directories = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for directory in directories {
        let is_directory = directory.file_type().is_ok_and(|kind| kind.is_dir());
        let entries = is_directory.then(|| std::fs::read_dir(directory.path()));
        for entry in entries.into_iter().flatten().flatten().flatten() {
            if let Ok(meta) = entry.metadata()
                && meta.is_file()
            {
                each(&entry, &meta);
            }
        }
    }
}
