//! A profile file: TOML, every word of it known, each value with its line.
//!
//! Nothing in it is believed: it is bounded, and what is not understood is refused with its line
//! and the nearest known word. What a value means on this machine is for others.

use crate::error::{LineOfFile, ProfileError};
use crate::nearest::advice;
use crate::value;
use crate::words::{ProfileTable, STEPS, ValueKind, Word, word, words_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of a profile file at most.
pub const PROFILE_FILE_BYTES_MAX: u64 = 1 << 20;
/// Profiles in a file at most.
pub const PROFILES_MAX: usize = 4096;
/// Bytes of a profile's name at most: it is part of names of files and units.
pub const PROFILE_NAME_BYTES_MAX: usize = 64;
/// In a list: what is inherited stands here.
pub const INHERITED: &str = "...";

/// Words that people look for here, and must not find.
const PASSWORDS: [&str; 5] = ["password", "pass", "passphrase", "secret", "key"];

/// A file of profiles.
#[derive(Clone, Debug)]
pub struct ProfileFile {
    /// As it was named.
    pub path: Arc<Path>,
    /// By name.
    pub profiles: BTreeMap<String, WrittenProfile>,
}

/// A profile as one file says it, before what it inherits.
#[derive(Clone, Debug)]
pub struct WrittenProfile {
    /// Where it begins.
    pub at: LineOfFile,
    /// Tables of steps that are there, with or without words in them.
    pub steps: BTreeSet<ProfileTable>,
    /// By table and word.
    pub values: BTreeMap<(ProfileTable, &'static str), WrittenValue>,
}

/// The value of one word.
#[derive(Clone, Debug, Default)]
pub struct WrittenValue {
    /// The line of the word.
    pub line: usize,
    /// Each text with its line. Empty: what is inherited does not count.
    pub texts: Vec<(String, usize)>,
}

/// Parses what a file holds.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<ProfileFile, ProfileError> {
    let path: Arc<Path> = path.into();
    let whole = LineOfFile {
        file: Arc::clone(&path),
        line: 0,
    };
    if bytes.len() as u64 > PROFILE_FILE_BYTES_MAX {
        let text = format!("longer than {PROFILE_FILE_BYTES_MAX} bytes: it is no profile file");
        return Err(ProfileError::at(&whole, text));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let lines = bytes[..error.valid_up_to()].iter();
        let line = lines.filter(|byte| **byte == b'\n').count() + 1;
        let at = LineOfFile {
            line,
            ..whole.clone()
        };
        ProfileError::at(&at, "not UTF-8")
    })?;
    let reader = Reader {
        lines: line_starts(text),
        path,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = reader.at(error.span().map_or(0, |span| span.start));
        ProfileError::at(&at, one_line(error.message()))
    })?;
    reader.file(table.get_ref())
}

/// Where lines begin.
fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    [0].into_iter().chain(ends.map(|(at, _)| at + 1)).collect()
}

/// What a parser says, as a part of one line.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

struct Reader {
    lines: Vec<usize>,
    path: Arc<Path>,
}

/// A word or value, and where it stands.
type At<T> = Spanned<T>;

impl Reader {
    fn at(&self, offset: usize) -> LineOfFile {
        LineOfFile {
            file: Arc::clone(&self.path),
            line: self.lines.partition_point(|start| *start <= offset),
        }
    }

    fn at_word<T>(&self, word: &At<T>) -> LineOfFile {
        self.at(word.span().start)
    }

    fn file(&self, table: &DeTable<'_>) -> Result<ProfileFile, ProfileError> {
        let mut profiles = BTreeMap::new();
        for (name, value) in table {
            let at = self.at_word(name);
            let tables = match (name.get_ref().as_ref(), value.get_ref()) {
                ("profile", DeValue::Table(tables)) => tables,
                ("profile", _) => return Err(ProfileError::at(&at, "write [profile.NAME]")),
                (other, _) => {
                    let advice = advice(other, ["profile"].into_iter());
                    let text = format!(
                        "unknown word {other:?}{advice} (a profile begins with [profile.NAME])"
                    );
                    return Err(ProfileError::at(&at, text));
                }
            };
            for (name, value) in tables {
                let at = self.at_word(name);
                let written = self.profile(name.get_ref(), &at, value)?;
                profiles.insert(name.get_ref().to_string(), written);
            }
        }
        if profiles.len() > PROFILES_MAX {
            let text = format!("more than {PROFILES_MAX} profiles");
            return Err(ProfileError::at(&self.at(0), text));
        }
        Ok(ProfileFile {
            path: Arc::clone(&self.path),
            profiles,
        })
    }

    fn profile(
        &self,
        name: &str,
        at: &LineOfFile,
        value: &At<DeValue<'_>>,
    ) -> Result<WrittenProfile, ProfileError> {
        check_name(name).map_err(|text| ProfileError::at(at, text))?;
        let DeValue::Table(table) = value.get_ref() else {
            let text = format!("{name:?} is no table: write [profile.{name}]");
            return Err(ProfileError::at(at, text));
        };
        let mut written = WrittenProfile {
            at: at.clone(),
            steps: BTreeSet::new(),
            values: BTreeMap::new(),
        };
        for (word, value) in table {
            let step = ProfileTable::of_name(word.get_ref());
            match (step, value.get_ref()) {
                (Some(step), DeValue::Table(of_step)) => {
                    written.steps.insert(step);
                    for (word, value) in of_step {
                        self.value(name, step, word, value, &mut written)?;
                    }
                }
                _ => self.value(name, ProfileTable::Profile, word, value, &mut written)?,
            }
        }
        Ok(written)
    }

    fn value(
        &self,
        profile: &str,
        table: ProfileTable,
        name: &At<std::borrow::Cow<'_, str>>,
        value: &At<DeValue<'_>>,
        written: &mut WrittenProfile,
    ) -> Result<(), ProfileError> {
        let at = self.at_word(name);
        let Some(word) = word(table, name.get_ref()) else {
            return Err(ProfileError::at(
                &at,
                unknown(profile, table, name.get_ref()),
            ));
        };
        let texts = self.texts(word, value)?;
        let line = at.line;
        written
            .values
            .insert((table, word.name), WrittenValue { line, texts });
        Ok(())
    }

    /// The texts of a value, each checked.
    fn texts(
        &self,
        word: Word,
        value: &At<DeValue<'_>>,
    ) -> Result<Vec<(String, usize)>, ProfileError> {
        let list = match (value.get_ref(), word.kind) {
            (DeValue::Boolean(false), kind) if kind != ValueKind::Flag => return Ok(Vec::new()),
            (DeValue::Array(list), kind) if kind.is_list() => list.iter().collect(),
            _ => vec![value],
        };
        let mut texts = Vec::new();
        for each in list {
            let at = self.at_word(each);
            let text = text_of(word, each.get_ref()).map_err(|text| ProfileError::at(&at, text))?;
            if text != INHERITED || !word.kind.is_list() {
                let checked = value::check(word.kind, word.name, &text);
                checked.map_err(|text| ProfileError::at(&at, text))?;
            }
            texts.push((text, at.line));
        }
        Ok(texts)
    }
}

/// A string, or what may stand for one.
fn text_of(word: Word, value: &DeValue<'_>) -> Result<String, String> {
    let (name, kind) = (word.name, word.kind);
    match (value, kind) {
        (DeValue::Boolean(is_on), ValueKind::Flag) => Ok(is_on.to_string()),
        (_, ValueKind::Flag) => Err(format!("{name} is true or false")),
        (DeValue::String(text), _) => Ok(text.to_string()),
        (DeValue::Integer(number), ValueKind::Text) if number.radix() == 10 => {
            Ok(number.as_str().replace('_', ""))
        }
        (_, kind) if kind.is_list() => Err(format!(
            "{name} is a string in quotes, or a list of them: [\"...\", \"...\"]"
        )),
        _ => Err(format!("{name} is one string in quotes")),
    }
}

/// A name is part of names of files and units.
pub fn is_profile_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let is_fine = name.chars().all(is_plain) && !name.starts_with('-') && !name.is_empty();
    is_fine && name.len() <= PROFILE_NAME_BYTES_MAX
}

fn check_name(name: &str) -> Result<(), String> {
    match is_profile_name(name) {
        true => Ok(()),
        false => Err(format!(
            "a profile cannot be called {name:?}: at most {PROFILE_NAME_BYTES_MAX} letters (a to \
             z), digits, - and _, no - in front"
        )),
    }
}

fn unknown(profile: &str, table: ProfileTable, name: &str) -> String {
    if PASSWORDS.contains(&name) {
        return format!(
            "{name}: a profile is no place for a password, as many things read it. Write the \
             password on the first line of a file that only its owner may read, and \
             password-file = \"/THAT/FILE\"; or password-command, which prints it; or key-file"
        );
    }
    let of_table = match table {
        ProfileTable::Profile => format!("profile.{profile}"),
        step => format!("profile.{profile}.{}", step.name()),
    };
    let names = words_of(table).map(|word| word.name);
    let tables = STEPS.iter().map(|step| step.name());
    let is_profile = table == ProfileTable::Profile;
    // A word of another table is more than a likeness; one may have it as well as another.
    let owners = [ProfileTable::Profile].into_iter().chain(STEPS);
    let owners = owners.filter(|owner| *owner != table && word(*owner, name).is_some());
    let owners: Vec<String> = owners
        .map(|owner| match owner {
            ProfileTable::Profile => format!("[profile.{profile}]"),
            step => format!("[profile.{profile}.{}]", step.name()),
        })
        .collect();
    let advice = match &owners[..] {
        [] => advice(name, names.chain(tables.filter(|_| is_profile))),
        owners => format!(": it belongs into {}", owners.join(" or ")),
    };
    format!("{of_table}: unknown word {name:?}{advice}")
}

#[cfg(test)]
mod tests;
