//! How wide words are drawn: near enough, and rather too wide, so that labels neither overlap nor run out of their places.

/// Mean width of a letter in parts of the font's size, for the sans fonts of common systems.
const LETTER: f64 = 0.6;
const BOLD_LETTER: f64 = 0.68;

/// Width of words in a font of `size` pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    measured(text, size * LETTER)
}

/// The same in bold.
pub(super) fn bold_width(text: &str, size: f64) -> f64 {
    measured(text, size * BOLD_LETTER)
}

fn measured(text: &str, letter: f64) -> f64 {
    text.chars()
        .map(|each| match each {
            'm' | 'w' | 'M' | 'W' | '%' | '×' => 1.5,
            'i' | 'l' | 'j' | 't' | 'f' | ' ' | '.' | ',' | ':' | '(' | ')' | '-' => 0.65,
            each if each.is_ascii() => 1.0,
            // Of scripts with wide letters each is a square.
            _ => 1.8,
        })
        .sum::<f64>()
        * letter
}
