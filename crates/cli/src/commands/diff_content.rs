//! `bale diff --content`: files that differ, as bytes and, of small text files, as lines.
//!
//! Rows say that two files are not stored alike; whether their bytes differ is known once they are
//! read. Only what differs is, chunks that both have excepted.

use crate::{interrupt, output};
use bale_engine::dump::FileContents;
use bale_format::{Entry, Kind};
use imara_diff::{Algorithm, Diff, InternedInput};
use std::fmt::Write;

/// Of larger files the lines are not compared: a person does not read them.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Unchanged lines around changed ones.
const CONTEXT_LINES: u32 = 3;

/// What comparing two files of one path gave.
pub enum ContentComparison {
    Same,
    Differs {
        /// The first byte that does.
        first: u64,
        /// As `diff -u` has it, without its two headings; of text files.
        lines: Option<Vec<String>>,
    },
    /// Why it is not known.
    Unknown(String),
}

/// Compares two entries of one path whose content is not stored alike; `None`: it is nothing that
/// has bytes.
pub fn compare(contents: &FileContents, old: &Entry, new: &Entry) -> Option<ContentComparison> {
    match (old.kind, new.kind) {
        (Kind::File, Kind::File) if !old.is_image() && !new.is_image() => {
            Some(files(contents, old, new).unwrap_or_else(ContentComparison::Unknown))
        }
        (Kind::Symlink, Kind::Symlink) => {
            let texts = [&old.target, &new.target].map(|target| [target, &b"\n"[..]].concat());
            let first = texts[0].iter().zip(&texts[1]).position(|(a, b)| a != b);
            Some(ContentComparison::Differs {
                first: first.unwrap_or_default() as u64,
                lines: lines(&texts[0], &texts[1]),
            })
        }
        _ => None,
    }
}

fn files(contents: &FileContents, old: &Entry, new: &Entry) -> Result<ContentComparison, String> {
    let Some(first) = contents.first_difference(old, new, &interrupt::is_requested)? else {
        return Ok(ContentComparison::Same);
    };
    let texts = [old, new].map(|entry| contents.whole(entry, TEXT_BYTES_MAX));
    let lines = match texts {
        [Ok(Some(old)), Ok(Some(new))] => lines(&old, &new),
        _ => None,
    };
    Ok(ContentComparison::Differs { first, lines })
}

/// `None`: it is no text.
fn lines(old: &[u8], new: &[u8]) -> Option<Vec<String>> {
    let text = |bytes| {
        let text = std::str::from_utf8(bytes).ok();
        text.filter(|text| !text.contains('\0'))
    };
    let (old, new) = (text(old)?, text(new)?);
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut printer = Printer {
        before: &input.before,
        after: &input.after,
        text: |token| input.interner[token],
        lines: Vec::new(),
    };
    let mut near: Vec<imara_diff::Hunk> = Vec::new();
    for hunk in diff.hunks() {
        let is_far =
            |last: &imara_diff::Hunk| hunk.before.start - last.before.end > 2 * CONTEXT_LINES;
        if near.last().is_some_and(is_far) {
            printer.hunks(&std::mem::take(&mut near));
        }
        near.push(hunk);
    }
    if !near.is_empty() {
        printer.hunks(&near);
    }
    Some(printer.lines)
}

struct Printer<'t, F> {
    before: &'t [imara_diff::Token],
    after: &'t [imara_diff::Token],
    text: F,
    lines: Vec<String>,
}

impl<'t, F: Fn(imara_diff::Token) -> &'t str> Printer<'t, F> {
    /// Hunks that are near each other, as one.
    fn hunks(&mut self, hunks: &[imara_diff::Hunk]) {
        let (first, last) = (&hunks[0], &hunks[hunks.len() - 1]);
        let in_front = CONTEXT_LINES.min(first.before.start);
        let behind = CONTEXT_LINES.min(self.before.len() as u32 - last.before.end);
        let range = |start: u32, end: u32| {
            let (start, count) = (start - in_front, end + behind - (start - in_front));
            // Lines count from one; nothing is behind the line in front of it.
            match count {
                0 => format!("{start},0"),
                1 => format!("{}", start + 1),
                count => format!("{},{count}", start + 1),
            }
        };
        self.lines.push(format!(
            "@@ -{} +{} @@",
            range(first.before.start, last.before.end),
            range(first.after.start, last.after.end)
        ));
        let mut at = first.before.start - in_front;
        for hunk in hunks {
            self.put(' ', self.before, at..hunk.before.start);
            self.put('-', self.before, hunk.before.clone());
            self.put('+', self.after, hunk.after.clone());
            at = hunk.before.end;
        }
        self.put(' ', self.before, at..at + behind);
    }

    fn put(&mut self, mark: char, tokens: &[imara_diff::Token], range: std::ops::Range<u32>) {
        for token in &tokens[range.start as usize..range.end as usize] {
            let line = (self.text)(*token);
            let whole = line.strip_suffix('\n');
            self.lines.push(format!("{mark}{}", whole.unwrap_or(line)));
            if whole.is_none() {
                self.lines.push("\\ No newline at end of file".to_owned());
            }
        }
    }
}

/// For people: what steers a terminal is `\xNN`, but for tabs.
pub fn shown(line: &str) -> String {
    let parts: Vec<_> = line
        .split('\t')
        .map(|part| output::escape(part.as_bytes()))
        .collect();
    parts.join("\t")
}

/// All lines as one text.
pub fn joined(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{line}").expect("a string takes what it is given");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> Vec<String> {
        lines(old.as_bytes(), new.as_bytes()).unwrap()
    }

    #[test]
    fn lines_are_those_of_diff_u() {
        assert_eq!(
            diff("a\nb\nc\n", "a\nB\nc\n"),
            ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"]
        );
        assert_eq!(diff("", "a\n"), ["@@ -0,0 +1 @@", "+a"]);
        assert_eq!(
            diff("a", "a\n"),
            ["@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"]
        );
        let numbers: String = (1..=30).map(|number| format!("{number}\n")).collect();
        let changed = numbers.replace("5\n", "five\n").replacen("\n20\n", "\n", 1);
        let changed = changed.replace("1five", "15").replace("2five", "25");
        assert_eq!(
            diff(&numbers, &changed),
            [
                "@@ -2,7 +2,7 @@",
                " 2",
                " 3",
                " 4",
                "-5",
                "+five",
                " 6",
                " 7",
                " 8",
                "@@ -17,7 +17,6 @@",
                " 17",
                " 18",
                " 19",
                "-20",
                " 21",
                " 22",
                " 23",
            ]
        );
    }

    #[test]
    fn what_is_no_text_has_no_lines_and_none_steers_a_terminal() {
        assert!(lines(b"a\0", b"b").is_none() && lines(b"a", b"\xff").is_none());
        assert_eq!(shown("+a\tb\x1b[2J\r"), "+a\tb\\x1b[2J\\x0d");
    }
}
