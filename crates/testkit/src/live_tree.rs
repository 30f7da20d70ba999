//! A tree that is written to in all the ways there are while somebody looks at it, and what may be
//! seen then.
//!
//! Every block says which file, version and block it is; a log says which content each path had
//! when. So anything that was read can be checked against the moment it claims to show
//! ([`LiveTree::check`]): nothing torn, nothing older or newer, nothing of another file, no name
//! lost. Besides, directories are moved about, modes and times are changed and files are
//! defragmented; of these only the end counts: once [`LiveTree::write_while`] has returned, the
//! tree stands still.

mod check;
mod content;
mod log;
mod names;
mod writer;

pub use check::{LiveTreeReport, Moment, Seen};
pub use content::{BLOCK_BYTES, FileContent};

use log::{Log, Manner};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use writer::Writer;

/// How much there is, and how much is done to it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The same seed draws the same operations; their interleaving is the machine's.
    pub seed: u64,
    /// Threads that write to files, each to its own.
    pub writers: usize,
    /// Files that are written to, a few blocks each.
    pub files: u32,
    /// Files that nobody touches.
    pub quiet_files: u32,
    /// Files that are overwritten by one long write each time.
    pub large_files: u32,
    /// Their length.
    pub large_bytes: u64,
    /// The longest pause of a writer between two operations.
    pub pause_max: Duration,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            seed: 1,
            writers: 2,
            files: 200,
            quiet_files: 200,
            large_files: 2,
            large_bytes: 64 << 20,
            pause_max: Duration::from_millis(20),
        }
    }
}

/// The tree, and what was done to it.
pub struct LiveTree {
    root: PathBuf,
    load: Load,
    rounds: u64,
    log: Log,
}

/// Between two runs of a tool, which cost more than what they do.
const DEFRAGMENT_PAUSE: Duration = Duration::from_millis(20);

/// Directories of the tree.
const DIRECTORIES: [&str; 3] = ["busy", "quiet", "large"];

impl LiveTree {
    /// Fills an empty directory.
    pub fn create(root: &Path, load: Load) -> LiveTree {
        for name in DIRECTORIES {
            fs::create_dir(root.join(name)).expect("an empty directory");
        }
        let log = Log::default();
        let file = |path: String, number: u32, len: u64| {
            let content = FileContent::whole(number, 1, len);
            let write = || fs::write(root.join(&path), content.bytes()).expect("a file");
            log.step(&[(&path, Some(content.clone()))], Manner::AtOnce, write);
        };
        for number in 0..load.files {
            file(writer::busy_path(number), number, writer::first_len(number));
        }
        for number in 0..load.quiet_files {
            let len = writer::first_len(number.wrapping_mul(7));
            file(format!("quiet/{number}"), 1_000_000 + number, len);
        }
        for number in 0..load.large_files {
            file(
                writer::large_path(number),
                2_000_000 + number,
                load.large_bytes,
            );
        }
        names::create(root, &log);
        LiveTree {
            root: root.to_path_buf(),
            load,
            rounds: 0,
            log,
        }
    }

    /// Runs the writers while `look` runs, which can ask how many operations there were so far.
    /// Afterwards nobody writes.
    pub fn write_while<R>(&mut self, look: impl FnOnce(&dyn Fn() -> usize) -> R) -> R {
        self.rounds += 1;
        let stop = AtomicBool::new(false);
        let seed = self
            .load
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(self.rounds);
        let (root, load, log) = (&self.root, self.load, &self.log);
        let states = log.last_states();
        std::thread::scope(|scope| {
            let stop = &stop;
            for number in 0..load.writers {
                let mut writer = Writer::new(root, load, number, seed, states.clone());
                scope.spawn(move || writer.run(stop, log));
            }
            scope.spawn(move || names::link_and_rename(root, seed, stop, log));
            scope.spawn(move || names::move_directories(root, seed, stop));
            scope.spawn(move || defragment(root, stop));
            // Also when `look` panics: else the writers would go on for ever.
            let _stop = StopWhenDropped(stop);
            look(&|| log.steps())
        })
    }

    /// Operations so far.
    pub fn steps(&self) -> usize {
        self.log.steps()
    }

    /// Checks what was read of the tree at `moment`. A file that is not seen must not have been
    /// there.
    pub fn check(&self, moment: Moment, seen: impl IntoIterator<Item = Seen>) -> LiveTreeReport {
        check::check(&self.log, moment, seen)
    }

    /// Everything that is logged, as it is in the tree now.
    pub fn look(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for path in self.log.paths() {
            if let Ok(content) = fs::read(self.root.join(&path)) {
                seen.push(Seen {
                    path: path.into_bytes(),
                    settled: true,
                    content: Some(content),
                    told: String::new(),
                });
            }
        }
        seen
    }
}

struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves extents, which changes no time of any file. Where the tools are missing, nothing moves.
fn defragment(root: &Path, stop: &AtomicBool) {
    let busy = root.join("busy");
    while !stop.load(Ordering::Relaxed) {
        for tool in ["e4defrag", "xfs_fsr"] {
            // A file at a time: the tools take no directories on every file system.
            for number in 0..20 {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut command = Command::new(tool);
                command.arg(busy.join(number.to_string()));
                let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
                let _ = quiet.status();
                std::thread::sleep(DEFRAGMENT_PAUSE);
            }
        }
    }
}
