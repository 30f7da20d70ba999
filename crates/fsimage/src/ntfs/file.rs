//! Files: what the records of one say of it, as an inode with names, streams and attributes.
//!
//! NTFS has no owner and no mode that Linux knows; what it has instead, the security descriptor, is
//! kept as it is. So the owner is root and everybody may do everything: what ntfs-3g shows without
//! a map of users. Extended attributes have the names that ntfs-3g gives them and takes them by:
//! `system.ntfs_acl` (the descriptor), `system.ntfs_attrib` (flags), `system.ntfs_reparse_data`
//! where it makes no link, pipe, socket or device, `user.NAME` for further streams.
//!
//! What is wrong with the streams of a file is no reason not to know its names.

use super::attributes::WholeAttribute;
use super::bytes::{u32_at, u64_at};
use super::linux_kind::{INTERIX_BYTES_MAX, LinuxKind, may_be_interix};
use super::linux_kind::{of_interix, of_reparse_point};
use super::names::{NtfsName, decode_name, timestamp};
use super::record::{
    DATA, EXTENDED_ATTRIBUTES, FILE_NAME, MftRecord, MftReference, REPARSE_POINT,
    SECURITY_DESCRIPTOR, STANDARD_INFORMATION,
};
use super::reparse::REPARSE_BYTES_MAX;
use super::security::{SECURE_RECORD, SecurityDescriptors, stream_xattr};
use super::stream::NtfsStream;
use super::{Ntfs, NtfsError, NtfsFault};
use crate::inode::{Inode, Layout, Timestamp};

/// Record of the root directory.
pub const ROOT_RECORD: u64 = 5;
/// Records below are the volume's own, but for the root.
const FIRST_RECORD: u64 = 24;
/// What everybody may do with a file.
const ANYTHING: u32 = 0o777;
const DIRECTORY: u32 = 0x10;
const NORMAL: u32 = 0x80;
/// What the kernel's interface can carry.
const XATTR_BYTES_MAX: u64 = 64 << 10;
/// A name on Linux, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Directories above one another that are followed.
const DEPTH_MAX: usize = 4096;

/// A file, or a directory.
#[derive(Debug)]
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
    kind: LinuxKind,
    /// A reparse point, a security descriptor of its own.
    attributes: Vec<WholeAttribute>,
    streams: Result<Vec<WholeAttribute>, NtfsError>,
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
        self.records_in(first, bytes, &mut |number, record| {
            visit(number, record.and_then(|record| self.file(&record)));
        });
    }

    /// Is a record the volume's own? Files below such a directory are, too.
    pub fn is_internal(number: u64) -> bool {
        number < FIRST_RECORD && number != ROOT_RECORD
    }

    /// Is a directory one of the volume's own, or below one? Looked for upwards, so for few only.
    pub fn is_below_internal(&self, directory: MftReference) -> bool {
        let mut bytes = Vec::new();
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if Self::is_internal(at.number) || at.number == ROOT_RECORD {
                return at.number != ROOT_RECORD;
            }
            let record = self.read_record(at.number, &mut bytes).ok();
            let record = record.filter(|record| record.is_in_use() && record.reference() == at);
            let file = record.and_then(|record| self.file(&record).ok());
            match file.and_then(|file| file.names.first().map(|name| name.parent)) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }

    /// The file of a first record.
    pub fn file(&self, record: &MftRecord<'_>) -> Result<NtfsFile, NtfsError> {
        let number = record.number();
        let fault = NtfsError::record(number);
        let mut attributes = self.attributes_of(record, |kind| {
            [
                STANDARD_INFORMATION,
                FILE_NAME,
                REPARSE_POINT,
                SECURITY_DESCRIPTOR,
                EXTENDED_ATTRIBUTES,
            ]
            .contains(&kind)
        })?;
        let streams = self.attributes_of(record, |kind| kind == DATA);
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
        let is_dots = |name: &NtfsName| matches!(&name.name[..], b"." | b"..");
        if number != ROOT_RECORD && names.iter().any(is_dots) {
            return Err(fault(NtfsFault::Value(FILE_NAME)));
        }
        let facts = facts.ok_or_else(|| fault(NtfsFault::Value(STANDARD_INFORMATION)))?;
        let kind = self.linux_kind(record, &facts, &attributes, &streams)?;
        let is_link = matches!(kind, LinuxKind::Link(_));
        attributes.retain(|found| match found.kind {
            SECURITY_DESCRIPTOR => true,
            // Who makes a pipe or a device makes this of it as well.
            REPARSE_POINT => matches!(kind, LinuxKind::Plain | LinuxKind::ByDriver),
            _ => false,
        });
        Ok(NtfsFile {
            reference: record.reference(),
            is_directory: record.is_directory() && !is_link,
            names,
            created: timestamp(facts.times[0]),
            modified: timestamp(facts.times[1]),
            changed: timestamp(facts.times[2]),
            accessed: timestamp(facts.times[3]),
            flags: facts.flags,
            security: facts.security,
            kind,
            attributes,
            streams,
        })
    }

    fn linux_kind(
        &self,
        record: &MftRecord<'_>,
        facts: &Facts,
        attributes: &[WholeAttribute],
        streams: &Result<Vec<WholeAttribute>, NtfsError>,
    ) -> Result<LinuxKind, NtfsError> {
        let number = record.number();
        let one = |kind| attributes.iter().find(|found| found.kind == kind);
        if let Some(point) = one(REPARSE_POINT) {
            let point = self.value(number, &point.stream, REPARSE_BYTES_MAX)?;
            let extended = match one(EXTENDED_ATTRIBUTES) {
                Some(found) => self.value(number, &found.stream, REPARSE_BYTES_MAX)?,
                None => Vec::new(),
            };
            return Ok(of_reparse_point(&point, facts.flags, &extended));
        }
        let streams = streams.as_ref().map_or(&[][..], Vec::as_slice);
        let Some(data) = streams.iter().find(|found| found.name.is_empty()) else {
            return Ok(LinuxKind::Plain);
        };
        let size = data.stream.size();
        if record.is_directory() || !may_be_interix(facts.flags, size) {
            return Ok(LinuxKind::Plain);
        }
        let mut content = vec![0; size.min(INTERIX_BYTES_MAX) as usize];
        Ok(
            match self.read_content(number, &data.stream, 0, &mut content) {
                Ok(()) => of_interix(facts.flags, &content),
                // Who reads it will say so.
                Err(_) => LinuxKind::Plain,
            },
        )
    }

    /// Extended attributes of a file, sorted by name. A stream that is too long for one is an error
    /// beside the others. Without `security` nothing is known of descriptors that files share.
    pub fn xattrs(
        &self,
        file: &NtfsFile,
        security: Option<&SecurityDescriptors>,
    ) -> Result<Vec<NtfsXattr>, NtfsError> {
        let number = file.reference.number;
        let mut found = vec![NtfsXattr {
            name: b"system.ntfs_attrib".to_vec(),
            value: Ok(file.shown_flags().to_le_bytes().into()),
        }];
        let shared = file.security.filter(|security| *security != 0);
        if let Some(shared) = shared {
            let missing =
                |record| NtfsError::record(record)(NtfsFault::Missing(SECURITY_DESCRIPTOR));
            let value = match security {
                Some(security) => self.security_descriptor(security, shared)?,
                None => return Err(missing(SECURE_RECORD)),
            };
            found.push(NtfsXattr {
                name: b"system.ntfs_acl".to_vec(),
                value: value.ok_or_else(|| missing(number)),
            });
        }
        for attribute in file.attributes.iter().chain(file.all_streams()) {
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
            let fault = NtfsFault::Unattributable(stream.size());
            return Err(NtfsError::record(number)(fault));
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
        let all = self.all_streams().iter();
        all.map(|found| (found.name.as_slice(), &found.stream))
    }

    fn all_streams(&self) -> &[WholeAttribute] {
        self.streams.as_ref().map_or(&[], Vec::as_slice)
    }

    /// Why its streams are not known, if they are not.
    pub fn damage(&self) -> Option<&NtfsError> {
        self.streams.as_ref().err()
    }

    /// Names that a file can have on Linux; the others are longer.
    pub fn linux_names(&self) -> impl Iterator<Item = &NtfsName> {
        let names = self.names.iter();
        names.filter(|name| name.name.len() <= NAME_BYTES_MAX)
    }

    /// Target of a symbolic link or a junction.
    pub fn target(&self) -> Option<&[u8]> {
        match &self.kind {
            LinuxKind::Link(target) => Some(target),
            _ => None,
        }
    }

    /// As the other readers have it. Of one with [`NtfsFile::damage`] the size is not known.
    pub fn inode(&self) -> Inode {
        let regular = 0o100_000 | ANYTHING;
        let mut rdev = (0, 0);
        let (mode, size, layout) = match (&self.kind, self.is_directory, self.data()) {
            (LinuxKind::Link(target), ..) => {
                let layout = Layout::Inline(target.clone());
                (0o120_000 | ANYTHING, target.len() as u64, layout)
            }
            (LinuxKind::Special(kind, device), false, _) => {
                rdev = *device;
                (*kind | ANYTHING, 0, Layout::None)
            }
            (_, true, _) => (0o040_000 | ANYTHING, 0, Layout::None),
            (_, false, None) => (regular, 0, Layout::None),
            (LinuxKind::ByDriver, false, Some(stream)) if stream.size() > 0 => {
                let why = "a driver makes its content (compact, deduplicated or in a cloud)";
                (regular, stream.size(), Layout::Windows(why))
            }
            (_, false, Some(stream)) => (regular, stream.size(), stream.layout()),
        };
        Inode {
            number: self.reference.number,
            generation: self.reference.sequence.into(),
            mode,
            uid: 0,
            gid: 0,
            nlink: self.linux_names().count() as u32,
            size,
            atime: self.accessed,
            mtime: self.modified,
            ctime: self.changed,
            crtime: Some(self.created),
            flags: 0,
            project: 0,
            rdev,
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
