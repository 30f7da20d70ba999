//! What is in a part, and who knows which of its bytes are in use.

use super::part::WholeReason;
use super::swap::SwapSpace;
use crate::ByteSource;
use crate::ext4::BlockBitmaps;
use crate::in_use::InUse;
use crate::ntfs::ClusterBitmap;
use crate::partitions::PartitionTable;
use crate::recognize::{Recognized, foreign_mark, recognize};
use crate::xfs::FreeSpace;
use std::sync::Arc;

/// Who says what of a part is in use; `None`: all of it is read.
pub(super) type PartUse = Option<Box<dyn InUse>>;

/// Looks what a part is. LVM2 is [`WholeReason::Around`]: it is for the caller to divide. A table
/// of partitions within a part stands against whatever else has a mark there.
pub(super) fn look_into(
    section: &Arc<dyn ByteSource>,
    is_part: bool,
) -> (Recognized, Result<Box<dyn InUse>, WholeReason>) {
    let bytes = section.len_bytes();
    let recognized = match recognize(section.as_ref(), 0, bytes) {
        Ok(recognized) => recognized,
        Err(error) => return (Recognized::Unknown, Err(WholeReason::Read(error))),
    };
    let why = match foreign_mark(section.as_ref(), 0, bytes) {
        Err(error) => Some(WholeReason::Read(error)),
        Ok(Some(name)) => Some(WholeReason::Foreign(name)),
        Ok(None) if is_part => nested_table(section.as_ref()),
        Ok(None) => None,
    };
    (
        recognized,
        match why {
            Some(why) => Err(why),
            None => in_use(section, recognized),
        },
    )
}

fn nested_table(section: &dyn ByteSource) -> Option<WholeReason> {
    match PartitionTable::read(section, None) {
        Ok(None) => None,
        Ok(Some(table)) if table.partitions.is_empty() && table.faults.is_empty() => None,
        Ok(Some(_)) => Some(WholeReason::Nested),
        Err(error) => Some(WholeReason::Table(error)),
    }
}

fn in_use(
    section: &Arc<dyn ByteSource>,
    recognized: Recognized,
) -> Result<Box<dyn InUse>, WholeReason> {
    Ok(match recognized {
        Recognized::Ext => Box::new(BlockBitmaps::open(section.clone()).map_err(WholeReason::Use)?),
        Recognized::Xfs => Box::new(FreeSpace::open(section.clone()).map_err(WholeReason::Use)?),
        Recognized::Ntfs => {
            Box::new(ClusterBitmap::open(section.clone()).map_err(WholeReason::Use)?)
        }
        Recognized::Swap { page_bytes } => {
            let swap = SwapSpace::open(section.as_ref(), page_bytes);
            Box::new(swap.ok_or(WholeReason::Swap)?)
        }
        Recognized::Btrfs | Recognized::Fat | Recognized::Luks => {
            return Err(WholeReason::NotRead(recognized));
        }
        Recognized::Lvm2 => return Err(WholeReason::Around),
        Recognized::Ambiguous => return Err(WholeReason::Ambiguous),
        Recognized::Unknown => return Err(WholeReason::Unknown),
    })
}
