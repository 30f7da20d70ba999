//! What a backup would see: counted, and handed out entry by entry.
//!
//! The stream is that of a backup, with the same scanner and the same things left out; what leads
//! to a source is not counted. Memory: the densest directories are a heap of as many as are asked
//! for, hard links are sorted on disk.

use super::image_stamp::without_slash;
use super::{
    Batch, EntryPlaces, LookAgain, NoteKind, ScanItem, ScanItems, ScanOptions, ScanProblem,
    Sources, choose,
};
use bale_format::entry::{Entry, Kind};
use bale_format::snapshot::Filesystem;
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::monitor::{self, Monitor, Phase, Progress};
use bale_pipeline::spill::Sorter;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// Memory for sorting hard links.
const LINKS_BYTES: usize = 8 << 20;

/// What was seen. Names are counted, not inodes, unless a line says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Regular files.
    pub files: u64,
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    pub block_devices: u64,
    /// Character devices.
    pub char_devices: u64,
    /// Named pipes.
    pub fifos: u64,
    pub sockets: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Bytes of regular files, every inode once.
    pub bytes_once: u64,
    /// Inodes with more than one link.
    pub hard_linked: u64,
    /// Names of these.
    pub hard_linked_names: u64,
    /// The directories with the most children, the densest first; of equal ones the first in the
    /// catalog.
    pub densest: Vec<Dense>,
    /// Things that could not be read.
    pub problems: u64,
    /// Things that went away meanwhile.
    pub vanished: u64,
    /// File systems that something was seen on, each with how it was scanned.
    pub filesystems: Vec<Filesystem>,
    /// What the choice of the scanner was said to be, and why.
    pub choice: Vec<String>,
}

impl ScanReport {
    /// All names.
    pub fn names(&self) -> u64 {
        let devices = self.block_devices + self.char_devices;
        self.files + self.directories + self.symlinks + devices + self.fifos + self.sockets
    }

    /// All inodes.
    pub fn inodes(&self) -> u64 {
        self.names() - (self.hard_linked_names - self.hard_linked)
    }

    fn count(&mut self, entry: &Entry) {
        let counter = match entry.kind {
            Kind::File => &mut self.files,
            Kind::Directory => &mut self.directories,
            Kind::Symlink => &mut self.symlinks,
            Kind::BlockDevice => &mut self.block_devices,
            Kind::CharDevice => &mut self.char_devices,
            Kind::Fifo => &mut self.fifos,
            Kind::Socket => &mut self.sockets,
            // No scan finds one.
            Kind::Extent => return,
        };
        *counter += 1;
        if entry.kind == Kind::File {
            self.bytes = self.bytes.saturating_add(entry.size);
        }
    }
}

/// A directory with many children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Path without leading slash.
    pub path: Bytes,
    /// Names in it that a backup would hold.
    pub children: u64,
}

/// An entry at or below a source.
pub struct ReportedEntry<'a> {
    /// What is known without a further look.
    pub entry: &'a Entry,
    /// Path of the source, without leading slash.
    pub source: &'a [u8],
    /// The file system that it is on.
    pub filesystem: &'a Filesystem,
    places: &'a EntryPlaces,
    at: usize,
}

impl ReportedEntry<'_> {
    /// The entry with what takes another look: target, attributes.
    pub fn completed(&self) -> std::result::Result<Entry, ScanProblem> {
        let mut entry = self.entry.clone();
        let place = self.places.of(self.at);
        place.complete(&mut entry).map(|()| entry)
    }
}

/// Looks at everything; `each` is told every entry in the order of the catalog.
pub fn report(
    sources: &Sources,
    options: ScanOptions,
    densest_max: usize,
    monitor: &dyn Monitor,
    each: &mut dyn FnMut(ReportedEntry<'_>),
) -> Result<ScanReport> {
    let spill = options.spill_directory.clone();
    let noted = NotedMonitor {
        monitor,
        notes: Mutex::default(),
    };
    let (items, look_again) = choose(sources, options, &noted)?.into_stream();
    let mut counting = Counting {
        monitor,
        sources: sources
            .paths()
            .iter()
            .map(|path| without_slash(path))
            .collect(),
        report: ScanReport::default(),
        filesystems: Vec::new(),
        densest: Densest::new(densest_max),
        links: Sorter::new(&spill, LINKS_BYTES),
    };
    counting.report.choice = noted.notes.into_inner().expect("no panics while held");
    counting.take(items, each)?;
    if let Some(LookAgain::Image(stamp)) = &look_again
        && let Some(problem) = stamp.check()
    {
        counting.problem(&problem);
    }
    counting.finish(&spill)
}

/// Passes everything on and keeps the notes.
struct NotedMonitor<'a> {
    monitor: &'a dyn Monitor,
    notes: Mutex<Vec<String>>,
}

impl Monitor for NotedMonitor<'_> {
    fn progress(&self, phase: Phase, progress: Progress) {
        self.monitor.progress(phase, progress);
    }

    fn problem(&self, problem: &monitor::Problem) {
        self.monitor.problem(problem);
    }

    fn note(&self, text: &str) {
        self.notes
            .lock()
            .expect("no panics while held")
            .push(text.to_owned());
        self.monitor.note(text);
    }

    fn interrupted(&self) -> bool {
        self.monitor.interrupted()
    }
}

struct Counting<'a> {
    monitor: &'a dyn Monitor,
    /// Sorted, without leading slashes.
    sources: Vec<Vec<u8>>,
    report: ScanReport,
    /// All file systems of the stream, and whether something below a source is on them.
    filesystems: Vec<(Filesystem, bool)>,
    densest: Densest,
    /// Key: file system and inode. Value: size, of a regular file.
    links: Sorter,
}

impl Counting<'_> {
    fn take(&mut self, items: ScanItems, each: &mut dyn FnMut(ReportedEntry<'_>)) -> Result<()> {
        for item in items {
            match item {
                ScanItem::Filesystem(filesystem) => self.filesystems.push((filesystem, false)),
                ScanItem::Entries(batch) => {
                    self.batch(&batch, each)?;
                    if self.monitor.interrupted() {
                        return Err(Failure::Interrupted);
                    }
                }
                ScanItem::Unchanged(_) => unreachable!("a report compares with nothing"),
                ScanItem::Problem(problem) => self.problem(&problem),
                ScanItem::Note(note) if note.kind == NoteKind::Vanished => {
                    self.report.vanished += 1;
                }
                ScanItem::Note(_)
                | ScanItem::Amend { .. }
                | ScanItem::Listed(_)
                | ScanItem::Missing(_) => {}
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Batch, each: &mut dyn FnMut(ReportedEntry<'_>)) -> Result<()> {
        let Some(first) = batch.entries.first() else {
            return Ok(());
        };
        let whole = self.source_of(&first.parent);
        let mut children = 0;
        for (at, entry) in batch.entries.iter().enumerate() {
            let Some(source) = whole.or_else(|| self.source_of(&entry.path())) else {
                continue;
            };
            self.report.count(entry);
            if entry.nlink > 1 && entry.kind != Kind::Directory {
                self.link(entry)?;
            }
            children += 1;
            let filesystem = self.filesystems.get_mut(entry.filesystem as usize);
            let (filesystem, seen) = filesystem.expect("a file system comes before its entries");
            *seen = true;
            each(ReportedEntry {
                entry,
                source: &self.sources[source],
                filesystem,
                places: &batch.places,
                at,
            });
        }
        if whole.is_some() {
            self.densest.add(&first.parent, children);
        }
        let progress = Progress {
            done: self.report.names(),
            ..Progress::default()
        };
        self.monitor.progress(Phase::Scan, progress);
        Ok(())
    }

    /// The source that a path is, or is below.
    fn source_of(&self, path: &[u8]) -> Option<usize> {
        // Of sources inside of one another the outermost: what `find` would call the starting
        // point.
        self.sources.iter().position(|source| {
            source.is_empty()
                || path
                    .strip_prefix(&source[..])
                    .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    fn link(&mut self, entry: &Entry) -> Result<()> {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&entry.filesystem.to_be_bytes());
        key[4..].copy_from_slice(&entry.inode.to_be_bytes());
        let size = match entry.kind {
            Kind::File => entry.size,
            _ => 0,
        };
        self.links
            .push(&key, &size.to_le_bytes())
            .map_err(|error| Failure::Other(error.to_string()))
    }

    fn problem(&mut self, problem: &ScanProblem) {
        self.report.problems += 1;
        self.monitor.problem(&monitor::Problem {
            path: [b"/", &problem.path[..]].concat(),
            action: problem.action,
            text: problem.error.to_string(),
        });
    }

    fn finish(self, spill: &Path) -> Result<ScanReport> {
        let mut report = self.report;
        let seen = self.filesystems.into_iter().filter(|(_, seen)| *seen);
        report.filesystems = seen.map(|(filesystem, _)| filesystem).collect();
        report.densest = self.densest.finish();
        report.bytes_once = report.bytes;
        let sort_failed = |error| {
            Failure::local("sort links in", spill)(io::Error::other::<
                bale_pipeline::spill::SpillError,
            >(error))
        };
        let mut links = self.links.finish().map_err(sort_failed)?;
        let mut last = [0; 12];
        while let Some((key, size)) = links.next_record().map_err(sort_failed)? {
            report.hard_linked_names += 1;
            if report.hard_linked > 0 && key == last {
                let size = u64::from_le_bytes(size.try_into().expect("8 bytes were pushed"));
                report.bytes_once = report.bytes_once.saturating_sub(size);
                continue;
            }
            report.hard_linked += 1;
            last.copy_from_slice(key);
        }
        Ok(report)
    }
}

/// The largest of a sequence of directories, each of which comes as a run of batches.
struct Densest {
    max: usize,
    /// The least of the densest is at the top.
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>, Bytes)>>,
    current: Option<(Bytes, u64)>,
    /// Directories so far: of equally dense ones the earlier stays.
    order: u64,
}

impl Densest {
    fn new(max: usize) -> Densest {
        Densest {
            max,
            heap: BinaryHeap::new(),
            current: None,
            order: 0,
        }
    }

    fn add(&mut self, directory: &Bytes, children: u64) {
        match &mut self.current {
            Some((current, sum)) if current == directory => *sum += children,
            _ => {
                self.end();
                self.current = Some((directory.clone(), children));
            }
        }
    }

    fn end(&mut self) {
        let Some((directory, children)) = self.current.take() else {
            return;
        };
        self.order += 1;
        if children > 0 {
            self.heap
                .push(Reverse((children, Reverse(self.order), directory)));
        }
        if self.heap.len() > self.max {
            self.heap.pop();
        }
    }

    fn finish(mut self) -> Vec<Dense> {
        self.end();
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse((children, _, path))| Dense { path, children })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_densest_directories_are_kept_in_a_heap_of_the_size_asked_for() {
        let mut densest = Densest::new(3);
        for (name, batches) in [
            ("a", &[5, 5][..]),
            ("b", &[1]),
            ("c", &[12]),
            ("d", &[10]),
            ("e", &[]),
            ("f", &[10]),
            ("g", &[2]),
        ] {
            for children in batches {
                densest.add(&Bytes::from(name), *children);
                assert!(densest.heap.len() <= 3);
            }
        }
        let found = densest.finish();
        let found: Vec<_> = found
            .iter()
            .map(|dense| (&dense.path[..], dense.children))
            .collect();
        assert_eq!(found, [(&b"c"[..], 12), (b"a", 10), (b"d", 10)]);
    }
}
