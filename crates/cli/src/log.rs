//! What is said on standard error, and its copy for those who look later: `--log-file`, journal.
//!
//! A line of the file is time, level, command and message. Warnings, problems and errors are in it,
//! the beginning of a run, and its summary at the end; neither talk nor paths one by one, nor a
//! recovery key, which is shown and not kept. Text is escaped: no name can forge a line.

use crate::args::Global;
use crate::escape::escape;
use crate::{exit, run_record, variables};
use anyhow::{Context, Result};
use bale_pipeline::clock::{Clock, SystemClock};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What begins with it is a warning; everything else is talk.
const WARNING: &str = "bale: ";

static LOG: OnceLock<Log> = OnceLock::new();
/// The log could not be written, and it was said once.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }

    /// As syslog numbers them, which the journal reads from the beginning of a line.
    fn priority(self) -> u8 {
        match self {
            Level::Info => 6,
            Level::Warning => 4,
            Level::Error => 3,
        }
    }

    fn parse(word: &str) -> Option<Level> {
        match word.trim().to_ascii_lowercase().as_str() {
            "error" => Some(Level::Error),
            "warn" | "warning" => Some(Level::Warning),
            "info" | "debug" | "trace" => Some(Level::Info),
            _ => None,
        }
    }
}

/// The file.
struct Log {
    path: PathBuf,
    file: File,
    command: &'static str,
    least: Level,
}

/// Opens the log, if there is to be one. One that cannot be opened is a problem and no failure.
pub fn begin(global: &Global, command: &'static str) -> Result<()> {
    if let Some(log) = opened(global, command)? {
        let (log, not_understood) = log;
        let _is_the_first = LOG.set(log);
        if let Some(text) = not_understood {
            report(format_args!("{WARNING}{text}"));
        }
        line(
            Level::Info,
            &format!("begins: bale {}", env!("CARGO_PKG_VERSION")),
        );
    }
    Ok(())
}

/// The last line of a run: its exit code and the numbers of its summary.
pub fn end(code: i32) {
    let level = match code {
        exit::COMPLETE => Level::Info,
        exit::INCOMPLETE => Level::Warning,
        _ => Level::Error,
    };
    let mut text = format!("ends with exit code {code}");
    for (name, value) in run_record::summary() {
        let value = match value {
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::String(text) if name != "type" => text,
            // Its figures are in the line of the problem.
            Value::Object(_) if name == "sudden_change" => {
                text.push_str(" alarm=sudden_change");
                continue;
            }
            _ => continue,
        };
        text.push_str(&format!(" {name}={value}"));
    }
    line(level, &text);
}

/// Adds a line to the log.
pub fn line(level: Level, message: &str) {
    let Some(log) = LOG.get().filter(|log| level >= log.least) else {
        return;
    };
    let time = crate::times::time_text(SystemClock.time());
    let (command, id) = (log.command, std::process::id());
    let message = escape(message.as_bytes());
    let text = format!("{time} {} {command}[{id}]: {message}\n", level.word());
    // At once, so that lines of several processes do not mix.
    if let Err(error) = (&log.file).write_all(text.as_bytes())
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        exit::something_is_missing();
        let path = escape(log.path.as_os_str().as_encoded_bytes());
        to_stderr(
            Level::Warning,
            &format!("{WARNING}write the log {path}: {error}"),
        );
    }
}

/// Says a line on standard error, and keeps what is a warning.
pub fn report(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    match text.strip_prefix(WARNING) {
        Some(warning) => {
            to_stderr(Level::Warning, &text);
            line(Level::Warning, warning);
        }
        None => to_stderr(Level::Info, &text),
    }
}

/// Says what ended the command.
pub fn report_error(text: &str) {
    to_stderr(Level::Error, &format!("{WARNING}{text}"));
    line(Level::Error, text);
}

/// An object of `--json` that says what went to standard error otherwise.
pub fn object(value: &Value) {
    let level = match value["type"].as_str() {
        Some("problem" | "damage" | "unread" | "missed") => Level::Warning,
        Some("note") => Level::Info,
        _ => return,
    };
    let word = |name: &str| value[name].as_str().unwrap_or_default();
    let words = [word("action"), word("what"), word("path"), word("message")];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    line(level, &words.join(" "));
}

/// A stderr that nobody reads any more is no reason to stop: `eprintln` would panic, in the middle
/// of a backup.
fn to_stderr(level: Level, text: &str) {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let is_journal = *IS_JOURNAL.get_or_init(|| {
        let stream = variables::lookup("JOURNAL_STREAM");
        stream.is_some_and(|stream| is_stderr(&stream))
    });
    let text = match is_journal {
        true => for_journal(level, text),
        false => format!("{text}\n"),
    };
    let _nobody_listens = std::io::stderr().write_all(text.as_bytes());
}

fn for_journal(level: Level, text: &str) -> String {
    let priority = level.priority();
    let lines = text.lines().map(|line| format!("<{priority}>{line}\n"));
    lines.collect()
}

/// Does this name, device and inode, mean our standard error? It is inherited by programs that have
/// another one.
fn is_stderr(stream: &str) -> bool {
    let ours = rustix::fs::fstat(std::io::stderr());
    ours.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The log, and what of its filter is not understood.
fn opened(global: &Global, command: &'static str) -> Result<Option<(Log, Option<String>)>> {
    let path = match &global.log_file {
        Some(path) => path.clone(),
        None => match variables::read("BALE_LOG_FILE")? {
            Some(path) => PathBuf::from(path),
            None => return Ok(None),
        },
    };
    let (least, not_understood) = match variables::lookup("BALE_LOG") {
        None => filtered(&variables::lookup("RUST_LOG").unwrap_or_default()),
        Some(word) => {
            let level = Level::parse(&word).with_context(|| {
                format!("BALE_LOG is {word:?}, and no level: it is error, warning or info")
            })?;
            (level, None)
        }
    };
    let file = open(&path).with_context(|| format!("open {}", path.display()))?;
    let log = Log {
        path,
        file,
        command,
        least,
    };
    Ok(Some((log, not_understood)))
}

/// The least level by the words of `RUST_LOG`, which is for other programs, too: a level alone, or
/// one of `bale`; of other names nothing. The last that is ours counts. What of it is not
/// understood is no reason to lose a log.
fn filtered(filter: &str) -> (Level, Option<String>) {
    let (mut least, mut not_understood) = (Level::Info, None);
    for word in filter
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let (name, level) = match word.split_once('=') {
            Some((name, level)) => (Some(name.trim()), level),
            None => (None, word),
        };
        let is_ours = name.is_none_or(|name| name == "bale" || name.starts_with("bale::"));
        match Level::parse(level) {
            Some(level) if is_ours => least = level,
            None if is_ours && word == "bale" => least = Level::Info,
            None if is_ours => not_understood = Some(word),
            _ => {}
        }
    }
    let text = not_understood.map(|word| {
        let word = escape(word.as_bytes());
        format!(
            "of RUST_LOG, {word:?} is no level of the log (error, warning or info), and does not \
             count (BALE_LOG is for Bale alone)"
        )
    });
    (least, text)
}

/// For appending: whoever rotates logs may move the file or cut it off. What is backed up is
/// nobody's business.
fn open(path: &Path) -> Result<File> {
    // A pipe that nobody reads is not waited for.
    let how = OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let flags = OFlags::WRONLY | OFlags::CREATE | how;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?);
    let about = file.metadata()?;
    anyhow::ensure!(!about.is_dir() && about.mode() != 0, "it is no file");
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_learns_the_priority_of_every_line() {
        assert_eq!(for_journal(Level::Warning, "a\nb"), "<4>a\n<4>b\n");
        assert!(Level::Error > Level::Warning && Level::Warning > Level::Info);
        assert_eq!(Level::Error.priority(), 3);
    }

    #[test]
    fn levels_are_those_that_people_know() {
        assert_eq!(Level::parse("WARN"), Some(Level::Warning));
        assert_eq!(Level::parse("debug"), Some(Level::Info));
        assert_eq!(Level::parse("loud"), None);
    }

    #[test]
    fn of_the_filter_of_other_programs_counts_what_is_meant_for_this_one() {
        for (filter, least) in [
            ("", Level::Info),
            ("warn", Level::Warning),
            ("info,bale=error", Level::Error),
            ("error,bale::backup=warn", Level::Warning),
            ("hyper=error", Level::Info),
            ("error,bale", Level::Info),
        ] {
            assert_eq!(filtered(filter), (least, None), "{filter}");
        }
        for (filter, least, word) in [
            ("loud", Level::Info, "\"loud\""),
            ("error,bale=loud", Level::Error, "\"bale=loud\""),
        ] {
            let (found, text) = filtered(filter);
            assert_eq!(found, least, "{filter}");
            assert!(text.unwrap().contains(word), "{filter}");
        }
    }
}
