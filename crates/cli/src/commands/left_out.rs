//! What a backup left out, in the words of its snapshot's record, and back: a restore that deletes must not take what the
//! backup did not look at for something that was not there.

use crate::args::Look;
use crate::sizes;
use anyhow::{Context, Result};
use bale_engine::filter::{Filter, FilterOptions, Mark, Pattern, parse_exclude_file};

/// Patterns of one exclude file that a record holds. Of a longer file it holds the name, and nothing knows what was in it.
const FILE_PATTERNS_RECORDED_MAX: usize = 1000;

const IGNORING_CASE: &str = "iexclude:";
const FILE: &str = "file:";
const MARK: &str = "if-present:";
const CACHES: &str = "caches";
const LARGER: &str = "larger-than:";
const OTHER_FILE_SYSTEMS: &str = "other-file-systems";

/// For the record of a snapshot: patterns in the order in which they decide, then what else leaves out.
pub fn record(options: &Look) -> Result<Vec<String>> {
    let mut given = Vec::new();
    for file in &options.exclude_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("read exclude file {}", file.display()))?;
        let patterns = parse_exclude_file(&text, false);
        match patterns.len() <= FILE_PATTERNS_RECORDED_MAX {
            true => given.extend(patterns.into_iter().map(|pattern| pattern.text)),
            false => given.push(format!("{FILE}{}", file.display())),
        }
    }
    let prefixed = |prefix: &'static str| move |text: &String| format!("{prefix}{text}");
    given.extend(options.exclude.iter().cloned());
    given.extend(options.iexclude.iter().map(prefixed(IGNORING_CASE)));
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

/// The filter that a record describes; `None` if the record does not say all. A word that may be a pattern as well as
/// something else is taken for both.
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
    fn a_record_that_names_a_file_of_patterns_does_not_say_all() {
        assert!(filter(&["file:/etc/excludes"]).is_none());
        assert!(filter(&["larger-than:much"]).is_none());
        assert!(filter(&[]).is_some());
    }
}
