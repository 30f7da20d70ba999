//! The tree that all tools work on: made afresh from its seed for every round, changed the same way
//! in every round.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use bale_fsimage::mkext4::Ext4Options;

use super::error::{CompareError, Result, at_path};
use super::monitor::CompareMonitor;
use super::options::{CompareOptions, SourceKind};
use super::volume::{Volume, make_sparse, sync};
use super::workspace::Workspace;
use bale_tune::generate::{
    ChangeOptions, GenerateError, GenerateMonitor, GenerateOptions, GenerateProgress, Generator,
    change, scratch_in,
};

/// Free space of a written image, per cent: room for the change.
const FREE_PERCENT: u32 = 20;
/// Files that all have one time would be read again by tools that trust no time as new as the
/// newest.
const AGE_DAYS_MAX: u32 = 1500;
/// Hundredths of a per cent: 1 % changed, 1 % new.
const CHANGE_SHARE: u32 = 100;
/// Of an image that the kernel fills: bytes a file, and of all else. XFS wants at least 300 MiB.
const KERNEL_FILE_BYTES: u64 = 7 << 10;
const KERNEL_IMAGE_BYTES: u64 = 512 << 20;

/// The tree and what it lies on.
pub(super) struct Source {
    /// `None`: in a plain directory, for want of root.
    pub volume: Option<Volume>,
    /// Where its root is while it is mounted.
    pub root: PathBuf,
}

/// Regular files of a tree and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub files: u64,
    pub bytes: u64,
}

struct Watched<'a>(&'a dyn CompareMonitor);

impl GenerateMonitor for Watched<'_> {
    fn progress(&self, _so_far: &GenerateProgress) -> bool {
        !self.0.interrupted()
    }
}

/// The tree of WORKLOADS 1: `-d 7 -D 15 -r 5 -R 14 -f 32 -F 128 -s 1024 -S 2048 -C -N`.
pub(super) fn generate_options(options: &CompareOptions) -> GenerateOptions {
    GenerateOptions {
        directories: (7, 15),
        files: (32, 128),
        depth: (5, 14),
        file_bytes: (1024, 2048),
        compressible: true,
        realistic_names: true,
        age_days_max: AGE_DAYS_MAX,
        count: Some(options.files),
        seed: options.seed,
        ..GenerateOptions::default()
    }
}

/// The same in the words of `bale gen`.
pub(super) fn generate_words(options: &CompareOptions) -> String {
    format!(
        "-d 7 -D 15 -r 5 -R 14 -f 32 -F 128 -s 1024 -S 2048 -C -N --ages {AGE_DAYS_MAX} --count {} \
         --seed {}",
        options.files, options.seed
    )
}

impl Source {
    /// Makes the tree and leaves it mounted.
    pub fn make(
        options: &CompareOptions,
        workspace: &Workspace,
        has_device: bool,
        monitor: &dyn CompareMonitor,
    ) -> Result<Source> {
        let generator = Generator::new(generate_options(options)).map_err(stopped)?;
        let point = workspace.path("source");
        if !has_device {
            let root = workspace.fresh_directory("source")?;
            generator
                .write_directory(&root, &Watched(monitor))
                .map_err(stopped)?;
            sync();
            return Ok(Source { volume: None, root });
        }
        let image = workspace.path("source.img");
        let _ = fs::remove_file(&image);
        if options.source == SourceKind::Ext4 {
            write_image(&generator, &image, monitor)?;
        } else {
            make_file_system(options, workspace, &image)?;
        }
        let mount_options = if options.source.is_ext4() {
            "noatime,noinit_itable"
        } else {
            "noatime"
        };
        let volume = Volume::attach(workspace.programs(), image, point.clone(), mount_options)?;
        volume.mount()?;
        if options.source != SourceKind::Ext4 {
            generator
                .write_directory(&point, &Watched(monitor))
                .map_err(stopped)?;
            sync();
        }
        Ok(Source {
            volume: Some(volume),
            root: point,
        })
    }

    /// Changes one per cent of the files and adds one per cent; the tree is mounted before and
    /// after.
    pub fn change(&self, seed: u64) -> Result<()> {
        self.mount()?;
        let options = ChangeOptions {
            changed_share: CHANGE_SHARE,
            new_share: CHANGE_SHARE,
            deleted_share: 0,
            seed,
        };
        change(&self.root, &options).map_err(stopped)?;
        sync();
        Ok(())
    }

    pub fn mount(&self) -> Result<()> {
        match &self.volume {
            Some(volume) => {
                volume.unmount()?;
                volume.mount()
            }
            None => Ok(()),
        }
    }

    /// A file in the middle, its path below the root and its content: of a directory without
    /// directories, if there is one with files.
    pub fn middle_file(&self) -> Result<(PathBuf, Vec<u8>)> {
        let mut waiting = vec![PathBuf::new()];
        let mut found = None;
        while let Some(below) = waiting.pop() {
            let at = self.root.join(&below);
            let (files, directories) = sorted_names(&at)?;
            if let Some(name) = files.get(files.len() / 2)
                && (found.is_none() || directories.is_empty())
            {
                found = Some(below.join(name));
                if directories.is_empty() {
                    break;
                }
            }
            let (before, after) = directories.split_at(directories.len() / 2);
            // The last is taken first: the middle one.
            let order = before.iter().rev().chain(after.iter().rev());
            waiting.extend(order.map(|name| below.join(name)));
        }
        let nothing = || CompareError::Options("the tree has no file to restore".to_owned());
        let below = found.ok_or_else(nothing)?;
        let path = self.root.join(&below);
        let content = fs::read(&path).map_err(at_path("read", &path))?;
        Ok((below, content))
    }
}

/// Names of the regular files and of the directories in a directory, ascending.
fn sorted_names(at: &Path) -> Result<(Vec<OsString>, Vec<OsString>)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(at).map_err(at_path("read", at))? {
        let entry = entry.map_err(at_path("read", at))?;
        let kind = entry.file_type().map_err(at_path("stat", at))?;
        if kind.is_dir() && entry.file_name() != "lost+found" {
            directories.push(entry.file_name());
        } else if kind.is_file() {
            files.push(entry.file_name());
        }
    }
    files.sort_unstable();
    directories.sort_unstable();
    Ok((files, directories))
}

/// Counts the regular files below a directory.
pub(super) fn count_files(root: &Path) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).map_err(at_path("read", &directory))? {
            let entry = entry.map_err(at_path("read", &directory))?;
            let kind = entry.file_type().map_err(at_path("stat", &directory))?;
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                let meta = entry.metadata().map_err(at_path("stat", &directory))?;
                counted.files += 1;
                counted.bytes += meta.len();
            }
        }
    }
    Ok(counted)
}

fn write_image(generator: &Generator, image: &Path, monitor: &dyn CompareMonitor) -> Result<()> {
    let ext4 = Ext4Options {
        free_percent: FREE_PERCENT,
        ..Ext4Options::default()
    };
    let plan = generator.plan_ext4(&ext4).map_err(stopped)?;
    let sink = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(image)
        .and_then(|file| file.set_len(plan.bytes()).map(|()| file))
        .map_err(at_path("create", image))?;
    let scratch = scratch_in(image.parent().unwrap_or(image));
    generator
        .write_ext4(plan, sink, scratch, &Watched(monitor))
        .map_err(stopped)?;
    Ok(())
}

fn make_file_system(options: &CompareOptions, workspace: &Workspace, image: &Path) -> Result<()> {
    make_sparse(
        image,
        options.files * KERNEL_FILE_BYTES + KERNEL_IMAGE_BYTES,
    )?;
    if options.source.is_ext4() {
        return make_ext4(workspace, image, options.files);
    }
    workspace
        .programs()
        .run("mkfs.xfs", &["-q".as_ref(), image.as_os_str()])
        .map(drop)
}

/// An empty ext4 with defaults but for enough inodes; nothing is left for the kernel to initialise
/// while others measure.
pub(super) fn make_ext4(workspace: &Workspace, image: &Path, files: u64) -> Result<()> {
    let inodes = (files + files / 3 + 4096).to_string();
    let words = [
        "-q",
        "-F",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=0",
        "-N",
        &inodes,
    ];
    let words: Vec<_> = words
        .iter()
        .map(std::ffi::OsStr::new)
        .chain([image.as_os_str()])
        .collect();
    workspace.programs().run("mkfs.ext4", &words).map(drop)
}

/// To stop is no failure of the generator.
fn stopped(error: GenerateError) -> CompareError {
    match error {
        GenerateError::Stopped => CompareError::Stopped,
        other => CompareError::Generate(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_files_are_counted_and_links_are_not() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/c"), b"123").unwrap();
        fs::write(directory.path().join("d"), b"4567").unwrap();
        std::os::unix::fs::symlink("d", directory.path().join("e")).unwrap();
        assert_eq!(
            count_files(directory.path()).unwrap(),
            Counted { files: 2, bytes: 7 }
        );
        let source = Source {
            volume: None,
            root: directory.path().to_owned(),
        };
        let (path, content) = source.middle_file().unwrap();
        assert_eq!(
            (path.as_path(), content.as_slice()),
            (Path::new("a/b/c"), &b"123"[..])
        );
        for name in ["0", "a/a", "a/c"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let found = source.middle_file().unwrap().0;
        assert_eq!(found, Path::new("a/b/c"), "not lost in empty directories");
    }
}
