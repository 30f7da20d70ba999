//! The directory of a comparison and the promise that nothing stays behind.
//!
//! All that a comparison makes lies below one directory, beside which a lock file stands. Whatever
//! ends the comparison well, badly or by panic unmounts, detaches and removes on the way out. What
//! was killed left its lock file; the next comparison in the same directory cleans up before it
//! begins.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process_group};

use super::error::{CompareError, Result, at_path};
use super::mounts;
use super::processes;
use super::programs::Programs;

const WORK_NAME: &str = "bale-compare.work";
const LOCK_NAME: &str = "bale-compare.lock";
/// Begins the line of a running child in the lock file.
const CHILD_WORD: &str = "child";

/// Held while a comparison runs.
pub(super) struct Workspace {
    programs: Programs,
    work: PathBuf,
    lock_path: PathBuf,
    lock: File,
}

impl Workspace {
    /// Takes the directory; whether something had to be cleaned first.
    pub fn open(directory: &Path, programs: &Programs) -> Result<(Workspace, bool)> {
        fs::create_dir_all(directory).map_err(at_path("create", directory))?;
        let directory = fs::canonicalize(directory).map_err(at_path("open", directory))?;
        let (work, lock_path) = (directory.join(WORK_NAME), directory.join(LOCK_NAME));
        let mut options = File::options();
        let lock = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path);
        let lock = lock.map_err(at_path("open", &lock_path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(CompareError::Busy(directory));
        }
        let left = fs::read_to_string(&lock_path).unwrap_or_default();
        let is_left = work.symlink_metadata().is_ok();
        if is_left && left.is_empty() {
            let _ = fs::remove_file(&lock_path);
            return Err(CompareError::Foreign(work));
        }
        let workspace = Workspace {
            programs: programs.clone(),
            work,
            lock_path,
            lock,
        };
        if is_left {
            end_orphan(&left);
            workspace.remove_work()?;
        }
        workspace.write_lock(None)?;
        fs::create_dir(&workspace.work).map_err(at_path("create", &workspace.work))?;
        Ok((workspace, is_left))
    }

    /// A path below the work directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Remembers a running child, so that the next comparison can end it if this one is killed.
    pub fn note_child(&self, process: u32) -> Result<()> {
        self.write_lock(Some(process))
    }

    /// An empty directory; what was there goes.
    pub fn fresh_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        self.remove(&path)?;
        fs::create_dir_all(&path).map_err(at_path("create", &path))?;
        Ok(path)
    }

    /// Removes a tree below the work directory.
    pub fn remove(&self, path: &Path) -> Result<()> {
        if let Some(point) = mounts::below(path).into_iter().next() {
            return Err(CompareError::StillMounted(point));
        }
        match fs::symlink_metadata(path) {
            Ok(_) => fs::remove_dir_all(path).map_err(at_path("remove", path)),
            Err(_) => Ok(()),
        }
    }

    fn write_lock(&self, child: Option<u32>) -> Result<()> {
        let mut text = format!(
            "A bale-compare is at work here, or was killed. The next one in this directory cleans \
             up; by hand:\n\
             unmount what is mounted below {0},\n\
             losetup -d the loop devices that losetup -l shows with files below {0},\n\
             rm -r {0} and this file.\n",
            self.work.display()
        );
        if let Some((process, start)) =
            child.and_then(|child| Some((child, processes::start_ticks(child)?)))
        {
            text.push_str(&format!("{CHILD_WORD} {process} {start}\n"));
        }
        let mut file = &self.lock;
        let write = || -> std::io::Result<()> {
            use std::io::Seek;
            file.rewind()?;
            file.write_all(text.as_bytes())?;
            self.lock.set_len(text.len() as u64)
        };
        let mut write = write;
        write().map_err(at_path("write", &self.lock_path))
    }

    /// Unmounts, detaches, removes.
    fn remove_work(&self) -> Result<()> {
        for point in mounts::below(&self.work) {
            mounts::unmount(&self.programs, &point)?;
        }
        for device in mounts::loops_below(&self.work) {
            self.programs.run("losetup", &[Path::new("-d"), &device])?;
        }
        self.remove(&self.work)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // The lock file stays if something else does, and says what.
        if self.remove_work().is_ok() {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Ends the child of a comparison that was killed, if it still runs and is the same process.
fn end_orphan(lock: &str) {
    let Some(line) = lock.lines().find_map(|line| line.strip_prefix(CHILD_WORD)) else {
        return;
    };
    let mut fields = line
        .split_ascii_whitespace()
        .map(|field| field.parse::<u64>().ok());
    let (Some(Some(process)), Some(Some(start))) = (fields.next(), fields.next()) else {
        return;
    };
    let Ok(process) = u32::try_from(process) else {
        return;
    };
    if processes::start_ticks(process) == Some(start)
        && let Some(group) = i32::try_from(process).ok().and_then(Pid::from_raw)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn programs() -> Programs {
        Programs::new(OsStr::new("/usr/bin:/bin"))
    }

    fn open(directory: &Path) -> Result<(Workspace, bool)> {
        Workspace::open(directory, &programs())
    }

    #[test]
    fn nothing_stays_behind_not_even_after_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, was_left) = open(directory.path()).unwrap();
        assert!(!was_left);
        fs::write(workspace.path("file"), b"x").unwrap();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _workspace = workspace;
            panic!("on purpose");
        }));
        assert!(ended.is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_second_comparison_in_the_same_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _first = open(directory.path()).unwrap();
        assert!(matches!(open(directory.path()), Err(CompareError::Busy(_))));
    }

    #[test]
    fn what_a_killed_comparison_left_is_cleaned_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let mut orphan = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (workspace, _) = open(directory.path()).unwrap();
        fs::write(workspace.path("file"), b"x").unwrap();
        workspace.note_child(orphan.id()).unwrap();
        // A killed process drops nothing but its lock.
        flock(&workspace.lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(workspace);
        let (workspace, was_left) = open(directory.path()).unwrap();
        assert!(was_left);
        assert!(!workspace.path("file").exists());
        assert!(!orphan.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_only_has_the_same_number_is_left_alone() {
        let mut other = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let start = processes::start_ticks(other.id()).unwrap();
        end_orphan(&format!("child {} {}", other.id(), start + 1));
        assert!(other.try_wait().unwrap().is_none());
        end_orphan(&format!("child {} {start}", other.id()));
        assert!(!other.wait().unwrap().success());
    }

    #[test]
    fn a_directory_that_is_not_ours_is_not_deleted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(WORK_NAME)).unwrap();
        assert!(matches!(
            open(directory.path()),
            Err(CompareError::Foreign(_))
        ));
        assert!(directory.path().join(WORK_NAME).exists());
        assert!(!directory.path().join(LOCK_NAME).exists());
    }
}
