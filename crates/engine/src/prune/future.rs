//! What the store dates in the future: it stays young until then, for nobody can tell how old it
//! is. Nothing of it is given up earlier for that; whoever knows better corrects the date, which is
//! no part of what is stored.

use super::pack_states::PackStates;
use super::plan::{PackFate, PlannedPack};
use bale_format::ObjectId;
use bale_pipeline::amount;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Result;
use bale_repository::repository::Repository;
use bale_repository::snapshots::CLOCK_SKEW_SECONDS_MAX;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

const ADVICE: &str = "is the clock of this machine right, and that of the store? If they are, give \
    it today's date (on a local directory with touch)";

/// Names packs that would be condemned but for their dates, together, and lists of condemned packs
/// one by one.
pub(super) fn name(
    repository: &Repository,
    standing: &PackStates,
    packs: &[PlannedPack],
    monitor: &dyn Monitor,
) -> Result<()> {
    let now = repository.clock().now();
    let is_future = |modified: Option<SystemTime>| {
        let skew = Duration::from_secs(CLOCK_SKEW_SECONDS_MAX.unsigned_abs());
        let ahead = modified.and_then(|modified| modified.duration_since(now).ok());
        ahead.is_some_and(|ahead| ahead > skew)
    };
    let modified: HashMap<ObjectId, Option<SystemTime>> = standing
        .packs
        .iter()
        .map(|pack| (pack.id, pack.modified))
        .collect();
    let dated = |pack: &&PlannedPack| {
        let modified = modified.get(&pack.id).copied().flatten();
        pack.fate == PackFate::Young && is_future(modified)
    };
    let young: Vec<&PlannedPack> = packs.iter().filter(dated).collect();
    if let Some(first) = young.first() {
        let bytes: u64 = young.iter().map(|pack| pack.len).sum();
        monitor.note(&format!(
            "unused packs that the store dates in the future, and that stay until then: {} ({}), \
             pack {} first: {ADVICE}",
            young.len(),
            amount::bytes(bytes),
            first.id
        ));
    }
    for list in repository.condemned()? {
        if is_future(list.modified) {
            monitor.note(&format!(
                "{} is dated in the future by the store, and its packs are not deleted until then: \
                 {ADVICE}",
                list.name
            ));
        }
    }
    Ok(())
}
