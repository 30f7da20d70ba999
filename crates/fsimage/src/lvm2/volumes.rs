//! Logical volumes, as the metadata describe them, and where on this disk they are.

use super::{LvmError, LvmText, LvmValue};

const SECTOR_BYTES: u64 = 512;
/// Volumes of a group, and segments of a volume, at most.
const VOLUMES_MAX: usize = 4096;
const SEGMENTS_MAX: u64 = 1 << 16;

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    pub name: String,
    /// Not a part of another volume, such as the data of a thin pool, or a copy in a mirror.
    pub is_visible: bool,
    /// In the order of its own bytes, without gaps; or why they are not known: it is striped,
    /// mirrored, thin, a snapshot, or has a part on another disk.
    pub segments: Result<Vec<LinearSegment>, &'static str>,
}

/// Bytes of a logical volume that lie side by side on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearSegment {
    /// In the volume.
    pub offset: u64,
    pub bytes: u64,
    /// In the physical volume.
    pub disk_offset: u64,
}

/// Where a disk has its extents.
struct Extents<'a> {
    /// What the metadata call this disk.
    disk: &'a str,
    bytes: u64,
    start: u64,
    count: u64,
    disk_bytes: u64,
}

/// The name of the group, and its volumes. `id` is that of this disk.
pub fn read_volumes(
    text: &LvmText,
    id: &str,
    disk_bytes: u64,
) -> Result<(String, Vec<LogicalVolume>), LvmError> {
    let is_group = |section: &LvmText| section.section("physical_volumes").is_some();
    let mut groups = text.sections().filter(|(_, section)| is_group(section));
    let (name, group) = match (groups.next(), groups.next()) {
        (Some(group), None) => group,
        _ => return Err(LvmError::Value("which group it is")),
    };
    let disks = group.section("physical_volumes");
    let mut disks = disks.into_iter().flat_map(|disks| disks.sections());
    let disk = disks.find(|(_, disk)| disk.text_of("id") == Some(id));
    let (disk, facts) = disk.ok_or(LvmError::NotNamed)?;
    let sectors = |section: &LvmText, name: &str, why: &'static str| {
        let bytes = section
            .number_of(name)
            .and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        bytes.ok_or(LvmError::Value(why))
    };
    let extents = Extents {
        disk,
        bytes: sectors(group, "extent_size", "how long an extent is")?,
        start: sectors(facts, "pe_start", "where extents begin")?,
        count: facts
            .number_of("pe_count")
            .ok_or(LvmError::Value("how many extents there are"))?,
        disk_bytes,
    };
    if extents.bytes == 0 {
        return Err(LvmError::Value("how long an extent is"));
    }
    let volumes = group.section("logical_volumes");
    let volumes = volumes.into_iter().flat_map(|volumes| volumes.sections());
    let volumes: Vec<_> = volumes
        .take(VOLUMES_MAX + 1)
        .map(|(name, volume)| LogicalVolume {
            name: name.to_owned(),
            is_visible: volume.has_word("status", "VISIBLE"),
            segments: extents.segments(volume),
        })
        .collect();
    match volumes.len() > VOLUMES_MAX {
        true => Err(LvmError::Value("how many volumes there are")),
        false => Ok((name.to_owned(), volumes)),
    }
}

impl Extents<'_> {
    fn segments(&self, volume: &LvmText) -> Result<Vec<LinearSegment>, &'static str> {
        const DAMAGED: &str = "its segments contradict themselves";
        let count = volume.number_of("segment_count").ok_or(DAMAGED)?;
        if count == 0 || count > SEGMENTS_MAX {
            return Err(DAMAGED);
        }
        let mut segments = Vec::new();
        let mut next = 0;
        for number in 1..=count {
            let segment = volume.section(&format!("segment{number}")).ok_or(DAMAGED)?;
            let first = segment.number_of("start_extent").ok_or(DAMAGED)?;
            let extents = segment.number_of("extent_count").ok_or(DAMAGED)?;
            if first != next || extents == 0 {
                return Err(DAMAGED);
            }
            next = first.checked_add(extents).ok_or(DAMAGED)?;
            let start = self.start_of(segment)?;
            let end = start.checked_add(extents);
            if end.is_none_or(|end| end > self.count) {
                return Err(DAMAGED);
            }
            let bytes = |extents: u64| extents.checked_mul(self.bytes).ok_or(DAMAGED);
            let disk_offset = self.start.checked_add(bytes(start)?).ok_or(DAMAGED)?;
            let len = bytes(extents)?;
            let end = disk_offset.checked_add(len);
            if end.is_none_or(|end| end > self.disk_bytes) {
                return Err("it leads out of its disk");
            }
            segments.push(LinearSegment {
                offset: bytes(first)?,
                bytes: len,
                disk_offset,
            });
        }
        Ok(segments)
    }

    /// The first extent on this disk of a linear segment.
    fn start_of(&self, segment: &LvmText) -> Result<u64, &'static str> {
        if segment.text_of("type") != Some("striped") {
            return Err("it is not linear");
        }
        if segment.number_of("stripe_count") != Some(1) {
            return Err("it is striped");
        }
        match segment.value("stripes") {
            Some(LvmValue::List(stripes)) => match stripes.as_slice() {
                [LvmValue::Text(disk), LvmValue::Number(start)] => match disk == self.disk {
                    true => Ok(*start),
                    false => Err("a part of it is on another disk"),
                },
                _ => Err("its stripes are none"),
            },
            _ => Err("its stripes are none"),
        }
    }
}
