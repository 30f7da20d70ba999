//! Programs in the kernel (eBPF) that observe block devices, and the memory they share: the few
//! commands of `bpf(2)` that this takes.
//!
//! What a program does and where its objects are named is for callers; the kernel verifies every
//! program before it loads it.

use crate::inode::check;
use std::ffi::{CString, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;

const MAP_CREATE: c_int = 0;
const PROG_LOAD: c_int = 5;
const OBJ_PIN: c_int = 6;
const OBJ_GET: c_int = 7;
const OBJ_GET_INFO: c_int = 15;
const RAW_TRACEPOINT_OPEN: c_int = 17;

const MAP_TYPE_ARRAY: u32 = 2;
const MAPPABLE: u32 = 1 << 10;
const PROG_TYPE_TRACING: u32 = 26;
const ATTACH_RAW_TRACEPOINT: u32 = 23;
const LINK_TYPE_RAW_TRACEPOINT: u32 = 1;
const LINK_TYPE_TRACING: u32 = 2;

/// What the verifier may say of a program.
const LOG_BYTES: usize = 1 << 16;
/// `struct bpf_prog_info` up to the number of events missed.
const PROGRAM_INFO_BYTES: usize = 216;
const MISSES_OFFSET: usize = 208;
/// In it, how many arrays the program uses, and where their ids are to be written.
const ARRAYS_OFFSET: usize = 52;
const ARRAY_IDS_OFFSET: usize = 56;
/// Arrays of a program that are looked at.
const ARRAYS_MAX: usize = 8;

/// Waits for programs and all else that the kernel runs without being interrupted.
const MEMBARRIER_QUERY: c_int = 0;
const MEMBARRIER_GLOBAL: c_int = 1;

/// Of `statfs`: a file system of pinned objects.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// `union bpf_attr`, as bytes: fields at the offsets of the kernel's header.
#[repr(C, align(8))]
struct Attributes([u8; 144]);

impl Attributes {
    fn new() -> Attributes {
        Attributes([0; 144])
    }

    fn number(mut self, offset: usize, value: u32) -> Attributes {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, offset: usize, fd: BorrowedFd<'_>) -> Attributes {
        self.number(offset, fd.as_raw_fd() as u32)
    }

    /// An address in this process: what it points to must live across the call.
    fn address<T>(mut self, offset: usize, to: *const T) -> Attributes {
        let address = to as usize as u64;
        self.0[offset..offset + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }
}

/// # Safety
///
/// All addresses in `attributes` point to memory that lives across the call, as large as the
/// command takes it to be.
unsafe fn bpf(command: c_int, attributes: &mut Attributes) -> io::Result<c_int> {
    let len = size_of::<Attributes>();
    // SAFETY: the structure is as long as said; for what it points to the caller answers.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, len) };
    check(done as c_int)?;
    Ok(done as c_int)
}

/// # Safety
///
/// As for [`bpf`], with a command that returns a new descriptor.
unsafe fn bpf_fd(command: c_int, mut attributes: Attributes) -> io::Result<OwnedFd> {
    // SAFETY: as promised by the caller.
    let fd = unsafe { bpf(command, &mut attributes) }?;
    // SAFETY: the command returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An array that programs and processes share: `entries` of `words` numbers each, all zero.
pub fn create_array(entries: u32, words: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes::new()
        .number(0, MAP_TYPE_ARRAY)
        .number(4, 4)
        .number(8, words * 8)
        .number(12, entries)
        .number(16, MAPPABLE);
    // SAFETY: no addresses.
    unsafe { bpf_fd(MAP_CREATE, attributes) }
}

/// An array that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayInfo {
    pub id: u32,
    pub entries: u32,
    /// Of each entry.
    pub words: u32,
}

/// Which array this is, and its shape.
pub fn array_info(map: BorrowedFd<'_>) -> io::Result<ArrayInfo> {
    let mut info = [0; 24];
    object_info(map, &mut info)?;
    let (kind, key_bytes) = (number(&info, 0), number(&info, 8));
    if kind != MAP_TYPE_ARRAY || key_bytes != 4 || !number(&info, 12).is_multiple_of(8) {
        return Err(io::Error::other("it is no array"));
    }
    Ok(ArrayInfo {
        id: number(&info, 4),
        entries: number(&info, 16),
        words: number(&info, 12) / 8,
    })
}

/// Memory of an array, shared with programs and other processes.
pub struct SharedWords {
    start: *mut AtomicU64,
    words: usize,
}

// SAFETY: it is a mapping of its own, which no thread owns, and is used by atomic access alone.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps all of an array.
    pub fn map(map: BorrowedFd<'_>) -> io::Result<SharedWords> {
        let ArrayInfo { entries, words, .. } = array_info(map)?;
        let words = entries as usize * words as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (len, fd) = (words * 8, map.as_raw_fd());
        // SAFETY: a new mapping at a place that the kernel chooses; it refuses one that is longer
        // than the array, whose memory stays while it is mapped.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast();
        Ok(SharedWords { start, words })
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is so long, aligned to a page and lives as long as `self`; whoever
        // else writes to it writes whole words.
        unsafe { std::slice::from_raw_parts(self.start, self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made; nothing that borrows from it lives any more.
        unsafe { libc::munmap(self.start.cast(), self.words * 8) };
    }
}

/// Loads a program that is called at a raw tracepoint, whose type in the kernel's BTF is `btf_id`.
/// An error has what the verifier said.
pub fn load_at_tracepoint(instructions: &[u64], btf_id: u32) -> io::Result<OwnedFd> {
    let licence = c"Dual MIT/GPL";
    let attributes = || {
        Attributes::new()
            .number(0, PROG_TYPE_TRACING)
            .number(4, instructions.len() as u32)
            .address(8, instructions.as_ptr())
            .address(16, licence.as_ptr())
            .number(68, ATTACH_RAW_TRACEPOINT)
            .number(108, btf_id)
    };
    // SAFETY: instructions and licence live across the call; the former are as many as said, and
    // the latter ends with a zero.
    let error = match unsafe { bpf_fd(PROG_LOAD, attributes()) } {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    let mut log = vec![0u8; LOG_BYTES];
    let logged = attributes()
        .number(24, 1)
        .number(28, LOG_BYTES as u32)
        .address(32, log.as_mut_ptr());
    // SAFETY: as above, and the log is as long as said.
    let _fails_again = unsafe { bpf_fd(PROG_LOAD, logged) };
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let last = text.trim_end().lines().rev().take(4).collect::<Vec<_>>();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(io::Error::new(
        error.kind(),
        format!("{error}: {}", last.join("; ")),
    ))
}

/// Attaches a program to its tracepoint: until the link that is returned, and all pins of it, are
/// gone.
pub fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attributes = Attributes::new().fd(8, program);
    // SAFETY: the address of the tracepoint's name is null, as the program knows it.
    unsafe { bpf_fd(RAW_TRACEPOINT_OPEN, attributes) }
}

/// Names an object in a file system of such: it lives until the name is removed.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes::new().address(0, path.as_ptr()).fd(8, object);
    // SAFETY: the path lives across the call and ends with a zero.
    unsafe { bpf(OBJ_PIN, &mut attributes) }.map(drop)
}

/// An object by its name.
pub fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = Attributes::new().address(0, path.as_ptr());
    // SAFETY: as above.
    unsafe { bpf_fd(OBJ_GET, attributes) }
}

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    pub id: u32,
    /// Ids of the arrays that it writes to, sorted.
    pub arrays: Vec<u32>,
    /// Calls that did not happen as the program was running on that processor already.
    pub misses: u64,
}

/// Which program this is; an error if the kernel does not count what it misses.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = [0; PROGRAM_INFO_BYTES];
    let mut arrays = [0u32; ARRAYS_MAX];
    info[ARRAYS_OFFSET..][..4].copy_from_slice(&(ARRAYS_MAX as u32).to_ne_bytes());
    let address = arrays.as_mut_ptr() as usize as u64;
    info[ARRAY_IDS_OFFSET..][..8].copy_from_slice(&address.to_ne_bytes());
    // SAFETY: the ids have room for as many as said, and live across the call.
    let len = unsafe { object_info_with(program, &mut info) }?;
    if number(&info, 0) != PROG_TYPE_TRACING {
        return Err(io::Error::other("it is no program of tracing"));
    }
    if len < PROGRAM_INFO_BYTES {
        return Err(io::Error::other("this kernel does not count missed events"));
    }
    let misses = info[MISSES_OFFSET..].first_chunk().expect("8 bytes");
    let found = number(&info, ARRAYS_OFFSET) as usize;
    let mut arrays = arrays.get(..found).unwrap_or_default().to_vec();
    arrays.sort_unstable();
    Ok(ProgramInfo {
        id: number(&info, 4),
        arrays,
        misses: u64::from_ne_bytes(*misses),
    })
}

/// Id of the program that a link attaches to a tracepoint.
pub fn linked_program(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = [0; 16];
    object_info(link, &mut info)?;
    match number(&info, 0) {
        LINK_TYPE_RAW_TRACEPOINT | LINK_TYPE_TRACING => Ok(number(&info, 8)),
        _ => Err(io::Error::other("it is no link to a tracepoint")),
    }
}

/// What the kernel has to say of an object; how many bytes of it.
fn object_info(object: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<usize> {
    info.fill(0);
    // SAFETY: there are no addresses in it.
    unsafe { object_info_with(object, info) }
}

/// # Safety
///
/// All addresses in `info` point to memory that lives across the call, as large as it says.
unsafe fn object_info_with(object: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<usize> {
    let mut attributes = Attributes::new()
        .fd(0, object)
        .number(4, info.len() as u32)
        .address(8, info.as_mut_ptr());
    // SAFETY: `info` is as long as said, and lives across the call; for what it points to the
    // caller answers.
    unsafe { bpf(OBJ_GET_INFO, &mut attributes) }?;
    Ok(number(&attributes.0, 4) as usize)
}

fn number(bytes: &[u8], offset: usize) -> u32 {
    let bytes = bytes[offset..].first_chunk().expect("4 bytes");
    u32::from_ne_bytes(*bytes)
}

/// Can [`wait_for_programs`] wait?
pub fn can_wait_for_programs() -> bool {
    // SAFETY: the call takes numbers only.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0) };
    commands > 0 && commands & c_long::from(MEMBARRIER_GLOBAL) != 0
}

/// Returns once every program that ran when it was called has ended.
pub fn wait_for_programs() -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_GLOBAL, 0, 0) } as c_int)
}

/// Is this directory on a file system of pinned objects?
pub fn is_for_pins(directory: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(directory)?.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC)
}

/// Mounts such a file system, for its owner alone.
pub fn mount_for_pins(directory: &Path) -> io::Result<()> {
    let directory = CString::new(directory.as_os_str().as_bytes())?;
    let kind = c"bpf";
    // SAFETY: all texts live across the call and end with a zero.
    check(unsafe {
        libc::mount(
            kind.as_ptr(),
            directory.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            c"mode=0700".as_ptr().cast(),
        )
    })
}

/// Nanoseconds of the clock by which the kernel notes when requests begin.
pub fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
