//! Signals of a process that must not be asked to stop halfway.

use std::io;

/// From now on hang-up, interrupt, quit and termination do nothing to this process. For small
/// processes that end by themselves when the other end of their socket is gone.
pub fn ignore_requests_to_stop() -> io::Result<()> {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed; the signal is ignored.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
