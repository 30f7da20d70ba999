//! Repair of `config` and its copy: the one that is not sound is written again from the other,
//! which the root key has just proven. A command that writes does so of itself with a copy that is
//! missing or has other bytes. One bad answer of a store is no reason to write: both are read
//! several times, and must be the same each time.

use bale_format::Access;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{ConfigFault, ConfigTrouble, Repository};
use bale_repository::store::ObjectName;

/// Writes again the one that is not sound, and says which it was; none: both are.
pub fn repair_config(repository: &Repository, dry_run: bool) -> Result<Option<ConfigTrouble>> {
    repository.check_access(Access::Write)?;
    let Some(mut judged) = repository.judge_configs_surely()? else {
        return Err(Error::Other(format!(
            "one of config and config.copy was read damaged, and otherwise when it was read again: \
             {}, or the way to it, garbles answers. Nothing is written: try again, and if that \
             stays so, mend the store first",
            repository.store().place()
        )));
    };
    let trouble = judged.trouble.take();
    if let (Some(trouble), false) = (&trouble, dry_run) {
        repository.rewrite_config(&judged, trouble)?;
    }
    Ok(trouble)
}

/// Adds the copy if it is missing or has other bytes. What cannot be read as a file is left for
/// somebody to look at, and so is `config` itself; what is read otherwise the next time is left,
/// too.
pub fn renew_config_copy(repository: &Repository) -> Result<Option<ConfigTrouble>> {
    let is_ours = |trouble: &ConfigTrouble| {
        trouble.name == ObjectName::config_copy()
            && !matches!(trouble.fault, ConfigFault::Unreadable(_))
    };
    match repository.config_trouble() {
        // What an opening saw may be mended by now: it is looked at again.
        Some(trouble) if is_ours(trouble) => {}
        _ => return Ok(None),
    }
    repository.check_access(Access::Write)?;
    let Some(mut judged) = repository.judge_configs_surely()? else {
        return Ok(None);
    };
    let trouble = judged.trouble.take().filter(is_ours);
    if let Some(trouble) = &trouble {
        repository.rewrite_config(&judged, trouble)?;
    }
    Ok(trouble)
}
