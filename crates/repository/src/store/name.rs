//! Names of objects: everything that may be written, read or deleted in a repository, and nothing
//! else.
//!
//! A name is an area, an id and, for `runs/`, a run; for `stretches/` it is a run and a number. Its
//! text is the relative path of docs/FORMAT.md, section 1. It can hold no other bytes, so it is
//! safe as a path on any store. Text that is not exactly one of those paths is no name: readers
//! skip it and nobody deletes it.

use bale_format::id::{ObjectId, from_hex, hex};
use bale_format::stretch::StretchName;
use std::fmt;

/// Which directory of the repository an object lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// The one object `config`.
    Config,
    /// The one object `config.copy`.
    ConfigCopy,
    /// Key slots.
    Keys,
    /// Packs, spread over 256 directories.
    Packs,
    /// Index objects.
    Index,
    Snapshots,
    /// Records of unfinished runs: `runs/<run>/<id>`.
    Runs,
    /// Lists of packs to be deleted.
    Condemned,
    /// Marks of packs in which damage was found.
    Damaged,
    /// Packs one after the other: `stretches/<run>/<number>`.
    Stretches,
    /// What is in each of those.
    Stretched,
}

impl Area {
    /// The areas of every repository.
    pub const ALL: [Area; 9] = [
        Area::Config,
        Area::ConfigCopy,
        Area::Keys,
        Area::Packs,
        Area::Index,
        Area::Snapshots,
        Area::Runs,
        Area::Condemned,
        Area::Damaged,
    ];

    /// Those that only repositories with the feature `stretches` have beside them.
    pub const OF_STRETCHES: [Area; 2] = [Area::Stretches, Area::Stretched];

    /// `config` and its copy: either of them makes a directory a repository.
    pub const CONFIGS: [Area; 2] = [Area::Config, Area::ConfigCopy];

    /// First part of the path of its objects.
    pub fn text(self) -> &'static str {
        match self {
            Area::Config => "config",
            Area::ConfigCopy => "config.copy",
            Area::Keys => "keys",
            Area::Packs => "packs",
            Area::Index => "index",
            Area::Snapshots => "snapshots",
            Area::Runs => "runs",
            Area::Condemned => "condemned",
            Area::Damaged => "damaged",
            Area::Stretches => "stretches",
            Area::Stretched => "stretched",
        }
    }

    /// Is it a directory of objects, and not one object that stands for itself?
    pub fn is_directory(self) -> bool {
        !Area::CONFIGS.contains(&self)
    }

    /// Has each run a directory in it, which goes with the last object of it?
    pub fn is_by_run(self) -> bool {
        matches!(self, Area::Runs | Area::Stretches)
    }

    fn parse(text: &str) -> Option<Area> {
        let mut areas = Area::ALL.into_iter().chain(Area::OF_STRETCHES);
        areas.find(|area| area.text() == text)
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    pub area: Area,
    /// Zero outside `Area::Runs` and `Area::Stretches`.
    run: [u8; 16],
    /// Zero outside `Area::Stretches`.
    number: u32,
    /// Zero for `config` and its copy, and in `Area::Stretches`.
    id: ObjectId,
}

impl ObjectName {
    /// `config`.
    pub fn config() -> Self {
        Self::of(Area::Config, ObjectId::default())
    }

    /// `config.copy`.
    pub fn config_copy() -> Self {
        Self::of(Area::ConfigCopy, ObjectId::default())
    }

    /// Both of them.
    pub fn configs() -> [Self; 2] {
        [Self::config(), Self::config_copy()]
    }

    /// The one object of an area that is no directory.
    pub fn single(area: Area) -> Option<Self> {
        (!area.is_directory()).then(|| Self::of(area, ObjectId::default()))
    }

    /// `keys/<id>`.
    pub fn key(id: ObjectId) -> Self {
        Self::of(Area::Keys, id)
    }

    /// `packs/<aa>/<id>`.
    pub fn pack(id: ObjectId) -> Self {
        Self::of(Area::Packs, id)
    }

    /// `index/<id>`.
    pub fn index(id: ObjectId) -> Self {
        Self::of(Area::Index, id)
    }

    /// `snapshots/<id>`.
    pub fn snapshot(id: ObjectId) -> Self {
        Self::of(Area::Snapshots, id)
    }

    /// `runs/<run>/<id>`.
    pub fn run(run: [u8; 16], id: ObjectId) -> Self {
        Self {
            run,
            ..Self::of(Area::Runs, id)
        }
    }

    /// `condemned/<id>`.
    pub fn condemned(id: ObjectId) -> Self {
        Self::of(Area::Condemned, id)
    }

    /// `damaged/<id>`.
    pub fn damaged(id: ObjectId) -> Self {
        Self::of(Area::Damaged, id)
    }

    /// `stretches/<run>/<number>`.
    pub fn stretch(name: StretchName) -> Self {
        Self {
            run: name.run,
            number: name.number,
            ..Self::of(Area::Stretches, ObjectId::default())
        }
    }

    /// `stretched/<id>`.
    pub fn stretched(id: ObjectId) -> Self {
        Self::of(Area::Stretched, id)
    }

    fn of(area: Area, id: ObjectId) -> Self {
        Self {
            area,
            run: [0; 16],
            number: 0,
            id,
        }
    }

    /// The hash in the name; `config`, its copy and stretches have none.
    pub fn id(&self) -> Option<ObjectId> {
        let is_hash = self.area.is_directory() && self.area != Area::Stretches;
        is_hash.then_some(self.id)
    }

    /// The name of a stretch.
    pub fn stretch_name(&self) -> Option<StretchName> {
        let (run, number) = (self.run, self.number);
        (self.area == Area::Stretches).then_some(StretchName { run, number })
    }

    /// The run that wrote it, for objects of `runs/`.
    pub fn run_id(&self) -> Option<[u8; 16]> {
        (self.area == Area::Runs).then_some(self.run)
    }

    /// Relative path, parts separated by `/`.
    pub fn path(&self) -> String {
        match self.area {
            area if !area.is_directory() => area.text().to_owned(),
            Area::Stretches => format!("{}/{:08x}", self.dir(), self.number),
            _ => format!("{}/{}", self.dir(), self.id),
        }
    }

    /// Relative path of the directory that holds it; empty for `config` and its copy.
    pub fn dir(&self) -> String {
        match self.area {
            Area::Config | Area::ConfigCopy => String::new(),
            Area::Packs => format!("packs/{}", hex(&self.id.0[..1])),
            Area::Runs | Area::Stretches => format!("{}/{}", self.area, hex(&self.run)),
            area => area.text().to_owned(),
        }
    }

    /// Reads exactly what `path` writes.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let area = Area::parse(parts.next()?)?;
        let name = match area {
            Area::Config | Area::ConfigCopy => Self::of(area, ObjectId::default()),
            Area::Packs => {
                let (spread, id) = (parts.next()?, parts.next()?);
                let name = Self::pack(ObjectId::from_hex(id).ok()?);
                (id.get(..2) == Some(spread)).then_some(name)?
            }
            Area::Runs => {
                let run = from_hex(parts.next()?).ok()?;
                Self::run(run, ObjectId::from_hex(parts.next()?).ok()?)
            }
            Area::Stretches => {
                let run = from_hex(parts.next()?).ok()?;
                let number = u32::from_be_bytes(from_hex(parts.next()?).ok()?);
                Self::stretch(StretchName { run, number })
            }
            area => Self::of(area, ObjectId::from_hex(parts.next()?).ok()?),
        };
        parts.next().is_none().then_some(name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_names(run: [u8; 16], id: ObjectId) -> [ObjectName; 11] {
        [
            ObjectName::config(),
            ObjectName::config_copy(),
            ObjectName::key(id),
            ObjectName::pack(id),
            ObjectName::index(id),
            ObjectName::snapshot(id),
            ObjectName::run(run, id),
            ObjectName::condemned(id),
            ObjectName::damaged(id),
            ObjectName::stretched(id),
            ObjectName::stretch(StretchName { run, number: 0xab }),
        ]
    }

    #[test]
    fn paths_are_those_of_the_format() {
        let id = ObjectId([0xab; 32]);
        let id_text = "ab".repeat(32);
        let paths = all_names([0x01; 16], id).map(|name| name.path());
        assert_eq!(paths[0], "config");
        assert_eq!(paths[1], "config.copy");
        assert_eq!(paths[2], format!("keys/{id_text}"));
        assert_eq!(paths[3], format!("packs/ab/{id_text}"));
        assert_eq!(paths[4], format!("index/{id_text}"));
        assert_eq!(paths[5], format!("snapshots/{id_text}"));
        assert_eq!(paths[6], format!("runs/{}/{id_text}", "01".repeat(16)));
        assert_eq!(paths[7], format!("condemned/{id_text}"));
        assert_eq!(paths[8], format!("damaged/{id_text}"));
        assert_eq!(paths[9], format!("stretched/{id_text}"));
        let run = "01".repeat(16);
        assert_eq!(paths[10], format!("stretches/{run}/000000ab"));
    }

    #[test]
    fn only_exact_paths_are_names() {
        let id = "ab".repeat(32);
        let run = "01".repeat(16);
        for path in [
            "".to_owned(),
            "/config".to_owned(),
            "config/".to_owned(),
            "config.tmp".to_owned(),
            "config.copy/".to_owned(),
            "config.copy.copy".to_owned(),
            "Config".to_owned(),
            "keys".to_owned(),
            "keys/".to_owned(),
            format!("keys/{}", id.to_uppercase()),
            format!("keys/{id}/"),
            format!("keys//{id}"),
            format!("keys/{id} "),
            format!("keys/{id}\n"),
            format!("keys/../keys/{id}"),
            format!("keys/{}", &id[1..]),
            format!("keys/{id}0"),
            format!("packs/{id}"),
            format!("packs/ac/{id}"),
            format!("packs/AB/{id}"),
            format!("packs/ab/{id}/x"),
            format!("runs/{id}"),
            format!("runs/{}/{id}", &run[1..]),
            format!("runs/{run}/{run}"),
            format!("tmp/{id}"),
            format!("stretches/{run}"),
            format!("stretches/{run}/{id}"),
            format!("stretches/{run}/AB"),
            format!("stretches/{run}/000000AB"),
            format!("stretches/{run}/000000ab/"),
            format!("stretched/{run}/{id}"),
        ] {
            assert_eq!(ObjectName::parse(&path), None, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives_its_text(run: [u8; 16], id: [u8; 32]) {
            for name in all_names(run, ObjectId(id)) {
                prop_assert_eq!(ObjectName::parse(&name.path()), Some(name));
            }
        }

        #[test]
        fn what_parses_is_written_back_the_same(text in "(keys|packs|runs|index|stretches)/[0-9a-f/]{41,100}|.{0,40}") {
            if let Some(name) = ObjectName::parse(&text) {
                prop_assert_eq!(name.path(), text);
            }
        }
    }
}
