//! One restore, before and after: what the target must hold then, path by path.

use std::collections::BTreeSet;

use bale_restore::Overwrite;

use super::options;
use super::rules::is_below_a_source;
use super::steps::{Restore, Stop};
use super::tree::{Node, PathBytes, Tree, is_within, join, text};
use super::world::{Held, Kept};

/// Begins the end of the name of a salvage.
const SALVAGED: &[u8] = b".bale-salvaged";

/// One restore, before and after.
pub struct Case<'a> {
    pub kept: &'a Kept,
    pub step: &'a Restore,
    pub below: &'a [u8],
    pub include: &'a [String],
    pub exclude: &'a [String],
    pub before: &'a Tree,
    pub after: &'a Tree,
    /// It said so.
    pub is_exact: bool,
    pub is_done: bool,
    /// Of what was there, what the backup would have left out.
    pub left_out: &'a BTreeSet<PathBytes>,
}

impl Case<'_> {
    pub fn check(&self) -> Held {
        if self.step.dry_run {
            return match self.before == self.after {
                true => Ok(()),
                false => Err("R3 a dry run of a restore changed the target".to_owned()),
            };
        }
        let paths: BTreeSet<&PathBytes> = self.before.0.keys().chain(self.after.0.keys()).collect();
        for path in paths.into_iter().filter(|path| !path.is_empty()) {
            let in_snapshot = join(self.below, path);
            if self.kept.own.as_ref() == Some(&in_snapshot) || self.is_salvage(path) {
                continue;
            }
            let held = match self.kept.tree.0.get(&in_snapshot) {
                Some(row) if self.is_selected(path) => self.wanted(path, row),
                Some(row) if row.is_dir() && self.leads_to_selected(path) => Ok(()),
                None if self.leads_to_source(&in_snapshot) => Ok(()),
                _ => self.foreign(path, &in_snapshot),
            };
            held.map_err(|broken| format!("{}: {broken}", text(path)))?;
        }
        self.all_is_there()
    }

    /// What could be had of a damaged file lies beside what stands at its name.
    fn is_salvage(&self, path: &[u8]) -> bool {
        let Some(at) = path
            .windows(SALVAGED.len())
            .position(|part| part == SALVAGED)
        else {
            return false;
        };
        let of = join(self.below, &path[..at]);
        !self.before.0.contains_key(path)
            && self.kept.tree.0.contains_key(&of)
            && !self.kept.whole.contains(&of)
    }

    fn matches(&self, path: &[u8], patterns: &[String]) -> bool {
        let mut names = path.split(|byte| *byte == b'/');
        names.any(|name| {
            patterns
                .iter()
                .any(|pattern| match pattern.strip_prefix('*') {
                    Some(end) => name.ends_with(end.as_bytes()),
                    None => name == pattern.as_bytes(),
                })
        })
    }

    fn is_selected(&self, path: &[u8]) -> bool {
        let included = self.include.is_empty() || self.matches(path, self.include);
        included && !self.matches(path, self.exclude)
    }

    pub fn is_anything_selected(&self) -> bool {
        let mut rows = self.kept.tree.0.keys().filter_map(|row| self.relative(row));
        rows.any(|row| self.is_selected(&row))
    }

    fn leads_to_selected(&self, path: &[u8]) -> bool {
        let above = [path, b"/"].concat();
        let rows = self.kept.tree.0.keys().filter_map(|row| self.relative(row));
        rows.filter(|row| row.starts_with(&above))
            .any(|row| self.is_selected(&row))
    }

    /// A directory above the sources, which the snapshot has though nobody asked for it.
    fn leads_to_source(&self, in_snapshot: &[u8]) -> bool {
        self.kept
            .sources
            .iter()
            .any(|source| is_within(source, in_snapshot))
    }

    fn relative(&self, row: &[u8]) -> Option<PathBytes> {
        if !is_within(row, self.below) || row == self.below {
            return None;
        }
        let rest = &row[self.below.len()..];
        Some(rest.strip_prefix(b"/").unwrap_or(rest).to_vec())
    }

    /// What the snapshot does not have, or nobody wants of it.
    fn foreign(&self, path: &PathBytes, in_snapshot: &[u8]) -> Held {
        let (before, after) = (self.before.0.get(path), self.after.0.get(path));
        let may_go = self.step.delete
            && self.is_selected(path)
            && is_below_a_source(self.kept, in_snapshot)
            && !self.holds_left_out(path);
        match (before, after) {
            (Some(before), Some(after)) if same(before, after) => {
                // With `--include`, directories that hold nothing wanted are not looked at.
                let is_finished =
                    self.is_exact && self.step.stop == Stop::Never && self.include.is_empty();
                match may_go && is_finished && self.parent_is_known(in_snapshot) {
                    true => Err("R3 was to be deleted and is there".to_owned()),
                    false => Ok(()),
                }
            }
            // Its children may have gone.
            (Some(before), Some(after)) if before.is_dir() && after.is_dir() && may_go => Ok(()),
            (Some(before), Some(after)) => Err(format!(
                "R3 foreign, and changed from {before:?} to {after:?}"
            )),
            (Some(_), None) if may_go => Ok(()),
            (Some(_), None) => Err("R3 foreign, and gone".to_owned()),
            (None, Some(_)) => Err("R3 came from nowhere".to_owned()),
            (None, None) => Ok(()),
        }
    }

    /// Is there something at a path, below or above it, that stays?
    fn holds_left_out(&self, path: &[u8]) -> bool {
        let holds_unwanted = || {
            let mut inside = self.before.0.keys().filter(|other| is_within(other, path));
            inside.any(|other| !self.is_selected(other) || has_salvage_name(other))
        };
        let mut stays = self.left_out.iter();
        stays.any(|other| is_within(other, path) || is_within(path, other)) || holds_unwanted()
    }

    /// Where an exclude mark left out the content of a directory, nobody knows what is foreign. The
    /// mark itself is stored.
    fn parent_is_known(&self, in_snapshot: &[u8]) -> bool {
        let is_mark = |row: &[u8]| row.ends_with(b"/CACHEDIR.TAG");
        let at = in_snapshot
            .iter()
            .rposition(|byte| *byte == b'/')
            .unwrap_or(0);
        let parent = self.kept.tree.0.get(&in_snapshot[..at]);
        let has_children = self
            .kept
            .tree
            .0
            .keys()
            .any(|row| is_within(row, &in_snapshot[..at]) && row.len() > at && !is_mark(row));
        parent.is_some_and(Node::is_dir) && has_children
    }

    /// What the snapshot has and somebody wants.
    fn wanted(&self, path: &PathBytes, row: &Node) -> Held {
        let (before, after) = (self.before.0.get(path), self.after.0.get(path));
        let is_whole = self.kept.whole.contains(&join(self.below, path));
        if self.step.stop != Stop::Never {
            return Ok(());
        }
        let stays = before.is_some_and(|before| !before.is_dir() && self.must_stay(before, row));
        match (before, after) {
            (Some(before), Some(after)) if before.is_file() && after.is_file() => {
                let is_old = after.content == before.content;
                // Also of what cannot be read: another name of the inode may have it still.
                let is_new = after.content == row.content;
                // Another name of the inode may have stayed as it was.
                let is_others = self.content_of_other_names(row, &after.content);
                if !is_old && !is_new && !is_others {
                    return Err(
                        "R1 held bytes, and holds neither these nor the snapshot's".to_owned()
                    );
                }
                if stays && !is_old && !is_others {
                    return Err("R3 was to stay as it was".to_owned());
                }
            }
            (Some(before), None) if !is_whole && before.is_file() => {
                return Err("R1 was there, and cannot be restored, and is gone".to_owned());
            }
            (None, Some(after))
                if after.is_file()
                    && is_whole
                    && after.content != row.content
                    && self.is_exact
                    && !self.content_of_other_names(row, &after.content) =>
            {
                return Err("R1 restored with other bytes".to_owned());
            }
            _ => {}
        }
        match self.is_exact
            && after.is_some_and(|after| !self.is_right(before, after, row, is_whole))
        {
            true => Err(format!(
                "R1 said to be restored: {after:?}, and should be {row:?}"
            )),
            false => Ok(()),
        }
    }

    fn must_stay(&self, before: &Node, row: &Node) -> bool {
        match options::overwrite(self.step) {
            Overwrite::Always => false,
            Overwrite::Never | Overwrite::MetadataOnly => true,
            Overwrite::IfChanged => is_equal_by_times(before, row),
        }
    }

    fn content_of_other_names(&self, row: &Node, content: &[u8]) -> bool {
        if options::overwrite(self.step) == Overwrite::Always {
            return false;
        }
        let mut names = self
            .kept
            .tree
            .0
            .iter()
            .filter(|(_, other)| other.first_name == row.first_name);
        names.any(|(name, _)| {
            let name = self.relative(name);
            let before = name.and_then(|name| self.before.0.get(&name));
            before.is_some_and(|before| *before.content == content)
        })
    }

    fn is_right(&self, before: Option<&Node>, after: &Node, row: &Node, is_whole: bool) -> bool {
        let overwrite = options::overwrite(self.step);
        let linked = self
            .kept
            .tree
            .0
            .values()
            .filter(|other| other.first_name == row.first_name)
            .count()
            > 1;
        if let Some(before) = before.filter(|_| overwrite == Overwrite::Never)
            && !(before.is_dir() && row.is_dir())
        {
            return same(before, after) || linked;
        }
        let content = after.content == row.content
            || overwrite != Overwrite::Always
                && (linked || before.is_some_and(|before| is_equal_by_times(before, row)));
        let metadata = (after.mode, after.owner, after.mtime) == (row.mode, row.owner, row.mtime)
            && after.xattrs == row.xattrs;
        let is_from_before = before.is_some_and(|before| after.content == before.content);
        // Segments that cannot be read may hold no row of what is restored.
        (is_whole || is_from_before || after.content == row.content)
            && content
            && (metadata || linked && overwrite == Overwrite::Never)
    }

    /// A restore that says that all is well has restored all.
    fn all_is_there(&self) -> Held {
        if !self.is_exact || !self.is_done || self.step.stop != Stop::Never {
            return Ok(());
        }
        for (path, row) in &self.kept.tree.0 {
            let Some(relative) = self
                .relative(path)
                .filter(|relative| self.is_selected(relative))
            else {
                continue;
            };
            let is_special = !row.is_file() && !row.is_dir() && row.kind() != 0o120000;
            if is_special && !self.step.specials {
                continue;
            }
            if !self.after.0.contains_key(&relative) {
                return Err(format!(
                    "R1 said to be restored, and {} is not there",
                    text(&relative)
                ));
            }
        }
        Ok(())
    }
}

/// Restores that delete spare what restores have saved.
fn has_salvage_name(path: &[u8]) -> bool {
    let mut parts = path.windows(SALVAGED.len());
    parts.any(|part| part == SALVAGED)
}

fn is_equal_by_times(before: &Node, row: &Node) -> bool {
    before.kind() == row.kind()
        && before.content.len() == row.content.len()
        && before.mtime == row.mtime
}

/// The same but for what hard links make of it.
pub fn same(one: &Node, other: &Node) -> bool {
    one.mode == other.mode
        && one.owner == other.owner
        && (one.mtime == other.mtime || one.is_dir())
        && one.content == other.content
        && one.xattrs == other.xattrs
}
