//! Packs in cold classes of the store itself: it is told to bring back those that a restore will
//! read, is asked now and then which have come, and they are taken in that order.
//!
//! All are asked for before the first is waited for. There is no time-out: a store may take days. A
//! restore that ends early leaves packs on their way, and the next one finds them there.

use super::warm_command::pause;
use crate::limits::REQUESTS_AT_ONCE;
use bale_format::PackNumber;
use bale_pipeline::monitor::Monitor;
use bale_pipeline::ordered::in_order_within;
use bale_repository::error;
use bale_repository::index::ChunkIndex;
use bale_repository::repository::Repository;
use bale_repository::store::{ColdClasses, ObjectName, Result as StoreResult, Warmth};
use bale_restore::{Arrival, PackReads, ReadsTotals, RestoreError, Warmer};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, RwLock};

/// Between two rounds of asking; the first ones come sooner.
const PAUSE_SECONDS_MAX: u64 = 300;
/// Looks a second at whether to stop.
const LOOKS_A_SECOND: u64 = 10;

/// Has packs brought back. In memory: a few bytes for each pack that is wanted.
pub struct WarmUp {
    repository: Arc<Repository>,
    index: Arc<ChunkIndex>,
    days: u32,
    readable: RwLock<HashSet<PackNumber>>,
    course: Mutex<Course>,
}

/// How far it is.
#[derive(Default)]
struct Course {
    /// Not asked for yet.
    wanted: Vec<PackNumber>,
    /// On their way.
    coming: Vec<PackNumber>,
    /// Found out and not handed out yet.
    news: VecDeque<Arrival>,
    /// Of asking what has come.
    rounds: u32,
}

impl WarmUp {
    /// For so many days; none if the repository's store has no cold classes.
    pub fn new(repository: &Arc<Repository>, days: u32) -> error::Result<Option<WarmUp>> {
        if repository.store().cold_classes().is_none() {
            return Ok(None);
        }
        Ok(Some(WarmUp {
            index: repository.index()?,
            repository: repository.clone(),
            days,
            readable: RwLock::default(),
            course: Mutex::default(),
        }))
    }

    fn classes(&self) -> &dyn ColdClasses {
        let classes = self.repository.store().cold_classes();
        classes.expect("it was made for a store that has them")
    }

    fn pack(&self, pack: PackNumber) -> ObjectName {
        ObjectName::pack(self.index.pack(pack).id)
    }

    /// Asks about packs, several at a time. What comes is kept, what is readable or fails is news.
    fn ask(
        &self,
        packs: Vec<PackNumber>,
        course: &mut Course,
        monitor: &dyn Monitor,
        request: impl Fn(&ObjectName) -> StoreResult<Warmth> + Sync,
    ) -> Result<(), RestoreError> {
        in_order_within(
            REQUESTS_AT_ONCE,
            packs.into_iter(),
            || (),
            |(), pack| (pack, request(&self.pack(pack))),
            |(pack, warmth)| {
                if monitor.interrupted() {
                    return Err(RestoreError::Stopped);
                }
                match warmth {
                    Ok(Warmth::Readable) => course.news.push_back(Arrival::Readable(pack)),
                    Ok(Warmth::Cold | Warmth::Coming) => course.coming.push(pack),
                    Err(error) => {
                        course.news.push_back(Arrival::Problem(error.to_string()));
                    }
                }
                Ok(())
            },
        )
    }

    fn ask_for_all(&self, course: &mut Course, monitor: &dyn Monitor) -> Result<(), RestoreError> {
        let wanted = std::mem::take(&mut course.wanted);
        let all = wanted.len();
        let bring = |name: &ObjectName| self.classes().bring_back(name, self.days);
        self.ask(wanted, course, monitor, bring)?;
        if !course.coming.is_empty() {
            monitor.note(&format!(
                "{} of {all} packs are archived, and the store brings them back for {} days: that \
                 takes hours, files come as their packs do, and the same command goes on if this \
                 one is ended",
                course.coming.len(),
                self.days
            ));
        }
        Ok(())
    }

    /// The next round, after a pause. Whoever looks may stop it.
    fn ask_again(&self, course: &mut Course, monitor: &dyn Monitor) -> Result<(), RestoreError> {
        let seconds = 1u64 << course.rounds.min(u64::BITS - 1);
        for _ in 0..seconds.min(PAUSE_SECONDS_MAX) * LOOKS_A_SECOND {
            if monitor.interrupted() {
                return Err(RestoreError::Stopped);
            }
            pause(&mut [])?;
        }
        course.rounds += 1;
        let coming = std::mem::take(&mut course.coming);
        self.ask(coming, course, monitor, |name| self.classes().warmth(name))
    }
}

impl Warmer for WarmUp {
    fn want(&self, reads: &PackReads) -> io::Result<()> {
        let mut course = self.course.lock().expect("holders do not panic");
        course.wanted.push(reads.pack);
        Ok(())
    }

    fn begin(&self, _totals: &ReadsTotals) -> io::Result<()> {
        Ok(())
    }

    fn next(&self, monitor: &dyn Monitor) -> Result<Arrival, RestoreError> {
        let mut course = self.course.lock().expect("holders do not panic");
        loop {
            if let Some(arrival) = course.news.pop_front() {
                if let Arrival::Readable(pack) = arrival {
                    let mut readable = self.readable.write().expect("holders do not panic");
                    readable.insert(pack);
                }
                return Ok(arrival);
            }
            if !course.wanted.is_empty() {
                self.ask_for_all(&mut course, monitor)?;
            } else if course.coming.is_empty() {
                return Ok(Arrival::End);
            } else {
                self.ask_again(&mut course, monitor)?;
            }
        }
    }

    fn is_readable(&self, pack: PackNumber) -> bool {
        let readable = self.readable.read().expect("holders do not panic");
        readable.contains(&pack)
    }

    fn name(&self, pack: PackNumber) -> String {
        self.pack(pack).path()
    }
}
