//! XFS images made with the system's own tools, and what kernel and reader each see in them.
#![allow(dead_code, reason = "every test program uses another part")]

pub mod damage;
pub mod fixture;
pub mod operations;
pub mod sealed;
pub mod seen;

use crate::mounting::mount_patiently;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A sparse file with an XFS in it, deleted with its directory when dropped.
pub struct Image {
    directory: tempfile::TempDir,
}

/// A mounted image, unmounted when dropped.
pub struct Mounted<'a> {
    image: &'a Image,
    mounted: bool,
}

/// Whether the tests may run: we are root and all tools are there. Says so loudly if not.
pub fn can_run(tools: &[&str]) -> bool {
    can_run_since((0, 0), tools)
}

/// The same, where the kernel must be of a certain version to mount what is made.
pub fn can_run_since(kernel: (u32, u32), tools: &[&str]) -> bool {
    let (is_root, is_new) = (
        rustix::process::geteuid().is_root(),
        kernel_version() >= kernel,
    );
    let reason = format!("needs root ({is_root}) and a kernel of {kernel:?} ({is_new})");
    is_given(is_root && is_new, &reason) && has_tools(tools)
}

/// Whether all tools are there, for tests that need no root. Says so loudly if not.
pub fn has_tools(tools: &[&str]) -> bool {
    let missing: Vec<_> = tools.iter().filter(|tool| !tool_exists(tool)).collect();
    is_given(missing.is_empty(), &format!("needs the tools {missing:?}"))
}

fn is_given(is_given: bool, reason: &str) -> bool {
    if !is_given {
        let demanded = std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_some_and(|value| value == "1");
        assert!(!demanded, "SKIPPED: {reason}");
        eprintln!("SKIPPED: {reason}");
    }
    is_given
}

fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|byte: char| !byte.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn tool_exists(tool: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {tool}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

impl Image {
    /// Makes a file system of `size_mib` with further arguments for mkfs.xfs.
    pub fn make(size_mib: u64, mkfs_arguments: &str) -> Image {
        let image = Image {
            directory: tempfile::tempdir().unwrap(),
        };
        File::create_new(image.path())
            .unwrap()
            .set_len(size_mib << 20)
            .unwrap();
        let path = image.path();
        let mut arguments: Vec<&str> = mkfs_arguments.split_whitespace().collect();
        arguments.extend(["-q", "-f", path.to_str().unwrap()]);
        run("mkfs.xfs", &arguments);
        image
    }

    /// The image as it is now, as another image.
    pub fn copy(&self) -> Image {
        let copy = Image {
            directory: tempfile::tempdir().unwrap(),
        };
        run(
            "cp",
            &[
                "--sparse=always",
                self.path().to_str().unwrap(),
                copy.path().to_str().unwrap(),
            ],
        );
        copy
    }

    /// The image file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Room for files beside the image.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The image as a source of bytes. Writes through the loop device go to the page cache of this
    /// very file.
    pub fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    pub fn mount(&self) -> Mounted<'_> {
        let at = self.beside("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,noatime,nouuid"]);
        mount_patiently(mount.arg(self.path()).arg(&at)).unwrap();
        Mounted {
            image: self,
            mounted: true,
        }
    }

    /// Output of xfs_db commands on the unmounted image.
    pub fn xfs_db(&self, flags: &[&str], commands: &[String]) -> String {
        let mut arguments: Vec<&str> = flags.to_vec();
        for command in commands {
            arguments.extend(["-c", command]);
        }
        let path = self.path();
        arguments.push(path.to_str().unwrap());
        String::from_utf8(run("xfs_db", &arguments).stdout).unwrap()
    }
}

impl Mounted<'_> {
    pub fn path(&self) -> PathBuf {
        self.image.beside("mnt")
    }

    /// Brings everything to the device: freeze and thaw at once, by one shell so that nothing can
    /// come between.
    pub fn barrier(&self) {
        let path = self.path();
        let path = path.to_str().unwrap();
        run("sync", &["-f", path]);
        run(
            "sh",
            &[
                "-c",
                "fsfreeze -f \"$0\"; frozen=$?; fsfreeze -u \"$0\" && exit $frozen",
                path,
            ],
        );
    }

    /// Unmounts. A child of another test holds copies of our files between fork and exec, so this
    /// may take a few tries.
    pub fn unmount(mut self) {
        let path = self.path();
        let unmounts = || {
            Command::new("umount")
                .arg(&path)
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        };
        let wait = || std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(
            (0..100).any(|_| unmounts() || {
                wait();
                false
            }),
            "{} stays mounted",
            path.display()
        );
        self.mounted = false;
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

/// A generator of numbers that are the same on every run: splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end`, without it.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Joins a path and a name that need not be UTF-8.
pub fn join(directory: &Path, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    directory.join(std::ffi::OsStr::from_bytes(name))
}
