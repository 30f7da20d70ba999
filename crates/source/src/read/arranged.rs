//! Many small files of a device: read once through in the order of the device, handed out in the
//! order of the catalog.
//!
//! The two orders may have nothing in common, and no window that fits in memory would help: so the
//! bytes wait in an unnamed file, arranged by where they belong in the catalog's order, coarsely:
//! in buckets that are put in order in memory one after the other. What waits is sealed with a key
//! of this run. A window is as much as there may be buckets for; a tree that is larger is read in
//! several, and the first ones are small ([`plan`]). The threads that read put files into buckets
//! themselves: all processors hash, copy and seal while the device works.
//!
//! Mostly the two orders have much in common: what is in one directory lies together. So stretches
//! of the device are read in the order in which the catalog needs the first of them, and a bucket
//! is handed out as soon as the stretches it needs have been read. Where every bucket needs every
//! stretch, that is the order of the device.

mod plan;
mod reading;
mod scratch;
mod sizes;
mod window;

pub use sizes::{arranged_bytes, bucket_bytes};

use crate::image::{Image, Span};
use bale_pipeline::beside::Unwanted;
use bale_pipeline::memory::MemoryPlan;
use bytes::Bytes;
use plan::{PlannedAhead, Planner};
use sizes::WindowSizes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use window::{ArrangedWindow, NextFile};

/// Files of a window that could not be read at once, before the window is given up.
const MISSING_MAX: usize = 64 << 10;
/// Hash of a file's content, in front of it.
const HASH_BYTES: usize = 16;

/// A file that the stream will need.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRead {
    pub inode: u64,
    /// Its only extent.
    pub span: Span,
}

/// Hashes the contents of a group; a row wants the first [`HASH_BYTES`] of each hash.
pub type GroupHasher = Arc<dyn Fn(&[&[u8]], &mut Vec<[u8; 32]>) + Send + Sync>;

/// Hands out small files in the order in which `wanted` names them.
pub struct Arranged {
    image: Arc<Image>,
    spill: PathBuf,
    hasher: Option<GroupHasher>,
    window: Option<ArrangedWindow>,
    next: Next,
    sizes: WindowSizes,
}

/// Where the next window comes from.
enum Next {
    /// Files of which nothing is planned.
    Wanted(Box<dyn Iterator<Item = PlannedRead> + Send>),
    Planned(PlannedAhead),
    Nowhere,
}

impl Arranged {
    /// Nothing is read before the first file is asked for.
    pub fn new(
        image: Arc<Image>,
        wanted: Box<dyn Iterator<Item = PlannedRead> + Send>,
        spill: &Path,
    ) -> Arranged {
        Arranged {
            image,
            spill: spill.to_path_buf(),
            hasher: None,
            window: None,
            next: Next::Wanted(wanted),
            sizes: WindowSizes::of(&MemoryPlan::default()),
        }
    }

    /// The same with its part of this.
    pub fn within(self, memory: MemoryPlan) -> Arranged {
        Arranged {
            sizes: WindowSizes::of(&memory),
            ..self
        }
    }

    /// Has content hashed while it is read, when processors wait for the device.
    pub fn hashing(self, hasher: GroupHasher) -> Arranged {
        Arranged {
            hasher: Some(hasher),
            ..self
        }
    }

    /// The content of the next file that was wanted, if it is this one and could be read. Otherwise
    /// it must be read on its own.
    pub(super) fn take(&mut self, inode: u64) -> Option<(Bytes, Option<[u8; HASH_BYTES]>)> {
        loop {
            if let Some(window) = &mut self.window {
                match window.take(inode) {
                    Ok(NextFile::File { hash, bytes }) => {
                        return Some((bytes, hash.filter(|_| self.hasher.is_some())));
                    }
                    Ok(NextFile::Other) => return None,
                    Ok(NextFile::End) => {}
                    // Whatever is the matter with the temporary file: the device is still there.
                    Err(_) => self.next = Next::Nowhere,
                }
            }
            // What it takes is given back before the next one takes it.
            self.window = None;
            match self.next_window() {
                Ok(Some(window)) => self.window = Some(window),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn next_window(&mut self) -> io::Result<Option<ArrangedWindow>> {
        let (planner, planned) = match std::mem::replace(&mut self.next, Next::Nowhere) {
            Next::Wanted(wanted) => {
                let mut planner = Planner::new(wanted, self.spill.clone(), self.sizes);
                let planned = planner.next_window(&Unwanted::default());
                (planner, planned)
            }
            Next::Planned(ahead) => {
                let gone = || io::Error::other("a thread that plans what is read is gone");
                ahead.finish().ok_or_else(gone)?
            }
            Next::Nowhere => return Ok(None),
        };
        let Some(planned) = planned? else {
            return Ok(None);
        };
        let is_last = planned.is_last;
        let (image, hasher) = (&self.image, self.hasher.as_ref());
        let window = ArrangedWindow::begin(planned, image, &self.spill, self.sizes, hasher)?;
        if !is_last {
            self.next = Next::Planned(planner.ahead()?);
        }
        Ok(Some(window))
    }
}
