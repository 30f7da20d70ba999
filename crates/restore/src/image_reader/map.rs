//! Where the bytes of an image are, at any place: windows of its rows, the last few of them kept.

use crate::CatalogSource;
use crate::extents::{Stretch, Stretches};
use crate::seams::text_of;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Stretches in a window at most: 4 GiB of an image that was written once.
const WINDOW_STRETCHES_MAX: usize = 4096;
/// Windows that are kept of all images.
const WINDOWS_MAX: usize = super::IMAGES_AT_ONCE_MAX;
/// Windows that are being read at once, by clients and for them.
const LOADING_MAX: usize = 16;

/// What one takes at most.
pub const WINDOW_BYTES: usize = WINDOW_STRETCHES_MAX * size_of::<Stretch>();

/// What all take at most.
pub const MEMORY_BYTES: usize = (WINDOWS_MAX + LOADING_MAX) * WINDOW_BYTES;

pub struct ImageMap {
    catalog: Arc<dyn CatalogSource + Send>,
    path: Vec<u8>,
    size: u64,
    windows_max: usize,
    /// The one that was used last comes last.
    windows: Mutex<Vec<Arc<Window>>>,
}

/// Stretches in order, without gaps, and all of them known.
struct Window {
    range: Range<u64>,
    stretches: Vec<Stretch>,
}

impl ImageMap {
    pub fn new(
        catalog: Arc<dyn CatalogSource + Send>,
        path: &[u8],
        size: u64,
        images: usize,
    ) -> ImageMap {
        ImageMap {
            catalog,
            path: path.to_vec(),
            size,
            windows_max: WINDOWS_MAX / images.clamp(1, WINDOWS_MAX),
            windows: Mutex::default(),
        }
    }

    /// What is at `offset`, which lies in the image: the whole stretch, or of one that nobody knows
    /// no more than is known to be lost.
    pub fn at(&self, offset: u64) -> Stretch {
        match self.window(offset) {
            Ok(window) => window.stretches[window.position(offset)].clone(),
            Err(unknown) => unknown,
        }
    }

    /// How far from `offset` on it goes on alike, as far as the window knows; true if it is a hole.
    /// What cannot be read is none.
    pub fn run_at(&self, offset: u64) -> (u64, bool) {
        let window = match self.window(offset) {
            Ok(window) => window,
            Err(unknown) => return (unknown.end() - offset, false),
        };
        let stretches = &window.stretches[window.position(offset)..];
        let is_hole = is_hole(&stretches[0]);
        let alike = stretches
            .iter()
            .take_while(|other| self::is_hole(other) == is_hole);
        let end = alike.last().map_or(offset, Stretch::end);
        (end - offset, is_hole)
    }

    /// Else the stretch there, of which nothing is known. That is not kept: a store that does not
    /// answer now may do so the next time.
    fn window(&self, offset: u64) -> Result<Arc<Window>, Stretch> {
        debug_assert!(offset < self.size);
        {
            let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
            let found = windows
                .iter()
                .rposition(|window| window.range.contains(&offset));
            if let Some(found) = found {
                windows[found..].rotate_left(1);
                return Ok(windows[windows.len() - 1].clone());
            }
        }
        let window = Arc::new(self.load(offset)?);
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() == self.windows_max {
            windows.remove(0);
        }
        windows.push(window.clone());
        Ok(window)
    }

    /// Reads rows from the block of `offset` on. The window has nothing that is not known; where
    /// the place is lost, no more than its block is: the next one may be in a segment that can be
    /// read.
    fn load(&self, offset: u64) -> Result<Window, Stretch> {
        let block = offset - offset % IMAGE_BLOCK_BYTES;
        let end_of_block =
            |at: u64| (at - at % IMAGE_BLOCK_BYTES + IMAGE_BLOCK_BYTES).min(self.size);
        let mut window = Window {
            range: block..block,
            stretches: Vec::new(),
        };
        let stretches = Stretches::from(&*self.catalog, &self.path, self.size, block);
        let stretches = match stretches {
            Ok(stretches) => stretches,
            Err(trouble) => {
                let text = format!("read the catalog: {}", text_of(&trouble));
                return Err(Stretch::Unknown(block..end_of_block(offset), text));
            }
        };
        for stretch in stretches {
            let is_past = window.range.end > offset;
            match stretch {
                Stretch::Unknown(range, _) if range.is_empty() => continue,
                Stretch::Unknown(range, _) if range.start > offset => return Ok(window),
                Stretch::Unknown(range, text) if range.end > offset => {
                    let end = end_of_block(offset).min(range.end);
                    return Err(Stretch::Unknown(range.start..end, text));
                }
                Stretch::Unknown(range, _) => {
                    window.stretches.clear();
                    window.range = range.end..range.end;
                }
                Stretch::Data(extent) if extent.bytes == 0 => continue,
                stretch => {
                    if window.stretches.len() >= WINDOW_STRETCHES_MAX {
                        if is_past {
                            return Ok(window);
                        }
                        window.stretches.clear();
                        window.range.start = window.range.end;
                    }
                    window.push(stretch);
                }
            }
        }
        Ok(window)
    }
}

impl Window {
    fn push(&mut self, stretch: Stretch) {
        self.range.end = stretch.end();
        self.stretches.push(stretch);
    }

    fn position(&self, offset: u64) -> usize {
        (self.stretches).partition_point(|stretch| stretch.end() <= offset)
    }
}

fn is_hole(stretch: &Stretch) -> bool {
    matches!(stretch, Stretch::Zeros(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogRows, ChunkTrouble};
    use bale_format::{ChunkId, Entry, ImageExtent};
    use bytes::Bytes;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BLOCK: u64 = IMAGE_BLOCK_BYTES;

    fn extent(start: u64, bytes: u64) -> ImageExtent {
        ImageExtent {
            start,
            bytes,
            chunk: ChunkId([7; 32]),
            offset: 0,
            is_incomplete: false,
            block_hash: None,
        }
    }

    /// Of each block the first half, in segments of ten blocks of which one is lost; each is read
    /// when its turn comes, and rows end with the first one that cannot be.
    struct Segments {
        blocks: u64,
        lost: AtomicU64,
    }

    impl CatalogSource for Segments {
        fn rows(&self, _path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
            Ok(Box::new(std::iter::empty()))
        }

        fn extents(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
            self.extents_from(path, 0)
        }

        fn extents_from(&self, _: &[u8], start: u64) -> Result<CatalogRows<'_>, ChunkTrouble> {
            let mut has_failed = false;
            let row = move |block: u64| {
                let is_lost = block / 10 == self.lost.load(Ordering::Relaxed);
                match (has_failed, is_lost) {
                    (true, _) => None,
                    (_, true) => {
                        has_failed = true;
                        Some(Err("cannot be read".into()))
                    }
                    _ => {
                        let extent = extent(block * BLOCK, BLOCK / 2);
                        Some(Ok(extent.row(&Bytes::from_static(b"disk.raw"))))
                    }
                }
            };
            Ok(Box::new((start / BLOCK..self.blocks).map_while(row)))
        }

        fn lookup(&self, _path: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
            Ok(None)
        }
    }

    fn map(blocks: u64, lost: u64) -> ImageMap {
        of_segments(Arc::new(Segments {
            blocks,
            lost: lost.into(),
        }))
    }

    fn of_segments(segments: Arc<Segments>) -> ImageMap {
        let size = segments.blocks * BLOCK;
        ImageMap::new(segments, b"disk.raw", size, 1)
    }

    #[test]
    fn what_could_not_be_read_of_the_catalog_is_read_once_it_can_be() {
        let segments = Arc::new(Segments {
            blocks: 50,
            lost: 2.into(),
        });
        let map = of_segments(segments.clone());
        let places = [19 * BLOCK + BLOCK / 2, 20 * BLOCK, 29 * BLOCK + 5];
        for at in places {
            assert!(matches!(map.at(at), Stretch::Unknown(..)));
            assert!(!map.run_at(at).1, "a hole that nobody knows of");
        }
        segments.lost.store(u64::MAX, Ordering::Relaxed);
        for at in places {
            let found = map.at(at);
            assert!(!matches!(found, Stretch::Unknown(..)), "{found:?}");
        }
        assert!(is_hole(&map.at(places[0])));
        assert_eq!(
            map.at(20 * BLOCK),
            Stretch::Data(extent(20 * BLOCK, BLOCK / 2))
        );
    }

    #[test]
    fn a_segment_that_is_lost_costs_its_own_blocks() {
        for forwards in [true, false] {
            let map = map(50, 2);
            for number in 0..50 {
                let block = if forwards { number } else { 49 - number };
                let at = block * BLOCK + 5;
                let found = map.at(at);
                assert!(found.end() > at);
                match block / 10 {
                    2 => assert!(matches!(found, Stretch::Unknown(..)), "{block}: {found:?}"),
                    _ => assert_eq!(found, Stretch::Data(extent(block * BLOCK, BLOCK / 2))),
                }
                // What follows the last row before the loss is in doubt, and nothing else.
                let gap = map.at(block * BLOCK + BLOCK / 2);
                match block {
                    19..30 => assert!(matches!(gap, Stretch::Unknown(..)), "{block}: {gap:?}"),
                    _ => assert!(is_hole(&gap), "{block}: {gap:?}"),
                }
            }
        }
    }

    #[test]
    fn an_image_of_many_windows_is_found_at_any_place_and_few_windows_are_kept() {
        let blocks = 40 * WINDOW_STRETCHES_MAX as u64;
        let map = map(blocks, u64::MAX);
        for number in 0..1000 {
            let block = number * 7919 % blocks;
            let found = map.at(block * BLOCK + 1);
            assert_eq!(found, Stretch::Data(extent(block * BLOCK, BLOCK / 2)));
            let (bytes, is_hole) = map.run_at(block * BLOCK + BLOCK - 1);
            assert!(is_hole && bytes == 1, "{bytes}");
        }
        assert_eq!(map.windows.lock().unwrap().len(), WINDOWS_MAX);
    }
}
