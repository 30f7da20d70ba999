//! Mirrors of a scene's repository, and what must hold of one that was killed.

use crate::dated_store::DatedStore;
use crate::faulty_store::FaultyStore;
use crate::scene::Scene;
use bale_engine::mirror::{MirrorOptions, Mirrored, mirror};
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Result;
use bale_repository::store::{Area, Store};
use std::sync::Arc;
use std::time::Duration;

/// More calls than any mirror of a test makes.
const CALLS_MAX: u64 = 2_000;

/// Deletes what the source does not have any more.
pub const DELETING: MirrorOptions = MirrorOptions {
    verify: false,
    delete: true,
    dry_run: false,
};

/// Reads what is there already.
pub const VERIFYING: MirrorOptions = MirrorOptions {
    verify: true,
    delete: false,
    dry_run: false,
};

impl Scene {
    /// A place for a mirror.
    pub fn empty_place(&self) -> DatedStore {
        DatedStore::new(self.clock.clone())
    }

    /// Mirrors the scene's repository.
    pub fn mirror_to(&self, target: impl Store + 'static) -> Result<Mirrored> {
        self.mirror_with(target, MirrorOptions::default())
    }

    /// The same with options.
    pub fn mirror_with(
        &self,
        target: impl Store + 'static,
        options: MirrorOptions,
    ) -> Result<Mirrored> {
        let target: Arc<dyn Store> = Arc::new(target);
        mirror(&self.repository(), &target, &options, &Recorder::default())
    }

    /// A mirror made before the first snapshot was forgotten and pruned in the source, and once
    /// more after that: without being asked to delete, it has everything still.
    pub fn mirrored_before_it_was_pruned(&mut self) -> DatedStore {
        let target = self.empty_place();
        self.mirror_to(target.clone()).expect("a first mirror");
        let (first, _) = self.kept.remove(0);
        let source = self.repository();
        source.forget_snapshot(first).expect("it is there");
        self.prune(&self.repository(), Duration::ZERO)
            .expect("a prune");
        self.mirror_to(target.clone()).expect("a second mirror");
        target
    }

    /// Of the kept snapshots those that are listed restore exactly; others are not looked at.
    pub fn assert_kept_ones_restore(&self, store: &DatedStore, story: &str) {
        let repository = self.open(store.clone()).expect(story);
        for named in repository.snapshots().expect(story) {
            if let Some((_, tree)) = self.kept.iter().find(|(id, _)| *id == named.0) {
                self.assert_restores(&repository, &named, tree, story);
            }
        }
    }

    /// Kills a mirror at each request: what is there is whole, and the next one completes it.
    pub fn assert_mirrors_go_on_wherever_they_are_killed(&self) {
        for after in 0..CALLS_MAX {
            let mut crashed = false;
            for last_is_done in [false, true] {
                let target = self.empty_place();
                let faulty = FaultyStore::over(target.clone());
                faulty.crash_after(after, last_is_done);
                let story = format!("killed at call {after}, done: {last_is_done}");
                let done = self.mirror_to(faulty.clone());
                crashed |= faulty.crashed();
                assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
                if !target.names(Area::Config).is_empty() {
                    self.assert_kept_ones_restore(&target, &story);
                }
                self.mirror_to(target.clone()).expect(&story);
                self.assert_sound(&target, &story);
            }
            if !crashed {
                assert!(after > 10, "{after}");
                return;
            }
        }
        panic!("more than {CALLS_MAX} calls");
    }

    /// Kills one that deletes at each request: what is there stays whole. Returns the store of the
    /// one that came to its end, and what it did.
    pub fn deleting_mirrors_killed_anywhere(&self, target: &DatedStore) -> (DatedStore, Mirrored) {
        for after in 0..CALLS_MAX {
            let fork = target.fork();
            let faulty = FaultyStore::over(fork.clone());
            faulty.crash_after(after, true);
            let done = self.mirror_with(faulty.clone(), DELETING);
            let story = format!("deleting, killed at call {after}");
            self.assert_kept_ones_restore(&fork, &story);
            assert!(self.check(&fork).expect(&story).is_clean(), "{story}");
            if let Ok(mirrored) = done
                && !faulty.crashed()
            {
                return (fork, mirrored);
            }
        }
        panic!("more than {CALLS_MAX} calls");
    }
}
