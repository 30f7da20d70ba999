//! What the cold one of two stores has lost or has damaged, brought back from the hot one, which
//! has everything but packs of data.
//!
//! An object is deleted from the hot store first: what is there alone was lost by the cold one,
//! unless the hot store itself was set back to an older state, and then it may have been deleted on
//! purpose. No look at the two can tell. So a snapshot, the record of a run and a key, which count
//! as soon as they are there, come back only where the user says so. All else is of no consequence
//! where it was deleted: index entries of packs that are gone count as absent, packs that nothing
//! names go with the next prune, and what was condemned stays so until it is gone.
//!
//! Packs come before the index that names them, that before snapshots: what an interrupt leaves
//! names nothing that could have come and did not. What stands in the cold store is replaced only
//! where its bytes were read (of packs, or their length) and are not those of its name, or stand on
//! a bad sector, and those of the hot store were read and are.

use crate::read_again;
use crate::two_stores::{Found, InTheWay, lengths, refuse_swapped};
use crate::verify::OTHER_BYTES;
use crate::whole::Wholeness;
use bale_format::sealed::OBJECT_BYTES_MAX as SEALED_BYTES_MAX;
use bale_format::{Access, ObjectId, Snapshot, UnverifiedConfig};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::index::{ChunkIndex, PackInfo};
use bale_repository::repository::{CONFIG_BYTES_MAX, Repository};
use bale_repository::store::{Area, ObjectInfo, ObjectName, PackContent, Store};
use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;

/// Areas in the order in which they are brought back; configs come after them.
const AREAS: [Area; 7] = [
    Area::Condemned,
    Area::Damaged,
    Area::Packs,
    Area::Index,
    Area::Runs,
    Area::Snapshots,
    Area::Keys,
];
/// Bytes of a pack in memory.
const BLOCK_BYTES: usize = 1 << 20;
/// No other object is longer.
const OBJECT_BYTES_MAX: u64 = SEALED_BYTES_MAX as u64;

/// What the user wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColdOptions {
    /// Bring back snapshots and unfinished runs that the hot store alone has.
    pub snapshots: bool,
    /// The same of keys.
    pub keys: bool,
    /// Read packs of the cold store too, and not their lengths alone.
    pub read_data: bool,
    /// Write nothing.
    pub dry_run: bool,
}

/// A snapshot, run or key that the hot store alone has.
#[derive(Clone, Debug)]
pub struct OnlyHot {
    pub name: ObjectName,
    /// Of a snapshot or run that can be read.
    pub snapshot: Option<Snapshot>,
    /// Of the same: is all that it needs in the cold store, once the rest is back?
    pub is_whole: bool,
    /// Brought back; of a dry run: would be. Otherwise it was left, for nobody asked for it.
    pub is_brought: bool,
}

/// What was done, or would be.
#[derive(Clone, Debug, Default)]
pub struct ColdReport {
    /// Objects brought back.
    pub objects: u64,
    pub bytes: u64,
    /// Of those, objects that were there and damaged.
    pub replaced: u64,
    /// Objects that both stores have, and nothing is wrong with.
    pub intact: u64,
    /// In the order of their names.
    pub only_hot: Vec<OnlyHot>,
    /// Objects that would have been read and are archived: nothing is known of them.
    pub archived: u64,
    /// Objects that could not be brought back, each named.
    pub problems: u64,
}

impl ColdReport {
    /// Snapshots, runs and keys that were left in the hot store.
    pub fn left(&self) -> impl Iterator<Item = &OnlyHot> {
        self.only_hot.iter().filter(|object| !object.is_brought)
    }
}

/// Brings back what the cold store should have of `repository`, which either of the two opened.
pub fn repair_cold(
    repository: &Repository,
    [hot, cold]: [&Arc<dyn Store>; 2],
    options: ColdOptions,
    monitor: &dyn Monitor,
) -> Result<ColdReport> {
    let config = repository.config();
    if !config.has_cold_store() {
        return Err(Error::NoColdStore(cold.place()));
    }
    let known = config.check_access(Access::Write);
    known.map_err(|source| Error::Object {
        object: "config".to_owned(),
        source,
    })?;
    let of_hot = repository.in_store(hot.clone());
    let of_cold = repository.in_store(cold.clone());
    let config = intact_config(&of_hot, &of_cold)?;
    let index = of_hot.reload_index_readable()?;
    refuse_swapped(&index, [&**hot, &**cold])?;
    refuse_nothing_of_it(&index, &**cold)?;
    let mut bringing = Bringing {
        of_hot: &of_hot,
        index: &index,
        hot: &**hot,
        cold: &**cold,
        options,
        monitor,
        packs: HashSet::new(),
        report: ColdReport::default(),
    };
    for area in AREAS {
        bringing.area(area)?;
    }
    bringing.configs(&config)?;
    Ok(bringing.report)
}

/// What both configs of both stores should be, proven by the keys: the cold one is the truth, as
/// far as one of its two can be used. Where neither can, one of another repository is refused.
fn intact_config(of_hot: &Repository, of_cold: &Repository) -> Result<Vec<u8>> {
    let cold = of_cold.store();
    match of_cold.judge_configs() {
        Ok(judged) => return Ok(judged.intact_bytes().to_vec()),
        Err(error @ Error::ConfigsDiffer(_)) => return Err(error),
        Err(_) => {}
    }
    for name in ObjectName::configs() {
        let read = cold.get(&name, CONFIG_BYTES_MAX).ok();
        let decoded = read.and_then(|bytes| UnverifiedConfig::decode(&bytes).ok());
        if decoded.is_some_and(|config| config.repository() != of_hot.id()) {
            return Err(Error::Other(format!(
                "{} is of another repository than {}",
                cold.place(),
                of_hot.store().place()
            )));
        }
    }
    Ok(of_hot.judge_configs()?.intact_bytes().to_vec())
}

/// A place that is not mounted, or that lost everything, is no cold store: file contents would not
/// come back.
fn refuse_nothing_of_it(index: &ChunkIndex, cold: &dyn Store) -> Result<()> {
    let packs = lengths(cold, Area::Packs)?;
    let mut there = packs.keys().filter_map(ObjectName::id);
    if index.packs().is_empty() || there.any(|id| index.pack_number(&id).is_some()) {
        return Ok(());
    }
    if !lengths(cold, Area::Stretches)?.is_empty() {
        return Ok(());
    }
    Err(Error::Other(format!(
        "{} has no pack of this repository: is it mounted, and the right place? File contents are \
         in the cold store alone, and nothing brings them back",
        cold.place()
    )))
}

/// What became of an object.
enum Brought {
    Bytes(u64),
    /// Deleted since it was listed.
    Gone,
    /// Why it cannot be brought back.
    Damaged(String),
}

struct Bringing<'a> {
    of_hot: &'a Repository,
    /// Of the hot store.
    index: &'a Arc<ChunkIndex>,
    hot: &'a dyn Store,
    cold: &'a dyn Store,
    options: ColdOptions,
    monitor: &'a dyn Monitor,
    /// Packs that the cold store has, once they are back.
    packs: HashSet<ObjectId>,
    report: ColdReport,
}

impl Bringing<'_> {
    fn area(&mut self, area: Area) -> Result<()> {
        // Before the cold one: what comes meanwhile comes into that first.
        let in_hot = lengths(self.hot, area)?;
        let in_cold = self.in_cold(area)?;
        if area == Area::Packs {
            self.packs.extend(in_cold.keys().filter_map(ObjectName::id));
        }
        let in_the_way = InTheWay::of(self.cold, area)?;
        let mut lost_records = Vec::new();
        for (name, len) in in_hot {
            if self.monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let info = |len| ObjectInfo {
                name,
                len,
                modified: None,
            };
            let found = match in_cold.get(&name) {
                Some(there) => self.look(&info(*there), len),
                // What was deleted since goes from the hot one first.
                None if self.cold.stat(&name)?.is_some() => Found::Intact,
                None if self.hot.stat(&name)?.is_none() => continue,
                None => Found::Missing,
            };
            let counts = matches!(area, Area::Snapshots | Area::Runs | Area::Keys);
            match found {
                Found::Missing if let Some(what) = in_the_way.at(&name) => {
                    let text = format!(
                        "{what} in the cold store: remove it there, and this brings the object \
                         back"
                    );
                    self.problem(&name, text);
                }
                Found::Missing if counts => lost_records.push(info(len)),
                found => {
                    self.object(&info(len), found)?;
                }
            }
            let progress = Progress {
                done: self.report.objects + self.report.intact,
                bytes_done: self.report.bytes,
                ..Progress::default()
            };
            self.monitor.progress(Phase::Copy, progress);
        }
        self.records(lost_records)
    }

    /// In a directory that is not there everything was lost, if it is the right place.
    fn in_cold(&self, area: Area) -> Result<BTreeMap<ObjectName, u64>> {
        lengths(self.cold, area).map_err(|error| match error {
            Error::Store(error) if error.is_missing_area() => Error::Other(format!(
                "{error}. If it is lost and this is the right place, make an empty one all the \
                 same: repair cold brings back into it what the hot store has"
            )),
            other => other,
        })
    }

    /// Compares what the cold store has under a name with the name.
    fn look(&self, there: &ObjectInfo, len: u64) -> Found {
        if there.name.area == Area::Packs && !self.options.read_data {
            return match there.len == len {
                true => Found::Intact,
                false => Found::Damaged(format!("{} bytes, should be {len}", there.len)),
            };
        }
        read_again::unless_always(
            |found| matches!(found, Found::Damaged(_)),
            || Found::of_listed(self.cold, there),
        )
    }

    /// Brings it back where it is lost or damaged; tells whether it was.
    fn object(&mut self, of_hot: &ObjectInfo, found: Found) -> Result<bool> {
        let name = &of_hot.name;
        let replaces = match found {
            Found::Missing => false,
            Found::Damaged(_) => true,
            Found::Intact => {
                self.report.intact += 1;
                return Ok(false);
            }
            Found::Archived => {
                self.report.archived += 1;
                return Ok(false);
            }
            Found::Unreadable(text) => {
                let text = format!(
                    "it cannot be read in the cold store, and is left as it is: {text}. Where that \
                     stays so, delete it there, and this brings it back"
                );
                self.problem(name, text);
                return Ok(false);
            }
        };
        let brought = match name.area {
            Area::Packs => self.bring_pack(of_hot, replaces)?,
            _ => self.bring_whole(name, replaces)?,
        };
        let bytes = match brought {
            Brought::Bytes(bytes) => bytes,
            Brought::Gone => return Ok(false),
            Brought::Damaged(text) => {
                let state = if replaces { "damaged in" } else { "not in" };
                let text = format!("it is {state} the cold store, and in the hot one {text}");
                self.problem(name, text);
                return Ok(false);
            }
        };
        self.packs
            .extend(name.id().filter(|_| name.area == Area::Packs));
        self.report.objects += 1;
        self.report.bytes += bytes;
        self.report.replaced += u64::from(replaces);
        Ok(true)
    }

    /// Snapshots, runs or keys that the hot store alone has.
    fn records(&mut self, lost: Vec<ObjectInfo>) -> Result<()> {
        let (of_hot, index) = (self.of_hot, self.index.clone());
        let packs = self.packs.clone();
        let has_pack = |pack: &PackInfo| packs.contains(&pack.id);
        let mut wholeness = Wholeness::new(of_hot, index, has_pack);
        for info in lost {
            let is_key = info.name.area == Area::Keys;
            let snapshot = match is_key {
                true => None,
                false => of_hot.read_record(&info.name).ok(),
            };
            let is_whole = match &snapshot {
                Some(snapshot) => wholeness.is_whole(&snapshot.layers).unwrap_or(false),
                None => false,
            };
            let is_wanted = match is_key {
                true => self.options.keys,
                false => self.options.snapshots,
            };
            let problems = self.report.problems;
            let is_brought = is_wanted && self.object(&info, Found::Missing)?;
            if self.report.problems == problems {
                self.report.only_hot.push(OnlyHot {
                    name: info.name,
                    snapshot,
                    is_whole,
                    is_brought,
                });
            }
        }
        Ok(())
    }

    fn bring_pack(&self, of_hot: &ObjectInfo, replaces: bool) -> Result<Brought> {
        let name = &of_hot.name;
        let mut writer = match self.options.dry_run {
            true => None,
            false => Some(self.cold.begin_pack(PackContent::Metadata)?),
        };
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        let mut block = vec![0; BLOCK_BYTES];
        while at < of_hot.len {
            let room = (of_hot.len - at).min(BLOCK_BYTES as u64) as usize;
            match self.hot.read_at(name, at, &mut block[..room]) {
                Err(error) if error.is_not_found() => return Ok(Brought::Gone),
                Err(error) => return Ok(Brought::Damaged(error.to_string())),
                Ok(()) => {}
            }
            hasher.update(&block[..room]);
            if let Some(writer) = &mut writer {
                writer.append(&block[..room])?;
            }
            at += room as u64;
        }
        if name.id() != Some(ObjectId(*hasher.finalize().as_bytes())) {
            return Ok(Brought::Damaged(OTHER_BYTES.to_owned()));
        }
        if let Some(writer) = writer {
            if replaces {
                self.cold.delete(name)?;
            }
            writer.publish(name)?;
        }
        Ok(Brought::Bytes(of_hot.len))
    }

    fn bring_whole(&self, name: &ObjectName, replaces: bool) -> Result<Brought> {
        let bytes = match self.hot.get(name, OBJECT_BYTES_MAX) {
            Err(error) if error.is_not_found() => return Ok(Brought::Gone),
            Err(error) => return Ok(Brought::Damaged(error.to_string())),
            Ok(bytes) => bytes,
        };
        if name.id() != Some(ObjectId(*blake3::hash(&bytes).as_bytes())) {
            return Ok(Brought::Damaged(OTHER_BYTES.to_owned()));
        }
        self.put(name, &bytes, replaces)?;
        Ok(Brought::Bytes(bytes.len() as u64))
    }

    fn put(&self, name: &ObjectName, bytes: &[u8], replaces: bool) -> Result<()> {
        if self.options.dry_run {
            return Ok(());
        }
        if replaces {
            self.cold.delete(name)?;
        }
        Ok(self.cold.put(name, bytes)?)
    }

    /// Both, whichever of them the cold store lacks or has damaged.
    fn configs(&mut self, intact: &[u8]) -> Result<()> {
        for name in ObjectName::configs() {
            let found = read_again::unless_always(
                |found| matches!(found, Ok(bytes) if bytes != intact),
                || self.cold.get(&name, CONFIG_BYTES_MAX),
            );
            let replaces = match found {
                Ok(bytes) if bytes == intact => {
                    self.report.intact += 1;
                    continue;
                }
                Err(error) if error.is_not_found() => false,
                Err(error) if error.kind() != ErrorKind::FileTooLarge => {
                    let text = format!("it cannot be read in the cold store: {error}");
                    self.problem(&name, text);
                    continue;
                }
                Ok(_) | Err(_) => true,
            };
            self.put(&name, intact, replaces)?;
            self.report.objects += 1;
            self.report.bytes += intact.len() as u64;
            self.report.replaced += u64::from(replaces);
        }
        Ok(())
    }

    fn problem(&mut self, name: &ObjectName, text: String) {
        self.report.problems += 1;
        self.monitor.problem(&Problem {
            path: name.path().into_bytes(),
            action: "bring back",
            text,
        });
    }
}
