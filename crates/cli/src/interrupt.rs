//! Ctrl-C and termination: the first asks the operation to end well, the second ends the process at
//! once, or asks again whoever has an answer to it.

use crate::process_group;
use rustix::process::Pid;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

static REQUESTS: AtomicUsize = AtomicUsize::new(0);
static GOES_ON: AtomicBool = AtomicBool::new(false);
static ANSWER: OnceLock<&str> = OnceLock::new();
static GROUP: AtomicI32 = AtomicI32::new(0);

/// From asking a group to end to ending it, where nobody waits longer.
const GROUP_END_WAIT: Duration = Duration::from_secs(1);

/// Requests that an operation can have an answer to, if it has one to the second.
const ANSWERED_MAX: usize = 2;

/// True after the first Ctrl-C or SIGTERM.
pub fn is_requested() -> bool {
    requests() > 0
}

/// How many there were.
pub fn requests() -> usize {
    REQUESTS.load(Ordering::Relaxed)
}

/// From now on the second one does not end the process, but the third.
pub fn go_on_after_the_first() {
    GOES_ON.store(true, Ordering::Relaxed);
}

/// Said at once after the first, by an operation that may take its time to end.
pub fn answer_the_first(text: &'static str) {
    let _was_said_before = ANSWER.set(text);
}

/// A process group that ends with this process if that is ended at once.
pub fn end_too(group: Option<Pid>) {
    let number = group.map_or(0, |group| group.as_raw_nonzero().get());
    GROUP.store(number, Ordering::Relaxed);
}

/// Starts listening for SIGINT, SIGTERM and SIGHUP.
pub fn listen() {
    let result = ctrlc::set_handler(|| {
        let answered = match GOES_ON.load(Ordering::Relaxed) {
            true => ANSWERED_MAX,
            false => 1,
        };
        let before = REQUESTS.fetch_add(1, Ordering::Relaxed);
        if before >= answered {
            if let Some(group) = Pid::from_raw(GROUP.load(Ordering::Relaxed)) {
                process_group::end(group, GROUP_END_WAIT, || {});
            }
            std::process::exit(crate::exit::INTERRUPTED);
        }
        if let (0, Some(answer)) = (before, ANSWER.get()) {
            report!("bale: {answer}");
        }
    });
    if let Err(error) = result {
        report!("bale: cannot listen for signals: {error}");
    }
}
