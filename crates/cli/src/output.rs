//! What the user sees: stdout is data, stderr is talk. Names of files are never trusted on a terminal.

use bale_engine::monitor::Problem;
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::io::Write;

/// Prints one line of data, or one JSON object. A reader that closed the pipe ends the process quietly.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"));
    if let Err(error) = written {
        broken(&error);
    }
}

/// Ends the process: data cannot be printed. Quietly if the reader closed the pipe.
pub fn broken(error: &std::io::Error) -> ! {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    tell!("bale: write to standard output: {error}");
    std::process::exit(crate::exit::FAILED);
}

/// Prints one JSON object as a line of data.
pub fn object(value: &Value) {
    line(&value.to_string());
}

/// Tells about the error that ends the command; returns the exit code.
pub fn failure(error: &anyhow::Error, json: bool) -> i32 {
    let code = crate::exit::code_of(error);
    let text = escape(format!("{error:#}").as_bytes());
    if json {
        object(&json!({"type": "error", "message": text, "code": code}));
    }
    tell!("bale: {text}");
    code
}

/// Tells about trouble with one entry.
pub fn problem(problem: &Problem, json: bool) {
    if json {
        let mut value =
            json!({"type": "problem", "action": problem.action, "message": problem.text});
        put_path(&mut value, "path", &problem.path);
        object(&value);
    } else {
        tell!(
            "bale: {} {}: {}",
            problem.action,
            escape(&problem.path),
            escape(problem.text.as_bytes())
        );
    }
}

/// Tells how many more there are than were listed, if any.
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

/// A name for people: control characters, and bytes that are no UTF-8, as `\xNN`, so that no name can steer a terminal or
/// forge a line of a log.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || is_direction_mark(letter) {
                let mut buffer = [0; 4];
                for byte in letter.encode_utf8(&mut buffer).bytes() {
                    text.push_str(&format!("\\x{byte:02x}"));
                }
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Marks that reorder what a terminal shows.
fn is_direction_mark(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(escape(b"a\x1b[2Jb\nc\xff"), "a\\x1b[2Jb\\x0ac\\xff");
        assert_eq!(escape("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
    }

    #[test]
    fn paths_that_are_not_utf8_survive_json() {
        let mut value = json!({});
        put_path(&mut value, "path", b"a\xff");
        assert_eq!(value["path_b64"], "Yf8=");
    }
}
