//! Options of every command, and their absence where they would mean nothing.

use super::remote::Remote;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of every command. Those that a variable of the environment stands for are looked up
/// there by whoever needs them (`place`, `secrets`): a value from there counts less than one from
/// here.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Repository: a directory, or on a server s3:, gs:, azure:, b2:, sftp:, rest:, webdav:, ftp:,
    /// ftps: or rclone: and its place there, as in sftp:USER@HOST:/PATH [env: BALE_REPOSITORY]
    /// [default: one in the user's data directory]
    #[arg(short, long, global = true, value_hint = ValueHint::DirPath, value_name = "REPOSITORY")]
    pub repo: Option<OsString>,
    /// Cold store of the repository, named like one: it holds everything, and --repo everything but
    /// packs of data, so that only restores wait for it (bale init --cold) [env: BALE_COLD]
    #[arg(long, global = true, value_hint = ValueHint::DirPath, value_name = "STORE")]
    pub cold: Option<OsString>,
    /// Log in to the server of the cold store with the first line of this file, USER:PASSWORD [env:
    /// BALE_COLD_LOGIN_FILE] [default: that of --login-file, unless --repo is on another server]
    #[arg(long, global = true, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub cold_login_file: Option<PathBuf>,
    /// Read the password from the first line of this file [env: BALE_PASSWORD_FILE, or the password
    /// in BALE_PASSWORD]
    #[arg(short = 'p', long, global = true, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Run this command and take the first line it prints as the password [env:
    /// BALE_PASSWORD_COMMAND]
    #[arg(long, global = true, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub password_command: Option<String>,
    /// Open the repository with this key file (or a file with a recovery key) instead of a password
    /// [env: BALE_KEY_FILE]
    #[arg(long, global = true, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Directory for what can be rebuilt at any time [env: BALE_CACHE_DIR] [default: one in the
    /// user's cache directory, without a home directory /var/cache/bale of root]
    #[arg(long, global = true, value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Take at most this much memory (128M or more), beside the index of what the repository holds
    /// [env: BALE_MEMORY] [default: 256M, by inodes 320M (to a server 384M), and 40M for each
    /// processor more than two, up to eight]
    #[arg(long, global = true, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Make packs of this size (4M to 128M) [env: BALE_PACK_SIZE] [default: 64M on a disk, on a
    /// server 16M or with much memory 32M]
    #[arg(long, global = true, value_name = "SIZE")]
    pub pack_size: Option<String>,
    /// Compress contents that are stored: auto (what is worth it, as fast as disks are), off, or a
    /// level of zstd from 1 to 19, with as little memory [env: BALE_COMPRESSION] [default: auto]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub compression: Option<String>,
    /// Print one JSON object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only errors and problems
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more: of a backup what is new (+), changed (M) and gone (-), of a restore what becomes
    /// of every path
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Never show progress, also on a terminal [env: BALE_NO_PROGRESS]
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Write what this run was to a file in DIR, for the textfile collector of Prometheus'
    /// node_exporter: of backup, forget, prune, check, copy, mirror, restore and status, also if it
    /// fails [env: BALE_METRICS_DIR]
    #[arg(long, global = true, value_hint = ValueHint::DirPath, value_name = "DIR")]
    pub metrics_dir: Option<PathBuf>,
    /// Append warnings, problems, errors and the summary of each run to this file [env:
    /// BALE_LOG_FILE; BALE_LOG=warning or error, or else RUST_LOG: only these]
    #[arg(long, global = true, value_hint = ValueHint::FilePath, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
}

/// Stands in the place of the options about a repository in commands that have none: their help
/// stays silent about them. Each has the type that it has in [`Global`], whose value it gets if it
/// is given in front of the command. What the environment says for all commands is no error there.
#[derive(Clone, Debug, Args)]
pub struct NoRepository {
    #[arg(short, long, hide = true)]
    pub repo: Option<OsString>,
    #[command(flatten)]
    pub secrets: NoSecrets,
}

/// The same without `--repo`.
#[derive(Clone, Debug, Args)]
pub struct NoSecrets {
    #[arg(short = 'p', long, hide = true)]
    pub password_file: Option<PathBuf>,
    #[command(flatten)]
    pub rest: NoKey,
}

/// The same without `--password-file`.
#[derive(Clone, Debug, Args)]
pub struct NoKey {
    #[arg(long, hide = true)]
    pub password_command: Option<String>,
    #[arg(long, hide = true)]
    pub key_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub cache_dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub memory: Option<String>,
    #[arg(long, hide = true)]
    pub compression: Option<String>,
    #[arg(long, hide = true)]
    pub metrics_dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub log_file: Option<PathBuf>,
    #[command(flatten)]
    pub remote: NoRemote,
}

/// The same of options about repositories over a network.
#[derive(Clone, Debug, Args)]
pub struct NoRemote {
    #[arg(long, hide = true)]
    pub cold: Option<OsString>,
    #[arg(long, hide = true)]
    pub cold_login_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub pack_size: Option<String>,
    #[arg(long, hide = true)]
    pub limit_upload: Option<String>,
    #[arg(long, hide = true)]
    pub limit_download: Option<String>,
    #[arg(long, hide = true)]
    pub retry_for: Option<String>,
    #[arg(long, hide = true)]
    pub connect_timeout: Option<String>,
    #[arg(long, hide = true)]
    pub idle_timeout: Option<String>,
    #[arg(long, hide = true)]
    pub ca_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub login_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub storage_class: Option<String>,
    #[arg(long, hide = true)]
    pub cache_size: Option<String>,
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn commands_without_a_repository_take_options_of_every_command_in_front_of_them() {
        let all = Cli::command();
        let global = all.get_arguments().filter(|option| option.is_global_set());
        let mut given = vec!["bale".to_owned()];
        for option in global.filter(|option| option.get_action().takes_values()) {
            let long = option.get_long().expect("each has a long form");
            given.extend([format!("--{long}"), "1".to_owned()]);
        }
        assert!(given.iter().any(|option| option == "--repo"));
        for command in [
            "gen --count 1 --target d",
            "serve d",
            "profile list",
            "profile show",
            "run home",
            "schedule status",
            "schedule install home",
            "schedule remove home",
            "track status",
            "track start d",
            "track stop d",
            "completions bash",
            "man d",
        ] {
            let command = command.split(' ').map(str::to_owned);
            let line: Vec<String> = given.iter().cloned().chain(command).collect();
            Cli::try_parse_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        }
    }
}
