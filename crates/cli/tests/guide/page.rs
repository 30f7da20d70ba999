//! What a page of the guide has in fences: commands that are run, and what they print.
//!
//! A fence may have marks in the comments right before it, so that they are seen in the source and
//! not by readers: `<!-- not run: REASON -->` (one of `REASONS`), `<!-- exit N -->` for commands
//! that end so, `<!-- beforehand: COMMANDS -->` for what a reader has no need to see, and
//! `<!-- checked -->` for a block of output.

use std::path::Path;

/// Why commands cannot be tried in a test.
pub const REASONS: [&str; 9] = [
    "build",      // compiles Bale, for minutes
    "cloud",      // an account of a provider
    "device",     // a disk, a partition or a volume to spare
    "hypervisor", // a machine that runs in one
    "package",    // installs packages on the machine
    "profile",    // judges the profiles of the machine: their tests have machines of their own
    "program",    // another program that must be there and set up
    "server",     // another machine
    "systemd",    // a machine that systemd runs
];

/// Commands that stand in one fence.
#[derive(Debug)]
pub struct Commands {
    pub line: usize,
    pub text: String,
    pub beforehand: String,
    pub exit: i32,
    pub not_run: Option<String>,
    /// What the page says that they print, in full.
    pub output: Option<String>,
}

/// Comments that stand right before a fence.
#[derive(Default)]
struct Marks {
    exit: i32,
    not_run: Option<String>,
    beforehand: String,
    is_checked: bool,
}

impl Marks {
    /// Takes a line if it is a mark, or says what is wrong with it.
    fn take(&mut self, line: &str) -> Result<bool, String> {
        let inner = line.strip_prefix("<!-- ");
        let Some(inner) = inner.and_then(|rest| rest.strip_suffix(" -->")) else {
            return Ok(false);
        };
        if let Some(reason) = inner.strip_prefix("not run: ") {
            if !REASONS.contains(&reason) {
                return Err(format!("{reason:?} is none of {REASONS:?}"));
            }
            self.not_run = Some(reason.to_owned());
        } else if let Some(code) = inner.strip_prefix("exit ") {
            self.exit = code.parse().map_err(|_| format!("no exit code: {code}"))?;
        } else if let Some(commands) = inner.strip_prefix("beforehand: ") {
            self.beforehand.push_str(&format!("{commands}\n"));
        } else if inner == "checked" {
            self.is_checked = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Reads the fences of a page; what is wrong is said with its line.
pub fn read(page: &Path) -> Result<Vec<Commands>, String> {
    let text = std::fs::read_to_string(page).map_err(|error| error.to_string())?;
    let mut found: Vec<Commands> = Vec::new();
    let mut marks = Marks::default();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let wrong = |what: &str| format!("{}:{}: {what}", page.display(), at + 1);
        let Some(kind) = line.trim_start().strip_prefix("```") else {
            let is_mark = marks.take(line).map_err(|what| wrong(&what))?;
            if !is_mark {
                if line.starts_with("    ") && line.contains("bale ") {
                    return Err(wrong("commands belong in a fence: ```sh"));
                }
                marks = Marks::default();
            }
            continue;
        };
        let body = lines.by_ref().map(|(_, line)| line);
        let body: Vec<_> = body.take_while(|line| line.trim() != "```").collect();
        let body = body.join("\n");
        let marks = std::mem::take(&mut marks);
        match (kind, marks.is_checked) {
            ("sh", false) => found.push(commands(at + 1, body, marks)),
            ("text", true) => {
                let last = found.last_mut().filter(|last| last.not_run.is_none());
                let last = last.ok_or_else(|| wrong("output of commands that are not run"))?;
                last.output = Some(body);
            }
            ("text" | "toml" | "ini" | "json" | "yaml", false) => {}
            _ => return Err(wrong("a fence is of ```sh, ```text or a format of files")),
        }
    }
    Ok(found)
}

fn commands(line: usize, text: String, marks: Marks) -> Commands {
    Commands {
        line,
        text,
        beforehand: marks.beforehand,
        exit: marks.exit,
        not_run: marks.not_run,
        output: None,
    }
}

/// Is this what was printed? In what the page says, `...` is anything within a line, and alone in a
/// line any number of lines.
pub fn is_printed(page: &str, printed: &str) -> bool {
    let page: Vec<_> = page.lines().map(str::trim_end).collect();
    let printed: Vec<_> = printed.trim_end().lines().map(str::trim_end).collect();
    are_lines(&page, &printed)
}

fn are_lines(page: &[&str], printed: &[&str]) -> bool {
    match page.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skip| are_lines(rest, &printed[skip..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| is_line(line, first) && are_lines(rest, others)),
    }
}

fn is_line(page: &str, printed: &str) -> bool {
    let Some((start, rest)) = page.split_once("...") else {
        return page == printed;
    };
    let Some(printed) = printed.strip_prefix(start) else {
        return false;
    };
    let ends = printed.char_indices().map(|(at, _)| at);
    ends.chain([printed.len()])
        .any(|at| is_line(rest, &printed[at..]))
}

#[test]
fn dots_stand_for_what_differs_each_time_and_for_nothing_else() {
    assert!(is_printed("a\n... b\n...", "a\n1 2 b\nx\ny"));
    assert!(is_printed("...\nsnapshot ... saved", "snapshot 12ab saved"));
    assert!(!is_printed("a\nb", "a"));
    assert!(!is_printed("a", "a\nb"));
    assert!(!is_printed("snapshot ... saved", "snapshot 12ab not"));
}
