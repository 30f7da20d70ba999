//! LVM2: which logical volumes are whole on one disk, and where their bytes are.
//!
//! Only linear volumes of one physical volume are given with their places; all others are named
//! with why not, so that they are read with everything else. Label and head of the metadata have
//! checksums, the text has one too; what does not match is an error and nothing is guessed.

mod text;
mod volumes;

use crate::crc32::crc32_from;
use crate::source::ByteSource;
use std::io;

pub use text::{LvmText, LvmTextError, LvmValue};
pub use volumes::{LinearSegment, LogicalVolume, read_volumes};

/// LVM2 begins its checksums here, and does not invert them.
const CHECKSUM_START: u32 = 0xf597_a6cf;

const SECTOR_BYTES: u64 = 512;
const LABEL_SECTORS: u64 = 4;
const LABEL_BYTES: usize = 512;
const LABEL_CHECKED_FROM: usize = 20;
const PV_ID_BYTES: usize = 32;
const AREAS_MAX: usize = 64;
const AREA_HEAD_BYTES: u64 = 512;
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const AREA_VERSION: u32 = 1;
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Of a copy of the text: this one is not to be used.
const IGNORED: u32 = 1;

/// Why the volumes of a disk are not known.
#[derive(Debug, thiserror::Error)]
pub enum LvmError {
    #[error("read {what} of LVM2 at byte {offset}")]
    Read {
        what: &'static str,
        offset: u64,
        source: io::Error,
    },
    #[error("there is no label of LVM2")]
    NoLabel,
    #[error("the checksum of the {0} of LVM2 is wrong")]
    Checksum(&'static str),
    #[error("the {0} of LVM2 leads out of the disk, or is longer than can be")]
    Outside(&'static str),
    #[error("this disk holds no metadata of LVM2 itself")]
    NoMetadata,
    #[error("metadata of LVM2")]
    Text(#[source] LvmTextError),
    #[error("metadata of LVM2 do not name this disk")]
    NotNamed,
    #[error("metadata of LVM2 say {0}, which cannot be")]
    Value(&'static str),
}

/// A physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// As the metadata write it, with dashes.
    pub id: String,
    pub group: String,
    pub volumes: Vec<LogicalVolume>,
}

impl PhysicalVolume {
    /// Reads the physical volume that is in a stretch of a source.
    pub fn read(
        source: &dyn ByteSource,
        offset: u64,
        bytes: u64,
    ) -> Result<PhysicalVolume, LvmError> {
        let disk = Disk {
            source,
            offset,
            bytes,
        };
        let label = disk.label()?;
        let text = disk.newest_text(&label)?;
        let text = LvmText::parse(&text).map_err(LvmError::Text)?;
        let (group, volumes) = read_volumes(&text, &label.id, bytes)?;
        Ok(PhysicalVolume {
            id: label.id,
            group,
            volumes,
        })
    }
}

struct Disk<'a> {
    source: &'a dyn ByteSource,
    offset: u64,
    bytes: u64,
}

struct Label {
    id: String,
    /// Offset and length of each area with metadata.
    areas: Vec<(u64, u64)>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk::<4>()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk::<8>()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

impl Disk<'_> {
    fn read(&self, what: &'static str, offset: u64, buffer: &mut [u8]) -> Result<(), LvmError> {
        let end = offset.checked_add(buffer.len() as u64);
        let is_inside = end.is_some_and(|end| end <= self.bytes);
        let at = self.offset.checked_add(offset).filter(|_| is_inside);
        let at = at.ok_or(LvmError::Outside(what))?;
        let read = self.source.read_exact_at(at, buffer);
        read.map_err(|source| LvmError::Read {
            what,
            offset: at,
            source,
        })
    }

    /// In one of the first sectors.
    fn label(&self) -> Result<Label, LvmError> {
        for sector in 0..LABEL_SECTORS {
            let mut bytes = [0; LABEL_BYTES];
            self.read("label", sector * SECTOR_BYTES, &mut bytes)?;
            if bytes.starts_with(b"LABELONE") && bytes[24..].starts_with(b"LVM2 001") {
                return decode_label(&bytes, sector);
            }
        }
        Err(LvmError::NoLabel)
    }

    /// Of several copies the one that was written last: its number is the highest.
    fn newest_text(&self, label: &Label) -> Result<Vec<u8>, LvmError> {
        let mut newest: Option<(u64, Vec<u8>)> = None;
        let mut trouble = None;
        for (offset, bytes) in &label.areas {
            match self.text(*offset, *bytes) {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let number = LvmText::parse(&text).ok().and_then(|text| text.number());
                    let number = number.unwrap_or(0);
                    if newest.as_ref().is_none_or(|(highest, _)| number > *highest) {
                        newest = Some((number, text));
                    }
                }
                Err(error) => trouble = Some(error),
            }
        }
        match (newest, trouble) {
            // A copy that cannot be read may be the newer one.
            (_, Some(error)) => Err(error),
            (Some((_, text)), None) => Ok(text),
            (None, None) => Err(LvmError::NoMetadata),
        }
    }

    /// The text of one area, which goes on at its front when it comes to its end.
    fn text(&self, area: u64, area_bytes: u64) -> Result<Option<Vec<u8>>, LvmError> {
        let mut head = [0; AREA_HEAD_BYTES as usize];
        self.read("metadata area", area, &mut head)?;
        let Some((offset, bytes, checksum)) = decode_area(&head, area, area_bytes)? else {
            return Ok(None);
        };
        let outside = LvmError::Outside("metadata");
        let room = area_bytes - AREA_HEAD_BYTES;
        let is_good = (AREA_HEAD_BYTES..area_bytes).contains(&offset)
            && bytes <= room
            && bytes <= TEXT_BYTES_MAX;
        if !is_good {
            return Err(outside);
        }
        let first = bytes.min(area_bytes - offset);
        let mut text = vec![0; bytes as usize];
        let (front, back) = text.split_at_mut(first as usize);
        self.read("metadata", area.saturating_add(offset), front)?;
        self.read("metadata", area.saturating_add(AREA_HEAD_BYTES), back)?;
        match crc32_from(CHECKSUM_START, &text) == checksum {
            true => Ok(Some(text)),
            false => Err(LvmError::Checksum("metadata")),
        }
    }
}

fn decode_label(bytes: &[u8; LABEL_BYTES], sector: u64) -> Result<Label, LvmError> {
    let outside = || LvmError::Outside("label");
    let checked = crc32_from(CHECKSUM_START, &bytes[LABEL_CHECKED_FROM..]);
    if u32_at(bytes, 16) != Some(checked) {
        return Err(LvmError::Checksum("label"));
    }
    if u64_at(bytes, 8) != Some(sector) {
        return Err(LvmError::Value("where the label is"));
    }
    let head = u32_at(bytes, 20).ok_or_else(outside)? as usize;
    let id = bytes.get(head..).and_then(|rest| rest.get(..PV_ID_BYTES));
    let id = dashed(id.ok_or_else(outside)?).ok_or(LvmError::Value("the id of this disk"))?;
    // The length of the disk, then areas of data and areas of metadata, each list with an end.
    let mut at = head + PV_ID_BYTES + 8;
    let mut lists = [Vec::new(), Vec::new()];
    for list in &mut lists {
        loop {
            let place = (
                u64_at(bytes, at).ok_or_else(outside)?,
                u64_at(bytes, at + 8).ok_or_else(outside)?,
            );
            at += 16;
            if place.0 == 0 {
                break;
            }
            if list.len() == AREAS_MAX {
                return Err(outside());
            }
            list.push(place);
        }
    }
    let [_, areas] = lists;
    Ok(Label { id, areas })
}

/// Offset in the area, length and checksum of the text; `None` if there is none.
fn decode_area(
    head: &[u8; AREA_HEAD_BYTES as usize],
    area: u64,
    area_bytes: u64,
) -> Result<Option<(u64, u64, u32)>, LvmError> {
    if u32_at(head, 0) != Some(crc32_from(CHECKSUM_START, &head[4..])) {
        return Err(LvmError::Checksum("metadata area"));
    }
    let is_good = head[4..].starts_with(AREA_MAGIC)
        && u32_at(head, 20) == Some(AREA_VERSION)
        && u64_at(head, 24) == Some(area)
        && u64_at(head, 32) == Some(area_bytes)
        && area_bytes > AREA_HEAD_BYTES;
    if !is_good {
        return Err(LvmError::Value("where its metadata area is"));
    }
    let place = (
        u64_at(head, 40),
        u64_at(head, 48),
        u32_at(head, 56),
        u32_at(head, 60),
    );
    Ok(match place {
        (Some(offset), Some(bytes), Some(checksum), Some(flags)) => {
            let is_used = offset != 0 && bytes != 0 && flags & IGNORED == 0;
            is_used.then_some((offset, bytes, checksum))
        }
        _ => None,
    })
}

/// 32 letters in groups of 6, 4, 4, 4, 4, 4 and 6.
fn dashed(id: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut rest = id;
    for len in [6, 4, 4, 4, 4, 4, 6] {
        let (group, after) = rest.split_at_checked(len)?;
        rest = after;
        if !text.is_empty() {
            text.push('-');
        }
        for byte in group {
            let is_letter = byte.is_ascii_alphanumeric() || b"!#".contains(byte);
            text.push(is_letter.then_some(char::from(*byte))?);
        }
    }
    Some(text)
}
