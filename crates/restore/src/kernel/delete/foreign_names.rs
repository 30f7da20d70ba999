//! Finds names in a target directory that the snapshot does not have; refuses where the file system
//! folds names (case, trailing dots).
//!
//! Some file systems change names: vfat lists `a` for what was made as `a.`, and where case is
//! folded `README` is found and `Readme` is listed. There a name that looks unknown may be what was
//! just restored. Such a directory is known by a row of the snapshot that is not listed, and yet
//! found by its name.

use super::children::{Children, DeleteStop};
use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::{TargetDirectory, stat_child};
use crate::scratch::{PairSorter, ScratchSpace, SortedPairs};
use rustix::io::Errno;

/// Memory of the sorter of one directory's listing.
const SORTER_BYTES: usize = 8 << 20;

/// Why nothing goes from such a directory.
pub const CHANGES_NAMES: &str = "nothing in it is deleted: it lists names of the snapshot in \
    another way (case, or a dot at the end), so that what is not in the snapshot cannot be told by \
    its name";

/// Of one directory.
pub struct Unknown {
    /// Sorted; `None`: all are known.
    pub names: Option<SortedPairs>,
    /// Is a name of the snapshot found, and not listed?
    pub changes_names: bool,
}

/// Names in a directory, sorted as a catalog sorts them.
pub fn list(
    directory: &TargetDirectory,
    scratch: &ScratchSpace,
) -> Result<SortedPairs, DeleteStop> {
    let text = |error: std::io::Error| DeleteStop::All(error.to_string());
    let mut sorter = scratch.sorter(SORTER_BYTES);
    let entries = rustix::fs::Dir::read_from(&directory.fd).map_err(EntryFailure::os("list"))?;
    for entry in entries {
        let entry = entry.map_err(EntryFailure::os("list"))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            sorter.push(name, &[]).map_err(text)?;
        }
    }
    sorter.finish().map_err(text)
}

/// Compares what a directory lists (sorted) with the rows of the snapshot, which were entered
/// there.
pub fn foreign_names(
    rows: &mut Children,
    scratch: &ScratchSpace,
    path: &[u8],
    directory: &TargetDirectory,
    listed: SortedPairs,
) -> Result<Unknown, DeleteStop> {
    let text = |error: std::io::Error| DeleteStop::All(error.to_string());
    let mut names: Option<PairSorter> = None;
    let mut changes_names = false;
    let mut last: Vec<u8> = Vec::new();
    for pair in listed {
        let (name, _) = pair.map_err(text)?;
        changes_names |= are_some_found(rows, path, directory, Some(&name), &last)?;
        if !rows.has(path, &name).map_err(DeleteStop::All)? {
            let sorter = names.get_or_insert_with(|| scratch.sorter(SORTER_BYTES));
            sorter.push(&name, &[]).map_err(text)?;
        }
        last = name;
    }
    changes_names |= are_some_found(rows, path, directory, None, &last)?;
    let names = names.map(|sorter| sorter.finish()).transpose();
    Ok(Unknown {
        names: names.map_err(text)?,
        changes_names,
    })
}

/// Are there rows between the name listed last and the next one that lead to something?
fn are_some_found(
    rows: &mut Children,
    path: &[u8],
    directory: &TargetDirectory,
    until: Option<&[u8]>,
    last: &[u8],
) -> Result<bool, DeleteStop> {
    let mut is_found = false;
    while let Some(name) = rows.take_before(path, until).map_err(DeleteStop::All)? {
        if is_found || name == last {
            continue;
        }
        is_found = match stat_child(directory, &name) {
            Ok(found) => found.is_some(),
            // No name of this file system.
            Err(Errno::INVAL | Errno::NAMETOOLONG | Errno::ILSEQ) => false,
            Err(error) => return Err(EntryFailure::os("stat")(error).into()),
        };
    }
    Ok(is_found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{Entry, Kind};
    use bytes::Bytes;

    /// What a directory that holds the files `there`, and lists `listed`, has and the snapshot does
    /// not.
    fn asked(snapshot: &[&str], there: &[&str], listed: &[&str]) -> (Vec<String>, bool) {
        let place = tempfile::tempdir().unwrap();
        for name in there {
            std::fs::write(place.path().join(name), name).unwrap();
        }
        let directory = TargetDirectory {
            fd: std::fs::File::open(place.path()).unwrap().into(),
            readable: true,
            gives_acl: false,
            gives_owner: std::sync::OnceLock::new(),
        };
        let row = |name: &&str| {
            let name = Bytes::copy_from_slice(name.as_bytes());
            Ok(Entry::new(Bytes::from_static(b"d"), name, Kind::File))
        };
        let mut rows = Children::new(Box::new(snapshot.iter().map(row)), Bytes::new());
        rows.enter(b"d").unwrap();
        let pairs = listed
            .iter()
            .map(|name| Ok((name.as_bytes().to_vec(), Vec::new())));
        let listed: SortedPairs = Box::new(pairs.collect::<Vec<_>>().into_iter());
        let Ok(found) = foreign_names(
            &mut rows,
            &ScratchSpace::new(place.path()),
            b"d",
            &directory,
            listed,
        ) else {
            panic!("nothing fails");
        };
        let names = found.names.into_iter().flatten();
        let names = names.map(|pair| String::from_utf8(pair.unwrap().0).unwrap());
        (names.collect(), found.changes_names)
    }

    #[test]
    fn a_name_of_the_snapshot_that_is_found_and_not_listed_says_that_names_are_changed() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let snapshot = ["README", "b", "c."];
        let same = asked(&snapshot, &snapshot, &["README", "b", "c.", "new"]);
        assert_eq!(same, (names(&["new"]), false));
        let folded = asked(&snapshot, &snapshot, &["Readme", "b", "c."]);
        assert_eq!(folded, (names(&["Readme"]), true));
        let before = asked(&snapshot, &snapshot, &["README", "b", "c"]);
        assert_eq!(before, (names(&["c"]), true));
        // It could not be restored: that says nothing.
        let missing = asked(&snapshot, &["b"], &["b", "new"]);
        assert_eq!(missing, (names(&["new"]), false));
        let twice = asked(&snapshot, &snapshot, &["README", "b", "b", "c.", "c."]);
        assert_eq!(twice, (names(&[]), false));
    }
}
