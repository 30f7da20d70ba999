//! Where the repository is, and opening it: the one given, or the user's own, which is made when a
//! backup needs it.

mod cache;
mod cold;
mod config;
mod existing;
mod from;
mod key_file;
mod memory;
mod named;
mod remote;
mod store;

pub use cache::{cache_dir, require_named as require_named_cache, writable_cache_dir};
pub use cold::{cold_location, find_cold_room, hot_and_cold, hot_to_be_made, new_store, open_cold};
pub use existing::{OtherThings, is_made};
pub use from::{mirror_store, open_from};
pub use key_file::{
    require_beside as require_new_key_file, resolved, write_beside as write_key_file,
};
pub use memory::{beside_packs as memory_beside_packs, plan as memory_plan};
pub use named::{is_same_place, named, user_dir};
pub use store::Room;

use crate::args::Global;
use crate::{output, secrets};
use anyhow::{Context, Result};
use bale_pipeline::clock::SystemClock;
use bale_pipeline::random::OsRandom;
use bale_remote::Location;
use bale_repository::error::Error;
use bale_repository::repository::{
    Environment, FirstLooks, FoundRepository, InitOptions, NewSlot, Repository, Secret,
    opens_with_key_file,
};
use bale_repository::store::{Area, LocalStore, Store};
use bale_restore::ScratchSpace;
use existing::{Meant, holds_data_at, no_repository};
pub use named::own;
use named::{Own, has_only_key, named_directory};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the repository that the options name, or the user's own, to read snapshots and what is in
/// them, contents too, and changes nothing.
pub fn open(global: &Global) -> Result<Arc<Repository>> {
    open_for(global, Use::Browse)
}

/// The same for a purpose: before writing, what dead processes left half written is removed.
pub fn open_for(global: &Global, purpose: Use) -> Result<Arc<Repository>> {
    Ok(open_with_secret(global, purpose)?.0)
}

/// What a repository is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing in it changes; the store itself is read.
    Read,
    /// Snapshots are listed. A hot store is enough for it.
    List,
    /// And their catalogs are read, which a hot store has, too: what is cached may be used.
    Look,
    /// Snapshots are listed, and what is in them is read: what is cached may be used.
    Browse,
    /// A snapshot is made, and what is cached may be used.
    BackUp,
    /// Objects are written or deleted.
    Write,
    /// Nothing changes but perhaps `config` and its copy, of which the command itself speaks.
    Configs,
}

impl Use {
    /// A dry run only reads.
    pub fn unless_dry_run(dry_run: bool) -> Use {
        if dry_run { Use::Read } else { Use::Write }
    }

    pub fn writes(self) -> bool {
        matches!(self, Use::Write | Use::BackUp)
    }

    /// Nothing is read that the hot one of two stores does not have.
    fn only_looks(self) -> bool {
        matches!(self, Use::List | Use::Look)
    }

    /// What deletes, checks or repairs believes nothing but the store, as it is when it looks.
    fn first_looks(self) -> FirstLooks {
        match self {
            Use::Read | Use::Write | Use::Configs => FirstLooks::Nothing,
            Use::List => FirstLooks::Snapshots,
            Use::Look | Use::Browse => FirstLooks::Chunks,
            Use::BackUp => FirstLooks::Packs,
        }
    }
}

/// Opens the repository and hands out the secret that opened it.
pub fn open_with_secret(global: &Global, purpose: Use) -> Result<(Arc<Repository>, Secret)> {
    cold_location(global)?;
    let Some(location) = named(global)? else {
        return open_own(global, &own()?, purpose);
    };
    let found = store::find(global, &location, Meant::Named, purpose)?;
    let secret = secrets::given_or_prompted(global)?;
    Ok((open_found(global, found, &secret, purpose)?, secret))
}

fn open_own(global: &Global, own: &Own, purpose: Use) -> Result<(Arc<Repository>, Secret)> {
    let found = store::find(global, &own.location(), Meant::Own, purpose)?;
    let (secret, is_given) = own_secret(global, own)?;
    let opened = open_found(global, found, &secret, purpose);
    let opened = match is_given && own.key_file.exists() {
        false => opened,
        true => opened.with_context(|| {
            format!(
                "open your own repository with the password or key that was given (without one, it \
                 opens with {})",
                output::path(&own.key_file)
            )
        }),
    };
    Ok((opened?, secret))
}

/// Makes the user's own repository, which must not exist.
pub fn make_own_explicitly(global: &Global) -> Result<Arc<Repository>> {
    let own = own()?;
    if own.is_made() {
        let place = own.repository.display().to_string();
        return Err(Error::RepositoryExists(place).into());
    }
    make_own(global, &own)
}

/// Opens for writing; makes the user's own repository if there is none and no other is named, where
/// that is asked for, or where somebody sees the recovery key: a job that lost the name of its
/// repository must not fill this disk instead.
pub fn open_or_make_own(global: &Global, is_asked_for: bool) -> Result<Arc<Repository>> {
    cold_location(global)?;
    if named(global)?.is_none() {
        let own = own()?;
        if !own.is_made() {
            let is_seen = std::io::stderr().is_terminal() && !global.json;
            if !is_seen && has_only_key(&own) {
                return Err(no_repository_of_key(&own));
            }
            if !is_asked_for && !is_seen {
                return Err(no_repository(&own.location(), false, Meant::OwnUnseen));
            }
            match make_own(global, &own) {
                // Another first backup was quicker.
                Err(_) if own.is_made() => {}
                made => return made,
            }
        }
    }
    open_for(global, Use::BackUp)
}

fn open_found(
    global: &Global,
    found: FoundRepository,
    secret: &Secret,
    purpose: Use,
) -> Result<Arc<Repository>> {
    let plans = memory::Plans::read(global)?;
    let mut repository = found.open(secret)?;
    plans.apply(&mut repository, purpose)?;
    if repository.is_one_of_two() {
        cold::note_one_of_two(global, &repository);
    } else {
        config::add_missing_config_copy(global, &repository, purpose);
    }
    cache::use_what_works(global, &mut repository)?;
    Ok(Arc::new(repository))
}

/// Makes a repository with a secret and a recovery key, and prints the recovery key, once.
pub fn make(
    global: &Global,
    location: &Location,
    store: Arc<dyn Store>,
    slots: Vec<NewSlot>,
    init: InitOptions,
) -> Result<Arc<Repository>> {
    require_named_cache(global)?;
    let plans = memory::Plans::read(global)?;
    let mut made = Repository::init_with(store, slots, environment(global)?, init)?;
    plans.apply(&mut made.repository, Use::Write)?;
    let place = output::escape(location.to_string().as_bytes());
    if global.json {
        output::object(&serde_json::json!({
            "type": "initialized", "repository": made.repository.id().to_string(), "path": place,
            "recovery_key": made.recovery_key,
        }));
    } else {
        report!(
            "Made repository {} at {place}",
            &made.repository.id().to_string()[..8]
        );
        report!();
        report!(
            "  Recovery key, shown only now. Whoever has it can read the backups; keep it apart \
             from this machine:"
        );
        report!("  {}", made.recovery_key);
        report!();
    }
    config::report_new_repository(global, &made);
    cache::use_what_works(global, &mut made.repository)?;
    Ok(Arc::new(made.repository))
}

/// The store alone: for what needs no key.
pub fn open_store(global: &Global) -> Result<Arc<dyn Store>> {
    match named(global)? {
        Some(location) => {
            let store = store::of_existing(global, &location, Meant::Named)?;
            cold::with_cold(global, store, Use::Read)
        }
        None => store::of_existing(global, &own()?.location(), Meant::Own),
    }
}

/// The directory of the repository that the options name, or of the user's own; none if it is not
/// on this machine.
pub fn directory(global: &Global) -> Result<Option<PathBuf>> {
    Ok(match named(global)? {
        Some(location) => location.into_directory(),
        None => Some(own()?.repository),
    })
}

/// What a command lives on: the repository, the cache, and what opens the repository. What does not
/// exist is named too.
pub fn in_use(global: &Global) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    paths.extend(named_directory(global));
    paths.extend(cold::cold_directory(global));
    paths.extend(secrets::files(global));
    paths.extend(cache::cache_dirs(global));
    if let Ok(own) = own() {
        paths.extend([own.repository, own.key_file]);
    }
    let parts: Vec<PathBuf> = paths.iter().flat_map(|path| parts_of(path)).collect();
    paths.extend(parts);
    paths
}

/// Directories with objects of the repository that is named, and of the user's own.
pub fn repositories(global: &Global) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = named_directory(global).into_iter().collect();
    paths.extend(cold::cold_directory(global));
    paths.extend(own().ok().map(|own| own.repository));
    let parts: Vec<PathBuf> = paths.iter().flat_map(|path| parts_of(path)).collect();
    paths.extend(parts);
    paths
}

/// What a backup with these options works with and should not hold: repository, cache, and the
/// files that open it. The key of another repository is worth a backup.
pub fn works_with(global: &Global) -> Result<Vec<PathBuf>> {
    let mut paths = secrets::files(global);
    paths.extend(cache::cache_dirs(global));
    paths.extend(cold::cold_directory(global));
    match named(global)? {
        Some(location) => paths.extend(location.into_directory()),
        None => {
            let own = own()?;
            paths.extend([own.repository, own.key_file]);
        }
    }
    let parts: Vec<PathBuf> = paths.iter().flat_map(|path| parts_of(path)).collect();
    paths.extend(parts);
    Ok(paths)
}

/// What of a repository may be met elsewhere: its areas, which may be mounted there, and where
/// directories of packs lead that are symbolic links.
fn parts_of(repository: &Path) -> Vec<PathBuf> {
    let areas = Area::ALL.iter().chain(&Area::OF_STRETCHES);
    let areas = areas.map(|area| area.text());
    let areas = areas.chain(["tmp"]).map(|name| repository.join(name));
    let packs = std::fs::read_dir(repository.join(Area::Packs.text()));
    let packs = packs.into_iter().flatten().flatten();
    let packs = packs.map(|entry| entry.path());
    areas
        .chain(packs.filter(|path| path.is_symlink()))
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .collect()
}

/// Where plans are sorted that do not fit in memory.
pub fn scratch(repository: &Repository) -> Result<ScratchSpace> {
    Ok(ScratchSpace::new(repository.spill_dir()?).within(repository.memory()))
}

/// What the engine needs from outside.
pub fn environment(global: &Global) -> Result<Environment> {
    Ok(Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(OsRandom),
        cache_dir: cache::cache_dir(global)?,
    })
}

/// The secret, and whether it was given rather than found beside the repository.
fn own_secret(global: &Global, own: &Own) -> Result<(Secret, bool)> {
    if let Some(secret) = secrets::given(global)? {
        return Ok((secret, true));
    }
    if !own.key_file.exists() && secrets::can_prompt() {
        report_lost_key(own);
        return Ok((secrets::given_or_prompted(global)?, true));
    }
    let bytes = std::fs::read(&own.key_file).with_context(|| {
        format!(
            "read the key of your own repository {} (or give its password, or --key-file with the \
             recovery key)",
            own.key_file.display()
        )
    })?;
    Ok((Secret::key_file(bytes), false))
}

/// At a terminal somebody is asked for a password that he never chose, perhaps.
fn report_lost_key(own: &Own) {
    let store = LocalStore::open(&own.repository);
    if store.is_ok_and(|store| opens_with_key_file(&store)) {
        report!(
            "bale: your own repository opens with a key file, and {} is not there: bring it back \
             from a copy, give a password of the repository now, or name a file with the recovery \
             key (--key-file)",
            output::path(&own.key_file)
        );
    }
}

/// With the secret that is given, which will open it the next time, or else with a key file of its
/// own.
fn make_own(global: &Global, own: &Own) -> Result<Arc<Repository>> {
    if !own.is_made() && holds_data_at(&own.repository)? {
        return Err(no_repository(&own.location(), true, Meant::Own));
    }
    require_named_cache(global)?;
    let given = secrets::given(global)?;
    let is_given = given.is_some();
    let slot = match given {
        Some(secret) => NewSlot {
            secret,
            label: String::new(),
        },
        None => {
            // First of all: a key alone means that its repository was there once.
            LocalStore::create(&own.repository)?;
            NewSlot {
                secret: Secret::key_file(own_key(&own.key_file)?),
                label: "generated key".to_owned(),
            }
        }
    };
    let store = Arc::new(LocalStore::create(&own.repository)?);
    let repository = make(
        global,
        &own.location(),
        store,
        vec![slot],
        InitOptions::default(),
    )?;
    if !global.json {
        let key = match is_given {
            true => "It opens with the password or key that was given.".to_owned(),
            false => format!("Its key: {}", output::path(&own.key_file)),
        };
        report!("  No repository was named, so this one was made for you. {key}");
        report!();
    }
    Ok(repository)
}

/// The key that a first backup which was ended too soon, or runs beside this one, has left; or a
/// new one.
fn own_key(path: &Path) -> Result<Vec<u8>> {
    let read = || std::fs::read(path).with_context(|| format!("read {}", path.display()));
    if path.exists() {
        return read();
    }
    match key_file::write(path) {
        // Another first backup was quicker.
        Err(_) if path.exists() => read(),
        written => written,
    }
}

/// It was there, for its key is: who makes another one in its place backs up to a disk that was not
/// meant.
fn no_repository_of_key(own: &Own) -> anyhow::Error {
    let error = Error::NoRepository(own.repository.display().to_string());
    let text = format!(
        "{error}, and its key is there ({}): is its file system mounted? A job makes no other in \
         its place; if it is gone, bale init makes a new one",
        output::path(&own.key_file)
    );
    anyhow::Error::new(error).context(text)
}

/// Part of a name that nobody can guess.
fn unguessable() -> Result<String> {
    let mut bytes = [0; 16];
    bale_pipeline::random::Random::fill(&OsRandom, &mut bytes).context("draw random bytes")?;
    Ok(bale_format::id::hex(&bytes))
}
