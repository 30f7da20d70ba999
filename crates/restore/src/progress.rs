//! How far a restore or a dump is: its threads say what more is done, the monitor hears the sums.
//!
//! Everything else goes to the monitor as it is.

use crate::totals::PlanTotals;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sums of one phase.
pub struct PhaseProgress<'m> {
    pub monitor: &'m dyn Monitor,
    phase: Phase,
    entries: AtomicU64,
    bytes: AtomicU64,
    entries_total: AtomicU64,
    bytes_total: AtomicU64,
}

impl<'m> PhaseProgress<'m> {
    /// Totals are unknown until there is a plan.
    pub fn new(monitor: &'m dyn Monitor, phase: Phase) -> PhaseProgress<'m> {
        PhaseProgress {
            monitor,
            phase,
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            entries_total: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
        }
    }

    /// The plan is made; nothing has been written yet.
    pub fn planned(&self, plan: &PlanTotals) {
        self.entries_total.store(plan.entries(), Ordering::Relaxed);
        self.bytes_total.store(plan.bytes, Ordering::Relaxed);
        self.add(0, 0);
    }

    /// So much more is done.
    pub fn add(&self, entries: u64, bytes: u64) {
        let progress = Progress {
            done: self.entries.fetch_add(entries, Ordering::Relaxed) + entries,
            total: self.entries_total.load(Ordering::Relaxed),
            bytes_done: self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
        };
        self.monitor.progress(self.phase, progress);
    }
}

/// One entry did not come back as it was. `path` is relative to the target.
pub fn report_problem(monitor: &dyn Monitor, path: &[u8], action: &'static str, text: &str) {
    monitor.problem(&Problem {
        path: path.to_vec(),
        action,
        text: text.to_owned(),
    });
}
