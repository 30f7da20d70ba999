//! Estimates the totals for progress: those of the parent, or what `statfs` reports.

use super::parent::Parent;
use bale_format::snapshot::Totals;
use bale_source::scan::{Sources, has_mounts_below};
use std::path::Path;

/// `stays`: other file systems that begin below the source are left out.
pub(super) fn totals(parent: &Parent, sources: &Sources, stays: bool) -> Totals {
    if parent.totals.files > 0 {
        return parent.totals;
    }
    // Of what is mounted below it the file system knows nothing.
    let is_all = |path: &Path| is_mount_point(path) && (stays || !has_mounts_below(path));
    match sources.paths() {
        [one] if is_all(one) => of_filesystem(one).unwrap_or_default(),
        _ => Totals::default(),
    }
}

fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| {
        std::fs::symlink_metadata(path)
            .map(|metadata| metadata.dev())
            .ok()
    };
    match path.parent() {
        None => true,
        Some(parent) => device(path).is_some() && device(path) != device(parent),
    }
}

/// Inodes and bytes in use: a few more than files and their sizes.
fn of_filesystem(path: &Path) -> Option<Totals> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Totals {
        files: stat.f_files.saturating_sub(stat.f_ffree),
        bytes: stat
            .f_blocks
            .saturating_sub(stat.f_bfree)
            .saturating_mul(stat.f_frsize),
        ..Totals::default()
    })
}
