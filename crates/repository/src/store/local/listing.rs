//! Listings of a repository directory, which are believed only as far as they agree with
//! themselves.
//!
//! A listing that leaves an object out would cost what that object uses. A damaged directory names
//! what it does not find, and a directory that is not there lists nothing: neither is taken for "no
//! such object". What was removed meanwhile is listed no more when its directory is listed again;
//! what is listed again and not found is damage.

use super::{Core, pack_dirs};
use crate::store::disk::{DirEntryKind, FileStat};
use crate::store::{
    Area, ForeignEntry, ForeignKind, MissingArea, ObjectInfo, ObjectName, Result as StoreResult,
};
use bale_format::id::{from_hex, hex};
use std::collections::BTreeSet;
use std::io;

/// Listings of one directory: the first, and others while names are listed that are not found.
const LISTINGS_MAX: u32 = 4;

/// Names that one listing gives and that are not found: 60 bytes each. A prune that runs beside it
/// does not remove so many.
const UNFOUND_MAX: usize = 1 << 16;

/// Directories without which a repository is not whole: something is in each of them once there is
/// a snapshot. The others are empty most of the time, and tools that copy a repository may leave
/// those out.
///
/// No snapshot depends on what is in the others. Without `condemned/` nothing is deleted, and
/// without `damaged/` the next check marks again. Without `runs/` a prune does not know of a run
/// that lives: it may condemn what that has stored for longer than the grace period. Within minutes
/// the run shows a sign of life again, and before it commits it looks at all it relies on, and
/// stores again, or refuses. What a run that died had finished is stored again by the next backup.
const NEEDED: [Area; 4] = [Area::Keys, Area::Packs, Area::Index, Area::Snapshots];

/// Who learns of what a listing brings.
pub(super) struct Listed<'a> {
    pub(super) found: &'a mut dyn FnMut(ObjectInfo),
    pub(super) foreign: &'a mut dyn FnMut(ForeignEntry),
}

impl Listed<'_> {
    /// A file with the name of its directory says the run to who lists through rclone: ours.
    fn foreign(&mut self, dir: &str, name: &[u8], kind: ForeignKind) {
        let is_own = dir.rsplit('/').next().map(str::as_bytes) == Some(name);
        if is_own && dir.starts_with(Area::Runs.text()) {
            return;
        }
        let path = format!("{dir}/{}", String::from_utf8_lossy(name));
        (self.foreign)(ForeignEntry { path, kind });
    }
}

impl Core {
    pub(super) fn list_area(&self, area: Area, listed: &mut Listed<'_>) -> io::Result<()> {
        match area {
            Area::Packs => {
                self.names(area.text(), &mut |name, _| {
                    if !is_pack_dir(name) {
                        listed.foreign(area.text(), name, ForeignKind::Name);
                    }
                })?;
                pack_dirs().try_for_each(|dir| self.list_dir(&dir, listed))
            }
            area if area.is_by_run() => {
                let dirs = self.run_dirs(area, listed)?;
                dirs.iter().try_for_each(|dir| self.list_dir(dir, listed))
            }
            area => self.list_dir(area.text(), listed),
        }
    }

    /// What stands in the place of `config` or its copy.
    pub(super) fn foreign_single(
        &self,
        name: &ObjectName,
        found: &mut dyn FnMut(ForeignEntry),
    ) -> StoreResult<()> {
        let path = name.path();
        let stat = self.disk.stat(&path);
        let stat = stat.map_err(|error| self.error("stat", name, error))?;
        if let Some(kind) = stat.and_then(|stat| foreign_kind(stat.kind)) {
            found(ForeignEntry { path, kind });
        }
        Ok(())
    }

    /// Objects of one directory.
    fn list_dir(&self, dir: &str, listed: &mut Listed<'_>) -> io::Result<()> {
        let mut unfound = self.look(dir, None, listed)?;
        for _ in 1..LISTINGS_MAX {
            if unfound.is_empty() {
                return Ok(());
            }
            unfound = self.look(dir, Some(&unfound), listed)?;
        }
        match unfound.first() {
            None => Ok(()),
            Some(name) => Err(listed_and_not_found(&name.to_string())),
        }
    }

    /// Lists once, everything or what is asked for; tells the names under which nothing is.
    fn look(
        &self,
        dir: &str,
        asked: Option<&BTreeSet<ObjectName>>,
        listed: &mut Listed<'_>,
    ) -> io::Result<BTreeSet<ObjectName>> {
        let mut unfound = BTreeSet::new();
        let mut failed = None;
        // Kinds in a listing are not asked: a damaged one would hide an object.
        self.names(dir, &mut |file_name, _| {
            let path = str::from_utf8(file_name).map(|file_name| format!("{dir}/{file_name}"));
            let name = path.ok().as_deref().and_then(ObjectName::parse);
            let Some(name) = name else {
                if asked.is_none() {
                    listed.foreign(dir, file_name, ForeignKind::Name);
                }
                return;
            };
            if failed.is_some() || asked.is_some_and(|asked| !asked.contains(&name)) {
                return;
            }
            match self.disk.stat(&name.path()) {
                Ok(Some(FileStat {
                    kind: DirEntryKind::File,
                    len,
                    modified,
                })) => (listed.found)(ObjectInfo {
                    name,
                    len,
                    modified,
                }),
                Ok(Some(stat)) => {
                    if let Some(kind) = foreign_kind(stat.kind) {
                        listed.foreign(dir, file_name, kind);
                    }
                }
                Ok(None) if unfound.len() < UNFOUND_MAX => {
                    unfound.insert(name);
                }
                Ok(None) => failed = Some(listed_and_not_found(&name.to_string())),
                Err(error) => failed = Some(error),
            }
        })?;
        failed.map_or(Ok(unfound), Err)
    }

    /// One for each unfinished run, or each writer of stretches: few.
    fn run_dirs(&self, area: Area, listed: &mut Listed<'_>) -> io::Result<Vec<String>> {
        let mut dirs = Vec::new();
        self.names(area.text(), &mut |name, kind| {
            let run = str::from_utf8(name)
                .ok()
                .and_then(|name| from_hex::<16>(name).ok());
            match (run, kind) {
                (Some(run), None | Some(DirEntryKind::Dir)) => {
                    dirs.push(format!("{}/{}", area.text(), hex(&run)));
                }
                (None, _) => listed.foreign(area.text(), name, ForeignKind::Name),
                (Some(_), Some(DirEntryKind::File)) => {
                    listed.foreign(area.text(), name, ForeignKind::File);
                }
                (Some(_), Some(DirEntryKind::Other)) => {
                    listed.foreign(area.text(), name, ForeignKind::Link);
                }
            }
        })?;
        Ok(dirs)
    }

    /// Names in a directory; none in one that is made when it is needed, and is not there.
    fn names(
        &self,
        dir: &str,
        found: &mut dyn FnMut(&[u8], Option<DirEntryKind>),
    ) -> io::Result<()> {
        for _ in 0..LISTINGS_MAX {
            match self.disk.list(dir, found) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => return done,
            }
            if !self.is_dir_named(dir)? {
                return match NEEDED.into_iter().find(|area| area.text() == dir) {
                    Some(area) => Err(missing(area, &self.disk.place())),
                    None => Ok(()),
                };
            }
        }
        Err(listed_and_not_found(dir))
    }

    /// Is it listed in the directory above?
    fn is_dir_named(&self, dir: &str) -> io::Result<bool> {
        let mut is_named = false;
        match dir.rsplit_once('/') {
            Some((parent, last)) => {
                self.names(parent, &mut |name, _| is_named |= name == last.as_bytes())?;
            }
            None => {
                let named = (self.disk).list("", &mut |name, _| is_named |= name == dir.as_bytes());
                // Of another kind: that the repository itself is gone must not be read as "no such
                // object".
                named.map_err(io::Error::other)?;
            }
        }
        Ok(is_named)
    }

    /// Refuses to make a directory again without which the repository is not whole: with one object
    /// in it, what was there before would count as gone.
    pub(super) fn refuse_missing(&self, area: Area) -> io::Result<()> {
        if NEEDED.contains(&area) && self.disk.stat(area.text())?.is_none() {
            return Err(missing(area, &self.disk.place()));
        }
        Ok(())
    }
}

/// Of what stands under the name of an object.
fn foreign_kind(kind: DirEntryKind) -> Option<ForeignKind> {
    match kind {
        DirEntryKind::File => None,
        DirEntryKind::Dir => Some(ForeignKind::Directory),
        DirEntryKind::Other => Some(ForeignKind::Link),
    }
}

/// Two hexadecimal digits.
fn is_pack_dir(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| from_hex::<1>(name).is_ok())
}

fn listed_and_not_found(name: &str) -> io::Error {
    io::Error::other(format!(
        "{name} is listed, and not found: the directory is damaged; check the file system"
    ))
}

fn missing(area: Area, place: &str) -> io::Error {
    let then = match area {
        Area::Index => {
            "If it is lost, make an empty one (mkdir), and bale repair index lists the packs again"
        }
        Area::Keys => "Without a key in it the repository cannot be read",
        // An empty one in its place would be believed: the next prunes would remove everything.
        _ => {
            "Make an empty one (mkdir) only if nothing was ever in it: whatever is not in it \
             counts as gone"
        }
    };
    io::Error::other(MissingArea(format!(
        "the directory {place}/{area} is not there: bring it back from where it went, or from a \
         copy of the repository. {then}"
    )))
}
