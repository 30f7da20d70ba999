//! Published packs get their names: an index object, and then a look whether all of them are still
//! there. In between a pack may be named that a prune took away while this process slept.

use super::Repository;
use super::objects::ListedPacks;
use crate::error::{Error, Result};
use crate::pack::Published;
use crate::store::ObjectName;
use bale_format::ObjectId;
use bale_format::index::{IndexEntry, IndexPack};
use bale_pipeline::ordered::in_order_weighed;

/// Packs that a new index object names, and that nobody has looked at since.
#[must_use = "they are relied on after a look only"]
#[derive(Debug, Default)]
pub struct NamedPacks {
    /// With its length before sealing; none for no chunks.
    index: Option<(ObjectId, u64)>,
    packs: Vec<ObjectId>,
}

impl NamedPacks {
    pub fn index_bytes(&self) -> u64 {
        self.index.map_or(0, |(_, bytes)| bytes)
    }
}

impl Repository {
    /// Names the chunks of published packs in a new index object; tells its length. A pack that is
    /// gone by then (a prune ran while this process slept) is named by nobody.
    pub fn write_index(&self, published: &[Published]) -> Result<u64> {
        let named = self.name_packs(published)?;
        self.look_at_named(&named)?;
        Ok(named.index_bytes())
    }

    /// The same without the look whether they are still there: whoever relies on the names makes
    /// it first, with [`Repository::look_at_named`] or [`Repository::look_at_named_in`].
    pub fn name_packs(&self, published: &[Published]) -> Result<NamedPacks> {
        let mut packs = Vec::new();
        let mut entries = Vec::new();
        for pack in published {
            let number = u32::try_from(packs.len()).expect("few packs an index object");
            packs.push(IndexPack {
                id: pack.id,
                bytes: pack.bytes,
            });
            entries.extend(pack.entries.iter().map(|chunk| IndexEntry {
                pack: number,
                chunk: *chunk,
            }));
        }
        let index = self.put_index(&packs, entries)?;
        Ok(NamedPacks {
            packs: match index {
                Some(_) => published.iter().map(|pack| pack.id).collect(),
                None => Vec::new(),
            },
            index,
        })
    }

    /// Is every pack there that was named? If one is not, its name is taken back.
    pub fn look_at_named(&self, named: &NamedPacks) -> Result<()> {
        self.look_at_those(named, named.packs.clone())
    }

    /// The same by a listing that was made since.
    pub fn look_at_named_in(&self, named: &NamedPacks, listed: &ListedPacks) -> Result<()> {
        let unlisted = named.packs.iter().copied();
        let unlisted = unlisted.filter(|pack| !listed.reliable.contains(pack));
        self.look_at_those(named, unlisted.collect())
    }

    fn look_at_those(&self, named: &NamedPacks, packs: Vec<ObjectId>) -> Result<()> {
        let Some((index, _)) = named.index else {
            return Ok(());
        };
        let Some(gone) = self.first_gone(packs)? else {
            return Ok(());
        };
        let mut text = format!("pack {} was pruned: run it again", gone.short());
        if let Err(refused) = self.delete_index_object(&ObjectName::index(index)) {
            let index = index.short();
            text += &format!(
                "; index object {index} names it still, and cannot be taken back ({refused})"
            );
        }
        Err(Error::Other(text))
    }

    /// The first of these packs that is not there, if one is not: several are looked at together
    /// where the store is far away.
    fn first_gone(&self, packs: Vec<ObjectId>) -> Result<Option<ObjectId>> {
        let mut gone = None;
        let look = |pack| (pack, self.store.stat(&ObjectName::pack(pack)));
        in_order_weighed(
            self.flights(),
            packs.into_iter().map(|pack| (0, pack)),
            look,
            |(pack, found)| {
                if found?.is_none() {
                    gone.get_or_insert(pack);
                }
                Ok::<(), Error>(())
            },
        )?;
        Ok(gone)
    }
}
