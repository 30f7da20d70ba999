//! Options of `profile`, and which files hold profiles.

use super::NoRepository;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Where profiles are.
#[derive(Clone, Debug, Args)]
pub struct ProfileFiles {
    /// Read profiles from this file (repeat for several; of profiles of one name the last file's
    /// counts) [env: BALE_PROFILES] [default: /etc/bale/bale.toml and bale/bale.toml in the user's
    /// configuration directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profiles: Vec<PathBuf>,
}

/// Which profiles a command is about.
#[derive(Clone, Debug, Args)]
pub struct ChosenProfiles {
    /// Profiles, one after the other
    #[arg(value_name = "PROFILE", required_unless_present = "all")]
    pub names: Vec<String>,
    /// All profiles but templates; of a schedule, all that have one
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
}

/// `profile`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Print what of a profile counts, and where each value comes from
    #[command(after_help = "Examples:\n  bale profile show home\n  \
            bale profile show --profiles ./bale.toml --json")]
    Show(ProfileShow),
    /// List the profiles
    #[command(after_help = "Examples:\n  bale profile list\n  bale profile list --json")]
    List(ProfileList),
}

/// `profile show`
#[derive(Debug, Args)]
pub struct ProfileShow {
    /// Profiles [default: all]
    #[arg(value_name = "PROFILE")]
    pub names: Vec<String>,
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}

/// `profile list`
#[derive(Debug, Args)]
pub struct ProfileList {
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use bale_profile::words::{Carrier, ProfileTable, STEPS, ValueKind, words_of};
    use clap::{ArgAction, CommandFactory};

    /// Options that are no words of profiles: of one run alone, or of `run` itself.
    const NOT_IN_PROFILES: [(ProfileTable, &[&str]); 4] = [
        (
            ProfileTable::Backup,
            &[
                // Of the profile itself.
                "host",
                "stdin",
                "stdin-from-command",
                "parent",
                "time",
                "init",
                "dry-run",
                "changes",
                "changes-since",
                "changes-only",
                "changes-block-size",
            ],
        ),
        // A prune is a step of its own.
        (
            ProfileTable::Forget,
            &[
                "prune",
                "dry-run",
                "grace",
                "repack-below",
                "despite-sudden-change",
            ],
        ),
        (ProfileTable::Prune, &["dry-run", "despite-sudden-change"]),
        (ProfileTable::Check, &[]),
    ];

    #[test]
    fn profiles_have_the_options_of_their_commands() {
        let all = Cli::command();
        for step in STEPS {
            let command = all
                .find_subcommand(step.name())
                .expect("each step is a command");
            let options: Vec<_> = command
                .get_arguments()
                .filter(|option| !option.is_global_set())
                .filter_map(|option| Some((option.get_long()?, option)))
                .collect();
            let others = NOT_IN_PROFILES.iter().find(|(of, _)| *of == step);
            let (_, others) = others.expect("each step has its line");
            let words: Vec<_> = words_of(step)
                .filter(|word| word.carrier == Carrier::Option)
                .collect();
            for (name, _) in &options {
                let is_word = words.iter().any(|word| word.name == *name);
                let is_other = others.contains(name);
                assert!(
                    is_word != is_other,
                    "{}: --{name}: a line in bale-profile's words.rs, or one above",
                    step.name()
                );
            }
            for word in words {
                let option = options.iter().find(|(name, _)| *name == word.name);
                let (_, option) = option.unwrap_or_else(|| panic!("no option --{}", word.name));
                let is_flag = !option.get_action().takes_values();
                assert_eq!(is_flag, word.kind == ValueKind::Flag, "{}", word.name);
                let repeats = matches!(option.get_action(), ArgAction::Append);
                assert_eq!(repeats, word.kind.is_list(), "{}", word.name);
            }
        }
    }

    #[test]
    fn variables_of_profiles_are_those_that_options_of_every_command_name() {
        let all = Cli::command();
        for word in words_of(ProfileTable::Profile) {
            let Carrier::Variable(variable) = word.carrier else {
                continue;
            };
            // Of a repository, and what children write beside.
            let long = match word.name {
                "repository" => "repo",
                "host" | "metrics-dir" | "log-file" => continue,
                name => name,
            };
            let option = all
                .get_arguments()
                .find(|option| option.get_long() == Some(long));
            let option = option.unwrap_or_else(|| panic!("no option --{long}"));
            let help = option.get_help().expect("it has a help").to_string();
            assert!(help.contains(variable), "{variable}: {help}");
        }
    }
}
