//! Children of a directory listed and stat'ed through the kernel; and the root of an image in place
//! of its file.

use super::order::{ListedChildren, Order, OrderItem, RestOfChildren};
use super::{IMAGE_DEVICE, amend};
use crate::image::{EntryPlace, ImageInode, OpenedAs};
use crate::scan::directory::Directory;
use crate::scan::identity::Identity;
use crate::scan::inode::tree::Child;
use crate::scan::list::{ListedNames, list};
use crate::scan::names::Names;
use crate::scan::not_entered::LOCKED;
use crate::scan::pending::{ChildrenReach, Subdirectory};
use crate::scan::stat::{Part, names_of_marks, names_of_node};
use crate::scan::{EntryPlaces, ScanItem};
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_pipeline::spill::Spill;
use bytes::Bytes;
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

impl Order {
    fn spill(&self) -> Spill<'_> {
        Spill {
            directory: &self.spill,
            memory: self.memory,
        }
    }

    pub(super) fn kernel_listing(
        &mut self,
        directory: &Arc<Directory>,
        path: &Bytes,
        reach: &ChildrenReach,
    ) -> io::Result<RestOfChildren> {
        let fd = directory.open()?;
        if matches!(bale_sys::inode::is_locked(fd.as_fd()), Ok(Some(true))) {
            self.unreadable(path, "list", io::Error::other(LOCKED));
            return Ok(RestOfChildren::Done);
        }
        Ok(match reach {
            ChildrenReach::Only(node) => RestOfChildren::Few(Some(names_of_node(node))),
            ChildrenReach::Marks => RestOfChildren::Few(Some(names_of_marks(&self.rules.filter))),
            ChildrenReach::All(_) | ChildrenReach::AllAnd(..) => {
                let listed = list(&fd, self.spill(), &self.large);
                if let Some(error) = listed.error {
                    self.unreadable(path, "list", error);
                }
                match listed.names {
                    ListedNames::Few(names) => RestOfChildren::Few(Some(names)),
                    ListedNames::Many(names) => RestOfChildren::Many(names),
                }
            }
        })
    }

    pub(super) fn emit_from_kernel(&mut self, names: Names) {
        let level = self.levels.last().expect("called inside a directory");
        let (directory, path) = (level.directory.clone(), level.path.clone());
        let fd = match directory.open() {
            Ok(fd) => fd,
            Err(error) => return self.unreadable(&path, "list", error),
        };
        let part = Part {
            rules: &self.rules,
            directory: &directory,
            fd: &fd,
            reach: &level.reach,
            path: &path,
            last_filesystem: Cell::new(None),
            last_racy: Cell::new(None),
        };
        let mut statted = part.stat(names);
        if statted.incomplete {
            self.put(amend(&path, EntryFlags::UNREADABLE));
        }
        let problems = statted.problems.into_iter().map(ScanItem::Problem);
        let notes = statted.notes.into_iter().map(ScanItem::Note);
        self.ready
            .extend(problems.chain(notes).map(OrderItem::Item));
        self.look_for(std::mem::take(&mut statted.unfound));
        let places = self.show_image(
            &directory,
            &mut statted.entries,
            &mut statted.subdirectories,
        );
        if !statted.entries.is_empty() {
            self.push_batch(statted.entries, places);
        }
        let level = self.levels.last_mut().expect("as above");
        level
            .pending
            .append(statted.subdirectories, &mut self.overflow);
    }

    /// A source that is an image becomes the root directory of what is in it; where an image stands
    /// for a mounted file system, its directory becomes what it is in the image.
    pub(super) fn show_image(
        &mut self,
        directory: &Arc<Directory>,
        entries: &mut [Entry],
        subdirectories: &mut Vec<Subdirectory>,
    ) -> EntryPlaces {
        let image_path = self.context.image_path.as_deref();
        let stands_for_mounted = image_path.is_none() && self.image.state() == OpenedAs::Still;
        let shown = entries.iter().position(|entry| match image_path {
            Some(path) => path == &entry.path()[..],
            None => {
                let is_on_it = entry.filesystem == self.own && entry.kind == Kind::Directory;
                stands_for_mounted && is_on_it
            }
        });
        let Some(at) = shown else {
            return EntryPlaces::Directory(directory.clone());
        };
        let (parent, name) = (entries[at].parent.clone(), entries[at].name.clone());
        let number = match stands_for_mounted {
            true => entries[at].inode,
            false => self.image.facts().root,
        };
        let (entry, inode) = match self.directory_entry(number, parent, name) {
            Ok(found) => found,
            Err(error) => {
                entries[at].flags.set(EntryFlags::UNREADABLE);
                let path = entries[at].path();
                self.unreadable(
                    &Bytes::from(path),
                    "read this directory in the image",
                    error,
                );
                return EntryPlaces::Directory(directory.clone());
            }
        };
        if !stands_for_mounted {
            subdirectories.retain(|subdirectory| subdirectory.name != entry.name);
            let place = subdirectories.partition_point(|other| other.name < entry.name);
            subdirectories.insert(
                place,
                Subdirectory {
                    name: entry.name.clone(),
                    identity: Identity {
                        device: IMAGE_DEVICE,
                        inode: number,
                    },
                    handle: None,
                    reach: ChildrenReach::All(None),
                },
            );
        }
        entries[at] = entry;
        let by_kernel = EntryPlace::Directory(directory.clone());
        let mut places = vec![by_kernel; entries.len()];
        places[at] = EntryPlace::Image(inode);
        EntryPlaces::Each(places)
    }

    pub(super) fn directory_entry(
        &mut self,
        number: u64,
        parent: Bytes,
        name: Bytes,
    ) -> io::Result<(Entry, ImageInode)> {
        let content = self.image.content();
        let raw = content.read_inode(number).map_err(io::Error::other)?;
        let inode = content.decode(number, &raw).map_err(io::Error::other)?;
        let mut entry = Entry::new(parent, name, Kind::Directory);
        self.image.set_stat(&mut entry, &inode);
        entry.filesystem = self.own;
        let mut packed = Vec::new();
        crate::image::pack_inode(&raw, &mut packed);
        let inode = ImageInode {
            image: self.image.clone(),
            number,
            packed: Bytes::from(packed),
        };
        Ok((entry, inode))
    }

    /// A child that changed since the tables were read: stat'ed through the kernel.
    pub(super) fn emit_changed(
        &mut self,
        reach: &ChildrenReach,
        child: &Child,
        listed: &mut ListedChildren,
        subdirectories: &mut Vec<Subdirectory>,
    ) {
        let (directory, path) = (&listed.directory.clone(), &listed.path.clone());
        let fd = match directory.open() {
            Ok(fd) => fd,
            Err(error) => return self.missed(path, &child.name, error.to_string()),
        };
        let part = Part {
            rules: &self.rules,
            directory,
            fd: &fd,
            reach,
            path,
            last_filesystem: Cell::new(None),
            last_racy: Cell::new(None),
        };
        let inode = self.maker.inode_of(&mut child.clone());
        let is_file = inode.is_ok_and(|inode| Kind::from_mode(inode.mode) == Some(Kind::File));
        let mut names = Names::default();
        names.push_as(&child.name, child.inode, !is_file);
        let mut statted = part.stat(names);
        if statted.incomplete {
            self.put(amend(path, EntryFlags::UNREADABLE));
        }
        let problems = statted.problems.into_iter().map(ScanItem::Problem);
        let notes = statted.notes.into_iter().map(ScanItem::Note);
        self.ready
            .extend(problems.chain(notes).map(OrderItem::Item));
        self.look_for(std::mem::take(&mut statted.unfound));
        if let Some(entry) = statted.entries.first_mut()
            && entry.kind == Kind::File
            && entry.inode == child.inode
            && let Ok(inode) = self.maker.inode_of(&mut child.clone())
        {
            // To open it by: another life of the number is opened by its name.
            entry.generation = inode.generation;
        }
        for entry in statted.entries {
            listed.add_made(entry, EntryPlace::Directory(directory.clone()));
        }
        subdirectories.extend(statted.subdirectories);
    }
}
