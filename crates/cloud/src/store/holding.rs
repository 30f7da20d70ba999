//! How S3 holds an object: its class of storage, and its lock.

use super::CloudStore;
use crate::s3::{S3Service, warmth};
use crate::service::BucketService;
use bale_repository::store::{ColdClasses, ObjectLocks, ObjectName, Result, Warmth};
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// How soon objects are brought back; each has a price.
const TIERS: [&str; 3] = ["Standard", "Bulk", "Expedited"];

fn as_s3(service: &dyn BucketService) -> io::Result<&S3Service> {
    let service = service.as_s3();
    service.ok_or_else(|| io::Error::from(ErrorKind::Unsupported))
}

impl CloudStore {
    fn tier(&self) -> io::Result<&'static str> {
        let text = self.core.options.environment.get("BALE_S3_RESTORE_TIER");
        let text = text.as_deref().unwrap_or(TIERS[0]);
        let found = TIERS
            .into_iter()
            .find(|tier| tier.eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let text = format!("BALE_S3_RESTORE_TIER is none of {}", TIERS.join(", "));
            io::Error::new(ErrorKind::InvalidInput, text)
        })
    }
}

impl ColdClasses for CloudStore {
    fn warmth(&self, name: &ObjectName) -> Result<Warmth> {
        let looked = self.core.service().and_then(|service| {
            let head = as_s3(&*service)?.head(&name.path())?;
            Ok(warmth(&head))
        });
        looked.map_err(|error| self.core.error("stat", name, error))
    }

    fn bring_back(&self, name: &ObjectName, days: u32) -> Result<Warmth> {
        let begun = self.core.service().and_then(|service| {
            let tier = self.tier()?;
            as_s3(&*service)?.bring_back(&name.path(), days, tier)
        });
        begun.map_err(|error| self.core.error("bring back", name, error))
    }
}

impl ObjectLocks for CloudStore {
    fn lock(&self, name: &ObjectName, least: SystemTime, until: SystemTime) -> Result<bool> {
        let locked = self
            .core
            .service()
            .and_then(|service| as_s3(&*service)?.lock(&name.path(), least, until));
        locked.map_err(|error| self.core.error("lock", name, error))
    }
}
