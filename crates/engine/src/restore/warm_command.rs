//! A command of the user that makes packs readable: it gets the list of those that a restore will
//! read, and prints a name for each that has become readable, in whatever order.
//!
//! There is no time-out: a robot may need days. The list is in a file without a name, so that the
//! command may print before it has read all of it. It is one process group, which ends with the
//! restore at the latest: by SIGTERM, if it still runs.

use super::reads::PackNames;
use bale_format::{ObjectId, PackNumber};
use bale_pipeline::monitor::Monitor;
use bale_pipeline::spill::unnamed_file;
use bale_repository::error::{self, Error};
use bale_repository::repository::Repository;
use bale_repository::store::{Area, ObjectName};
use bale_restore::{Arrival, PackReads, ReadsTotals, RestoreError, Warmer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, RwLock};

/// A line is a name; what is longer is none.
const LINE_BYTES_MAX: usize = 256;
/// Read at once from the command.
const READ_BYTES: usize = 4096;
/// Between two looks at whether to stop.
const LOOK_NANOS: i64 = 100_000_000;

/// A command that makes packs readable. In memory: a few bytes for each pack that is wanted.
pub struct WarmCommand {
    text: OsString,
    packs: PackNames,
    list: Mutex<BufWriter<File>>,
    readable: RwLock<HashSet<PackNumber>>,
    talk: Mutex<Talk>,
}

/// What has come of the command.
#[derive(Default)]
struct Talk {
    /// Wanted and not named yet.
    out: HashSet<PackNumber>,
    running: Option<Running>,
    /// Found out and not handed out yet.
    news: VecDeque<Arrival>,
    has_ended: bool,
}

impl WarmCommand {
    /// Is run by a shell once it is known what to read.
    pub fn new(repository: &Repository, text: &OsStr) -> error::Result<WarmCommand> {
        let directory = repository.spill_dir()?;
        let list = unnamed_file(&directory).map_err(Error::local("create a file in", directory))?;
        Ok(WarmCommand {
            text: text.to_owned(),
            packs: PackNames::of(repository)?,
            list: Mutex::new(BufWriter::new(list)),
            readable: RwLock::default(),
            talk: Mutex::default(),
        })
    }

    fn start(&self, list: File) -> io::Result<Running> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.text);
        let child = bale_pipeline::secret_variables::withhold_secrets(&mut command)
            .stdin(list)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| {
            let text = format!("start a shell for {}: {error}", self.text.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Running {
            stdout: child.stdout.take(),
            child,
            line: Vec::new(),
        })
    }

    /// What a line of the command means. A segment stands for all that is wanted of it.
    fn named(&self, line: &[u8], talk: &mut Talk) -> Vec<Arrival> {
        let text = std::str::from_utf8(line).ok().map(str::trim);
        if text == Some("") {
            return Vec::new();
        }
        let name = text.and_then(ObjectName::parse);
        let named: Vec<PackNumber> = match name.filter(|name| name.area == Area::Stretches) {
            Some(segment) => self.in_segment(&segment, talk),
            None => {
                let id = text.and_then(|text| match name {
                    Some(name) if name.area == Area::Packs => name.id(),
                    _ => ObjectId::from_hex(text).ok(),
                });
                id.and_then(|id| self.packs.number(&id))
                    .into_iter()
                    .collect()
            }
        };
        let mut arrivals = Vec::new();
        for pack in &named {
            if talk.out.remove(pack) {
                let mut readable = self.readable.write().expect("holders do not panic");
                readable.insert(*pack);
                arrivals.push(Arrival::Readable(*pack));
            }
        }
        // Once more is as good as once.
        if !arrivals.is_empty() || named.iter().any(|pack| self.is_readable(*pack)) {
            return arrivals;
        }
        vec![Arrival::Problem(format!(
            "{} printed {:?}, which is no pack that was asked for",
            self.text.display(),
            String::from_utf8_lossy(line)
        ))]
    }

    /// Packs that were wanted of a segment, whether or not they have come.
    fn in_segment(&self, segment: &ObjectName, talk: &Talk) -> Vec<PackNumber> {
        let readable = self.readable.read().expect("holders do not panic");
        let wanted = talk.out.iter().chain(readable.iter());
        let is_in = |pack: &&PackNumber| self.packs.object(**pack) == *segment;
        let mut packs: Vec<PackNumber> = wanted.filter(is_in).copied().collect();
        packs.sort();
        packs
    }

    /// Nothing more will be read of the command.
    fn ended(&self, how: Option<ExitStatus>, talk: &mut Talk) {
        talk.has_ended = true;
        let text = self.text.display();
        if let Some(how) = how.filter(|how| !how.success()) {
            let problem = Arrival::Problem(format!("{text} ended with {how}"));
            talk.news.push_back(problem);
        }
        let mut out: Vec<_> = talk.out.iter().copied().collect();
        out.sort();
        let missing = out.into_iter().map(|pack| {
            let name = self.name(pack);
            Arrival::Problem(format!("{name}: {text} ended without naming it"))
        });
        talk.news.extend(missing);
    }

    /// Waits for what the command prints, or for its end.
    fn listen(&self, talk: &mut Talk, monitor: &dyn Monitor) -> Result<(), RestoreError> {
        let Some(mut running) = talk.running.take() else {
            self.ended(None, talk);
            return Ok(());
        };
        let heard = running.hear(monitor)?;
        let (lines, is_end) = match heard {
            Heard::Lines(lines) => (lines, None),
            Heard::End(how) => (vec![std::mem::take(&mut running.line)], Some(how)),
        };
        for line in lines {
            let arrivals = self.named(&line, talk);
            talk.news.extend(arrivals);
        }
        match is_end {
            Some(how) => self.ended(how, talk),
            None if talk.out.is_empty() => {
                talk.has_ended = true;
                talk.running = Some(running);
            }
            None => talk.running = Some(running),
        }
        Ok(())
    }
}

impl Warmer for WarmCommand {
    fn want(&self, reads: &PackReads) -> io::Result<()> {
        let mut talk = self.talk.lock().expect("holders do not panic");
        talk.out.insert(reads.pack);
        let mut list = self.list.lock().expect("holders do not panic");
        self.packs.write(reads, &mut *list)
    }

    fn begin(&self, _totals: &ReadsTotals) -> io::Result<()> {
        let mut talk = self.talk.lock().expect("holders do not panic");
        if talk.out.is_empty() {
            talk.has_ended = true;
            return Ok(());
        }
        let mut list = self.list.lock().expect("holders do not panic");
        list.flush()?;
        list.get_mut().rewind()?;
        talk.running = Some(self.start(list.get_ref().try_clone()?)?);
        Ok(())
    }

    fn next(&self, monitor: &dyn Monitor) -> Result<Arrival, RestoreError> {
        let mut talk = self.talk.lock().expect("holders do not panic");
        loop {
            if let Some(arrival) = talk.news.pop_front() {
                return Ok(arrival);
            }
            if talk.has_ended {
                return Ok(Arrival::End);
            }
            self.listen(&mut talk, monitor)?;
        }
    }

    fn is_readable(&self, pack: PackNumber) -> bool {
        let readable = self.readable.read().expect("holders do not panic");
        readable.contains(&pack)
    }

    fn name(&self, pack: PackNumber) -> String {
        self.packs.object(pack).path()
    }
}

/// What was heard.
enum Heard {
    Lines(Vec<Vec<u8>>),
    /// The command ended, if it could be found out how.
    End(Option<ExitStatus>),
}

/// The command while it runs.
struct Running {
    child: Child,
    /// Until it is closed.
    stdout: Option<ChildStdout>,
    /// What was read of a line.
    line: Vec<u8>,
}

impl Running {
    fn hear(&mut self, monitor: &dyn Monitor) -> Result<Heard, RestoreError> {
        loop {
            if monitor.interrupted() {
                return Err(RestoreError::Stopped);
            }
            let Some(stdout) = &mut self.stdout else {
                match self.child.try_wait() {
                    Ok(None) => pause(&mut [])?,
                    Ok(how) => return Ok(Heard::End(how)),
                    Err(_) => return Ok(Heard::End(None)),
                }
                continue;
            };
            let mut readable = [PollFd::new(&*stdout, PollFlags::IN)];
            pause(&mut readable)?;
            if readable[0].revents().is_empty() {
                continue;
            }
            let mut bytes = [0; READ_BYTES];
            match stdout.read(&mut bytes) {
                Ok(0) => self.stdout = None,
                Ok(len) => return Ok(Heard::Lines(self.lines_of(&bytes[..len]))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RestoreError::Reads(error)),
            }
        }
    }

    fn lines_of(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' => lines.push(std::mem::take(&mut self.line)),
                _ if self.line.len() < LINE_BYTES_MAX => self.line.push(byte),
                _ => {}
            }
        }
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && let Some(group) = rustix::process::Pid::from_raw(self.child.id() as i32)
        {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

/// Waits until one of them can be read, or a moment.
pub(super) fn pause(waited_for: &mut [PollFd<'_>]) -> Result<(), RestoreError> {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK_NANOS,
    };
    match poll(waited_for, Some(&moment)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(RestoreError::Reads(error.into())),
    }
}
