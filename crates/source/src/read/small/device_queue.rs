//! Small files of a device that wait to be read: in groups of neighbours, in the order of the
//! device, like a lift.

use super::super::device::{DeviceJob, GROUP_GAP_BYTES_MAX};
use std::collections::BTreeMap;

/// Groups that are read at a time.
const READS_MAX: usize = 12;
/// Files wait until there is this much of them, or so many, to be read with their neighbours.
const BYTES_MIN: u64 = 4 << 20;
const FILES_MIN: usize = 2048;

#[derive(Default)]
pub(super) struct DeviceQueue {
    /// By offset on the device and place in the order asked for.
    jobs: BTreeMap<(u64, u64), DeviceJob>,
    bytes: u64,
    /// Where the last group ended.
    last: (u64, u64),
    /// Groups being read.
    reads: usize,
}

impl DeviceQueue {
    pub(super) fn push(&mut self, job: DeviceJob) {
        self.bytes += u64::from(job.span().len);
        self.jobs.insert((job.span().offset, job.place), job);
    }

    /// Is there anything to read, and may one more group be read just now?
    pub(super) fn may_be_read(&self) -> bool {
        !self.jobs.is_empty() && self.reads < READS_MAX
    }

    /// Is there much to choose from?
    pub(super) fn is_much(&self) -> bool {
        self.bytes >= BYTES_MIN || self.jobs.len() >= FILES_MIN
    }

    /// Is a group being read?
    pub(super) fn is_read(&self) -> bool {
        self.reads > 0
    }

    /// Takes the file at this place in the order asked for, to be read alone.
    pub(super) fn take(&mut self, place: u64) -> Option<DeviceJob> {
        let key = *self.jobs.keys().find(|key| key.1 == place)?;
        let job = self.jobs.remove(&key)?;
        self.bytes -= u64::from(job.span().len);
        self.reads += 1;
        Some(job)
    }

    /// Takes files near each other, that span so much, from where the last group ended upwards;
    /// there must be some.
    pub(super) fn take_group(&mut self, group_bytes: usize) -> Vec<DeviceJob> {
        let mut group: Vec<DeviceJob> = Vec::new();
        let (mut start, mut end) = (0, 0);
        loop {
            let above = self.jobs.range(self.last..).next();
            let next = match group.is_empty() {
                true => above.or_else(|| self.jobs.iter().next()),
                false => above,
            };
            let Some((key, job)) = next else {
                break;
            };
            let span = job.span();
            if group.is_empty() {
                (start, end) = (span.offset, span.offset);
            }
            let far = span.offset > end + GROUP_GAP_BYTES_MAX;
            let is_long = span.end().max(end) - start > group_bytes as u64;
            if !group.is_empty() && (far || is_long) {
                break;
            }
            end = end.max(span.end());
            self.last = *key;
            group.extend(self.jobs.remove(&self.last));
            self.bytes -= u64::from(span.len);
        }
        self.reads += 1;
        group
    }

    /// A group, or a file alone, was read.
    pub(super) fn was_read(&mut self) {
        self.reads -= 1;
    }
}
