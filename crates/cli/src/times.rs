//! A moment, for people and for scripts.

use crate::exit::Usage;
use crate::sizes;
use bale_format::Time;
use jiff::Timestamp;
use jiff::civil::DateTime;
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

/// Reads a moment as people name it: how long ago (`36h`, `7d`), a date, a date and a time of day
/// (local time, as listings print it), or RFC 3339.
pub fn parse_moment(text: &str, now: Time) -> Result<Time, Usage> {
    moment(text.trim(), now, &TimeZone::system()).ok_or_else(|| {
        Usage(format!(
            "{text:?} is no moment: write how long ago (36h, 7d), a date (2026-11-27) or a date \
             and a time (\"2026-11-27 18:30:00\", 2026-11-27T18:30:00Z)"
        ))
    })
}

fn moment(text: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    if let Ok(ago) = sizes::parse_duration(text) {
        let seconds = i64::try_from(ago.as_secs()).ok()?;
        return Some(Time {
            seconds: now.seconds.checked_sub(seconds)?,
            nanos: now.nanos,
        });
    }
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => timestamp,
        // Without a zone: of this machine. A date is its first moment.
        Err(_) => {
            let civil = text.parse::<DateTime>().ok()?;
            civil.to_zoned(zone.clone()).ok()?.timestamp()
        }
    };
    let (seconds, nanos) = (timestamp.as_second(), timestamp.subsec_nanosecond());
    // Nanoseconds of a moment before 1970 count forward from the second before.
    Some(match u32::try_from(nanos) {
        Ok(nanos) => Time { seconds, nanos },
        Err(_) => Time {
            seconds: seconds - 1,
            nanos: (1_000_000_000 + nanos).unsigned_abs(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_ago_a_local_date_or_an_exact_time() {
        let now = Time {
            seconds: 1_000_000,
            nanos: 7,
        };
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let read = |text: &str| moment(text, now, &zone).map(|time| (time.seconds, time.nanos));
        assert_eq!(read("1d"), Some((1_000_000 - 86_400, 7)));
        assert_eq!(read("0"), Some((1_000_000, 7)));
        assert_eq!(read("1970-01-02"), Some((86_400 - 7200, 0)));
        assert_eq!(read("1970-01-02 03:04:05"), Some((86_400 + 3845, 0)));
        assert_eq!(read("1970-01-02T03:04:05Z"), Some((86_400 + 11_045, 0)));
        assert_eq!(read("1969-12-31T23:59:59.25Z"), Some((-1, 250_000_000)));
        for wrong in ["", "yesterday", "5", "2026-13-01", "-3d", "12:30"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        // What listings print is read back.
        let shown = local_time(now);
        let back = parse_moment(&shown, now).unwrap();
        assert_eq!(back.seconds, now.seconds);
    }
}
