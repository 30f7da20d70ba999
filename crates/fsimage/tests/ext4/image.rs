//! Images of file systems in a temporary directory, made by mke2fs and mounted through loop
//! devices.

use crate::mounting::mount_patiently;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use bale_fsimage::ByteSource;
use tempfile::TempDir;

/// An image file that disappears with this value.
pub struct Image {
    dir: TempDir,
    pub path: PathBuf,
}

/// A mounted image; dropping unmounts.
pub struct Mount {
    pub path: PathBuf,
}

/// Whether tests that need these programs and root can run; says so loudly if not.
pub fn can_run(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<_> = programs
        .iter()
        .copied()
        .filter(|program| !in_path(program))
        .collect();
    let root = rustix::process::geteuid().is_root();
    if missing.is_empty() && root {
        return true;
    }
    let why = if root {
        format!("missing {}", missing.join(", "))
    } else {
        "needs root".to_owned()
    };
    skip(test, &why);
    false
}

/// Tells that a test was left out, past the capture of the test harness.
pub fn skip(test: &str, why: &str) {
    assert_ne!(
        std::env::var("BALE_REQUIRE_ALL_TESTS").as_deref(),
        Ok("1"),
        "{test} cannot run: {why}"
    );
    // The print macros are captured by the harness; a passing test must not hide that it did not
    // run.
    let line = format!("SKIPPED: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn in_path(program: &str) -> bool {
    path()
        .split(':')
        .any(|dir| Path::new(dir).join(program).exists())
}

/// The caller's path and where system programs are, which not every root has in its path.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin"
}

/// Runs a command that must succeed.
pub fn run(program: &str, args: &[&str]) -> Output {
    let output = try_run(program, args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {}: {text}",
        args.join(" ")
    );
    output
}

/// Runs a command that may fail.
pub fn try_run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program)
        .args(args)
        .env("PATH", path())
        .output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

impl Image {
    /// Makes a file system; `mke2fs` is split at spaces.
    pub fn make(size_mib: u64, mke2fs: &str) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(size_mib << 20)
            .unwrap();
        let image = Image { dir, path };
        let args: Vec<_> = mke2fs
            .split(' ')
            .chain(["-q", "-F", image.name()])
            .collect();
        run("mke2fs", &args);
        image
    }

    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Mounts with further options.
    pub fn mount(&self, options: &str) -> Mount {
        self.try_mount(options)
            .unwrap_or_else(|error| panic!("mount {options}: {error}"))
    }

    pub fn try_mount(&self, options: &str) -> Result<Mount, String> {
        mount(&self.path, &self.dir.path().join("mnt"), options)
    }

    /// A copy of the image as it is now, mounted or not.
    pub fn copy(&self) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        run(
            "cp",
            &["--sparse=always", self.name(), path.to_str().unwrap()],
        );
        Image { dir, path }
    }

    /// A copy at a moment when nothing was being written to the image: two copies in a row are
    /// equal.
    pub fn still_copy(&self) -> Image {
        for _ in 0..50 {
            let (first, second) = (self.copy(), self.copy());
            if try_run("cmp", &["-s", first.name(), second.name()])
                .status
                .success()
            {
                return first;
            }
        }
        panic!("the image never came to rest");
    }

    pub fn source(&self) -> Arc<dyn ByteSource> {
        Arc::new(std::fs::File::open(&self.path).unwrap())
    }
}

fn mount(image: &Path, at: &Path, options: &str) -> Result<Mount, String> {
    std::fs::create_dir_all(at).unwrap();
    let options = format!("loop,{options}");
    let mut command = Command::new("mount");
    command.args(["-t", "ext4", "-o", &options]);
    mount_patiently(command.arg(image).arg(at))?;
    Ok(Mount {
        path: at.to_owned(),
    })
}

impl Mount {
    /// Everything committed and written to the image file.
    pub fn barrier(&self) {
        self.sync();
        run("fsfreeze", &["-f", self.name()]);
        run("fsfreeze", &["-u", self.name()]);
    }

    pub fn sync(&self) {
        run("sync", &["-f", self.name()]);
    }

    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        for lazy in [false, true] {
            let args = if lazy {
                vec!["-l", self.name()]
            } else {
                vec![self.name()]
            };
            if try_run("umount", &args).status.success() {
                return;
            }
        }
    }
}
