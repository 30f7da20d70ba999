//! Reading NTFS from a byte source: records of the MFT and their attributes, and which clusters are
//! in use.
//!
//! NTFS has no checksums; a record proves itself by its fixups, and everything that leads elsewhere
//! is checked against the sizes of the volume. Whatever is wrong is an error of its record. Layout
//! of the structures: the documentation of the Linux-NTFS project.

mod attributes;
mod boot;
mod bytes;
mod cluster_bitmap;
mod content;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod linux_kind;
mod log;
mod lznt1;
mod names;
mod record;
mod reparse;
mod runs;
mod security;
mod stream;
mod table;

use std::sync::Arc;

pub use attributes::WholeAttribute;
pub use boot::NtfsBoot;
pub use cluster_bitmap::ClusterBitmap;
pub use error::{NtfsError, NtfsFault};
pub use file::{NtfsFile, NtfsXattr, ROOT_RECORD};
pub use log::NOT_LEFT_CLEANLY;
pub use names::NtfsName;
pub use record::forget_reading;
pub use record::{AttributeBody, MftRecord, MftReference, NtfsAttribute, NtfsAttributes};
pub use runs::ClusterRun;
pub use security::SecurityDescriptors;
pub use stream::{MappedStream, NtfsStream};
pub use table::MftPiece;

use crate::ByteSource;
use record::DATA;

/// Of the MFT, for one read.
const PIECE_BYTES: u64 = 1 << 20;

/// An opened volume. Cloning is cheap.
#[derive(Clone)]
pub struct Ntfs {
    source: Arc<dyn ByteSource>,
    boot: NtfsBoot,
    /// Where the records are.
    mft: Arc<MappedStream>,
}

impl Ntfs {
    /// Reads the boot sector and where the MFT is.
    pub fn open(source: Arc<dyn ByteSource>) -> Result<Ntfs, NtfsError> {
        let boot = NtfsBoot::read(source.as_ref())?;
        let fault = NtfsError::record(0);
        let mut bytes = vec![0; boot.record_bytes as usize];
        let offset = boot.mft_cluster * u64::from(boot.cluster_bytes);
        let read = source.read_exact_at(offset, &mut bytes);
        read.map_err(|source| NtfsError::Read {
            what: "MFT",
            offset,
            source,
        })?;
        let record = MftRecord::parse(0, &mut bytes).map_err(&fault)?;
        let mft = (record.attributes())
            .find_map(|attribute| match attribute {
                Ok(found) if found.kind == DATA && found.name.is_empty() => Some(Ok(found)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
            .unwrap_or(Err(NtfsFault::Missing(DATA)));
        let mft = mft.and_then(|attribute| NtfsStream::begin(&boot, &attribute));
        let NtfsStream::Mapped(mft) = mft.map_err(&fault)? else {
            return Err(fault(NtfsFault::Runs(DATA)));
        };
        let mut ntfs = Ntfs {
            source,
            boot,
            mft: Arc::new(mft),
        };
        ntfs.extend_mft(&record)?;
        let begins = ntfs.mft.run_of(0).and_then(|run| run.cluster);
        let is_good = ntfs.mft.is_whole(&ntfs.boot)
            && ntfs.mft.flags == 0
            && begins == Some(ntfs.boot.mft_cluster)
            && ntfs.mft.runs.iter().all(|run| run.cluster.is_some());
        match is_good {
            true => Ok(ntfs),
            false => Err(fault(NtfsFault::Runs(DATA))),
        }
    }

    pub fn boot(&self) -> &NtfsBoot {
        &self.boot
    }

    /// Records that there are, used or not.
    pub fn records(&self) -> u64 {
        self.mft.initialized / u64::from(self.boot.record_bytes)
    }

    /// Reads one record into `bytes`.
    pub fn read_record<'b>(
        &self,
        number: u64,
        bytes: &'b mut Vec<u8>,
    ) -> Result<MftRecord<'b>, NtfsError> {
        let fault = NtfsError::record(number);
        if number >= self.records() {
            return Err(fault(NtfsFault::Outside));
        }
        bytes.resize(self.boot.record_bytes as usize, 0);
        let offset = number * u64::from(self.boot.record_bytes);
        let read = (self.mft).read_stored(self.source.as_ref(), &self.boot, offset, bytes);
        read.map_err(|error| error.of(number, "MFT record"))?;
        MftRecord::parse(number, bytes).map_err(fault)
    }

    /// Pieces of the MFT for one read each: first record, and how many.
    fn pieces(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let step = PIECE_BYTES / u64::from(self.boot.record_bytes);
        let end = end.min(self.records());
        (first..end)
            .step_by(step as usize)
            .map(move |first| (first, step.min(end - first)))
    }

    fn read_records(&self, first: u64, count: u64, bytes: &mut Vec<u8>) -> Result<(), NtfsError> {
        let record_bytes = u64::from(self.boot.record_bytes);
        bytes.resize((count * record_bytes) as usize, 0);
        let offset = first * record_bytes;
        let read = (self.mft).read_stored(self.source.as_ref(), &self.boot, offset, bytes);
        read.map_err(|error| error.of(first, "MFT records"))
    }

    /// One attribute of a file.
    pub fn stream(&self, number: u64, kind: u32, name: &[u8]) -> Result<NtfsStream, NtfsError> {
        let fault = NtfsError::record(number);
        let mut bytes = Vec::new();
        let record = self.read_record(number, &mut bytes)?;
        if !record.is_in_use() || record.base().is_some() {
            return Err(fault(NtfsFault::Unused));
        }
        let mut attributes = self.attributes(&record)?.into_iter();
        let found = attributes.find(|found| found.kind == kind && found.name == name);
        let found = found.ok_or(fault(NtfsFault::Missing(kind)))?;
        Ok(found.stream)
    }

    /// A value of at most `bytes_max`, as it is stored.
    pub fn value(
        &self,
        number: u64,
        stream: &NtfsStream,
        bytes_max: u64,
    ) -> Result<Vec<u8>, NtfsError> {
        let fault = NtfsError::record(number);
        if stream.size() > bytes_max {
            return Err(fault(NtfsFault::TooLong));
        }
        match stream {
            NtfsStream::Resident(value) => Ok(value.clone()),
            NtfsStream::Mapped(mapped) => {
                if mapped.is_compressed() {
                    return Err(fault(NtfsFault::Value(mapped.kind)));
                }
                let mut bytes = vec![0; mapped.size as usize];
                let read = mapped.read_stored(self.source.as_ref(), &self.boot, 0, &mut bytes);
                read.map_err(|error| error.of(number, "attribute"))?;
                bytes[mapped.initialized as usize..].fill(0);
                Ok(bytes)
            }
        }
    }
}
