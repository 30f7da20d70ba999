//! Patterns of `--exclude` and its relatives.

use super::characters::{CharacterGlob, CharacterMatcher, needs_characters};
use super::{Reach, distinct};
use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// One pattern as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The pattern.
    pub text: String,
    /// `--iexclude`.
    pub ignore_case: bool,
}

/// A pattern that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("pattern {text:?}: {why}")]
pub struct PatternError {
    /// The pattern; empty if no single one is too large, but all together.
    pub text: String,
    /// In the matcher's words.
    pub why: String,
}

/// Characters of a pattern that do not stand for themselves.
const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Patterns, compiled.
#[derive(Clone, Debug, Default)]
pub(super) struct PatternSet {
    set: GlobSet,
    /// Number among all globs of each glob of `set`.
    of_set: Vec<usize>,
    /// Globs that match by characters.
    characters: Option<CharacterMatcher>,
    /// Number among all globs of each glob of `characters`.
    of_characters: Vec<usize>,
    /// Of each glob: does it take back?
    takes_back: Vec<bool>,
    /// Of each glob: the pattern that it is of.
    pattern_of: Vec<usize>,
    /// Where paths lie that are excluded; `None` if they may be anywhere.
    reaches: Option<Vec<Reach>>,
    /// Of every path only so many components at its end are looked at, for no pattern has as many;
    /// `None`: all.
    components_looked_at: Option<usize>,
}

impl PatternSet {
    pub(super) fn new(patterns: &[Pattern]) -> Result<PatternSet, PatternError> {
        let mut globs = Globs::default();
        let mut pattern_of = Vec::new();
        let mut reaches = Some(Vec::new());
        for (number, pattern) in patterns.iter().enumerate() {
            let (negative, text) = match pattern.text.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, pattern.text.as_str()),
            };
            let is_anchored = text.starts_with('/') && !pattern.ignore_case;
            match &mut reaches {
                _ if negative || text.trim_end_matches('/').is_empty() => {}
                Some(reaches) if is_anchored => reaches.push(Reach::of(text, &WILDCARDS)),
                _ => reaches = None,
            }
            if let Some(glob) = glob_of(text) {
                let added = globs.add(glob, negative, pattern.ignore_case);
                added.map_err(|why| PatternError {
                    text: pattern.text.clone(),
                    why,
                })?;
                pattern_of.push(number);
            }
        }
        let set = globs.compile(pattern_of).map_err(|why| PatternError {
            text: String::new(),
            why,
        })?;
        Ok(PatternSet {
            reaches: reaches.map(distinct),
            components_looked_at: components_looked_at(patterns),
            ..set
        })
    }

    pub(super) fn reaches(&self) -> Option<&[Reach]> {
        self.reaches.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.takes_back.is_empty()
    }

    pub(super) fn excludes(&self, path: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = self.looked_at(path);
        if self.takes_back.iter().all(|negative| !negative) {
            let candidate = Candidate::new(OsStr::from_bytes(path));
            let by_characters = |matcher: &CharacterMatcher| matcher.is_match(path);
            return self.set.is_match_candidate(&candidate)
                || self.characters.as_ref().is_some_and(by_characters);
        }
        let last = self.matching_globs(path).max();
        last.is_some_and(|glob| !self.takes_back[glob])
    }

    /// Numbers of the globs that match, in no order.
    fn matching_globs(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        let matches = self.set.matches(OsStr::from_bytes(path)).into_iter();
        let by_characters = self.characters.as_ref().map(|it| it.matches(path));
        let by_characters = by_characters.unwrap_or_default().into_iter();
        let matches = matches.map(|at| self.of_set[at]);
        matches.chain(by_characters.map(|at| self.of_characters[at]))
    }

    /// The patterns that match the path, by their numbers, whatever they say of it.
    pub(super) fn matching(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        let matches = self.matching_globs(self.looked_at(path));
        matches.map(|glob| self.pattern_of[glob])
    }

    fn looked_at<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        match self.components_looked_at {
            Some(components) => end_of(path, components),
            None => path,
        }
    }
}

/// One component more than any pattern has: then a pattern that may begin anywhere matches the end
/// of a path if it matches the path, and one that begins at the top matches neither. `None` where
/// `**` stands for any number of components.
fn components_looked_at(patterns: &[Pattern]) -> Option<usize> {
    let components = patterns.iter().map(|pattern| {
        let text = &pattern.text;
        (!text.contains("**")).then(|| text.split('/').count())
    });
    let most = components.collect::<Option<Vec<_>>>()?.into_iter().max();
    Some(most.unwrap_or(0) + 1)
}

/// The last components of a path: a directory below very many costs no more than another.
fn end_of(path: &[u8], components: usize) -> &[u8] {
    let mut slashes = (0..path.len()).rev().filter(|at| path[*at] == b'/');
    let slash = slashes.nth(components - 1);
    slash.map_or(path, |slash| &path[slash + 1..])
}

/// Globs on their way into a set.
#[derive(Default)]
struct Globs {
    by_bytes: Vec<Glob>,
    of_set: Vec<usize>,
    by_characters: Vec<CharacterGlob>,
    of_characters: Vec<usize>,
    takes_back: Vec<bool>,
}

impl Globs {
    fn add(&mut self, glob: String, negative: bool, ignore_case: bool) -> Result<(), String> {
        // It also says what is wrong with a glob that is matched by characters.
        let compiled = GlobBuilder::new(&glob)
            .case_insensitive(ignore_case)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| error.kind().to_string())?;
        let number = self.takes_back.len();
        if needs_characters(&glob, ignore_case) {
            self.by_characters.push(CharacterGlob { glob, ignore_case });
            self.of_characters.push(number);
        } else {
            self.by_bytes.push(compiled);
            self.of_set.push(number);
        }
        self.takes_back.push(negative);
        Ok(())
    }

    fn compile(self, pattern_of: Vec<usize>) -> Result<PatternSet, String> {
        let mut builder = GlobSetBuilder::new();
        self.by_bytes
            .into_iter()
            .for_each(|glob| _ = builder.add(glob));
        let set = builder.build();
        let set = set.map_err(|error| error.kind().to_string())?;
        let characters = match self.by_characters.is_empty() {
            true => None,
            false => Some(CharacterMatcher::new(&self.by_characters)?),
        };
        Ok(PatternSet {
            set,
            of_set: self.of_set,
            characters,
            of_characters: self.of_characters,
            takes_back: self.takes_back,
            pattern_of,
            ..PatternSet::default()
        })
    }
}

/// The glob over the whole path, without leading slash, that means the pattern.
fn glob_of(text: &str) -> Option<String> {
    let text = match text.trim_end_matches('/') {
        // `/` and the like: nothing that has a path can be meant.
        "" => return None,
        text => text,
    };
    // Braces are ordinary characters in these patterns, but not to the matcher.
    let mut escaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '{' | '}' => escaped.extend(['\\', character]),
            '\\' => {
                escaped.push('\\');
                escaped.extend(characters.next());
            }
            _ => escaped.push(character),
        }
    }
    Some(match escaped.strip_prefix('/') {
        Some(anchored) => anchored.trim_start_matches('/').to_string(),
        None => format!("**/{escaped}"),
    })
}

/// Lines of an `--exclude-file`: blank lines and lines that begin with `#` are skipped, spaces at
/// both ends dropped.
pub fn parse_exclude_file(text: &str, ignore_case: bool) -> Vec<Pattern> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| Pattern {
            text: line.to_string(),
            ignore_case,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row below 200,000 directories is asked about at each of them; each look at the whole path
    /// took minutes.
    #[test]
    fn the_end_of_a_path_decides_as_the_whole_does() {
        let sets: [&[&str]; 9] = [
            &["a"],
            &["[!b]/a", "!b/[a]"],
            &["?/b"],
            &["a/b"],
            &["/a/b"],
            &["/a"],
            &["*/a", "!b/a"],
            &["/a/*", "b/a/b"],
            &["a", "!/a/b/a"],
        ];
        let names = ["a", "b", "c"];
        for texts in sets {
            let patterns: Vec<Pattern> = (texts.iter())
                .map(|text| Pattern {
                    text: text.to_string(),
                    ignore_case: false,
                })
                .collect();
            let set = PatternSet::new(&patterns).unwrap();
            assert!(
                set.components_looked_at
                    .is_some_and(|components| components <= 5)
            );
            let whole = PatternSet {
                components_looked_at: None,
                ..set.clone()
            };
            for number in 0..3usize.pow(6) {
                let digits = (0..6).map(|place| names[number / 3usize.pow(place) % 3]);
                let path: Vec<&str> = digits.collect();
                for length in 1..=6 {
                    let path = path[..length].join("/");
                    let path = path.as_bytes();
                    assert_eq!(
                        set.excludes(path),
                        whole.excludes(path),
                        "{texts:?} {path:?}"
                    );
                }
            }
        }
        assert_eq!(end_of(b"a/b/c", 2), b"b/c");
        assert_eq!(end_of(b"b/c", 2), b"b/c");
        assert_eq!(end_of(b"c", 2), b"c");
    }
}
