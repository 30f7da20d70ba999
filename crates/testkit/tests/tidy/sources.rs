//! The files that tidy reads: sources as text, without the unit tests at their ends.

use std::path::{Path, PathBuf};

pub struct Source {
    /// From `crates/` on.
    pub name: String,
    /// Without the unit tests at its end.
    pub lines: Vec<String>,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Directories that are not part of the project are left out.
pub fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_directory = path.symlink_metadata().unwrap().is_dir();
        if is_directory
            && ![".git", "target", "artifacts", "coverage", "__pycache__"].contains(&name)
        {
            files_below(&path, found);
        } else if path.is_file() && name != ".git" {
            found.push(path);
        }
    }
}

/// Every source file of a crate, without files that are unit tests.
pub fn sources() -> Vec<Source> {
    let root = repository().join("crates");
    let mut files = Vec::new();
    files_below(&root, &mut files);
    let sources: Vec<_> = files
        .into_iter()
        .filter_map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            let is_source = name.ends_with(".rs") && name.split('/').nth(1) == Some("src");
            let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
            (is_source && !is_test).then(|| source(name, &path))
        })
        .collect();
    assert!(
        sources.len() > 100,
        "tidy sees only {} files",
        sources.len()
    );
    sources
}

fn source(name: &str, path: &Path) -> Source {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && !pair[1].ends_with(';'));
    Source {
        name: name.to_owned(),
        lines: lines[..tests.unwrap_or(lines.len())].to_vec(),
    }
}

pub fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

pub fn must_be_empty(findings: &[String], instead: &str) {
    assert!(
        findings.is_empty(),
        "{instead}\n  {}",
        findings.join("\n  ")
    );
}
