//! One profile with all that it inherits: what counts, each text with its line.

use crate::calendar::Times;
use crate::error::{LineOfFile, ProfileError};
use crate::value::span;
use crate::words::{PARTS_OF_CHECK, ProfileTable, SECRETS, STEPS, Word, words_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a hook may take, where nobody says otherwise.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(300);
/// By how much a timer spreads its starts, where nobody says otherwise.
pub const RANDOM_DELAY: Duration = Duration::from_secs(900);

/// Words that say what a backup is of, beside `sources`.
const OF_BACKUP: [&str; 4] = ["image", "files-from", "files-from0", "stdin-from-command"];

/// A text of a value, and who says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedText {
    /// The text.
    pub text: String,
    /// The profile whose word it is.
    pub profile: Arc<str>,
    /// Where it stands.
    pub at: LineOfFile,
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookMoment {
    /// Before the run or step; if one fails, it does not begin.
    Before,
    /// After it, however it ended.
    After,
    /// After it, if it failed.
    OnFailure,
}

impl HookMoment {
    /// The word of a profile.
    pub fn word(self) -> &'static str {
        match self {
            HookMoment::Before => "before",
            HookMoment::After => "after",
            HookMoment::OnFailure => "on-failure",
        }
    }
}

/// A profile as it counts.
#[derive(Clone, Debug)]
pub struct Profile {
    name: String,
    at: LineOfFile,
    steps: BTreeSet<ProfileTable>,
    values: BTreeMap<(ProfileTable, &'static str), Vec<ResolvedText>>,
}

impl Profile {
    /// What contradicts itself is refused. `is_own_backup`: the profile itself, and not only one
    /// that it inherits from, has a table for backup.
    pub(crate) fn new(
        name: &str,
        at: LineOfFile,
        (steps, is_own_backup): (BTreeSet<ProfileTable>, bool),
        values: BTreeMap<(ProfileTable, &'static str), Vec<ResolvedText>>,
    ) -> Result<Profile, ProfileError> {
        let mut profile = Profile {
            name: name.to_owned(),
            at,
            steps,
            values,
        };
        match profile.backs_up() {
            true => profile.steps.insert(ProfileTable::Backup),
            // Of a table that was inherited: it says how, and not that.
            false if !is_own_backup => profile.steps.remove(&ProfileTable::Backup),
            false => false,
        };
        let (steps, values) = (&profile.steps, &profile.values);
        let is_off = |step: &ProfileTable| {
            let texts = values.get(&(*step, "enabled"));
            texts.is_some_and(|texts| texts.iter().any(|text| text.text == "false"))
        };
        profile.steps = steps.iter().copied().filter(|step| !is_off(step)).collect();
        profile.one_of(ProfileTable::Profile, &SECRETS)?;
        profile.one_of(ProfileTable::Check, &PARTS_OF_CHECK)?;
        if !profile.is_template() {
            profile.check_steps()?;
        }
        Ok(profile)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it begins.
    pub fn place(&self) -> &LineOfFile {
        &self.at
    }

    /// Others inherit from it; it is never run.
    pub fn is_template(&self) -> bool {
        self.is_on(ProfileTable::Profile, "template")
    }

    /// Is the step a part of its runs?
    pub fn has_step(&self, step: ProfileTable) -> bool {
        self.steps.contains(&step)
    }

    /// In their order.
    pub fn steps(&self) -> impl Iterator<Item = ProfileTable> {
        STEPS.into_iter().filter(|step| self.has_step(*step))
    }

    /// The texts of a word; none if nobody says anything, or somebody takes it back.
    pub fn texts(&self, table: ProfileTable, word: &str) -> &[ResolvedText] {
        let of_table = self.values.iter().filter(|((of, _), _)| *of == table);
        let mut found = of_table.filter(|((_, name), _)| *name == word);
        found.next().map_or(&[], |(_, texts)| texts)
    }

    /// The one text of a word.
    pub fn text(&self, table: ProfileTable, word: &str) -> Option<&str> {
        self.texts(table, word)
            .first()
            .map(|text| text.text.as_str())
    }

    /// Of a word that is true or false.
    pub fn is_on(&self, table: ProfileTable, word: &str) -> bool {
        self.text(table, word) == Some("true")
    }

    /// All words that have a value, in the order of their tables.
    pub fn values(&self) -> impl Iterator<Item = (Word, &[ResolvedText])> {
        let tables = [ProfileTable::Profile].into_iter().chain(STEPS);
        let words = tables.flat_map(words_of);
        words
            .map(|word| (word, self.texts(word.table, word.name)))
            .filter(|(_, texts)| !texts.is_empty())
    }

    /// When a step is due: as its table says, or else as the profile does.
    pub fn times_of(&self, step: ProfileTable) -> Vec<Times> {
        let own = self.texts(step, "schedule");
        let texts = match own {
            [] => self.texts(ProfileTable::Profile, "schedule"),
            own => own,
        };
        texts
            .iter()
            .filter_map(|text| Times::parse(&text.text).ok())
            .collect()
    }

    /// When a timer starts it: each moment of any of its steps, once.
    pub fn times(&self) -> Vec<Times> {
        let mut times: Vec<Times> = Vec::new();
        for each in self.steps().flat_map(|step| self.times_of(step)) {
            if !times.contains(&each) {
                times.push(each);
            }
        }
        times
    }

    /// By how much a timer spreads its starts.
    pub fn random_delay(&self) -> Duration {
        let text = self.text(ProfileTable::Profile, "random-delay");
        text.and_then(span).unwrap_or(RANDOM_DELAY)
    }

    /// How long a hook of the profile or of a step may take.
    pub fn hook_timeout(&self, table: ProfileTable) -> Duration {
        let own = self.text(table, "hook-timeout");
        let text = own.or_else(|| self.text(ProfileTable::Profile, "hook-timeout"));
        text.and_then(span).unwrap_or(HOOK_TIMEOUT)
    }

    /// The commands of a moment, in their order.
    pub fn hooks(&self, table: ProfileTable, moment: HookMoment) -> &[ResolvedText] {
        self.texts(table, moment.word())
    }

    /// Does it start programs of the user, that may need any right?
    pub fn starts_programs(&self) -> bool {
        let tables = || [ProfileTable::Profile].into_iter().chain(STEPS);
        let moments = [HookMoment::Before, HookMoment::After, HookMoment::OnFailure];
        let has_hook = tables().any(|table| {
            moments
                .iter()
                .any(|moment| !self.hooks(table, *moment).is_empty())
        });
        let others = [
            (ProfileTable::Profile, "password-command"),
            (ProfileTable::Profile, "mail"),
            (ProfileTable::Backup, "snapshot-command"),
            (ProfileTable::Backup, "stdin-from-command"),
        ];
        has_hook
            || others
                .iter()
                .any(|(table, word)| !self.texts(*table, word).is_empty())
    }

    /// Does it name anything that is backed up?
    fn backs_up(&self) -> bool {
        let of_backup = |word: &&str| !self.texts(ProfileTable::Backup, word).is_empty();
        !self.texts(ProfileTable::Profile, "sources").is_empty() || OF_BACKUP.iter().any(of_backup)
    }

    fn one_of(&self, table: ProfileTable, words: &[&str]) -> Result<(), ProfileError> {
        let is_given = |word: &&&str| {
            self.texts(table, word)
                .iter()
                .any(|text| text.text != "false")
        };
        let given: Vec<_> = words.iter().filter(is_given).collect();
        match given[..] {
            [first, second, ..] => {
                let at = &self.texts(table, second)[0].at;
                let text = format!("{first} and {second}: which of them is meant? Give one");
                Err(ProfileError::at(at, text))
            }
            _ => Ok(()),
        }
    }

    fn check_steps(&self) -> Result<(), ProfileError> {
        let wrong = |text: &str| Err(ProfileError::at(&self.at, format!("{}: {text}", self.name)));
        if self.has_step(ProfileTable::Backup) && !self.backs_up() {
            return wrong("it has a table for backup, and nothing to back up: name sources");
        }
        if self.has_step(ProfileTable::Backup) && self.kinds_of_backup() > 1 {
            return wrong(
                "a backup is of sources, or of images, or of a program's output: name one",
            );
        }
        if self.steps.is_empty() {
            return wrong(
                "nothing to do: name sources, or a table of prune, check or forget; of a profile \
                 that others inherit from, say template = true",
            );
        }
        if !self.has_step(ProfileTable::Forget) {
            return Ok(());
        }
        let mut rules =
            words_of(ProfileTable::Forget).filter(|word| word.name.starts_with("keep-"));
        if !rules.any(|word| !self.texts(ProfileTable::Forget, word.name).is_empty()) {
            return wrong("forget has no rule of keeping: write for example keep-daily = 7");
        }
        let says = |word| !self.texts(ProfileTable::Forget, word).is_empty();
        let is_bound = match self.has_step(ProfileTable::Backup) {
            // By paths that are known, or by tags: a forget must be about its own snapshots.
            true => {
                !self.texts(ProfileTable::Profile, "sources").is_empty()
                    || !self
                        .texts(ProfileTable::Backup, "stdin-from-command")
                        .is_empty()
                    || !self.texts(ProfileTable::Backup, "tag").is_empty()
                    || says("path")
                    || says("tag")
            }
            false => {
                ["host", "path", "tag"].into_iter().any(says)
                    || self.is_on(ProfileTable::Forget, "all-hosts")
            }
        };
        match is_bound {
            true => Ok(()),
            false if self.has_step(ProfileTable::Backup) => wrong(
                "which snapshots is its forget about? Name a path or a tag in its table, or a tag \
                 in that of backup",
            ),
            false => wrong(
                "it backs up nothing: which snapshots is its forget about? Name a host, a path or \
                 a tag in its table, or write all-hosts = true",
            ),
        }
    }

    fn kinds_of_backup(&self) -> usize {
        let has = |word| !self.texts(ProfileTable::Backup, word).is_empty();
        let is_of_files = !self.texts(ProfileTable::Profile, "sources").is_empty()
            || has("files-from")
            || has("files-from0");
        [is_of_files, has("image"), has("stdin-from-command")]
            .iter()
            .filter(|kind| **kind)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use crate::inherit::Profiles;
    use std::path::Path;

    fn refused(text: &str) -> String {
        let text = format!("[profile.p]\n{text}");
        let file = crate::file::parse(Path::new("f"), text.as_bytes()).unwrap();
        let resolved = Profiles::of(vec![file]).resolve("p");
        resolved.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (text, why) in [
            ("", "nothing to do"),
            (
                "[profile.p.backup]\nexclude = \"x\"\n",
                "nothing to back up",
            ),
            (
                "sources = \"/a\"\n[profile.p.forget]\n",
                "no rule of keeping",
            ),
            ("[profile.p.forget]\nkeep-daily = 7\n", "all-hosts = true"),
            (
                "sources = \"/a\"\nkey-file = \"/k\"\npassword-file = \"/p\"\n",
                "Give one",
            ),
            (
                "sources = \"/a\"\n[profile.p.backup]\nimage = \"/dev/sda\"\n",
                "name one",
            ),
            (
                "sources = \"/a\"\n[profile.p.check]\nread-data = true\nscrub = true\n",
                "Give one",
            ),
        ] {
            let refused = refused(text);
            assert!(
                refused.starts_with("f:") && refused.contains(why),
                "{text:?}: {refused}"
            );
        }
        for fine in [
            "template = true\n",
            "sources = \"/a\"\n[profile.p.forget]\nkeep-daily = 7\n",
            "[profile.p.forget]\nkeep-daily = 7\nall-hosts = true\n",
            "sources = \"/a\"\n[profile.p.forget]\nenabled = false\n",
            "[profile.p.prune]\n",
        ] {
            assert_eq!(refused(fine), "", "{fine:?}");
        }
    }
}
