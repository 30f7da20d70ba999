//! The directories of a repository, and which of them are never made again.

use super::temporary::TEMPORARY_DIR;
use super::{Core, RemoteFiles};
use crate::areas::{self, NEEDED};
use bale_pipeline::ordered;
use bale_repository::store::{Area, ObjectName};
use std::io::{self, ErrorKind};

impl<F: RemoteFiles> Core<F> {
    /// Directories first; `config` is the caller's last step.
    pub(super) fn lay_out(&self) -> io::Result<()> {
        for config in ObjectName::configs() {
            if self.len(&config.path())?.is_some() {
                return Err(ErrorKind::AlreadyExists.into());
            }
        }
        self.files.make_root()?;
        for dir in areas::top_dirs().chain([TEMPORARY_DIR.to_owned()]) {
            self.files.make_dir(&dir)?;
        }
        let dirs: Vec<_> = areas::pack_dirs().collect();
        let make = |_: &mut (), dir: &String| self.files.make_dir(dir);
        ordered::in_order_by(
            self.files.dirs_at_once(),
            dirs.iter(),
            || (),
            make,
            |made| made,
        )
    }

    /// Each run has a directory of its own in `runs/`. Others may have been left out by a tool that
    /// copies a repository without empty directories.
    pub(super) fn make_dirs_of(&self, name: &ObjectName) -> io::Result<()> {
        if NEEDED.contains(&name.area) && !self.files.is_dir(name.area.text())? {
            return Err(areas::missing(name.area));
        }
        let dir = name.dir();
        if let Some((parent, _)) = dir.rsplit_once('/') {
            self.files.make_dir(parent)?;
        }
        self.files.make_dir(&dir)
    }

    /// What a listing of an area without a directory is: nothing, if it is made when it is needed;
    /// `NotFound`, if there is no repository.
    pub(super) fn check_may_be_missing(&self, area: Area) -> io::Result<()> {
        for config in ObjectName::configs() {
            if self.len(&config.path())?.is_some() {
                return match NEEDED.contains(&area) {
                    true => Err(areas::missing(area)),
                    false => Ok(()),
                };
            }
        }
        Err(ErrorKind::NotFound.into())
    }
}
