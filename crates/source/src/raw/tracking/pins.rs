//! Where what belongs to a tracked device is named, so that it outlives the process that made it:
//! a directory of its own in the file system of pinned objects. It appears and goes in one step.

use super::program::{BLOCK_SECTORS_LOG2, STRETCH_SECTORS_LOG2};
use super::program::{CONTROL_WORDS, LAYOUT, LAYOUT_VERSION, SECTORS};
use bale_sys::bpf::{self, ProgramInfo, SharedWords};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where systemd mounts it, and everybody looks for it.
const ROOT: &str = "/sys/fs/bpf";
const DIRECTORY: &str = "bale";
/// Of a directory that is being made or removed. This file system has no dots in names.
const UNFINISHED: &str = "-unfinished";

const CONTROL: &str = "control";
const BLOCKS: &str = "blocks";
const STRETCHES: &str = "stretches";
/// Each program, and the link that attaches it.
const PROGRAMS: [(&str, &str); 2] = [("queued", "queued-link"), ("ended", "ended-link")];

/// The objects of a device that is to be tracked, before they are named.
pub(super) struct NewObjects {
    pub(super) control: OwnedFd,
    pub(super) blocks: OwnedFd,
    pub(super) stretches: OwnedFd,
    /// In the order of [`PROGRAMS`].
    pub(super) programs: [OwnedFd; 2],
}

/// Entries of the arrays for so many sectors.
pub(super) fn entries(sectors: u64) -> (u64, u64) {
    (
        sectors.div_ceil(1 << BLOCK_SECTORS_LOG2),
        sectors.div_ceil(1 << STRETCH_SECTORS_LOG2),
    )
}

/// Makes the directory of all pins, and mounts their file system where nobody has.
pub(super) fn prepare() -> io::Result<()> {
    let root = Path::new(ROOT);
    if !bpf::is_for_pins(root)? {
        bpf::mount_for_pins(root)?;
    }
    make_private(&root.join(DIRECTORY))
}

fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn directory_of(device: (u32, u32)) -> PathBuf {
    Path::new(ROOT)
        .join(DIRECTORY)
        .join(format!("{}-{}", device.0, device.1))
}

fn unfinished_of(device: (u32, u32)) -> PathBuf {
    let mut name = directory_of(device).into_os_string();
    name.push(UNFINISHED);
    name.into()
}

/// Attaches the programs and names everything, in one step.
pub(super) fn create(device: (u32, u32), objects: &NewObjects) -> io::Result<()> {
    let unfinished = unfinished_of(device);
    DirBuilder::new().mode(0o700).create(&unfinished)?;
    let named =
        pin_all(&unfinished, objects).and_then(|()| fs::rename(&unfinished, directory_of(device)));
    if named.is_err() {
        let _what_is_left_is_named_by_stop = remove_directory(&unfinished);
    }
    named
}

fn pin_all(directory: &Path, objects: &NewObjects) -> io::Result<()> {
    let arrays = [
        (CONTROL, &objects.control),
        (BLOCKS, &objects.blocks),
        (STRETCHES, &objects.stretches),
    ];
    for (name, array) in arrays {
        bpf::pin(array.as_fd(), &directory.join(name))?;
    }
    for ((name, link_name), program) in PROGRAMS.iter().zip(&objects.programs) {
        let link = bpf::attach(program.as_fd())?;
        bpf::pin(program.as_fd(), &directory.join(name))?;
        bpf::pin(link.as_fd(), &directory.join(link_name))?;
    }
    Ok(())
}

/// Is there a directory of this device? An error: it is not for this user to know.
pub(super) fn exists(device: (u32, u32)) -> io::Result<bool> {
    fs::exists(directory_of(device))
}

/// Did somebody begin to make or remove one, and not finish?
pub(super) fn is_unfinished(device: (u32, u32)) -> bool {
    unfinished_of(device).exists()
}

/// Detaches the programs and forgets everything; false: there was nothing.
pub(super) fn remove(device: (u32, u32)) -> io::Result<bool> {
    let (directory, unfinished) = (directory_of(device), unfinished_of(device));
    let was_unfinished = remove_directory(&unfinished)?;
    match fs::rename(&directory, &unfinished) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(was_unfinished),
        moved => moved?,
    }
    remove_directory(&unfinished)
}

fn remove_directory(directory: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(directory)?;
    Ok(true)
}

/// Devices that have a directory, or one that is unfinished, sorted.
pub(super) fn devices() -> io::Result<Vec<(u32, u32)>> {
    let entries = match fs::read_dir(Path::new(ROOT).join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_str().unwrap_or_default();
        let numbers = name
            .strip_suffix(UNFINISHED)
            .unwrap_or(name)
            .split_once('-');
        let parsed = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        found.extend(parsed);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The objects of a tracked device.
pub(super) struct Pinned {
    pub(super) control: SharedWords,
    blocks: OwnedFd,
    stretches: OwnedFd,
    programs: [OwnedFd; 2],
}

impl Pinned {
    /// An error says why what is tracked there is not to be relied on.
    pub(super) fn open(device: (u32, u32)) -> Result<Pinned, String> {
        let directory = directory_of(device);
        if !directory.exists() && is_unfinished(device) {
            return Err("its start or stop was killed, or goes on just now".to_owned());
        }
        let pinned = |name: &str| bpf::pinned(&directory.join(name));
        let lost = |_| "something of it is lost".to_owned();
        let control = pinned(CONTROL).map_err(lost)?;
        if !is_of_shape(&control, 1, CONTROL_WORDS as u64) {
            return Err("another version of bale began it".to_owned());
        }
        let (blocks, stretches) = (pinned(BLOCKS), pinned(STRETCHES));
        let (blocks, stretches) = (blocks.map_err(lost)?, stretches.map_err(lost)?);
        let arrays = ids_of([&control, &blocks, &stretches]).map_err(|error| error.to_string())?;
        let mut programs = Vec::new();
        for (name, link_name) in PROGRAMS {
            let program = pinned(name).map_err(lost)?;
            let linked = pinned(link_name).and_then(|link| bpf::linked_program(link.as_fd()));
            let info = bpf::program_info(program.as_fd()).map_err(|error| error.to_string())?;
            if linked.ok() != Some(info.id) {
                return Err("its programs are attached no more".to_owned());
            }
            if info.arrays != arrays {
                return Err("its marks are not those that its programs write".to_owned());
            }
            programs.push(program);
        }
        let found = Pinned {
            control: SharedWords::map(control.as_fd()).map_err(|error| error.to_string())?,
            blocks,
            stretches,
            programs: programs.try_into().expect("two programs"),
        };
        let (blocks, stretches) = entries(found.word(SECTORS));
        let is_whole = found.word(LAYOUT) == LAYOUT_VERSION
            && is_of_shape(&found.blocks, blocks, 1)
            && is_of_shape(&found.stretches, stretches, 1);
        match is_whole {
            true => Ok(found),
            false => Err("another version of bale began it".to_owned()),
        }
    }

    pub(super) fn word(&self, place: usize) -> u64 {
        use std::sync::atomic::Ordering;
        self.control.words()[place].load(Ordering::SeqCst)
    }

    /// Events that the programs missed so far.
    pub(super) fn misses(&self) -> io::Result<u64> {
        let infos = self.programs.iter();
        let infos = infos.map(|program| bpf::program_info(program.as_fd()));
        infos
            .map(|info| info.map(|ProgramInfo { misses, .. }| misses))
            .sum()
    }

    /// Epochs of blocks, and of stretches.
    pub(super) fn marks(&self) -> io::Result<(SharedWords, SharedWords)> {
        Ok((
            SharedWords::map(self.blocks.as_fd())?,
            SharedWords::map(self.stretches.as_fd())?,
        ))
    }
}

fn is_of_shape(array: &OwnedFd, entries: u64, words: u64) -> bool {
    bpf::array_info(array.as_fd())
        .is_ok_and(|found| (u64::from(found.entries), u64::from(found.words)) == (entries, words))
}

/// Sorted.
fn ids_of(arrays: [&OwnedFd; 3]) -> io::Result<Vec<u32>> {
    let ids = arrays.map(|array| bpf::array_info(array.as_fd()).map(|info| info.id));
    let mut ids: Vec<u32> = ids.into_iter().collect::<io::Result<_>>()?;
    ids.sort_unstable();
    Ok(ids)
}
