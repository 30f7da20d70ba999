//! What a pack holds that no index names, by its own trailer.

use bale_format::ObjectId;
use bale_format::pack::{PACK_FOOTER_BYTES, PackEntry, PackFooter, open_trailer};
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;

/// The chunks of a pack and where they are; none of them is read.
pub(crate) fn entries(repository: &Repository, pack: ObjectId, len: u64) -> Result<Vec<PackEntry>> {
    let store = repository.store();
    let name = ObjectName::pack(pack);
    let too_short = || Error::Other(format!("{name}: too short for a pack"));
    let footer_at = (len.checked_sub(PACK_FOOTER_BYTES as u64)).ok_or_else(too_short)?;
    let mut footer = [0; PACK_FOOTER_BYTES];
    store.read_at(&name, footer_at, &mut footer)?;
    let key = repository.pack_key(pack)?;
    let range = PackFooter::open(&key, &footer, len)?.trailer_range();
    let bytes = usize::try_from(range.end - range.start).map_err(|_| too_short())?;
    let mut trailer = vec![0; bytes];
    store.read_at(&name, range.start, &mut trailer)?;
    Ok(open_trailer(&key, &trailer, len)?)
}
