//! What is durable is named in index objects; what is not, never is.

use super::{EncoderShared, lock};
use crate::error::Result;
use crate::pack::open_pack::Published;
use crate::repository::NamedPacks;
use std::sync::atomic::Ordering;

impl EncoderShared {
    /// Names everything published in index objects. What was named last is not looked at again.
    pub(in crate::pack) fn name_all(&self) -> Result<NamedPacks> {
        self.name_published(1)
    }

    /// What is durable by now; of packs in a segment that is open, nothing is.
    pub(in crate::pack) fn name_so_far(&self) -> Result<()> {
        match self.repository.stretched() {
            Some(_) => Ok(()),
            None => self.write_index(1),
        }
    }

    /// After a failure; what is still on its way ends first.
    pub(in crate::pack) fn name_durable(&self) -> Result<()> {
        self.jobs.wait_for_all();
        if let Some(uploads) = self.open.uploads() {
            uploads.wait_for_all();
        }
        // Of a segment that was given up, nothing is.
        if let Some(stretched) = self.repository.stretched()
            && stretched.settle().is_err()
        {
            let mut published = lock(&self.published);
            published.retain(|pack| !stretched.is_lost(&pack.id));
            let packs = std::mem::take(&mut *published);
            drop(published);
            return self.look(&self.name(&packs)?);
        }
        self.write_index(1)
    }

    /// Can the next run find anything of what this one stored?
    pub(in crate::pack) fn has_named(&self) -> bool {
        self.has_named.load(Ordering::Relaxed)
    }

    /// Is data to be named that is in no segment that is open?
    pub(super) fn has_closed_a_segment(&self) -> bool {
        let Some(stretched) = self.repository.stretched() else {
            return false;
        };
        let is_data = |pack: &Published| {
            let first = pack.entries.first();
            first.is_some_and(|entry| !entry.kind.is_metadata())
        };
        stretched.filling().open == 0 && lock(&self.published).iter().any(is_data)
    }

    pub(super) fn write_index(&self, entries_min: usize) -> Result<()> {
        self.look(&self.name_published(entries_min)?)
    }

    fn look(&self, named: &NamedPacks) -> Result<()> {
        self.repository.look_at_named(named)
    }

    fn name_published(&self, entries_min: usize) -> Result<NamedPacks> {
        let mut published = lock(&self.published);
        if published
            .iter()
            .map(|pack| pack.entries.len())
            .sum::<usize>()
            < entries_min
        {
            return Ok(NamedPacks::default());
        }
        let packs = std::mem::take(&mut *published);
        drop(published);
        // Of packs in a segment only now.
        if let Err(error) = self.repository.settle() {
            // Those of segments that were closed before are durable: `name_durable`.
            lock(&self.published).extend(packs);
            return Err(error);
        }
        self.name(&packs)
    }

    fn name(&self, packs: &[Published]) -> Result<NamedPacks> {
        if packs.is_empty() {
            return Ok(NamedPacks::default());
        }
        let named = self.repository.name_packs(packs)?;
        self.has_named.store(true, Ordering::Relaxed);
        (self.bytes_stored).fetch_add(named.index_bytes(), Ordering::Relaxed);
        Ok(named)
    }
}
