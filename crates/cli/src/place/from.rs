//! The second repository of a command: the one that is copied from, or that a mirror is kept in. It
//! has options and variables of its own, and no place that is taken for granted.

use super::existing::{Meant, OtherThings};
use super::named::is_same_place;
use super::{Room, Use, named, open_found, store};
use crate::args::{FromRepository, Global, Mirror, Whose};
use crate::exit::Usage;
use crate::{secrets, variables};
use anyhow::{Context, Result};
use bale_remote::Location;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_repository::store::{MemoryStore, Store};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Opens the repository that is copied from, and changes nothing in it. Its catalogs may come from
/// the cache: the next copy reads them again.
pub fn open_from(global: &Global, from: &FromRepository) -> Result<Arc<Repository>> {
    let location = location(from)?;
    let opened = || {
        let options = of_source(global, from);
        let found = store::find(&options, &location, Meant::Named, Use::Browse)?;
        open_found(global, found, &secrets::of_source(from)?, Use::Browse)
    };
    opened().with_context(|| format!("open {location}, the repository to copy from"))
}

/// Options of every command as they are of this repository.
fn of_source(global: &Global, from: &FromRepository) -> Global {
    other(
        global,
        (from.from_repo.clone(), from.from_login_file.clone()),
        Whose::Source,
    )
}

fn other(
    global: &Global,
    (repo, login_file): (Option<OsString>, Option<PathBuf>),
    whose: Whose,
) -> Global {
    let mut global = global.clone();
    global.repo = repo;
    global.remote.login_file = login_file;
    global.remote.whose = whose;
    global
}

/// The store that a mirror is kept in: a repository that is there, or room for one. A dry run makes
/// nothing.
pub fn mirror_store(global: &Global, options: &Mirror) -> Result<Arc<dyn Store>> {
    let location = Location::parse(&options.to).map_err(|error| Usage(error.to_string()))?;
    if named(global)?.is_some_and(|source| is_same_place(&source, &location)) {
        let text = format!("{location} is the repository itself: a mirror is a second place");
        return Err(Usage(text).into());
    }
    let global = other(
        global,
        (Some(options.to.clone()), options.to_login_file.clone()),
        Whose::Mirror,
    );
    let purpose = Use::unless_dry_run(options.dry_run);
    let opened = || match Room::find(&global, &location, OtherThings::Refused) {
        Ok(_) if options.dry_run => Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>),
        Ok(room) => room.store(&global),
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::RepositoryExists(_)) => {
                store::store_at(&global, &location, Meant::Named, purpose)
            }
            _ => Err(error),
        },
    };
    opened().with_context(|| format!("open {location}, the place of the mirror"))
}

fn location(from: &FromRepository) -> Result<Location, Usage> {
    let text = match &from.from_repo {
        Some(text) => Some(text.clone()),
        None => variables::read("BALE_FROM_REPOSITORY")?,
    };
    let Some(text) = text else {
        return Err(Usage(
            "no repository to copy from: name one with --from-repo, or set BALE_FROM_REPOSITORY"
                .to_owned(),
        ));
    };
    Location::parse(&text).map_err(|error| Usage(error.to_string()))
}
