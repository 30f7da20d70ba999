//! Where the repository is, and opening it: the one given, or the user's own, which is made when a backup needs it.

use crate::args::Global;
use crate::exit::Usage;
use crate::{output, secrets};
use anyhow::{Context, Result};
use bale_engine::clock::SystemClock;
use bale_engine::random::OsRandom;
use bale_engine::repository::{Environment, NewSlot, Repository, Secret};
use bale_engine::restore::snapshot::SpillScratch;
use bale_engine::store::LocalStore;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a generated key file, before it is written as hex digits.
const KEY_FILE_BYTES: usize = 32;

/// The directories of the user's own repository.
pub struct Own {
    /// Repository.
    pub repository: PathBuf,
    /// Key file that opens it.
    pub key_file: PathBuf,
}

/// Opens the repository that the options name, or the user's own, and changes nothing.
pub fn open(global: &Global) -> Result<Arc<Repository>> {
    open_for(global, Use::Read)
}

/// The same for a purpose: before writing, what dead processes left half written is removed.
pub fn open_for(global: &Global, purpose: Use) -> Result<Arc<Repository>> {
    Ok(open_with_secret(global, purpose)?.0)
}

/// What a repository is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing in it changes.
    Read,
    /// Objects are written or deleted.
    Write,
}

impl Use {
    /// A dry run only reads.
    pub fn unless_dry_run(dry_run: bool) -> Use {
        if dry_run { Use::Read } else { Use::Write }
    }
}

/// Opens the repository and hands out the secret that opened it.
pub fn open_with_secret(global: &Global, purpose: Use) -> Result<(Arc<Repository>, Secret)> {
    let (path, secret) = match &global.repo {
        Some(path) => {
            require_config(path)?;
            (path.clone(), secrets::told_or_asked(global)?)
        }
        None => {
            let own = own()?;
            require_config(&own.repository)?;
            let secret = own_secret(global, &own)?;
            (own.repository, secret)
        }
    };
    Ok((open_at(global, &path, &secret, purpose)?, secret))
}

/// Makes the user's own repository, which must not exist.
pub fn make_own_explicitly(global: &Global) -> Result<Arc<Repository>> {
    let own = own()?;
    if own.repository.join("config").exists() {
        let place = own.repository.display().to_string();
        return Err(bale_engine::error::Error::RepositoryExists(place).into());
    }
    make_own(global, &own)
}

/// The same as `open`, but makes the user's own repository if there is none and no other is named.
pub fn open_or_make_own(global: &Global, purpose: Use) -> Result<Arc<Repository>> {
    if global.repo.is_none() {
        let own = own()?;
        let is_made = || own.repository.join("config").exists();
        if !is_made() {
            match make_own(global, &own) {
                // Another first backup was quicker.
                Err(_) if is_made() => {}
                made => return made,
            }
        }
    }
    open_for(global, purpose)
}

fn open_at(global: &Global, path: &Path, secret: &Secret, purpose: Use) -> Result<Arc<Repository>> {
    let store = match purpose {
        Use::Read => LocalStore::open(path)?,
        Use::Write => LocalStore::open_to_write(path, &SystemClock)?,
    };
    let repository = Repository::open(Arc::new(store), secret, environment(global)?)?;
    Ok(Arc::new(repository))
}

/// Makes a repository with a secret and a recovery key, and prints the recovery key, once.
pub fn make(global: &Global, path: &Path, slots: Vec<NewSlot>) -> Result<Arc<Repository>> {
    let store = LocalStore::create(path)?;
    let made = Repository::init(Arc::new(store), slots, environment(global)?)?;
    let place = output::path(path);
    if global.json {
        output::object(&serde_json::json!({
            "type": "initialized", "repository": made.repository.id().to_string(), "path": place,
            "recovery_key": made.recovery_key,
        }));
    } else {
        tell!(
            "Made repository {} at {place}",
            &made.repository.id().to_string()[..8]
        );
        tell!();
        tell!(
            "  Recovery key, shown only now. Whoever has it can read the backups; keep it apart from this machine:"
        );
        tell!("  {}", made.recovery_key);
        tell!();
    }
    Ok(Arc::new(made.repository))
}

/// The store alone: for what needs no key.
pub fn open_store(global: &Global) -> Result<LocalStore> {
    let path = match &global.repo {
        Some(path) => path.clone(),
        None => own()?.repository,
    };
    require_config(&path)?;
    Ok(LocalStore::open(&path)?)
}

/// What a command lives on: the repository, the cache, and what opens the repository. What does not exist is named too.
pub fn in_use(global: &Global) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    paths.extend(global.repo.clone());
    paths.extend(global.key_file.clone());
    paths.extend(global.password_file.clone());
    paths.extend(cache_dir(global).ok());
    if let Ok(own) = own() {
        paths.extend([own.repository, own.key_file]);
    }
    paths
}

/// Where plans are sorted that do not fit in memory.
pub fn scratch(repository: &Repository) -> Result<SpillScratch> {
    Ok(SpillScratch(repository.spill_dir()?))
}

/// What the engine needs from outside.
pub fn environment(global: &Global) -> Result<Environment> {
    Ok(Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(OsRandom),
        cache_dir: cache_dir(global)?,
    })
}

fn own_secret(global: &Global, own: &Own) -> Result<Secret> {
    if let Some(secret) = secrets::told(global)? {
        return Ok(secret);
    }
    let bytes = std::fs::read(&own.key_file).with_context(|| {
        format!(
            "read the key of your own repository {} (or give --key-file with the recovery key)",
            own.key_file.display()
        )
    })?;
    Ok(Secret::key_file(bytes))
}

fn make_own(global: &Global, own: &Own) -> Result<Arc<Repository>> {
    let key = own_key(&own.key_file)?;
    let slot = NewSlot {
        secret: Secret::key_file(key),
        label: "generated key".to_owned(),
    };
    let repository = make(global, &own.repository, vec![slot])?;
    if !global.json {
        tell!(
            "  No repository was named, so this one was made for you. Its key: {}",
            output::path(&own.key_file)
        );
        tell!();
    }
    Ok(repository)
}

/// The key that a first backup which was ended too soon, or runs beside this one, has left; or a new one.
fn own_key(path: &Path) -> Result<Vec<u8>> {
    let read = || std::fs::read(path).with_context(|| format!("read {}", path.display()));
    if path.exists() {
        return read();
    }
    match write_key_file(path) {
        // Another first backup was quicker.
        Err(_) if path.exists() => read(),
        written => written,
    }
}

/// Writes a new random key file that only its owner may read; refuses to replace one. It is there as a whole or not at all.
pub fn write_key_file(path: &Path) -> Result<Vec<u8>> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    let mut bytes = [0; KEY_FILE_BYTES];
    bale_engine::random::Random::fill(&OsRandom, &mut bytes).context("draw random bytes")?;
    let text = format!("{}\n", bale_format::id::hex(&bytes)).into_bytes();
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)
        .with_context(|| format!("create key file {}", unfinished.display()))?;
    let written = file
        .write_all(&text)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("write {}", unfinished.display()))
        .and_then(|()| {
            // Unlike a rename, this fails where there is something.
            std::fs::hard_link(&unfinished, path)
                .with_context(|| format!("create key file {}", path.display()))
        });
    let removed = std::fs::remove_file(&unfinished);
    written?;
    removed.with_context(|| format!("remove {}", unfinished.display()))?;
    Ok(text)
}

fn require_config(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path.join("config")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(bale_engine::error::Error::NoRepository(path.display().to_string()).into())
        }
        Err(error) => Err(error).with_context(|| format!("open repository {}", path.display())),
    }
}

fn own() -> Result<Own> {
    let data = user_dir("XDG_DATA_HOME", ".local/share")?.join("bale");
    Ok(Own {
        repository: data.join("repository"),
        key_file: data.join("repository.key"),
    })
}

fn cache_dir(global: &Global) -> Result<PathBuf> {
    match &global.cache_dir {
        Some(dir) => Ok(dir.clone()),
        None => Ok(user_dir("XDG_CACHE_HOME", ".cache")?.join("bale")),
    }
}

fn user_dir(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
    {
        return Ok(dir);
    }
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    let home = home.ok_or_else(|| {
        Usage("no home directory: set HOME, or name a repository with --repo".to_owned())
    })?;
    Ok(home.join(below_home))
}
