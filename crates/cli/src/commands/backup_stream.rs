//! `bale backup --stdin` and `--stdin-from-command`

use super::{backup, retain};
use crate::args::{Backup, Global};
use crate::exit::Usage;
use crate::progress::Console;
use crate::{output, place};
use anyhow::{Context, Result};
use bale_engine::backup::{BackupOptions, Stream, backup_stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at whether an operation is interrupted, while nothing comes.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// The file, where nobody says how it is called.
const NAME: &str = "stdin";

/// Backs up what a program writes; there is no snapshot if the program fails.
pub fn run(global: &Global, options: &Backup) -> Result<i32> {
    let began = Instant::now();
    let name = options.stdin_filename.as_deref();
    let name = name_of(name.unwrap_or(OsStr::new(NAME)))?;
    if options.stdin {
        check_standard_input(options)?;
    }
    let repository = backup::open(global, options)?;
    retain::check(options, &repository)?;
    let console = Console::new(global);
    let works_with = place::works_with(global)?;
    let engine_options = BackupOptions {
        excludes: Vec::new(),
        ..backup::engine_options(options, &repository, &works_with)?
    };
    backup::answer_interruptions(global, options)?;
    let mut writer = Writer::begin(options)?;
    let outcome = {
        let (bytes, mut is_whole) = writer.parts();
        let stream = Stream {
            name,
            bytes,
            is_whole: &mut is_whole,
        };
        backup_stream(&repository, stream, &engine_options, &console)
    };
    drop(writer);
    backup::ended(
        (global, options),
        &repository,
        outcome,
        (&console, began),
        Vec::new(),
    )
}

/// One component of a path, with or without a slash in front.
fn name_of(text: &OsStr) -> Result<&[u8], Usage> {
    let name = text.as_bytes();
    let name = name.strip_prefix(b"/").unwrap_or(name);
    match name {
        b"" | b"." | b".." => {}
        name if name.contains(&b'/') => {}
        name => return Ok(name),
    }
    let shown = output::path(Path::new(text));
    Err(Usage(format!(
        "--stdin-filename {shown}: it becomes a file below / in the snapshot, so it is a name \
         without a slash"
    )))
}

fn check_standard_input(options: &Backup) -> Result<(), Usage> {
    if !options.paths.is_empty() {
        let text = "--stdin takes no paths; to back up what a command writes: \
                    --stdin-from-command -- COMMAND";
        return Err(Usage(text.to_owned()));
    }
    if std::io::stdin().is_terminal() {
        let text = "standard input is a terminal: send something into it (pg_dump db | bale \
                    backup --stdin), or use --stdin-from-command -- COMMAND";
        return Err(Usage(text.to_owned()));
    }
    Ok(())
}

/// Asked at the end of a stream.
type IsWhole<'a> = Box<dyn FnMut() -> Result<(), String> + 'a>;

/// Who writes the stream.
enum Writer {
    Nobody(Looking<File>),
    Command(Running),
}

/// Reads, and says now and then that nothing came: whoever waits can look whether to go on.
struct Looking<R>(R);

impl<R: Read + AsFd> Read for Looking<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut wanted, Some(&LOOK_EVERY))? == 0 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        self.0.read(buf)
    }
}

/// Between asking a command to end and ending it.
const END_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at whether it did.
const END_LOOK_EVERY: Duration = Duration::from_millis(10);

/// A command that writes. Dropped, it is ended.
struct Running {
    child: Child,
    /// With it everything ends that it started.
    group: Option<Pid>,
    bytes: Looking<ChildStdout>,
    /// For errors.
    shown: String,
}

impl Writer {
    fn begin(options: &Backup) -> Result<Writer> {
        match options.stdin {
            true => {
                let input = std::io::stdin().as_fd().try_clone_to_owned();
                let input = input.context("read standard input")?;
                Ok(Writer::Nobody(Looking(input.into())))
            }
            false => Running::start(options).map(Writer::Command),
        }
    }

    /// Its bytes, and what tells at their end whether these were all.
    fn parts(&mut self) -> (&mut dyn Read, IsWhole<'_>) {
        match self {
            Writer::Nobody(bytes) => (bytes, Box::new(|| Ok(()))),
            Writer::Command(Running {
                child,
                bytes,
                shown,
                ..
            }) => (bytes, Box::new(|| end(child, shown))),
        }
    }
}

impl Running {
    fn start(options: &Backup) -> Result<Running> {
        let (program, words) = options.paths.split_first().ok_or_else(|| {
            let text = "--stdin-from-command needs a command: --stdin-from-command -- COMMAND";
            Usage(text.to_owned())
        })?;
        let shown = output::path(program);
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::piped());
        // On a terminal it stays with us: it may ask there for a password, and Ctrl-C reaches all.
        let is_apart = File::open("/dev/tty").is_err();
        if is_apart {
            command.process_group(0);
        }
        bale_pipeline::secret_variables::withhold_secrets(&mut command);
        let started = command.spawn();
        let mut child = started.with_context(|| format!("start {shown}"))?;
        let bytes = child.stdout.take();
        let bytes = bytes.with_context(|| format!("read what {shown} writes"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Running {
            child,
            group: pid.filter(|_| is_apart),
            bytes: Looking(bytes),
            shown,
        })
    }
}

fn end(child: &mut Child, shown: &str) -> Result<(), String> {
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "{shown} failed ({status}), so what it wrote may not be all: no snapshot was made"
        )),
        Err(error) => Err(format!("wait for {shown}: {error}: no snapshot was made")),
    }
}

impl Running {
    /// Asks everything to end that the command started, and ends it.
    fn end_group(&mut self, group: Pid) {
        let _has_ended = kill_process_group(group, Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < END_WAIT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(END_LOOK_EVERY);
        }
        let _has_ended = kill_process_group(group, Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What one left running that ended by itself is its own affair.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        match self.group {
            Some(group) => self.end_group(group),
            None => drop(self.child.kill()),
        }
        // Of one that has ended it is an error, and nothing is left to do.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        for (text, name) in [("db.sql", "db.sql"), ("/db.sql", "db.sql"), ("a\n", "a\n")] {
            assert_eq!(name_of(OsStr::new(text)).unwrap(), name.as_bytes());
        }
        for text in ["", "/", ".", "/..", "a/b", "a/", "//a"] {
            let Usage(error) = name_of(OsStr::new(text)).unwrap_err();
            assert!(error.contains("without a slash"), "{text}: {error}");
        }
    }
}
