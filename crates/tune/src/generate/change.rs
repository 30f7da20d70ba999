//! Ageing a tree: some files change, some go, some come. The same seed and tree give the same
//! result.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::content::{FileContent, Pool};
use super::dice::{Dice, mixed};
use super::error::{GenerateError, Result, at_path};

const FOR_FATE: u64 = 401;
const FOR_NEW: u64 = 402;
const FOR_SIZE: u64 = 403;
const FOR_WAY: u64 = 404;
const FOR_OFFSET: u64 = 405;
/// Bytes that a change in place overwrites.
const CHANGED_BYTES: u64 = 512;
const POOL_BYTES: u64 = 4 << 20;
/// Least size of a new file.
const MADE_BYTES_MIN: u64 = 512;
/// A change never writes more than this into one file.
const WRITTEN_BYTES_MAX: u64 = 1 << 20;

/// How much of a tree changes. Shares are in hundredths of a per cent of the regular files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Files whose content changes: a piece in place, an appended piece, or all of it.
    pub changed_share: u32,
    /// New files, as many as this share of the files that were there.
    pub new_share: u32,
    /// Files that are deleted.
    pub deleted_share: u32,
    /// `--seed`; another one for each round.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Regular files met.
    pub files: u64,
    /// Files whose content changed.
    pub changed: u64,
    /// New files.
    pub new: u64,
    /// Deleted files.
    pub deleted: u64,
}

impl ChangeOptions {
    /// Checks the shares.
    pub fn check(&self) -> Result<()> {
        if self.changed_share + self.deleted_share > 10_000 || self.new_share > 10_000 {
            return Err(GenerateError::Options(
                "changed and deleted files are more than all, or new files are".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Changes the tree below `root`: a directory that `generate` wrote, a mounted image, or any other.
///
/// What happens to a file depends on its path and the seed alone, so equal trees stay equal.
pub fn change(root: &Path, options: &ChangeOptions) -> Result<Changed> {
    options.check()?;
    let dice = Dice(options.seed);
    let pool = Pool::new(dice, POOL_BYTES, false);
    let mut done = Changed::default();
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(directory) = waiting.pop() {
        let at = root.join(OsStr::from_bytes(&directory));
        let (files, directories) = read_directory(&at)?;
        for name in directories.into_iter().rev() {
            if !(directory.is_empty() && name == b"lost+found") {
                waiting.push(if directory.is_empty() {
                    name
                } else {
                    [&directory[..], b"/", &name].concat()
                });
            }
        }
        let here = Dice(
            directory
                .iter()
                .fold(dice.0, |hash, byte| mixed(hash ^ u64::from(*byte))),
        );
        for name in files {
            let file = Dice(
                name.iter()
                    .fold(mixed(here.0), |hash, byte| mixed(hash ^ u64::from(*byte))),
            );
            let path = at.join(OsString::from_vec(name));
            apply(&path, file, options, &pool, &mut done).map_err(at_path("change", &path))?;
        }
    }
    Ok(done)
}

/// Names in a directory, ascending.
type SortedNames = Vec<Vec<u8>>;

/// Names of regular files and of directories.
fn read_directory(at: &Path) -> Result<(SortedNames, SortedNames)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(at).map_err(at_path("read", at))? {
        let entry = entry.map_err(at_path("read", at))?;
        let kind = entry.file_type().map_err(at_path("stat", &entry.path()))?;
        let name = entry.file_name().into_vec();
        if kind.is_dir() {
            directories.push(name);
        } else if kind.is_file() {
            files.push(name);
        }
    }
    files.sort_unstable();
    directories.sort_unstable();
    Ok((files, directories))
}

fn apply(
    path: &Path,
    file: Dice,
    options: &ChangeOptions,
    pool: &Pool,
    done: &mut Changed,
) -> io::Result<()> {
    done.files += 1;
    let fate = file.within(FOR_FATE, 0, 9_999) as u32;
    let is_deleted = fate < options.deleted_share;
    let is_changed = !is_deleted && fate - options.deleted_share < options.changed_share;
    let is_followed = file.happens(FOR_NEW, options.new_share);
    if !(is_deleted || is_changed || is_followed) {
        return Ok(()); // Most files: not even a stat.
    }
    let meta = fs::symlink_metadata(path)?;
    if is_deleted {
        fs::remove_file(path)?;
        done.deleted += 1;
    } else if is_changed && meta.nlink() > 1 {
        replace(path, &meta, file, pool)?;
        done.changed += 1;
    } else if is_changed {
        rewrite(path, meta.len(), file, pool)?;
        done.changed += 1;
    }
    if is_followed {
        let fresh = file.part(FOR_NEW, 1);
        let path = path.with_file_name(format!("new-{:016x}", fresh.0));
        let most = meta.len().clamp(MADE_BYTES_MIN, WRITTEN_BYTES_MAX / 2) * 2 - 1;
        let len = fresh.within(FOR_SIZE, MADE_BYTES_MIN, most);
        write_piece(&File::create(path)?, 0, len, fresh, pool)?;
        done.new += 1;
    }
    Ok(())
}

/// A linked file is replaced, as tools that make link farms do; its other names keep what they had.
fn replace(path: &Path, meta: &fs::Metadata, file: Dice, pool: &Pool) -> io::Result<()> {
    fs::remove_file(path)?;
    let fresh = File::create_new(path)?;
    write_piece(
        &fresh,
        0,
        meta.len().clamp(1, WRITTEN_BYTES_MAX),
        file,
        pool,
    )?;
    fresh.set_permissions(meta.permissions())
}

/// Half of the changes in place, a quarter at the end, a quarter all over.
fn rewrite(path: &Path, size_bytes: u64, file: Dice, pool: &Pool) -> io::Result<()> {
    let open = File::options().write(true).open(path)?;
    let len = size_bytes.min(CHANGED_BYTES);
    match file.within(FOR_WAY, 0, 3) {
        0 | 1 if size_bytes > 0 => {
            let offset = file.within(FOR_OFFSET, 0, size_bytes - len);
            write_piece(&open, offset, len, file, pool)
        }
        2 if size_bytes <= WRITTEN_BYTES_MAX => {
            write_piece(&open, 0, size_bytes.max(1), file, pool)
        }
        _ => write_piece(&open, size_bytes, CHANGED_BYTES, file, pool),
    }
}

fn write_piece(file: &File, offset: u64, len: u64, dice: Dice, pool: &Pool) -> io::Result<()> {
    let mut bytes = vec![0; len as usize];
    FileContent {
        pool,
        dice,
        hole: 0..0,
    }
    .fill(0, &mut bytes);
    file.write_all_at(&bytes, offset)
}
