//! What is at a place: a repository, what is left of one, other things, or room for a new one.

use super::resolved;
use crate::output;
use anyhow::{Context, Result};
use bale_pipeline::filter::TAG_NAME;
use bale_remote::Location;
use bale_repository::error::Error;
use bale_repository::store::{Area, LocalStore, Store};
use std::io::ErrorKind;
use std::path::Path;

/// Why a place is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    Named,
    /// It is the user's own.
    Own,
    /// It would be made, but nobody sees its recovery key.
    OwnUnseen,
}

/// What other things in a directory mean for a repository that is to be made there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OtherThings {
    /// They are no hindrance: `--force` was given.
    Forced,
    /// They are, unless `--force` is given.
    NeedForce,
    /// They are, for a command that has no `--force`.
    Refused,
}

/// A new repository has a directory of its own, unless it is forced in with other things. What an
/// interrupted `init` left is no other thing.
pub fn require_room(path: &Path, others: OtherThings) -> Result<()> {
    if is_made(path) {
        return Err(Error::RepositoryExists(path.display().to_string()).into());
    }
    refuse_inside(path)?;
    if holds_data_at(path)? {
        return Err(no_repository(
            &path.to_path_buf().into(),
            true,
            Meant::Named,
        ));
    }
    require_only_ours(path, others)
}

/// Nothing stands in this directory that is of no repository.
pub fn require_only_ours(path: &Path, others: OtherThings) -> Result<()> {
    let advice = match others {
        OtherThings::Forced => return Ok(()),
        OtherThings::NeedForce => "--force makes it there all the same",
        OtherThings::Refused => "name one that is empty, or is not there yet",
    };
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("list {}", path.display()))?,
    };
    for entry in entries {
        let name = entry
            .with_context(|| format!("list {}", path.display()))?
            .file_name();
        let is_ours = |area: &Area| name.to_str() == Some(area.text());
        let is_beside = |other: &str| name == other;
        let mut areas = Area::ALL.iter().chain(&Area::OF_STRETCHES);
        let is_ours =
            areas.any(is_ours) || ["tmp", TAG_NAME, "lost+found"].into_iter().any(is_beside);
        if !is_ours {
            let name = output::path(Path::new(&name));
            anyhow::bail!(
                "{} holds other things ({name}): a repository has a directory of its own \
                 ({advice})",
                output::path(path)
            );
        }
    }
    Ok(())
}

/// Refuses where neither `config` nor its copy is. What they hold is looked at by whoever opens
/// them.
pub fn require_config(path: &Path, meant: Meant) -> Result<()> {
    for area in Area::CONFIGS {
        match std::fs::symlink_metadata(path.join(area.text())) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("open repository {}", path.display()));
            }
        }
    }
    let holds_data = holds_data_at(path)?;
    Err(no_repository(&path.to_path_buf().into(), holds_data, meant))
}

/// Is there a `config` or a copy of it, whatever is in it?
pub fn is_made(path: &Path) -> bool {
    (Area::CONFIGS.iter()).any(|area| path.join(area.text()).symlink_metadata().is_ok())
}

/// A directory inside of a repository is that repository's: what is in it is listed, copied and
/// removed with the other's objects.
fn refuse_inside(path: &Path) -> Result<()> {
    let place = resolved(path);
    let is_repository = |above: &&Path| {
        let holds = |area: Area| above.join(area.text()).is_dir();
        is_made(above) && holds(Area::Packs) && holds(Area::Keys)
    };
    match place.ancestors().skip(1).find(is_repository) {
        None => Ok(()),
        Some(above) => anyhow::bail!(
            "{} is inside of {}, which is a repository of its own: make this one somewhere else",
            output::path(path),
            output::path(above)
        ),
    }
}

/// What was looked for, where, and what to do.
pub fn no_repository(location: &Location, holds_data: bool, meant: Meant) -> anyhow::Error {
    let error = Error::NoRepository(location.to_string());
    let what_to_do = match meant {
        _ if holds_data => {
            "its packs are there: bring one of the two back from a copy of the repository (they \
             have the same bytes), and make no new repository there"
                .to_owned()
        }
        Meant::Named => format!("bale init -r {location} makes one"),
        Meant::Own => {
            "no other was named with --repo or BALE_REPOSITORY; bale init makes one of your own"
                .to_owned()
        }
        Meant::OwnUnseen => {
            "no other was named with --repo or BALE_REPOSITORY, and one of your own is made only \
             on a terminal, with --init or by bale init"
                .to_owned()
        }
    };
    let text = format!("{error} ({what_to_do})");
    anyhow::Error::new(error).context(text)
}

/// Are there packs or snapshots in this directory, whatever else is missing?
pub fn holds_data_at(path: &Path) -> Result<bool> {
    let Ok(store) = LocalStore::open(path) else {
        return Ok(false);
    };
    let is_missing = |area: &Area| {
        let stat = path.join(area.text()).symlink_metadata();
        stat.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    holds_one_of(&store, DATA.into_iter().filter(|area| !is_missing(area)))
}

/// The same of any store.
pub fn holds_data(store: &dyn Store) -> Result<bool> {
    holds_one_of(store, DATA)
}

/// Without these there is nothing to lose.
const DATA: [Area; 2] = [Area::Packs, Area::Snapshots];

fn holds_one_of(store: &dyn Store, areas: impl IntoIterator<Item = Area>) -> Result<bool> {
    for area in areas {
        let mut is_there = false;
        match store.list(area, &mut |_| is_there = true) {
            _ if is_there => return Ok(true),
            // Servers say of an area without a directory that it is not there.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // It may be full or empty.
            Err(error) => {
                let what = "there is no config and no copy of it, and what else is there cannot \
                    be seen";
                return Err(error).context(what);
            }
            Ok(()) => {}
        }
    }
    Ok(false)
}
