//! Text of others, made harmless for terminals, lines and logs.

/// A name for people: control characters, and bytes that are no UTF-8, as `\xNN`, so that no name
/// can steer a terminal or forge a line of a log.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || is_direction_mark(letter) {
                let mut buffer = [0; 4];
                for byte in letter.encode_utf8(&mut buffer).bytes() {
                    text.push_str(&format!("\\x{byte:02x}"));
                }
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Marks that reorder what a terminal shows.
fn is_direction_mark(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(escape(b"a\x1b[2Jb\nc\xff"), "a\\x1b[2Jb\\x0ac\\xff");
        assert_eq!(escape("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
    }
}
