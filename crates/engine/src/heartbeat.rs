//! The sign of life of a run: a record that names nothing and is replaced every few minutes. A
//! prune leaves alone what was stored since the run began, as long as its sign is younger than the
//! grace period (`Repository::runs_store_since`). So a first backup may take longer than that, in
//! whatever way it scans, and while it reads one large file.
//!
//! A thread of its own, because any other may be busy for hours. What it cannot write costs the
//! protection and no more: the backup looks again before it commits. A run that was killed leaves
//! one record, which protects nothing once it is old and goes with the next backup of the same
//! source that finds it old.

use crate::limits::CHECKPOINT_SECONDS;
use bale_format::Snapshot;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Beats until it is dropped.
pub(crate) struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Of an operation that is no backup, by this host and program: a prune leaves alone what it
    /// stores, as long as it sees these.
    pub(crate) fn of_operation(
        repository: &Arc<Repository>,
        host: &str,
        program: &str,
    ) -> Result<Heartbeat> {
        let id: [u8; 16] = bale_pipeline::random::draw(repository.random())
            .map_err(|error| Error::Other(format!("draw random bytes: {error}")))?;
        let draft = Snapshot {
            host: host.to_owned(),
            program: program.to_owned(),
            ..Snapshot::begun(id, repository.clock().time())
        };
        let every = Duration::from_secs(CHECKPOINT_SECONDS);
        Heartbeat::start(repository.clone(), id, draft, every)
    }

    /// The first sign comes after `every`: short runs leave none.
    /// `draft`: what the sign says of the run.
    pub(crate) fn start(
        repository: Arc<Repository>,
        id: [u8; 16],
        draft: Snapshot,
        every: Duration,
    ) -> Result<Heartbeat> {
        let (stop, stopped) = bounded::<()>(1);
        let beat = move || {
            let mut last = None;
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let sign = Snapshot {
                    partial: true,
                    finished: repository.clock().time(),
                    ..draft.clone()
                };
                let Ok(new) = repository.write_run(id, &sign) else {
                    continue;
                };
                if let Some(old) = last.replace(new).filter(|old| *old != new) {
                    let _ = repository.store().delete(&ObjectName::run(id, old));
                }
            }
            if let Some(last) = last {
                let _ = repository.store().delete(&ObjectName::run(id, last));
            }
        };
        let thread = std::thread::Builder::new().name("sign-of-life".to_owned());
        let thread = thread
            .spawn(beat)
            .map_err(|error| Error::Other(format!("start the heartbeat thread: {error}")))?;
        Ok(Heartbeat {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
