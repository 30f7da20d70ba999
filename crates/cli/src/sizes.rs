//! Sizes, durations and counts as people write and read them.

use crate::exit::Usage;
pub use bale_pipeline::amount::{bytes, count, counted};
use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// Reads `512`, `10K`, `1.5G` (powers of 1024; a trailing `B` or `iB` is fine).
pub fn parse_bytes(text: &str) -> Result<u64, Usage> {
    let binary = parse_size::Config::new().with_binary();
    let wrong = || format!("{text:?} is not a size: write for example 512K, 10M, 2G");
    binary.parse_size(text.trim()).map_err(|_| Usage(wrong()))
}

/// `1 directory`, `2 directories`.
pub fn either(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", count(number))
}

/// The word for one, or for any other number.
pub fn one_or_more<'w>(number: u64, one: &'w str, more: &'w str) -> &'w str {
    match number {
        1 => one,
        _ => more,
    }
}

/// Reads `90s`, `15m`, `24h`, `7d`, `1d 12h`, or `0`.
pub fn parse_duration(text: &str) -> Result<Duration, Usage> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let span = text.parse::<Span>();
    let signed = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let duration = signed.ok().and_then(|signed| signed.try_into().ok());
    let wrong = || format!("{text:?} is not a duration: write for example 90s, 15m, 24h, 7d");
    duration.ok_or_else(|| Usage(wrong()))
}

/// `1:02:03` or `4.2 s`.
pub fn duration(seconds: f64) -> String {
    if seconds < 100.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{rest:02} h")
    } else {
        format!("{minutes}:{rest:02} min")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("512").unwrap(), 512);
        assert_eq!(parse_bytes("10K").unwrap(), 10240);
        assert_eq!(parse_bytes("1.5 GiB").unwrap(), 3 << 29);
        assert_eq!(parse_bytes("2kb").unwrap(), 2048);
        for wrong in ["", "x", "-1", "1X", "K", "17E"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("24h").unwrap(), Duration::from_secs(86400));
        assert_eq!(
            parse_duration("7d").unwrap(),
            Duration::from_secs(7 * 86400)
        );
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for wrong in ["", "5", "h", "5y", "2mo", "-5m", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(1234567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
