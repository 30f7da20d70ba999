//! Words of somebody else, made fit to be shown: one line, no controls, not too long.

/// Characters of a message that are shown.
const MESSAGE_CHARS_MAX: usize = 200;

/// Text of somebody else on one line, without what a terminal would obey.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let one_line = text.chars().take(MESSAGE_CHARS_MAX);
    let safe = one_line.map(|letter| if letter.is_control() { ' ' } else { letter });
    safe.collect::<String>().trim().to_owned()
}
