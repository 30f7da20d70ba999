//! Comparing every object with its name, and `config` with its copy: finds every flipped bit, and
//! needs no key.

use super::damage::{CheckFinding, MendedBy};
use super::foreign::{self, Foreign};
use super::unread::UnreadObjects;
use super::vanished::is_gone;
use crate::two_stores::{Found, compare};
use bale_format::UnverifiedConfig;
use bale_format::error::FormatError;
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result, is_inconclusive, is_missing};
use bale_repository::repository::{CONFIG_BYTES_MAX, fault_text};
use bale_repository::store::{Area, ObjectInfo, ObjectName, Store};

/// What is wrong with bytes that are not those of a name.
pub(crate) const OTHER_BYTES: &str = "its content does not match its hash";

/// Bytes read at a time.
const READ_BYTES: usize = 4 << 20;

/// What a scrub found.
#[derive(Debug, Default)]
pub struct ScrubReport {
    /// Objects read.
    pub objects: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects that must be brought back from a cold class before they are read: not read.
    pub archived: u64,
    /// Objects that could not be read for another reason: nothing is known of them.
    pub unread: UnreadObjects,
    /// Objects that are not what their name says, or stand on a bad sector.
    pub damage: Vec<CheckFinding>,
    /// Segments, which have no hash in their names: who has a key checks the packs in them.
    pub segments_not_read: u64,
    /// What stands among the objects and is none.
    pub foreign: Foreign,
}

/// Reads every object whose name is a hash and compares, and the two that have the same bytes. Of a
/// repository with two stores each is read, and what is damaged is named with its store.
pub fn scrub(store: &dyn Store, monitor: &dyn Monitor) -> Result<ScrubReport> {
    let mut report = ScrubReport {
        foreign: foreign::name(store)?,
        ..ScrubReport::default()
    };
    let Some([hot, cold]) = store.tiers() else {
        scrub_one(store, None, &mut report, monitor)?;
        return Ok(report);
    };
    let of_hot = Other {
        store: cold,
        mended_by: MendedBy::RepairHot,
    };
    let of_cold = Other {
        store: hot,
        mended_by: MendedBy::RepairCold { read_data: true },
    };
    for (store, which, other) in [(hot, "hot", of_hot), (cold, "cold", of_cold)] {
        let (before, unread) = (report.damage.len(), report.unread.listed.len());
        scrub_one(store, Some(other), &mut report, monitor)?;
        let place = store.place();
        let found = report.damage[before..].iter_mut();
        for finding in found.chain(&mut report.unread.listed[unread..]) {
            finding.what = format!("{} in the {which} store {place}", finding.what);
        }
    }
    name_lost([hot, cold], &mut report, monitor)?;
    Ok(report)
}

/// The other of two stores, and what brings objects from there.
#[derive(Clone, Copy)]
struct Other<'a> {
    store: &'a dyn Store,
    mended_by: MendedBy,
}

impl Other<'_> {
    /// What brings back an object, if it is whole there: packs of data are in the cold one alone.
    fn mends(self, name: &ObjectName) -> Option<MendedBy> {
        let is_whole = match name.area.is_directory() {
            true => match self.store.stat(name) {
                Ok(Some(listed)) => Found::of_listed(self.store, &listed) == Found::Intact,
                _ => false,
            },
            false => {
                let config = self.store.get(name, CONFIG_BYTES_MAX);
                config.is_ok_and(|bytes| UnverifiedConfig::decode(&bytes).is_ok())
            }
        };
        is_whole.then_some(self.mended_by)
    }
}

/// What the cold store does not have and the hot one has is lost there; what the hot one lacks is
/// said, and read from the cold one.
fn name_lost(
    [hot, cold]: [&dyn Store; 2],
    report: &mut ScrubReport,
    monitor: &dyn Monitor,
) -> Result<()> {
    for area in named_by_hash() {
        // Which packs the hot one should have only who has a key can say.
        let beside = compare([hot, cold], area, |_| area != Area::Packs)?;
        for name in &beside.lost_by_cold {
            report.damage.push(CheckFinding {
                what: format!("{name} in the cold store {}", cold.place()),
                text: "missing: the hot store has it".to_owned(),
                mended_by: Some(MendedBy::RepairCold { read_data: true }),
            });
        }
        if let Some(text) = beside.lacks_of_hot(area, hot) {
            monitor.note(&text);
        }
    }
    Ok(())
}

/// Areas of objects with hashes for names.
fn named_by_hash() -> impl Iterator<Item = Area> {
    Area::ALL.into_iter().filter(|area| area.is_directory())
}

fn scrub_one(
    store: &dyn Store,
    other: Option<Other<'_>>,
    report: &mut ScrubReport,
    monitor: &dyn Monitor,
) -> Result<()> {
    let has_stretches = scrub_configs(store, other, report);
    let mut areas: Vec<Area> = named_by_hash().collect();
    // Of others, a server may not know these.
    if has_stretches {
        areas.push(Area::Stretched);
        store.list(Area::Stretches, &mut |_| report.segments_not_read += 1)?;
    }
    for area in areas {
        let mut infos: Vec<ObjectInfo> = Vec::new();
        store.list(area, &mut |info| infos.push(info))?;
        for info in infos {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            scrub_object(store, other, &info, report)?;
            let progress = Progress {
                done: report.objects,
                bytes_done: report.bytes,
                ..Progress::default()
            };
            monitor.progress(Phase::ReadData, progress);
        }
    }
    Ok(())
}

fn scrub_object(
    store: &dyn Store,
    other: Option<Other<'_>>,
    info: &ObjectInfo,
    report: &mut ScrubReport,
) -> Result<()> {
    let Some(id) = info.name.id() else {
        return Ok(());
    };
    let text = match hash_object(store, info) {
        Ok(hash) if hash == id.0 => None,
        Ok(_) => Some(OTHER_BYTES.to_owned()),
        // Pruned or forgotten since it was listed.
        Err(error) if is_missing(&error) && is_gone(store, &info.name)? => return Ok(()),
        Err(Error::Store(error)) if error.is_archived() => {
            report.archived += 1;
            return Ok(());
        }
        Err(error) if is_inconclusive(&error) => {
            report.unread.name(info.name.to_string(), &error);
            return Ok(());
        }
        Err(error) => Some(error.to_string()),
    };
    report.objects += 1;
    match text {
        None => report.bytes += info.len,
        Some(text) => report.damage.push(CheckFinding {
            what: info.name.to_string(),
            text,
            mended_by: other.and_then(|other| other.mends(&info.name)),
        }),
    }
    Ok(())
}

/// Of two that differ and look whole, only who has a key can say which one is damaged. Says whether
/// one of them names segments.
fn scrub_configs(store: &dyn Store, other: Option<Other<'_>>, report: &mut ScrubReport) -> bool {
    let mut has_stretches = false;
    let mut lines = Vec::new();
    for name in ObjectName::configs() {
        let fault = match store.get(&name, CONFIG_BYTES_MAX) {
            Err(error) if error.is_not_found() => Some("missing".to_owned()),
            Err(error) if error.is_inconclusive() => {
                report.unread.name(name.to_string(), &error.into());
                continue;
            }
            Err(error) => Some(error.source.to_string()),
            Ok(bytes) => {
                report.objects += 1;
                report.bytes += bytes.len() as u64;
                let fault = match UnverifiedConfig::decode(&bytes) {
                    Ok(config) => {
                        has_stretches |= config.claims_stretches();
                        None
                    }
                    Err(FormatError::Newer { .. }) => None,
                    Err(error) => Some(fault_text(&error)),
                };
                let end = bytes.len() - usize::from(bytes.ends_with(b"\n"));
                lines.extend(fault.is_none().then(|| bytes[..end].to_vec()));
                fault
            }
        };
        report.damage.extend(fault.map(|fault| CheckFinding {
            what: name.to_string(),
            text: match other {
                Some(_) => fault,
                None => format!("{fault} (bale repair config writes it again from the other)"),
            },
            mended_by: other.and_then(|other| other.mends(&name)),
        }));
    }
    if let [config, copy] = &lines[..]
        && config != copy
    {
        let text = "has other bytes than config: one of them is damaged, and who has a key can \
            tell which (bale check)";
        report.damage.push(CheckFinding {
            what: ObjectName::config_copy().to_string(),
            text: text.to_owned(),
            mended_by: None,
        });
    }
    has_stretches
}

/// BLAKE3 of an object, read piece by piece.
pub(crate) fn hash_object(store: &dyn Store, info: &ObjectInfo) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(info.len).unwrap_or(READ_BYTES))];
    let mut offset = 0;
    while offset < info.len {
        let len =
            usize::try_from(info.len - offset).map_or(READ_BYTES, |rest| rest.min(READ_BYTES));
        store.read_at(&info.name, offset, &mut buffer[..len])?;
        hasher.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}
