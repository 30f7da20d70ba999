//! Children of a directory, out of the tree.

use super::order::{ListedChildren, Order, RestOfChildren};
use crate::image::{ImageInode, OpenedAs};
use crate::scan::directory::Directory;
use crate::scan::identity::{Handle, Identity};
use crate::scan::inode::tree::{Child, ChildHere, Marks, Position};
use crate::scan::left_out::may_mark;
use crate::scan::pending::{ChildrenReach, Subdirectory};
use crate::scan::sources::SourceNode;
use crate::scan::stat::reach_of_node;
use crate::scan::{BATCH_ENTRIES_MAX, Note, NoteKind, PARENT_BYTES_MAX, ScanItem};
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_fsimage::Inode;
use bale_pipeline::filter::{Filter, Mark};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

impl Order {
    pub(super) fn emit_from_tree(&mut self, mut position: Position) {
        let level = self.levels.last().expect("called inside a directory");
        let (directory, path) = (level.directory.clone(), level.path.clone());
        let reach = level.reach.clone();
        let mut listed = ListedChildren::of(directory.clone(), path.clone());
        let (mut subdirectories, mut last) = (Vec::new(), None::<Vec<u8>>);
        let mut at_end = false;
        while listed.count() < BATCH_ENTRIES_MAX {
            let child = match self.tree.next(&mut position) {
                Ok(Some(child)) => child,
                Ok(None) => {
                    at_end = true;
                    break;
                }
                Err(error) => {
                    self.unreadable(&path, "list", error);
                    at_end = true;
                    break;
                }
            };
            if last.as_deref() == Some(child.name) {
                let why = "listed twice in one directory".to_owned();
                self.missed(&path, child.name, why);
                continue;
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(child.name);
            if !self.is_wanted(&path, &reach, child.name) {
                continue;
            }
            let may_be_plain = !self.is_in_use(child.inode);
            if may_be_plain && self.is_plain(&child) {
                listed.add_later(child);
                continue;
            }
            let child = child.to_child();
            self.emit_child(
                (&directory, &path, &reach),
                child,
                &mut listed,
                &mut subdirectories,
            );
        }
        if !listed.children.is_empty() {
            self.push_children(listed);
        }
        let level = self.levels.last_mut().expect("as above");
        level.pending.append(subdirectories, &mut self.overflow);
        if !at_end {
            level.listing = RestOfChildren::Tree(position);
        }
    }

    /// One child whose row is made now, with what it is if the kernel has to say.
    fn emit_child(
        &mut self,
        (directory, path, reach): (&Arc<Directory>, &Bytes, &ChildrenReach),
        mut child: Child,
        listed: &mut ListedChildren,
        subdirectories: &mut Vec<Subdirectory>,
    ) {
        let found = self.inode_of(&mut child);
        if self.image.state() == OpenedAs::Mounted
            && (found.is_err() || self.is_unsure(child.inode, child.marks))
        {
            self.emit_changed(reach, &child, listed, subdirectories);
            return;
        }
        let Some((mut entry, inode)) = self.entry_of(path, &child.name, found) else {
            return;
        };
        let node = source_node(reach, &child.name);
        let named = node.is_some_and(|node| node.is_source);
        if !named && let Some(reason) = self.reason_to_leave_out(&entry, child.inode) {
            self.note(entry.path(), reason, false);
            return;
        }
        if entry.kind == Kind::Directory
            && let Some(subdirectory) =
                self.subdirectory(&mut entry, &child, reach, node.cloned(), directory, &inode)
        {
            subdirectories.push(subdirectory);
        }
        let place = self
            .maker
            .place_of(directory, &mut entry, &inode, child.packed);
        listed.add_made(entry, place);
    }

    fn is_wanted(&self, path: &Bytes, reach: &ChildrenReach, name: &[u8]) -> bool {
        let is_node = source_node(reach, name).is_some();
        match reach {
            ChildrenReach::Only(_) => is_node,
            ChildrenReach::Marks => {
                let mut marks = self.rules.filter.marks().iter();
                marks.any(|mark| mark.file().to_bytes() == name)
            }
            ChildrenReach::All(_) | ChildrenReach::AllAnd(..) => {
                is_node
                    || !self.rules.filter.has_patterns()
                    || !self
                        .rules
                        .filter
                        .excludes(&bale_format::entry::join(path, name))
            }
        }
    }

    /// Why a child is left out that was not named as a source and is no directory, if it is.
    fn reason_to_leave_out(&self, entry: &Entry, inode: u64) -> Option<NoteKind> {
        match entry.kind {
            Kind::Directory => None,
            Kind::File if self.rules.filter.excludes_size(entry.size) => Some(NoteKind::Size),
            _ => self.is_in_use(inode).then_some(NoteKind::InUse),
        }
    }

    /// Is nothing but its inode needed for this child? What is in it, the kernel and the filter
    /// need not be asked.
    fn is_plain(&self, child: &ChildHere) -> bool {
        child.marks.0 & !Marks::UNCHANGED == 0
            && !self.has_changed(child.inode)
            && !self.rules.filter.limits_size()
    }

    /// The inode that a name leads to, or why there is none.
    fn inode_of(&mut self, child: &mut Child) -> Result<Inode, String> {
        if child.marks.has(Marks::MISSING) {
            return Err(match self.faults.inodes.get(&child.inode) {
                Some(why) => format!("inode {}: {why}", child.inode),
                None => format!("it leads to inode {}, which is not in use", child.inode),
            });
        }
        self.maker.inode_of(child)
    }

    /// `None`: it was told why there is no entry.
    fn entry_of(
        &mut self,
        path: &Bytes,
        name: &Bytes,
        inode: Result<Inode, String>,
    ) -> Option<(Entry, Inode)> {
        let made = inode.and_then(|inode| {
            let entry = self.maker.entry_of(path, name.clone(), &inode)?;
            Ok((entry, inode))
        });
        match made {
            Ok((mut entry, inode)) => {
                entry.filesystem = self.own;
                Some((entry, inode))
            }
            Err(why) => {
                self.missed(path, name, why);
                None
            }
        }
    }

    /// What of a subdirectory is to be entered; `None`: nothing.
    fn subdirectory(
        &mut self,
        entry: &mut Entry,
        child: &Child,
        reach: &ChildrenReach,
        node: Option<Arc<SourceNode>>,
        directory: &Arc<Directory>,
        inode: &Inode,
    ) -> Option<Subdirectory> {
        if child.marks.has(Marks::AGAIN) {
            entry.flags.set(EntryFlags::UNREADABLE);
            let error = io::Error::other("a directory that has another name already");
            self.report(entry.path(), "enter", error);
            return None;
        }
        if directory.child_path_bytes(&entry.name) > PARENT_BYTES_MAX {
            entry.flags.set(EntryFlags::UNREADABLE);
            let error = io::Error::other("its path is too long");
            self.report(entry.path(), "enter", error);
            return None;
        }
        let is_wanted = node.is_some() || matches!(reach, ChildrenReach::Marks);
        if !is_wanted && let Some(kind) = self.left_out(child, inode) {
            entry.flags.set(EntryFlags::NOT_CROSSED);
            self.note(entry.path(), kind, true);
            return None;
        }
        let reach = match (reach, node) {
            (ChildrenReach::Marks, _) => return None,
            (ChildrenReach::Only(_), Some(node)) => reach_of_node(&node, None),
            (_, Some(node)) if node.is_source => reach_of_node(&node, None),
            (_, node) if self.is_marked(child) => {
                node.map_or(ChildrenReach::Marks, ChildrenReach::Only)
            }
            (_, Some(node)) => ChildrenReach::AllAnd(None, node),
            (_, None) => ChildrenReach::All(None),
        };
        if matches!(reach, ChildrenReach::Marks) {
            entry.flags.set(EntryFlags::NOT_CROSSED);
        }
        Some(Subdirectory {
            name: entry.name.clone(),
            identity: Identity {
                device: self.context.device,
                inode: child.inode,
            },
            handle: self.handle_of(child, inode.generation),
            reach,
        })
    }

    fn handle_of(&self, child: &Child, generation: u32) -> Option<Handle> {
        let handles = self.context.handles.as_ref()?;
        handles.handle_of(child.inode, generation)
    }

    fn note(&mut self, path: Vec<u8>, kind: NoteKind, has_row: bool) {
        self.put(ScanItem::Note(Note {
            path,
            kind,
            has_row,
        }));
    }

    fn is_in_use(&self, inode: u64) -> bool {
        let device = self.context.device;
        self.rules.left_out.is_in_use(Identity { device, inode })
    }

    /// Why a directory is left out, if it is, as this backup's own or as a repository.
    fn left_out(&mut self, child: &Child, inode: &Inode) -> Option<NoteKind> {
        if self.is_in_use(child.inode) {
            return Some(NoteKind::InUse);
        }
        let marks = self.rules.left_out.marks_of(inode.nlink).cloned()?;
        let is_repository = marks.are_borne(|mark| {
            self.owner_of_mark(child.inode, mark)
                .is_some_and(|owner| may_mark(owner, inode.uid))
                && self.bears(child.inode, mark)
        });
        is_repository.then_some(NoteKind::Repository)
    }

    fn owner_of_mark(&mut self, directory: u64, mark: &Mark) -> Option<u32> {
        let found = self.tree.child(directory, mark.file().to_bytes());
        let mut file = found.ok().flatten()?;
        Some(self.maker.inode_of(&mut file).ok()?.uid)
    }

    fn bears(&mut self, directory: u64, mark: &Mark) -> bool {
        let found = self.tree.child(directory, mark.file().to_bytes());
        let Ok(Some(file)) = found else {
            return false;
        };
        mark.header().is_empty() || self.begins_with(file, mark.header())
    }

    /// Does the directory bear one of the marks that leave its content out?
    fn is_marked(&mut self, child: &Child) -> bool {
        let filter: &Filter = &self.rules.filter;
        let marks: Vec<_> = filter.marks().to_vec();
        marks.iter().any(|mark| self.bears(child.inode, mark))
    }

    fn begins_with(&mut self, mut file: Child, header: &[u8]) -> bool {
        if self.maker.load(&mut file).is_err() {
            return false;
        }
        let first = match self.image.state() == OpenedAs::Mounted && self.context.barrier.is_none()
        {
            true => self.first_bytes_by_kernel(&mut file, header.len()),
            false => {
                let inode = ImageInode {
                    image: self.image.clone(),
                    number: file.inode,
                    packed: file.packed,
                };
                crate::read::read_first_bytes(&inode, header.len()).ok()
            }
        };
        first.is_some_and(|first| first == header)
    }

    /// Of a file system that was not frozen, whose device does not show what is in files.
    fn first_bytes_by_kernel(&mut self, file: &mut Child, len: usize) -> Option<Vec<u8>> {
        let inode = self.maker.inode_of(file).ok()?;
        let handles = self.context.handles.as_ref()?;
        let opened = File::from(handles.open_inode(inode.number, inode.generation)?);
        let mut first = Vec::new();
        opened.take(len as u64).read_to_end(&mut first).ok()?;
        Some(first)
    }
}

/// What the sources say of a child.
fn source_node<'a>(reach: &'a ChildrenReach, name: &[u8]) -> Option<&'a Arc<SourceNode>> {
    match reach {
        ChildrenReach::Only(node) | ChildrenReach::AllAnd(_, node) => node.children.get(name),
        ChildrenReach::All(_) | ChildrenReach::Marks => None,
    }
}
