//! Which clusters are in use, by $Bitmap.
//!
//! It has no checksum. A portion in which a cluster is free that certainly is not (of the boot
//! sector, the MFT, its copy, the bitmap itself) is in use as a whole, and so is what is behind the
//! last cluster. A volume that was not left cleanly is refused: its log may allocate what the
//! bitmap has as free.

use std::ops::Range;
use std::sync::Arc;

use super::boot::BOOT_BYTES;
use super::log::NOT_LEFT_CLEANLY;
use super::record::DATA;
use super::stream::{MappedStream, NtfsStream};
use super::{Ntfs, NtfsError, NtfsFault};
use crate::ByteSource;
use crate::in_use::{InUse, UseDoubt, UsePortion, are_set, push_range, runs_of_ones};

/// Records that have a copy.
const MIRRORED_RECORDS: u64 = 4;
const BITMAP_RECORD: u64 = 6;
/// Bits of one portion: at most half a million ranges come of them.
const PORTION_BITS: u64 = 8 * (128 << 10);

/// The bitmap of a volume.
pub struct ClusterBitmap {
    ntfs: Ntfs,
    bitmap: MappedStream,
    /// Clusters that are in use for certain, sorted; they may overlap.
    known: Vec<Range<u64>>,
    len_bytes: u64,
}

impl ClusterBitmap {
    /// Opens the volume at the start of a source.
    pub fn open(source: Arc<dyn ByteSource>) -> Result<ClusterBitmap, UseDoubt> {
        let len_bytes = source.len_bytes();
        let ntfs = Ntfs::open(source).map_err(UseDoubt::damage)?;
        if !ntfs.was_left_cleanly().map_err(UseDoubt::damage)? {
            return Err(UseDoubt::Because(NOT_LEFT_CLEANLY));
        }
        if !copies_are_in_place(&ntfs).map_err(UseDoubt::damage)? {
            return Err(UseDoubt::Because(
                "copies of its boot sector or its first records are not where they should be",
            ));
        }
        let bitmap = bitmap_of(&ntfs).map_err(UseDoubt::damage)?;
        let mirror_bytes = MIRRORED_RECORDS * u64::from(ntfs.boot.record_bytes);
        let mirror = ntfs.boot.mirror_cluster;
        let of_boot = [0..1, mirror..mirror + ntfs.boot.clusters_of(mirror_bytes)];
        let streams = [&bitmap, ntfs.mft.as_ref()].into_iter();
        let of_streams = streams.flat_map(|stream| stream.runs.iter());
        let mut known: Vec<_> = of_streams.filter_map(|run| run.clusters()).collect();
        known.extend(of_boot);
        known.sort_by_key(|range| range.start);
        Ok(ClusterBitmap {
            ntfs,
            bitmap,
            known,
            len_bytes,
        })
    }

    pub fn ntfs(&self) -> &Ntfs {
        &self.ntfs
    }

    /// The bits of clusters from `first` on, which is a multiple of 8.
    fn bits(&self, first: u64, count: u64) -> Result<Vec<u8>, NtfsError> {
        let mut bytes = vec![0; count.div_ceil(8) as usize];
        let (source, boot) = (self.ntfs.source.as_ref(), &self.ntfs.boot);
        let read = self.bitmap.read_stored(source, boot, first / 8, &mut bytes);
        read.map_err(|error| error.of(BITMAP_RECORD, "$Bitmap"))?;
        for known in &self.known {
            let inside = known.start.max(first)..known.end.min(first + count);
            let bits = inside.start.saturating_sub(first)..inside.end.saturating_sub(first);
            if !inside.is_empty() && !are_set(&bytes, bits) {
                return Err(NtfsError::record(BITMAP_RECORD)(NtfsFault::Value(DATA)));
            }
        }
        Ok(bytes)
    }
}

impl InUse for ClusterBitmap {
    fn portion(&mut self, at: u64) -> UsePortion {
        let cluster_bytes = u64::from(self.ntfs.boot.cluster_bytes);
        let clusters = self.ntfs.boot.clusters;
        let cluster = at / cluster_bytes;
        if cluster >= clusters {
            return UsePortion::whole(at..self.len_bytes, None);
        }
        let first = cluster / PORTION_BITS * PORTION_BITS;
        let count = PORTION_BITS.min(clusters - first);
        let end = (first + count) * cluster_bytes;
        match self.bits(first, count) {
            Ok(bits) => {
                let mut used = Vec::new();
                runs_of_ones(&bits, count, |run| {
                    let start = (first + run.start) * cluster_bytes;
                    push_range(&mut used, start.max(at)..(first + run.end) * cluster_bytes);
                });
                UsePortion {
                    end,
                    used,
                    doubt: None,
                }
            }
            Err(error) => UsePortion::whole(at..end, Some(UseDoubt::damage(error))),
        }
    }
}

/// The bitmap's runs: all of it on the device, as it is.
fn bitmap_of(ntfs: &Ntfs) -> Result<MappedStream, NtfsError> {
    let fault = NtfsError::record(BITMAP_RECORD);
    match ntfs.stream(BITMAP_RECORD, DATA, b"")? {
        NtfsStream::Mapped(mapped) => {
            let is_stored =
                mapped.flags == 0 && mapped.runs.iter().all(|run| run.cluster.is_some());
            let needed = ntfs.boot.clusters.div_ceil(8);
            match is_stored && mapped.size >= needed && mapped.initialized >= needed {
                true => Ok(mapped),
                false => Err(fault(NtfsFault::Size(DATA))),
            }
        }
        NtfsStream::Resident(_) => Err(fault(NtfsFault::Size(DATA))),
    }
}

/// Whether clusters are where they say they are: of a volume on several disks, one disk has the
/// boot sector, and few clusters in their places.
fn copies_are_in_place(ntfs: &Ntfs) -> Result<bool, NtfsError> {
    let boot = &ntfs.boot;
    let read = |what: &'static str, offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        let read = ntfs.source.read_exact_at(offset, &mut bytes);
        read.map_err(|source| NtfsError::Read {
            what,
            offset,
            source,
        })?;
        Ok::<_, NtfsError>(bytes)
    };
    let behind = boot.sectors * u64::from(boot.sector_bytes);
    if behind + BOOT_BYTES as u64 <= ntfs.source.len_bytes() {
        let copy = read("copy of the boot sector", behind, BOOT_BYTES)?;
        if copy != read("boot sector", 0, BOOT_BYTES)? {
            return Ok(false);
        }
    }
    let place = |cluster: u64| cluster * u64::from(boot.cluster_bytes);
    let len = MIRRORED_RECORDS as usize * boot.record_bytes as usize;
    let records = read("MFT", place(boot.mft_cluster), len)?;
    Ok(records == read("copy of the MFT", place(boot.mirror_cluster), len)?)
}
