//! Restoring where something is already: what `restore --delete` must leave, and which targets are
//! refused.

use super::left_out;
use crate::args::{Global, Restore};
use crate::exit::Usage;
use crate::{output, place};
use anyhow::Result;
use bale_format::Snapshot;
use bale_repository::repository::Named;
use bale_restore::{DeviceAndInode, Protected};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What this restore must not delete. Sources and the rest of the snapshot's part the engine adds.
pub fn guard(global: &Global, snapshot: &Named) -> Protected {
    let left_out = left_out::of_record(&snapshot.1.excludes);
    Protected {
        knows_left_out: left_out.is_some(),
        left_out: Arc::new(left_out.unwrap_or_default()),
        in_use: place::in_use(global)
            .iter()
            .flat_map(|path| identities(path))
            .collect(),
        ..Protected::default()
    }
}

/// What is at a path and, if that is a link, what it leads to.
fn identities(path: &Path) -> Vec<DeviceAndInode> {
    let found = [std::fs::symlink_metadata(path), std::fs::metadata(path)];
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    found.into_iter().flatten().map(identity).collect()
}

/// Deleting in `/`, in somebody's home, or above one, must be meant: the names in it come from many
/// programs, and few of them from a backup.
pub fn refuse_large_targets(options: &Restore, target: &Path) -> Result<()> {
    let is_meant = options.force || options.dry_run || !options.include.is_empty();
    if !options.delete || is_meant {
        return Ok(());
    }
    let Ok(real) = std::fs::canonicalize(target) else {
        return Ok(());
    };
    // A home may be mounted elsewhere, too.
    let is_it = |path: &Path| {
        identities(path)
            .iter()
            .any(|it| identities(&real).contains(it))
    };
    let mut homes = homes()
        .into_iter()
        .filter_map(|home| std::fs::canonicalize(home).ok());
    let mut is_home_or_above =
        |home: PathBuf| home != Path::new("/") && home.ancestors().any(&is_it);
    let what = match () {
        () if is_it(Path::new("/")) => "is the whole system",
        () if homes.any(&mut is_home_or_above) => "is a home directory, or contains one",
        () => return Ok(()),
    };
    let place = output::path(target);
    Err(Usage(format!(
        "{place} {what}: --delete there needs --include, or --force (--dry-run -v names what would \
         be deleted)"
    ))
    .into())
}

/// Of a snapshot of images nobody knows what else was in the directory that a target is: nothing
/// would be deleted there, and that is no answer to who says that it be.
pub fn refuse_images(options: &Restore, snapshot: &Snapshot) -> Result<()> {
    if !options.delete || snapshot.images.is_empty() {
        return Ok(());
    }
    let text = "--delete is of directories that were backed up, and this snapshot is of images: an \
                image replaces what is in its target anyway, and files in one are restored into a \
                new directory";
    Err(Usage(text.to_owned()).into())
}

/// A restore into a repository would put files among its objects: it must be meant.
pub fn refuse_repositories(global: &Global, options: &Restore) -> Result<()> {
    let target = options.target.as_ref().or(options.to_ext4.as_ref());
    // An image takes the place of what is there: nobody means an object of the repository that is
    // read.
    let is_meant = options.force && options.to_ext4.is_none();
    let Some(target) = target.filter(|_| !is_meant && !options.dry_run) else {
        return Ok(());
    };
    let parts: Vec<DeviceAndInode> = (place::repositories(global).iter())
        .flat_map(|path| identities(path))
        .collect();
    let target = place::resolved(target);
    let mut above = target.ancestors();
    match above.find(|directory| is_repository(directory, &parts)) {
        None => Ok(()),
        Some(directory) => Err(Usage(format!(
            "{} is, or is in, {}, which is a repository of Bale: restore to another place (--force \
             restores there all the same)",
            output::path(&target),
            output::path(directory)
        ))
        .into()),
    }
}

/// What is not there, or cannot be opened, is none.
fn is_repository(directory: &Path, parts: &[DeviceAndInode]) -> bool {
    let is_part = || identities(directory).iter().any(|it| parts.contains(it));
    let is_marked = || {
        let opened = std::fs::File::open(directory);
        opened.is_ok_and(|opened| Protected::default().is_repository(opened.as_fd(), b"."))
    };
    directory.is_dir() && (is_part() || is_marked())
}

/// Home directories that this machine knows by itself.
fn homes() -> Vec<PathBuf> {
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    let home = |line: &[u8]| {
        let home = line.split(|byte| *byte == b':').nth(5)?;
        Some(PathBuf::from(OsStr::from_bytes(home)))
    };
    let of_users = users.split(|byte| *byte == b'\n').filter_map(home);
    let own = std::env::var_os("HOME").map(PathBuf::from);
    own.into_iter()
        .chain(of_users)
        .filter(|home| home.is_absolute())
        .collect()
}
