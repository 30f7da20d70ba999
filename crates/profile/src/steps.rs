//! The command of each step: its words, and the variables of its environment.
//!
//! What opens the repository, or may hold a password, goes by the environment and never onto a
//! command line, which every user of the machine can read.

use crate::profile::Profile;
use crate::words::{Carrier, ProfileTable, ValueKind, words_of};
use std::collections::BTreeMap;

/// What a command needs to know beside the profile.
#[derive(Clone, Debug, Default)]
pub struct StepFacts {
    /// How this machine is called, where the profile does not say.
    pub host: String,
    /// Of a check of parts in turn, which.
    pub part: Option<(u32, u32)>,
}

/// A command: what is behind `bale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCommand {
    /// Words.
    pub words: Vec<String>,
    /// Variables of the environment.
    pub variables: BTreeMap<&'static str, String>,
}

/// In `read-data-subset`: parts in turn.
const IN_TURN: &str = "next/";

/// Parts that a repository is checked in, at most.
const PARTS_MAX: u32 = 100_000;

/// In how many parts the check reads the repository in turn, if it does (`next/7`).
pub fn parts_in_turn(profile: &Profile) -> Option<u32> {
    let text = profile.text(ProfileTable::Check, "read-data-subset")?;
    let parts: u32 = text.strip_prefix(IN_TURN)?.parse().ok()?;
    (1..=PARTS_MAX).contains(&parts).then_some(parts)
}

/// The command of a step.
pub fn command(profile: &Profile, step: ProfileTable, facts: &StepFacts) -> StepCommand {
    let mut words = vec![step.name().to_owned()];
    for word in words_of(step).filter(|word| word.carrier == Carrier::Option) {
        let name = word.name;
        for text in profile.texts(step, name).iter().map(|text| &text.text) {
            match word.kind {
                ValueKind::Flag if text == "true" => words.push(format!("--{name}")),
                ValueKind::Flag => {}
                _ => words.push(format!("--{name}={}", in_turn(text, facts))),
            }
        }
    }
    match step {
        ProfileTable::Backup => of_backup(profile, &mut words),
        ProfileTable::Forget => of_forget(profile, facts, &mut words),
        _ => {}
    }
    StepCommand {
        words,
        variables: variables(profile),
    }
}

/// The environment of every step.
pub fn variables(profile: &Profile) -> BTreeMap<&'static str, String> {
    let words = words_of(ProfileTable::Profile);
    let of_word = |word: crate::words::Word| match word.carrier {
        Carrier::Variable(variable) => {
            let text = profile.text(ProfileTable::Profile, word.name)?;
            Some((variable, text.to_owned()))
        }
        _ => None,
    };
    words.filter_map(of_word).collect()
}

fn in_turn(text: &str, facts: &StepFacts) -> String {
    match (text.starts_with(IN_TURN), facts.part) {
        (true, Some((part, parts))) => format!("{part}/{parts}"),
        _ => text.to_owned(),
    }
}

fn of_backup(profile: &Profile, words: &mut Vec<String>) {
    let program = profile.texts(ProfileTable::Backup, "stdin-from-command");
    let sources = profile.texts(ProfileTable::Profile, "sources");
    if !program.is_empty() {
        words.push("--stdin-from-command".to_owned());
    }
    let last = sources.iter().chain(program).map(|text| text.text.clone());
    let last: Vec<String> = last.collect();
    if !last.is_empty() {
        words.push("--".to_owned());
        words.extend(last);
    }
}

/// A forget is about what the profile backs up, unless it says otherwise: never about the snapshots
/// of others.
fn of_forget(profile: &Profile, facts: &StepFacts, words: &mut Vec<String>) {
    let says = |word| !profile.texts(ProfileTable::Forget, word).is_empty();
    if !says("host") && !profile.is_on(ProfileTable::Forget, "all-hosts") {
        let host = profile.text(ProfileTable::Profile, "host");
        words.push(format!("--host={}", host.unwrap_or(&facts.host)));
    }
    if !profile.has_step(ProfileTable::Backup) {
        return;
    }
    if !says("path") {
        let sources = profile.texts(ProfileTable::Profile, "sources");
        words.extend(
            sources
                .iter()
                .map(|source| format!("--path={}", source.text)),
        );
        if !profile
            .texts(ProfileTable::Backup, "stdin-from-command")
            .is_empty()
        {
            let name = profile.text(ProfileTable::Backup, "stdin-filename");
            words.push(format!("--path=/{}", name.unwrap_or("stdin")));
        }
    }
    if !says("tag") {
        let tags = profile.texts(ProfileTable::Backup, "tag");
        let tags: Vec<_> = tags.iter().map(|tag| tag.text.as_str()).collect();
        if !tags.is_empty() {
            words.push(format!("--tag={}", tags.join(",")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inherit::Profiles;
    use std::path::Path;

    fn profile(text: &str) -> Profile {
        let file = crate::file::parse(Path::new("f"), text.as_bytes());
        Profiles::of(vec![file.unwrap()]).resolve("p").unwrap()
    }

    fn line(profile: &Profile, step: ProfileTable) -> String {
        let facts = StepFacts {
            host: "web1".to_owned(),
            part: Some((2, 7)),
        };
        command(profile, step, &facts).words.join(" ")
    }

    #[test]
    fn options_are_those_of_the_commands() {
        let profile = profile(
            "[profile.p]\nsources = [\"/home\", \"/-x\"]\n[profile.p.backup]\n\
             exclude = [\"*.o\", \"--force\"]\nexclude-caches = true\nno-freeze = false\n\
             retain = 30\ntag = [\"a\", \"b\"]\n[profile.p.forget]\nkeep-daily = 7\n\
             keep-last = \"unlimited\"\n[profile.p.prune]\nrepack-below = 50\n[profile.p.check]\n\
             read-data-subset = \"next/7\"\n",
        );
        assert_eq!(
            line(&profile, ProfileTable::Backup),
            "backup --exclude=*.o --exclude=--force --exclude-caches --tag=a --tag=b --retain=30 \
             -- /home /-x"
        );
        assert_eq!(
            line(&profile, ProfileTable::Forget),
            "forget --keep-last=unlimited --keep-daily=7 --host=web1 --path=/home --path=/-x \
             --tag=a,b"
        );
        assert_eq!(
            line(&profile, ProfileTable::Prune),
            "prune --repack-below=50"
        );
        assert_eq!(
            line(&profile, ProfileTable::Check),
            "check --read-data-subset=2/7"
        );
        assert_eq!(parts_in_turn(&profile), Some(7));
    }

    #[test]
    fn a_forget_is_about_the_profiles_own_snapshots_unless_it_says_otherwise() {
        let own =
            "[profile.p]\nsources = \"/home\"\nhost = \"db\"\n[profile.p.forget]\nkeep-last = 1\n";
        let forget = |text: &str| line(&profile(&format!("{own}{text}")), ProfileTable::Forget);
        assert_eq!(forget(""), "forget --keep-last=1 --host=db --path=/home");
        assert_eq!(
            forget("host = [\"a\", \"b\"]\npath = \"/srv\"\n"),
            "forget --host=a --host=b --path=/srv --keep-last=1"
        );
        assert_eq!(
            forget("all-hosts = true\n"),
            "forget --keep-last=1 --path=/home"
        );
    }

    #[test]
    fn the_output_of_a_program_is_backed_up_behind_two_hyphens() {
        let profile = profile(
            "[profile.p.backup]\nstdin-from-command = [\"pg_dump\", \"--clean\"]\n\
             stdin-filename = \"db.sql\"\n[profile.p.forget]\nkeep-daily = 7\n",
        );
        assert_eq!(
            line(&profile, ProfileTable::Forget),
            "forget --keep-daily=7 --host=web1 --path=/db.sql"
        );
        assert_eq!(
            line(&profile, ProfileTable::Backup),
            "backup --stdin-filename=db.sql --stdin-from-command -- pg_dump --clean"
        );
    }

    #[test]
    fn what_leads_to_secrets_is_on_no_command_line() {
        let profile = profile(
            "[profile.p]\nsources = \"/home\"\nrepository = \"rest:https://host/x\"\n\
             password-command = \"pass show bale\"\nlogin-file = \"/l\"\nlog-file = \"/log\"\n",
        );
        let command = command(&profile, ProfileTable::Backup, &StepFacts::default());
        assert_eq!(command.words, ["backup", "--", "/home"]);
        let variables: Vec<_> = command.variables.keys().copied().collect();
        assert_eq!(
            variables,
            [
                "BALE_LOGIN_FILE",
                "BALE_LOG_FILE",
                "BALE_PASSWORD_COMMAND",
                "BALE_REPOSITORY"
            ]
        );
    }
}
