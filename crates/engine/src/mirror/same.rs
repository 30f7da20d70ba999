//! The target must be empty or hold this very repository; then it gets `config` and its copy.
//!
//! Nothing of another repository is touched. What is damaged of the target's is left for
//! `repair config`, which knows which of the two is believed.

use super::Mirroring;
use bale_format::UnverifiedConfig;
use bale_repository::error::{Error, Result};
use bale_repository::repository::CONFIG_BYTES_MAX;
use bale_repository::store::{Area, ObjectName};

/// One of the two at the target.
enum Found {
    Missing,
    AsOurs,
    /// Another repository's id, where one can be read.
    Other(Option<String>),
}

impl Mirroring<'_> {
    /// Refuses a target with anything else in it.
    pub(super) fn require_same(&self) -> Result<()> {
        let place = self.target.place();
        let found = [
            self.config_at(&ObjectName::config())?,
            self.config_at(&ObjectName::config_copy())?,
        ];
        let ours = self.source.id().to_string();
        for one in &found {
            if let Found::Other(Some(id)) = one
                && *id != ours
            {
                return Err(Error::Other(format!(
                    "{place} holds another repository ({id}, and the source is {ours}): a mirror \
                     is of one repository; bale copy brings snapshots from one into another"
                )));
            }
        }
        if found.iter().any(|one| matches!(one, Found::AsOurs)) {
            return Ok(());
        }
        let holds_data = !self.there.is_empty_of(Area::Packs)
            || !self.there.is_empty_of(Area::Snapshots)
            || self.has_segments_there()?
            || found.iter().any(|one| matches!(one, Found::Other(_)));
        match holds_data {
            false => Ok(()),
            true => Err(Error::Other(format!(
                "{place} holds packs or snapshots, or what is left of a config, and nothing says \
                 of which repository they are: name a place that is empty or a mirror of {ours}"
            ))),
        }
    }

    /// Those of another repository open with no key of this one, and are in no listing of packs.
    fn has_segments_there(&self) -> Result<bool> {
        let mut has_segments = false;
        if self.of_target.stretched().is_some() {
            let found = &mut |_| has_segments = true;
            match self.base.list(Area::Stretches, found) {
                // Where no repository is yet, servers say so.
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(has_segments)
    }

    /// After the keys, as `init` does: from here on it is a repository.
    pub(super) fn send_configs(&mut self) -> Result<()> {
        for name in ObjectName::configs() {
            match self.config_at(&name)? {
                Found::AsOurs => {}
                Found::Missing if self.options.dry_run => self.mirrored.objects_sent += 1,
                Found::Missing => {
                    self.target.put(&name, &self.config)?;
                    self.mirrored.objects_sent += 1;
                    self.mirrored.bytes_sent += self.config.len() as u64;
                }
                Found::Other(_) => self.problem(format!(
                    "{name} of the target is damaged: bale repair config, with the target as its \
                     repository, writes it again"
                )),
            }
        }
        Ok(())
    }

    fn config_at(&self, name: &ObjectName) -> Result<Found> {
        let bytes = match self.target.get(name, CONFIG_BYTES_MAX) {
            Err(error) if error.is_not_found() => return Ok(Found::Missing),
            Err(error) => return Err(error.into()),
            Ok(bytes) => bytes,
        };
        if bytes == self.config {
            return Ok(Found::AsOurs);
        }
        let decoded = UnverifiedConfig::decode(&bytes).ok();
        Ok(Found::Other(
            decoded.map(|config| config.repository().to_string()),
        ))
    }
}
