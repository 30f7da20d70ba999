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
    pub listed: Vec<ForeignFound>,
    pub count: u64,
    /// Of them in the place of an object, or of a directory of objects.
    pub in_the_way: u64,
}

/// Something that is no object, and where.
#[derive(Debug)]
pub struct ForeignFound {
    pub entry: ForeignEntry,
    /// Of a repository with two stores: in which of them.
    pub store: Option<String>,
}

/// Looks through all areas, of each of two stores.
pub(super) fn name(store: &dyn Store) -> Result<Foreign> {
    let mut foreign = Foreign::default();
    let mut others = Vec::new();
    match store.tiers() {
        None => name_of(store, None, &mut foreign, &mut others)?,
        Some([hot, cold]) => {
            for (store, which) in [(hot, "hot"), (cold, "cold")] {
                let place = format!("{which} store {}", store.place());
                name_of(store, Some(&place), &mut foreign, &mut others)?;
            }
        }
    }
    others.truncate(LISTED_MAX - foreign.listed.len());
    foreign.listed.append(&mut others);
    Ok(foreign)
}

fn name_of(
    store: &dyn Store,
    place: Option<&str>,
    foreign: &mut Foreign,
    others: &mut Vec<ForeignFound>,
) -> Result<()> {
    for area in Area::ALL.into_iter().chain(Area::OF_STRETCHES) {
        store.list_foreign(area, &mut |entry| {
            foreign.count += 1;
            let is_in_the_way = entry.kind.is_in_the_way();
            foreign.in_the_way += u64::from(is_in_the_way);
            let list = match is_in_the_way {
                true => &mut foreign.listed,
                false => &mut *others,
            };
            if list.len() < LISTED_MAX {
                let store = place.map(str::to_owned);
                list.push(ForeignFound { entry, store });
            }
        })?;
    }
    Ok(())
}
