//! Times as S3 writes them, for requests and for people: UTC, whole seconds.

use reqsign_core::time::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// `None` of a time that no calendar has.
pub fn utc(time: SystemTime) -> Option<String> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).ok()?;
    let time = Timestamp::from_second(seconds).ok()?;
    Some(time.format_rfc3339_zulu())
}
