//! Metadata, in the order that never shows too much: owner, attributes, mode, capabilities, times;
//! flags when all is done.
//!
//! Everything goes through a descriptor of the very inode. What the user or the file system refuses
//! is a loss, counted by kind; set-user-id is never given to an owner it was not meant for.

use crate::kernel::outcome::EntryFailure;
use crate::kernel::target::TargetDirectory;
use crate::kernel::times::{self, has_other_times, is_unusual, mtime_of};
use crate::kernel::worker::Worker;
use crate::losses::LossKind;
use bale_format::xattrs::LISTED_TWICE;
use bale_format::{Entry, Kind, Xattr};
use rustix::fs::{
    AtFlags, CWD, Gid, IFlags, Mode, Stat, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

const CAPABILITY: &[u8] = b"security.capability";
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const NAMES_BYTES_MAX: usize = 65536;
const VALUE_BYTES_MAX: usize = 65536;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// An inode to be changed.
#[derive(Clone, Copy)]
pub enum TargetInode<'f> {
    /// Opened for reading or writing.
    Open(BorrowedFd<'f>),
    /// Opened as a place (`O_PATH`): links, devices, pipes.
    PathOnly(BorrowedFd<'f>),
}

impl TargetInode<'_> {
    /// A name of the inode itself, for calls that take no descriptor of a place.
    fn magic_path(fd: &BorrowedFd) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            TargetInode::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            TargetInode::PathOnly(fd) => rustix::fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    pub fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match self {
            TargetInode::Open(fd) => rustix::fs::fchmod(fd, mode),
            TargetInode::PathOnly(fd) => {
                rustix::fs::chmodat(CWD, Self::magic_path(fd), mode, AtFlags::empty())
            }
        }
    }

    fn set_xattr(&self, xattr: &Xattr) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        let (name, value) = (&xattr.name[..], &xattr.value[..]);
        match self {
            TargetInode::Open(fd) => rustix::fs::fsetxattr(fd, name, value, flags),
            TargetInode::PathOnly(fd) => {
                rustix::fs::setxattr(Self::magic_path(fd), name, value, flags)
            }
        }
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            TargetInode::Open(fd) => rustix::fs::fremovexattr(fd, name),
            TargetInode::PathOnly(fd) => rustix::fs::removexattr(Self::magic_path(fd), name),
        }
    }

    fn xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; VALUE_BYTES_MAX];
        let len = match self {
            TargetInode::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut value[..])?,
            TargetInode::PathOnly(fd) => {
                rustix::fs::getxattr(Self::magic_path(fd), name, &mut value[..])?
            }
        };
        value.truncate(len);
        Ok(value)
    }

    /// As a backup has them.
    fn xattr_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let query = match self {
            TargetInode::Open(fd) => rustix::fs::flistxattr_query(fd),
            TargetInode::PathOnly(fd) => rustix::fs::listxattr_query(Self::magic_path(fd)),
        };
        if matches!(query, Ok(0) | Err(Errno::NOTSUP)) {
            return Ok(Vec::new());
        }
        let mut names = vec![0; NAMES_BYTES_MAX];
        let len = match self {
            TargetInode::Open(fd) => rustix::fs::flistxattr(fd, &mut names[..])?,
            TargetInode::PathOnly(fd) => {
                rustix::fs::listxattr(Self::magic_path(fd), &mut names[..])?
            }
        };
        let names = names[..len].split(|byte| *byte == 0);
        Ok(names
            .filter(|name| !name.is_empty() && !LISTED_TWICE.contains(name))
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn set_times(&self, entry: &Entry) -> Result<(), Errno> {
        let times = times::timestamps_of(entry);
        match self {
            TargetInode::Open(fd) => rustix::fs::futimens(fd, &times),
            TargetInode::PathOnly(fd) => rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH),
        }
    }
}

/// Which of its owners an inode has got.
#[derive(Clone, Copy)]
struct Owned {
    user: bool,
    group: bool,
}

/// Metadata of a regular file just written: nobody else has seen this inode.
pub fn finish_file(
    worker: &mut Worker,
    directory: &TargetDirectory,
    fd: BorrowedFd,
    entry: &Entry,
) -> Result<(), EntryFailure> {
    let inode = TargetInode::Open(fd);
    let given = match directory.gives_owner.get() {
        Some(given) => *given,
        None => {
            let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
            *directory
                .gives_owner
                .get_or_init(|| (stat.st_uid, stat.st_gid))
        }
    };
    let owned = give(worker, inode, entry, given)?;
    let mut capability = None;
    if directory.gives_acl || !entry.xattrs.is_empty() {
        if !worker.run.target.privileged {
            // A user may not set attributes of a file that he may not write.
            inode
                .chmod(0o600)
                .map_err(EntryFailure::os("set the mode of"))?;
        }
        capability = set_xattrs(worker, inode, entry)?;
        if directory.gives_acl && !has(worker, entry, ACL_ACCESS)? {
            match inode.remove_xattr(ACL_ACCESS) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(error) => {
                    return Err(EntryFailure::os("remove the access control list of")(error));
                }
            }
        }
    }
    let mode = mode_for(worker, entry, owned);
    if mode != 0 || capability.is_some() || !entry.xattrs.is_empty() || directory.gives_acl {
        inode
            .chmod(mode)
            .map_err(EntryFailure::os("set the mode of"))?;
    }
    if let Some(capability) = capability {
        set_one(worker, inode, entry, &capability)?;
    }
    set_times(worker, inode, entry)
}

/// Sets mtime and atime. The kernel quietly moves those that its file system cannot hold.
fn set_times(worker: &Worker, inode: TargetInode, entry: &Entry) -> Result<(), EntryFailure> {
    inode
        .set_times(entry)
        .map_err(EntryFailure::os("set the times of"))?;
    if is_unusual(entry.mtime) || entry.atime.get().is_some_and(is_unusual) {
        let (TargetInode::Open(fd) | TargetInode::PathOnly(fd)) = inode;
        let stat = rustix::fs::fstat(fd).map_err(EntryFailure::os("stat"))?;
        if has_other_times(entry, &stat) {
            worker.lose(LossKind::Time, entry, "this file system cannot hold it");
        }
    }
    Ok(())
}

/// Makes the metadata of any inode equal to the entry's, changing only what differs.
pub fn adjust(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
    stat: &Stat,
) -> Result<(), EntryFailure> {
    let owned = give(worker, inode, entry, (stat.st_uid, stat.st_gid))?;
    let chowned = (stat.st_uid, stat.st_gid) != (entry.uid, entry.gid);
    let capability = match entry.kind {
        Kind::Symlink if entry.xattrs.is_empty() => None,
        _ => {
            remove_foreign_xattrs(worker, inode, entry)?;
            if !worker.run.target.privileged && !entry.xattrs.is_empty() {
                // Of a stranger's file it is refused, and so will be the attributes.
                let _refused = inode.chmod(stat.st_mode | 0o600);
            }
            set_xattrs(worker, inode, entry)?
        }
    };
    let mode = mode_for(worker, entry, owned);
    let changed = chowned || stat.st_mode & 0o7777 != mode || !entry.xattrs.is_empty();
    if entry.kind != Kind::Symlink && changed {
        inode
            .chmod(mode)
            .map_err(EntryFailure::os("set the mode of"))?;
    }
    if let Some(capability) = capability {
        set_one(worker, inode, entry, &capability)?;
    }
    if has_other_times(entry, stat) {
        set_times(worker, inode, entry)?;
    }
    Ok(())
}

/// Gives a file the time of now: what it holds is not what the snapshot holds.
pub fn touch(fd: BorrowedFd) -> Result<(), Errno> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW as _,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(fd, &times)
}

/// Is there anything that `adjust` would change? Attributes are not looked at.
pub fn differs(entry: &Entry, stat: &Stat) -> bool {
    (stat.st_uid, stat.st_gid) != (entry.uid, entry.gid)
        || stat.st_mode & 0o7777 != entry.mode & 0o7777
        || mtime_of(stat) != (entry.mtime.seconds, entry.mtime.nanos)
}

/// Inode flags and project id, where they are asked for: after the last change of the inode and of
/// its names.
pub fn seal(worker: &mut Worker, fd: BorrowedFd, entry: &Entry) -> Result<(), EntryFailure> {
    if !worker.run.options.inode_flags {
        return Ok(());
    }
    let lost = |error: Errno| {
        matches!(
            error,
            Errno::PERM | Errno::NOTTY | Errno::NOTSUP | Errno::INVAL
        )
    };
    if entry.project != 0 {
        match bale_sys::restore_calls::set_project(fd, entry.project) {
            Ok(()) => {}
            Err(error) if lost(error) => {
                worker.lose(LossKind::InodeFlags, entry, "project id refused")
            }
            Err(error) => return Err(EntryFailure::os("set the project of")(error)),
        }
    }
    let had = match rustix::fs::ioctl_getflags(fd) {
        Ok(had) => had,
        Err(error) if lost(error) => {
            if entry.inode_flags != 0 {
                worker.lose(LossKind::InodeFlags, entry, "not supported here");
            }
            return Ok(());
        }
        Err(error) => return Err(EntryFailure::os("read the inode flags of")(error)),
    };
    let kept = IFlags::from_bits_retain(INODE_FLAGS_KEPT);
    let wanted = (had - kept) | IFlags::from_bits_retain(entry.inode_flags & INODE_FLAGS_KEPT);
    if wanted == had {
        return Ok(());
    }
    match rustix::fs::ioctl_setflags(fd, wanted) {
        Ok(()) => Ok(()),
        Err(error) if lost(error) => {
            worker.lose(LossKind::InodeFlags, entry, "refused");
            Ok(())
        }
        Err(error) => Err(EntryFailure::os("set the inode flags of")(error)),
    }
}

/// Append, immutable, nodump, noatime, dirsync, sync: docs/FORMAT.md, section 8.
const INODE_FLAGS_KEPT: u32 = 0x20 | 0x10 | 0x40 | 0x80 | 0x10000 | 0x8;

/// Owner and group, or as much of them as this user may give.
fn give(
    worker: &Worker,
    inode: TargetInode,
    entry: &Entry,
    given: (u32, u32),
) -> Result<Owned, EntryFailure> {
    let all = Owned {
        user: true,
        group: true,
    };
    if given == (entry.uid, entry.gid) {
        return Ok(all);
    }
    match inode.chown(Some(entry.uid), Some(entry.gid)) {
        Ok(()) => return Ok(all),
        Err(Errno::PERM | Errno::INVAL | Errno::OVERFLOW) => {}
        Err(error) => return Err(EntryFailure::os("give the owner to")(error)),
    }
    let group = given.1 == entry.gid || inode.chown(None, Some(entry.gid)).is_ok();
    let user = given.0 == entry.uid;
    if !user || !group {
        worker.lose(LossKind::Owner, entry, "this user may not give files away");
    }
    Ok(Owned { user, group })
}

/// The mode, without set-id bits that would serve another owner than the one meant.
fn mode_for(worker: &Worker, entry: &Entry, owned: Owned) -> u32 {
    let mut mode = entry.mode & 0o7777;
    if entry.kind == Kind::Directory {
        return mode;
    }
    let mut unsafe_bits = 0;
    if !owned.user {
        unsafe_bits |= SET_USER;
    }
    if !owned.group {
        unsafe_bits |= SET_GROUP;
    }
    if mode & unsafe_bits != 0 {
        mode &= !unsafe_bits;
        worker.lose(LossKind::SetId, entry, "the owner could not be restored");
    }
    mode
}

fn has(worker: &mut Worker, entry: &Entry, name: &[u8]) -> Result<bool, EntryFailure> {
    Ok(worker
        .xattrs_of(entry)?
        .iter()
        .any(|xattr| xattr.name == name))
}

/// Sets all attributes but a capability, which is returned: chmod and chown would clear it.
fn set_xattrs(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
) -> Result<Option<Xattr>, EntryFailure> {
    if entry.xattrs.is_empty() {
        return Ok(None);
    }
    let set = worker.xattrs_of(entry)?;
    let mut capability = None;
    for xattr in set.iter() {
        if xattr.name == CAPABILITY {
            capability = Some(xattr.clone());
        } else {
            set_one(worker, inode, entry, xattr)?;
        }
    }
    Ok(capability)
}

fn set_one(
    worker: &Worker,
    inode: TargetInode,
    entry: &Entry,
    xattr: &Xattr,
) -> Result<(), EntryFailure> {
    let error = match inode.set_xattr(xattr) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let name = xattr.name.escape_ascii();
    match error {
        Errno::PERM | Errno::NOTSUP | Errno::ACCESS => {
            let kind = match &xattr.name[..] {
                CAPABILITY => LossKind::Capability,
                name if name.starts_with(b"system.posix_acl_") => LossKind::Acl,
                _ => LossKind::Xattr,
            };
            let text = format!("{name}: {}", std::io::Error::from(error));
            worker.lose(kind, entry, &text);
        }
        // "No space" is this inode's room for attributes, not the device's.
        error => {
            let text = format!("{name}: {}", std::io::Error::from(error));
            worker
                .run
                .problem(&entry.path(), "set an extended attribute of", &text);
        }
    }
    Ok(())
}

/// Removes attributes that the snapshot does not have; labels that the system gives by itself stay.
fn remove_foreign_xattrs(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
) -> Result<(), EntryFailure> {
    let names = inode
        .xattr_names()
        .map_err(EntryFailure::os("list the attributes of"))?;
    for name in names {
        let label = name.starts_with(b"security.") && name != CAPABILITY;
        if label || has(worker, entry, &name)? {
            continue;
        }
        match inode.remove_xattr(&name) {
            Ok(()) | Err(Errno::NODATA | Errno::PERM | Errno::NOTSUP | Errno::ACCESS) => {}
            Err(error) => return Err(EntryFailure::os("remove an attribute of")(error)),
        }
    }
    Ok(())
}

/// What differs between an inode and its entry, in words; empty if nothing.
pub fn compare(
    worker: &mut Worker,
    inode: TargetInode,
    entry: &Entry,
    stat: &Stat,
) -> Result<String, EntryFailure> {
    let mut words = Vec::new();
    let mode = stat.st_mode & 0o7777;
    if entry.kind != Kind::Symlink && mode != entry.mode & 0o7777 {
        words.push(format!("mode is {mode:o}, was {:o}", entry.mode & 0o7777));
    }
    if (stat.st_uid, stat.st_gid) != (entry.uid, entry.gid) {
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        words.push(format!(
            "owner is {uid}:{gid}, was {}:{}",
            entry.uid, entry.gid
        ));
    }
    if mtime_of(stat) != (entry.mtime.seconds, entry.mtime.nanos) {
        words.push("mtime differs".to_owned());
    }
    let set = worker.xattrs_of(entry)?;
    for xattr in set.iter() {
        if inode.xattr(&xattr.name).ok().as_deref() != Some(&xattr.value[..]) {
            words.push(format!("attribute {} differs", xattr.name.escape_ascii()));
        }
    }
    for name in inode
        .xattr_names()
        .map_err(EntryFailure::os("list the attributes of"))?
    {
        let label = name.starts_with(b"security.") && name != CAPABILITY;
        if !label && !set.iter().any(|xattr| xattr.name == name) {
            words.push(format!("attribute {} is new", name.escape_ascii()));
        }
    }
    Ok(words.join(", "))
}
