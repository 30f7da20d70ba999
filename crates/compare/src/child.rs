//! One child process: started in a group of its own, watched, measured, and never left behind.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use wait4::Wait4;

use super::error::{Result, at_path};
use super::processes;

/// Between two looks at memory and at the wish to stop: at most this, and twice as long each time
/// until then, so that short work is seen too.
const LOOK_EVERY_NANOS: i64 = 20_000_000;
const FIRST_LOOK_NANOS: i64 = 500_000;
/// A child that was asked to end gets this long to do so.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of an error only the beginning is of use.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERROR_LETTERS_MAX: usize = 300;

/// A shell script and the place where it runs.
pub(super) struct Work<'a> {
    pub script: &'a str,
    /// All of its environment.
    pub environment: &'a [(&'static str, OsString)],
    pub directory: &'a Path,
    /// Its output goes to `LOG.out` and `LOG.err`.
    pub log: PathBuf,
    /// It is ended then.
    pub until: Option<Instant>,
}

/// How it went.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// Empty if all went well, else the exit and the first line of its errors.
    pub failure: Option<String>,
    /// Ended by us, because of the user or the time.
    pub is_stopped: bool,
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    /// `None` if it was too short to be seen.
    pub peak_memory_bytes: Option<u64>,
    /// CPU of everything else on the machine meanwhile, kernel threads included.
    pub other_cpu_seconds: Option<f64>,
}

impl Work<'_> {
    /// Runs it; `started` learns the number of the process, `stop` is asked several times a second.
    pub(super) fn run(
        &self,
        started: &mut dyn FnMut(u32),
        stop: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        let (out, err) = (
            self.log.with_extension("out"),
            self.log.with_extension("err"),
        );
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(self.script)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(&out).map_err(at_path("create", &out))?)
            .stderr(File::create(&err).map_err(at_path("create", &err))?);
        let busy_before = processes::machine_busy_seconds();
        // The kernel counts for a child also what its parent had at its start (exec of a shared
        // address space), so its own figure counts only where it is larger.
        let our_memory_bytes = processes::peak_memory_bytes(std::process::id()).unwrap_or(0);
        let began = Instant::now();
        let child = command
            .spawn()
            .map_err(at_path("run", Path::new("/bin/sh")))?;
        let mut watched = Watched::new(child);
        started(watched.number());
        let (is_stopped, sampled_bytes) = watched.watch(self.until, stop);
        let wall_seconds = began.elapsed().as_secs_f64();
        let used = watched
            .reap()
            .map_err(at_path("wait for", Path::new("/bin/sh")))?;
        let own_seconds = used.rusage.utime.as_secs_f64() + used.rusage.stime.as_secs_f64();
        let busy = busy_before.zip(processes::machine_busy_seconds());
        let own_peak_bytes = Some(used.rusage.maxrss).filter(|bytes| *bytes > our_memory_bytes);
        Ok(Ended {
            failure: failure(used.status, &err),
            is_stopped,
            wall_seconds,
            user_seconds: used.rusage.utime.as_secs_f64(),
            system_seconds: used.rusage.stime.as_secs_f64(),
            peak_memory_bytes: own_peak_bytes.max(Some(sampled_bytes).filter(|bytes| *bytes > 0)),
            other_cpu_seconds: busy.map(|(before, after)| (after - before - own_seconds).max(0.0)),
        })
    }
}

/// A child that is killed with its whole group if this is dropped before it ended.
struct Watched {
    child: Option<Child>,
}

impl Watched {
    fn new(child: Child) -> Watched {
        Watched { child: Some(child) }
    }

    fn number(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.number()).ok()?)
    }

    /// Until it ended; whether it was us who ended it, and the peak of its memory as far as it was
    /// seen.
    fn watch(&self, until: Option<Instant>, stop: &dyn Fn() -> bool) -> (bool, u64) {
        let descriptor = self
            .group()
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut peak_bytes = 0;
        let mut asked: Option<Instant> = None;
        // Without pidfd (before Linux 5.3) waiting for the end is all that can be done.
        let Some(descriptor) = descriptor else {
            return (false, 0);
        };
        let mut pause_nanos = FIRST_LOOK_NANOS;
        loop {
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: pause_nanos,
            };
            pause_nanos = (pause_nanos * 2).min(LOOK_EVERY_NANOS);
            let mut events = [PollFd::new(&descriptor, PollFlags::IN)];
            if poll(&mut events, Some(&pause)).is_ok_and(|ready| ready > 0) {
                return (asked.is_some(), peak_bytes);
            }
            peak_bytes = peak_bytes.max(processes::largest_peak_memory_bytes(self.number()));
            match asked {
                None if stop() || until.is_some_and(|until| Instant::now() >= until) => {
                    asked = Some(Instant::now());
                    self.signal(Signal::TERM);
                }
                Some(since) if since.elapsed() > PATIENCE => self.signal(Signal::KILL),
                _ => {}
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
    }

    /// What it left in its group goes too: nothing may disturb the next run. The group is still its
    /// own, as it is not yet waited for.
    fn reap(&mut self) -> std::io::Result<wait4::ResUse> {
        let gone = || std::io::Error::other("waited for twice");
        let is_over = self.group().is_some_and(is_zombie);
        if is_over {
            self.signal(Signal::KILL);
        }
        self.child.take().ok_or_else(gone)?.wait4()
    }
}

fn is_zombie(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('Z'))
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal(Signal::KILL);
            if let Some(mut child) = self.child.take() {
                let _ = child.wait();
            }
        }
    }
}

fn failure(status: ExitStatus, errors: &Path) -> Option<String> {
    if status.success() {
        return None;
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    match first_line(errors) {
        Some(line) => Some(format!("{how}: {line}")),
        None => Some(how),
    }
}

/// First line with anything on it, fit to be shown: of tools nothing is trusted.
fn first_line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(ERROR_BYTES_MAX)
        .read_to_end(&mut bytes)
        .ok()?;
    first_line_of(&bytes)
}

/// The same of output at hand.
pub(super) fn first_line_of(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text
        .split(['\n', '\r'])
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    let line = line.chars().map(|letter| {
        if letter.is_control() {
            '\u{fffd}'
        } else {
            letter
        }
    });
    Some(line.take(ERROR_LETTERS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, until: Option<Instant>, stop: bool) -> Ended {
        let directory = tempfile::tempdir().unwrap();
        let work = Work {
            script,
            environment: &[("PATH", "/usr/bin:/bin".into())],
            directory: directory.path(),
            log: directory.path().join("log"),
            until,
        };
        work.run(&mut |_| {}, &|| stop).unwrap()
    }

    #[test]
    fn a_child_is_timed_and_its_memory_measured() {
        let ended = run("sleep 0.1", None, false);
        assert_eq!(ended.failure, None);
        assert!(ended.wall_seconds >= 0.1);
        assert!(
            ended.peak_memory_bytes.is_some_and(|bytes| bytes > 100_000),
            "{ended:?}"
        );
        assert!(!ended.is_stopped);
    }

    #[test]
    fn the_first_line_of_its_errors_says_why_it_failed() {
        let ended = run(
            "printf '\\n\\033[31mbad <thing>\\nmore' >&2; exit 3",
            None,
            false,
        );
        assert_eq!(
            ended.failure.as_deref(),
            Some("exit 3: \u{fffd}[31mbad <thing>")
        );
    }

    #[test]
    fn a_child_ends_with_all_it_started_when_time_is_up_or_somebody_asks() {
        let soon = Instant::now() + Duration::from_millis(50);
        for (until, stop) in [(Some(soon), false), (None, true)] {
            let ended = run("sleep 60 & sleep 60", until, stop);
            assert!(ended.is_stopped);
            assert_eq!(ended.failure.as_deref(), Some("signal 15"));
        }
    }
}
