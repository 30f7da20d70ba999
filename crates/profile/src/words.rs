//! The words of a profile: one table, a line for each. What a command calls an option, a profile
//! calls so too; a new option is a new line here.

/// What of a profile a word stands in: the profile itself, or the table of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProfileTable {
    /// `[profile.NAME]`
    Profile,
    /// `[profile.NAME.backup]`
    Backup,
    /// `[profile.NAME.forget]`
    Forget,
    /// `[profile.NAME.prune]`
    Prune,
    /// `[profile.NAME.check]`
    Check,
}

/// The steps of a run, in their order.
pub const STEPS: [ProfileTable; 4] = [
    ProfileTable::Backup,
    ProfileTable::Forget,
    ProfileTable::Prune,
    ProfileTable::Check,
];

impl ProfileTable {
    /// The command of a step, which is its table's name too. Of the profile: empty.
    pub fn name(self) -> &'static str {
        match self {
            ProfileTable::Profile => "",
            ProfileTable::Backup => "backup",
            ProfileTable::Forget => "forget",
            ProfileTable::Prune => "prune",
            ProfileTable::Check => "check",
        }
    }

    /// The step of that name.
    pub fn of_name(name: &str) -> Option<ProfileTable> {
        STEPS.into_iter().find(|step| step.name() == name)
    }
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `true` or `false`.
    Flag,
    /// A string, or a number.
    Text,
    /// One string, or a list of them.
    Texts,
    /// A whole path.
    Path,
    /// One whole path, or a list of them.
    Paths,
    /// A repository or store: a whole path, or a place on a server, without a password in it.
    Store,
    /// One command for the shell, or a list of them.
    Commands,
    /// A program and its words.
    Program,
    /// When, in the words of `calendar`.
    Times,
    /// `90s`, `15m`, `2h`.
    Span,
    /// An http or https address.
    Address,
    /// Addresses of mail.
    Mail,
    /// Names of profiles.
    Names,
}

impl ValueKind {
    /// May there be several?
    pub fn is_list(self) -> bool {
        use ValueKind::{Commands, Mail, Names, Paths, Program, Texts, Times};
        matches!(
            self,
            Texts | Paths | Commands | Program | Times | Mail | Names
        )
    }
}

/// How a value reaches the command of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// As the option of its name.
    Option,
    /// As a variable of the environment of every step: it may lead to a secret, or hold one.
    Variable(&'static str),
    /// It is for `bale run` itself.
    Run,
}

/// One word of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Where it stands.
    pub table: ProfileTable,
    /// As it is written.
    pub name: &'static str,
    /// What it may say.
    pub kind: ValueKind,
    /// What becomes of it.
    pub carrier: Carrier,
}

const fn of(table: ProfileTable, name: &'static str, kind: ValueKind, carrier: Carrier) -> Word {
    Word {
        table,
        name,
        kind,
        carrier,
    }
}

use Carrier::{Option as Opt, Run, Variable as Var};
use ProfileTable::{Backup, Check, Forget, Profile, Prune};
use ValueKind::{
    Address, Commands, Flag, Mail, Names, Path, Paths, Program, Span, Store, Text, Texts, Times,
};

/// All words but [`OF_EVERY_STEP`], in the order in which they are shown and given to commands.
#[rustfmt::skip] // A line for each.
const WORDS: &[Word] = &[
    of(Profile, "inherit", Names, Run),
    of(Profile, "template", Flag, Run),
    of(Profile, "sources", Paths, Run),
    of(Profile, "host", Text, Var("BALE_HOST")),
    of(Profile, "repository", Store, Var("BALE_REPOSITORY")),
    of(Profile, "cold", Store, Var("BALE_COLD")),
    of(Profile, "password-file", Path, Var("BALE_PASSWORD_FILE")),
    of(Profile, "password-command", Text, Var("BALE_PASSWORD_COMMAND")),
    of(Profile, "key-file", Path, Var("BALE_KEY_FILE")),
    of(Profile, "login-file", Path, Var("BALE_LOGIN_FILE")),
    of(Profile, "cold-login-file", Path, Var("BALE_COLD_LOGIN_FILE")),
    of(Profile, "ca-file", Path, Var("BALE_CA_FILE")),
    of(Profile, "cache-dir", Path, Var("BALE_CACHE_DIR")),
    of(Profile, "cache-size", Text, Var("BALE_CACHE_SIZE")),
    of(Profile, "memory", Text, Var("BALE_MEMORY")),
    of(Profile, "pack-size", Text, Var("BALE_PACK_SIZE")),
    of(Profile, "compression", Text, Var("BALE_COMPRESSION")),
    of(Profile, "storage-class", Text, Var("BALE_STORAGE_CLASS")),
    of(Profile, "limit-upload", Text, Var("BALE_LIMIT_UPLOAD")),
    of(Profile, "limit-download", Text, Var("BALE_LIMIT_DOWNLOAD")),
    of(Profile, "retry-for", Text, Var("BALE_RETRY_FOR")),
    of(Profile, "connect-timeout", Text, Var("BALE_CONNECT_TIMEOUT")),
    of(Profile, "idle-timeout", Text, Var("BALE_IDLE_TIMEOUT")),
    of(Profile, "metrics-dir", Path, Var("BALE_METRICS_DIR")),
    of(Profile, "log-file", Path, Var("BALE_LOG_FILE")),
    of(Profile, "schedule", Times, Run),
    of(Profile, "random-delay", Span, Run),
    of(Profile, "before", Commands, Run),
    of(Profile, "after", Commands, Run),
    of(Profile, "on-failure", Commands, Run),
    of(Profile, "hook-timeout", Span, Run),
    of(Profile, "ping", Address, Run),
    of(Profile, "mail", Mail, Run),
    of(Backup, "exclude", Texts, Opt),
    of(Backup, "iexclude", Texts, Opt),
    of(Backup, "exclude-file", Paths, Opt),
    of(Backup, "exclude-if-present", Texts, Opt),
    of(Backup, "exclude-caches", Flag, Opt),
    of(Backup, "exclude-larger-than", Text, Opt),
    of(Backup, "include-repositories", Flag, Opt),
    of(Backup, "one-file-system", Flag, Opt),
    of(Backup, "scan", Text, Opt),
    of(Backup, "no-freeze", Flag, Opt),
    of(Backup, "files-from", Paths, Opt),
    of(Backup, "files-from0", Paths, Opt),
    of(Backup, "snapshot-command", Text, Opt),
    of(Backup, "image", Texts, Opt),
    of(Backup, "image-format", Text, Opt),
    of(Backup, "allow-files-elsewhere", Flag, Opt),
    of(Backup, "point-in-time", Flag, Opt),
    of(Backup, "frozen", Flag, Opt),
    of(Backup, "read-free", Flag, Opt),
    of(Backup, "trust-metadata", Flag, Opt),
    of(Backup, "no-file-catalog", Flag, Opt),
    of(Backup, "allow-fuzzy", Flag, Opt),
    of(Backup, "stdin-from-command", Program, Run),
    of(Backup, "stdin-filename", Text, Opt),
    of(Backup, "tag", Texts, Opt),
    of(Backup, "with-atime", Flag, Opt),
    of(Backup, "force", Flag, Opt),
    of(Backup, "skip-if-unchanged", Flag, Opt),
    of(Backup, "retain", Text, Opt),
    of(Forget, "all-hosts", Flag, Run),
    of(Forget, "host", Texts, Opt),
    of(Forget, "path", Paths, Opt),
    of(Forget, "tag", Texts, Opt),
    of(Forget, "keep-last", Text, Opt),
    of(Forget, "keep-hourly", Text, Opt),
    of(Forget, "keep-daily", Text, Opt),
    of(Forget, "keep-weekly", Text, Opt),
    of(Forget, "keep-monthly", Text, Opt),
    of(Forget, "keep-yearly", Text, Opt),
    of(Forget, "keep-within", Text, Opt),
    of(Forget, "keep-within-hourly", Text, Opt),
    of(Forget, "keep-within-daily", Text, Opt),
    of(Forget, "keep-within-weekly", Text, Opt),
    of(Forget, "keep-within-monthly", Text, Opt),
    of(Forget, "keep-within-yearly", Text, Opt),
    of(Forget, "keep-tag", Texts, Opt),
    of(Forget, "group-by", Text, Opt),
    of(Prune, "grace", Text, Opt),
    of(Prune, "repack-below", Text, Opt),
    of(Check, "read-data", Flag, Opt),
    of(Check, "read-data-subset", Text, Opt),
    of(Check, "scrub", Flag, Opt),
    of(Check, "no-mark", Flag, Opt),
];

/// Words that the table of every step may have.
const OF_EVERY_STEP: [(&str, ValueKind); 6] = [
    ("enabled", Flag),
    ("schedule", Times),
    ("before", Commands),
    ("after", Commands),
    ("on-failure", Commands),
    ("hook-timeout", Span),
];

/// Of these a profile has one: who names one does not mean what he inherits of the others.
pub const SECRETS: [&str; 3] = ["password-file", "password-command", "key-file"];

/// Of these a check has one.
pub const PARTS_OF_CHECK: [&str; 3] = ["read-data", "read-data-subset", "scrub"];

/// All words of a table, in their order.
pub fn words_of(table: ProfileTable) -> impl Iterator<Item = Word> {
    let own = WORDS
        .iter()
        .copied()
        .filter(move |word| word.table == table);
    let common = OF_EVERY_STEP.iter();
    let common = common.map(move |(name, kind)| of(table, name, *kind, Run));
    own.chain(common.filter(move |_| table != Profile))
}

/// The word of this name in a table.
pub fn word(table: ProfileTable, name: &str) -> Option<Word> {
    words_of(table).find(|word| word.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_once_in_its_table() {
        for section in [Profile].into_iter().chain(STEPS) {
            let names: Vec<_> = words_of(section).map(|word| word.name).collect();
            let once: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(names.len(), once.len(), "{section:?}");
            assert!(!names.is_empty(), "{section:?}");
        }
        assert_eq!(ProfileTable::of_name("check"), Some(Check));
        assert_eq!(ProfileTable::of_name(""), None);
    }
}
