//! Where the cache is. What it holds can be rebuilt, so that no place for it is no reason to refuse
//! work.

use super::named::user_dir;
use crate::args::Global;
use crate::exit::Usage;
use crate::temporary_cache;
use crate::variables;
use crate::{output, sizes};
use anyhow::Result;
use bale_repository::error::Error;
use bale_repository::metadata_cache::METADATA_CACHE_BYTES;
use bale_repository::repository::{CacheOptions, Repository, try_cache_dir};
use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Of root without a home directory: a unit of the system.
const OF_ROOT: &str = "/var/cache/bale";

/// The directory: named, else of the user, else of root, else one of this process alone.
pub fn cache_dir(global: &Global) -> Result<PathBuf> {
    if let Some(dir) = named_cache_dir(global)? {
        return Ok(dir);
    }
    if let Some(dir) = temporary_cache::DIR.get() {
        return Ok(dir.clone());
    }
    if let Some(dir) = user_dir("XDG_CACHE_HOME", ".cache") {
        return Ok(dir.join("bale"));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(OF_ROOT.into());
    }
    temporary()
}

/// The directory that somebody asked for: if it makes no sense, he wants to know.
fn named_cache_dir(global: &Global) -> Result<Option<PathBuf>> {
    Ok(match &global.cache_dir {
        Some(dir) => Some(dir.clone()),
        None => variables::read("BALE_CACHE_DIR")?.map(PathBuf::from),
    })
}

/// Directories of caches that this process uses: what stands in for one that was named is a second.
pub fn cache_dirs(global: &Global) -> Vec<PathBuf> {
    let stand_in = temporary_cache::DIR.get().cloned();
    cache_dir(global).ok().into_iter().chain(stand_in).collect()
}

/// A cache that somebody named and that makes no sense ends the command, before anything is done.
pub fn require_named(global: &Global) -> Result<()> {
    let Some(dir) = named_cache_dir(global)? else {
        return Ok(());
    };
    match try_cache_dir(&of_no_repository(&dir)) {
        Err(refused) if !may_pass(&refused) => Err(refused.into()),
        _ => Ok(()),
    }
}

/// Where what needs no repository sorts: beside the directories of repositories, for what is named
/// may be everybody's, as `/tmp` is, and stays so.
fn of_no_repository(dir: &Path) -> PathBuf {
    dir.join("spill")
}

/// Is nothing wrong with the name, and the file system just does not take anything now?
fn may_pass(refused: &Error) -> bool {
    let Error::Local { source, .. } = refused else {
        return false;
    };
    matches!(
        source.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

/// Lets a repository use a temporary cache if it cannot use the one that nobody named, or the one
/// that was named on a file system that takes nothing now: that costs time and no work.
pub fn use_what_works(global: &Global, repository: &mut Repository) -> Result<()> {
    let Err(refused) = repository.try_cache() else {
        return Ok(());
    };
    if named_cache_dir(global)?.is_some() && !may_pass(&refused) {
        return Err(refused.into());
    }
    let Some(dir) = stand_in() else {
        // Who only reads needs none, and who needs one says why there is none.
        return Ok(());
    };
    repository.move_cache(dir);
    let costs =
        "it takes longer, and a repository that was set back to an older state is not noticed";
    report_refused(global, refused, costs);
    Ok(())
}

/// The cache of metadata, for repositories that are far away; none if nobody wants it.
pub fn of_metadata(global: &Global) -> Result<Option<CacheOptions>> {
    let (by, text) = match &global.remote.cache_size {
        Some(text) => ("--cache-size", Some(text.clone())),
        None => ("BALE_CACHE_SIZE", variables::read_text("BALE_CACHE_SIZE")?),
    };
    let bytes_max = match text {
        Some(text) => {
            sizes::parse_bytes(&text).map_err(|Usage(why)| Usage(format!("{by}: {why}")))?
        }
        None => METADATA_CACHE_BYTES,
    };
    let is_json = global.json;
    let report = move |text: &str| {
        if is_json {
            output::object(&serde_json::json!({"type": "note", "message": text}));
        }
        report!("bale: {}", output::escape(text.as_bytes()));
    };
    Ok((bytes_max > 0).then(|| CacheOptions {
        bytes_max,
        report: Box::new(report),
    }))
}

/// A cache directory that can be written, for what needs no repository.
pub fn writable_cache_dir(global: &Global) -> Result<PathBuf> {
    let dir = of_no_repository(&cache_dir(global)?);
    match try_cache_dir(&dir) {
        Ok(()) => Ok(dir),
        Err(refused) => {
            let is_final = named_cache_dir(global)?.is_some() && !may_pass(&refused);
            let stand_in = if is_final { None } else { stand_in() };
            let Some(dir) = stand_in else {
                return Err(refused.into());
            };
            report_refused(global, refused, "its files for sorting are written there");
            Ok(dir)
        }
    }
}

/// Once: what is the matter, and what it costs.
fn report_refused(global: &Global, refused: Error, costs: &str) {
    if temporary_cache::IS_REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let text = format!(
        "warning: {}. Continuing with a temporary cache: {costs}",
        output::chain(&refused.into())
    );
    if global.json {
        output::object(&serde_json::json!({"type": "note", "message": text}));
    }
    report!("bale: {text}");
}

/// Its name cannot be guessed: nobody makes it before us. Made when something is put into it.
fn temporary() -> Result<PathBuf> {
    if let Some(dir) = temporary_cache::DIR.get() {
        return Ok(dir.clone());
    }
    let dir = std::env::temp_dir().join(format!("bale-cache-{}", super::unguessable()?));
    if !dir.is_absolute() {
        return Err(Usage(
            "TMPDIR is no absolute path, and there is no home directory: name a cache \
            with --cache-dir"
                .to_owned(),
        )
        .into());
    }
    Ok(temporary_cache::DIR.get_or_init(|| dir).clone())
}

/// A temporary cache that works, if there is any place for one.
fn stand_in() -> Option<PathBuf> {
    let name = format!("bale-cache-{}", super::unguessable().ok()?);
    let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let mut dirs = places
        .into_iter()
        .filter(|place| place.is_dir() && place.is_absolute())
        .map(|place| place.join(&name));
    let works = |dir: &PathBuf| try_cache_dir(dir).is_ok();
    let dir = match temporary_cache::DIR.get() {
        Some(dir) => works(dir).then(|| dir.clone())?,
        None => dirs.find(works)?,
    };
    Some(temporary_cache::DIR.get_or_init(|| dir).clone())
}
