//! The end of a process group.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::time::{Duration, Instant};

/// Between two looks at whether any are left.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks all of a group to end, and ends those that did not after `wait`. `reap`: waits for those of
/// them that are children of this process, without patience.
pub fn end(group: Pid, wait: Duration, mut reap: impl FnMut()) {
    let _none_may_be_left = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < wait {
        reap();
        // As long as there are any, the number is theirs.
        if test_kill_process_group(group).is_err() {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let _none_may_be_left = kill_process_group(group, Signal::KILL);
}
