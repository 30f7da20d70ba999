//! Numbers with their units, short enough for a table and exact enough to be compared.

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `34 ms`, `4.21 s`, `42.1 s`, `4:02 min`, `64:43 h`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 9.995 {
        return format!("{seconds:.2} s");
    }
    if seconds < 99.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        format!("{}:{:02} min", whole / 60, whole % 60)
    } else {
        let minutes = (seconds / 60.0).round() as u64;
        format!("{}:{:02} h", minutes / 60, minutes % 60)
    }
}

/// `512 B`, `1.5 KiB`, `23.4 MiB`, `986 MiB`.
pub(super) fn bytes(count: f64) -> String {
    if count < 1024.0 {
        return format!("{count:.0} B");
    }
    let mut value = count / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(value), UNITS[unit])
}

/// `0.42×`, `3.1×`, `244×`.
pub(super) fn ratio(ratio: f64) -> String {
    if ratio < 0.995 {
        format!("{ratio:.2}×")
    } else {
        format!("{}×", short(ratio))
    }
}

/// `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `950`, `12.3 k`, `1.03 M`: for axes and narrow columns.
pub(super) fn short_count(number: f64) -> String {
    if number < 999.5 {
        format!("{number:.0}")
    } else if number < 999_500.0 {
        format!("{} k", short(number / 1e3))
    } else {
        format!("{} M", short(number / 1e6))
    }
}

/// One digit after the point below ten, none from a hundred on.
fn short(value: f64) -> String {
    let text = if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_their_units_without_jumps_at_the_limits() {
        let shown: Vec<_> = [
            0.034, 0.99949, 0.9996, 4.206, 9.996, 42.12, 99.96, 241.7, 3599.6, 233_000.0,
        ]
        .map(seconds)
        .into();
        let expected = [
            "34 ms", "999 ms", "1.00 s", "4.21 s", "10.0 s", "42.1 s", "1:40 min", "4:02 min",
            "1:00 h", "64:43 h",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            [512.0, 1536.0, 1023.9 * 1024.0, 986.0 * 1048576.0].map(bytes),
            ["512 B", "1.5 KiB", "1 MiB", "986 MiB"]
        );
        assert_eq!(
            [0.415, 0.9949, 0.9951, 3.12, 244.3].map(ratio),
            ["0.41×", "0.99×", "1×", "3.1×", "244×"]
        );
        assert_eq!(
            [0.0, 950.0, 12_345.0, 1_030_000.0].map(short_count),
            ["0", "950", "12.3 k", "1 M"]
        );
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
