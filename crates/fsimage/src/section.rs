//! A part of a disk as a source of its own: a partition, or a linear volume.

use crate::lvm2::LinearSegment;
use crate::source::ByteSource;
use std::io;
use std::sync::Arc;

/// Runs of a disk, one behind the other.
pub struct Section {
    disk: Arc<dyn ByteSource>,
    /// Without gaps, from 0 on.
    segments: Vec<LinearSegment>,
    bytes: u64,
}

impl Section {
    /// Of segments without gaps, as a logical volume has them, each at its place on this disk.
    pub fn new(disk: Arc<dyn ByteSource>, segments: Vec<LinearSegment>) -> Section {
        let last = segments.last();
        let bytes = last.map_or(0, |last| last.offset.saturating_add(last.bytes));
        Section {
            disk,
            segments,
            bytes,
        }
    }
}

impl ByteSource for Section {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let next = (self.segments).partition_point(|segment| segment.offset <= at);
            let segment = next.checked_sub(1).and_then(|last| self.segments.get(last));
            let segment = segment.ok_or(io::ErrorKind::UnexpectedEof)?;
            let inside = at - segment.offset;
            let left = segment.bytes.saturating_sub(inside);
            let len = left.min(rest.len() as u64) as usize;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let place = segment.disk_offset.checked_add(inside);
            let place = place.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (now, later) = rest.split_at_mut(len);
            self.disk.read_exact_at(place, now)?;
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_section_are_those_of_its_segments_one_behind_the_other() {
        let disk: Vec<u8> = (0..100).collect();
        let segment = |offset, bytes, disk_offset| LinearSegment {
            offset,
            bytes,
            disk_offset,
        };
        let segments = vec![segment(0, 10, 50), segment(10, 5, 3), segment(15, 5, 70)];
        let section = Section::new(Arc::new(disk), segments);
        assert_eq!(section.len_bytes(), 20);
        let whole: Vec<u8> = (50..60).chain(3..8).chain(70..75).collect();
        for from in 0..20 {
            for to in from..=20 {
                let mut part = vec![0; to - from];
                section.read_exact_at(from as u64, &mut part).unwrap();
                assert_eq!(part, whole[from..to], "{from}..{to}");
            }
        }
        let behind = section.read_exact_at(15, &mut [0; 6]).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
    }
}
