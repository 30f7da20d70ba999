//! From names to entries: one `statx` for each, in inode order, then back in the order of names.

use super::directory::{Directory, DirectoryFd};
use super::filesystems::Filesystems;
use super::grafts::Graft;
use super::identity::Stay;
use super::identity::{Handle, identity_of};
use super::left_out::LeftOut;
use super::names::Names;
use super::not_entered::LOCKED;
use super::pending::{ChildrenReach, Subdirectory};
use super::sources::SourceNode;
use super::statted::Statted;
use super::statx::{Atime, entry_of, mount_of, stat_at, stat_row_at, stay_of};
use super::vanished::{LastKnown, Lost};
use super::{Note, NoteKind, PARENT_BYTES_MAX, ScanProblem};
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_pipeline::filter::Filter;
use bale_sys::open::{open_beneath, open_for_reading};
use bytes::Bytes;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// What all workers share for this.
pub(super) struct Rules {
    pub(super) filter: Arc<Filter>,
    pub(super) filesystems: Filesystems,
    pub(super) one_file_system: bool,
    pub(super) left_out: LeftOut,
    pub(super) atime: Atime,
    /// Rights must be asked for, because they do not follow from being root.
    pub(super) stat_access: bool,
}

/// A name as its directory has it.
struct ListedName<'a> {
    name: &'a [u8],
    /// 0: not known.
    inode: u64,
    seen: LastKnown,
}

impl ListedName<'_> {
    fn file(name: &[u8]) -> ListedName<'_> {
        ListedName {
            name,
            inode: 0,
            seen: LastKnown::NoDirectory,
        }
    }
}

/// A part of a directory being worked on.
pub(super) struct Part<'a> {
    pub(super) rules: &'a Rules,
    pub(super) directory: &'a Arc<Directory>,
    pub(super) fd: &'a DirectoryFd,
    pub(super) reach: &'a ChildrenReach,
    /// `directory.path()`.
    pub(super) path: &'a Bytes,
    /// Device and number of the entry before.
    pub(super) last_filesystem: Cell<Option<(u64, u32)>>,
    /// Number of the file system of the file before, and whether its files are in doubt.
    pub(super) last_racy: Cell<Option<(u32, bool)>>,
}

impl Part<'_> {
    /// Makes entries of sorted names.
    pub(super) fn stat(&self, names: Names) -> Statted {
        let mut result = Statted::default();
        let keep = self.wanted(&names, &mut result);
        let mut order = keep.clone();
        order.sort_unstable_by_key(|at| names.items[*at as usize].inode);
        let mut stats: Vec<Option<rustix::io::Result<Statx>>> = Vec::new();
        stats.resize_with(names.items.len(), || None);
        for at in order {
            let name = c_name(&names, at as usize);
            let stat = self.stat_name(name).map(|stat| self.mounted(name, stat));
            stats[at as usize] = Some(stat);
        }
        let arena = Bytes::from(names.arena);
        result.entries.reserve_exact(keep.len());
        for at in keep {
            let item = names.items[at as usize];
            let range = item.start as usize..item.start as usize + usize::from(item.len);
            let name = arena.slice(range.clone());
            let with_nul = CStr::from_bytes_with_nul(&arena[range.start..range.end + 1])
                .expect("a NUL follows each name in the arena");
            match stats[at as usize]
                .take()
                .expect("each name kept was looked at")
            {
                Ok(stat) => self.add(name, with_nul, &stat, &mut result),
                Err(errno) => {
                    let seen = match item.may_be_directory {
                        true => LastKnown::PerhapsDirectory,
                        false => LastKnown::NoDirectory,
                    };
                    let listed = ListedName {
                        name: &name,
                        inode: item.inode,
                        seen,
                    };
                    self.missed(listed, errno.into(), &mut result);
                }
            }
        }
        result.drop_renamed();
        result
    }

    /// Where something is mounted by whoever enters, it is entered now: what its directory was
    /// before is not what the scan comes to.
    fn mounted(&self, name: &CStr, stat: Statx) -> Statx {
        if self.rules.one_file_system || !self.is_automount(&stat) {
            return stat;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let path = bale_format::entry::join(self.path, name.to_bytes());
        if self.rules.filter.excludes(&path)
            || open_beneath(self.fd.as_fd(), name, flags, Mode::empty()).is_err()
        {
            return stat;
        }
        // What cannot be mounted is told when it is listed.
        self.stat_name(name).unwrap_or(stat)
    }

    fn stat_name(&self, name: &CStr) -> rustix::io::Result<Statx> {
        match self.graft(name.to_bytes()) {
            Some(graft) => {
                let place = graft.c_place().map_err(|_| Errno::INVAL)?;
                stat_row_at(CWD, &place, self.rules.atime)
            }
            None => stat_row_at(self.fd, name, self.rules.atime),
        }
    }

    /// A source that is read somewhere else.
    fn graft(&self, name: &[u8]) -> Option<&Graft> {
        self.source_node(name)?;
        self.directory.grafts().child(self.path, name)
    }

    /// Positions of the names that no pattern leaves out.
    fn wanted(&self, names: &Names, result: &mut Statted) -> Vec<u32> {
        let mut keep = Vec::with_capacity(names.items.len());
        let mut path = self.path.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let parent_bytes = path.len();
        for at in 0..names.items.len() {
            let name = names.get(at);
            if at > 0 && name == names.get(at - 1) {
                // A damaged file system: two files of one name, of which only one can be reached.
                let error = io::Error::other("listed twice in one directory");
                self.missed(ListedName::file(name), error, result);
                continue;
            }
            if self.rules.filter.has_patterns() && self.source_node(name).is_none() {
                path.truncate(parent_bytes);
                path.extend_from_slice(name);
                if self.rules.filter.excludes(&path) {
                    continue;
                }
            }
            keep.push(at as u32);
        }
        keep
    }

    /// What the sources say of a child.
    fn source_node(&self, name: &[u8]) -> Option<&Arc<SourceNode>> {
        match self.reach {
            ChildrenReach::Only(node) | ChildrenReach::AllAnd(_, node) => node.children.get(name),
            ChildrenReach::All(_) | ChildrenReach::Marks => None,
        }
    }

    fn missed(&self, listed: ListedName<'_>, error: io::Error, result: &mut Statted) {
        let gone = error.kind() == io::ErrorKind::NotFound;
        if gone && matches!(self.reach, ChildrenReach::Marks) {
            // Asked for without knowing that it is there.
        } else if gone && !matches!(self.reach, ChildrenReach::Only(_)) {
            result.unfound.push(Lost {
                directory: self.directory.clone(),
                name: Bytes::copy_from_slice(listed.name),
                inode: listed.inode,
                seen: listed.seen,
            });
        } else {
            result.incomplete = true;
            result.problems.push(ScanProblem {
                path: bale_format::entry::join(self.path, listed.name),
                action: "stat",
                error,
            });
        }
    }

    fn add(&self, name: Bytes, c_name: &CStr, stat: &Statx, result: &mut Statted) {
        let Some(mut entry) = entry_of(self.path.clone(), name, stat, self.rules.atime) else {
            let error = io::Error::other("unknown file type");
            return self.missed(ListedName::file(c_name.to_bytes()), error, result);
        };
        let mount = mount_of(stat);
        let named = self
            .source_node(&entry.name)
            .is_some_and(|node| node.is_source);
        if !named && entry.kind != Kind::Directory {
            let is_too_large =
                entry.kind == Kind::File && self.rules.filter.excludes_size(entry.size);
            let kind = if is_too_large {
                Some(NoteKind::Size)
            } else if self.is_elsewhere(stat) {
                Some(NoteKind::OtherFilesystem)
            } else {
                let is_in_use =
                    self.rules
                        .left_out
                        .is_in_use_at(self.fd.as_fd(), c_name, identity_of(stat));
                is_in_use.then_some(NoteKind::InUse)
            };
            if let Some(kind) = kind {
                let path = entry.path();
                result.notes.push(Note {
                    path,
                    kind,
                    has_row: false,
                });
                return;
            }
        }
        let device = identity_of(stat).device;
        entry.filesystem = self.filesystem_number(device, mount, c_name);
        if entry.kind == Kind::File
            && self.is_always_racy(entry.filesystem, (device, mount), c_name)
        {
            entry.flags.set(EntryFlags::RACY);
        }
        if entry.kind == Kind::Directory {
            self.add_directory(&mut entry, c_name, stat, result);
        }
        result.entries.push(entry);
    }

    /// Asks only when the device is another than that of the entry before.
    pub(super) fn filesystem_number(&self, device: u64, mount: u64, c_name: &CStr) -> u32 {
        match self.last_filesystem.get() {
            Some((last, number)) if last == device => number,
            _ => {
                let numbers = &self.rules.filesystems;
                // A snapshot is the file system that it was taken of, else nothing in it would be
                // known again.
                let live = self
                    .graft(c_name.to_bytes())
                    .map(|_| stat_at(self.fd, c_name));
                let described = match live {
                    Some(Ok(live)) => (identity_of(&live).device, mount_of(&live)),
                    _ => (device, mount),
                };
                let number = numbers.number_as(device, described, self.fd.as_fd(), c_name);
                self.last_filesystem.set(Some((device, number)));
                number
            }
        }
    }

    /// Of such a file system every file is read again by the next backup.
    fn is_always_racy(&self, filesystem: u32, (device, mount): (u64, u64), c_name: &CStr) -> bool {
        match self.last_racy.get() {
            Some((last, is_always_racy)) if last == filesystem => is_always_racy,
            _ => {
                let write_back = || match self.rules.filesystems.is_volatile(device, mount) {
                    true => Err(io::ErrorKind::Unsupported.into()),
                    false => self.write_back(device, c_name),
                };
                let numbers = &self.rules.filesystems;
                let is_always_racy = numbers.is_always_racy(filesystem, write_back);
                self.last_racy.set(Some((filesystem, is_always_racy)));
                is_always_racy
            }
        }
    }

    /// Writes back the file system that a file of this directory is on: another one, if the file
    /// alone is mounted here.
    fn write_back(&self, device: u64, c_name: &CStr) -> io::Result<()> {
        let is_here = self.directory.identity().device == device && self.fd.listable();
        match is_here {
            true => rustix::fs::syncfs(self.fd)?,
            false => {
                rustix::fs::syncfs(open_for_reading(self.fd.as_fd(), c_name, OFlags::empty())?)?
            }
        }
        Ok(())
    }

    /// Why a directory is left out, if it is, as this backup's own or as a repository.
    fn left_out(&self, c_name: &CStr, stat: &Statx) -> Option<NoteKind> {
        let left_out = &self.rules.left_out;
        if left_out.is_in_use_at(self.fd.as_fd(), c_name, identity_of(stat)) {
            return Some(NoteKind::InUse);
        }
        let is_repository = left_out.is_repository(self.fd.as_fd(), c_name, stat);
        is_repository.then_some(NoteKind::Repository)
    }

    fn add_directory(&self, entry: &mut Entry, c_name: &CStr, stat: &Statx, out: &mut Statted) {
        let identity = identity_of(stat);
        match self.reach_of(entry, c_name, stat) {
            Err(refused) => {
                entry.flags.set(refused.flags);
                if let Some(error) = refused.error {
                    out.problems.push(ScanProblem {
                        path: entry.path(),
                        action: "enter",
                        error,
                    });
                }
                if let Some(kind) = refused.note {
                    out.notes.push(Note {
                        path: entry.path(),
                        kind,
                        has_row: true,
                    });
                }
            }
            Ok(reach) => {
                if let Some(refused) = self.same_above(c_name, stat) {
                    drop(reach);
                    return self.not_entered_again(entry, refused, out);
                }
                if matches!(reach, ChildrenReach::Marks) {
                    entry.flags.set(EntryFlags::NOT_CROSSED);
                }
                out.subdirectories.push(Subdirectory {
                    name: entry.name.clone(),
                    identity,
                    handle: self.handle_of(c_name),
                    reach,
                });
            }
        }
    }

    /// Only root can open what it leads to.
    fn handle_of(&self, c_name: &CStr) -> Option<Handle> {
        match self.rules.stat_access {
            true => None,
            false => Handle::of(self.fd.as_fd(), c_name),
        }
    }

    /// Which children of a subdirectory count.
    fn reach_of(
        &self,
        entry: &Entry,
        c_name: &CStr,
        stat: &Statx,
    ) -> Result<ChildrenReach, Refused> {
        if self.directory.child_path_bytes(&entry.name) > PARENT_BYTES_MAX {
            return Err(Refused::because(Errno::NAMETOOLONG.into()));
        }
        let stay = self.rules.one_file_system.then(|| stay_of(stat));
        let node = self.source_node(&entry.name);
        if let Some(node) = node
            && (node.is_source || matches!(self.reach, ChildrenReach::Only(_)))
        {
            return Ok(reach_of_node(node, stay));
        }
        let excluded = || self.rules.filter.excludes(&entry.path());
        if let Some(node) = node
            && excluded()
        {
            return Ok(ChildrenReach::Only(node.clone()));
        }
        let not_crossed = match self.is_elsewhere(stat) {
            true => Some(NoteKind::OtherFilesystem),
            false => self.left_out(c_name, stat),
        };
        let not_crossed = not_crossed.or_else(|| self.not_here(c_name, stat));
        if let Some(kind) = not_crossed {
            return match node {
                Some(node) => Ok(ChildrenReach::Only(node.clone())),
                None => Err(Refused::on_purpose(kind)),
            };
        }
        if self.rules.stat_access {
            let rights = Access::READ_OK | Access::EXEC_OK;
            let answer = rustix::fs::accessat(self.fd, c_name, rights, AtFlags::EACCESS);
            if answer == Err(Errno::ACCESS) {
                return Err(Refused::because(Errno::ACCESS.into()));
            }
        }
        if stat.stx_attributes.contains(StatxAttributes::ENCRYPTED) && self.is_locked(c_name) {
            return Err(Refused::because(io::Error::other(LOCKED)));
        }
        let marks = self.rules.filter.marks();
        if marks.iter().any(|mark| mark.is_in(self.fd.as_fd(), c_name)) {
            return Ok(node.map_or(ChildrenReach::Marks, |node| {
                ChildrenReach::Only(node.clone())
            }));
        }
        let inherited = match self.reach {
            ChildrenReach::All(stay) | ChildrenReach::AllAnd(stay, _) => *stay,
            ChildrenReach::Only(_) | ChildrenReach::Marks => stay,
        };
        Ok(match node {
            Some(node) => ChildrenReach::AllAnd(inherited, node.clone()),
            None => ChildrenReach::All(inherited),
        })
    }
}

/// What a directory that stands among the sources gives.
pub(super) fn reach_of_node(node: &Arc<SourceNode>, stay: Option<Stay>) -> ChildrenReach {
    match (node.is_source, node.children.is_empty()) {
        (true, true) => ChildrenReach::All(stay),
        (true, false) => ChildrenReach::AllAnd(stay, node.clone()),
        (false, _) => ChildrenReach::Only(node.clone()),
    }
}

/// Why a directory is not entered.
struct Refused {
    flags: EntryFlags,
    error: Option<io::Error>,
    note: Option<NoteKind>,
}

impl Refused {
    fn because(error: io::Error) -> Refused {
        Refused {
            flags: EntryFlags::UNREADABLE,
            error: Some(error),
            note: None,
        }
    }

    fn on_purpose(kind: NoteKind) -> Refused {
        Refused {
            flags: EntryFlags::NOT_CROSSED,
            error: None,
            note: Some(kind),
        }
    }
}

fn c_name(names: &Names, at: usize) -> &CStr {
    let item = names.items[at];
    let start = item.start as usize;
    CStr::from_bytes_with_nul(&names.arena[start..=start + usize::from(item.len)])
        .expect("a NUL follows each name in the arena")
}

/// Names of the children that lead to sources.
pub(super) fn names_of_node(node: &SourceNode) -> Names {
    let mut names = Names::default();
    for name in node.children.keys() {
        names.push(name, 0);
    }
    names
}

/// Names of the files that mark a directory.
pub(super) fn names_of_marks(filter: &Filter) -> Names {
    let mut names = Names::default();
    let mut sorted: Vec<&[u8]> = filter
        .marks()
        .iter()
        .map(|mark| mark.file().to_bytes())
        .collect();
    sorted.sort_unstable();
    sorted.dedup();
    for name in sorted {
        names.push(name, 0);
    }
    names
}
