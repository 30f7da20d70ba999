//! `bale backup --stdin` and `--stdin-from-command`

use super::stream_command::{Looking, StreamCommand};
use super::{backup, retain};
use crate::args::{Backup, Global};
use crate::exit::Usage;
use crate::progress::Console;
use crate::{output, place};
use anyhow::{Context, Result};
use bale_engine::backup::{BackupOptions, Stream, backup_stream};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// The file, where nobody says how it is called.
const NAME: &str = "stdin";

/// Backs up what a program writes; there is no snapshot if the program fails.
pub fn run(global: &Global, options: &Backup) -> Result<i32> {
    let began = Instant::now();
    let name = options.stdin_filename.as_deref();
    let name = name_of(name.unwrap_or(OsStr::new(NAME)))?;
    if options.stdin {
        check_standard_input(options)?;
    }
    let repository = backup::open(global, options)?;
    retain::check(options, &repository)?;
    let console = Console::new(global);
    let works_with = place::works_with(global)?;
    let engine_options = BackupOptions {
        excludes: Vec::new(),
        ..backup::engine_options(options, &repository, &works_with)?
    };
    backup::answer_interruptions(global, options)?;
    let mut writer = Writer::begin(options)?;
    let outcome = {
        let (bytes, mut is_whole) = writer.parts();
        let stream = Stream {
            name,
            bytes,
            is_whole: &mut is_whole,
        };
        backup_stream(&repository, stream, &engine_options, &console)
    };
    drop(writer);
    backup::ended(
        (global, options),
        &repository,
        outcome,
        (&console, began),
        Vec::new(),
    )
}

/// One component of a path, with or without a slash in front.
fn name_of(text: &OsStr) -> Result<&[u8], Usage> {
    let name = text.as_bytes();
    let name = name.strip_prefix(b"/").unwrap_or(name);
    match name {
        b"" | b"." | b".." => {}
        name if name.contains(&b'/') => {}
        name => return Ok(name),
    }
    let shown = output::path(Path::new(text));
    Err(Usage(format!(
        "--stdin-filename {shown}: it becomes a file below / in the snapshot, so it is a name \
         without a slash"
    )))
}

fn check_standard_input(options: &Backup) -> Result<(), Usage> {
    if !options.paths.is_empty() {
        let text = "--stdin takes no paths; to back up what a command writes: \
                    --stdin-from-command -- COMMAND";
        return Err(Usage(text.to_owned()));
    }
    if std::io::stdin().is_terminal() {
        let text = "standard input is a terminal: send something into it (pg_dump db | bale \
                    backup --stdin), or use --stdin-from-command -- COMMAND";
        return Err(Usage(text.to_owned()));
    }
    Ok(())
}

/// Asked at the end of a stream.
type IsWhole<'a> = Box<dyn FnMut() -> Result<(), String> + 'a>;

/// Who writes the stream.
enum Writer {
    Nobody(Looking<File>),
    Command(StreamCommand),
}

impl Writer {
    fn begin(options: &Backup) -> Result<Writer> {
        match options.stdin {
            true => {
                let input = std::io::stdin().as_fd().try_clone_to_owned();
                let input = input.context("read standard input")?;
                Ok(Writer::Nobody(Looking(input.into())))
            }
            false => StreamCommand::start(&options.paths).map(Writer::Command),
        }
    }

    /// Its bytes, and what tells at their end whether these were all.
    fn parts(&mut self) -> (&mut dyn Read, IsWhole<'_>) {
        match self {
            Writer::Nobody(bytes) => (bytes, Box::new(|| Ok(()))),
            Writer::Command(command) => {
                let (bytes, ending) = command.parts();
                (bytes, Box::new(|| ending.wait()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        for (text, name) in [("db.sql", "db.sql"), ("/db.sql", "db.sql"), ("a\n", "a\n")] {
            assert_eq!(name_of(OsStr::new(text)).unwrap(), name.as_bytes());
        }
        for text in ["", "/", ".", "/..", "a/b", "a/", "//a"] {
            let Usage(error) = name_of(OsStr::new(text)).unwrap_err();
            assert!(error.contains("without a slash"), "{text}: {error}");
        }
    }
}
