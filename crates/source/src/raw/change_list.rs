//! Lists of changes that another program made: what changed between two moments of a device.
//!
//! Such a list saves reading and decides what is in a snapshot, so nothing in it is guessed: what
//! is not known, cut short or contradicts itself is refused, and no list is better than half of
//! one. Pure, with bounds; a fuzz target has it.

use super::changes::{ChangeTracker, Changes};
use bale_format::ObjectId;
use bale_format::extent::IMAGE_BLOCK_BYTES;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

/// Bytes of a list at most: it is in memory while it is read.
pub const CHANGE_LIST_BYTES_MAX: u64 = 64 << 20;

/// Ranges of blocks that are kept, apart from each other: of a device of 2 TiB every second block.
pub const CHANGE_RANGES_MAX: usize = 1 << 20;

const SECTOR_BYTES: u64 = 512;

/// Blocks of dm-era are whole multiples of this.
const ERA_BLOCK_BYTES_MIN: u64 = 8 * SECTOR_BYTES;

/// Who made a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeListFormat {
    /// `thin_delta` of two snapshots of a thin pool (LVM).
    ThinDelta,
    /// `era_invalidate` of a dm-era device; its blocks are of a size that the list does not say.
    EraInvalidate,
    /// `{"extents": [{"offset": 0, "length": 4096}]}`, in bytes.
    Json,
}

/// Why a list is not believed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeListError {
    #[error("read it: {0}")]
    Read(#[source] io::Error),
    #[error("it has more than {CHANGE_LIST_BYTES_MAX} bytes")]
    TooLong,
    #[error("it is no XML: {0}")]
    Xml(String),
    #[error("it is cut short")]
    CutShort,
    #[error("{0} is not known in such a list")]
    Unknown(String),
    #[error("{element} has no number {attribute}")]
    Attribute {
        element: String,
        attribute: &'static str,
    },
    #[error("it is no list of extents: {0}")]
    Json(String),
    #[error("it names {0}, which no device has")]
    Beyond(String),
    #[error("it does not say how large its blocks are: --changes-block-size says it")]
    NoBlockSize,
    #[error(
        "no dm-era device has blocks of {0} bytes (a multiple of {ERA_BLOCK_BYTES_MIN}; its table \
         counts sectors of {SECTOR_BYTES})"
    )]
    BlockSize(u64),
    #[error("it says itself how large its blocks are")]
    BlockSizeTwice,
    #[error("more than {CHANGE_RANGES_MAX} stretches changed: without a list all is read")]
    TooMany,
}

/// Reads a list from a file.
pub fn read_change_file(
    path: &Path,
    format: ChangeListFormat,
    block_bytes: Option<u64>,
) -> Result<Vec<Range<u64>>, ChangeListError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(ChangeListError::Read)?;
    let mut file = file.take(CHANGE_LIST_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)
        .map_err(ChangeListError::Read)?;
    read_change_list(&bytes, format, block_bytes)
}

/// The blocks of an image that a list says may have changed: sorted and apart.
pub fn read_change_list(
    bytes: &[u8],
    format: ChangeListFormat,
    block_bytes: Option<u64>,
) -> Result<Vec<Range<u64>>, ChangeListError> {
    if bytes.len() as u64 > CHANGE_LIST_BYTES_MAX {
        return Err(ChangeListError::TooLong);
    }
    let mut ranges = ChangedBlocks::default();
    match (format, block_bytes) {
        (ChangeListFormat::ThinDelta, None) => read_thin_delta(bytes, &mut ranges)?,
        (ChangeListFormat::Json, None) => read_json(bytes, &mut ranges)?,
        (ChangeListFormat::EraInvalidate, Some(block_bytes)) => {
            if block_bytes == 0 || !block_bytes.is_multiple_of(ERA_BLOCK_BYTES_MIN) {
                return Err(ChangeListError::BlockSize(block_bytes));
            }
            read_era(bytes, block_bytes, &mut ranges)?;
        }
        (ChangeListFormat::EraInvalidate, None) => return Err(ChangeListError::NoBlockSize),
        (_, Some(_)) => return Err(ChangeListError::BlockSizeTwice),
    }
    ranges.finish()
}

/// Ranges on their way to be sorted, rounded to the blocks of an image.
#[derive(Default)]
struct ChangedBlocks(Vec<Range<u64>>);

impl ChangedBlocks {
    /// So many units from one on.
    fn push(&mut self, first: u64, count: u64, unit: u64) -> Result<(), ChangeListError> {
        let beyond = || ChangeListError::Beyond(format!("{count} from {first} on"));
        let end = first
            .checked_add(count)
            .and_then(|end| end.checked_mul(unit));
        let end = end
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(beyond)?;
        let start = first * unit;
        if count == 0 {
            return Ok(());
        }
        let block = start - start % IMAGE_BLOCK_BYTES;
        let end = end.next_multiple_of(IMAGE_BLOCK_BYTES);
        match self.0.last_mut() {
            Some(last) if last.start <= block && block <= last.end => last.end = last.end.max(end),
            _ => self.0.push(block..end),
        }
        if self.0.len() > 2 * CHANGE_RANGES_MAX {
            self.merge();
            if self.0.len() > CHANGE_RANGES_MAX {
                return Err(ChangeListError::TooMany);
            }
        }
        Ok(())
    }

    fn merge(&mut self) {
        self.0.sort_unstable_by_key(|range| range.start);
        self.0.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
    }

    fn finish(mut self) -> Result<Vec<Range<u64>>, ChangeListError> {
        self.merge();
        match self.0.len() > CHANGE_RANGES_MAX {
            true => Err(ChangeListError::TooMany),
            false => Ok(self.0),
        }
    }
}

/// Calls `each` with every element that begins and the names of those that it is in, and makes sure
/// that there is one root, `root`, and that it ends.
fn read_xml(
    bytes: &[u8],
    root: &str,
    mut each: impl FnMut(&BytesStart, &[String]) -> Result<(), ChangeListError>,
) -> Result<(), ChangeListError> {
    /// Elements in elements: such a list has four.
    const DEPTH_MAX: usize = 8;
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|error| ChangeListError::Xml(error.to_string()))?;
    let mut reader = Reader::from_str(text);
    let mut open: Vec<String> = Vec::new();
    let mut is_over = false;
    loop {
        let event = reader.read_event();
        match event.map_err(|error| ChangeListError::Xml(error.to_string()))? {
            Event::Start(element) | Event::Empty(element) if is_over || open.len() == DEPTH_MAX => {
                return Err(unknown(&element));
            }
            Event::Start(element) => {
                begin(&element, root, &open, &mut each)?;
                open.push(element.name().as_ref().to_owned());
            }
            Event::Empty(element) => {
                begin(&element, root, &open, &mut each)?;
                is_over = open.is_empty();
            }
            Event::End(_) => {
                open.pop();
                is_over = open.is_empty();
            }
            Event::Eof if is_over => return Ok(()),
            Event::Eof => return Err(ChangeListError::CutShort),
            Event::Text(text) if text.as_ref().trim().is_empty() => {}
            Event::Decl(_) | Event::Comment(_) => {}
            _ => return Err(ChangeListError::Unknown("text".to_owned())),
        }
    }
}

fn begin(
    element: &BytesStart,
    root: &str,
    open: &[String],
    each: &mut impl FnMut(&BytesStart, &[String]) -> Result<(), ChangeListError>,
) -> Result<(), ChangeListError> {
    let is_root = element.name().as_ref() == root;
    match is_root == open.is_empty() {
        true => each(element, open),
        false => Err(unknown(element)),
    }
}

fn unknown(element: &BytesStart) -> ChangeListError {
    ChangeListError::Unknown(format!("<{}>", name_of(element)))
}

/// Cut after some characters.
fn name_of(element: &BytesStart) -> String {
    let name = element.name();
    let name = name.as_ref().chars().take(40);
    name.flat_map(char::escape_debug).collect()
}

/// A number that must be there.
fn number(element: &BytesStart, attribute: &'static str) -> Result<u64, ChangeListError> {
    let missing = || ChangeListError::Attribute {
        element: format!("<{}>", name_of(element)),
        attribute,
    };
    let found = element.try_get_attribute(attribute).ok().flatten();
    let found = found.ok_or_else(missing)?;
    let text = &found.value;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(missing)
}

/// What differs, and what only one of both has; in its long form each of these holds ranges.
fn read_thin_delta(bytes: &[u8], ranges: &mut ChangedBlocks) -> Result<(), ChangeListError> {
    let mut unit = 0;
    let mut diffs = 0;
    read_xml(bytes, "superblock", |element, open| {
        let within = open.last().map(String::as_str);
        let name = element.name();
        match (name.as_ref(), within) {
            ("superblock", None) => {
                let sectors = number(element, "data_block_size")?;
                let bytes = sectors.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes > 0);
                unit = bytes.ok_or_else(|| ChangeListError::Beyond("such blocks".to_owned()))?;
            }
            ("diff", Some("superblock")) => diffs += 1,
            ("same", Some("diff")) | ("range", Some("same")) => {}
            ("different" | "left_only" | "right_only", Some("diff")) => {
                // In its long form it has none, even no damaged one.
                let is_long = element.attributes().next().is_none();
                if !is_long {
                    ranges.push(number(element, "begin")?, number(element, "length")?, unit)?;
                }
            }
            ("range", Some("different" | "left_only" | "right_only")) => {
                ranges.push(number(element, "begin")?, number(element, "length")?, unit)?;
            }
            _ => return Err(unknown(element)),
        }
        Ok(())
    })?;
    match diffs {
        1 => Ok(()),
        _ => Err(ChangeListError::Unknown(format!("a list of {diffs} diffs"))),
    }
}

/// The end of a range is taken for one of its blocks, whoever means it otherwise.
fn read_era(
    bytes: &[u8],
    block_bytes: u64,
    ranges: &mut ChangedBlocks,
) -> Result<(), ChangeListError> {
    read_xml(bytes, "blocks", |element, open| {
        let name = element.name();
        match (name.as_ref(), open.len()) {
            ("blocks", 0) => Ok(()),
            ("block", 1) => ranges.push(number(element, "block")?, 1, block_bytes),
            ("range", 1) => {
                let (first, end) = (number(element, "begin")?, number(element, "end")?);
                let count = end
                    .checked_sub(first)
                    .and_then(|count| count.checked_add(1));
                let beyond = || ChangeListError::Beyond(format!("{first} to {end}"));
                ranges.push(first, count.ok_or_else(beyond)?, block_bytes)
            }
            _ => Err(unknown(element)),
        }
    })
}

#[derive(Deserialize)]
struct JsonList {
    extents: ChangedBlocks,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonExtent {
    offset: u64,
    length: u64,
}

fn read_json(bytes: &[u8], ranges: &mut ChangedBlocks) -> Result<(), ChangeListError> {
    let list: JsonList =
        serde_json::from_slice(bytes).map_err(|error| ChangeListError::Json(error.to_string()))?;
    *ranges = list.extents;
    Ok(())
}

/// Merged on their way: a list of millions of extents takes no more memory than its text and the
/// ranges that are kept.
impl<'de> Deserialize<'de> for ChangedBlocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ChangedBlocks, D::Error> {
        struct Extents;
        impl<'de> Visitor<'de> for Extents {
            type Value = ChangedBlocks;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ChangedBlocks, A::Error> {
                let mut ranges = ChangedBlocks::default();
                while let Some(JsonExtent { offset, length }) = list.next_element()? {
                    ranges.push(offset, length, 1).map_err(A::Error::custom)?;
                }
                Ok(ranges)
            }
        }
        deserializer.deserialize_seq(Extents)
    }
}

/// A list of what changed since a snapshot that somebody named.
#[derive(Clone, Debug)]
pub struct ImportedChanges {
    pub since: ObjectId,
    /// Sorted and apart.
    pub ranges: Vec<Range<u64>>,
}

impl ChangeTracker for ImportedChanges {
    fn name(&self) -> &'static str {
        "import"
    }

    fn changed_since(&mut self, _basis: Option<&str>) -> Changes {
        Changes::Ranges(self.ranges.clone())
    }

    fn next_basis(&self) -> Option<String> {
        None
    }

    fn since_snapshot(&self) -> Option<ObjectId> {
        Some(self.since)
    }
}

#[cfg(test)]
mod tests;
