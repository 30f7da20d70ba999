//! Requests that do not need each other's answers: at once where the store is far away, one after
//! the other where it is near, which is as quick there and takes no threads.
//!
//! What was listed when a repository that is far away was opened is handed out here, too.

use super::Repository;
use super::first_look::FLIGHTS;
use super::objects::sorted;
use crate::error::Result;
use crate::limits::OBJECT_FLIGHT_BYTES;
use crate::store::{Area, ObjectInfo, ObjectName};
use bale_pipeline::ordered::{Flights, both, in_order_weighed};
use std::convert::Infallible;

impl Repository {
    /// How much may be on its way at a time.
    pub fn flights(&self) -> Flights {
        let weight = self.memory.share(OBJECT_FLIGHT_BYTES) as u64;
        let jobs = match self.store.is_remote() {
            true => FLIGHTS.jobs,
            false => 1,
        };
        Flights { jobs, weight }
    }

    /// Does two things that do not need each other.
    pub fn at_once<A: Send, B>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B,
    ) -> (A, B) {
        match self.store.is_remote() {
            true => both(first, second),
            false => (first(), second()),
        }
    }

    /// Reads objects and hands them to `take` in the order in which they are listed.
    pub(super) fn read_each<T: Send>(
        &self,
        infos: Vec<ObjectInfo>,
        read: impl Fn(&ObjectName) -> Result<T> + Sync,
        mut take: impl FnMut(ObjectInfo, Result<T>),
    ) {
        let jobs = infos.into_iter().map(|info| (info.len, info));
        let read = |info: ObjectInfo| {
            let object = read(&info.name);
            (info, object)
        };
        let done = in_order_weighed(self.flights(), jobs, read, |(info, object)| {
            take(info, object);
            Ok::<(), Infallible>(())
        });
        match done {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// An area as it was listed when the repository was opened, a moment ago, for whoever comes
    /// first; else as it is now.
    pub(super) fn list_first(&self, area: Area) -> Result<Vec<ObjectInfo>> {
        match self.first.take(area, self.clock().now()) {
            Some(infos) => Ok(sorted(infos)),
            None => self.list(area),
        }
    }

    /// The same for several that begin together.
    pub fn share_first(&self, area: Area) -> Result<Vec<ObjectInfo>> {
        match self.first.share(area, self.clock().now()) {
            Some(infos) => Ok(sorted(infos)),
            None => self.list(area),
        }
    }

    /// Packs as they were listed when the repository was opened, a moment ago, after the lists of
    /// condemned ones, for whoever comes first; else as they are now.
    pub fn list_packs_first(&self, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        match self.first.take(Area::Packs, self.clock().now()) {
            Some(infos) => infos.into_iter().for_each(found),
            None => self.store.list(Area::Packs, found)?,
        }
        Ok(())
    }

    /// Were packs listed when the repository was opened, and was that a moment ago?
    pub fn has_listed_packs_just_now(&self) -> bool {
        self.first.has_young_packs(self.clock().now())
    }

    /// Something shows that they were listed too early.
    pub(super) fn forget_first_packs(&self) {
        self.first.take(Area::Packs, self.clock().now());
    }
}
