//! One step of a run: this program, started again as the command of the step. Its lines are passed
//! on as they come, its last object is what the step comes to.

use crate::{interrupt, output};
use anyhow::{Context, Result};
use bale_profile::steps::StepCommand;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Bytes of a line at most; what is longer is passed over.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Lines that wait for being looked at.
const LINES_WAITING_MAX: usize = 64;
/// Between two looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After the child's end, for what it left running and holds its output.
const SILENCE_AFTER_END: Duration = Duration::from_secs(2);
/// Problems that are remembered for hooks.
pub const PROBLEMS_MAX: usize = 100;

/// What came of a step's command.
#[derive(Debug, Default)]
pub struct ChildOutcome {
    /// As a shell says it.
    pub exit_code: i32,
    /// The command's last object, if it came to one.
    pub summary: Option<Map<String, Value>>,
    /// Why it failed, in its words.
    pub error: Option<String>,
    /// The first of its problems, for people.
    pub problems: Vec<String>,
}

/// Starts the command and waits for its end. `held`: a lock that the child holds as long as it
/// lives, whatever becomes of us. `say` gets each object but the last.
pub fn run(
    command: &StepCommand,
    flags: &[&str],
    held: &File,
    mut say: impl FnMut(&Map<String, Value>),
) -> Result<ChildOutcome> {
    let mut child = start(command, flags, held)?;
    let stdout = child
        .stdout
        .take()
        .context("its standard output is not there")?;
    let lines = lines_of(stdout)?;
    let mut outcome = ChildOutcome::default();
    let status = follow(&mut child, &lines, &mut |object| {
        take(object, &mut outcome, &mut say);
    })?;
    outcome.exit_code = code_of(status);
    Ok(outcome)
}

fn start(command: &StepCommand, flags: &[&str], held: &File) -> Result<Child> {
    let mut this = Command::new("/proc/self/exe");
    super::environment(&mut this, command);
    this.args(flags)
        .args(&command.words)
        // Nothing is in it to be read.
        .stdin(held.try_clone().context("hand the lock to the command")?)
        .stdout(Stdio::piped())
        // A terminal's Ctrl-C is for us, who pass it on once.
        .process_group(0);
    this.spawn().context("start this program for the step")
}

/// Reads lines in a thread: the one that waits for them must see signals, too.
fn lines_of(stdout: ChildStdout) -> Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
    let thread = std::thread::Builder::new().name("step".to_owned());
    thread
        .spawn(move || read_lines(stdout, &sender))
        .context("start a thread")?;
    Ok(receiver)
}

fn read_lines(stdout: ChildStdout, sender: &SyncSender<Vec<u8>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let mut bounded = stdout.by_ref().take(LINE_BYTES_MAX);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.ends_with(b"\n") || (line.len() as u64) < LINE_BYTES_MAX => {}
            Ok(_) => {
                line.clear();
                if skip_line(&mut stdout).is_err() {
                    return;
                }
            }
        }
        if sender.send(line).is_err() {
            return;
        }
    }
}

fn skip_line(stdout: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let bytes = stdout.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (used, is_end) = match end {
            Some(at) => (at + 1, true),
            None => (bytes.len(), bytes.is_empty()),
        };
        stdout.consume(used);
        if is_end {
            return Ok(());
        }
    }
}

fn follow(
    child: &mut Child,
    lines: &Receiver<Vec<u8>>,
    take: &mut dyn FnMut(Map<String, Value>),
) -> Result<ExitStatus> {
    let mut passed_on = 0;
    let mut silence = Duration::ZERO;
    let mut ended = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                silence = Duration::ZERO;
                match serde_json::from_slice(&line) {
                    Ok(Value::Object(object)) => take(object),
                    _ => report!("bale: {}", output::escape(line.trim_ascii())),
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return match ended {
                    Some(status) => Ok(status),
                    None => wait(child, &mut passed_on),
                };
            }
            Err(RecvTimeoutError::Timeout) => silence += LOOK_EVERY,
        }
        pass_on_signals(child, &mut passed_on);
        if ended.is_none() {
            ended = child.try_wait().context("wait for the command")?;
            silence = Duration::ZERO;
        }
        if let Some(status) = ended.filter(|_| silence >= SILENCE_AFTER_END) {
            return Ok(status);
        }
    }
}

fn wait(child: &mut Child, passed_on: &mut usize) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("wait for the command")? {
            return Ok(status);
        }
        pass_on_signals(child, passed_on);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// As many as we got: the first asks the command to end well, the second ends it.
fn pass_on_signals(child: &Child, passed_on: &mut usize) {
    while *passed_on < interrupt::requests() {
        *passed_on += 1;
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _has_ended = kill_process(pid, Signal::TERM);
        }
    }
}

fn take(
    object: Map<String, Value>,
    outcome: &mut ChildOutcome,
    say: &mut impl FnMut(&Map<String, Value>),
) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "summary" => {
            outcome.summary = Some(object);
            return;
        }
        "error" => {
            outcome.error = Some(text("message").to_owned());
            return;
        }
        "problem" | "damage" | "unread" | "lost" if outcome.problems.len() < PROBLEMS_MAX => {
            let words = [text("action"), text("what"), text("path"), text("message")];
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            outcome.problems.push(words.join(" "));
        }
        _ => {}
    }
    say(&object);
}

/// As a shell says it.
pub fn code_of(status: ExitStatus) -> i32 {
    let of_signal = || status.signal().map(|signal| 128 + signal);
    status
        .code()
        .or_else(of_signal)
        .unwrap_or(crate::exit::FAILED)
}
