//! Random file operations, on any file system.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags,
};

use super::{Random, join};

/// Paths are drawn from so few names that operations meet each other.
const NAMES: u64 = 12;

/// One random operation. It may fail as operations do (no such file, not empty, no space): that is
/// part of a history.
pub fn operate(root: &Path, random: &mut Random) -> std::io::Result<()> {
    let path = any_path(root, random);
    match random.below(22) {
        0 => fs::create_dir(&path)?,
        1 => fs::create_dir_all(path.join("inner").join("most"))?,
        2..=4 => writable(true)
            .truncate(true)
            .open(&path)?
            .write_all_at(&random_bytes(random, 20_000), 0)?,
        5..=7 => {
            let file = writable(true).open(&path)?;
            for _ in 0..1 + random.below(30) {
                let magnitude = 8 + random.below(20);
                let offset = random.below(1 << magnitude);
                file.write_all_at(&random_bytes(random, 3000), offset)?;
            }
        }
        8 => writable(false)
            .open(&path)?
            .set_len(random.below(200_000))?,
        9 => allocate(&path, random)?,
        10 => fs::remove_file(&path)?,
        11 => fs::remove_dir_all(&path)?,
        12 => fs::rename(&path, any_path(root, random))?,
        13 => fs::hard_link(&path, any_path(root, random))?,
        14 => symlink("s".repeat(1 + random.below(1000) as usize), &path)?,
        15 | 16 => {
            let name = format!(
                "user.{}{}",
                random.below(30),
                "n".repeat(random.below(3) as usize * 60)
            );
            let magnitude = 1 + random.below(15);
            let value = random_bytes(random, 1 << magnitude);
            rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty())?;
        }
        17 => rustix::fs::lremovexattr(&path, format!("user.{}", random.below(30)))?,
        18 => {
            fs::set_permissions(
                &path,
                fs::Permissions::from_mode(random.below(0o10000) as u32),
            )?;
            std::os::unix::fs::lchown(
                &path,
                Some(random.next() as u32 / 2),
                Some(random.next() as u32 / 2),
            )?;
        }
        19 => {
            let time = Timespec {
                tv_sec: random.below(1 << 34) as i64 - (1 << 31),
                tv_nsec: random.below(1_000_000_000) as i64,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        20 => many_names(&path, random)?,
        _ => {
            let kind = [FileType::Fifo, FileType::CharacterDevice, FileType::Socket]
                [random.below(3) as usize];
            rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, random.below(1 << 20))?;
        }
    }
    Ok(())
}

/// Opens for writing, but does not wait for a reader where the path is a pipe.
fn writable(create: bool) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options
        .write(true)
        .create(create)
        .truncate(false)
        .custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// A path whose parent exists; the path itself may.
fn any_path(root: &Path, random: &mut Random) -> PathBuf {
    let mut path = root.to_path_buf();
    for _ in 0..3 {
        let child = join(&path, &any_name(random));
        let goes_on =
            fs::symlink_metadata(&child).is_ok_and(|child| child.is_dir()) && random.below(4) > 0;
        if !goes_on {
            return child;
        }
        path = child;
    }
    join(&path, &any_name(random))
}

/// Some names are long and no UTF-8, so that directories leave their inodes early.
fn any_name(random: &mut Random) -> Vec<u8> {
    let number = random.below(NAMES) as u8;
    let (byte, len) = if number < 8 { (b'a', 1) } else { (0xf0, 120) };
    vec![byte + number; len]
}

fn random_bytes(random: &mut Random, len_max: u64) -> Vec<u8> {
    let len = random.below(len_max) as usize;
    random.bytes(len)
}

fn allocate(path: &Path, random: &mut Random) -> std::io::Result<()> {
    let file = writable(false).open(path)?;
    let modes = [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
    ];
    for _ in 0..1 + random.below(10) {
        let mode = modes[random.below(modes.len() as u64) as usize];
        rustix::fs::fallocate(
            &file,
            mode,
            random.below(50) * 4096,
            (1 + random.below(20)) * 4096,
        )?;
    }
    let copy = writable(true).open(path.with_extension("copy"))?;
    rustix::fs::ioctl_ficlone(&copy, &file)?;
    Ok(())
}

/// Grows a directory by many names, then takes many away again.
fn many_names(directory: &Path, random: &mut Random) -> std::io::Result<()> {
    let count = random.below(300);
    for index in 0..count {
        File::create(directory.join(format!("{index} {}", "m".repeat(random.below(60) as usize))))?;
    }
    for entry in fs::read_dir(directory)? {
        if random.below(3) > 0 {
            let _ = fs::remove_file(entry?.path());
        }
    }
    Ok(())
}
