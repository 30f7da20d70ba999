//! What stands among the objects and is none: nobody reads, follows or removes it, and in the place
//! of an object it hides that the object is gone.

use bale_repository::error::Result;
use bale_repository::store::{Area, ForeignEntry, Store};

/// Listed at most; all are counted.
const LISTED_MAX: usize = 1000;

/// What was found.
#[derive(Debug, Default)]
pub struct Foreign {
    /// Those in the place of an object first; not all, if there are too many.
    pub listed: Vec<ForeignEntry>,
    pub count: u64,
    /// Of them in the place of an object, or of a directory of objects.
    pub in_the_way: u64,
}

/// Looks through all areas.
pub(super) fn name(store: &dyn Store) -> Result<Foreign> {
    let mut foreign = Foreign::default();
    let mut others = Vec::new();
    for area in Area::ALL.into_iter().chain(Area::OF_STRETCHES) {
        store.list_foreign(area, &mut |entry| {
            foreign.count += 1;
            let is_in_the_way = entry.kind.is_in_the_way();
            foreign.in_the_way += u64::from(is_in_the_way);
            let list = match is_in_the_way {
                true => &mut foreign.listed,
                false => &mut others,
            };
            if list.len() < LISTED_MAX {
                list.push(entry);
            }
        })?;
    }
    others.truncate(LISTED_MAX - foreign.listed.len());
    foreign.listed.append(&mut others);
    Ok(foreign)
}
