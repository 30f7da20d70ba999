//! Hooks: commands of the user around a run and its steps.
//!
//! A hook may do what it likes, and the run still ends: it has a time limit, after which its
//! process group is ended; its output is bounded, and read only as long as it runs itself; what it
//! is given lies in memory, so that nobody waits for it to be read.

use crate::interrupt;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a hook.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between asking a hook to end and ending it.
const END_WAIT: Duration = Duration::from_secs(5);
/// Lines of a hook's output that are passed on.
const LINES_MAX: usize = 200;
/// Bytes of one of them; the rest of a line is left out.
const LINE_BYTES_MAX: usize = 1024;
/// Bytes that are read between two looks at the time.
const READ_BYTES_MAX: usize = 256 << 10;
/// Of what a hook is given, bytes that fit into a variable of the environment (kernel: 128 KiB).
const VARIABLE_BYTES_MAX: usize = 32 << 10;

/// What is run, and what it is given.
pub struct Hook<'a> {
    /// Program and words.
    pub words: &'a [&'a str],
    /// For messages: `the hook before`.
    pub name: &'a str,
    /// Of the environment.
    pub variables: &'a [(&'a str, String)],
    /// Standard input.
    pub input: &'a [u8],
    /// How long it may take.
    pub timeout: Duration,
}

/// Runs it, and passes its lines to `say`; why it failed, if it did.
pub fn run(hook: &Hook<'_>, say: &mut dyn FnMut(&[u8])) -> Result<Option<String>> {
    let (mut reader, writer) = std::io::pipe().context("make a pipe")?;
    fcntl_setfl(&reader, OFlags::NONBLOCK).context("prepare a pipe")?;
    let mut command = Command::new(hook.words.first().context("no program is named")?);
    command
        .args(&hook.words[1..])
        .envs(hook.variables.iter().map(|(name, value)| (name, value)))
        .stdin(input(hook.input).context("prepare what a hook is given")?)
        .stderr(Stdio::from(writer.try_clone().context("prepare a pipe")?))
        .stdout(Stdio::from(writer))
        .process_group(0);
    bale_pipeline::secret_variables::withhold_secrets(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Some(format!("{} cannot be started: {error}", hook.name))),
    };
    // Ours of the ends for writing are closed with it.
    drop(command);
    let mut lines = Lines::default();
    let ended = follow(hook, &mut child, &mut reader, &mut lines, say)?;
    lines.finish(say);
    Ok(match ended {
        Ended::Self_(status) if status.success() => None,
        Ended::Self_(status) => {
            let code = super::child::code_of(status);
            Some(format!("{} ended with {code}", hook.name))
        }
        Ended::TooLate => Some(format!(
            "{} was ended after {} s (hook-timeout)",
            hook.name,
            hook.timeout.as_secs_f64()
        )),
        Ended::Interrupted => Some(format!("{} was interrupted", hook.name)),
    })
}

/// What fits into a variable: all of it, or what stands for it.
pub fn variable(json: &serde_json::Value) -> String {
    let text = json.to_string();
    if text.len() <= VARIABLE_BYTES_MAX {
        return text;
    }
    let mut short = serde_json::json!({"shortened": true});
    for name in ["type", "profile", "step", "exit_code", "error"] {
        let value = &json[name];
        if value.to_string().len() < LINE_BYTES_MAX {
            short[name] = value.clone();
        }
    }
    short.to_string()
}

/// A file in memory: whoever does not read it keeps nobody waiting.
fn input(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("bale-hook", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

enum Ended {
    Self_(ExitStatus),
    TooLate,
    Interrupted,
}

fn follow(
    hook: &Hook<'_>,
    child: &mut Child,
    reader: &mut PipeReader,
    lines: &mut Lines,
    say: &mut dyn FnMut(&[u8]),
) -> Result<Ended> {
    let began = Instant::now();
    // One that was there before is why a hook runs at all, perhaps.
    let requests = interrupt::requests();
    loop {
        wait_for_output(reader, lines.is_closed);
        lines.read(reader, say);
        if let Some(status) = child.try_wait().context("wait for a hook")? {
            lines.read(reader, say);
            return Ok(Ended::Self_(status));
        }
        let ended = match () {
            () if interrupt::requests() > requests => Ended::Interrupted,
            () if began.elapsed() >= hook.timeout => Ended::TooLate,
            () => continue,
        };
        end(child, reader, lines, say)?;
        return Ok(ended);
    }
}

fn wait_for_output(reader: &PipeReader, is_closed: bool) {
    if is_closed {
        return std::thread::sleep(LOOK_EVERY);
    }
    let timeout = Timespec::try_from(LOOK_EVERY).ok();
    let mut waited = [PollFd::new(reader, PollFlags::IN)];
    if poll(&mut waited, timeout.as_ref()).is_err() {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Asks the process group to end, and ends it.
fn end(
    child: &mut Child,
    reader: &mut PipeReader,
    lines: &mut Lines,
    say: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.context("a process without a number")?;
    for signal in [Signal::TERM, Signal::KILL] {
        let _has_ended = kill_process_group(group, signal);
        let began = Instant::now();
        while began.elapsed() < END_WAIT {
            wait_for_output(reader, lines.is_closed);
            lines.read(reader, say);
            if child.try_wait().context("wait for a hook")?.is_some() {
                // What it started and did not wait for.
                let _has_ended = kill_process_group(group, Signal::KILL);
                return Ok(());
            }
        }
    }
    // In the kernel, where no signal comes: it is left there.
    Ok(())
}

/// Output, line by line, as much of it as is passed on.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    passed_on: usize,
    left_out: usize,
    is_closed: bool,
}

impl Lines {
    fn read(&mut self, reader: &mut PipeReader, say: &mut dyn FnMut(&[u8])) {
        let mut buffer = [0; 16 << 10];
        let mut count = 0;
        while count < READ_BYTES_MAX && !self.is_closed {
            match reader.read(&mut buffer) {
                Ok(0) => self.is_closed = true,
                Ok(read) => {
                    count += read;
                    self.take(&buffer[..read], say);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_closed = true,
            }
        }
    }

    fn take(&mut self, bytes: &[u8], say: &mut dyn FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if text.len() < part.len() {
                self.pass_on(say);
            }
        }
    }

    fn pass_on(&mut self, say: &mut dyn FnMut(&[u8])) {
        match self.passed_on < LINES_MAX {
            true => {
                say(&self.line);
                self.passed_on += 1;
            }
            false => self.left_out += 1,
        }
        self.line.clear();
    }

    fn finish(&mut self, say: &mut dyn FnMut(&[u8])) {
        if !self.line.is_empty() {
            self.pass_on(say);
        }
        if self.left_out > 0 {
            say(format!(
                "and {} more lines",
                crate::sizes::count(self.left_out as u64)
            )
            .as_bytes());
        }
    }
}
