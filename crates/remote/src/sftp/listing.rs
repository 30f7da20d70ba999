//! Listings: several directories at once, each streamed, what is foreign told from objects, and
//! nothing taken for empty that is only missing.

use super::Core;
use super::request::Request;
use super::session::{OpenHandle, Session};
use super::wire::{SftpAttributes, SftpName};
use crate::areas::{self, NEEDED, is_own_name, missing};
use bale_format::id::{from_hex, hex};
use bale_repository::store::{Area, ForeignEntry, ForeignKind, ObjectInfo, ObjectName};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

/// Requests for names in all directories that are read at the same time, and in each of them: with
/// one round trip for a hundred names, 256 directories would take minutes, and the second answer
/// says that there are no more names. An answer may be as long as a packet, and is some kilobytes.
const REQUESTS_AHEAD: usize = 512;
const REQUESTS_AHEAD_OF_ONE: usize = 2;

/// Names in one directory: a server that has more has no end.
const NAMES_MAX: u64 = 1 << 22;

/// Directories of unfinished runs: few.
const RUNS_MAX: usize = 1 << 16;

/// What was found in a directory: which of those asked for, and the name.
type Found<'a> = dyn FnMut(usize, SftpName) -> io::Result<()> + 'a;

/// Who learns of what a listing brings.
pub(super) struct Listed<'a> {
    pub(super) found: &'a mut dyn FnMut(ObjectInfo),
    pub(super) foreign: &'a mut dyn FnMut(ForeignEntry),
}

impl Listed<'_> {
    fn foreign(&mut self, dir: &str, name: &[u8], kind: ForeignKind) {
        let name = String::from_utf8_lossy(name);
        if name != "." && name != ".." && !is_own_name(dir, &name) {
            let path = format!("{dir}/{name}");
            (self.foreign)(ForeignEntry { path, kind });
        }
    }
}

/// A directory that is being read.
struct OpenDir {
    at: usize,
    handle: OpenHandle,
    names: u64,
}

impl Core {
    pub(super) fn list_area(
        &self,
        session: &Session,
        area: Area,
        listed: &mut Listed<'_>,
    ) -> io::Result<()> {
        match area {
            // Their names are known. A tool that copies a repository may have left out the empty
            // ones, but not the one that they are in.
            Area::Packs => {
                let dirs: Vec<_> = areas::pack_dirs().collect();
                let area_is_there = session.send(&Request::Stat(&self.at(area.text())))?;
                self.list_objects(session, &dirs, listed)?;
                match area_is_there
                    .attributes()?
                    .is_some_and(|there| there.is_dir())
                {
                    true => Ok(()),
                    false => Err(missing(area)),
                }
            }
            area if area.is_by_run() => {
                let dirs = self.child_dirs::<16>(session, area, listed)?;
                // A run that ends meanwhile takes its directory with it.
                self.list_objects(session, &dirs, listed).map(drop)
            }
            area => match self.list_objects(session, &[area.text().to_owned()], listed)? {
                Some(_) => self.check_may_be_missing(session, area),
                None => Ok(()),
            },
        }
    }

    /// Names in a directory of ours; nothing if it is not there.
    pub(super) fn list_names(
        &self,
        session: &Session,
        dir: &str,
        found: &mut dyn FnMut(SftpName) -> io::Result<()>,
    ) -> io::Result<()> {
        let dirs = [self.at(dir)];
        read_dirs(session, &dirs, &mut |_, name| found(name)).map(drop)
    }

    /// What stands among the directories of packs. Who lists objects knows their names.
    pub(super) fn foreign_among_packs(
        &self,
        session: &Session,
        listed: &mut Listed<'_>,
    ) -> io::Result<()> {
        self.child_dirs::<1>(session, Area::Packs, listed).map(drop)
    }

    /// What stands in the place of `config` or its copy.
    pub(super) fn foreign_single(
        &self,
        session: &Session,
        name: &ObjectName,
    ) -> io::Result<Option<ForeignEntry>> {
        let path = name.path();
        let there = session.lstat(&self.at(&path))?;
        let kind = there.as_ref().and_then(foreign_kind);
        Ok(kind.map(|kind| ForeignEntry { path, kind }))
    }

    /// Objects in directories; the last of those that are not there is returned.
    fn list_objects(
        &self,
        session: &Session,
        dirs: &[String],
        listed: &mut Listed<'_>,
    ) -> io::Result<Option<String>> {
        let mut last_gone = None;
        for dirs in dirs.chunks(session.dirs_at_once(dirs.len())?) {
            let paths: Vec<_> = dirs.iter().map(|dir| self.at(dir)).collect();
            let gone = read_dirs(session, &paths, &mut |at, file| {
                let dir = &dirs[at];
                let path = str::from_utf8(&file.name).map(|name| format!("{dir}/{name}"));
                let Some(name) = path.ok().as_deref().and_then(ObjectName::parse) else {
                    listed.foreign(dir, &file.name, ForeignKind::Name);
                    return Ok(());
                };
                let Some(there) = self.whole(session, &name, file.attributes)? else {
                    return Ok(());
                };
                match foreign_kind(&there) {
                    Some(kind) => listed.foreign(dir, &file.name, kind),
                    None => object_info(name, &there)?
                        .into_iter()
                        .for_each(&mut listed.found),
                }
                Ok(())
            })?;
            last_gone = gone.map(|gone| dirs[gone].clone()).or(last_gone);
        }
        Ok(last_gone)
    }

    /// What a server says of an object, which it does not always say in a listing.
    fn whole(
        &self,
        session: &Session,
        name: &ObjectName,
        attributes: SftpAttributes,
    ) -> io::Result<Option<SftpAttributes>> {
        match attributes.mode.is_none() || attributes.len.is_none() {
            true => session.lstat(&self.at(&name.path())),
            false => Ok(Some(attributes)),
        }
    }

    /// Directories of `N` bytes in hexadecimal digits.
    fn child_dirs<const N: usize>(
        &self,
        session: &Session,
        area: Area,
        listed: &mut Listed<'_>,
    ) -> io::Result<Vec<String>> {
        let mut dirs = BTreeSet::new();
        let gone = read_dirs(session, &[self.at(area.text())], &mut |_, file| {
            let id = str::from_utf8(&file.name).ok();
            let id = id.and_then(|name| from_hex::<N>(name).ok());
            let may_be_dir = file.attributes.mode.is_none() || !file.attributes.is_file();
            match id {
                Some(id) if may_be_dir => {
                    dirs.insert(format!("{}/{}", area.text(), hex(&id)));
                }
                Some(_) => listed.foreign(area.text(), &file.name, ForeignKind::File),
                None => listed.foreign(area.text(), &file.name, ForeignKind::Name),
            }
            match dirs.len() > RUNS_MAX {
                true => Err(endless(area.text())),
                false => Ok(()),
            }
        })?;
        if gone.is_some() {
            self.check_may_be_missing(session, area)?;
        }
        Ok(dirs.into_iter().collect())
    }

    /// An area that is made when it is needed may be missing, but not the whole repository.
    fn check_may_be_missing(&self, session: &Session, area: Area) -> io::Result<()> {
        if NEEDED.contains(&area) {
            return Err(missing(area));
        }
        match session.is_dir(self.root())? {
            true => Ok(()),
            false => Err(io::Error::other(
                "the directory of the repository is not there",
            )),
        }
    }
}

/// Of what stands under the name of an object.
fn foreign_kind(there: &SftpAttributes) -> Option<ForeignKind> {
    match (there.is_file(), there.is_dir()) {
        (true, _) => None,
        (false, true) => Some(ForeignKind::Directory),
        (false, false) => Some(ForeignKind::Link),
    }
}

/// What a server says of an object; nothing for what is no file.
pub(super) fn object_info(
    name: ObjectName,
    attributes: &SftpAttributes,
) -> io::Result<Option<ObjectInfo>> {
    if !attributes.is_file() {
        return Ok(None);
    }
    let Some(len) = attributes.len else {
        let text = format!("the server does not say how long {name} is");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    };
    Ok(Some(ObjectInfo {
        name,
        len,
        modified: attributes.modified_time(),
    }))
}

/// Reads few directories at the same time; returns the last that is not there, if one is not.
fn read_dirs(
    session: &Session,
    paths: &[String],
    found: &mut Found<'_>,
) -> io::Result<Option<usize>> {
    let sent: Vec<_> = (paths.iter())
        .map(|path| session.send(&Request::Opendir(path)))
        .collect::<io::Result<_>>()?;
    let (mut open, mut gone) = (Vec::new(), None);
    for (at, sent) in sent.into_iter().enumerate() {
        match session.opened(sent) {
            Ok(handle) => open.push(OpenDir {
                at,
                handle,
                names: 0,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => gone = Some(at),
            Err(error) => return Err(error),
        }
    }
    while !open.is_empty() {
        let mut asked = Vec::with_capacity(open.len());
        let ahead = (REQUESTS_AHEAD / open.len()).clamp(1, REQUESTS_AHEAD_OF_ONE);
        for dir in open {
            let sent: Vec<_> = (0..ahead)
                .map(|_| session.send(&Request::Readdir(&dir.handle.bytes)))
                .collect::<io::Result<_>>()?;
            asked.push((dir, sent));
        }
        open = Vec::with_capacity(asked.len());
        for (mut dir, sent) in asked {
            let mut is_at_end = false;
            for sent in sent {
                let Some(names) = sent.names()? else {
                    is_at_end = true;
                    continue;
                };
                dir.names += names.len() as u64;
                if dir.names > NAMES_MAX {
                    return Err(endless(&paths[dir.at]));
                }
                names.into_iter().try_for_each(|name| found(dir.at, name))?;
            }
            if !is_at_end {
                open.push(dir);
            }
        }
    }
    Ok(gone)
}

fn endless(dir: &str) -> io::Error {
    let text = format!("the listing of {dir} has no end");
    io::Error::new(ErrorKind::InvalidData, text)
}
