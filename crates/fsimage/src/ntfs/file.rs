//! Files: what the records of one say of it, as an inode with names, streams and attributes.
//!
//! NTFS has no owner and no mode that Linux knows; what it has instead, the security descriptor, is
//! kept as it is. So the owner is root and everybody may do everything, without the right to write
//! if the file is marked read-only: what ntfs-3g shows without a map of users. Extended attributes
//! have the names that ntfs-3g gives them and takes them by: `system.ntfs_acl` (the descriptor),
//! `system.ntfs_attrib` (flags), `system.ntfs_reparse_data` where it is no link, `user.NAME` for
//! further streams.

use super::attributes::WholeAttribute;
use super::bytes::{u32_at, u64_at};
use super::names::{NtfsName, decode_name, timestamp};
use super::record::{
    DATA, FILE_NAME, MftRecord, MftReference, REPARSE_POINT, SECURITY_DESCRIPTOR,
    STANDARD_INFORMATION,
};
use super::reparse::{REPARSE_BYTES_MAX, link_target};
use super::security::{SecurityDescriptors, stream_xattr};
use super::stream::NtfsStream;
use super::{Ntfs, NtfsError, NtfsFault};
use crate::inode::{Inode, Layout, Timestamp};

/// Record of the root directory.
pub const ROOT_RECORD: u64 = 5;
/// Records below are the volume's own, but for the root.
const FIRST_RECORD: u64 = 24;
const READ_ONLY: u32 = 1;
const DIRECTORY: u32 = 0x10;
const NORMAL: u32 = 0x80;
/// What the kernel's interface can carry.
const XATTR_BYTES_MAX: u64 = 64 << 10;

/// A file, or a directory.
#[derive(Clone, Debug)]
pub struct NtfsFile {
    pub reference: MftReference,
    pub is_directory: bool,
    /// But those in 8.3 form.
    pub names: Vec<NtfsName>,
    pub created: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub accessed: Timestamp,
    /// Read-only, hidden, system and so on.
    pub flags: u32,
    /// Its security descriptor is in $Secure, by this number.
    pub security: Option<u32>,
    /// Target of a symbolic link or a junction.
    pub target: Option<Vec<u8>>,
    /// Streams, a reparse point, a security descriptor of its own.
    attributes: Vec<WholeAttribute>,
}

/// An extended attribute, or why it cannot be had.
#[derive(Debug)]
pub struct NtfsXattr {
    pub name: Vec<u8>,
    pub value: Result<Vec<u8>, NtfsError>,
}

impl Ntfs {
    /// Everything in the records from `first` on that is a file's, until `visit` was called for the
    /// last. Errors are those of one file each.
    pub fn files(
        &self,
        first: u64,
        end: u64,
        visit: &mut dyn FnMut(u64, Result<NtfsFile, NtfsError>),
    ) {
        let mut bytes = Vec::new();
        for (first, count) in self.pieces(first, end) {
            if self.read_records(first, count, &mut bytes).is_ok() {
                self.files_of(first, &mut bytes, visit);
                continue;
            }
            // What can be read of it, record by record.
            for number in first..first + count {
                match self.read_records(number, 1, &mut bytes) {
                    Ok(()) => self.files_of(number, &mut bytes, visit),
                    Err(error) => visit(number, Err(error)),
                }
            }
        }
    }

    /// Of whole records, one behind the other.
    fn files_of(
        &self,
        first: u64,
        bytes: &mut [u8],
        visit: &mut dyn FnMut(u64, Result<NtfsFile, NtfsError>),
    ) {
        let record_bytes = self.boot.record_bytes as usize;
        for (number, record) in (first..).zip(bytes.chunks_exact_mut(record_bytes)) {
            // Never used: nobody wrote a head.
            if record[..4] == [0; 4] || Self::is_internal(number) {
                continue;
            }
            let file = match MftRecord::parse(number, record) {
                Ok(record) if !record.is_in_use() || record.base().is_some() => continue,
                Ok(record) => self.file(&record),
                Err(fault) => Err(NtfsError::record(number)(fault)),
            };
            visit(number, file);
        }
    }

    /// Is a record the volume's own? Files below such a directory are, too.
    pub fn is_internal(number: u64) -> bool {
        number < FIRST_RECORD && number != ROOT_RECORD
    }

    /// The file of a first record.
    pub fn file(&self, record: &MftRecord<'_>) -> Result<NtfsFile, NtfsError> {
        let number = record.number();
        let fault = NtfsError::record(number);
        let mut attributes = self.attributes_of(record, |kind| {
            [
                STANDARD_INFORMATION,
                FILE_NAME,
                DATA,
                REPARSE_POINT,
                SECURITY_DESCRIPTOR,
            ]
            .contains(&kind)
        })?;
        let mut names = Vec::new();
        let mut facts = None;
        for attribute in &attributes {
            let NtfsStream::Resident(value) = &attribute.stream else {
                continue;
            };
            match attribute.kind {
                STANDARD_INFORMATION => facts = Facts::decode(value),
                FILE_NAME => {
                    let damaged = || fault(NtfsFault::Value(FILE_NAME));
                    names.extend(decode_name(value).ok_or_else(damaged)?);
                }
                _ => {}
            }
        }
        let facts = facts.ok_or_else(|| fault(NtfsFault::Value(STANDARD_INFORMATION)))?;
        let point = attributes.iter().find(|found| found.kind == REPARSE_POINT);
        let point = point.map(|found| self.value(number, &found.stream, REPARSE_BYTES_MAX));
        let target = point.transpose()?.and_then(|value| link_target(&value));
        attributes.retain(|found| match found.kind {
            DATA | SECURITY_DESCRIPTOR => true,
            REPARSE_POINT => target.is_none(),
            _ => false,
        });
        Ok(NtfsFile {
            reference: record.reference(),
            is_directory: record.is_directory() && target.is_none(),
            names,
            created: timestamp(facts.times[0]),
            modified: timestamp(facts.times[1]),
            changed: timestamp(facts.times[2]),
            accessed: timestamp(facts.times[3]),
            flags: facts.flags,
            security: facts.security,
            target,
            attributes,
        })
    }

    /// Extended attributes of a file, sorted by name. A stream that is too long for one is an error
    /// beside the others.
    pub fn xattrs(
        &self,
        file: &NtfsFile,
        security: &SecurityDescriptors,
    ) -> Result<Vec<NtfsXattr>, NtfsError> {
        let number = file.reference.number;
        let mut found = vec![NtfsXattr {
            name: b"system.ntfs_attrib".to_vec(),
            value: Ok(file.shown_flags().to_le_bytes().into()),
        }];
        let shared = file.security.filter(|security| *security != 0);
        if let Some(shared) = shared {
            let descriptor = self.security_descriptor(security, shared)?;
            let missing = NtfsError::record(number)(NtfsFault::Missing(SECURITY_DESCRIPTOR));
            found.push(NtfsXattr {
                name: b"system.ntfs_acl".to_vec(),
                value: descriptor.ok_or(missing),
            });
        }
        for attribute in &file.attributes {
            let name = match attribute.kind {
                DATA if attribute.name.is_empty() => continue,
                DATA => stream_xattr(&attribute.name),
                SECURITY_DESCRIPTOR if shared.is_none() => b"system.ntfs_acl".to_vec(),
                REPARSE_POINT => b"system.ntfs_reparse_data".to_vec(),
                _ => continue,
            };
            let value = self.content(number, &attribute.stream);
            found.push(NtfsXattr { name, value });
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn content(&self, number: u64, stream: &NtfsStream) -> Result<Vec<u8>, NtfsError> {
        if stream.size() > XATTR_BYTES_MAX {
            return Err(NtfsError::record(number)(NtfsFault::TooLong));
        }
        let mut bytes = vec![0; stream.size() as usize];
        self.read_content(number, stream, 0, &mut bytes)?;
        Ok(bytes)
    }
}

impl NtfsFile {
    /// As Windows shows them: with that of a directory, and never none.
    fn shown_flags(&self) -> u32 {
        let is_directory = if self.is_directory { DIRECTORY } else { 0 };
        match self.flags & !DIRECTORY | is_directory {
            0 => NORMAL,
            flags => flags,
        }
    }

    /// The content: of a directory there is none.
    pub fn data(&self) -> Option<&NtfsStream> {
        let mut streams = self.streams();
        streams.find_map(|(name, stream)| name.is_empty().then_some(stream))
    }

    /// All streams with their names (UTF-16, little-endian).
    pub fn streams(&self) -> impl Iterator<Item = (&[u8], &NtfsStream)> {
        let data = self.attributes.iter().filter(|found| found.kind == DATA);
        data.map(|found| (found.name.as_slice(), &found.stream))
    }

    /// As the other readers have it. Content that is compressed is for [`Ntfs::read_content`].
    pub fn inode(&self) -> Inode {
        let write = if self.flags & READ_ONLY != 0 {
            0o555
        } else {
            0o777
        };
        let (mode, size, layout) = match (&self.target, self.is_directory, self.data()) {
            (Some(target), ..) => {
                let layout = Layout::Inline(target.clone());
                (0o120_777, target.len() as u64, layout)
            }
            (None, true, _) => (0o040_000 | write, 0, Layout::None),
            (None, false, None) => (0o100_000 | write, 0, Layout::None),
            (None, false, Some(stream)) => {
                let layout = match stream {
                    NtfsStream::Resident(value) => Layout::Inline(value.clone()),
                    _ if stream.is_encrypted() => Layout::Kernel("it is encrypted by Windows"),
                    NtfsStream::Mapped(mapped) if mapped.is_compressed() => {
                        Layout::Kernel("it is compressed by NTFS")
                    }
                    NtfsStream::Mapped(_) => Layout::Mapped,
                };
                (0o100_000 | write, stream.size(), layout)
            }
        };
        Inode {
            number: self.reference.number,
            generation: self.reference.sequence.into(),
            mode,
            uid: 0,
            gid: 0,
            nlink: self.names.len() as u32,
            size,
            atime: self.accessed,
            mtime: self.modified,
            ctime: self.changed,
            crtime: Some(self.created),
            flags: 0,
            project: 0,
            rdev: (0, 0),
            layout,
        }
    }
}

/// $STANDARD_INFORMATION.
struct Facts {
    times: [u64; 4],
    flags: u32,
    security: Option<u32>,
}

impl Facts {
    fn decode(value: &[u8]) -> Option<Facts> {
        let time = |number: usize| u64_at(value, number * 8);
        Some(Facts {
            times: [time(0)?, time(1)?, time(2)?, time(3)?],
            flags: u32_at(value, 32)?,
            // Only since version 3.
            security: u32_at(value, 52),
        })
    }
}
