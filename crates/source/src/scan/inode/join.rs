//! Inodes and names, both in the order of inode numbers, become children of directories.
//!
//! The numbers must agree: a name without an inode, a directory with two names, an inode with fewer
//! names than links are problems that no checksum tells.

use super::faults::Faults;
use super::gather::InodeTotals;
use super::inode_file::{InodeFile, StoredInode};
use super::missing_directories::NamedDirectories;
use super::tree::{Marks, Tree, TreeWriter};
use crate::image::{Image, OpenedAs};
use bale_fsimage::FileKind;
use bale_pipeline::spill::{Sorted, Spill};
use std::io;
use std::sync::Arc;

pub(super) struct Joined {
    pub(super) tree: Tree,
    pub(super) totals: InodeTotals,
}

/// Sorted names, one at hand.
struct Names {
    sorted: Sorted,
}

/// One of them.
struct NamedInode<'a> {
    inode: u64,
    directory: u64,
    name: &'a [u8],
}

impl Names {
    /// The name at hand; `None` at the end.
    fn here(&self) -> Option<NamedInode<'_>> {
        let (key, value) = self.sorted.current()?;
        let mut number = [0; 8];
        number[8 - key.len()..].copy_from_slice(key);
        let (directory, name) = value.split_first_chunk::<8>().expect("8 bytes and a name");
        Some(NamedInode {
            inode: u64::from_be_bytes(number),
            directory: u64::from_le_bytes(*directory),
            name,
        })
    }

    fn advance(&mut self) -> io::Result<()> {
        self.sorted.next_record().map_err(io::Error::other)?;
        Ok(())
    }
}

pub(super) fn join(
    image: &Image,
    inodes: &Arc<InodeFile>,
    names: Sorted,
    spill: Spill<'_>,
    faults: &mut Faults,
) -> io::Result<Joined> {
    let mut totals = InodeTotals {
        names: names.records(),
        ..InodeTotals::default()
    };
    let mut names = Names { sorted: names };
    names.advance()?;
    let mut children = TreeWriter::new(spill, image.facts().number_bytes);
    let mut directories = (image.names().are_with_inodes()).then(|| NamedDirectories::new(spill));
    let mut reader = inodes.read()?;
    while let Some((inode, packed)) = reader.here() {
        without_inode(&mut names, &mut children, Some(inode.number))?;
        let is_directory = inode.kind == FileKind::Directory;
        if let Some(directories) = directories.as_mut().filter(|_| is_directory) {
            directories.add_directory(inode.number)?;
        }
        // Of many names, each says where the inode is.
        let is_linked = !is_directory && !inode.is_unchanged && inode.nlink > 1;
        let place = reader.place().to_le_bytes();
        let (packed, linked) = match is_linked {
            true => (&place[..], Marks::LINKED),
            false => (packed, 0),
        };
        let mut names_count = 0u64;
        while let Some(NamedInode {
            inode: number,
            directory,
            name,
        }) = names.here()
            && number == inode.number
        {
            let is_again = is_directory && (names_count > 0 || inode.number == image.facts().root);
            let marks = match (is_directory, is_again) {
                (false, _) if inode.is_unchanged => Marks(Marks::UNCHANGED),
                (false, _) => Marks(linked),
                (true, false) => Marks(Marks::DIRECTORY),
                (true, true) => Marks(Marks::DIRECTORY | Marks::AGAIN),
            };
            children.push(directory, name, number, marks, packed)?;
            if let Some(directories) = &mut directories {
                directories.add_name(directory, name)?;
            }
            names_count += 1;
            names.advance()?;
        }
        count(image, &inode, names_count, &mut totals, faults);
        reader.advance()?;
    }
    without_inode(&mut names, &mut children, None)?;
    drop(names);
    if let Some(directories) = directories {
        directories.report(image, faults)?;
    }
    Ok(Joined {
        tree: children.finish(inodes.clone())?,
        totals,
    })
}

/// Names that lead to inodes before `until` that are not there.
fn without_inode(
    names: &mut Names,
    children: &mut TreeWriter,
    until: Option<u64>,
) -> io::Result<()> {
    while let Some(NamedInode {
        inode,
        directory,
        name,
    }) = names.here()
        && until.is_none_or(|until| inode < until)
    {
        children.push(directory, name, inode, Marks(Marks::MISSING), &[])?;
        names.advance()?;
    }
    Ok(())
}

fn count(
    image: &Image,
    inode: &StoredInode,
    names_count: u64,
    totals: &mut InodeTotals,
    faults: &mut Faults,
) {
    let is_root = inode.number == image.facts().root;
    if names_count == 0 && !is_root {
        totals.nameless += 1;
        if image.state() == OpenedAs::Still {
            faults.general(format!(
                "inode {} has {} links and no name: a file system check would put it into \
                 lost+found",
                image.content().shown_number(inode.number),
                inode.nlink
            ));
        }
        return;
    }
    match inode.kind {
        FileKind::Regular => {
            totals.files += 1;
            totals.file_names += names_count;
            totals.bytes = totals.bytes.saturating_add(inode.size);
            totals.bytes_named = totals
                .bytes_named
                .saturating_add(inode.size.saturating_mul(names_count));
        }
        FileKind::Directory => {
            totals.directories += 1;
            return;
        }
        FileKind::Symlink => totals.symlinks += 1,
        _ => totals.others += 1,
    }
    totals.hard_linked += u64::from(names_count > 1);
    if names_count < u64::from(inode.nlink) && image.state() == OpenedAs::Still {
        faults.general(format!(
            "inode {} has {} links and {names_count} names: names are missing",
            image.content().shown_number(inode.number),
            inode.nlink
        ));
    }
}
