//! The directories of a repository on a server that has directories.

use bale_format::id::hex;
use bale_repository::store::Area;
use std::io;

/// Directories of which something is in each once there is a snapshot: one that is missing is never
/// made again, since what was in it would count as gone.
pub const NEEDED: [Area; 4] = [Area::Keys, Area::Packs, Area::Index, Area::Snapshots];

/// A directory for each area that has one.
pub fn top_dirs() -> impl Iterator<Item = String> {
    let dirs = Area::ALL.into_iter().filter(|area| area.is_directory());
    dirs.map(|area| area.text().to_owned())
}

/// Packs are spread by the first byte of their names.
pub fn pack_dirs() -> impl Iterator<Item = String> {
    (0..=u8::MAX).map(|first| format!("{}/{}", Area::Packs.text(), hex(&[first])))
}

/// Some servers list a directory in itself, and what names a run on a server of restic's protocol
/// has the name of its directory, too (`rest.rs`).
pub fn is_own_name(dir: &str, name: &str) -> bool {
    dir.rsplit('/').next() == Some(name)
}

/// Refuses to take what is missing for empty: everything that was in it would count as gone.
pub fn missing(area: Area) -> io::Error {
    let text = format!(
        "the directory {area} is not there: bring it back from where it went, or from a copy of \
         the repository. Make an empty one (mkdir) only if nothing was ever in it: whatever is not \
         in it counts as gone"
    );
    io::Error::new(io::ErrorKind::NotFound, text)
}
