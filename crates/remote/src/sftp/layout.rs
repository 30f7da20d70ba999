//! The directories of a new repository.

use super::publish::make_dir;
use super::request::Request;
use super::session::Session;
use super::temporary::TEMPORARY_DIR;
use super::{Core, answer};
use crate::areas;
use bale_repository::store::ObjectName;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Directories that are made at the same time.
const DIRS_AT_ONCE: usize = 256;

impl Core {
    /// Directories first; `config` is the caller's last step.
    pub(super) fn lay_out(&self, session: &Arc<Session>) -> io::Result<()> {
        for config in ObjectName::configs() {
            if session.lstat(&self.at(&config.path()))?.is_some() {
                return Err(ErrorKind::AlreadyExists.into());
            }
        }
        make_with_parents(session, self.root())?;
        let top: Vec<_> = areas::top_dirs()
            .chain([TEMPORARY_DIR.to_owned()])
            .collect();
        self.make_all(session, &top)?;
        let packs: Vec<_> = areas::pack_dirs().collect();
        self.make_all(session, &packs)
    }

    fn make_all(&self, session: &Session, dirs: &[String]) -> io::Result<()> {
        for dirs in dirs.chunks(DIRS_AT_ONCE) {
            let paths: Vec<_> = dirs.iter().map(|dir| self.at(dir)).collect();
            let sent: Vec<_> = (paths.iter())
                .map(|path| session.send(&Request::Mkdir(path)))
                .collect::<io::Result<_>>()?;
            for (path, sent) in paths.iter().zip(sent) {
                match sent.done() {
                    Err(error) if answer::is_refusal(&error) && session.is_dir(path)? => {}
                    made => made?,
                }
            }
        }
        Ok(())
    }
}

fn make_with_parents(session: &Session, path: &str) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut next = Some(path);
    while let Some(dir) = next.filter(|dir| !dir.is_empty()) {
        if session.is_dir(dir)? {
            break;
        }
        missing.push(dir);
        next = dir
            .rsplit_once('/')
            .map(|(parent, _)| parent.trim_end_matches('/'));
    }
    missing
        .into_iter()
        .rev()
        .try_for_each(|dir| make_dir(session, dir))
}
