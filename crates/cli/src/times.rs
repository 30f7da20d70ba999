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

/// A day, a day and a time of it by the clock of this machine, or a moment as in RFC 3339.
pub fn parse(text: &str) -> Option<Time> {
    let text = text.trim();
    let moment = text.parse::<Timestamp>().ok().or_else(|| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        local
            .to_zoned(TimeZone::system())
            .ok()
            .map(|zoned| zoned.timestamp())
    })?;
    // Before 1970 the nanoseconds of a timestamp are negative.
    let nanos = moment.subsec_nanosecond();
    let seconds = moment.as_second() - i64::from(nanos < 0);
    Some(Time {
        seconds,
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let time = parse("2026-11-27T07:30:00.5Z").unwrap();
        assert_eq!((time.seconds, time.nanos), (1_795_764_600, 500_000_000));
        assert_eq!(parse("2026-11-27T08:30:00.5+01:00"), Some(time));
        assert!(parse("2026-11-27").is_some() && parse("2026-11-27 08:30:00").is_some());
        assert_eq!(parse("1969-12-31T23:59:59.25Z").unwrap().seconds, -1);
        for text in ["", "yesterday", "2026-13-01", "08:30"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
