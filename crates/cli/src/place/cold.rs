//! The cold store beside the repository that is named: it holds everything, the named one
//! everything but packs of data.

use super::existing::{OtherThings, holds_data_at, require_only_ours};
use super::named::is_same_place;
use super::store::{Room, of_existing, store_at};
use super::{Meant, Use, named, remote};
use crate::args::{Global, Whose};
use crate::exit::{self, Usage};
use crate::{output, secrets, variables};
use anyhow::Result;
use bale_remote::Location;
use bale_repository::error::Error;
use bale_repository::repository::{CONFIG_BYTES_MAX, Repository};
use bale_repository::store::{
    LocalStore, MemoryStore, ObjectName, OnMiss, Store, StoreError, TieredStore,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// That one of two stores is used was said, or why.
static IS_ONE_OF_TWO_REPORTED: AtomicBool = AtomicBool::new(false);

/// The cold store that is named, if one is: beside a repository that is named, too.
pub fn cold_location(global: &Global) -> Result<Option<Location>, Usage> {
    if global.remote.whose != Whose::Own {
        return Ok(None);
    }
    let text = match &global.cold {
        Some(text) => Some(text.clone()),
        None => variables::read("BALE_COLD")?,
    };
    let location = text.map(|text| Location::parse(&text)).transpose();
    let location = location.map_err(|error| Usage(error.to_string()))?;
    if location.is_some() && named(global)?.is_none() {
        return Err(Usage(
            "a cold store is named (--cold, BALE_COLD), and no repository to which it belongs: \
             name the hot one with --repo"
                .to_owned(),
        ));
    }
    if let Some(cold) = &location {
        refuse_same(global, cold)?;
    }
    remote::check_storage_class(global, [named(global)?.as_ref(), location.as_ref()])?;
    Ok(location)
}

/// Its directory, if it is one of this machine.
pub fn cold_directory(global: &Global) -> Option<PathBuf> {
    let location = cold_location(global).ok().flatten();
    location.and_then(Location::into_directory)
}

/// The hot store with the cold one, if one is named.
pub fn with_cold(global: &Global, hot: Arc<dyn Store>, purpose: Use) -> Result<Arc<dyn Store>> {
    let Some(location) = cold_location(global)? else {
        return Ok(hot);
    };
    let options = of_cold(global, &location)?;
    if purpose.only_looks()
        && location.is_remote()
        && let Some(error) = silence_of(&options, &location)?
    {
        note_silent_cold(global, &location, &error);
        return Ok(hot);
    }
    let cold = store_at(&options, &location, Meant::Named, purpose)
        .map_err(|error| no_cold_store(&location, error))?;
    let both = TieredStore::open(hot, cold, report_miss())?;
    if purpose.writes() {
        both.refuse_swapped()?;
    }
    Ok(Arc::new(both))
}

/// Why the cold store does not answer, if it does not. It is asked once: whoever only looks has
/// another one.
fn silence_of(options: &Global, location: &Location) -> Result<Option<StoreError>> {
    let mut once = options.clone();
    once.remote.retry_for = Some("0s".to_owned());
    let store = match store_at(&once, location, Meant::Named, Use::Read) {
        Ok(store) => store,
        Err(error) => return error.downcast().map(Some),
    };
    for name in ObjectName::configs() {
        match store.get(&name, CONFIG_BYTES_MAX) {
            Ok(_) => return Ok(None),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// What the hot store holds is shown, and nobody knows whether that is all.
fn note_silent_cold(global: &Global, location: &Location, error: &StoreError) {
    exit::something_is_missing();
    IS_ONE_OF_TWO_REPORTED.store(true, Ordering::Relaxed);
    let text = format!(
        "the cold store {location} cannot be read ({error}): this is what the hot one holds, which \
         may lack something or have it still"
    );
    let text = output::escape(text.as_bytes());
    if global.json {
        output::object(&serde_json::json!({"type": "note", "message": text}));
    }
    report!("bale: {text}");
}

/// A hot store that is not there, beside a cold one that is, was lost, and can be made again.
pub fn with_repair_advice(global: &Global, hot: &Location, error: anyhow::Error) -> anyhow::Error {
    let Some(cold) = cold_location(global).ok().flatten() else {
        return error;
    };
    let is_there = || {
        let global = of_cold(global, &cold).ok()?;
        of_existing(&global, &cold, Meant::Named).ok()
    };
    if !is_missing(&error) || is_there().is_none() {
        return error;
    }
    let text = format!(
        "there is no repository at {hot} (the cold store {cold} is there: if the hot one was lost, \
         bale repair hot -r {hot} --cold {cold} makes it again)"
    );
    anyhow::Error::new(Error::NoRepository(hot.to_string())).context(text)
}

/// Nobody makes a cold store again: file contents are in it alone.
fn no_cold_store(location: &Location, error: anyhow::Error) -> anyhow::Error {
    if !is_missing(&error) {
        return error;
    }
    let text = format!(
        "there is no repository at {location}, which is named as the cold store: is it mounted, \
         and the right place? File contents are in the cold store alone"
    );
    anyhow::Error::new(Error::NoRepository(location.to_string())).context(text)
}

/// Two copies that are one would be believed in as two.
fn refuse_same(global: &Global, cold: &Location) -> Result<(), Usage> {
    let Some(hot) = named(global)? else {
        return Ok(());
    };
    match is_same_place(&hot, cold) {
        true => Err(Usage(format!(
            "{cold} is named as the repository and as its cold store: they are two places, or one \
             of them is none"
        ))),
        false => Ok(()),
    }
}

/// Room for a repository with a cold store, if one is named.
pub fn find_cold_room(global: &Global, others: OtherThings) -> Result<Option<Room>> {
    let location = cold_location(global)?;
    let find = |location| Room::find(&of_cold(global, &location)?, &location, others);
    location.map(find).transpose()
}

/// The options as they are of the cold store.
fn of_cold(global: &Global, cold: &Location) -> Result<Global> {
    let hot = named(global)?.and_then(|hot| hot.server());
    let is_of_another = hot.is_some() && hot != cold.server();
    let mut options = remote::of_cold(global, is_of_another)?;
    options.repo = global.cold.clone();
    options.remote.is_cold = true;
    Ok(options)
}

/// The store of a repository to be made.
pub fn new_store(global: &Global, room: Room, cold: Option<Room>) -> Result<Arc<dyn Store>> {
    let hot = room.store(global)?;
    let (Some(cold), Some(location)) = (cold, cold_location(global)?) else {
        return Ok(hot);
    };
    let cold = cold.store(&of_cold(global, &location)?)?;
    Ok(Arc::new(TieredStore::new(hot, cold, report_miss())))
}

fn report_miss() -> OnMiss {
    Box::new(|error| {
        let error = output::escape(error.to_string().as_bytes());
        report!(
            "bale: {error}: read from the cold store, which has it (bale repair hot mends the hot \
             one)"
        );
    })
}

/// Said once of a repository of which one store is named.
pub fn note_one_of_two(global: &Global, repository: &Repository) {
    if !repository.is_one_of_two()
        || IS_ONE_OF_TWO_REPORTED.swap(true, Ordering::Relaxed)
        || global.quiet
    {
        return;
    }
    let text = "this repository has a hot and a cold store, and one of them is named: nothing is \
        written, and data is read only where this is the cold one (--cold names it beside the hot \
        one)";
    if global.json {
        output::object(&serde_json::json!({"type": "note", "message": text}));
    }
    report!("bale: {text}");
}

/// The repository as the cold store alone has it.
pub fn open_cold(global: &Global, location: &Location) -> Result<Repository> {
    let store = of_existing(&of_cold(global, location)?, location, Meant::Named)?;
    let secret = secrets::given_or_prompted(global)?;
    let repository = Repository::open(store, &secret, super::environment(global)?)?;
    Ok(repository)
}

/// Two stores as they are named, and their repository.
pub struct HotAndCold {
    /// As the hot store alone opens it, or else the cold one.
    pub repository: Repository,
    pub hot: Arc<dyn Store>,
    /// Both configs may be lost.
    pub cold: Arc<dyn Store>,
}

/// Finds both stores, neither by what the other holds.
pub fn hot_and_cold(global: &Global, location: &Location, dry_run: bool) -> Result<HotAndCold> {
    let Some(hot) = named(global)? else {
        return Err(Usage("name the hot store with --repo".to_owned()).into());
    };
    let hot = of_existing(global, &hot, Meant::Named)
        .map_err(|error| with_repair_advice(global, &hot, error))?;
    let options = of_cold(global, location)?;
    let purpose = Use::unless_dry_run(dry_run);
    let found = store_at(&options, location, Meant::Named, purpose);
    let cold: Arc<dyn Store> = match (location, found) {
        (Location::Directory(path), Err(error)) if is_missing(&error) && path.is_dir() => {
            require_only_ours(path, OtherThings::Refused)?;
            match dry_run || !holds_data_at(path)? {
                true => Arc::new(LocalStore::open(path)?),
                false => Arc::new(LocalStore::create(path)?),
            }
        }
        (_, found) => found?,
    };
    let secret = secrets::given_or_prompted(global)?;
    let open = |store: &Arc<dyn Store>| -> Result<Repository> {
        let environment = super::environment(global)?;
        Ok(Repository::open(store.clone(), &secret, environment)?)
    };
    let repository = open(&hot).or_else(|error| open(&cold).map_err(|_| error))?;
    Ok(HotAndCold {
        repository,
        hot,
        cold,
    })
}

/// The store that is named as the repository, made if need be. One that holds another repository,
/// or other things, is refused.
pub fn hot_to_be_made(
    global: &Global,
    repository: &Repository,
    dry_run: bool,
) -> Result<Arc<dyn Store>> {
    let Some(location) = named(global)? else {
        return Err(Usage("name the hot store with --repo".to_owned()).into());
    };
    let hot = match of_existing(global, &location, Meant::Named) {
        Ok(_) => store_at(
            global,
            &location,
            Meant::Named,
            Use::unless_dry_run(dry_run),
        )?,
        Err(error) if !is_missing(&error) => return Err(error),
        Err(_) if dry_run => Arc::new(MemoryStore::new()),
        Err(_) => Room::for_copy(&location)?.store(global)?,
    };
    let cold = repository.store().clone();
    TieredStore::open(hot.clone(), cold, report_miss())?.refuse_swapped()?;
    Ok(hot)
}

fn is_missing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| matches!(error, Error::NoRepository(_)))
}
