//! Images in a temporary directory, and copies of them that have nothing but what is to be read.

use super::tree::{Tree, tree_of};
use crate::mounting::mount_patiently;
use crate::tools::{has_tools, is_given};
use bale_fsimage::allocated::{AllocatedRanges, DiskPart};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// What stands in a copy where nothing was to be read: at both ends of each such stretch; between
/// them are zeros, as writing them all would take minutes.
const GARBAGE: u8 = 0xa5;
const GARBAGE_BYTES: u64 = 64 << 10;
const STEP: usize = 1 << 20;

/// An image that disappears with this value.
pub struct Image {
    dir: tempfile::TempDir,
}

/// A mounted image; dropping unmounts.
pub struct Mounted {
    pub path: PathBuf,
    /// A program that serves the mount and must end before the image is looked at.
    server: Option<std::process::Child>,
}

/// What was to be read of an image.
pub struct Copied {
    pub image: Image,
    pub parts: Vec<DiskPart>,
    pub bytes: u64,
}

pub fn can_run(tools: &[&str]) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    is_given(is_root, "needs root") && has_tools(tools)
}

pub fn run(program: &str, words: &[&str]) -> Output {
    let output = Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {words:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

impl Image {
    pub fn new(bytes: u64) -> Image {
        let image = Image {
            dir: tempfile::tempdir().unwrap(),
        };
        File::create_new(image.path())
            .unwrap()
            .set_len(bytes)
            .unwrap();
        image
    }

    /// Made by a program whose words are split at spaces.
    pub fn make(mib: u64, words: &str) -> Image {
        let image = Image::new(mib << 20);
        let mut words = words.split(' ');
        let program = words.next().unwrap();
        let name = image.name();
        let words: Vec<_> = words.chain([name.as_str()]).collect();
        run(program, &words);
        image
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn name(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    pub fn file(&self) -> File {
        File::options()
            .read(true)
            .write(true)
            .open(self.path())
            .unwrap()
    }

    pub fn mount(&self, options: &str) -> Mounted {
        let at = self.dir.path().join("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("loop,{options}")]);
        mount_patiently(mount.arg(self.path()).arg(&at)).unwrap();
        Mounted {
            path: at,
            server: None,
        }
    }

    pub fn mount_ntfs(&self, options: &str) -> Mounted {
        let at = self.dir.path().join("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let mut server = Command::new("ntfs-3g")
            .args(["-o", &format!("no_detach,{options}")])
            .arg(self.path())
            .arg(&at)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Until the mount is there: the root of another device.
        let device = |path: &Path| std::os::unix::fs::MetadataExt::dev(&path.metadata().unwrap());
        while device(&at) == device(self.dir.path()) {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "ntfs-3g ended: {ended:?}");
            std::thread::yield_now();
        }
        Mounted {
            path: at,
            server: Some(server),
        }
    }

    /// As it is now.
    pub fn copy(&self) -> Image {
        let copy = Image {
            dir: tempfile::tempdir().unwrap(),
        };
        run("cp", &["--sparse=always", &self.name(), &copy.name()]);
        copy
    }

    /// At a moment when nothing is written to it: two copies in a row are alike.
    pub fn still_copy(&self) -> Image {
        for _ in 0..50 {
            let (first, second) = (self.copy(), self.copy());
            let same = Command::new("cmp")
                .args(["-s", &first.name(), &second.name()])
                .status();
            if same.unwrap().success() {
                return first;
            }
        }
        panic!("the image never came to rest");
    }

    /// Another image, of what is to be read of this one and of garbage.
    pub fn copied(&self) -> Copied {
        let source = self.file();
        let len = source.metadata().unwrap().len();
        let copy = Image::new(len);
        let target = copy.file();
        let mut buffer = vec![0; STEP];
        let mut ranges = AllocatedRanges::of(Arc::new(self.file()), None);
        let (mut at, mut bytes) = (0, 0);
        let mut is_first = true;
        for range in ranges.by_ref() {
            assert!(range.start < range.end && range.end <= len);
            assert!(range.start > at || is_first, "{range:?} follows {at}");
            is_first = false;
            spoil(&target, at..range.start);
            for_steps(range.start, range.end, |from, len| {
                source.read_exact_at(&mut buffer[..len], from).unwrap();
                target.write_all_at(&buffer[..len], from).unwrap();
            });
            bytes += range.end - range.start;
            at = range.end;
        }
        spoil(&target, at..len);
        let allocated: u64 = ranges.parts().iter().map(|part| part.allocated_bytes).sum();
        let all: u64 = ranges.parts().iter().map(|part| part.bytes).sum();
        assert_eq!((allocated, all), (bytes, len), "parts add up");
        let (mut taken, mut parts) = (0, Vec::new());
        for part in ranges.into_parts() {
            taken += part.allocated_bytes;
            parts.push(part);
        }
        assert_eq!(taken, bytes);
        Copied {
            image: copy,
            parts,
            bytes,
        }
    }
}

fn spoil(target: &File, gap: Range<u64>) {
    let garbage = vec![GARBAGE; GARBAGE_BYTES as usize];
    for from in [
        gap.start,
        gap.end.saturating_sub(GARBAGE_BYTES).max(gap.start),
    ] {
        let len = GARBAGE_BYTES.min(gap.end - from) as usize;
        target.write_all_at(&garbage[..len], from).unwrap();
    }
}

fn for_steps(mut from: u64, to: u64, mut step: impl FnMut(u64, usize)) {
    while from < to {
        let len = (to - from).min(STEP as u64) as usize;
        step(from, len);
        from += len as u64;
    }
}

impl Copied {
    pub fn part(&self, name: &str) -> &DiskPart {
        let found = self.parts.iter().find(|part| part.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in {:#?}", self.parts))
    }

    /// Was use believed everywhere in it?
    pub fn assert_believed(&self, name: &str) {
        let part = self.part(name);
        assert!(
            part.whole.is_none() && part.doubtful_portions == 0,
            "{part:#?}"
        );
    }

    /// The reasons why it is read whole, from the first to the last.
    pub fn why_whole(&self, name: &str) -> String {
        let part = self.part(name);
        assert_eq!(part.allocated_bytes, part.bytes);
        let why = part.whole.as_ref();
        chain(why.unwrap_or_else(|| panic!("{part:#?}")))
    }
}

pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

impl Mounted {
    pub fn tree(&self) -> Tree {
        tree_of(&self.path)
    }

    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub fn sync(&self) {
        run("sync", &["-f", self.name()]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.path).output();
        if !unmounted.is_ok_and(|output| output.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        }
        if let Some(server) = &mut self.server {
            let _ = server.wait();
        }
    }
}
