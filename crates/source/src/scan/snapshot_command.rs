//! Reading from a snapshot that somebody else's command makes, keeps and releases
//! (docs/SNAPSHOTS.md).
//!
//! The command is one process for the life of the snapshot: it makes it, says where it is, waits
//! until its standard input ends, and releases it. So the snapshot is released whatever becomes of
//! us: when the backup is over, when it fails, when it is interrupted, and when it is killed. It is
//! never killed itself.

use super::device_copy;
use super::live::MountOf;
use super::worth::{Part, is_worth_it};
use super::{ScanMode, Sources};
use bale_pipeline::filter::Filter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a command may say in all.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const NO_DIRECTORY: &str = "names no directory in which the source could be read";
/// Between two looks whether the command has ended.
const END_PAUSE: Duration = Duration::from_millis(10);

/// A command that makes snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotCommand {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// How long making, and how long releasing may take.
    pub wait_max: Duration,
}

/// Environment of the snapshot command.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRequest {
    /// `BALE_SOURCE`: the directory that is to be read.
    pub source: PathBuf,
    /// `BALE_MOUNT_POINT`: where its file system is mounted.
    pub mount_point: PathBuf,
    /// `BALE_PATH_IN_FILESYSTEM`: the source from the root of its file system, without a slash
    /// before it; empty: the root. With a bind mount this is not what follows the mount point.
    pub path_in_filesystem: PathBuf,
    /// `BALE_DEVICE`: what is mounted there.
    pub device: PathBuf,
    /// `BALE_FILESYSTEM`: `ext4`, `btrfs` ...
    pub filesystem: String,
    /// `BALE_SNAPSHOT_NAME`: a name that no other run uses.
    pub name: String,
    /// `BALE_WANTED`: a device that is not mounted rather than a directory.
    pub device_wanted: bool,
}

/// A snapshot that exists as long as this.
#[derive(Debug)]
pub struct StorageSnapshot {
    /// Where the content of the *source* is to be read, if it is mounted.
    pub directory: Option<PathBuf>,
    /// A block device, or an image, that holds the file system as it was, if there is one. Not
    /// mounted.
    pub device: Option<PathBuf>,
    /// Write back failed before the snapshot: every file in it is racy.
    pub is_racy: bool,
    command: Holding,
}

/// Why there is no snapshot, or one too many.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The command could not be run.
    #[error("start the snapshot command {program:?}: {source}")]
    Run { program: String, source: io::Error },
    /// This cannot be read from a snapshot, whatever the command says.
    #[error("{} cannot be read from a storage snapshot: {source}", path.display())]
    Source { path: PathBuf, source: io::Error },
    /// It ended, went on without an answer, or the answer is of no use.
    #[error("the snapshot command {program:?} {why}")]
    Refused { program: String, why: String },
    /// It did not end well: the snapshot may still be there.
    #[error(
        "the snapshot command {program:?} {why}: the snapshot {name} may still be there, look for \
         it and remove it"
    )]
    NotReleased {
        program: String,
        why: String,
        /// What `BALE_SNAPSHOT_NAME` said.
        name: String,
    },
}

impl SnapshotCommand {
    /// Runs the command and waits until the snapshot is there. What was settled at a barrier before
    /// this is settled in the snapshot.
    pub fn take(&self, wanted: &SnapshotRequest) -> Result<StorageSnapshot, SnapshotError> {
        let mut command = self.start(wanted)?;
        let answer = command.answer(self.wait_max);
        let answer = answer.and_then(|text| parse(&text).map_err(NoAnswer::OfNoUse));
        let (directory, device) = match answer {
            Ok(places) => places,
            // It may have made one all the same: its end is waited for.
            Err(no_answer) => return Err(command.refused(no_answer)),
        };
        Ok(StorageSnapshot {
            directory,
            device,
            is_racy: false,
            command,
        })
    }

    fn start(&self, wanted: &SnapshotRequest) -> Result<Holding, SnapshotError> {
        let program = self.text();
        let mut command = Command::new(&self.program);
        let child = bale_pipeline::secret_variables::withhold_secrets(&mut command)
            .args(&self.arguments)
            .env("BALE_SOURCE", &wanted.source)
            .env("BALE_MOUNT_POINT", &wanted.mount_point)
            .env("BALE_PATH_IN_FILESYSTEM", &wanted.path_in_filesystem)
            .env("BALE_DEVICE", &wanted.device)
            .env("BALE_FILESYSTEM", &wanted.filesystem)
            .env("BALE_SNAPSHOT_NAME", &wanted.name)
            .env(
                "BALE_WANTED",
                if wanted.device_wanted {
                    "device"
                } else {
                    "directory"
                },
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // An interrupt at the terminal is for us: the snapshot is needed until we have stopped.
            .process_group(0)
            .spawn();
        match child {
            Ok(child) => Ok(Holding {
                child,
                program,
                name: wanted.name.clone(),
                wait_max: self.wait_max,
                released: false,
            }),
            Err(source) => Err(SnapshotError::Run { program, source }),
        }
    }

    /// For people: of a shell what it is to run, for that is what was given.
    fn text(&self) -> String {
        match &self.arguments[..] {
            [option, text] if self.program == "sh" && option == "-c" => text,
            _ => &self.program,
        }
        .to_string_lossy()
        .into_owned()
    }
}

/// Takes a snapshot of each source and has it read from there: from a device by its inodes where
/// `mode` has it so and the device can be read, else by walking. Call it before the scan, keep what
/// it returns until the backup is over, and give the scan a barrier from before. `name` is unique
/// to the run; `note` is told what the snapshots leave out.
pub fn take_all(
    command: &SnapshotCommand,
    sources: &mut Sources,
    mode: ScanMode,
    name: &str,
    note: &mut dyn FnMut(String),
) -> Result<Vec<StorageSnapshot>, SnapshotError> {
    let mut taken = Vec::new();
    for (number, source) in sources.paths().to_vec().into_iter().enumerate() {
        let mount = mount_of(&source)?;
        for below in &mount.mounts_below {
            let text = "is a mount of its own and not in the snapshot";
            note(format!("{} {text}", below.display()));
        }
        // What is settled before the snapshot must be in it: a time may be on the disk before the
        // bytes that it tells of.
        let written = std::fs::File::open(&source).and_then(|file| Ok(rustix::fs::syncfs(file)?));
        let is_racy = written.is_err();
        if let Err(error) = written {
            note(format!(
                "{} could not be written back before its snapshot: {error}; the next backup reads \
                 all of it again",
                source.display()
            ));
        }
        let is_alone = sources.paths().len() == 1;
        let wanted = SnapshotRequest {
            device_wanted: is_alone && wants_device(mode, &source, &mount),
            source: source.clone(),
            mount_point: mount.point,
            path_in_filesystem: mount.path_inside,
            device: mount.source,
            filesystem: mount.kind,
            name: format!("{name}-{number}"),
        };
        let by_device = is_alone && mode != ScanMode::Walk;
        let (mut snapshot, place) = match by_device {
            true => take_for_inodes(command, &wanted, mode == ScanMode::Inode, note)?,
            false => take_for_walking(command, &wanted)?,
        };
        let (place, read) = match place {
            ReadFrom::Device(device) => (device.clone(), sources.read_from_device(device)),
            ReadFrom::Directory(at) => (at.clone(), sources.read_from(&source, at)),
        };
        if let Err(error) = read {
            let (source, place) = (source.display(), place.display());
            return Err(snapshot.useless(format!(
                "says that {source} is to be read in {place}: {error}"
            )));
        }
        snapshot.is_racy = is_racy;
        taken.push(snapshot);
    }
    Ok(taken)
}

fn mount_of(source: &Path) -> Result<MountOf, SnapshotError> {
    let refused = |error: io::Error| SnapshotError::Source {
        path: source.to_owned(),
        source: error,
    };
    if !source.is_dir() {
        let text = "it is no directory, and a command makes snapshots of directories";
        return Err(refused(io::Error::new(io::ErrorKind::NotADirectory, text)));
    }
    MountOf::directory(source).map_err(refused)
}

/// Where a source is read.
enum ReadFrom {
    Device(PathBuf),
    Directory(PathBuf),
}

/// Is the inode scan what is right for this source?
fn wants_device(mode: ScanMode, source: &Path, mount: &MountOf) -> bool {
    if !device_copy::is_read_from_device(&mount.kind) {
        return false;
    }
    let worth_it = || {
        let directory = std::fs::File::open(source).ok()?;
        let (paths, filter) = ([source.to_path_buf()], Filter::default());
        let part = match mount.path_inside.as_os_str().is_empty() {
            true => Part::All,
            false => Part::Of(&paths, &filter, 0),
        };
        is_worth_it(directory.as_fd(), part).ok()
    };
    match mode {
        ScanMode::Walk => false,
        ScanMode::Inode => true,
        ScanMode::Auto => worth_it().is_some(),
    }
}

/// A snapshot that is read from its device if that can be, else by walking, unless it `must` be.
fn take_for_inodes(
    command: &SnapshotCommand,
    wanted: &SnapshotRequest,
    must: bool,
    note: &mut dyn FnMut(String),
) -> Result<(StorageSnapshot, ReadFrom), SnapshotError> {
    let snapshot = command.take(wanted)?;
    let why_not = match (&snapshot.device, &snapshot.directory) {
        (Some(device), directory) if wanted.device_wanted || directory.is_none() => {
            match device_copy::check(&wanted.source, device) {
                Ok(()) => {
                    let device = ReadFrom::Device(device.clone());
                    return Ok((snapshot, device));
                }
                Err(why) => Some(format!("{}: {why}", device.display())),
            }
        }
        _ => None,
    };
    if must {
        let why = why_not.unwrap_or_else(|| "it names no device".to_owned());
        return Err(snapshot.useless(format!(
            "made a snapshot, but --scan inode cannot be used: {why}"
        )));
    }
    if let Some(why) = why_not {
        note(format!("the snapshot is not read from its device: {why}"));
    }
    match snapshot.directory.clone() {
        Some(directory) => Ok((snapshot, ReadFrom::Directory(directory))),
        // One that is mounted must be made anew: which of the two was wanted was said when this one
        // was made.
        None if wanted.device_wanted => {
            snapshot.release()?;
            take_for_walking(command, wanted)
        }
        None => Err(snapshot.useless(NO_DIRECTORY.to_owned())),
    }
}

fn take_for_walking(
    command: &SnapshotCommand,
    wanted: &SnapshotRequest,
) -> Result<(StorageSnapshot, ReadFrom), SnapshotError> {
    let snapshot = command.take(&SnapshotRequest {
        device_wanted: false,
        name: match wanted.device_wanted {
            true => format!("{}-mounted", wanted.name),
            false => wanted.name.clone(),
        },
        ..wanted.clone()
    })?;
    match snapshot.directory.clone() {
        Some(directory) => Ok((snapshot, ReadFrom::Directory(directory))),
        None => Err(snapshot.useless(NO_DIRECTORY.to_owned())),
    }
}

impl StorageSnapshot {
    /// Why it was made in vain; it is released.
    fn useless(mut self, why: String) -> SnapshotError {
        self.command.refused(NoAnswer::OfNoUse(why))
    }

    /// Releases it, and says so if that did not go well. Dropping releases it, too.
    pub fn release(mut self) -> Result<(), SnapshotError> {
        self.command.release()
    }
}

/// The command, waiting for its input to end.
#[derive(Debug)]
struct Holding {
    child: Child,
    program: String,
    name: String,
    wait_max: Duration,
    released: bool,
}

/// Why there is nothing to read.
enum NoAnswer {
    /// Its output ended before the line `ready`.
    Ended,
    /// What it says, or how.
    OfNoUse(String),
}

impl Holding {
    /// What it says up to the line `ready`.
    fn answer(&mut self, wait_max: Duration) -> Result<Vec<u8>, NoAnswer> {
        let started = Instant::now();
        let output = self.child.stdout.as_mut().expect("its output is a pipe");
        let mut text = Vec::new();
        while !text.ends_with(b"\nready\n") && text != b"ready\n" {
            if text.len() >= ANSWER_BYTES_MAX {
                return Err(NoAnswer::OfNoUse(
                    "prints too much without a `ready`".to_owned(),
                ));
            }
            let left = wait_max.saturating_sub(started.elapsed());
            // Byte by byte: what follows `ready` is not for us.
            match read_byte(output, left) {
                Ok(Some(byte)) => text.push(byte),
                Ok(None) => return Err(NoAnswer::Ended),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let text = format!("takes too long: no `ready` within {wait_max:?}");
                    return Err(NoAnswer::OfNoUse(text));
                }
                Err(error) => return Err(NoAnswer::OfNoUse(format!("cannot be read: {error}"))),
            }
        }
        Ok(text)
    }

    /// Has it release whatever it made, and says how it ended.
    fn refused(&mut self, no_answer: NoAnswer) -> SnapshotError {
        self.released = true;
        // Who goes on talking learns that nobody listens.
        drop((self.child.stdin.take(), self.child.stdout.take()));
        let end = wait(&mut self.child, self.wait_max);
        let left = format!("what it made as {} may still be there", self.name);
        let how = match &end {
            Ok(Some(status)) => meaning(*status),
            Ok(None) => "it does not end".to_owned(),
            Err(error) => error.to_string(),
        };
        let is_cleaned_up = matches!(&end, Ok(Some(status)) if status.success());
        // Who ends with an error of his own has said why, and made nothing, or cleaned up.
        let had_its_say = matches!(&end, Ok(Some(status)) if status.code().is_some());
        let why = match no_answer {
            NoAnswer::Ended if had_its_say => {
                format!("ended without saying `ready` ({how}): there is no snapshot to read")
            }
            NoAnswer::Ended => format!("ended without saying `ready` ({how}): {left}"),
            NoAnswer::OfNoUse(why) if is_cleaned_up => why,
            NoAnswer::OfNoUse(why) => format!("{why}. Then it ended badly ({how}): {left}"),
        };
        SnapshotError::Refused {
            program: self.program.clone(),
            why,
        }
    }

    fn release(&mut self) -> Result<(), SnapshotError> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        drop(self.child.stdin.take());
        let not_released = |why: String| SnapshotError::NotReleased {
            program: self.program.clone(),
            why,
            name: self.name.clone(),
        };
        match wait(&mut self.child, self.wait_max) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(not_released(format!("ended badly ({})", meaning(status)))),
            Ok(None) => Err(not_released("does not end".to_owned())),
            Err(error) => Err(not_released(format!("cannot be waited for ({error})"))),
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Who can report what goes wrong here releases it before.
        let _ = self.release();
    }
}

/// Lines of `directory PATH` and `device PATH`; others are for later versions.
fn parse(text: &[u8]) -> Result<(Option<PathBuf>, Option<PathBuf>), String> {
    let (mut directory, mut device) = (None, None);
    for line in text.split(|byte| *byte == b'\n') {
        let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_path_buf();
        if let Some(place) = line.strip_prefix(b"directory ") {
            directory = Some(path(place));
        } else if let Some(place) = line.strip_prefix(b"device ") {
            device = Some(path(place));
        }
    }
    let places: Vec<_> = directory.iter().chain(&device).collect();
    match places.iter().find(|place| !place.is_absolute()) {
        Some(place) => Err(format!("names {}, which is no absolute path", place.display())),
        None if places.is_empty() => Err(
            "says `ready` and names no directory and no device (a line `directory PATH` or `device \
             PATH` before)".to_owned(),
        ),
        None => Ok((directory, device)),
    }
}

fn read_byte(output: &mut ChildStdout, wait_max: Duration) -> io::Result<Option<u8>> {
    let started = Instant::now();
    loop {
        let left = wait_max.saturating_sub(started.elapsed());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long")),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut byte = [0];
    Ok((output.read(&mut byte)? == 1).then_some(byte[0]))
}

/// How it ended, and what a shell means by it.
fn meaning(status: ExitStatus) -> String {
    match status.code() {
        Some(126) => format!("{status}, the shell found it and could not run it"),
        Some(127) => format!("{status}, the shell did not find it"),
        _ => status.to_string(),
    }
}

fn wait(child: &mut Child, wait_max: Duration) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if started.elapsed() < wait_max => std::thread::sleep(END_PAUSE),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_absolute_places() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(parse(b"directory /a b\nready\n"), Ok((path("/a b"), None)));
        let both = b"note\ndevice /dev/vg/x\ndirectory /m\nready\n";
        assert_eq!(parse(both), Ok((path("/m"), path("/dev/vg/x"))));
        assert!(parse(b"ready\n").is_err());
        assert!(parse(b"directory relative\nready\n").is_err());
    }
}
