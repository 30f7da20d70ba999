//! The tree that is backed up, and how it changes. Everything is done as users do it, with times
//! that the kernel stamps.

use super::steps::{Bytes, Edit};
use bale_testkit::scene::noise;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The first ones lie in the one source, the last four in the other.
pub const NAMES: [&str; super::generate::PATHS] = [
    "a",
    "b",
    "b.skip",
    "C.TMP",
    "d0/a",
    "d0/b",
    "d0/e/f",
    "d0/e/g",
    "d1/a",
    "d1/x.skip",
    "skipped/a",
    "large0",
    "large1",
    "d0/large",
    "d0/e/large",
    "link",
    "d1/link",
    "d0",
    "d1/deep/er/h",
    "odd \u{e9}\n",
    "m0",
    "m1",
    "box/m2",
    "box/m3",
];
const OF_MAIL: usize = 4;
/// Directories that get a mark.
const MARKED: [&str; 3] = ["d0/e", "d1", "skipped"];

/// What tells a cache.
pub const CACHE_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n";

/// Does what the edits say in a pair of directories; what cannot be done is left.
pub fn apply(edits: &[Edit], src: &Path, mail: &Path) {
    let place = |path: usize| {
        let path = path % NAMES.len();
        match path < NAMES.len() - OF_MAIL {
            true => src.join(NAMES[path]),
            false => mail.join(NAMES[path]),
        }
    };
    for edit in edits {
        // Something else may be in the way: then this edit is none.
        let _done = apply_one(edit, &place, src);
    }
}

fn apply_one(edit: &Edit, place: &dyn Fn(usize) -> PathBuf, src: &Path) -> std::io::Result<()> {
    match *edit {
        Edit::Write { path, kind } => write(&place(path), kind),
        Edit::Append { path } => {
            use std::io::Write;
            let path = place(path);
            regular(&path)?;
            fs::OpenOptions::new()
                .append(true)
                .open(path)?
                .write_all(b"more\n")
        }
        Edit::Remove { path } => remove(&place(path)),
        Edit::Rename { from, to } => {
            let to = place(to);
            parents(&to)?;
            fs::rename(place(from), to)
        }
        Edit::Link { from, to } => {
            let (from, to) = (place(from), place(to));
            regular(&from)?;
            parents(&to)?;
            fs::hard_link(from, to)
        }
        Edit::Symlink { path, target } => {
            let path = place(path);
            parents(&path)?;
            symlink(NAMES[target % NAMES.len()], path)
        }
        Edit::MakeDir { path } => fs::create_dir_all(place(path)),
        Edit::Fifo { path } => {
            let path = place(path);
            parents(&path)?;
            let mode = rustix::fs::Mode::from_raw_mode(0o640);
            Ok(rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                mode,
                0,
            )?)
        }
        Edit::Mode { path, mode } => {
            let path = place(path);
            let stat = fs::symlink_metadata(&path)?;
            // A directory stays one that can be entered, whoever runs this.
            let mode = if stat.is_dir() { mode | 0o700 } else { mode };
            match stat.is_symlink() {
                true => Ok(()),
                false => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
            }
        }
        Edit::Attribute { path, len } => {
            let value = noise(len as u64, len);
            let name = CString::new(format!("user.note{}", len % 7)).expect("no zeros");
            let flags = rustix::fs::XattrFlags::empty();
            let path = place(path);
            regular(&path)?;
            Ok(rustix::fs::lsetxattr(path, &name, &value, flags)?)
        }
        Edit::Mtime { path, seconds } => {
            let path = place(path);
            regular(&path)?;
            let age = Duration::from_secs(seconds.unsigned_abs());
            let time = if seconds < 0 {
                UNIX_EPOCH - age
            } else {
                UNIX_EPOCH + age
            };
            fs::File::open(path)?.set_modified(time)
        }
        Edit::Mark { path } => {
            let dir = src.join(MARKED[path % MARKED.len()]);
            fs::create_dir_all(&dir)?;
            match path % 2 {
                0 => fs::write(dir.join("NOBACKUP"), b""),
                _ => fs::write(dir.join("CACHEDIR.TAG"), CACHE_TAG),
            }
        }
    }
}

fn regular(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}

fn parents(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().expect("below a source"))
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn write(path: &Path, kind: Bytes) -> std::io::Result<()> {
    parents(path)?;
    // Not through a link, and no waiting for the other end of a pipe.
    if fs::symlink_metadata(path).is_ok_and(|stat| !stat.is_file()) {
        remove(path)?;
    }
    let common = |number: u64, len| noise(1_000_000 + number, len);
    let bytes = match kind {
        Bytes::Small(number) => noise(number, 1 + (number as usize * 37) % 2_500),
        Bytes::Common(number) => common(number, 300),
        Bytes::Large(number) => common(number % 4, (600 << 10) + number as usize),
        Bytes::LargeVariant(number) => {
            let mut bytes = common(number % 4, 900 << 10);
            bytes[(880 << 10)..].fill(number as u8);
            bytes
        }
        Bytes::Sparse(number) => {
            let file = fs::File::create(path)?;
            file.set_len((1 << 20) + number)?;
            return file.write_all_at(&noise(number, 5_000), 700 << 10);
        }
        Bytes::Empty => Vec::new(),
    };
    fs::write(path, bytes)
}

/// Is a path, given by its components below a source, left out by a name?
pub fn is_skipped_name(name: &[u8], ignoring_case: bool, by_name: bool) -> bool {
    let by_name = by_name && (name.ends_with(b".skip") || name == b"skipped");
    by_name || ignoring_case && name.to_ascii_lowercase().ends_with(b".tmp")
}

pub fn path_of(bytes: &[u8]) -> PathBuf {
    Path::new("/").join(std::ffi::OsStr::from_bytes(bytes))
}

pub fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes()[1..].to_vec()
}
