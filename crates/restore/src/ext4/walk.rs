//! All names of an image in the order of a catalog.

use bale_format::Key;
use bale_format::entry::join;
use bale_fsimage::FileKind;
use bale_fsimage::ext4::{Ext4, ROOT_INODE_NUMBER, RawInode};
use bytes::Bytes;

/// A name that was found.
#[derive(Clone, Debug)]
pub struct WalkedName {
    pub key: Key,
    pub inode: u64,
}

/// The walk. In memory are the names of the largest directory, and the directories that wait.
pub struct ImageWalk<'f> {
    fs: &'f Ext4,
    waiting: Vec<(Bytes, u64)>,
    run: std::vec::IntoIter<WalkedName>,
}

impl<'f> ImageWalk<'f> {
    pub fn new(fs: &'f Ext4) -> ImageWalk<'f> {
        ImageWalk {
            fs,
            waiting: vec![(Bytes::new(), ROOT_INODE_NUMBER)],
            run: Vec::new().into_iter(),
        }
    }

    /// The next name. `tell` is told of directories, or parts of them, that cannot be read.
    pub fn next_name(&mut self, tell: &mut dyn FnMut(&[u8], &str)) -> Option<WalkedName> {
        loop {
            if let Some(found) = self.run.next() {
                return Some(found);
            }
            let (path, inode) = self.waiting.pop()?;
            self.run = self.list(path, inode, tell).into_iter();
        }
    }

    fn list(
        &mut self,
        path: Bytes,
        inode: u64,
        tell: &mut dyn FnMut(&[u8], &str),
    ) -> Vec<WalkedName> {
        let mut names: Vec<(WalkedName, bool)> = Vec::new();
        let bytes = match self.fs.read_inode_bytes(inode) {
            Ok(bytes) => bytes,
            Err(error) => {
                tell(&path, &error.to_string());
                return Vec::new();
            }
        };
        let Some(raw) = RawInode::new(inode, &bytes) else {
            return Vec::new();
        };
        let mut troubles = Vec::new();
        let read = self.fs.read_dir(&raw, &mut |name| match name {
            Ok(name) => {
                let key = Key {
                    parent: path.clone(),
                    name: Bytes::copy_from_slice(name.name),
                };
                let inode = name.inode;
                names.push((
                    WalkedName { key, inode },
                    name.kind == Some(FileKind::Directory),
                ));
            }
            Err(problem) => troubles.push(problem.damage.to_string()),
        });
        if let Err(error) = read {
            troubles.push(error.to_string());
        }
        troubles.iter().for_each(|text| tell(&path, text));
        names.sort_unstable_by(|one, other| one.0.key.name.cmp(&other.0.key.name));
        let directories = names.iter().rev().filter(|(_, is_directory)| *is_directory);
        self.waiting.extend(directories.map(|(found, _)| {
            let path = join(&found.key.parent, &found.key.name);
            (Bytes::from(path), found.inode)
        }));
        names.into_iter().map(|(found, _)| found).collect()
    }
}
