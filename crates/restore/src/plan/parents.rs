//! The directories that rows are in: which of them are refused, and which come along though nobody
//! chose them.

use super::Planner;
use crate::RestoreError;
use crate::names::check_path;
use crate::select::{VAIN_LOOKUPS_MAX, above, above_anew};
use bale_format::entry::is_below;
use bale_format::{Key, Kind};
use bytes::Bytes;

impl Planner<'_> {
    /// Looks at a run of rows of one parent.
    pub(super) fn enter(&mut self, parent: &Bytes) -> Result<(), RestoreError> {
        if self.parent.as_ref().is_some_and(|(last, _)| last == parent) {
            return Ok(());
        }
        self.parent_bad = false;
        self.above_pushed = false;
        let relative = if !is_below(parent, &self.strip) {
            self.problem(parent, "restore", "refused: outside the requested path");
            self.parent_bad = true;
            Bytes::new()
        } else if let Err(bad) = check_path(parent) {
            self.problem(
                parent,
                "restore",
                &format!("refused with all below it: {bad}"),
            );
            self.parent_bad = true;
            Bytes::new()
        } else {
            let cut = match self.strip.len() {
                0 => 0,
                len => (len + 1).min(parent.len()),
            };
            parent.slice(cut..)
        };
        if !self.options.select.is_everything() {
            self.above = above(self.options.select, parent);
        }
        self.parent = Some((parent.clone(), relative));
        Ok(())
    }

    /// Directories that are not wanted themselves, but something in them is.
    pub(super) fn directories_above(&mut self, parent: &Bytes) -> Result<(), RestoreError> {
        let last = std::mem::replace(&mut self.above_last, parent.clone());
        let mut in_vain = 0;
        // What is above the directory that was looked at last has been pushed with it.
        for path in above_anew(parent, &last, self.strip.len()) {
            let row = match self.catalog.lookup(path) {
                Ok(row) => row,
                Err(trouble) => {
                    self.damage(path, "read the catalog", &trouble.to_string());
                    None
                }
            };
            let Some(mut entry) = row.filter(|entry| entry.kind == Kind::Directory) else {
                in_vain += 1;
                if in_vain == VAIN_LOOKUPS_MAX {
                    break;
                }
                continue;
            };
            in_vain = 0;
            let cut = match self.strip.len() {
                0 => 0,
                len => len + 1,
            };
            let key = Key::of_path(&path[cut.min(path.len())..]);
            (entry.parent, entry.name) = (key.parent, key.name);
            self.push_directory(&entry)?;
        }
        Ok(())
    }
}
