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
    for part in ranges.parts() {
        let Some(why) = part.whole.as_ref().filter(|why| is_news(why)) else {
            continue;
        };
        tally.note(&format!(
            "{}: {} ({}) is read whole: {}",
            image.path().display(),
            part.name.escape_debug(),
            part.content,
            with_causes(why)
        ));
    }
    Some(Box::new(ranges))
}

/// What is read whole by its kind is no news.
fn is_news(why: &WholeReason) -> bool {
    !matches!(
        why,
        WholeReason::Around | WholeReason::Unknown | WholeReason::NotRead(_)
    )
}
