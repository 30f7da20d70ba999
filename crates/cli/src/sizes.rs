//! Sizes, durations and counts as people write and read them.

use crate::exit::Usage;
pub use bale_engine::amount::{bytes, count, counted};
use std::time::Duration;

/// Reads `512`, `10K`, `1.5G` (powers of 1024; a trailing `B` or `iB` is fine).
pub fn parse_bytes(text: &str) -> Result<u64, Usage> {
    let wrong = || {
        Usage(format!(
            "{text:?} is not a size: write for example 512K, 10M, 2G"
        ))
    };
    let trimmed = text
        .trim()
        .trim_end_matches(['b', 'B'])
        .trim_end_matches('i');
    let (digits, unit) = match trimmed.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => {
            (&trimmed[..at], letter.to_ascii_uppercase())
        }
        _ => (trimmed, ' '),
    };
    let power = match unit {
        ' ' => 0,
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        'P' => 5,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let bytes = number * 1024f64.powi(power);
    if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
        return Err(wrong());
    }
    Ok(bytes as u64)
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

/// Reads `90s`, `15m`, `24h`, `7d`, or `0`.
pub fn parse_duration(text: &str) -> Result<Duration, Usage> {
    let wrong = || {
        Usage(format!(
            "{text:?} is not a duration: write for example 90s, 15m, 24h, 7d"
        ))
    };
    let text = text.trim();
    let split = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let seconds = match text[split..].trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        "" if number == 0 => 1,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
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
        for wrong in ["", "x", "-1", "1X", "K"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("24h").unwrap(), Duration::from_secs(86400));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for wrong in ["", "5", "h", "5y", "99999999999999999999d"] {
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
