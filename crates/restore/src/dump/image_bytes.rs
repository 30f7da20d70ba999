//! The bytes of an image in a dump, front to back.

use super::DumpError;
use super::file_bytes::{Contents, RANGES_MAX};
use super::tar::BLOCK_BYTES;
use crate::CatalogSource;
use crate::extents::{Stretch, Stretches};
use bale_format::Entry;
use std::io::Write;

/// Stretches of data of an image, in whole blocks; `None` if there are too many.
pub fn ranges(
    catalog: &dyn CatalogSource,
    path: &[u8],
    size: u64,
) -> Result<Option<Vec<(u64, u64)>>, DumpError> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for stretch in Stretches::of(catalog, path, size).map_err(DumpError::Catalog)? {
        let range = match stretch {
            Stretch::Zeros(_) => continue,
            Stretch::Unknown(range, _) => range,
            Stretch::Data(extent) => extent.start..extent.end(),
        };
        let from = range.start - range.start % BLOCK;
        let to = range.end.next_multiple_of(BLOCK).min(size);
        let count = ranges.len();
        match ranges.last_mut() {
            Some((last, len)) if *last + *len >= from => *len = to - *last,
            _ if count == RANGES_MAX => return Ok(None),
            _ => ranges.push((from, to - from)),
        }
    }
    Ok(Some(ranges))
}

impl Contents<'_> {
    /// Writes a whole image, its holes as zeros.
    pub fn write_image(
        &mut self,
        catalog: &dyn CatalogSource,
        entry: &Entry,
        path: &[u8],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        if self.is_endless(entry.size, path) {
            return Ok(());
        }
        self.write_image_ranges(catalog, entry, path, &[(0, entry.size)], out)
    }

    /// Writes exactly these ranges of an image, which are in order and apart. What cannot be read
    /// is zeros and a problem.
    pub fn write_image_ranges(
        &mut self,
        catalog: &dyn CatalogSource,
        entry: &Entry,
        path: &[u8],
        ranges: &[(u64, u64)],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        let mut ranges = ranges
            .iter()
            .map(|(from, len)| *from..from + len)
            .peekable();
        for stretch in Stretches::of(catalog, path, entry.size).map_err(DumpError::Catalog)? {
            let whole = match &stretch {
                Stretch::Zeros(range) | Stretch::Unknown(range, _) => range.clone(),
                Stretch::Data(extent) => extent.start..extent.end(),
            };
            if let Stretch::Unknown(range, text) = &stretch {
                let text = format!("bytes {} to {}: {text}", range.start, range.end);
                self.problem(path, &text);
            }
            while let Some(range) = ranges.peek().cloned() {
                let (start, end) = (whole.start.max(range.start), whole.end.min(range.end));
                if start < end {
                    self.write_stretch(&stretch, start..end, path, out)?;
                }
                if range.end > whole.end {
                    break;
                }
                ranges.next();
            }
        }
        Ok(())
    }

    fn write_stretch(
        &mut self,
        stretch: &Stretch,
        wanted: std::ops::Range<u64>,
        path: &[u8],
        out: &mut dyn Write,
    ) -> Result<(), DumpError> {
        let Stretch::Data(extent) = stretch else {
            return self.put_zeros(wanted.end - wanted.start, out);
        };
        match self.bundled(&extent.chunk, extent.offset, extent.bytes) {
            Ok(bytes) => {
                let from = (wanted.start - extent.start) as usize;
                let to = (wanted.end - extent.start) as usize;
                self.put(&bytes[from..to], out)
            }
            Err(text) => {
                let text = format!("bytes {} to {}: {text}", wanted.start, wanted.end);
                self.problem(path, &text);
                self.put_zeros(wanted.end - wanted.start, out)
            }
        }
    }
}
