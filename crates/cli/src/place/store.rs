//! The store of a location: of a repository that is there, and of one to be made.

use super::Use;
use super::existing::{self, Meant, holds_data, no_repository, require_config};
use crate::exit::Usage;
use crate::{interrupt, variables};
use anyhow::{Context, Result};
use bale_pipeline::clock::SystemClock;
use bale_remote::{Location, OpenError, RealWaiting, RemoteOptions, Scheme};
use bale_repository::error::Error;
use bale_repository::store::{LocalStore, ObjectName, Store, StoreError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store of a repository that is there.
pub fn of_existing(location: &Location, meant: Meant, purpose: Use) -> Result<Arc<dyn Store>> {
    match location {
        Location::Directory(path) => {
            require_config(path, meant)?;
            Ok(match purpose {
                Use::Read | Use::Configs => Arc::new(LocalStore::open(path)?),
                Use::Write => Arc::new(LocalStore::open_to_write(path, &SystemClock)?),
            })
        }
        Location::Remote(scheme, place) => {
            let store = remote(*scheme, place)?;
            match has_config(&*store).with_context(|| format!("open repository {location}"))? {
                true => Ok(store),
                false => Err(no_repository(location, holds_data(&*store), meant)),
            }
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
    pub fn find(location: &Location, forced: bool) -> Result<Room> {
        let (scheme, place) = match location {
            Location::Directory(path) => {
                existing::require_room(path, forced)?;
                return Ok(Room::Directory(path.clone()));
            }
            Location::Remote(scheme, place) => (*scheme, place),
        };
        let store = remote(scheme, place)?;
        if has_config(&*store).with_context(|| format!("look for a repository at {location}"))? {
            return Err(Error::RepositoryExists(location.to_string()).into());
        }
        match holds_data(&*store) {
            true => Err(no_repository(location, true, Meant::Named)),
            false => Ok(Room::Remote(scheme, place.clone())),
        }
    }

    /// The store in it.
    pub fn store(self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Room::Directory(path) => Arc::new(LocalStore::create(&path)?),
            Room::Remote(scheme, place) => {
                let options = remote_options()?;
                let made = bale_remote::create(scheme, &place, &options, Arc::new(waiting()));
                made.map_err(open_error)?
            }
        })
    }
}

fn remote(scheme: Scheme, place: &str) -> Result<Arc<dyn Store>> {
    let opened = bale_remote::open(scheme, place, &remote_options()?, Arc::new(waiting()));
    opened.map_err(open_error)
}

fn remote_options() -> Result<RemoteOptions> {
    Ok(RemoteOptions {
        ca_file: variables::read("BALE_CA_FILE")?.map(PathBuf::from),
        ..RemoteOptions::default()
    })
}

fn waiting() -> RealWaiting {
    RealWaiting::new(interrupt::is_requested, report_again)
}

fn open_error(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Url(_) => Usage(error.to_string()).into(),
        OpenError::Store(error) => error.into(),
    }
}

fn report_again(error: &StoreError, pause: Duration) {
    report!(
        "bale: {error}: trying again in {} s",
        pause.as_secs().max(1)
    );
}

fn has_config(store: &dyn Store) -> Result<bool, StoreError> {
    for name in ObjectName::configs() {
        if store.stat(&name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
