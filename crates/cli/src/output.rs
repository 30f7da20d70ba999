//! What the user sees: stdout is data, stderr is talk. Names of files are never trusted on a
//! terminal.
//!
//! A reader that is gone ends what only prints (exit 141, as the signal would), and nothing else: a
//! backup, a restore, a check go on, and their exit code stands.

pub use crate::escape::escape;

use bale_pipeline::error::without_name;
use bale_pipeline::monitor::Problem;
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Is what is printed all that the command is for?
static IS_LISTING: AtomicBool = AtomicBool::new(false);
/// Nothing is printed any more: the reader is gone, or it cannot be written.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);
/// Requests to a server that failed for a reason that passes, and were made again.
static REPEATED: AtomicU64 = AtomicU64::new(0);
/// Something could not be written, and not because the reader was gone.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// From here on a reader that is gone ends the command: it only prints. Otherwise the work goes on
/// without him.
pub fn is_all_there_is() {
    IS_LISTING.store(true, Ordering::Relaxed);
}

/// Prints one line of data, or one JSON object.
pub fn line(text: &str) {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    data(line.as_bytes());
}

/// Prints bytes.
pub fn data(bytes: &[u8]) {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let written = std::io::stdout().lock().write_all(bytes);
    written.unwrap_or_else(|error| stopped(&error));
}

/// Standard output of a command that only prints, for whoever writes much.
pub struct Data;

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        data(bytes);
        match HAS_FAILED.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("standard output cannot be written")),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// Data cannot be printed. A command that only prints ends here.
fn stopped(error: &std::io::Error) {
    let is_listing = IS_LISTING.load(Ordering::Relaxed);
    let was_closed = IS_CLOSED.swap(true, Ordering::Relaxed);
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        if is_listing {
            crate::temporary_cache::remove();
            std::process::exit(crate::exit::READER_GONE);
        }
        return;
    }
    HAS_FAILED.store(true, Ordering::Relaxed);
    if !was_closed {
        report!("bale: write to standard output: {error}");
    }
    if is_listing {
        crate::temporary_cache::remove();
        std::process::exit(crate::exit::FAILED);
    }
}

/// The exit code of a command, when all is printed: what could not be printed turns 0 into 1.
pub fn end(code: i32) -> i32 {
    if !IS_CLOSED.load(Ordering::Relaxed) {
        let flushed = std::io::stdout().flush();
        flushed.unwrap_or_else(|error| stopped(&error));
    }
    match HAS_FAILED.load(Ordering::Relaxed) {
        true if code == crate::exit::COMPLETE => crate::exit::FAILED,
        _ => code,
    }
}

/// Prints one JSON object as a line of data. The one that ends a command says how often requests
/// were made again, if any was.
pub fn object(value: &Value) {
    crate::log::object(value);
    let repeated = REPEATED.load(Ordering::Relaxed);
    let is_last = ["summary", "error"]
        .iter()
        .any(|kind| value["type"] == *kind);
    match repeated > 0 && is_last {
        true => {
            let mut value = value.clone();
            value["requests_repeated"] = repeated.into();
            line(&value.to_string());
        }
        false => line(&value.to_string()),
    }
}

/// A request to a server is made again.
pub fn count_repeated() {
    REPEATED.fetch_add(1, Ordering::Relaxed);
}

/// For people, behind the last words of a command.
pub fn report_repeated() {
    match REPEATED.load(Ordering::Relaxed) {
        0 => {}
        repeated => report!(
            "bale: {} of requests to a server that failed for a reason that passes",
            crate::sizes::either(repeated, "repetition", "repetitions")
        ),
    }
}

/// Reports the error that ends the command; returns the exit code.
pub fn failure(error: &anyhow::Error, json: bool) -> i32 {
    let code = crate::exit::code_of(error);
    let text = escape(chain(error).as_bytes());
    if json {
        object(&json!({"type": "error", "message": text, "code": code}));
    }
    crate::log::report_error(&text);
    code
}

/// The words are wrong: what clap says, and an object for scripts.
pub fn usage(error: &clap::Error, json: bool) -> i32 {
    if json && error.use_stderr() {
        let text = error.to_string();
        let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
        // What is missing, or possible, is on lines of its own.
        let text = lines
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ");
        let text = escape(text.strip_prefix("error: ").unwrap_or(&text).as_bytes());
        object(&json!({"type": "error", "message": text, "code": error.exit_code()}));
    }
    if error.print().is_err() {
        return crate::exit::FAILED;
    }
    error.exit_code()
}

/// An error and its causes; what was said is not said again.
pub fn chain(error: &anyhow::Error) -> String {
    bale_pipeline::error::with_causes(error.as_ref())
}

/// Reports trouble with one entry.
pub fn problem(problem: &Problem, json: bool) {
    let text = without_name(&String::from_utf8_lossy(&problem.path), &problem.text);
    if json {
        let mut value = json!({"type": "problem", "action": problem.action, "message": text});
        put_path(&mut value, "path", &problem.path);
        object(&value);
    } else {
        let (action, path) = (problem.action, escape(&problem.path));
        // Of the whole, and not of one entry.
        let space = if path.is_empty() { "" } else { " " };
        report!("bale: {action}{space}{path}: {}", escape(text.as_bytes()));
    }
}

/// Prints how many more there are than were listed, if any.
pub fn and_more(listed: usize, all: u64, print: impl FnOnce(&str)) {
    let more = all.saturating_sub(listed as u64);
    if more > 0 {
        print(&format!("and {} more", crate::sizes::count(more)));
    }
}

/// A path of this machine, for people.
pub fn path(path: &std::path::Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// Adds a path to a JSON object; one that is not UTF-8 also as `<field>_b64`.
pub fn put_path(value: &mut Value, field: &str, path: &[u8]) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    put_path_in(map, field, path);
}

/// The same for a map.
pub fn put_path_in(map: &mut Map<String, Value>, field: &str, path: &[u8]) {
    map.insert(
        field.to_owned(),
        Value::String(String::from_utf8_lossy(path).into_owned()),
    );
    if std::str::from_utf8(path).is_err() {
        map.insert(
            format!("{field}_b64"),
            Value::String(base64::engine::general_purpose::STANDARD.encode(path)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = std::io::Error::other("no room");
        let error = anyhow::Error::new(cause).context("write x: no room");
        assert_eq!(
            chain(&error.context("back up")),
            "back up: write x: no room"
        );
    }

    #[test]
    fn paths_that_are_not_utf8_survive_json() {
        let mut value = json!({});
        put_path(&mut value, "path", b"a\xff");
        assert_eq!(value["path_b64"], "Yf8=");
    }
}
