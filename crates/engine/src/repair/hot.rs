//! A hot store made again from the cold one, which is complete: everything but packs of data is
//! copied, byte for byte, where it is missing or damaged.
//!
//! Packs come before the index that names them, that before snapshots, and `config`, by which the
//! store is one, last: what an interrupt leaves names nothing that is missing, and the same again
//! goes on. Nothing is removed but what is replaced; what the cold store does not have is counted.

use crate::read_again;
use crate::two_stores::{InTheWay, packs_with_metadata};
use bale_format::ObjectId;
use bale_format::sealed::OBJECT_BYTES_MAX as SEALED_BYTES_MAX;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName, PackContent, Store};
use std::collections::HashSet;

/// Areas in the order in which they are copied; the one of keys before the configs.
const AREAS: [Area; 9] = [
    Area::Packs,
    Area::Index,
    Area::Condemned,
    Area::Damaged,
    Area::Runs,
    Area::Snapshots,
    Area::Keys,
    Area::ConfigCopy,
    Area::Config,
];
/// Bytes of a pack in memory.
const BLOCK_BYTES: usize = 1 << 20;
/// No other object is longer.
const OBJECT_BYTES_MAX: u64 = SEALED_BYTES_MAX as u64;

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotReport {
    /// Objects copied.
    pub objects: u64,
    pub bytes: u64,
    /// Of those, objects that were there and damaged.
    pub replaced: u64,
    /// Objects that were there already, and whole.
    pub intact: u64,
    /// Objects of the hot store that the cold one does not have: they stay, and nobody reads them.
    pub beside: u64,
    /// Snapshots and keys that the hot store did not have among others that it had: it lost them,
    /// or they were half forgotten.
    pub came_among_others: Vec<ObjectName>,
    /// Objects that are damaged in the cold store, or that the hot one does not take or hand out;
    /// each is named.
    pub problems: u64,
}

/// Copies into `hot` what it should have of the repository, which is that of the cold store alone.
pub fn repair_hot(
    repository: &Repository,
    hot: &dyn Store,
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<HotReport> {
    let cold = repository.store();
    if !repository.config().has_cold_store() {
        return Err(Error::NoColdStore(cold.place()));
    }
    let mut copying = Copying {
        cold: &**cold,
        hot,
        metadata: packs_with_metadata(&*repository.index()?),
        config: repository.judge_configs()?.intact_bytes().to_vec(),
        dry_run,
        monitor,
        report: HotReport::default(),
    };
    // With `stretched/` a hot store says where in a segment packs are.
    if repository.stretched().is_some() {
        copying.area(Area::Stretched)?;
    }
    for area in AREAS {
        copying.area(area)?;
    }
    Ok(copying.report)
}

/// What is there of an object.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    Damaged,
    Intact,
    /// Why; it may be intact.
    Unreadable(String),
}

struct Copying<'a> {
    cold: &'a dyn Store,
    hot: &'a dyn Store,
    metadata: HashSet<ObjectId>,
    /// What `config` and its copy should be, proven by the keys.
    config: Vec<u8>,
    dry_run: bool,
    monitor: &'a dyn Monitor,
    report: HotReport,
}

impl Copying<'_> {
    fn area(&mut self, area: Area) -> Result<()> {
        let mut wanted = HashSet::new();
        self.cold.list(area, &mut |info| {
            let belongs = |id| area != Area::Packs || self.metadata.contains(&id);
            if info.name.id().is_none_or(belongs) {
                wanted.insert(info.name);
            }
        })?;
        let mut there = HashSet::new();
        let mut beside = 0;
        let listed = self
            .hot
            .list(area, &mut |info| match wanted.contains(&info.name) {
                true => drop(there.insert(info.name)),
                false => beside += 1,
            });
        // A new place has no directories yet.
        match listed {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => self.report.beside += beside,
        }
        let in_the_way = InTheWay::of(self.hot, area)?;
        let mut names: Vec<_> = wanted.into_iter().collect();
        names.sort();
        for name in names {
            if self.monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            if let Some(what) = in_the_way.at(&name).filter(|_| !there.contains(&name)) {
                let text = format!(
                    "{what} in the hot store: remove it there, and this brings the object back"
                );
                self.problem(&name, text);
                continue;
            }
            let before = self.report.objects;
            self.object(&name, there.contains(&name))?;
            let is_said = matches!(area, Area::Snapshots | Area::Keys) && !there.is_empty();
            if is_said && self.report.objects > before && !there.contains(&name) {
                self.report.came_among_others.push(name);
            }
            let progress = Progress {
                done: self.report.objects + self.report.intact,
                bytes_done: self.report.bytes,
                ..Progress::default()
            };
            self.monitor.progress(Phase::Copy, progress);
        }
        Ok(())
    }

    fn object(&mut self, name: &ObjectName, is_there: bool) -> Result<()> {
        let found = match is_there {
            true => self.look(name)?,
            false => Found::Nothing,
        };
        match &found {
            Found::Intact => {
                self.report.intact += 1;
                return Ok(());
            }
            Found::Unreadable(text) => {
                self.problem(
                    name,
                    format!(
                        "it cannot be read in the hot store, and is left as it is: {text}. Where \
                         that stays so, delete it there, and this brings it back"
                    ),
                );
                return Ok(());
            }
            Found::Nothing | Found::Damaged => {}
        }
        let copied = match name.area {
            Area::Packs => self.copy_pack(name, found == Found::Damaged),
            _ => self.copy_whole(name, found == Found::Damaged),
        };
        let bytes = match copied {
            Ok(Some(bytes)) => bytes,
            // Deleted since it was listed.
            Err(Error::Store(error)) if error.is_not_found() => return Ok(()),
            Ok(None) => {
                let text = "its bytes in the cold store are not what its name says";
                self.problem(name, text.to_owned());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.report.objects += 1;
        self.report.bytes += bytes;
        self.report.replaced += u64::from(found == Found::Damaged);
        Ok(())
    }

    fn problem(&mut self, name: &ObjectName, text: String) {
        self.report.problems += 1;
        self.monitor.problem(&Problem {
            path: name.path().into_bytes(),
            action: "copy",
            text,
        });
    }

    /// What the hot store has under this name, each time it is read.
    fn look(&self, name: &ObjectName) -> Result<Found> {
        read_again::unless_always(
            |found| matches!(found, Ok(Found::Damaged)),
            || self.look_once(name),
        )
    }

    fn look_once(&self, name: &ObjectName) -> Result<Found> {
        let is_intact = match name.id() {
            Some(id) => self
                .hash_of(self.hot, name, &mut |_| Ok(()))
                .map(|hash| hash == id),
            None => self
                .hot
                .get(name, OBJECT_BYTES_MAX)
                .map(|bytes| bytes == self.config)
                .map_err(Error::from),
        };
        Ok(match is_intact {
            Ok(true) => Found::Intact,
            Err(Error::Store(error)) if error.is_inconclusive() => {
                Found::Unreadable(error.source.to_string())
            }
            Ok(false) | Err(Error::Store(_)) => Found::Damaged,
            Err(error) => return Err(error),
        })
    }

    /// Reads an object block by block.
    fn hash_of(
        &self,
        store: &dyn Store,
        name: &ObjectName,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<ObjectId> {
        let info = store.stat(name)?;
        let len = info.map_or(0, |info| info.len);
        let mut block = vec![0; BLOCK_BYTES];
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        while at < len {
            let room = (len - at).min(BLOCK_BYTES as u64) as usize;
            store.read_at(name, at, &mut block[..room])?;
            hasher.update(&block[..room]);
            take(&block[..room])?;
            at += room as u64;
        }
        Ok(ObjectId(*hasher.finalize().as_bytes()))
    }

    /// Bytes copied; `None`: they are damaged.
    fn copy_pack(&self, name: &ObjectName, replaces: bool) -> Result<Option<u64>> {
        let mut bytes = 0;
        let mut writer = match self.dry_run {
            true => None,
            false => Some(self.hot.begin_pack(PackContent::Metadata)?),
        };
        let hash = self.hash_of(self.cold, name, &mut |block| {
            bytes += block.len() as u64;
            match &mut writer {
                Some(writer) => Ok(writer.append(block)?),
                None => Ok(()),
            }
        })?;
        if Some(hash) != name.id() {
            return Ok(None);
        }
        let Some(writer) = writer else {
            return Ok(Some(bytes));
        };
        if replaces {
            self.hot.delete(name)?;
        }
        writer.publish(name)?;
        Ok(Some(bytes))
    }

    fn copy_whole(&self, name: &ObjectName, replaces: bool) -> Result<Option<u64>> {
        let bytes = match name.id() {
            // Whichever of the two the cold store has damaged.
            None => self.config.clone(),
            Some(id) => {
                let bytes = self.cold.get(name, OBJECT_BYTES_MAX)?;
                if *blake3::hash(&bytes).as_bytes() != id.0 {
                    return Ok(None);
                }
                bytes
            }
        };
        if self.dry_run {
            return Ok(Some(bytes.len() as u64));
        }
        if replaces {
            self.hot.delete(name)?;
        }
        self.hot.put(name, &bytes)?;
        Ok(Some(bytes.len() as u64))
    }
}
