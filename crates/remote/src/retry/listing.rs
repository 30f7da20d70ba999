//! Listings that are made again: nobody is told of an object twice.

use super::{Retried, half_hash};
use bale_repository::store::Result;
use std::collections::HashSet;

/// Names of a listing that are remembered in case it is made again: 4 MiB with their table. After
/// more of them a listing that fails has failed.
const LISTED_NAMES_MAX: usize = 128 << 10;

impl Retried {
    /// Nobody is told of anything twice: what was found before a listing failed is remembered, as
    /// long as it is not too much. Stores that list page by page repeat a page themselves.
    pub(super) fn list_once<T>(
        &self,
        list: impl Fn(&mut dyn FnMut(T)) -> Result<()>,
        path: impl Fn(&T) -> String,
        found: &mut dyn FnMut(T),
    ) -> Result<()> {
        let mut told = HashSet::new();
        let mut is_too_much = false;
        let mut last = None;
        let answered = self.until_answered(|| {
            let listed = list(&mut |one| {
                is_too_much |= told.len() >= LISTED_NAMES_MAX;
                if is_too_much || told.insert(half_hash(&path(&one))) {
                    found(one);
                }
            });
            match listed {
                Err(error) if is_too_much => {
                    last = Some(error);
                    Ok(())
                }
                listed => listed,
            }
        });
        match last {
            Some(error) => Err(error),
            None => answered,
        }
    }
}
