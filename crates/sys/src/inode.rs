//! Facts of an inode beyond `stat`: flags, generation, project, and the UUID of its file system.

use rustix::ioctl::{Opcode, opcode};
use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FS_IOC_GETFLAGS` bits with a meaning of their own.
pub mod flag {
    /// Writes are synchronous.
    pub const SYNC: u32 = 0x8;
    /// Cannot be changed, renamed or removed.
    pub const IMMUTABLE: u32 = 0x10;
    /// Can only grow.
    pub const APPEND: u32 = 0x20;
    /// Left out by dump(8).
    pub const NODUMP: u32 = 0x40;
    /// Reading does not stamp atime.
    pub const NOATIME: u32 = 0x80;
    /// Changes of a directory are synchronous.
    pub const DIRSYNC: u32 = 0x10000;
}

/// `fsx_xflags` bits.
mod xflag {
    pub const IMMUTABLE: u32 = 0x8;
    pub const APPEND: u32 = 0x10;
    pub const SYNC: u32 = 0x20;
    pub const NOATIME: u32 = 0x40;
    pub const NODUMP: u32 = 0x80;
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsXattr {
    /// `FS_XFLAG_*`.
    pub xflags: u32,
    /// Extent size hint.
    pub extent_bytes: u32,
    /// Number of extents; read only.
    pub extents: u32,
    pub project: u32,
    /// Copy-on-write extent size hint.
    pub cow_extent_bytes: u32,
    pad: [u8; 8],
}

impl FsXattr {
    /// The same facts as `FS_IOC_GETFLAGS` tells, as far as both know them (not `DIRSYNC`).
    pub fn inode_flags(&self) -> u32 {
        let pairs = [
            (xflag::IMMUTABLE, flag::IMMUTABLE),
            (xflag::APPEND, flag::APPEND),
            (xflag::SYNC, flag::SYNC),
            (xflag::NOATIME, flag::NOATIME),
            (xflag::NODUMP, flag::NODUMP),
        ];
        pairs
            .iter()
            .filter(|(from, _)| self.xflags & from != 0)
            .fold(0, |bits, (_, to)| bits | to)
    }
}

// The kernel's headers say `long`, the kernel itself moves an `int`.
const GETFLAGS: Opcode = opcode::read::<c_long>(b'f', 1);
const SETFLAGS: Opcode = opcode::write::<c_long>(b'f', 2);
const GETVERSION: Opcode = opcode::read::<c_long>(b'v', 1);
const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);
const GETFSUUID: Opcode = opcode::read::<FsUuid>(0x15, 0);
/// `EXT4_IOC_GETFSUUID`, whose number counts the header alone.
const EXT4_GETFSUUID: Opcode = opcode::read::<[u32; 2]>(b'f', 44);
/// `BTRFS_IOC_FS_INFO`
const BTRFS_FS_INFO: Opcode = opcode::read::<BtrfsInfo>(0x94, 31);
/// `XFS_IOC_FSGEOMETRY_V1`
const XFS_GEOMETRY: Opcode = opcode::read::<XfsGeometry>(b'X', 100);
/// Kinds of file systems, as `statfs` has them.
const EXT4_MAGIC: u64 = 0xef53;
const BTRFS_MAGIC: u64 = 0x9123_683e;
const XFS_MAGIC: u64 = 0x5846_5342;

/// `struct fsuuid` with room for one.
#[repr(C)]
struct Ext4Uuid {
    len: u32,
    flags: u32,
    uuid: [u8; 16],
}

/// `struct btrfs_ioctl_fs_info_args`: 1,024 bytes.
#[repr(C)]
struct BtrfsInfo {
    numbers: [u64; 2],
    uuid: [u8; 16],
    rest: [u8; 992],
}

/// `struct xfs_fsop_geom_v1`: 112 bytes.
#[repr(C)]
struct XfsGeometry {
    numbers: [u32; 8],
    places: [u64; 4],
    uuid: [u8; 16],
    rest: [u32; 8],
}

const _: () = assert!(size_of::<BtrfsInfo>() == 1024 && size_of::<XfsGeometry>() == 112);

#[repr(C)]
struct FsUuid {
    len: u8,
    uuid: [u8; 16],
}

/// `FS_IOC_GETFLAGS`.
pub fn flags(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // A `long` of room although the kernel writes an `int`: some file systems write a `long`.
    let mut value: c_long = 0;
    // SAFETY: the kernel writes at most 8 bytes to `value`, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), GETFLAGS as _, &mut value) })?;
    Ok(low_int(value))
}

/// `FS_IOC_SETFLAGS`.
pub fn set_flags(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let value: [u32; 2] = [flags, 0];
    // SAFETY: the kernel reads at most 8 bytes from `value`, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SETFLAGS as _, &value) })
}

/// `FS_IOC_GETVERSION`: the inode's generation.
pub fn generation(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut value: c_long = 0;
    // SAFETY: the kernel writes at most 8 bytes to `value`, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), GETVERSION as _, &mut value) })?;
    Ok(low_int(value))
}

/// `FS_IOC_FSGETXATTR`.
pub fn fsxattr(fd: BorrowedFd<'_>) -> io::Result<FsXattr> {
    let mut value = FsXattr::default();
    // SAFETY: `value` is the structure the ioctl fills and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FSGETXATTR as _, &mut value) })?;
    Ok(value)
}

/// `FS_IOC_FSSETXATTR`.
pub fn set_fsxattr(fd: BorrowedFd<'_>, value: &FsXattr) -> io::Result<()> {
    // SAFETY: the kernel only reads `value`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FSSETXATTR as _, value) })
}

/// `file_getattr`: the same as [`fsxattr`], by name and without opening. `Unsupported` before Linux
/// 6.17.
pub fn fsxattr_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<FsXattr> {
    const FILE_GETATTR: libc::c_long = 468;
    #[repr(C)]
    #[derive(Default)]
    struct FileAttr {
        xflags: u64,
        extent_bytes: u32,
        extents: u32,
        project: u32,
        cow_extent_bytes: u32,
    }
    let mut value = FileAttr::default();
    // SAFETY: `name` is NUL-terminated, `value` is as long as the size passed and lives across the
    // call.
    let result = unsafe {
        libc::syscall(
            FILE_GETATTR,
            directory.as_raw_fd(),
            name.as_ptr(),
            &mut value,
            size_of::<FileAttr>(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ENOSYS) => io::ErrorKind::Unsupported.into(),
            _ => error,
        });
    }
    Ok(FsXattr {
        xflags: value.xflags as u32,
        extent_bytes: value.extent_bytes,
        extents: value.extents,
        project: value.project,
        cow_extent_bytes: value.cow_extent_bytes,
        pad: [0; 8],
    })
}

/// UUID of the file system that this is on; `None` if nothing says it. Asks the file system itself
/// (ext4 of Linux 6.0, btrfs, XFS), and then what all have (`FS_IOC_GETFSUUID`, Linux 6.9).
pub fn filesystem_uuid(fd: BorrowedFd<'_>) -> io::Result<Option<[u8; 16]>> {
    let own = match rustix::fs::fstatfs(fd)?.f_type as u64 {
        EXT4_MAGIC => ext4_uuid(fd),
        BTRFS_MAGIC => btrfs_uuid(fd),
        XFS_MAGIC => xfs_uuid(fd),
        _ => Ok([0; 16]),
    };
    let uuid = match own {
        Ok(uuid) if uuid != [0; 16] => uuid,
        _ => any_uuid(fd)?,
    };
    Ok((uuid != [0; 16]).then_some(uuid))
}

/// File systems that keep all in memory (magic.h: tmpfs, ramfs, hugetlbfs): nothing is written
/// back, so stores through a map are stamped once.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Whether a file is kept in memory alone.
pub fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    // Magic numbers have 32 bits, whatever type the kernel gives them in.
    rustix::fs::fstatfs(fd).is_ok_and(|told| IN_MEMORY.contains(&(told.f_type as u32)))
}

/// `struct fscrypt_get_policy_ex_arg` of linux/fscrypt.h: the size of the policy, and the policy.
#[repr(C)]
struct EncryptionPolicy {
    size: u64,
    policy: [u8; 24],
}

/// `struct fscrypt_get_key_status_arg` of linux/fscrypt.h.
#[repr(C)]
struct KeyStatus {
    key_type: u32,
    reserved: u32,
    identifier: [u8; 32],
    reserved_too: [u32; 6],
    status: u32,
    flags: u32,
    users: u32,
    rest: [u32; 13],
}

/// `FS_IOC_GET_ENCRYPTION_POLICY_EX`: `_IOWR('f', 22, __u8[9])`.
const ENCRYPTION_POLICY: u32 = 0xc009_6616;
/// `FS_IOC_GET_ENCRYPTION_KEY_STATUS`: `_IOWR('f', 26, struct fscrypt_get_key_status_arg)`.
const ENCRYPTION_KEY_STATUS: u32 = 0xc080_661a;
/// `FSCRYPT_POLICY_V2`, `FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER`, `FSCRYPT_KEY_STATUS_PRESENT`.
const POLICY_VERSION_2: u8 = 2;
const KEY_BY_IDENTIFIER: u32 = 2;
const KEY_PRESENT: u32 = 2;

/// Whether the key of an encrypted directory is not there, so that its names are not what they are
/// with it. `None`: it is not encrypted, or in a way whose keys nobody tells of.
pub fn is_locked(directory: BorrowedFd<'_>) -> io::Result<Option<bool>> {
    let mut policy = EncryptionPolicy {
        size: 24,
        policy: [0; 24],
    };
    // SAFETY: `policy` has the room that it states, and lives across the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), ENCRYPTION_POLICY as _, &mut policy) })?;
    if policy.policy[0] != POLICY_VERSION_2 {
        return Ok(None);
    }
    let mut status = KeyStatus {
        key_type: KEY_BY_IDENTIFIER,
        reserved: 0,
        identifier: [0; 32],
        reserved_too: [0; 6],
        status: 0,
        flags: 0,
        users: 0,
        rest: [0; 13],
    };
    // Behind version, two modes, flags, and four bytes that are reserved.
    status.identifier[..16].copy_from_slice(&policy.policy[8..24]);
    // SAFETY: `status` is the structure the ioctl fills and lives across the call.
    check(unsafe {
        libc::ioctl(
            directory.as_raw_fd(),
            ENCRYPTION_KEY_STATUS as _,
            &mut status,
        )
    })?;
    Ok(Some(status.status != KEY_PRESENT))
}

/// `struct btrfs_ioctl_get_subvol_info_args` of linux/btrfs.h.
#[repr(C)]
struct BtrfsSubvolume {
    tree: u64,
    name: [u8; 256],
    parent: u64,
    directory: u64,
    generation: u64,
    flags: u64,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
    transactions: [u64; 4],
    times: [[u64; 2]; 4],
    reserved: [u64; 8],
}

/// `BTRFS_IOC_GET_SUBVOL_INFO`: `_IOR(0x94, 60, struct btrfs_ioctl_get_subvol_info_args)`.
const BTRFS_SUBVOLUME: u32 = 0x8000_0000 | (size_of::<BtrfsSubvolume>() as u32) << 16 | 0x943c;
/// `BTRFS_ROOT_SUBVOL_RDONLY`.
const BTRFS_READ_ONLY: u64 = 1;

/// UUID of the subvolume of btrfs that a read-only snapshot, which this is in, was taken of.
/// `None`: it is in something else.
pub fn snapshot_origin(fd: BorrowedFd<'_>) -> io::Result<Option<[u8; 16]>> {
    let mut value = BtrfsSubvolume {
        tree: 0,
        name: [0; 256],
        parent: 0,
        directory: 0,
        generation: 0,
        flags: 0,
        uuid: [0; 16],
        parent_uuid: [0; 16],
        received_uuid: [0; 16],
        transactions: [0; 4],
        times: [[0; 2]; 4],
        reserved: [0; 8],
    };
    // SAFETY: `value` is the structure the ioctl fills and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_SUBVOLUME as _, &mut value) })?;
    let is_snapshot = value.flags & BTRFS_READ_ONLY != 0 && value.parent_uuid != [0; 16];
    Ok(is_snapshot.then_some(value.parent_uuid))
}

fn any_uuid(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut value = FsUuid {
        len: 0,
        uuid: [0; 16],
    };
    // SAFETY: `value` is the structure the ioctl fills and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), GETFSUUID as _, &mut value) })?;
    Ok(match value.len {
        16 => value.uuid,
        _ => [0; 16],
    })
}

fn ext4_uuid(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut value = Ext4Uuid {
        len: 16,
        flags: 0,
        uuid: [0; 16],
    };
    // SAFETY: `value` says how long it is, the ioctl fills it, and it lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), EXT4_GETFSUUID as _, &mut value) })?;
    Ok(value.uuid)
}

fn btrfs_uuid(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut value = BtrfsInfo {
        numbers: [0; 2],
        uuid: [0; 16],
        rest: [0; 992],
    };
    // SAFETY: `value` is as long as the structure that the ioctl fills, and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_FS_INFO as _, &mut value) })?;
    Ok(value.uuid)
}

fn xfs_uuid(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut value = XfsGeometry {
        numbers: [0; 8],
        places: [0; 4],
        uuid: [0; 16],
        rest: [0; 8],
    };
    // SAFETY: `value` is as long as the structure that the ioctl fills, and lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), XFS_GEOMETRY as _, &mut value) })?;
    Ok(value.uuid)
}

/// The `int` that the kernel stored at the start of a `long`.
fn low_int(value: c_long) -> u32 {
    let bytes = value.to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
