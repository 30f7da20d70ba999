//! Words of somebody else, made fit to be shown: one line, no controls, not too long.

/// Characters of a message that are shown.
const MESSAGE_CHARS_MAX: usize = 200;

/// Text of somebody else on one line, without what a terminal would obey.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    on_one_line(text.chars().take(MESSAGE_CHARS_MAX))
}

/// The same of its end: programs name what they were given first, and then what is wrong with it.
pub(crate) fn shown_end(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end();
    let left_out = text.chars().count().saturating_sub(MESSAGE_CHARS_MAX);
    let end = on_one_line(text.chars().skip(left_out));
    match left_out {
        0 => end,
        _ => format!("... {end}"),
    }
}

fn on_one_line(letters: impl Iterator<Item = char>) -> String {
    let safe = letters.map(|letter| if letter.is_control() { ' ' } else { letter });
    safe.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_words_the_beginning_or_the_end_is_shown_on_one_line() {
        let long = format!("begins\u{1b}[2J{}\nends\n", "é".repeat(300));
        let (first, last) = (shown(long.as_bytes()), shown_end(long.as_bytes()));
        assert!(
            first.starts_with("begins [2Jé") && !first.contains("ends"),
            "{first}"
        );
        assert!(
            last.starts_with("... é") && last.ends_with("é ends"),
            "{last}"
        );
        for text in [&first, &last] {
            assert!(text.chars().count() <= MESSAGE_CHARS_MAX + 4, "{text}");
        }
        assert_eq!(shown_end(b"short\n"), "short");
    }
}
