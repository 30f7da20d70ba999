//! Which bytes of an image are in use, as far as its file systems can be believed.
//!
//! An image of several moments is read whole: its bitmaps may be older than what they are of.

use super::super::tally::Tally;
use bale_format::snapshot::ImageState;
use bale_fsimage::allocated::{AllocatedRanges, WholeReason};
use bale_pipeline::error::with_causes;
use bale_source::raw::{DeviceRanges, RawImage};

/// A superset of what is in use; `None`: all of it is read.
pub(super) fn in_use(image: &RawImage, tally: &Tally<'_>) -> Option<DeviceRanges> {
    if image.state() == ImageState::Fuzzy {
        return None;
    }
    let ranges = AllocatedRanges::of(image.byte_source(), image.sector_bytes());
    for text in whole(&ranges, is_news) {
        tally.note(&format!("{}: {text}", image.path().display()));
    }
    Some(Box::new(ranges))
}

/// Parts whose files are not listed since what they are could not be read, in words.
pub(super) fn unread(ranges: &AllocatedRanges) -> Vec<String> {
    whole(ranges, WholeReason::is_unread)
}

/// Parts that are read whole for such a reason, in words.
fn whole(ranges: &AllocatedRanges, is_told: impl Fn(&WholeReason) -> bool) -> Vec<String> {
    let parts = ranges.parts().iter().filter_map(|part| {
        let why = part.whole.as_ref().filter(|why| is_told(why))?;
        let (name, content) = (part.name.escape_debug(), &part.content);
        Some(format!(
            "{name} ({content}) is read whole: {}",
            with_causes(why)
        ))
    });
    parts.collect()
}

/// What is read whole by its kind is no news.
fn is_news(why: &WholeReason) -> bool {
    !matches!(
        why,
        WholeReason::Around | WholeReason::Unknown | WholeReason::NotRead(_)
    )
}
