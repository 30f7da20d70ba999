//! The header `Range: bytes=FIRST-LAST`, as far as clients of repositories use it: one range.

/// What part of an object is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedPart {
    /// All of it: there is no range, or none that is understood.
    Whole,
    /// So many bytes from an offset, at least one.
    Part { offset: u64, len: u64 },
    /// Bytes behind its end.
    Beyond,
}

impl WantedPart {
    /// Reads the header for an object of this length.
    pub fn parse(header: Option<&str>, object_len: u64) -> WantedPart {
        let range = header.and_then(|header| header.strip_prefix("bytes="));
        range.map_or(WantedPart::Whole, |range| one_range(range, object_len))
    }
}

fn one_range(range: &str, object_len: u64) -> WantedPart {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some((first, last)) = range.split_once('-') else {
        return WantedPart::Whole;
    };
    let (first, last) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last),
        (Some(first), None) if last.is_empty() => (first, u64::MAX),
        (None, Some(suffix)) if first.is_empty() && suffix > 0 => {
            (object_len.saturating_sub(suffix), u64::MAX)
        }
        _ => return WantedPart::Whole,
    };
    if first >= object_len {
        return WantedPart::Beyond;
    }
    let last = last.min(object_len - 1);
    WantedPart::Part {
        offset: first,
        len: last - first + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_object_and_nonsense_is_no_range() {
        let part = |offset, len| WantedPart::Part { offset, len };
        for (header, wanted) in [
            ("bytes=0-9", part(0, 10)),
            ("bytes=0-0", part(0, 1)),
            ("bytes=5-", part(5, 5)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-30", part(0, 10)),
            ("bytes=9-100", part(9, 1)),
            ("bytes=0-99999999999999999999999", part(0, 10)),
            ("bytes=10-10", WantedPart::Beyond),
            ("bytes=99999999999999999999999-", WantedPart::Beyond),
            ("bytes=5-4", WantedPart::Whole),
            ("bytes=-0", WantedPart::Whole),
            ("bytes=-", WantedPart::Whole),
            ("bytes=+1-2", WantedPart::Whole),
            ("bytes=0-1,3-4", WantedPart::Whole),
            ("items=0-1", WantedPart::Whole),
            ("", WantedPart::Whole),
        ] {
            assert_eq!(WantedPart::parse(Some(header), 10), wanted, "{header}");
        }
        assert_eq!(WantedPart::parse(None, 10), WantedPart::Whole);
        assert_eq!(WantedPart::parse(Some("bytes=0-0"), 0), WantedPart::Beyond);
    }
}
