//! Patterns that leave out, in the order of the command line: a later one decides over an earlier
//! one, whichever option gave it.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};
use std::path::PathBuf;

/// One of the options, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclude {
    /// `--exclude`
    Pattern(String),
    /// `--iexclude`
    IgnoringCase(String),
    /// `--exclude-file`
    File(PathBuf),
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    /// In the order of the command line.
    pub given: Vec<Exclude>,
}

/// The options as clap knows them: each alone, without its place among the others.
#[derive(Debug, Args)]
struct ExcludeWords {
    /// Leave out what matches: a name (*.o) or a/b anywhere, /home/*/x the whole path; * and ? stay
    /// within a name, ** is any number of directories, ! in front takes back what an earlier
    /// pattern left out
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// The same without regard to case
    #[arg(long, value_name = "PATTERN")]
    iexclude: Vec<String>,
    /// Read patterns from a file, one a line; # starts a comment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    exclude_file: Vec<PathBuf>,
}

impl Args for Excludes {
    fn augment_args(command: Command) -> Command {
        ExcludeWords::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ExcludeWords::augment_args_for_update(command)
    }
}

impl FromArgMatches for Excludes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Excludes, Error> {
        let words = ExcludeWords::from_arg_matches(matches)?;
        let mut given: Vec<(usize, Exclude)> = Vec::new();
        let mut add = |option: &str, values: Vec<Exclude>| {
            let indices = matches.indices_of(option).into_iter().flatten();
            given.extend(indices.zip(values));
        };
        let patterns = words.exclude.into_iter().map(Exclude::Pattern);
        add("exclude", patterns.collect());
        let ignoring_case = words.iexclude.into_iter().map(Exclude::IgnoringCase);
        add("iexclude", ignoring_case.collect());
        let files = words.exclude_file.into_iter().map(Exclude::File);
        add("exclude_file", files.collect());
        given.sort_by_key(|(index, _)| *index);
        Ok(Excludes {
            given: given.into_iter().map(|(_, exclude)| exclude).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Excludes::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_the_order_of_the_command_line() {
        let command = Excludes::augment_args(Command::new("test"));
        let words = "test --iexclude A -e b --exclude-file c --exclude=d --iexclude E -e !f";
        let matches = command.get_matches_from(words.split(' '));
        let pattern = |text: &str| Exclude::Pattern(text.to_owned());
        let ignoring_case = |text: &str| Exclude::IgnoringCase(text.to_owned());
        assert_eq!(
            Excludes::from_arg_matches(&matches).unwrap().given,
            [
                ignoring_case("A"),
                pattern("b"),
                Exclude::File("c".into()),
                pattern("d"),
                ignoring_case("E"),
                pattern("!f"),
            ]
        );
    }
}
