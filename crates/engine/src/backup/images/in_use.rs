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
    tell((image, tally), &ranges, is_news);
    Some(Box::new(ranges))
}

/// What could not be read, in a second look: the files of a part whose kind is not known are not
/// listed.
pub(super) fn tell_unread(image: &RawImage, tally: &Tally<'_>, ranges: &AllocatedRanges) {
    tell((image, tally), ranges, WholeReason::is_unread);
}

fn tell(
    (image, tally): (&RawImage, &Tally<'_>),
    ranges: &AllocatedRanges,
    is_told: impl Fn(&WholeReason) -> bool,
) {
    for part in ranges.parts() {
        let Some(why) = part.whole.as_ref().filter(|why| is_told(why)) else {
            continue;
        };
        let name = part.name.escape_debug();
        let text = format!(
            "{name} ({}) is read whole: {}",
            part.content,
            with_causes(why)
        );
        match why.is_unread() {
            true => {
                let text = format!("{text}; its files are not listed");
                tally.report_problem(image.name(), "find what is in use", text);
            }
            false => tally.note(&format!("{}: {text}", image.path().display())),
        }
    }
}

/// What is read whole by its kind is no news.
fn is_news(why: &WholeReason) -> bool {
    !matches!(
        why,
        WholeReason::Around | WholeReason::Unknown | WholeReason::NotRead(_)
    )
}
