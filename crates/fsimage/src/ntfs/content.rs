//! What a stream holds: its bytes as a program on Windows reads them, decompressed, with zeros
//! where there are holes and where nothing was written yet.

use super::lznt1;
use super::runs::ClusterRun;
use super::stream::{MappedStream, NtfsStream, StreamError};
use super::{Ntfs, NtfsError, NtfsFault};
use crate::inode::MappedExtent;

/// Of what is compressed together; Windows makes 64 KiB.
const UNIT_BYTES_MAX: u64 = 1 << 20;

impl Ntfs {
    /// Fills `buf` with what a stream of record `number` holds at `offset`; all of it must be
    /// there.
    pub fn read_content(
        &self,
        number: u64,
        stream: &NtfsStream,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), NtfsError> {
        let fault = NtfsError::record(number);
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > stream.size()) {
            return Err(fault(NtfsFault::TooLong));
        }
        let mapped = match stream {
            NtfsStream::Resident(value) => {
                let part = value
                    .get(offset as usize..)
                    .and_then(|rest| rest.get(..buf.len()));
                buf.copy_from_slice(part.ok_or_else(|| fault(NtfsFault::TooLong))?);
                return Ok(());
            }
            NtfsStream::Mapped(mapped) => mapped,
        };
        if stream.is_encrypted() {
            return Err(fault(NtfsFault::Encrypted(mapped.kind)));
        }
        let initialized = mapped.initialized.saturating_sub(offset);
        let written = initialized.min(buf.len() as u64) as usize;
        let (written, behind) = buf.split_at_mut(written);
        behind.fill(0);
        let read = match mapped.is_compressed() {
            true => self.read_compressed(mapped, offset, written),
            false => mapped.read_stored(self.source.as_ref(), &self.boot, offset, written),
        };
        read.map_err(|error| error.of(number, "content"))
    }

    fn read_compressed(
        &self,
        mapped: &MappedStream,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), StreamError> {
        let unit_bytes = u64::from(self.boot.cluster_bytes) << mapped.unit_log;
        if unit_bytes > UNIT_BYTES_MAX {
            return Err(StreamError::Fault(NtfsFault::Compressed));
        }
        let mut unit = vec![0; unit_bytes as usize];
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            self.read_unit(mapped, at / unit_bytes, &mut unit)?;
            let inside = (at % unit_bytes) as usize;
            let len = rest.len().min(unit.len() - inside);
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&unit[inside..inside + len]);
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    /// What is compressed together has clusters in front and a hole behind them; without a hole it
    /// is stored as it is, without clusters it is zeros.
    fn read_unit(
        &self,
        mapped: &MappedStream,
        number: u64,
        unit: &mut [u8],
    ) -> Result<(), StreamError> {
        let clusters = 1u64 << mapped.unit_log;
        let first = number * clusters;
        let mut stored = 0;
        let mut at = first;
        while at < first + clusters {
            let run = mapped.run_of(at);
            let end = run
                .map_or(first + clusters, ClusterRun::end)
                .min(first + clusters);
            match run.and_then(|run| run.cluster) {
                Some(_) if stored == at - first => stored = end - first,
                Some(_) => return Err(StreamError::Fault(NtfsFault::Compressed)),
                None => {}
            }
            at = end;
        }
        let offset = first * u64::from(self.boot.cluster_bytes);
        let (source, boot) = (self.source.as_ref(), &self.boot);
        if stored == clusters {
            return mapped.read_stored(source, boot, offset, unit);
        }
        let mut packed = vec![0; (stored * u64::from(self.boot.cluster_bytes)) as usize];
        mapped.read_stored(source, boot, offset, &mut packed)?;
        let unpacked = lznt1::decompress(&packed, unit);
        unpacked.ok_or(StreamError::Fault(NtfsFault::Compressed))
    }

    /// Where the bytes of a stream are, in order, without its holes; none if they are in the
    /// record. If they are compressed or encrypted, they are there in that form.
    pub fn extents<'s>(
        &self,
        stream: &'s NtfsStream,
    ) -> impl Iterator<Item = MappedExtent> + use<'s> {
        let cluster_bytes = u64::from(self.boot.cluster_bytes);
        let mapped = match stream {
            NtfsStream::Mapped(mapped) => Some(mapped),
            NtfsStream::Resident(_) => None,
        };
        let runs = mapped.into_iter().flat_map(|mapped| {
            let runs = mapped.runs.iter();
            runs.map(move |run| (mapped, run))
        });
        runs.flat_map(move |(mapped, run)| {
            // What is behind the end of what was written reads as zeros.
            let start = run.first * cluster_bytes;
            let end = (run.end() * cluster_bytes).min(mapped.size);
            let written = end.min(mapped.initialized.max(start));
            let parts = [(start, written, false), (written, end, true)];
            let parts = parts.into_iter().filter(|(from, to, _)| from < to);
            let device = run.cluster.map(|cluster| cluster * cluster_bytes);
            device.into_iter().flat_map(move |device| {
                parts
                    .clone()
                    .map(move |(from, to, unwritten)| MappedExtent {
                        file_offset: from,
                        device_offset: device + (from - start),
                        len: to - from,
                        unwritten,
                    })
            })
        })
    }
}
