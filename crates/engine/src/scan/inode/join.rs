//! Inodes and names, both in the order of inode numbers, become children of directories.
//!
//! The numbers must agree: a name without an inode, a directory with two names, an inode with fewer names than links are
//! problems that no checksum tells.

use super::SORT_CHILDREN_BYTES;
use super::gather::{Faults, InodeTotals};
use super::stored::{InodeFile, StoredInode};
use super::tree::{Marks, Tree, TreeWriter};
use crate::image::{Image, State};
use crate::spill::{Sorted, Sorter};
use bale_fsimage::FileKind;
use std::io;
use std::path::Path;

pub(super) struct Joined {
    pub(super) tree: Tree,
    pub(super) totals: InodeTotals,
}

/// Sorted names, one at hand.
struct Names {
    sorted: Sorted,
    /// Inode it leads to, directory, name.
    head: Option<(u64, u64, Vec<u8>)>,
}

impl Names {
    fn advance(&mut self) -> io::Result<()> {
        let spare = self.head.take().map(|(_, _, name)| name);
        self.head = self
            .sorted
            .next_record()
            .map_err(io::Error::other)?
            .map(|(key, value)| {
                let mut number = [0; 8];
                number[8 - key.len()..].copy_from_slice(key);
                let (directory, name) = value.split_at(8);
                let directory = u64::from_le_bytes(directory.try_into().expect("8 bytes"));
                let mut kept = spare.unwrap_or_default();
                kept.clear();
                kept.extend_from_slice(name);
                (u64::from_be_bytes(number), directory, kept)
            });
        Ok(())
    }
}

/// Children on their way to be sorted.
struct Children<'a> {
    image: &'a Image,
    sorter: Sorter,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Children<'_> {
    fn push(
        &mut self,
        directory: u64,
        name: &[u8],
        inode: u64,
        marks: u8,
        packed: &[u8],
    ) -> io::Result<()> {
        self.key.clear();
        self.key
            .extend_from_slice(&directory.to_be_bytes()[8 - self.image.number_bytes()..]);
        self.key.extend_from_slice(name);
        self.value.clear();
        self.value.extend_from_slice(&inode.to_le_bytes());
        self.value.push(marks);
        self.value.extend_from_slice(packed);
        self.sorter
            .push(&self.key, &self.value)
            .map_err(io::Error::other)
    }

    fn finish(self, spill: &Path) -> io::Result<Tree> {
        let number_bytes = self.image.number_bytes();
        let mut sorted = self.sorter.finish().map_err(io::Error::other)?;
        let mut writer = TreeWriter::create(spill)?;
        while let Some((key, value)) = sorted.next_record().map_err(io::Error::other)? {
            let (directory, name) = key.split_at(number_bytes);
            let mut number = [0; 8];
            number[8 - number_bytes..].copy_from_slice(directory);
            let (inode, rest) = value.split_at(8);
            writer.push(
                u64::from_be_bytes(number),
                name,
                u64::from_le_bytes(inode.try_into().expect("8 bytes")),
                Marks(rest[0]),
                &rest[1..],
            )?;
        }
        writer.finish()
    }
}

pub(super) fn join(
    image: &Image,
    inodes: &InodeFile,
    names: Sorted,
    spill: &Path,
    faults: &mut Faults,
) -> io::Result<Joined> {
    let mut totals = InodeTotals {
        names: names.records(),
        ..InodeTotals::default()
    };
    let mut names = Names {
        sorted: names,
        head: None,
    };
    names.advance()?;
    let mut children = Children {
        image,
        sorter: Sorter::new(spill, SORT_CHILDREN_BYTES),
        key: Vec::new(),
        value: Vec::new(),
    };
    let mut reader = inodes.read()?;
    while let Some((inode, packed)) = reader.here() {
        without_inode(&mut names, &mut children, Some(inode.number))?;
        let is_directory = inode.kind == FileKind::Directory;
        let mut names_count = 0u64;
        while let Some((number, directory, name)) = &names.head
            && *number == inode.number
        {
            let is_again = is_directory && (names_count > 0 || inode.number == image.root());
            let marks = if is_again { Marks::AGAIN } else { 0 };
            children.push(*directory, name, inode.number, marks, packed)?;
            names_count += 1;
            names.advance()?;
        }
        count(image, &inode, names_count, &mut totals, faults);
        reader.advance()?;
    }
    without_inode(&mut names, &mut children, None)?;
    drop(names);
    Ok(Joined {
        tree: children.finish(spill)?,
        totals,
    })
}

/// Names that lead to inodes before `until` that are not there.
fn without_inode(
    names: &mut Names,
    children: &mut Children<'_>,
    until: Option<u64>,
) -> io::Result<()> {
    while let Some((number, directory, name)) = &names.head
        && until.is_none_or(|until| *number < until)
    {
        children.push(*directory, name, *number, Marks::MISSING, &[])?;
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
    let is_root = inode.number == image.root();
    if names_count == 0 && !is_root {
        totals.nameless += 1;
        if image.state() == State::Still {
            faults.general(format!(
                "inode {} has {} links and no name: a file system check would put it into lost+found",
                inode.number, inode.nlink
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
    if names_count < u64::from(inode.nlink) && image.state() == State::Still {
        faults.general(format!(
            "inode {} has {} links and {names_count} names: names are missing",
            inode.number, inode.nlink
        ));
    }
}
