//! The barrier: a moment before which every write has happened, or has left its trace in a ctime
//! that is not older.
//!
//! A file system is frozen and thawed at once; the time is read in between. `syncfs` alone is no
//! barrier: it returns in the middle of a long write, whose ctime was stamped at its start.
//!
//! A process that dies between freezing and thawing leaves a file system that nobody can write to.
//! So three stand guard over each other, and any one of them left alive thaws: the *freezer*, a
//! process of its own that does nothing else; the *watchdog*, another, which thaws when the freezer
//! dies or takes longer than it may; and the caller of [`Freezer::barrier`], should both have been
//! killed. What cannot be guarded: all three killed in the same milliseconds, and a write under way
//! that takes long, for which the kernel makes freezing, and so all other writers, wait without a
//! way to give up.
//!
//! Neither process is bound to the thread that started it (a parent-death signal would be: it fires
//! when that *thread* ends, and it could only kill between freezing and thawing). They see their
//! parent's end as the end of a socket.

mod message;
mod outcome;
mod process;
mod watchdog;

pub use outcome::{Barrier, BarrierError, BarrierKind};
pub use process::{Step, serve};

use message::{Channel, Kind, Message};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often somebody else's freeze is waited for, and for how long each time.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long the two processes may take to be ready.
const READY_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long their end is waited for; they are never killed.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether the freezer is stopped, while an answer is waited for.
const ANSWER_PAUSE: Duration = Duration::from_millis(500);
/// Between two looks whether a process has ended.
const END_PAUSE: Duration = Duration::from_millis(2);
/// Barriers tried when the watchdog ended a freeze before its time was read.
const LOST_RETRIES_MAX: u32 = 2;

/// The command that becomes freezer or watchdog: one that calls [`serve`] and nothing else. It is
/// told which of the two it is through a socket, its standard input.
#[derive(Clone, Debug)]
pub struct FreezerCommand {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Added to its environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct FreezeLimits {
    /// The watchdog thaws what is frozen for longer.
    pub frozen_max: Duration,
    /// How long somebody else's freeze is waited for.
    pub busy_wait_max: Duration,
    /// How long an answer is waited for: the time to write back all that is dirty, and for the
    /// longest write under way.
    pub answer_wait_max: Duration,
    /// How long a freezer that somebody stopped (SIGSTOP, a debugger) is waited for.
    pub stopped_wait_max: Duration,
}

impl Default for FreezeLimits {
    fn default() -> FreezeLimits {
        FreezeLimits {
            frozen_max: Duration::from_secs(2),
            busy_wait_max: Duration::from_secs(10),
            answer_wait_max: Duration::from_secs(600),
            stopped_wait_max: Duration::from_secs(10),
        }
    }
}

/// The two processes, ready to make barriers on one file system.
pub struct Freezer {
    mount: OwnedFd,
    limits: FreezeLimits,
    /// `None` once it failed: then no more barriers.
    channel: Option<Channel>,
    freezer: Child,
    watchdog: Child,
}

impl Freezer {
    /// Starts both processes. `mount` is any file or directory of the file system, open for
    /// reading; while the freezer exists, the file system cannot be unmounted.
    pub fn start(
        command: &FreezerCommand,
        mount: BorrowedFd<'_>,
        limits: FreezeLimits,
    ) -> Result<Freezer, BarrierError> {
        start(command, mount, limits).map_err(BarrierError::Start)
    }

    /// Makes a barrier and tells its time. A freeze of somebody else is waited for, as long as the
    /// limits allow.
    pub fn barrier(&mut self, kind: BarrierKind) -> Result<Barrier, BarrierError> {
        let started = Instant::now();
        let mut lost = 0;
        loop {
            match self.try_barrier(kind) {
                Err(BarrierError::Busy) if started.elapsed() < self.limits.busy_wait_max => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(BarrierError::Lost) if lost < LOST_RETRIES_MAX => lost += 1,
                result => return result,
            }
        }
    }

    /// Process numbers of freezer and watchdog, for those who want to watch or to hurt them.
    pub fn process_ids(&self) -> [u32; 2] {
        [self.freezer.id(), self.watchdog.id()]
    }

    fn try_barrier(&mut self, kind: BarrierKind) -> Result<Barrier, BarrierError> {
        let Some(channel) = self.channel.take() else {
            return Err(BarrierError::Gone);
        };
        let mut request = Message::new(Kind::Barrier);
        request.numbers[0] = kind as i64;
        let asked = channel.send(&request);
        match asked.and_then(|()| self.answer(&channel)) {
            Ok(Some(answer)) => {
                self.channel = Some(channel);
                outcome::read(&answer)
            }
            Ok(None) => Err(self.rescue()),
            // It may be frozen just now, and will thaw: the processes live and are left alone.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let id = self.freezer.id();
                Err(match is_stopped(id) {
                    true => BarrierError::Stopped(id),
                    false => BarrierError::Slow,
                })
            }
            Err(_) => Err(self.rescue()),
        }
    }

    /// Waits for the answer. Writing back takes its time, and a process that is stopped would take
    /// for ever; should it be frozen, its watchdog thaws.
    fn answer(&self, channel: &Channel) -> io::Result<Option<Message>> {
        let asked = Instant::now();
        let mut runs = asked;
        loop {
            let left = self.limits.answer_wait_max.saturating_sub(asked.elapsed());
            match channel.receive(Some(left.min(ANSWER_PAUSE))) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if !is_stopped(self.freezer.id()) {
                        runs = Instant::now();
                    }
                    let is_over = asked.elapsed() >= self.limits.answer_wait_max
                        || runs.elapsed() >= self.limits.stopped_wait_max;
                    if is_over {
                        return Err(error);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// The freezer died. Its watchdog has thawed when it ends by itself; if it was killed too, that
    /// falls to us.
    fn rescue(&mut self) -> BarrierError {
        let freezer = wait(&mut self.freezer);
        let watchdog = wait(&mut self.watchdog);
        let killed = |status: &ExitStatus| status.signal().is_some();
        if freezer.is_some() && watchdog.as_ref().is_some_and(killed) {
            // Not frozen is what is hoped for: `EINVAL` is no failure.
            let _ = bale_sys::freeze::thaw(self.mount.as_fd());
        }
        BarrierError::Gone
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // The end of the socket ends the freezer, whose end ends the watchdog. Killing could leave
        // a frozen file system; one that hangs in the kernel is left behind.
        self.channel = None;
        wait(&mut self.freezer);
        wait(&mut self.watchdog);
    }
}

fn start(
    command: &FreezerCommand,
    mount: BorrowedFd<'_>,
    limits: FreezeLimits,
) -> io::Result<Freezer> {
    let (to_watchdog, from_freezer) = pair()?;
    let (freezer, freezer_channel) = spawn(command)?;
    let (watchdog, watchdog_channel) = match spawn(command) {
        Ok(spawned) => spawned,
        Err(error) => {
            drop(freezer_channel);
            let mut freezer = freezer;
            wait(&mut freezer);
            return Err(error);
        }
    };
    // From here on dropping the freezer ends both: the watchdog has no other end of its socket left
    // but ours.
    let mut started = Freezer {
        mount: mount.try_clone_to_owned()?,
        limits,
        channel: None,
        freezer,
        watchdog,
    };
    let mut role = Message::new(Kind::BeWatchdog);
    role.numbers[0] = i64::try_from(limits.frozen_max.as_millis()).unwrap_or(i64::MAX);
    role.numbers[1] = started.freezer.id().into();
    introduce(&watchdog_channel, &role, mount, from_freezer)?;
    introduce(
        &freezer_channel,
        &Message::new(Kind::BeFreezer),
        mount,
        to_watchdog,
    )?;
    started.channel = Some(freezer_channel);
    Ok(started)
}

/// Starts one of the two, with a socket as its standard input. Its other streams lead nowhere: they
/// could lead to the file system that it freezes.
fn spawn(command: &FreezerCommand) -> io::Result<(Child, Channel)> {
    let (ours, theirs) = pair()?;
    let mut started = Command::new(&command.program);
    let child = bale_pipeline::secret_variables::withhold_secrets(&mut started)
        .args(&command.arguments)
        .envs(
            command
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()?;
    Ok((child, Channel::new(ours)))
}

/// Sends the role and what it needs, and waits until it is taken up.
fn introduce(
    channel: &Channel,
    role: &Message,
    mount: BorrowedFd<'_>,
    peer: OwnedFd,
) -> io::Result<()> {
    channel.send_with(role, &[mount, peer.as_fd()])?;
    match channel.receive(Some(READY_WAIT_MAX))? {
        Some(answer) if answer.kind == Kind::Ready => Ok(()),
        Some(answer) => Err(answer.error()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Was the process stopped, by a signal or by a debugger?
fn is_stopped(process_id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat"));
    // The name before it may hold anything, parentheses too.
    let state = stat.ok().and_then(|stat| {
        let (_, after) = stat.rsplit_once(") ")?;
        after.chars().next()
    });
    matches!(state, Some('T' | 't'))
}

/// Waits for a process that is about to end; `None` if it does not.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if started.elapsed() < END_WAIT_MAX => std::thread::sleep(END_PAUSE),
            _ => return None,
        }
    }
}
