//! NTFS for the inode scan: records of the MFT are its inodes, and the names in them its
//! directories.
//!
//! A number of the scan is a record's and behind it, in the lower 16 bits, the count of how often
//! the record was used: a name that leads to a directory of another count leads nowhere. People see
//! the number of the record, as ntfs-3g shows it. What NTFS keeps for itself is left out.

use super::volume::{
    DirectoryNames, FoundInode, FoundXattrs, InodeContent, InodeTables, TableSink, Volume,
    VolumeFacts,
};
use super::{Device, NamesPiece, Span, TablePiece};
use crate::scan::Atime;
use bale_fsimage::ntfs::{
    MftRecord, MftReference, NOT_LEFT_CLEANLY, Ntfs, NtfsBoot, NtfsError, NtfsFile, NtfsStream,
    ROOT_RECORD, SecurityDescriptors, forget_reading,
};
use bale_fsimage::{ByteSource, Inode, MappedExtent};
use bale_pipeline::error::with_causes;
use std::sync::Arc;

const COUNT_BITS: u32 = 16;

pub(super) struct NtfsVolume {
    ntfs: Ntfs,
    source: Arc<dyn ByteSource>,
    root: u64,
    /// The error is said of each file that shares one.
    security: Result<SecurityDescriptors, String>,
}

/// Whether this is NTFS, intact or not.
pub(super) fn is_ntfs(device: &Device) -> bool {
    !matches!(NtfsBoot::read(device), Err(NtfsError::NotNtfs))
}

/// Opens what nobody writes to; the error says why not.
pub(super) fn open(device: Arc<Device>) -> Result<NtfsVolume, String> {
    let source: Arc<dyn ByteSource> = device;
    let ntfs = Ntfs::open(source.clone()).map_err(words)?;
    if !ntfs.was_left_cleanly().map_err(words)? {
        return Err(NOT_LEFT_CLEANLY.to_owned());
    }
    let mut bytes = Vec::new();
    let root = ntfs.read_record(ROOT_RECORD, &mut bytes).map_err(words)?;
    Ok(NtfsVolume {
        root: number_of(root.reference()),
        security: ntfs.security_descriptors().map_err(words),
        source,
        ntfs,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "to be mapped with")]
fn words(error: NtfsError) -> String {
    with_causes(&error)
}

fn number_of(reference: MftReference) -> u64 {
    reference.number << COUNT_BITS | u64::from(reference.sequence)
}

fn reference_of(number: u64) -> MftReference {
    MftReference {
        number: number >> COUNT_BITS,
        sequence: number as u16,
    }
}

/// As tables give them: a whole number of words.
fn raw_of(record: &MftRecord<'_>) -> Vec<u8> {
    let bytes = record.bytes();
    let mut raw = bytes.to_vec();
    raw.resize(bytes.len().next_multiple_of(8), 0);
    raw
}

impl NtfsVolume {
    fn file(&self, number: u64, raw: &[u8]) -> Result<NtfsFile, String> {
        let record = MftRecord::undone(number >> COUNT_BITS, raw);
        let file = record.map_err(|fault| fault.to_string());
        file.and_then(|record| self.ntfs.file(&record).map_err(words))
    }

    /// The file, if what it holds is known.
    fn whole_file(&self, number: u64, raw: &[u8]) -> Result<NtfsFile, String> {
        let file = self.file(number, raw)?;
        match file.damage() {
            Some(damage) => Err(with_causes(damage)),
            None => Ok(file),
        }
    }

    fn add(&self, record: &MftRecord<'_>, sink: &mut dyn TableSink) {
        let number = number_of(record.reference());
        let file = match self.ntfs.file(record) {
            Ok(file) => file,
            Err(error) => return sink.damaged(number, words(error)),
        };
        let is_internal = |parent: MftReference| Ntfs::is_internal(parent.number);
        if !file.names.is_empty() && file.names.iter().all(|name| is_internal(name.parent)) {
            return;
        }
        let Some(found) = FoundInode::new(&file.inode()) else {
            return sink.damaged(number, "it is of no known type".to_owned());
        };
        let is_root = record.number() == ROOT_RECORD;
        let names = file.linux_names().count();
        if names == 0 && file.names.is_empty() && !is_root {
            let why = format!("MFT record {}: it has no name", record.number());
            return sink.damaged(number, why);
        }
        for name in file.names.iter().filter(|_| names < file.names.len()) {
            if name.name.len() > NAME_BYTES_MAX {
                let begins = String::from_utf8_lossy(&name.name[..40]);
                let why = format!("a name is too long for Linux: {}...", begins.escape_debug());
                sink.incomplete(number_of(name.parent), why);
            }
        }
        if names == 0 && !is_root {
            return;
        }
        sink.inode(FoundInode { number, ..found }, &raw_of(record));
        for name in file.linux_names().filter(|_| !is_root) {
            sink.name(number_of(name.parent), &name.name, number);
        }
    }
}

/// A name that a directory of Linux can have.
const NAME_BYTES_MAX: usize = 255;

impl Volume for NtfsVolume {
    fn facts(&self) -> VolumeFacts {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.ntfs.boot().serial.to_be_bytes());
        VolumeFacts {
            kind: "ntfs",
            uuid,
            inode_context: [0; 12],
            root: self.root,
            number_bytes: 8,
            has_metadata_in_page_cache: false,
            is_replayed: false,
            was_never_mounted: false,
            was_in_use: false,
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.source.read_exact_at(offset, bytes)
    }
}

impl InodeTables for NtfsVolume {
    /// Records that are not in use are counted as well.
    fn inodes_expected(&self) -> u64 {
        self.ntfs.records()
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_> {
        Box::new(self.ntfs.table().map(|piece| {
            Ok(TablePiece {
                span: Span {
                    offset: piece.offset,
                    len: piece.bytes as u32,
                },
                first_inode: piece.first << COUNT_BITS,
                chunks: Vec::new(),
                parts: Vec::new(),
            })
        }))
    }

    fn parse(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink) {
        let first = piece.first_inode >> COUNT_BITS;
        let mut records = bytes.to_vec();
        if records.len() < self.ntfs.boot().record_bytes as usize
            && let Err(error) = self.ntfs.read_record_bytes(first, &mut records)
        {
            return sink.damaged(piece.first_inode, words(error));
        }
        let ntfs = &self.ntfs;
        ntfs.records_in(first, &mut records, &mut |number, record| match record {
            Ok(record) => self.add(&record, sink),
            Err(error) => sink.damaged(number << COUNT_BITS, words(error)),
        });
    }

    fn forget_reading(&self, raw: &mut [u8], atime: Atime) {
        forget_reading(raw, atime == Atime::LeftOut);
    }
}

impl DirectoryNames for NtfsVolume {
    fn parse(&self, _: &NamesPiece, _: &[u8], _: &mut dyn FnMut(&[u8], u64)) -> Vec<String> {
        vec!["names of NTFS are in its records".to_owned()]
    }

    fn are_with_inodes(&self) -> bool {
        true
    }

    fn is_left_out(&self, directory: u64) -> bool {
        self.ntfs.is_below_internal(reference_of(directory))
    }
}

impl InodeContent for NtfsVolume {
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let record = self.ntfs.read_record(number >> COUNT_BITS, &mut bytes);
        let record = record.map_err(words)?;
        match record.is_in_use() && record.reference() == reference_of(number) {
            true => Ok(raw_of(&record)),
            false => Err("the record is of another file".to_owned()),
        }
    }

    fn decode(&self, number: u64, raw: &[u8]) -> Result<Inode, String> {
        let file = self.file(number, raw)?;
        if let (false, Some(damage)) = (file.is_directory, file.damage()) {
            return Err(with_causes(damage));
        }
        Ok(Inode {
            number,
            ..file.inode()
        })
    }

    fn shown_number(&self, number: u64) -> u64 {
        number >> COUNT_BITS
    }

    fn sectors(&self, number: u64, raw: &[u8]) -> u64 {
        let cluster_sectors = u64::from(self.ntfs.boot().cluster_bytes).div_ceil(512);
        let file = self.whole_file(number, raw);
        file.map_or(0, |file| match file.data() {
            Some(NtfsStream::Mapped(mapped)) => {
                mapped.clusters_taken().saturating_mul(cluster_sectors)
            }
            _ => 0,
        })
    }

    fn mapping_has_nodes(&self, _: u64, _: &[u8]) -> bool {
        true
    }

    fn extents(
        &self,
        number: u64,
        raw: &[u8],
        extent: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String> {
        let file = self.whole_file(number, raw)?;
        let data = file.data().into_iter();
        let mut extents = data.flat_map(|stream| self.ntfs.extents(stream));
        let _stopped = extents.all(extent);
        Ok(())
    }

    fn target(&self, number: u64, raw: &[u8]) -> Result<Vec<u8>, String> {
        let file = self.file(number, raw)?;
        let target = file.target().map(<[u8]>::to_vec);
        target.ok_or_else(|| "it is no link".to_owned())
    }

    fn xattrs(&self, number: u64, raw: &[u8]) -> Result<FoundXattrs, String> {
        let file = self.file(number, raw)?;
        let found = self.ntfs.xattrs(&file, self.security.as_ref().ok());
        let mut xattrs = FoundXattrs::default();
        if let Some(damage) = file.damage() {
            xattrs.missing.push(with_causes(damage));
        }
        for one in found.map_err(words)? {
            xattrs.add(one.name, one.value.map_err(words));
        }
        Ok(xattrs)
    }

    fn read_encoded(
        &self,
        number: u64,
        raw: &[u8],
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), String> {
        let file = self.whole_file(number, raw)?;
        let data = file.data().ok_or("it has no content")?;
        let record = number >> COUNT_BITS;
        let read = self.ntfs.read_content(record, data, offset, bytes);
        read.map_err(words)
    }
}
