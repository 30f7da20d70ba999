//! Inheritance: what of a profile counts, and where each value comes from.
//!
//! What a profile says itself counts most; of several that it inherits from, a later one counts
//! more than an earlier. A value counts as a whole, but in a list `"..."` stands for what would
//! have been inherited.

use crate::error::{LineOfFile, ProfileError};
use crate::file::{INHERITED, ProfileFile, WrittenProfile};
use crate::nearest::advice;
use crate::profile::{Profile, ResolvedText};
use crate::words::{PARTS_OF_CHECK, ProfileTable, SECRETS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Profiles that one profile may inherit from, counted as often as they are come to.
pub const INHERITED_MAX: usize = 64;

/// Words that are of the profile alone that says them.
const OWN: [&str; 2] = ["inherit", "template"];

type Values = BTreeMap<(ProfileTable, &'static str), Vec<ResolvedText>>;

/// All profiles of the files that count.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    profiles: BTreeMap<String, WrittenProfile>,
}

/// What one profile says and inherits.
#[derive(Default)]
struct Inherited {
    steps: BTreeSet<ProfileTable>,
    values: Values,
}

impl Profiles {
    /// Of several files. Of profiles of one name, that of the last file stands for all.
    pub fn of(files: Vec<ProfileFile>) -> Profiles {
        let profiles = files.into_iter().flat_map(|file| file.profiles);
        Profiles {
            profiles: profiles.collect(),
        }
    }

    /// In order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// Where a profile begins.
    pub fn place(&self, name: &str) -> Option<&LineOfFile> {
        self.profiles.get(name).map(|profile| &profile.at)
    }

    /// A profile with what it inherits.
    pub fn resolve(&self, name: &str) -> Result<Profile, ProfileError> {
        let written = self.profiles.get(name).ok_or_else(|| self.unknown(name))?;
        let mut count = 0;
        let found = self.collect(name, written, &mut Vec::new(), &mut count)?;
        let is_own_backup = written.steps.contains(&ProfileTable::Backup);
        let steps = (found.steps, is_own_backup);
        Profile::new(name, written.at.clone(), steps, found.values)
    }

    fn unknown(&self, name: &str) -> ProfileError {
        let text = match self.profiles.is_empty() {
            true => format!("there is no profile {name:?}: no file has any"),
            false => {
                let names: Vec<_> = self.names().collect();
                let advice = advice(name, self.names());
                format!(
                    "there is no profile {name:?}{advice} (there are: {})",
                    names.join(", ")
                )
            }
        };
        ProfileError::Unknown(text)
    }

    fn collect<'s>(
        &'s self,
        name: &'s str,
        written: &'s WrittenProfile,
        path: &mut Vec<&'s str>,
        count: &mut usize,
    ) -> Result<Inherited, ProfileError> {
        path.push(name);
        let mut found = Inherited::default();
        let parents = written.values.get(&(ProfileTable::Profile, "inherit"));
        for (parent, line) in parents.iter().flat_map(|parents| &parents.texts) {
            let at = LineOfFile {
                line: *line,
                ..written.at.clone()
            };
            let Some((parent, its)) = self.profiles.get_key_value(parent) else {
                let unknown = self.unknown(parent);
                return Err(ProfileError::at(&at, format!("inherit: {unknown}")));
            };
            if path.contains(&parent.as_str()) {
                let circle = [path.join(" inherits from "), parent.clone()].join(" inherits from ");
                return Err(ProfileError::at(&at, format!("a circle: {circle}")));
            }
            *count += 1;
            if *count > INHERITED_MAX {
                let text = format!("it inherits from more than {INHERITED_MAX} profiles");
                return Err(ProfileError::at(&at, text));
            }
            let theirs = self.collect(parent, its, path, count)?;
            found.steps.extend(theirs.steps);
            overlay(&mut found.values, theirs.values);
        }
        path.pop();
        let name: Arc<str> = name.into();
        let own = written.values.iter().map(|(key, value)| {
            let resolved = |(text, line): &(String, usize)| ResolvedText {
                text: text.clone(),
                profile: Arc::clone(&name),
                at: LineOfFile {
                    line: *line,
                    ..written.at.clone()
                },
            };
            (*key, value.texts.iter().map(resolved).collect::<Vec<_>>())
        });
        found
            .values
            .retain(|(table, word), _| *table != ProfileTable::Profile || !OWN.contains(word));
        let own: Values = own.collect();
        overlay(&mut found.values, own);
        found.steps.extend(&written.steps);
        Ok(found)
    }
}

/// Lays what counts more over what counts less.
fn overlay(under: &mut Values, over: Values) {
    for ((table, word), texts) in over {
        let others: &[&str] = match (table, word) {
            (ProfileTable::Profile, word) if SECRETS.contains(&word) => &SECRETS,
            (ProfileTable::Check, word) if PARTS_OF_CHECK.contains(&word) => &PARTS_OF_CHECK,
            _ => &[],
        };
        // One that is switched off says nothing of the others.
        let is_off = texts.iter().all(|text| text.text == "false");
        for other in others.iter().filter(|other| **other != word && !is_off) {
            if let Some(inherited) = under.get(&(table, *other)) {
                // Of one profile both are there, for whoever checks to see.
                let is_same =
                    |one: &ResolvedText| texts.iter().any(|text| text.profile == one.profile);
                if !inherited.iter().any(is_same) {
                    under.remove(&(table, *other));
                }
            }
        }
        let mut inherited = under.remove(&(table, word)).unwrap_or_default();
        let mut laid = Vec::with_capacity(texts.len());
        for text in texts {
            match text.text == INHERITED {
                true => laid.append(&mut inherited),
                false => laid.push(text),
            }
        }
        under.insert((table, word), laid);
    }
}

#[cfg(test)]
mod tests;
