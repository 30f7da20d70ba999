//! Attributes as a whole: a value that lies in the record, or runs from the first cluster to the
//! last.

use super::boot::NtfsBoot;
use super::error::{NtfsError, NtfsFault};
use super::record::{AttributeBody, FLAG_COMPRESSED, FLAG_ENCRYPTED, NtfsAttribute};
use super::runs::{ClusterRun, decode_runs};
use crate::ByteSource;
use crate::inode::Layout;

/// Clusters that are compressed together: 2 to the power of at most this.
const UNIT_LOG_MAX: u8 = 8;

/// Where the bytes of an attribute are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NtfsStream {
    Resident(Vec<u8>),
    Mapped(MappedStream),
}

/// An attribute outside of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedStream {
    pub kind: u32,
    pub flags: u16,
    /// 0: nothing is compressed.
    pub unit_log: u8,
    pub size: u64,
    /// What is behind reads as zeros, whatever is on the device.
    pub initialized: u64,
    /// In order, without gaps, holes among them.
    pub runs: Vec<ClusterRun>,
}

impl NtfsStream {
    /// Of the first piece of an attribute, which for most is the only one.
    pub(super) fn begin(
        boot: &NtfsBoot,
        attribute: &NtfsAttribute<'_>,
    ) -> Result<NtfsStream, NtfsFault> {
        let kind = attribute.kind;
        let AttributeBody::Mapped {
            first,
            unit_log,
            allocated,
            size,
            initialized,
            ..
        } = attribute.body
        else {
            return match attribute.body {
                AttributeBody::Resident(value) => Ok(NtfsStream::Resident(value.to_vec())),
                AttributeBody::Mapped { .. } => Err(NtfsFault::Attribute),
            };
        };
        if first != 0 {
            return Err(NtfsFault::Pieces(kind));
        }
        let is_good = initialized <= size
            && size <= allocated
            && allocated <= i64::MAX as u64
            && unit_log <= UNIT_LOG_MAX;
        if !is_good {
            return Err(NtfsFault::Size(kind));
        }
        let mut stream = MappedStream {
            kind,
            flags: attribute.flags,
            unit_log,
            size,
            initialized,
            runs: Vec::new(),
        };
        stream.extend(boot, attribute)?;
        Ok(NtfsStream::Mapped(stream))
    }

    pub fn size(&self) -> u64 {
        match self {
            NtfsStream::Resident(value) => value.len() as u64,
            NtfsStream::Mapped(mapped) => mapped.size,
        }
    }

    /// Of a file whose content it is.
    pub(super) fn layout(&self) -> Layout {
        match self {
            NtfsStream::Resident(value) => Layout::Inline(value.clone()),
            _ if self.is_encrypted() => Layout::Windows("it is encrypted"),
            NtfsStream::Mapped(mapped) if mapped.is_compressed() => Layout::Encoded,
            NtfsStream::Mapped(_) => Layout::Mapped,
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self, NtfsStream::Mapped(mapped) if mapped.flags & FLAG_ENCRYPTED != 0)
    }
}

impl MappedStream {
    /// Adds a further piece, which must follow.
    pub(super) fn extend(
        &mut self,
        boot: &NtfsBoot,
        attribute: &NtfsAttribute<'_>,
    ) -> Result<(), NtfsFault> {
        let AttributeBody::Mapped {
            first, end, runs, ..
        } = attribute.body
        else {
            return Err(NtfsFault::Pieces(self.kind));
        };
        if first != self.clusters() {
            return Err(NtfsFault::Pieces(self.kind));
        }
        decode_runs(runs, self.kind, first..end, boot.clusters, &mut self.runs)
    }

    /// Clusters that there are runs for.
    pub fn clusters(&self) -> u64 {
        self.runs.last().map_or(0, ClusterRun::end)
    }

    /// Whether all clusters that the size needs have runs: pieces are all there.
    pub(super) fn is_whole(&self, boot: &NtfsBoot) -> bool {
        self.clusters() >= boot.clusters_of(self.size)
    }

    pub fn is_compressed(&self) -> bool {
        self.flags & FLAG_COMPRESSED != 0 && self.unit_log != 0
    }

    /// Clusters that are on the volume.
    pub fn clusters_taken(&self) -> u64 {
        let taken = self.runs.iter().filter(|run| run.cluster.is_some());
        taken.map(|run| run.count).sum()
    }

    /// The run that a cluster of the attribute is in.
    pub(super) fn run_of(&self, cluster: u64) -> Option<&ClusterRun> {
        let next = self.runs.partition_point(|run| run.first <= cluster);
        let run = self.runs.get(next.checked_sub(1)?)?;
        (cluster < run.end()).then_some(run)
    }

    /// Fills `buf` with what lies at `offset` of the attribute, as it is on the device: not
    /// decompressed, and also behind what is initialized. Holes are zeros.
    pub(super) fn read_stored(
        &self,
        source: &dyn ByteSource,
        boot: &NtfsBoot,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), StreamError> {
        let cluster_bytes = u64::from(boot.cluster_bytes);
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let run = self.run_of(at / cluster_bytes);
            let run = run.ok_or(StreamError::Fault(NtfsFault::Runs(self.kind)))?;
            let left = run.end() * cluster_bytes - at;
            let len = left.min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(len);
            match run.cluster {
                None => now.fill(0),
                Some(cluster) => {
                    let place = cluster * cluster_bytes + (at - run.first * cluster_bytes);
                    let read = source.read_exact_at(place, now);
                    read.map_err(|source| StreamError::Read(place, source))?;
                }
            }
            rest = later;
            at += len as u64;
        }
        Ok(())
    }
}

/// Why bytes of an attribute cannot be had, before it is known whose it is.
#[derive(Debug)]
pub(super) enum StreamError {
    /// At this byte of the volume.
    Read(u64, std::io::Error),
    Fault(NtfsFault),
}

impl StreamError {
    pub(super) fn of(self, record: u64, what: &'static str) -> NtfsError {
        match self {
            StreamError::Read(offset, source) => NtfsError::Read {
                what,
                offset,
                source,
            },
            StreamError::Fault(fault) => NtfsError::Record { record, fault },
        }
    }
}
