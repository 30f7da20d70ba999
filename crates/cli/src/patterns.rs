//! Patterns mean one thing in every command (docs/SCRIPTING.md, "Patterns"). Those that look as if
//! they meant something and can match nothing are refused, with what to write instead.

use crate::exit::Usage;
use bale_pipeline::filter::{Filter, FilterOptions, Pattern, PatternError};

/// A filter; patterns that the matcher does not understand are wrong words.
pub fn compile(options: FilterOptions) -> Result<Filter, Usage> {
    Filter::new(&options).map_err(refused)
}

/// With the pattern and the reason.
pub fn refused(error: PatternError) -> Usage {
    Usage(error.to_string())
}

/// Of patterns as they are written on the command line.
pub fn check_texts(texts: &[String]) -> Result<(), Usage> {
    let pattern = |text: &String| Pattern {
        text: text.clone(),
        ignore_case: false,
    };
    check(&texts.iter().map(pattern).collect::<Vec<_>>())
}

/// Of all patterns of a command, in the order in which they decide.
pub fn check(patterns: &[Pattern]) -> Result<(), Usage> {
    let mut before = false;
    for pattern in patterns {
        let text = pattern.text.as_str();
        let (takes_back, plain) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let why = match takes_back && !before {
            true => Some(
                "! takes back what an earlier pattern matches, and there is none before it; for a \
                 name that begins with ! write \\!",
            ),
            false => why_nothing(plain),
        };
        if let Some(why) = why {
            return Err(Usage(format!("pattern {text:?} can match nothing: {why}")));
        }
        before |= !takes_back;
    }
    Ok(())
}

/// Refuses a `!` below a directory that an earlier pattern leaves out, for commands that look at
/// nothing there: it would take back what is never looked at.
pub fn check_reachable(patterns: &[Pattern]) -> Result<(), Usage> {
    for (at, pattern) in patterns.iter().enumerate() {
        let Some(kept) = pattern.text.strip_prefix('!') else {
            continue;
        };
        let kept = kept.trim_end_matches('/');
        for (slash, _) in kept
            .char_indices()
            .skip(1)
            .filter(|(_, letter)| *letter == '/')
        {
            let above = &kept[..slash];
            if leaves_out(&patterns[..at], above)? {
                return Err(Usage(format!(
                    "pattern {:?} can match nothing: an earlier pattern leaves out {above:?}, and \
                     what is below a directory that is left out is not looked at; write {above}/* \
                     for that pattern, so that what is in the directory is left out one by one",
                    pattern.text
                )));
            }
        }
    }
    Ok(())
}

/// Do these patterns leave out every directory that `above` means? False also if it depends.
fn leaves_out(patterns: &[Pattern], above: &str) -> Result<bool, Usage> {
    let is_same = |pattern: &&Pattern| {
        let text = pattern.text.strip_prefix('!').unwrap_or(&pattern.text);
        text.trim_end_matches('/') == above
    };
    if let Some(last) = patterns.iter().rfind(is_same) {
        return Ok(!last.text.starts_with('!'));
    }
    if above.contains(['[', '\\']) {
        return Ok(false);
    }
    if above.contains(['*', '?']) {
        // If each of these is left out, every such directory is.
        for (many, one) in [("xq", "x"), ("Z7", "7"), ("é", "é")] {
            let example = above
                .replace("**", many)
                .replace('*', many)
                .replace('?', one);
            if !leaves_out(patterns, &example)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    // A pattern that begins at the top does not leave out a directory everywhere.
    let is_anchored = above.starts_with('/');
    let counts = |pattern: &&Pattern| {
        is_anchored || pattern.text.starts_with('!') || !pattern.text.starts_with('/')
    };
    let filter = compile(FilterOptions {
        patterns: patterns.iter().filter(counts).cloned().collect(),
        ..FilterOptions::default()
    })?;
    Ok(filter.excludes(above.trim_start_matches('/').as_bytes()))
}

fn why_nothing(text: &str) -> Option<&'static str> {
    let first = text.split('/').next().unwrap_or_default();
    if text.trim().is_empty() {
        Some("it is empty")
    } else if text.contains("//") {
        Some("no path has // in it; write one slash")
    } else if text.trim() == "/" {
        Some("/ alone names nothing; write /* for all that is in the root directory")
    } else if text.split('/').any(|part| matches!(part, "." | "..")) {
        Some(
            "no path has . or .. in it; begin with a name to mean it anywhere, or with / to write \
             the whole path",
        )
    } else if first == "~" {
        Some(
            "~ is not replaced here; write the whole path, or let the shell do it (no quotes, and \
             a blank instead of =)",
        )
    } else if first.strip_prefix('$').is_some_and(is_variable) {
        Some(
            "variables are not replaced here; write the whole path, or let the shell do it (double \
             quotes)",
        )
    } else if has_choice(text) {
        Some("{a,b} is no choice here; write a pattern for each, or \\{ to mean the character")
    } else {
        None
    }
}

/// Is there such a variable? Names of files may begin with a `$`, too.
fn is_variable(name: &str) -> bool {
    let plain = name.strip_prefix('{');
    let name = plain.map_or(name, |name| name.trim_end_matches('}'));
    !name.is_empty() && std::env::var_os(name).is_some()
}

/// A brace that is not escaped, a comma, and a brace.
fn has_choice(text: &str) -> bool {
    let (mut open, mut comma, mut escaped) = (false, false, false);
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => open = true,
            ',' if open => comma = true,
            '}' if comma => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(texts: &[&str]) -> Option<String> {
        let pattern = |text: &&str| Pattern {
            text: text.to_string(),
            ignore_case: false,
        };
        let patterns: Vec<Pattern> = texts.iter().map(pattern).collect();
        check(&patterns).err().map(|usage| usage.0)
    }

    #[test]
    fn what_can_match_nothing_is_refused_and_told_what_to_write() {
        let cases = [
            ("", "empty"),
            (" ", "empty"),
            ("/", "/*"),
            ("a//b", "one slash"),
            ("//a", "one slash"),
            ("!//", "earlier pattern"),
            ("!keep", "earlier pattern"),
            ("./x", "no path has"),
            ("a/../b", "no path has"),
            ("~/x", "~ is not replaced"),
            ("$PATH/x", "variables"),
            ("${PATH}", "variables"),
            ("*.{o,a}", "no choice"),
        ];
        for (text, word) in cases {
            let why = refused(&[text]).unwrap_or_default();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn nothing_is_taken_back_below_a_directory_that_is_left_out() {
        let reachable = |texts: &[&str]| {
            let pattern = |text: &&str| Pattern {
                text: text.to_string(),
                ignore_case: false,
            };
            let patterns: Vec<Pattern> = texts.iter().map(pattern).collect();
            check_reachable(&patterns).is_ok()
        };
        for texts in [
            &["/home/*/Downloads", "!/home/me/Downloads/contracts"][..],
            &["/home/*/Downloads", "!/home/*/Downloads/contracts"],
            &["Downloads", "!/home/me/Downloads/contracts/x"],
            &["Downloads/", "!Downloads/contracts"],
            &["[D]ownloads", "!Downloads/contracts"],
            &["/a", "!/a/b/c"],
        ] {
            assert!(!reachable(texts), "{texts:?}");
        }
        for texts in [
            &["/home/*/Downloads/*", "!/home/me/Downloads/contracts"][..],
            &[
                "/home/*/Downloads",
                "!/home/me/Downloads",
                "!/home/me/Downloads/x",
            ],
            &["/Downloads", "!Downloads/contracts"],
            &["*.o", "!keep.o"],
            &["/a/*", "!/a/b"],
            &["!/a/b", "/a"],
        ] {
            assert!(reachable(texts), "{texts:?}");
        }
    }

    #[test]
    fn what_can_match_something_is_taken() {
        let fine = [
            "x",
            "/a/b",
            "*.o",
            "a~",
            "~name",
            "$RECYCLE.BIN",
            "{x}",
            "\\{a,b}",
            ".cache",
            "..x",
            "\\!x",
        ];
        for text in fine {
            assert_eq!(refused(&[text]), None);
        }
        assert_eq!(refused(&["*.o", "!keep.o"]), None);
    }
}
