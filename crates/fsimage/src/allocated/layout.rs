//! How a disk is divided: which stretch of it belongs to which part, and where in that part it is.
//!
//! Every byte of the disk belongs to one stretch. Parts that overlap lose what they claim: it
//! belongs to what is around them, and is read whole.

use super::content::{PartUse, look_into};
use super::file_systems::DiskFileSystem;
use super::part::{DiskPart, PartContent, WholeReason};
use crate::ByteSource;
use crate::lvm2::{LinearSegment, LogicalVolume, PhysicalVolume};
use crate::partitions::{PartitionFault, PartitionTable};
use crate::recognize::{Recognized, recognize};
use crate::section::Section;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The parts of a disk.
pub(super) struct DiskLayout {
    pub(super) parts: Vec<DiskPart>,
    pub(super) file_systems: Vec<DiskFileSystem>,
    pub(super) uses: Vec<PartUse>,
    /// In the order of the disk, without gaps.
    pub(super) stretches: Vec<Stretch>,
}

/// A run of the disk that belongs to one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) disk: Range<u64>,
    pub(super) part: usize,
    /// Where in the part it begins.
    pub(super) at: u64,
}

/// Which parts claim what; later ones are within earlier ones.
struct Claims {
    source: Arc<dyn ByteSource>,
    parts: Vec<DiskPart>,
    uses: Vec<PartUse>,
    /// Of each part: where it is, in its order.
    segments: Vec<Vec<LinearSegment>>,
    /// Of each part: the one around it.
    around: Vec<usize>,
}

const DISK: usize = 0;

impl DiskLayout {
    /// Reads what there is. What cannot be read is read whole, and says so.
    pub(super) fn read(source: Arc<dyn ByteSource>, sector_bytes: Option<u32>) -> DiskLayout {
        let bytes = source.len_bytes();
        let whole = LinearSegment {
            offset: 0,
            bytes,
            disk_offset: 0,
        };
        let mut claims = Claims {
            source,
            parts: Vec::new(),
            uses: Vec::new(),
            segments: Vec::new(),
            around: Vec::new(),
        };
        let disk = PartContent::Content(Recognized::Unknown);
        claims.push(DISK, DiskPart::new("disk".to_owned(), disk), vec![whole]);
        claims.divide_disk(sector_bytes);
        claims.settle()
    }
}

impl Claims {
    fn push(&mut self, around: usize, part: DiskPart, segments: Vec<LinearSegment>) -> usize {
        self.parts.push(part);
        self.uses.push(None);
        self.segments.push(segments);
        self.around.push(around);
        self.parts.len() - 1
    }

    fn divide_disk(&mut self, sector_bytes: Option<u32>) {
        let bytes = self.source.len_bytes();
        let table = match PartitionTable::read(self.source.as_ref(), sector_bytes) {
            Ok(table) => table,
            Err(error) => return self.read_whole(DISK, WholeReason::Table(error)),
        };
        let table = table.filter(|table| !table.partitions.is_empty() || !table.faults.is_empty());
        let Some(table) = table else {
            return self.look(DISK, true);
        };
        self.parts[DISK].content = PartContent::Table(table.kind);
        match recognize(self.source.as_ref(), 0, bytes) {
            Err(error) => return self.read_whole(DISK, WholeReason::Read(error)),
            Ok(Recognized::Unknown) => {}
            Ok(_) => return self.read_whole(DISK, WholeReason::TableAndContent),
        }
        if let Some(fault) = table.faults.iter().find(|fault| is_doubtful(fault)) {
            return self.read_whole(DISK, WholeReason::TableFault(fault.clone()));
        }
        self.read_whole(DISK, WholeReason::Around);
        for partition in &table.partitions {
            let place = LinearSegment {
                offset: 0,
                bytes: partition.bytes,
                disk_offset: partition.offset,
            };
            let content = PartContent::Content(Recognized::Unknown);
            let part = DiskPart::new(format!("p{}", partition.number), content);
            let part = self.push(DISK, part, vec![place]);
            match is_cut(&table, partition.number) {
                true => self.cut_off(part, partition.number),
                false => self.look(part, true),
            }
        }
        let is_there = |number| table.partitions.iter().any(|one| one.number == number);
        for number in (table.faults.iter()).filter_map(cut_number) {
            if !is_there(number) {
                let content = PartContent::Content(Recognized::Unknown);
                let part = DiskPart::new(format!("p{number}"), content);
                let part = self.push(DISK, part, Vec::new());
                self.cut_off(part, number);
            }
        }
    }

    fn cut_off(&mut self, part: usize, number: u32) {
        self.read_whole(
            part,
            WholeReason::TableFault(PartitionFault::CutOff(number)),
        );
    }

    fn read_whole(&mut self, part: usize, why: WholeReason) {
        self.parts[part].whole = Some(why);
        self.uses[part] = None;
    }

    fn section(&self, part: usize) -> Arc<dyn ByteSource> {
        let segments = self.segments[part].clone();
        Arc::new(Section::new(self.source.clone(), segments))
    }

    /// Finds out what is in a part, and, unless it is a volume, which volumes are.
    fn look(&mut self, part: usize, may_be_divided: bool) {
        let section = self.section(part);
        let (content, found) = look_into(&section, part != DISK);
        self.parts[part].content = PartContent::Content(content);
        match found {
            Ok(found) => self.uses[part] = Some(found),
            Err(WholeReason::Around) if may_be_divided => {
                self.read_whole(part, WholeReason::Around);
                self.divide_volumes(part, section.as_ref());
            }
            Err(WholeReason::Around) => self.read_whole(part, WholeReason::NotRead(content)),
            Err(why) => self.read_whole(part, why),
        }
    }

    /// `disk` is the physical volume.
    fn divide_volumes(&mut self, around: usize, disk: &dyn ByteSource) {
        let physical = match PhysicalVolume::read(disk, 0, disk.len_bytes()) {
            Ok(physical) => physical,
            Err(error) => return self.read_whole(around, WholeReason::Lvm2(error)),
        };
        // Its place on the disk: it is a partition, or all of the disk.
        let start = self.segments[around][0].disk_offset;
        for volume in physical.volumes {
            let name = self.unused_name(&physical.group, &volume);
            let content = PartContent::Content(Recognized::Unknown);
            let part = DiskPart::new(name, content);
            match volume.segments {
                Ok(segments) if volume.is_visible => {
                    let on_disk = segments.into_iter().map(|segment| LinearSegment {
                        disk_offset: start + segment.disk_offset,
                        ..segment
                    });
                    let part = self.push(around, part, on_disk.collect());
                    self.look(part, false);
                }
                // A part of another volume: its bytes are of no file system by themselves.
                Ok(_) => {}
                Err(why) => {
                    let part = self.push(around, part, Vec::new());
                    self.read_whole(part, WholeReason::Volume(why));
                }
            }
        }
    }

    fn unused_name(&self, group: &str, volume: &LogicalVolume) -> String {
        let is_used = |name: &str| self.parts.iter().any(|part| part.name == name);
        match is_used(&volume.name) {
            true => format!("{group}-{}", volume.name),
            false => volume.name.clone(),
        }
    }

    /// Divides the disk as the parts claim it.
    fn settle(mut self) -> DiskLayout {
        while let Some((one, other)) = self.overlap() {
            for part in [one, other] {
                self.segments[part].clear();
                self.read_whole(part, WholeReason::Overlap);
                self.give_up_within(part);
            }
        }
        let mut stretches = self.claimed();
        // What is around them fills the gaps: a physical volume within itself, else the disk.
        let physical = self.claimed_around();
        let mut filled = Vec::new();
        let mut at = 0;
        let end = self.source.len_bytes();
        stretches.push(Stretch {
            disk: end..end,
            part: DISK,
            at: end,
        });
        for stretch in stretches {
            fill(&mut filled, at..stretch.disk.start, &physical);
            at = stretch.disk.end;
            filled.push(stretch);
        }
        filled.retain(|stretch| !stretch.disk.is_empty());
        for stretch in &filled {
            let bytes = stretch.disk.end - stretch.disk.start;
            self.parts[stretch.part].bytes += bytes;
        }
        DiskLayout {
            file_systems: self.file_systems(&filled),
            parts: self.parts,
            uses: self.uses,
            stretches: filled,
        }
    }

    /// What can be read by itself, in the order of the parts.
    fn file_systems(&self, stretches: &[Stretch]) -> Vec<DiskFileSystem> {
        let mut found: Vec<DiskFileSystem> = Vec::new();
        let mut around: HashMap<usize, Arc<[Range<u64>]>> = HashMap::new();
        for part in (0..self.parts.len()).filter(|part| !self.is_around(*part)) {
            let outer = self.around[part];
            let around = around
                .entry(outer)
                .or_insert_with(|| self.outside(outer, stretches));
            let around = match part {
                DISK => Arc::default(),
                _ => around.clone(),
            };
            let segments = &self.segments[part];
            let one = DiskFileSystem::of(&self.parts[part], &self.source, segments, around);
            // The name of a volume with its group in front may be that of another volume.
            found.extend(one.filter(|one| found.iter().all(|other| other.name != one.name)));
        }
        found
    }

    /// What belongs to a part around others or to the disk, and to none of those others.
    fn outside(&self, part: usize, stretches: &[Stretch]) -> Arc<[Range<u64>]> {
        let belongs = |stretch: &&Stretch| [part, DISK].contains(&stretch.part);
        let outside = stretches.iter().filter(belongs);
        outside.map(|stretch| stretch.disk.clone()).collect()
    }

    /// Is a part one that others are within?
    fn is_around(&self, part: usize) -> bool {
        (self.around.iter().enumerate()).any(|(within, around)| *around == part && within != part)
    }

    /// What parts claim that have none within them, in the order of the disk.
    fn claimed(&self) -> Vec<Stretch> {
        let parts = (0..self.parts.len()).filter(|part| !self.is_around(*part));
        let mut found: Vec<_> = parts
            .flat_map(|part| {
                let segments = self.segments[part].iter();
                segments.map(move |segment| Stretch {
                    disk: segment.disk_offset..segment.disk_offset + segment.bytes,
                    part,
                    at: segment.offset,
                })
            })
            .collect();
        found.sort_by_key(|stretch| (stretch.disk.start, stretch.disk.end, stretch.part));
        found
    }

    /// Where parts are that others are within, the disk last.
    fn claimed_around(&self) -> Vec<(Range<u64>, usize)> {
        let parts = (0..self.parts.len())
            .rev()
            .filter(|part| self.is_around(*part));
        let places = parts.filter_map(|part| {
            let segment = self.segments[part].first()?;
            Some((
                segment.disk_offset..segment.disk_offset + segment.bytes,
                part,
            ))
        });
        let mut places: Vec<_> = places.collect();
        if !places.iter().any(|(_, part)| *part == DISK) {
            places.push((0..self.source.len_bytes(), DISK));
        }
        places
    }

    /// Two parts that claim the same bytes, neither within the other.
    fn overlap(&self) -> Option<(usize, usize)> {
        let mut claims: Vec<(Range<u64>, usize)> = (1..self.parts.len())
            .flat_map(|part| {
                let segments = self.segments[part].iter();
                segments.map(move |segment| {
                    let start = segment.disk_offset;
                    (start..start.saturating_add(segment.bytes), part)
                })
            })
            .collect();
        claims.sort_by_key(|(place, part)| (place.start, std::cmp::Reverse(place.end), *part));
        // Those that are open where the next begins; nesting is two deep.
        let mut open: Vec<(Range<u64>, usize)> = Vec::new();
        for (place, part) in claims {
            open.retain(|(before, _)| before.end > place.start);
            for (before, other) in &open {
                let is_within = self.around[part] == *other && before.end >= place.end;
                if !is_within {
                    return Some((*other, part));
                }
            }
            open.push((place, part));
        }
        None
    }

    fn give_up_within(&mut self, part: usize) {
        for within in 1..self.parts.len() {
            if self.around[within] == part && within != part {
                self.segments[within].clear();
                self.read_whole(within, WholeReason::Overlap);
            }
        }
    }
}

/// A gap, divided by what is around it.
fn fill(filled: &mut Vec<Stretch>, gap: Range<u64>, around: &[(Range<u64>, usize)]) {
    let mut at = gap.start;
    while at < gap.end {
        let inside = around.iter().find(|(place, _)| place.contains(&at));
        let (part, start, end) = match inside {
            Some((place, part)) => (*part, place.start, place.end),
            None => (DISK, 0, gap.end),
        };
        // Another may begin before this one ends.
        let next = around.iter().map(|(place, _)| place.start);
        let next = next.filter(|start| *start > at).min().unwrap_or(gap.end);
        let end = end.min(next).min(gap.end);
        filled.push(Stretch {
            disk: at..end,
            part,
            at: at - start,
        });
        at = end;
    }
}

/// Of a partition that ends behind the end of the disk.
fn cut_number(fault: &PartitionFault) -> Option<u32> {
    match fault {
        PartitionFault::CutOff(number) => Some(*number),
        _ => None,
    }
}

fn is_cut(table: &PartitionTable, number: u32) -> bool {
    (table.faults.iter().filter_map(cut_number)).any(|cut| cut == number)
}

/// Faults with which it is not known that the partitions are those in use.
fn is_doubtful(fault: &PartitionFault) -> bool {
    match fault {
        PartitionFault::Primary(_)
        | PartitionFault::Differ
        | PartitionFault::Hybrid
        | PartitionFault::Outside(_) => true,
        // Of an image that grew, or the disk's last part: what is not in a partition is read.
        PartitionFault::Backup(_)
        | PartitionFault::CutOff(_)
        | PartitionFault::Overlap(..)
        | PartitionFault::Chain(_)
        | PartitionFault::Endless => false,
    }
}
