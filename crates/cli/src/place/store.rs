//! The store of a location: of a repository that is there, and of one to be made.

use super::Use;
use super::existing::{self, Meant, OtherThings, holds_data, no_repository, require_config};
use super::{cache, cold, remote};
use crate::args::Global;
use crate::exit::Usage;
use anyhow::{Context, Result};
use bale_pipeline::clock::SystemClock;
use bale_remote::{Location, OpenError, Opening, Scheme};
use bale_repository::error::Error;
use bale_repository::repository::{FirstLooks, FoundRepository, Repository};
use bale_repository::store::{LocalStore, ObjectName, Store, StoreError};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Finds the repository at a location, and makes the first requests for this purpose where it is
/// far away.
pub fn find(
    global: &Global,
    location: &Location,
    meant: Meant,
    purpose: Use,
) -> Result<FoundRepository> {
    let store = store_at(global, location, meant, purpose);
    let store = store.map_err(|error| cold::with_repair_advice(global, location, error))?;
    let store = cold::with_cold(global, store, purpose)?;
    cache::require_named(global)?;
    let looks = purpose.first_looks();
    let options = match looks {
        FirstLooks::Nothing => None,
        _ => cache::of_metadata(global)?,
    };
    let environment = super::environment(global)?;
    match Repository::find(store.clone(), environment, looks, options) {
        Err(Error::NoRepository(_)) => Err(no_repository(location, holds_data(&*store)?, meant)),
        found => Ok(found.with_context(|| format!("open repository {location}"))?),
    }
}

/// Opens the store of a repository that is there.
pub fn of_existing(global: &Global, location: &Location, meant: Meant) -> Result<Arc<dyn Store>> {
    let store = store_at(global, location, meant, Use::Read)?;
    let is_there = || has_config(&*store).with_context(|| format!("open repository {location}"));
    match location.is_remote() && !is_there()? {
        true => Err(no_repository(location, holds_data(&*store)?, meant)),
        false => Ok(store),
    }
}

/// In a directory there must be a repository; elsewhere that is for the caller to find out.
pub fn store_at(
    global: &Global,
    location: &Location,
    meant: Meant,
    purpose: Use,
) -> Result<Arc<dyn Store>> {
    match location {
        Location::Directory(path) => {
            require_config(path, meant)?;
            Ok(match purpose.writes() {
                false => Arc::new(LocalStore::open(path)?),
                true => Arc::new(LocalStore::open_to_write(path, &SystemClock)?),
            })
        }
        Location::Remote(scheme, place) => {
            warn_of_shown_password(global, location);
            let opening = match purpose.writes() {
                false => Opening::Read,
                true => Opening::Write,
            };
            remote(global, *scheme, place, opening)
        }
    }
}

/// Room for a new repository.
pub enum Room {
    /// A directory, in which nothing was made yet.
    Directory(PathBuf),
    /// A place on a wire without a repository.
    Remote(Scheme, String),
}

impl Room {
    /// Looks whether there is room, and makes nothing.
    pub fn find(global: &Global, location: &Location, others: OtherThings) -> Result<Room> {
        let (scheme, place) = match location {
            Location::Directory(path) => {
                existing::require_room(path, others)?;
                return Ok(Room::Directory(path.clone()));
            }
            Location::Remote(scheme, place) => (*scheme, place),
        };
        warn_of_shown_password(global, location);
        let store = remote(global, scheme, place, Opening::Read)?;
        if has_config(&*store).with_context(|| format!("look for a repository at {location}"))? {
            return Err(Error::RepositoryExists(location.to_string()).into());
        }
        match holds_data(&*store)? {
            true => Err(no_repository(location, true, Meant::Named)),
            false => Ok(Room::Remote(scheme, place.clone())),
        }
    }

    /// The same for the copy of a repository, of which a part may be there.
    pub fn for_copy(location: &Location) -> Result<Room> {
        Ok(match location {
            Location::Directory(path) => {
                existing::require_only_ours(path, OtherThings::Refused)?;
                Room::Directory(path.clone())
            }
            Location::Remote(scheme, place) => Room::Remote(*scheme, place.clone()),
        })
    }

    /// The store in it.
    pub fn store(self, global: &Global) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Room::Directory(path) => Arc::new(LocalStore::create(&path)?),
            Room::Remote(scheme, place) => {
                if let Some(caveat) = bale_remote::caveat(scheme) {
                    report!("bale: {caveat}");
                }
                let made = remote(global, scheme, &place, Opening::Create);
                made.map_err(|error| made_meanwhile(error, scheme, place))?
            }
        })
    }
}

/// Another `init` made a repository there since it was looked for.
fn made_meanwhile(error: anyhow::Error, scheme: Scheme, place: String) -> anyhow::Error {
    let is_there = |error: &StoreError| {
        error.action == "create" && error.source.kind() == ErrorKind::AlreadyExists
    };
    match error.downcast_ref::<StoreError>() {
        Some(error) if is_there(error) => {
            Error::RepositoryExists(Location::Remote(scheme, place).to_string()).into()
        }
        _ => error,
    }
}

fn remote(
    global: &Global,
    scheme: Scheme,
    place: &str,
    opening: Opening,
) -> Result<Arc<dyn Store>> {
    let waiting = remote::waiting(global);
    let options = remote::options(global, &waiting)?;
    let opened = bale_remote::open(scheme, place, opening, &options, waiting);
    opened.map_err(open_error)
}

/// Said once: who gives a password as an argument shows it to everybody on this machine. What a
/// variable says others do not see.
fn warn_of_shown_password(global: &Global, location: &Location) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    let is_shown = global.repo.is_some() && location.holds_password();
    if is_shown && !IS_REPORTED.swap(true, Ordering::Relaxed) {
        report!(
            "bale: the password in {location} can be seen by everybody on this machine while the \
             command runs: {}",
            remote::hidden_password_advice(global)
        );
    }
}

fn open_error(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Url(..)
        | OpenError::Sftp(_)
        | OpenError::Rclone(..)
        | OpenError::Ftp(..)
        | OpenError::Cloud(_) => Usage(error.to_string()).into(),
        OpenError::Store(error) => error.into(),
    }
}

fn has_config(store: &dyn Store) -> Result<bool, StoreError> {
    for name in ObjectName::configs() {
        if store.stat(&name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
