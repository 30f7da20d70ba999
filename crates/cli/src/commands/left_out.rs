//! What a backup left out, in the words of its snapshot's record, and back: a restore that deletes
//! must not take what the backup did not look at for something that was not there.

use crate::args::{Exclude, Look};
use crate::sizes;
use anyhow::Result;
use bale_pipeline::filter::{Filter, FilterOptions, Mark, Pattern};
use std::path::{Path, PathBuf};

/// Patterns of one exclude file that a record holds. Of a longer file it holds the name, and
/// nothing knows what was in it.
const FILE_PATTERNS_RECORDED_MAX: usize = 1000;

const IGNORING_CASE: &str = "iexclude:";
const FILE: &str = "file:";
const MARK: &str = "if-present:";
const CACHES: &str = "caches";
const LARGER: &str = "larger-than:";
const OTHER_FILE_SYSTEMS: &str = "other-file-systems";

/// For the record of a snapshot: patterns in the order in which they decide, then what else leaves
/// out.
pub fn record(options: &Look) -> Result<Vec<String>> {
    let mut given = Vec::new();
    for exclude in &options.excludes.given {
        match exclude {
            Exclude::Pattern(text) => given.push(text.clone()),
            Exclude::IgnoringCase(text) => given.push(format!("{IGNORING_CASE}{text}")),
            Exclude::File(file) => {
                let patterns = super::look::exclude_file(file)?;
                if patterns.len() <= FILE_PATTERNS_RECORDED_MAX {
                    given.extend(patterns.into_iter().map(|pattern| pattern.text));
                } else {
                    given.push(format!("{FILE}{}", file.display()));
                }
            }
        }
    }
    let prefixed = |prefix: &'static str| move |text: &String| format!("{prefix}{text}");
    given.extend(options.exclude_if_present.iter().map(prefixed(MARK)));
    given.extend(options.exclude_caches.then(|| CACHES.to_owned()));
    given.extend(options.exclude_larger_than.iter().map(prefixed(LARGER)));
    given.extend(
        options
            .one_file_system
            .then(|| OTHER_FILE_SYSTEMS.to_owned()),
    );
    Ok(given)
}

/// Files that this backup leaves out because it works with them, as patterns for the record: a
/// restore that deletes, opened with another secret, must not take the key for something that was
/// not there. Directories say by themselves that their content is not in the snapshot.
pub fn files_in_use(paths: &[PathBuf]) -> Vec<String> {
    let real = |path: &PathBuf| std::fs::canonicalize(path).ok();
    let real = paths.iter().filter_map(real).filter(|path| !path.is_dir());
    let mut patterns: Vec<String> = real.map(|path| pattern_of(&path)).collect();
    patterns.sort();
    patterns.dedup();
    patterns
}

/// Matches the path, and perhaps a few like it.
fn pattern_of(path: &Path) -> String {
    let is_special =
        |letter: char| "*?[]{}\\".contains(letter) || letter == char::REPLACEMENT_CHARACTER;
    path.to_string_lossy().replace(is_special, "*")
}

/// The filter that a record describes; `None` if the record does not say all. A word that may be a
/// pattern as well as something else is taken for both.
pub fn of_record(given: &[String]) -> Option<Filter> {
    let mut options = FilterOptions::default();
    for text in given {
        if text.starts_with(FILE) {
            return None;
        }
        if text == CACHES {
            options.marks.push(Mark::cachedir());
        } else if let Some(mark) = text.strip_prefix(MARK) {
            options.marks.push(Mark::parse(mark.as_bytes())?);
        } else if let Some(size) = text.strip_prefix(LARGER) {
            let bytes = sizes::parse_bytes(size).ok()?;
            let least = options
                .larger_than_bytes
                .map_or(bytes, |other| other.min(bytes));
            options.larger_than_bytes = Some(least);
        }
        let pattern = text.strip_prefix(IGNORING_CASE);
        options.patterns.push(Pattern {
            text: pattern.unwrap_or(text).to_owned(),
            ignore_case: pattern.is_some(),
        });
    }
    Filter::new(&options).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(given: &[&str]) -> Option<Filter> {
        let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
        of_record(&given)
    }

    #[test]
    fn a_record_leaves_out_what_its_backup_left_out() {
        let filter = filter(&[
            "/a/b",
            "*.o",
            "!keep.o",
            "iexclude:TMP",
            "larger-than:1K",
            "caches",
        ]);
        let filter = filter.unwrap();
        for path in ["a/b", "x/y.o", "x/tmp", "caches"] {
            assert!(filter.excludes(path.as_bytes()), "{path}");
        }
        for path in ["a/c", "x/keep.o", "b"] {
            assert!(!filter.excludes(path.as_bytes()), "{path}");
        }
        assert!(filter.excludes_size(1025) && !filter.excludes_size(1024));
        assert_eq!(filter.marks(), [Mark::cachedir()]);
    }

    #[test]
    fn a_pattern_of_a_path_matches_it() {
        for path in ["/home/me/a key", "/a[1]/{b}*", "/x\\y?"] {
            let filter = filter(&[&pattern_of(Path::new(path))]).unwrap();
            assert!(filter.excludes(&path.as_bytes()[1..]), "{path}");
            assert!(!filter.excludes(b"home/me/other"));
        }
    }

    #[test]
    fn a_record_that_names_a_file_of_patterns_does_not_say_all() {
        assert!(filter(&["file:/etc/excludes"]).is_none());
        assert!(filter(&["larger-than:much"]).is_none());
        assert!(filter(&[]).is_some());
    }
}
