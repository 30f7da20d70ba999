//! The metadata cache: sealed objects and sealed chunks of catalogs, as the store had them, in
//! files on this machine. What is far away is fetched once.
//!
//! Nothing in it is believed. A file is an object whose bytes have the hash in its name, or a
//! record that opens under the repository's keys to the chunk of that id; any other file counts as
//! none, and is replaced. Whether an object exists is for the store to say: only what it lists is
//! looked for here. Files come and go whole, so runs share the directory without a lock, and
//! whoever wants the room may remove it at any moment. What cannot be written costs time: that is
//! reported once, and nothing more is tried. The files that were not used for longest go first.
//!
//! Who deletes, checks or repairs has no such cache: he reads the store.

mod room;

use crate::store::{Area, ObjectName};
use bale_format::{ChunkId, ChunkKind};
use bale_pipeline::private_dir;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a cache of which nobody said how large it may become: the index of 30 TB, or the
/// catalogs of 10 million files.
pub const METADATA_CACHE_BYTES: u64 = 1 << 30;

/// Nothing larger than this part of all of it is kept.
const LARGEST_SHARE: u64 = 4;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedName {
    /// A sealed object, whole.
    Object(ObjectName),
    /// The record of a chunk, with what opens it.
    Chunk(ChunkKind, ChunkId),
}

/// Called with a text for people when the cache is of no use.
pub type ReportTrouble = Box<dyn Fn(&str) + Send + Sync>;

/// Files in a directory of one repository's own.
pub struct MetadataCache {
    dir: PathBuf,
    bytes_max: u64,
    report: ReportTrouble,
    is_off: AtomicBool,
    /// Bytes in it, as far as this process knows; `None`: it has not looked.
    bytes: Mutex<Option<u64>>,
}

impl CachedName {
    /// Is it worth being kept? Records of runs are replaced every few minutes; key slots stay where
    /// they can be removed.
    pub(crate) fn of_object(name: &ObjectName) -> Option<CachedName> {
        let areas = [Area::Index, Area::Snapshots, Area::Condemned, Area::Damaged];
        areas
            .contains(&name.area)
            .then_some(CachedName::Object(*name))
    }

    /// Chunks of files are as much as all that is backed up.
    pub(crate) fn of_chunk(kind: ChunkKind, id: &ChunkId) -> Option<CachedName> {
        (kind != ChunkKind::Data).then_some(CachedName::Chunk(kind, *id))
    }

    /// Two letters of a directory, and a name in it.
    fn path(&self) -> PathBuf {
        let (kind, id) = match self {
            CachedName::Object(name) => (name.area.text(), name.id().unwrap_or_default().0),
            CachedName::Chunk(ChunkKind::Data, id) => ("data", id.0),
            CachedName::Chunk(ChunkKind::Segment, id) => ("segment", id.0),
            CachedName::Chunk(ChunkKind::Pieces, id) => ("pieces", id.0),
            CachedName::Chunk(ChunkKind::Xattrs, id) => ("xattrs", id.0),
        };
        let id = bale_format::id::hex(&id);
        Path::new(&id[..2]).join(format!("{kind}-{id}"))
    }
}

impl MetadataCache {
    /// In a directory, which is made when something is put there, of so many bytes at most.
    pub fn new(dir: PathBuf, bytes_max: u64, report: ReportTrouble) -> MetadataCache {
        MetadataCache {
            dir,
            bytes_max,
            report,
            is_off: AtomicBool::new(false),
            bytes: Mutex::new(None),
        }
    }

    /// Is there a file of that name? What is in it nobody has looked at.
    pub(crate) fn has(&self, name: &CachedName) -> bool {
        self.dir.join(name.path()).exists()
    }

    /// The bytes of a file of at most so many, as they are found; they count as used just now.
    pub(crate) fn load(&self, name: &CachedName, len_max: u64) -> Option<Vec<u8>> {
        let file = private_dir::open(&self.dir.join(name.path())).ok()?;
        let len = file.metadata().ok()?.len();
        if len > len_max {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        (&file).take(len_max).read_to_end(&mut bytes).ok()?;
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let used = Timestamps {
            last_access: now,
            last_modification: now,
        };
        // Else it goes a little earlier.
        let _ = rustix::fs::futimens(&file, &used);
        Some(bytes)
    }

    /// Keeps bytes that were checked. Trouble is reported once.
    pub(crate) fn save(&self, name: &CachedName, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if self.is_off.load(Ordering::Relaxed) || len > self.bytes_max / LARGEST_SHARE {
            return;
        }
        let path = self.dir.join(name.path());
        let kept = match private_dir::replace(&path, bytes) {
            // Nobody was here before, or somebody removed it all.
            Err(error) if error.kind() == ErrorKind::NotFound => self.keep_first(&path, bytes),
            Err(error) => Err(format!("write {}: {error}", path.display())),
            Ok(()) => Ok(()),
        };
        match kept {
            Ok(()) => self.make_room(len),
            Err(text) => self.end(&text),
        }
    }

    fn keep_first(&self, path: &Path, bytes: &[u8]) -> Result<(), String> {
        private_dir::make(&self.dir).map_err(|error| error.to_string())?;
        private_dir::keep(path, bytes).map_err(|error| error.to_string())
    }

    /// What is there stays in use.
    fn end(&self, text: &str) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            (self.report)(&format!(
                "nothing more is cached of what is read of the repository, which takes longer: \
                 {text}"
            ));
        }
    }

    /// After another file of so many bytes.
    fn make_room(&self, more: u64) {
        let mut bytes = self.bytes.lock().expect("holders do not panic");
        let now = match *bytes {
            Some(bytes) => bytes + room::on_disk(more),
            None => room::used(&self.dir),
        };
        *bytes = Some(match now > self.bytes_max {
            true => room::make(&self.dir, self.bytes_max),
            false => now,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::ObjectId;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn cache(dir: &Path, bytes_max: u64) -> (MetadataCache, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let report = move |_: &str| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        (
            MetadataCache::new(dir.join("metadata"), bytes_max, Box::new(report)),
            told,
        )
    }

    fn name(number: u8) -> CachedName {
        CachedName::Object(ObjectName::index(ObjectId([number; 32])))
    }

    fn age(cache: &MetadataCache, name: &CachedName, seconds: u64) {
        let file = std::fs::File::open(cache.dir.join(name.path())).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 - seconds);
        file.set_modified(time).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let place = tempfile::tempdir().unwrap();
        let (cache, _) = cache(place.path(), 10 * 4096);
        for number in 0..10 {
            cache.save(&name(number), &[number; 4000]);
            age(&cache, &name(number), 1000 - u64::from(number));
        }
        // Used a moment ago.
        assert_eq!(cache.load(&name(0), 5000).unwrap(), [0; 4000]);
        cache.save(&name(10), &[10; 4000]);
        let there: Vec<u8> = (0..11).filter(|number| cache.has(&name(*number))).collect();
        assert!(there.contains(&0) && there.contains(&10), "{there:?}");
        assert!(!there.contains(&1) && !there.contains(&2), "{there:?}");
        assert!(there.len() >= 7 && there.len() < 11, "{there:?}");
        assert!(room::used(&cache.dir) <= 10 * 4096);
    }

    #[test]
    fn files_of_one_moment_go_only_as_far_as_room_is_needed() {
        let place = tempfile::tempdir().unwrap();
        let (cache, _) = cache(place.path(), 32 * 4096);
        for number in 0..33 {
            cache.save(&name(number), &[number; 4000]);
            age(&cache, &name(number), 5);
        }
        let there = (0..33).filter(|number| cache.has(&name(*number))).count();
        assert!((24..=32).contains(&there), "{there}");
    }

    #[test]
    fn a_cache_that_is_removed_meanwhile_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let (cache, told) = cache(place.path(), 1 << 20);
        cache.save(&name(1), b"one");
        std::fs::remove_dir_all(&cache.dir).unwrap();
        assert!(cache.load(&name(1), 100).is_none());
        cache.save(&name(1), b"one");
        assert_eq!(cache.load(&name(1), 100).unwrap(), b"one");
        assert_eq!(cache.load(&name(1), 2), None, "longer than it may be");
        assert_eq!(told.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_cannot_be_written_is_reported_once_and_read_no_worse() {
        let place = tempfile::tempdir().unwrap();
        let (cache, told) = cache(place.path(), 1 << 20);
        cache.save(&name(1), b"one");
        // Something else stands where the directory of the next one belongs.
        std::fs::write(cache.dir.join("02"), b"a file").unwrap();
        cache.save(&name(2), b"two");
        cache.save(&name(2), b"two");
        assert_eq!(told.load(Ordering::SeqCst), 1);
        assert!(cache.load(&name(2), 100).is_none());
        assert_eq!(cache.load(&name(1), 100).unwrap(), b"one");
    }

    #[test]
    fn links_and_directories_in_the_place_of_files_are_no_files() {
        let place = tempfile::tempdir().unwrap();
        let (cache, _) = cache(place.path(), 1 << 20);
        cache.save(&name(1), b"one");
        let path = cache.dir.join(name(2).path());
        std::fs::create_dir_all(&path).unwrap();
        assert!(cache.load(&name(2), 100).is_none());
        let path = cache.dir.join(name(3).path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(cache.dir.join(name(1).path()), &path).unwrap();
        assert!(cache.load(&name(3), 100).is_none());
    }
}
