//! The command of `--stdin-from-command`: what it writes is read, and it ends with the backup.
//!
//! Without a terminal it is a process group of its own, and whatever it started ends with it. On a
//! terminal it stays in ours: it may ask there for a password, and Ctrl-C reaches all.

use crate::exit::Usage;
use crate::{interrupt, output, process_group};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at whether an operation is interrupted, while nothing comes.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Between asking a command to end and ending it.
const END_WAIT: Duration = Duration::from_secs(5);
/// The first pause between two looks at whether it did; each is twice as long,
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Reads, and says now and then that nothing came: whoever waits can look whether to go on.
pub struct Looking<R>(pub R);

impl<R: Read + AsFd> Read for Looking<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut wanted, Some(&LOOK_EVERY))? == 0 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        self.0.read(buf)
    }
}

/// A command that writes.
pub struct StreamCommand {
    /// Dropped first: whoever writes on ends by that.
    bytes: Looking<ChildStdout>,
    process: Process,
}

/// Dropped before its end is known, it is ended.
pub struct Process {
    child: Child,
    /// With it everything ends that it started.
    group: Option<Pid>,
    /// For errors.
    shown: String,
    has_ended: bool,
}

impl StreamCommand {
    /// Starts a program with its words.
    pub fn start(words: &[PathBuf]) -> Result<StreamCommand> {
        let (program, words) = words.split_first().ok_or_else(|| {
            let text = "--stdin-from-command needs a command: --stdin-from-command -- COMMAND";
            Usage(text.to_owned())
        })?;
        let shown = output::path(program);
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::piped());
        let is_apart = File::open("/dev/tty").is_err();
        if is_apart {
            command.process_group(0);
        }
        bale_pipeline::secret_variables::withhold_secrets(&mut command);
        let started = command.spawn();
        let mut child = started.with_context(|| format!("start {shown}"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = pid.filter(|_| is_apart);
        interrupt::end_too(group);
        let bytes = child.stdout.take();
        let process = Process {
            child,
            group,
            shown,
            has_ended: false,
        };
        let bytes = bytes.with_context(|| format!("read what {} writes", process.shown))?;
        Ok(StreamCommand {
            bytes: Looking(bytes),
            process,
        })
    }

    /// What it writes, and itself.
    pub fn parts(&mut self) -> (&mut dyn Read, &mut Process) {
        (&mut self.bytes, &mut self.process)
    }
}

impl Process {
    /// Waits for its end, behind the last byte: was that all?
    pub fn wait(&mut self) -> Result<(), String> {
        let shown = self.shown.clone();
        match self.wait_while(|| !interrupt::is_requested()) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!(
                "{shown} failed ({status}), so what it wrote may not be all: no snapshot was made"
            )),
            Ok(None) => Err(format!("{shown} was interrupted: no snapshot was made")),
            Err(error) => Err(format!("wait for {shown}: {error}: no snapshot was made")),
        }
    }

    /// Its status, if it ended before the patience did.
    fn wait_while(&mut self, patience: impl Fn() -> bool) -> std::io::Result<Option<ExitStatus>> {
        let mut pause = PAUSE_FIRST;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.has_ended = true;
                interrupt::end_too(None);
                return Ok(Some(status));
            }
            if !patience() {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What one left running that ended by itself is its own affair.
        if self.has_ended {
            return;
        }
        match self.group {
            Some(group) => process_group::end(group, END_WAIT, || {
                let _is_waited_for = self.child.try_wait();
            }),
            None => drop(self.child.kill()),
        }
        let ended = Instant::now();
        // One of another user cannot be ended, and ends when it writes.
        let _or_is_left = self.wait_while(|| ended.elapsed() < END_WAIT);
        interrupt::end_too(None);
    }
}
