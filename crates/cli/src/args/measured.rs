//! Which commands are measured (`--metrics-dir`), and what tells one run from another.

use super::{Backup, Check, Cli, Command};
use bale_source::raw::shown_source;
use std::path::Path;

/// A kind of work that is done again and again.
pub struct WorkLabels {
    pub command: &'static str,
    /// What distinguishes it from other work of the same command.
    pub labels: Vec<(&'static str, String)>,
}

impl Cli {
    /// What is measured of this command; of a dry run, nothing.
    pub fn measured(&self) -> Option<WorkLabels> {
        let (command, labels, is_dry) = match &self.command {
            Command::Backup(options) => ("backup", of_backup(options), options.dry_run),
            Command::Forget(options) => ("forget", Vec::new(), options.dry_run),
            Command::Prune(options) => ("prune", Vec::new(), options.dry_run),
            Command::Check(options) => ("check", of_check(options), false),
            Command::Copy(options) => ("copy", Vec::new(), options.dry_run),
            Command::Mirror(options) => ("mirror", Vec::new(), options.dry_run),
            Command::Restore(options) => {
                ("restore", Vec::new(), options.dry_run || options.cold.plan)
            }
            _ => return None,
        };
        (!is_dry).then_some(WorkLabels { command, labels })
    }
}

impl Command {
    /// As it is written.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Init(_) => "init",
            Command::Backup(_) => "backup",
            Command::Scan(_) => "scan",
            Command::Snapshots(_) => "snapshots",
            Command::Status(_) => "status",
            Command::Ls(_) => "ls",
            Command::Find(_) => "find",
            Command::Diff(_) => "diff",
            Command::Stats(_) => "stats",
            Command::Restore(_) => "restore",
            Command::Dump(_) => "dump",
            Command::Export(_) => "export",
            Command::Mount(_) => "mount",
            Command::Track(_) => "track",
            Command::Tag(_) => "tag",
            Command::Pin(_) => "pin",
            Command::Unpin(_) => "unpin",
            Command::Rewrite(_) => "rewrite",
            Command::Run(_) => "run",
            Command::Profile(_) => "profile",
            Command::Schedule(_) => "schedule",
            Command::Check(_) => "check",
            Command::Copy(_) => "copy",
            Command::Mirror(_) => "mirror",
            Command::Forget(_) => "forget",
            Command::Prune(_) => "prune",
            Command::Key(_) => "key",
            Command::Catalog(_) => "catalog",
            Command::Repair(_) => "repair",
            Command::Serve(_) => "serve",
            Command::Generate(_) => "gen",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
        }
    }
}

/// What is backed up, as it was named.
fn of_backup(options: &Backup) -> Vec<(&'static str, String)> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        crate::output::path(&path)
    };
    // Those words are a command and may hold a secret.
    let of_files = options.paths.iter().filter(|_| !options.stdin_from_command);
    let mut paths: Vec<String> = of_files.map(|path| absolute(path)).collect();
    let lists = options.files_from.iter().chain(&options.files_from0);
    paths.extend(lists.map(|list| format!("--files-from {}", crate::output::path(list))));
    // Without a password that a URI may hold.
    let images = options
        .image
        .iter()
        .map(|image| crate::output::path(&shown_source(image)));
    paths.extend(images.map(|image| format!("--image {image}")));
    if options.stdin || options.stdin_from_command {
        let name = options.stdin_filename.as_deref();
        let name = name.map(|name| crate::output::path(Path::new(name)));
        paths.push(format!("--stdin {}", name.unwrap_or_default()));
    }
    paths.sort();
    paths.dedup();
    let host = options.host.iter();
    let host = host.map(|host| ("host", crate::output::escape(host.as_bytes())));
    [("paths", paths.join(" "))]
        .into_iter()
        .chain(host)
        .collect()
}

/// A part of the data is not all of it, and a look at names alone opens nothing.
fn of_check(options: &Check) -> Vec<(&'static str, String)> {
    let reads = match (&options.read_data_subset, options.read_data, options.scrub) {
        (Some(_), ..) => "part",
        (None, true, _) => "data",
        (None, false, true) => "scrub",
        (None, false, false) => "structure",
    };
    vec![("reads", reads.to_owned())]
}
