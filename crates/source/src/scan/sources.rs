//! The sources: which paths are backed up, as one tree, so that the catalog is one tree too.
//!
//! Links in the directories above a source are resolved once, here. The last component is taken as
//! it is, so a source that is a symbolic link is recorded as one, unless it was given with a slash
//! at its end.

use super::ScanProblem;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The sources of a backup. Memory: what the paths themselves take, and 100 bytes for each
/// component not shared.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    root: Arc<SourceNode>,
    paths: Vec<PathBuf>,
    /// Sources that are read somewhere else, and where.
    read_at: Vec<(PathBuf, PathBuf)>,
    /// The one source is read from a device with a copy of its file system.
    device_copy: Option<PathBuf>,
}

/// A directory on the way to a source, or a source itself.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceNode {
    pub(super) is_source: bool,
    pub(super) children: BTreeMap<Bytes, Arc<SourceNode>>,
}

impl Sources {
    /// Resolves paths; a relative one starts at the working directory. Those that do not exist are
    /// problems, and it is an error if none is left.
    pub fn resolve<P: AsRef<Path>>(paths: &[P]) -> io::Result<(Sources, Vec<ScanProblem>)> {
        let mut sources = Sources::default();
        let mut problems = Vec::new();
        for path in paths {
            match resolve_one(path.as_ref()) {
                Ok(resolved) => sources.add(resolved),
                Err(error) => problems.push(ScanProblem {
                    path: without_slash(path.as_ref()),
                    action: "find the source",
                    error,
                }),
            }
        }
        if sources.paths.is_empty() {
            let none = || io::Error::new(io::ErrorKind::NotFound, "no source was given");
            let named = |path: &P, error: io::Error| {
                let text = format!("{}: {error}", path.as_ref().display());
                io::Error::new(error.kind(), text)
            };
            let last = paths.last().zip(problems.pop());
            return Err(last.map_or_else(none, |(path, problem)| named(path, problem.error)));
        }
        sources.paths.sort();
        sources.paths.dedup();
        Ok((sources, problems))
    }

    /// Absolute paths of the sources, links resolved, sorted, each once.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Sources that are links to directories, of which the link alone is backed up; and where they
    /// lead.
    pub fn links_to_directories(&self) -> Vec<(&Path, PathBuf)> {
        let is_link = |path: &&PathBuf| {
            let kind = std::fs::symlink_metadata(path).map(|metadata| metadata.is_symlink());
            kind.unwrap_or(false) && path.is_dir()
        };
        let links = self.paths.iter().filter(is_link);
        links
            .filter_map(|path| Some((path.as_path(), std::fs::canonicalize(path).ok()?)))
            .collect()
    }

    /// Reads a source, which is a directory, from another place: its snapshot. The catalog says
    /// that it is where it was.
    pub fn read_from(&mut self, source: &Path, place: PathBuf) -> io::Result<()> {
        for path in [source, &place] {
            if !std::fs::symlink_metadata(path)?.is_dir() {
                let text = format!("{} is no directory", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
        }
        require_same_inode(source, &place)?;
        self.read_at.push((source.to_path_buf(), place));
        Ok(())
    }

    /// Where a path is in the copy that its source is read from, if there is one: another inode,
    /// and the same thing.
    pub fn in_copy(&self, path: &Path) -> Option<PathBuf> {
        if self.read_at.is_empty() {
            return None;
        }
        let path = std::fs::canonicalize(path).ok()?;
        let inside = |(source, place): &(PathBuf, PathBuf)| {
            let rest = path.strip_prefix(source).ok()?;
            Some(place.join(rest))
        };
        self.read_at.iter().find_map(inside)
    }

    pub(super) fn read_at(&self) -> &[(PathBuf, PathBuf)] {
        &self.read_at
    }

    /// Reads the source from a device, or an image, that holds its file system as it was. There
    /// must be only one.
    pub fn read_from_device(&mut self, device: PathBuf) -> io::Result<()> {
        if self.paths.len() != 1 {
            let text = "only a single source is read from a device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.device_copy = Some(device);
        Ok(())
    }

    /// The source that is read from a device, and the device.
    pub(super) fn device_copy(&self) -> Option<(&Path, &Path)> {
        Some((self.paths.first()?, self.device_copy.as_deref()?))
    }

    pub(super) fn root(&self) -> &Arc<SourceNode> {
        &self.root
    }

    fn add(&mut self, path: PathBuf) {
        let mut node = &mut self.root;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let name = Bytes::copy_from_slice(name.as_bytes());
                node = Arc::make_mut(node).children.entry(name).or_default();
            }
        }
        Arc::make_mut(node).is_source = true;
        self.paths.push(path);
    }
}

/// Inodes keep their numbers in a snapshot: with another number, on another device with the same
/// kind of file system, it is another directory, as where what is bound to the source's mount point
/// was forgotten. A copy on the same device has numbers of its own.
fn require_same_inode(source: &Path, place: &Path) -> io::Result<()> {
    let (of_source, of_place) = (rustix::fs::stat(source)?, rustix::fs::stat(place)?);
    let kind_of = |path: &Path| rustix::fs::statfs(path).map(|of| of.f_type);
    let is_another = of_source.st_dev != of_place.st_dev
        && of_source.st_ino != of_place.st_ino
        && kind_of(source)? == kind_of(place)?;
    match is_another {
        false => Ok(()),
        true => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "that is inode {} of its file system, and the source is inode {}: another \
                 directory (the source's path in its file system is in BALE_PATH_IN_FILESYSTEM)",
                of_place.st_ino, of_source.st_ino
            ),
        )),
    }
}

fn resolve_one(path: &Path) -> io::Result<PathBuf> {
    // Both lead through a link (POSIX.1-2024, 4.16, Pathname Resolution).
    let bytes = path.as_os_str().as_bytes();
    let whole = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !whole => {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            let resolved = std::fs::canonicalize(parent)?.join(name);
            std::fs::symlink_metadata(&resolved)?;
            Ok(resolved)
        }
        _ => std::fs::canonicalize(path),
    }
}

/// Absolute, for messages.
fn without_slash(path: &Path) -> Vec<u8> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let bytes = absolute.as_os_str().as_bytes();
    let start = bytes.iter().take_while(|byte| **byte == b'/').count();
    bytes[start..].to_vec()
}

/// Splits a list of sources as `--files-from` reads it: one path a line; empty lines and lines that
/// begin with `#` are skipped. With `zeros` (`--files-from0`) paths end with a NUL and are taken as
/// they are.
pub fn parse_list(list: &[u8], zeros: bool) -> Vec<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    if zeros {
        let names = list.split(|byte| *byte == 0);
        return names.filter(|name| !name.is_empty()).map(path).collect();
    }
    list.split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty() && line[0] != b'#')
        .map(path)
        .collect()
}
