//! Files that were renamed in their directory between its listing and their `stat`.

use super::BATCH_ENTRIES_MAX;
use super::directory::Directory;
use super::names::{NAME_BYTES_MAX, Names};
use super::stat::Part;
use super::statted::Statted;
use super::vanished::list_again;
use std::io;
use std::sync::Arc;

/// Times that a directory is listed again for names that were lost.
const RENAMES_FOLLOWED_MAX: usize = 4;

/// Of a directory whose names all are here: while names are lost, it is listed again, and what is
/// new in it is looked at, so that a file which was renamed is found under its new name. Gives the
/// bytes of the names that came.
pub(super) fn stat_renamed(part: &Part<'_>, statted: &mut Statted) -> usize {
    let mut bytes = 0;
    for _ in 0..RENAMES_FOLLOWED_MAX {
        if statted.unfound.iter().all(|lost| !lost.may_be_renamed()) {
            break;
        }
        // What cannot be listed again is told when all lost names are looked for.
        let Ok(names) = names_found_again(part.directory, statted) else {
            break;
        };
        if names.items.is_empty() {
            break;
        }
        bytes += names.arena.len();
        statted.merge(part.stat(names));
    }
    bytes
}

/// Names that a fresh listing has and that have no entry yet; the lost ones are not among them.
fn names_found_again(directory: &Arc<Directory>, statted: &Statted) -> io::Result<Names> {
    let has_entry = |name: &[u8]| {
        let entries = &statted.entries;
        entries
            .binary_search_by(|entry| entry.name[..].cmp(name))
            .is_ok()
    };
    let mut names = Names::default();
    let mut rest = 0;
    list_again(directory, &mut |entry| {
        let name = entry.file_name().to_bytes();
        let is_lost = statted.unfound.iter().any(|lost| lost.name == name);
        if name.len() > NAME_BYTES_MAX || is_lost || has_entry(name) {
            return;
        }
        if names.items.len() < BATCH_ENTRIES_MAX {
            names.push(name, entry.ino());
        } else {
            rest += 1;
        }
    })?;
    names.sort();
    match rest {
        0 => Ok(names),
        rest => Err(io::Error::other(format!("{rest} names more than before"))),
    }
}
