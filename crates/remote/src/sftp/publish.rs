//! Objects on a server: written in `tmp/`, made durable as far as the server can, given their name.
//!
//! A name is given by `hardlink@openssh.com`, which never replaces. A server that does not have it,
//! or announces it and refuses, gets RENAME after a look; some servers replace by that, which does
//! no harm to names that are hashes. FAILURE does not say why: a look at the name tells "somebody
//! has done it" from a real one, and the free space tells "full". Directories are not synced, for
//! which there is no request.

use super::Core;
use super::answer::{is_plain_failure, is_refusal};
use super::request::Request;
use super::session::{OpenHandle, Session};
use super::temporary::TEMPORARY_DIR;
use super::transfer::{self, Written};
use super::wire::SftpAttributes;
use crate::areas::{NEEDED, missing};
use bale_repository::store::{Area, ObjectName};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// How often a name is tried again after its directory was missing: another process may remove it
/// once more.
const NAMING_ATTEMPTS_MAX: u32 = 3;

/// Where an object is to be, relative to the repository.
pub(super) struct Target {
    path: String,
    dir: String,
    /// Its area, unless it is no object.
    area: Option<Area>,
}

impl Target {
    pub(super) fn object(name: &ObjectName) -> Target {
        Target {
            path: name.path(),
            dir: name.dir(),
            area: Some(name.area),
        }
    }

    /// A file beside the areas.
    pub(super) fn top(name: &str) -> Target {
        Target {
            path: name.to_owned(),
            dir: String::new(),
            area: None,
        }
    }
}

/// A file in `tmp/`; closed and removed with the value, without waiting.
pub(super) struct Temporary {
    file: Option<OpenHandle>,
    path: String,
    /// It is removed, or has another name.
    is_gone: bool,
    session: Arc<Session>,
}

impl Temporary {
    /// A file that was just created.
    pub(super) fn new(session: &Arc<Session>, path: String, file: OpenHandle) -> Temporary {
        Temporary {
            file: Some(file),
            path,
            is_gone: false,
            session: session.clone(),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn file(&self) -> io::Result<&OpenHandle> {
        let closed = || io::Error::other("the temporary file is closed");
        self.file.as_ref().ok_or_else(closed)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.file = None;
        // What cannot be removed is swept another day.
        if !self.is_gone {
            let _ = self.session.send(&Request::Remove(&self.path));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Naming {
    Hardlink,
    Rename,
}

impl Core {
    /// Makes a whole object; one of that name that is there already stays.
    pub(super) fn publish(
        &self,
        session: &Arc<Session>,
        target: &Target,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.room.note(bytes.len() as u64);
        let published = self.write_and_name(session, target, bytes);
        published.map_err(|error| self.full_or(session, error))
    }

    /// What was the matter with a file: perhaps that there is no room for it.
    pub(super) fn full_or(&self, session: &Session, error: io::Error) -> io::Error {
        let is_unclear = is_plain_failure(&error) || error.kind() == ErrorKind::WriteZero;
        match is_unclear {
            true => self.room.full_or(error, session.free_bytes(self.root())),
            false => error,
        }
    }

    fn write_and_name(
        &self,
        session: &Arc<Session>,
        target: &Target,
        bytes: &[u8],
    ) -> io::Result<()> {
        let len = bytes.len() as u64;
        // What is there already is seldom written again: nobody waits to know it.
        let there = session.send(&Request::Lstat(&self.at(&target.path)))?;
        let is_there = || Ok::<_, io::Error>(there.attributes()?.is_some_and(|it| it.is_file()));
        let ahead = self.opened_ahead(session);
        self.open_next_ahead(session, target.area, bytes.len())?;
        let temporary = match ahead {
            Some(temporary) => {
                let written = transfer::write_at(session, temporary.file()?, 0, bytes)?;
                let whole = sync_whole(session, temporary, written, len);
                if is_there()? {
                    return Ok(());
                }
                whole?
            }
            None => {
                let temporary = self.create_temporary(session);
                if is_there()? {
                    return Ok(());
                }
                let temporary = temporary?;
                let written = transfer::write_at(session, temporary.file()?, 0, bytes)?;
                sync_whole(session, temporary, written, len)?
            }
        };
        self.give_name(session, temporary, target, len)
    }

    pub(super) fn give_name(
        &self,
        session: &Arc<Session>,
        mut temporary: Temporary,
        target: &Target,
        len: u64,
    ) -> io::Result<()> {
        let path = self.at(&target.path);
        let mut naming = match session.has_hardlink() {
            true => Naming::Hardlink,
            false => Naming::Rename,
        };
        let mut attempts_left = NAMING_ATTEMPTS_MAX;
        loop {
            let named = match naming {
                Naming::Hardlink => hardlink(session, &temporary, &path, len),
                Naming::Rename => rename(session, &mut temporary, &path, len),
            };
            let Err(error) = named else {
                return Ok(());
            };
            if !is_refusal(&error) {
                return Err(error);
            }
            if error.kind() == ErrorKind::Unsupported && naming == Naming::Hardlink {
                session.lacks_hardlink();
                naming = Naming::Rename;
                continue;
            }
            if let Some(there) = session.lstat(&path)? {
                return match there.is_file() && there.len == Some(len) {
                    true => Ok(()), // Somebody has done it.
                    false => Err(in_the_way(there.len, len)),
                };
            }
            attempts_left -= 1;
            if attempts_left == 0 {
                return Err(error);
            }
            if !session.is_dir(&self.at(&target.dir))? {
                self.make_dirs_of(session, target)?;
            } else if naming == Naming::Hardlink && error.kind() != ErrorKind::NotFound {
                // A file system without links, perhaps.
                naming = Naming::Rename;
            }
            // Otherwise somebody has made the directory, or removed the name, this moment.
        }
    }

    /// Each run has a directory of its own in `runs/`. Others may have been left out by a tool that
    /// copies a repository without empty directories.
    fn make_dirs_of(&self, session: &Session, target: &Target) -> io::Result<()> {
        if let Some(area) = target.area.filter(|area| NEEDED.contains(area))
            && !session.is_dir(&self.at(area.text()))?
        {
            return Err(missing(area));
        }
        if let Some((parent, _)) = target.dir.rsplit_once('/') {
            make_dir(session, &self.at(parent))?;
        }
        make_dir(session, &self.at(&target.dir))
    }

    pub(super) fn remove(&self, session: &Session, name: &ObjectName) -> io::Result<()> {
        let path = self.at(&name.path());
        session.forget_open(&path);
        match session.send(&Request::Remove(&path))?.done() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_refusal(&error) && session.lstat(&path)?.is_none() => {}
            Err(error) => return Err(error),
        }
        if name.area.is_by_run() {
            // Fails unless it was the last object; either way the run is gone or still has records.
            let _ = session
                .send(&Request::Rmdir(&self.at(&name.dir())))
                .and_then(|sent| sent.done());
        }
        Ok(())
    }

    /// A new file in `tmp/`, which is made if it is missing.
    pub(super) fn create_temporary(&self, session: &Arc<Session>) -> io::Result<Temporary> {
        let path = self.at(&self.draw_temporary_name()?);
        let open = || session.opened(session.send(&Request::OpenNew(&path))?);
        let opened = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_dir(session, &self.at(TEMPORARY_DIR))?;
                open()
            }
            opened => opened,
        };
        Ok(Temporary::new(session, path.clone(), opened?))
    }
}

/// Makes a directory, unless it is there.
pub(super) fn make_dir(session: &Session, path: &str) -> io::Result<()> {
    match session.send(&Request::Mkdir(path))?.done() {
        Err(error) if is_refusal(&error) && session.is_dir(path)? => Ok(()),
        made => made,
    }
}

/// Syncs and closes behind what was written last, and looks whether all of it is there.
pub(super) fn sync_whole(
    session: &Session,
    mut temporary: Temporary,
    written: Written<'_>,
    len: u64,
) -> io::Result<Temporary> {
    let Some(file) = temporary.file.take() else {
        return Err(io::Error::other("the temporary file is closed"));
    };
    let sync = session
        .has_fsync()
        .then(|| session.send(&Request::Fsync(&file.bytes)));
    let sync = sync.transpose()?;
    let closed = file.close()?;
    let there = session.send(&Request::Lstat(&temporary.path))?;
    written.done()?;
    match sync.map(|sync| sync.done()) {
        Some(Err(error)) if error.kind() == ErrorKind::Unsupported => session.lacks_fsync(),
        Some(Err(error)) => return Err(error),
        Some(Ok(())) | None => {}
    }
    closed.done()?;
    // A server that works on several requests at once may have looked before it closed.
    check_whole(there.attributes()?, len)
        .or_else(|_| check_whole(session.lstat(&temporary.path)?, len))?;
    Ok(temporary)
}

/// The last look travels with the request.
fn hardlink(session: &Session, temporary: &Temporary, path: &str, len: u64) -> io::Result<()> {
    let named = session.send(&Request::Hardlink(&temporary.path, path))?;
    let there = session.send(&Request::Lstat(path))?;
    named.done()?;
    // A server that works on several requests at once may have looked before it named.
    check_whole(there.attributes()?, len).or_else(|_| check_whole(session.lstat(path)?, len))
}

/// The look before is for servers that replace, the one behind for those that lie.
fn rename(session: &Session, temporary: &mut Temporary, path: &str, len: u64) -> io::Result<()> {
    if let Some(there) = session.lstat(path)? {
        return match there.is_file() && there.len == Some(len) {
            true => Ok(()),
            false => Err(in_the_way(there.len, len)),
        };
    }
    session
        .send(&Request::Rename(&temporary.path, path))?
        .done()?;
    temporary.is_gone = true;
    check_whole(session.lstat(path)?, len)
}

fn check_whole(there: Option<SftpAttributes>, len: u64) -> io::Result<()> {
    match there {
        Some(there) if there.is_file() && there.len == Some(len) => Ok(()),
        there => Err(incomplete(there.and_then(|there| there.len), len)),
    }
}

fn in_the_way(there: Option<u64>, len: u64) -> io::Error {
    let there = there.map_or("something".to_owned(), |there| format!("{there} bytes"));
    let text = format!("there is {there} of that name already, and not its {len} bytes");
    io::Error::new(ErrorKind::AlreadyExists, text)
}

fn incomplete(written: Option<u64>, len: u64) -> io::Error {
    let written = written.map_or("nothing".to_owned(), |written| format!("{written} bytes"));
    let text = format!("of the {len} bytes that were written, the server has {written}");
    io::Error::new(ErrorKind::WriteZero, text)
}
