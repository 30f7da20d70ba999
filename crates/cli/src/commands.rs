//! One file for each command: options in, one engine call, lines out.

mod backup;
mod backup_images;
mod backup_stream;
mod catalog;
mod check;
mod cold;
mod copy;
mod deleting;
mod diff;
mod diff_content;
mod diff_rows;
mod dump;
mod entry_format;
mod export;
mod find;
mod find_conditions;
mod find_once;
mod forget;
mod generate;
mod host;
mod init;
mod key;
mod left_out;
mod listing;
mod look;
mod ls;
mod ls_sorted;
mod mirror;
mod mount;
mod ncdu;
mod owners;
mod policy;
mod profile;
mod prune;
mod repair;
mod restore;
mod restore_as;
mod retain;
mod rewrite;
mod run;
mod scan;
mod schedule;
mod select;
mod serve;
mod snapshot_owner;
mod snapshots;
mod sorted_rows;
mod stats;
mod status;
mod stream_command;
mod sudden;
mod tag;
mod track;
mod unmatched;
mod unread_index;

pub use status::unknown_state;

use crate::args::{Cli, Command, KeyCommand, ScheduleCommand, Track};
use crate::exit;
use crate::named_paths::NamedPath;
use anyhow::{Context, Result};
use clap::CommandFactory;

/// The word that asks for [`serve_as_freezer`]. No command: help, completions and tips do not name
/// it.
pub const FREEZER: &str = "freezer";

/// Runs the command; returns its exit code.
pub fn run(cli: Cli) -> Result<i32> {
    let global = &cli.global;
    if only_prints(&cli.command) {
        crate::output::is_all_there_is();
    }
    match cli.command {
        Command::Init(options) => init::run(global, &options),
        Command::Backup(options) => backup::run(global, &options),
        Command::Scan(options) => scan::run(global, &options),
        Command::Snapshots(options) => snapshots::run(global, &options),
        Command::Status(options) => status::run(global, &options),
        Command::Ls(options) => ls::run(global, &options),
        Command::Find(options) => find::run(global, &options),
        Command::Diff(options) => diff::run(global, &options),
        Command::Stats(options) => stats::run(global, &options),
        Command::Restore(options) => restore::run(global, &options),
        Command::Dump(options) => dump::run(global, &options),
        Command::Export(options) => export::run(global, &options),
        Command::Mount(options) => mount::run(global, &options),
        Command::Profile(command) => profile::run(global, &command),
        Command::Run(options) => run::run(global, &options),
        Command::Schedule(command) => schedule::run(global, &command),
        Command::Track(command) => track::run(global, &command),
        Command::Check(options) => check::run(global, &options),
        Command::Tag(options) => tag::run(global, &options),
        Command::Pin(options) => tag::pin(global, &options, true),
        Command::Unpin(options) => tag::pin(global, &options, false),
        Command::Rewrite(options) => rewrite::run(global, &options),
        Command::Copy(options) => copy::run(global, &options),
        Command::Mirror(options) => mirror::run(global, &options),
        Command::Forget(options) => forget::run(global, &options),
        Command::Prune(options) => prune::run(global, &options),
        Command::Key(command) => key::run(global, &command),
        Command::Catalog(command) => catalog::run(global, &command),
        Command::Repair(command) => repair::run(global, &command),
        Command::Serve(options) => serve::run(global, &options),
        Command::Generate(options) => generate::run(global, &options),
        Command::Completions(options) => {
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut Cli::command(), "bale", &mut script);
            crate::output::data(&script);
            Ok(exit::COMPLETE)
        }
        Command::Man(options) => {
            let target = NamedPath {
                by: "DIR",
                attempt: "write the manual pages to",
                path: &options.dir,
                advice: "Name a directory that is there or can be made",
            };
            target.require_directory()?;
            std::fs::create_dir_all(&options.dir).map_err(|error| target.trouble(error))?;
            clap_mangen::generate_to(Cli::command(), &options.dir)
                .map_err(|error| target.trouble(error))?;
            Ok(exit::COMPLETE)
        }
    }
}

/// Freezes and thaws a file system for a backup that asks for it: this program is started again for
/// that, by no person.
pub fn serve_as_freezer() -> Result<i32> {
    bale_source::scan::freeze::serve(&mut |_| {}).context("serve as freezer")?;
    Ok(exit::COMPLETE)
}

/// Has it done nothing when nobody reads what it says?
fn only_prints(command: &Command) -> bool {
    match command {
        Command::Scan(_)
        | Command::Snapshots(_)
        | Command::Status(_)
        | Command::Ls(_)
        | Command::Find(_)
        | Command::Diff(_)
        | Command::Stats(_)
        | Command::Dump(_)
        | Command::Key(KeyCommand::List)
        | Command::Track(Track::Status { .. })
        | Command::Profile(_)
        | Command::Schedule(ScheduleCommand::Status(_))
        | Command::Completions(_) => true,
        Command::Init(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Export(_)
        | Command::Mount(_)
        | Command::Check(_)
        | Command::Copy(_)
        | Command::Mirror(_)
        | Command::Forget(_)
        | Command::Rewrite(_)
        | Command::Tag(_)
        | Command::Pin(_)
        | Command::Unpin(_)
        | Command::Prune(_)
        | Command::Run(_)
        | Command::Schedule(_)
        | Command::Key(_)
        | Command::Track(_)
        | Command::Catalog(_)
        | Command::Repair(_)
        | Command::Serve(_)
        | Command::Generate(_)
        | Command::Man(_) => false,
    }
}
