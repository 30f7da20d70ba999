//! The adapter: what the kernel asks by the protocol of FUSE is asked of the tree. The only file
//! that knows fuser.
//!
//! The kernel caches what is in a snapshot as long as it likes, for it never changes. Opening a
//! file is not asked at all: its number is enough to read it.

use crate::attributes::{BLOCK_BYTES, NodeAttributes};
use crate::contents::SeekFor;
use crate::limits::{KERNEL_BACKGROUND_MAX, KERNEL_READAHEAD_BYTES, ROWS_LAST, THREADS};
use crate::numbers::MountNode;
use crate::pusher::{PushFile, SmallFilePusher};
use crate::tree::{ListedNode, SnapshotTree};
use crate::tree_error::TreeError;
use bale_format::{Kind, Time};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, Notifier, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyXattr, Request, Session, SessionACL,
};
use std::ffi::OsStr;
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers of snapshots are never given twice.
const GENERATION: Generation = Generation(0);
/// `lseek` for data, and for a hole.
const SEEK_DATA: i32 = 3;
/// See there.
const SEEK_HOLE: i32 = 4;
const NAME_BYTES_MAX: u32 = 255;

// One may wait for what another one answers.
const _: () = assert!(THREADS > 1);

/// How it is mounted.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Other users may look, as far as modes and access control lists let them.
    pub is_open_to_others: bool,
    /// What `mount` and `df` show as its device.
    pub source: String,
}

/// Threads that answer until it is unmounted.
pub struct KernelSession {
    /// Never dropped: it would unmount whatever is mounted at its place by then.
    session: ManuallyDrop<BackgroundSession>,
}

impl KernelSession {
    pub fn start(
        dir: &Path,
        tree: &Arc<SnapshotTree>,
        options: &KernelOptions,
    ) -> io::Result<KernelSession> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoAtime,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::DefaultPermissions,
            MountOption::Subtype("bale".to_owned()),
            MountOption::FSName(options.source.clone()),
        ];
        config.acl = match options.is_open_to_others {
            true => SessionACL::All,
            false => SessionACL::Owner,
        };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let filesystem = TreeFilesystem {
            tree: tree.clone(),
            checks_lists: options.is_open_to_others,
            opens: false,
            opens_directories: false,
            pusher: Arc::default(),
        };
        let pusher = filesystem.pusher.clone();
        let session = Session::new(filesystem, dir, &config)?;
        let push = || store_with(session.notifier());
        let _it_is_set_once = pusher.set(SmallFilePusher::start(tree, (push(), push()))?);
        let session = session.spawn()?;
        Ok(KernelSession {
            session: ManuallyDrop::new(session),
        })
    }

    /// Have the threads ended, as it is unmounted?
    pub fn is_over(&self) -> bool {
        self.session.guard.is_finished()
    }
}

struct TreeFilesystem {
    tree: Arc<SnapshotTree>,
    /// The kernel asks for access control lists and obeys them.
    checks_lists: bool,
    /// The kernel is too old to do without.
    opens: bool,
    /// The same of directories.
    opens_directories: bool,
    /// Pushes what will be read next.
    pusher: Arc<OnceLock<SmallFilePusher>>,
}

/// A file that the kernel does not know ends it: it knows none of the next ones.
fn store_with(notifier: Notifier) -> PushFile {
    Box::new(move |number, bytes| notifier.store(INodeNo(number), 0, bytes).is_ok())
}

impl From<TreeError> for Errno {
    fn from(error: TreeError) -> Errno {
        match error {
            TreeError::NoEntry => Errno::ENOENT,
            TreeError::NotDirectory => Errno::ENOTDIR,
            TreeError::IsDirectory => Errno::EISDIR,
            TreeError::NotLink => Errno::EINVAL,
            TreeError::NoAttribute => Errno::NO_XATTR,
            TreeError::NoData => Errno::ENXIO,
            TreeError::Gone => Errno::ESTALE,
            TreeError::Unreadable => Errno::EIO,
        }
    }
}

fn kind_of(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::CharDevice => FileType::CharDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::File | Kind::Extent => FileType::RegularFile,
    }
}

fn moment(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    let moment = whole.and_then(|whole| whole.checked_add(nanos));
    moment.unwrap_or(UNIX_EPOCH)
}

/// As the kernel packs the number of a device: the low byte of the minor, the major, the rest.
fn device(rdev: u64) -> u32 {
    let (major, minor) = ((rdev >> 32) as u32, rdev as u32);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// With the number by which the kernel asks for it, or the one that is shown.
fn file_attr(attributes: &NodeAttributes, number: u64) -> FileAttr {
    let mtime = moment(attributes.mtime);
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.blocks,
        // Reading changes nothing here.
        atime: moment(attributes.atime),
        mtime,
        ctime: moment(attributes.ctime),
        crtime: mtime,
        kind: kind_of(attributes.kind),
        perm: attributes.mode as u16,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device(attributes.rdev),
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

/// How long attributes last. Of several names of a file, each is asked for again: together with a
/// name the protocol has no room for a number that differs from the one it is asked for by.
fn attributes_last(attributes: &NodeAttributes) -> Duration {
    match attributes.shown == attributes.number {
        true => attributes.lasts,
        false => Duration::ZERO,
    }
}

impl TreeFilesystem {
    fn lasts(number: u64) -> bool {
        matches!(
            MountNode::of(number),
            Some(MountNode::Row(..) | MountNode::SnapshotRoot(_))
        )
    }

    /// Calls `add` for entries behind a place until it wants no more. Behind the last one, the
    /// kernel knows all of them.
    fn list(
        &self,
        directory: u64,
        behind: u64,
        add: &mut dyn FnMut(&ListedNode) -> bool,
    ) -> Result<(), TreeError> {
        let mut is_at_end = true;
        self.tree.list(directory, behind, &mut |listed| {
            is_at_end = false;
            add(listed)
        })?;
        if is_at_end && let Some(pusher) = self.pusher.get() {
            pusher.push_listed(&self.tree, directory, behind);
        }
        Ok(())
    }
}

impl Filesystem for TreeFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel does not know is done without.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_MAX_PAGES,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.checks_lists {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        self.opens = (config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT)).is_err();
        self.opens_directories =
            (config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT)).is_err();
        let _ = config.set_max_write(KERNEL_READAHEAD_BYTES);
        if let Err(most) = config.set_max_readahead(KERNEL_READAHEAD_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(KERNEL_BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(parent.0, name.as_bytes()) {
            Ok(found) => reply.entry_with_ttls(
                &attributes_last(&found),
                &found.lasts,
                &file_attr(&found, found.number),
                GENERATION,
            ),
            // What is not in a snapshot never will be: a number of 0 is remembered as that.
            Err(TreeError::NoEntry) if TreeFilesystem::lasts(parent.0) => {
                let nothing = NodeAttributes::nothing();
                reply.entry(&ROWS_LAST, &file_attr(&nothing, 0), GENERATION);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {
        // Nothing is remembered.
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.attributes(number.0) {
            Ok(found) => reply.attr(&attributes_last(&found), &file_attr(&found, found.shown)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.tree.target(number.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.opens {
            // The kernel never asks again, and keeps what it has read.
            false => reply.error(Errno::ENOSYS),
            true => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = offset.saturating_add(u64::from(size));
        match self.tree.read(number.0, offset..end) {
            Ok(bytes) => {
                if let Some(pusher) = self.pusher.get() {
                    pusher.push_behind(&self.tree, number.0);
                }
                reply.data(&bytes);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel never asks again.
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::EINVAL);
        };
        match self.tree.seek(number.0, offset, wanted) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if !self.opens_directories {
            // The kernel never asks again, and keeps lists until the time of a directory changes:
            // of those above the snapshots it asks for that whenever somebody opens them.
            return reply.error(Errno::ENOSYS);
        }
        let flags = match TreeFilesystem::lasts(number.0) {
            true => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut add = |listed: &ListedNode| {
            let attributes = listed.attributes;
            let name = OsStr::from_bytes(listed.name);
            let kind = kind_of(attributes.kind);
            !reply.add(INodeNo(attributes.shown), listed.cookie, kind, name)
        };
        match self.list(number.0, offset, &mut add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut add = |listed: &ListedNode| {
            let attributes = listed.attributes;
            // What is believed for no time is looked up before it is used.
            let lasts = match attributes.is_partly_known {
                true => Duration::ZERO,
                false => attributes.lasts,
            };
            !reply.add(
                INodeNo(attributes.number),
                listed.cookie,
                OsStr::from_bytes(listed.name),
                &lasts,
                &file_attr(attributes, attributes.number),
                GENERATION,
            )
        };
        match self.list(number.0, offset, &mut add) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let block = BLOCK_BYTES as u32;
        reply.statfs(0, 0, 0, 0, 0, block, NAME_BYTES_MAX, block);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = self.tree.xattrs(number.0).and_then(|all| {
            let mut all = all.into_iter();
            let found = all.find(|attribute| attribute.name == name.as_bytes());
            found.ok_or(TreeError::NoAttribute)
        });
        match found {
            Ok(attribute) => send_xattr(&attribute.value, size, reply),
            Err(error) => reply.error(error.into()),
        }
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        match self.tree.xattrs(number.0) {
            Ok(all) => {
                let names = all
                    .iter()
                    .flat_map(|attribute| [&attribute.name[..], b"\0"]);
                send_xattr(&names.collect::<Vec<_>>().concat(), size, reply);
            }
            Err(error) => reply.error(error.into()),
        }
    }
}

/// A size of 0 asks how much room is needed.
fn send_xattr(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_the_calendar_are_no_trouble() {
        let time = |seconds, nanos| Time { seconds, nanos };
        let before = UNIX_EPOCH - Duration::new(1, 500_000_000);
        assert_eq!(moment(time(-2, 500_000_000)), before);
        moment(time(i64::MIN, 999_999_999));
        moment(time(i64::MAX, 999_999_999));
    }

    #[test]
    fn device_numbers_are_packed_as_the_kernel_unpacks_them() {
        assert_eq!(device(8 << 32 | 1), 0x801);
        assert_eq!(device(0x123 << 32 | 0x45678), 0x4561_2378);
    }
}
