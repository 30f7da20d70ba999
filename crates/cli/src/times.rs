//! A moment, for people and for scripts.

use bale_format::Time;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// For people: local time, to the second.
pub fn local_time(time: Time) -> String {
    match Timestamp::new(time.seconds, 0) {
        Ok(timestamp) => timestamp
            .to_zoned(TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string(),
        Err(_) => time_text(time),
    }
}

/// RFC 3339 in UTC; seconds alone where no calendar reaches.
pub fn time_text(time: Time) -> String {
    match Timestamp::new(time.seconds, time.nanos as i32) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("@{}.{:09}", time.seconds, time.nanos),
    }
}
