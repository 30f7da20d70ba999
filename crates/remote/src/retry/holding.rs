//! What a store says of how it holds an object, asked again like everything else.

use super::Retried;
use bale_repository::store::{ColdClasses, ObjectLocks, ObjectName, Result, Warmth};
use std::time::SystemTime;

impl Retried {
    /// Handed out only where the store has them.
    fn inner_classes(&self) -> &dyn ColdClasses {
        let classes = self.store.cold_classes();
        classes.expect("whoever is asked has cold classes")
    }

    /// Handed out only where the store has them.
    fn inner_locks(&self) -> &dyn ObjectLocks {
        self.store
            .object_locks()
            .expect("whoever is asked has locks")
    }
}

impl ColdClasses for Retried {
    fn warmth(&self, name: &ObjectName) -> Result<Warmth> {
        self.until_answered(|| self.inner_classes().warmth(name))
    }

    fn bring_back(&self, name: &ObjectName, days: u32) -> Result<Warmth> {
        self.until_answered(|| self.inner_classes().bring_back(name, days))
    }
}

impl ObjectLocks for Retried {
    fn lock(&self, name: &ObjectName, least: SystemTime, until: SystemTime) -> Result<bool> {
        self.until_answered(|| self.inner_locks().lock(name, least, until))
    }
}
