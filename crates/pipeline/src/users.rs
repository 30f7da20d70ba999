//! Who uses a file or a device that is an image, or is to become one. Names are nothing: a file has
//! many, by hard links, bind mounts and other roots, so devices and inodes are compared.

use bale_sys::users::{Backing, backing_of_loop, is_locked};
use rustix::fs::{Dev, major, minor};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Who uses this device, as text that follows its path. The kernel refuses to open exclusively what
/// is mounted or held, whole or in part; what it does not know is asked here, and what it knows is
/// said in words.
pub fn user_of_device(device: Dev) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    for line in mounts() {
        if line.number == number.as_bytes() {
            return Some(format!("is mounted at {}", line.place.display()));
        }
    }
    let is_this = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.rdev() == device);
    if swaps().iter().any(|path| is_this(path)) {
        return Some("is swapped to".to_owned());
    }
    let directory = format!("/sys/dev/block/{number}/holders");
    let mut holders = std::fs::read_dir(directory).into_iter().flatten().flatten();
    if let Some(holder) = holders.next() {
        return Some(format!("is part of {}", holder.file_name().display()));
    }
    let loops = loops();
    if let Some((name, _)) = loops.iter().find(|(_, over)| over.device_number == device) {
        return Some(format!("is behind {}", name.display()));
    }
    // A loop device over what another one is over, too.
    let (own, over) = loops.iter().find(|(name, _)| is_this(name))?;
    let same = |(name, other): &&(PathBuf, Backing)| name != own && other == over;
    let (name, _) = loops.iter().find(same)?;
    Some(format!("is over the same file as {}", name.display()))
}

/// Who uses this file, whatever its name: swap, a mount, a loop device, or who has locked it, like
/// a virtual machine.
pub fn user_of_file(path: &Path, meta: &Metadata) -> Option<String> {
    let is_this = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
    };
    if swaps().iter().any(|path| is_this(path)) {
        return Some("is swapped to".to_owned());
    }
    let mut mounts = mounts().into_iter();
    if let Some(mount) = mounts.find(|mount| mount.source.is_absolute() && is_this(&mount.source)) {
        return Some(format!("is mounted at {}", mount.place.display()));
    }
    for (name, over) in loops() {
        if (over.device, over.inode) == (meta.dev(), meta.ino()) {
            return Some(format!("is behind {}", name.display()));
        }
    }
    if let Some(name) = attached_by_name(meta).first() {
        return Some(format!("is behind {}", name.display()));
    }
    let file = std::fs::File::open(path).ok()?;
    // File systems without locks have nobody who locks.
    let locked = is_locked(file.as_fd()).unwrap_or(false);
    locked.then(|| "is locked by another program, as a virtual machine locks its disks".to_owned())
}

/// Is this device mounted, and nowhere for writing?
pub fn is_mounted_read_only(device: Dev) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    let mounts = mounts();
    let mut of_it = mounts
        .iter()
        .filter(|mount| mount.number == number.as_bytes())
        .peekable();
    of_it.peek().is_some() && of_it.all(|mount| !mount.is_writable)
}

/// Where this device is mounted.
pub fn mount_of_device(device: Dev) -> Option<PathBuf> {
    let number = format!("{}:{}", major(device), minor(device));
    let mut mounts = mounts().into_iter();
    let mount = mounts.find(|mount| mount.number == number.as_bytes())?;
    Some(mount.place)
}

/// Where file systems on this device are mounted; also of those that have a number of their own
/// (btrfs).
pub fn mounts_of_device(device: Dev) -> Vec<PathBuf> {
    let number = format!("{}:{}", major(device), minor(device));
    let is_this = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == device)
    };
    let is_on_it = |mount: &MountEntry| {
        mount.number == number.as_bytes() || mount.source.is_absolute() && is_this(&mount.source)
    };
    let mounts = mounts().into_iter().filter(is_on_it);
    mounts.map(|mount| mount.place).collect()
}

/// A device over this file or device, over the same as it, or below it, whose file system is
/// mounted for writing, and where: what is read here is older than what is seen there.
pub fn writer_of_image(meta: &Metadata) -> Option<(PathBuf, PathBuf)> {
    let mounts = mounts();
    let written_at = |number: &str| {
        let mut mounts = mounts.iter();
        let mount = mounts.find(|of| of.is_writable && of.number == number.as_bytes())?;
        Some(mount.place.clone())
    };
    let text_of = |device: Dev| format!("{}:{}", major(device), minor(device));
    let is_device = meta.file_type().is_block_device();
    let number_of = |name: &Path| std::fs::metadata(name).map(|of| of.rdev()).ok();
    let loops = loops();
    let own = loops
        .iter()
        .find(|(name, _)| is_device && number_of(name) == Some(meta.rdev()));
    let own = own.map(|(_, over)| over);
    let over_it = |over: &Backing| match is_device {
        true => over.device_number == meta.rdev() || own == Some(over),
        false => (over.device, over.inode) == (meta.dev(), meta.ino()),
    };
    let over_it = loops.iter().filter(|(_, over)| over_it(over));
    let over_it = over_it
        .map(|(name, _)| name.clone())
        .chain(attached_by_name(meta));
    for name in over_it {
        let place = number_of(&name).and_then(|device| written_at(&text_of(device)));
        if let Some(place) = place {
            return Some((name, place));
        }
    }
    let below = own.filter(|own| own.device_number != 0)?;
    let number = text_of(below.device_number);
    let place = written_at(&number)?;
    Some((Path::new("/dev/block").join(number), place))
}

/// Loop devices over this file, where the devices themselves cannot be asked: as the kernel names
/// what is behind them.
fn attached_by_name(meta: &Metadata) -> Vec<PathBuf> {
    let is_this = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
    };
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten();
    let over_it = |device: &std::fs::DirEntry| {
        let behind = std::fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        let behind = behind.strip_suffix(b"\n").unwrap_or(&behind);
        !behind.is_empty() && is_this(&path_of(behind))
    };
    let devices = devices.flatten().filter(over_it);
    devices
        .map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

/// Does this directory hold device nodes, so that a file in it is a misspelt device? `/dev`, and
/// every such file system.
pub fn is_for_devices(directory: &Path) -> bool {
    let Ok(real) = std::fs::canonicalize(directory) else {
        return directory.starts_with("/dev");
    };
    let devices = |mount: &MountEntry| {
        mount.kind == b"devtmpfs"
            && std::fs::metadata(&mount.place)
                .and_then(|place| Ok((place, std::fs::metadata(&real)?)))
                .is_ok_and(|(place, here)| place.dev() == here.dev())
    };
    real.starts_with("/dev") || mounts().iter().any(devices)
}

/// Attached loop devices, and what they are over, as far as this user may ask.
fn loops() -> Vec<(PathBuf, Backing)> {
    let mut found = Vec::new();
    for device in std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
    {
        if !device.path().join("loop").exists() {
            continue;
        }
        let path = Path::new("/dev").join(device.file_name());
        let Ok(file) = std::fs::File::open(&path) else {
            continue;
        };
        if let Ok(backing) = backing_of_loop(file.as_fd()) {
            found.push((path, backing));
        }
    }
    found
}

/// A line of the table of mounts.
struct MountEntry {
    number: Vec<u8>,
    place: PathBuf,
    kind: Vec<u8>,
    source: PathBuf,
    /// The file system, through whichever of its mounts.
    is_writable: bool,
}

fn mounts() -> Vec<MountEntry> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = fields.nth(2)?.to_vec();
        let place = path_of(fields.nth(1)?);
        // Optional fields end with a hyphen.
        fields.find(|field| *field == b"-")?;
        Some(MountEntry {
            number,
            place,
            kind: fields.next()?.to_vec(),
            source: path_of(fields.next()?),
            is_writable: fields
                .next()?
                .split(|byte| *byte == b',')
                .any(|each| each == b"rw"),
        })
    };
    table
        .split(|byte| *byte == b'\n')
        .filter_map(mount)
        .collect()
}

fn swaps() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/swaps").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| line.split(|byte| *byte == b' ' || *byte == b'\t').next())
        .filter(|name| !name.is_empty())
        .map(path_of)
        .collect()
}

/// A path as these tables write it: blanks and the like as a backslash and three octal digits.
fn path_of(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_tables_are_read_as_they_are_written() {
        assert_eq!(path_of(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(path_of(b"/a\\9"), Path::new("/a\\9"));
    }
}
