//! Shared by the tests of walking, filtering and reading.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use bale_format::entry::{Entry, EntryFlags, Key};
use bale_format::snapshot::Filesystem;
use bale_source::image::EntryPlace;
use bale_source::scan::{Note, ScanItem, ScanOptions, ScanProblem, Scanner, Sources};
pub use bale_testkit::skipped;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything a scan said.
#[derive(Default)]
pub struct Walked {
    pub entries: Vec<Entry>,
    pub places: Vec<EntryPlace>,
    pub batches: Vec<usize>,
    pub problems: Vec<ScanProblem>,
    pub notes: Vec<Note>,
    pub amends: Vec<(Key, EntryFlags)>,
    pub filesystems: Vec<Filesystem>,
    /// Paths of the less deep entries, and text.
    log: Vec<(Vec<u8>, String)>,
}

impl Walked {
    pub fn push(&mut self, item: ScanItem) {
        match &item {
            ScanItem::Entries(batch) => {
                self.log.extend(batch.entries.iter().map(line));
                self.log.push((Vec::new(), "end of batch".to_string()));
            }
            // Its barrier is another each time.
            ScanItem::Filesystem(_) => {}
            other => self.log.push((Vec::new(), format!("{other:?}"))),
        }
        match item {
            ScanItem::Filesystem(filesystem) => self.filesystems.push(filesystem),
            ScanItem::Entries(batch) => {
                self.batches.push(batch.entries.len());
                for (at, entry) in batch.entries.into_iter().enumerate() {
                    self.places.push(batch.places.of(at));
                    self.entries.push(entry);
                }
            }
            ScanItem::Amend { key, flags } => self.amends.push((key, flags)),
            ScanItem::Unchanged(same) => panic!("nothing was known: {same:?}"),
            ScanItem::Problem(problem) => self.problems.push(problem),
            ScanItem::Note(note) => self.notes.push(note),
            ScanItem::Listed(_) | ScanItem::Missing(_) => {}
        }
    }

    /// Everything as text. What is above the sources is left out: others work there.
    pub fn log(&self, sources: &[&Path]) -> Vec<&str> {
        let above: Vec<Vec<u8>> = sources
            .iter()
            .flat_map(|source| source.ancestors().skip(1).map(without_slash))
            .collect();
        let lines = self.log.iter();
        lines
            .filter(|(path, text)| text.starts_with("end") || !above.contains(path))
            .map(|(_, text)| text.as_str())
            .collect()
    }

    /// Paths below `root`, relative to it.
    pub fn below(&self, root: &Path) -> Vec<Vec<u8>> {
        let root = without_slash(root);
        let mut prefix = root.clone();
        prefix.push(b'/');
        self.entries
            .iter()
            .filter_map(|entry| entry.path().strip_prefix(&prefix[..]).map(<[u8]>::to_vec))
            .collect()
    }

    pub fn has(&self, path: &Path) -> bool {
        self.find(path).is_some()
    }

    pub fn find(&self, path: &Path) -> Option<&Entry> {
        let path = without_slash(path);
        self.entries.iter().find(|entry| entry.path() == path)
    }

    /// The entry and its directory.
    pub fn get(&self, path: &Path) -> (Entry, EntryPlace) {
        let wanted = without_slash(path);
        let at = self.entries.iter().position(|e| e.path() == wanted);
        let at = at.unwrap_or_else(|| panic!("no entry for {}", path.display()));
        (self.entries[at].clone(), self.places[at].clone())
    }
}

pub fn without_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}

pub fn walk(paths: &[&Path], options: ScanOptions) -> Walked {
    let (sources, problems) = Sources::resolve(paths).unwrap();
    let mut walked = Walked::default();
    for item in Scanner::start(&sources, options).unwrap() {
        walked.push(item);
    }
    walked.problems.extend(problems);
    walked
}

pub fn threads(count: usize) -> ScanOptions {
    ScanOptions {
        threads: Some(count),
        ..ScanOptions::default()
    }
}

/// A directory whose path has no links in it, removed at the end.
pub struct TempPlace {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl TempPlace {
    pub fn new() -> TempPlace {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        TempPlace { _dir: dir, path }
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Runs a tool; says so loudly and returns false if it is missing, or fails if nothing may be
/// skipped.
pub fn run(tool: &str, args: &[&str]) -> bool {
    match Command::new(tool).args(args).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => panic!(
            "{tool} {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => {
            skipped(&format!("{tool}: {error}"));
            false
        }
    }
}

pub fn is_root() -> bool {
    let root = bale_testkit::is_root();
    if !root {
        skipped("needs to be root");
    }
    root
}

/// A small ext4 on a loop device, unmounted and detached at the end.
pub struct LoopMount {
    pub device: String,
    pub image: PathBuf,
    pub point: PathBuf,
}

impl LoopMount {
    /// `None`: it cannot be had here, and that was said.
    pub fn new(place: &TempPlace, name: &str, megabytes: u64) -> Option<LoopMount> {
        LoopMount::of_kind(place, name, megabytes, &["mkfs.ext4", "-q", "-F"])
    }

    pub fn xfs(place: &TempPlace, name: &str) -> Option<LoopMount> {
        LoopMount::of_kind(place, name, 320, &["mkfs.xfs", "-q", "-f"])
    }

    pub fn of_kind(
        place: &TempPlace,
        name: &str,
        megabytes: u64,
        mkfs: &[&str],
    ) -> Option<LoopMount> {
        if !is_root() {
            return None;
        }
        let image = place.join(&format!("{name}.img"));
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(megabytes << 20).unwrap();
        let image_text = image.to_str().unwrap();
        if !run(mkfs[0], &[&mkfs[1..], &[image_text]].concat()) {
            return None;
        }
        let output = Command::new("losetup")
            .args(["-f", "--show", image_text])
            .output();
        let device = match output {
            Ok(output) if output.status.success() => {
                String::from_utf8(output.stdout).unwrap().trim().to_string()
            }
            other => {
                skipped(&format!("losetup: {other:?}"));
                return None;
            }
        };
        let point = place.join(name);
        std::fs::create_dir_all(&point).unwrap();
        let mount = LoopMount {
            device,
            image,
            point,
        };
        run("mount", &[&mount.device, mount.point.to_str().unwrap()]);
        Some(mount)
    }

    /// Forgets what is cached of it.
    pub fn remount(&self) {
        run("umount", &[self.point.to_str().unwrap()]);
        run("mount", &[&self.device, self.point.to_str().unwrap()]);
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// A bind mount, unmounted at the end.
pub struct BindMount(pub PathBuf);

impl BindMount {
    pub fn new(from: &Path, to: &Path) -> BindMount {
        run(
            "mount",
            &["--bind", from.to_str().unwrap(), to.to_str().unwrap()],
        );
        BindMount(to.to_path_buf())
    }
}

impl Drop for BindMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// An entry as text, without the whole of a path that is very long.
fn line(entry: &Entry) -> (Vec<u8>, String) {
    let path = entry.path();
    let mut short = entry.clone();
    if entry.parent.len() > 4096 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        short.parent = bytes::Bytes::from(hasher.finish().to_string());
        return (Vec::new(), format!("{short:?}"));
    }
    (path, format!("{short:?}"))
}

/// Runs `disturb` over and over in another thread while `work` runs; ends also when `work` panics.
pub fn while_disturbed(mut disturb: impl FnMut() + Send, work: impl FnOnce()) {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        let _stop = Stop(&stop);
        work();
    });
}
