//! Patterns whose meaning hangs on characters: `?`, classes, and those without regard to case.
//!
//! globset matches bytes, so that `?` would be half of an `ä`, and lets a class match a slash. Here
//! a pattern becomes a regular expression over characters in which neither wildcard nor class
//! leaves a name. A byte of a path that belongs to no character counts as one of its own.

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};
use std::borrow::Cow;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// First of 256 private characters that stand for bytes that are none.
const STRAY_BYTES: u32 = 0x10_FE00;

/// Room for the states of all patterns together.
const SIZE_BYTES_MAX: usize = 64 << 20;

/// Several patterns, matched at once.
#[derive(Clone, Debug)]
pub(super) struct CharacterMatcher(Regex);

/// A glob, and whether case counts.
pub(super) struct CharacterGlob {
    pub(super) glob: String,
    pub(super) ignore_case: bool,
}

/// Whether only characters can say what a pattern matches.
pub(super) fn needs_characters(glob: &str, ignore_case: bool) -> bool {
    ignore_case || glob.contains(['?', '['])
}

impl CharacterMatcher {
    /// The globs must be such as globset takes. Fails where they are too large together.
    pub(super) fn new(globs: &[CharacterGlob]) -> Result<CharacterMatcher, String> {
        let expressions: Vec<String> = globs.iter().map(expression).collect();
        let config = Config::new()
            .match_kind(MatchKind::All)
            .nfa_size_limit(Some(SIZE_BYTES_MAX));
        let syntax = syntax::Config::new()
            .dot_matches_new_line(true)
            .nest_limit(1000);
        let regex = Regex::builder()
            .configure(config)
            .syntax(syntax)
            .build_many(&expressions);
        regex.map(CharacterMatcher).map_err(|error| {
            let why = error.syntax_error().map(ToString::to_string);
            why.unwrap_or_else(|| error.to_string())
        })
    }

    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        self.0.is_match(&*characters_of(path))
    }

    /// The globs that match, by their places among those given, in order.
    pub(super) fn matches(&self, path: &[u8]) -> Vec<usize> {
        let mut found = PatternSet::new(self.0.pattern_len());
        let path = characters_of(path);
        self.0
            .which_overlapping_matches(&Input::new(&*path), &mut found);
        found.iter().map(|pattern| pattern.as_usize()).collect()
    }
}

fn characters_of(path: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(path) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let mut text = String::with_capacity(path.len() * 2);
            for chunk in path.utf8_chunks() {
                text.push_str(chunk.valid());
                let stray = |byte: &u8| char::from_u32(STRAY_BYTES + u32::from(*byte));
                text.extend(chunk.invalid().iter().filter_map(stray));
            }
            Cow::Owned(text)
        }
    }
}

/// The regular expression for the whole path, with globset's rules for `**`.
fn expression(glob: &CharacterGlob) -> String {
    let mut out = match glob.ignore_case {
        true => "(?i)\\A".to_owned(),
        false => "\\A".to_owned(),
    };
    let mut rest = glob.glob.chars().peekable();
    let mut previous = None;
    while let Some(letter) = rest.next() {
        match letter {
            '*' if rest.peek() == Some(&'*') && matches!(previous, None | Some('/')) => {
                rest.next();
                previous = Some(any_directories(&mut out, &mut rest));
                continue;
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => class(&mut out, &mut rest),
            '\\' => rest
                .next()
                .into_iter()
                .for_each(|next| literal(&mut out, next)),
            other => literal(&mut out, other),
        }
        previous = Some(letter);
    }
    out.push_str("\\z");
    out
}

/// Two stars where a part begins: any number of directories if the part ends with them, else two
/// stars within a name. Gives the letter that counts as the one before what follows.
fn any_directories(out: &mut String, rest: &mut Peekable<Chars<'_>>) -> char {
    if rest.next_if_eq(&'/').is_some() {
        // The slash before, if there is one, is written already.
        out.push_str("(?:.*/)?");
        return '/';
    }
    out.push_str(match rest.peek() {
        None => ".+",
        Some(_) => "[^/]*",
    });
    '*'
}

/// A class of one letter, which is never a slash. Its bracket is read already.
fn class(out: &mut String, rest: &mut Peekable<Chars<'_>>) {
    let is_negated = rest.next_if(|letter| matches!(letter, '!' | '^')).is_some();
    let mut items = String::new();
    let mut is_first = true;
    while let Some(letter) = rest.next() {
        if letter == ']' && !is_first {
            break;
        }
        is_first = false;
        let _ = write!(items, "\\x{{{:X}}}", u32::from(letter));
        // A hyphen makes a range unless it stands first or last.
        let mut ahead = rest.clone();
        if ahead.next() == Some('-') && ahead.peek().is_some_and(|last| *last != ']') {
            rest.next();
            if let Some(last) = rest.next() {
                let _ = write!(items, "-\\x{{{:X}}}", u32::from(last));
            }
        }
    }
    let _ = match is_negated {
        true => write!(out, "[^/{items}]"),
        false => write!(out, "[{items}--/]"),
    };
}

fn literal(out: &mut String, letter: char) {
    let _ = write!(out, "\\x{{{:X}}}", u32::from(letter));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &[u8]) -> bool {
        let globs = [CharacterGlob {
            glob: glob.to_owned(),
            ignore_case: false,
        }];
        CharacterMatcher::new(&globs).unwrap().is_match(path)
    }

    /// Without classes and beyond ASCII, both matchers must agree on every path.
    #[test]
    fn stars_mean_what_they_mean_to_globset() {
        let globs = [
            "*",
            "**",
            "a/*",
            "**/a",
            "a/**",
            "a/**/b",
            "**/a/**",
            "a**",
            "**a",
            "a/**b",
            "*/a*b",
            "**/**/a",
            "a/**/**/b",
            "**/*",
        ];
        let letters = ["a", "b", "/"];
        for glob in globs {
            let reference = globset::GlobBuilder::new(glob)
                .literal_separator(true)
                .build()
                .unwrap()
                .compile_matcher();
            let ours = CharacterGlob {
                glob: glob.to_owned(),
                ignore_case: false,
            };
            let ours = CharacterMatcher::new(&[ours]).unwrap();
            for number in 0..3usize.pow(6) {
                for length in 1..=6 {
                    let digits = (0..length).map(|place| letters[number / 3usize.pow(place) % 3]);
                    let path: String = digits.collect();
                    // Paths have neither empty parts nor slashes at their ends.
                    if path.split('/').any(str::is_empty) {
                        continue;
                    }
                    assert_eq!(
                        ours.is_match(path.as_bytes()),
                        reference.is_match(&path),
                        "{glob} {path}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_class_leaves_a_name() {
        for (glob, path) in [
            ("build[!a-z]*", "build/main.c"),
            ("x[+-9]y", "x/y"),
            ("x[/]y", "x/y"),
            ("x[^a]y", "x/y"),
            ("x?y", "x/y"),
        ] {
            assert!(!matches(glob, path.as_bytes()), "{glob} {path}");
        }
        for (glob, path) in [
            ("build[!a-z]*", "build-1"),
            ("x[+-9]y", "x0y"),
            ("x[]]y", "x]y"),
            ("x[!]]y", "xay"),
            ("x[a-]y", "x-y"),
            ("x[-a]y", "x-y"),
            ("x[a\\]y", "x\\y"),
            ("x[&&^~]y", "x^y"),
        ] {
            assert!(matches(glob, path.as_bytes()), "{glob} {path}");
        }
    }

    #[test]
    fn a_character_is_one_however_many_bytes_it_has() {
        assert!(matches("f?", "fä".as_bytes()));
        assert!(!matches("f??", "fä".as_bytes()));
        assert!(matches("x[äö]y", "xäy".as_bytes()));
        assert!(!matches("x[!äö]y", "xäy".as_bytes()));
        // Bytes that are no character.
        assert!(matches("f?", b"f\xE4"));
        assert!(matches("f??", b"f\xE4\xFF"));
        assert!(matches("f*", b"f\xE4"));
        let blind = CharacterMatcher::new(&[CharacterGlob {
            glob: "äRGER*".to_owned(),
            ignore_case: true,
        }]);
        assert!(blind.unwrap().is_match("ÄrgerÜ".as_bytes()));
    }
}
