//! Listings of a repository directory, which are believed only as far as they agree with
//! themselves.
//!
//! A listing that leaves an object out would cost what that object uses. A damaged directory names
//! what it does not find, and a directory that is not there lists nothing: neither is taken for "no
//! such object". What was removed meanwhile is listed no more when its directory is listed again;
//! what is listed again and not found is damage.

use super::{Core, pack_dirs};
use crate::store::disk::{DirEntryKind, FileStat};
use crate::store::{Area, ObjectInfo, ObjectName};
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

impl Core {
    pub(super) fn list_area(
        &self,
        area: Area,
        found: &mut dyn FnMut(ObjectInfo),
    ) -> io::Result<()> {
        match area {
            Area::Packs => {
                self.names(area.text(), &mut |_, _| {})?;
                pack_dirs().try_for_each(|dir| self.list_dir(&dir, found))
            }
            Area::Runs => (self.run_dirs()?.iter()).try_for_each(|dir| self.list_dir(dir, found)),
            area => self.list_dir(area.text(), found),
        }
    }

    /// Objects of one directory.
    fn list_dir(&self, dir: &str, found: &mut dyn FnMut(ObjectInfo)) -> io::Result<()> {
        let mut unfound = self.look(dir, &|_| true, found)?;
        for _ in 1..LISTINGS_MAX {
            if unfound.is_empty() {
                return Ok(());
            }
            unfound = self.look(dir, &|name| unfound.contains(name), found)?;
        }
        match unfound.first() {
            None => Ok(()),
            Some(name) => Err(listed_and_not_found(&name.to_string())),
        }
    }

    /// Lists once what is asked for; tells the names under which nothing is.
    fn look(
        &self,
        dir: &str,
        is_asked: &dyn Fn(&ObjectName) -> bool,
        found: &mut dyn FnMut(ObjectInfo),
    ) -> io::Result<BTreeSet<ObjectName>> {
        let mut unfound = BTreeSet::new();
        let mut failed = None;
        // Kinds in a listing are not asked: a damaged one would hide an object.
        self.names(dir, &mut |file_name, _| {
            let path = str::from_utf8(file_name).map(|file_name| format!("{dir}/{file_name}"));
            let name = path.ok().as_deref().and_then(ObjectName::parse);
            let Some(name) = name.filter(is_asked) else {
                return;
            };
            if failed.is_some() {
                return;
            }
            match self.disk.stat(&name.path()) {
                Ok(Some(FileStat {
                    kind: DirEntryKind::File,
                    len,
                    modified,
                })) => found(ObjectInfo {
                    name,
                    len,
                    modified,
                }),
                Ok(Some(_)) => {} // Foreign.
                Ok(None) if unfound.len() < UNFOUND_MAX => {
                    unfound.insert(name);
                }
                Ok(None) => failed = Some(listed_and_not_found(&name.to_string())),
                Err(error) => failed = Some(error),
            }
        })?;
        failed.map_or(Ok(unfound), Err)
    }

    /// One for each unfinished run: few.
    fn run_dirs(&self) -> io::Result<Vec<String>> {
        let mut dirs = Vec::new();
        self.names(Area::Runs.text(), &mut |name, kind| {
            let run = str::from_utf8(name)
                .ok()
                .and_then(|name| from_hex::<16>(name).ok());
            if let (Some(run), None | Some(DirEntryKind::Dir)) = (run, kind) {
                dirs.push(format!("{}/{}", Area::Runs.text(), hex(&run)));
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
    io::Error::other(format!(
        "the directory {place}/{area} is not there: bring it back from where it went, or from a \
         copy of the repository. {then}"
    ))
}
