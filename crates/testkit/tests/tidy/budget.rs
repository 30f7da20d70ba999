//! What building and testing Bale may cost: the numbers of docs/BUDGET.md that can be counted.
//! Those that have to be measured are compared by `.ci/run`.

use super::sources::{must_be_empty, repository};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A number that is lower than so many percent of its budget has become less: the budget should.
const USED_PERCENT_MIN: usize = 80;

/// What `.ci/run` looks up.
const MEASURED: [&str; 3] = [
    "minutes of `./test`",
    "minutes of `.ci/run`",
    "seconds of processor of `cargo build --release`",
];

/// The rows of the page: what is counted, how much it may be, and why.
fn budget() -> Vec<(String, usize, String)> {
    let page = std::fs::read_to_string(repository().join("docs/BUDGET.md")).unwrap();
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, number, because] = cells[..] else {
            panic!("three cells, please: {line}");
        };
        if let Ok(number) = number.parse() {
            rows.push((what.to_owned(), number, because.to_owned()));
        }
    }
    assert!(rows.len() > 20, "only {} rows", rows.len());
    rows
}

fn lines_below(directory: &Path) -> usize {
    let mut lines = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            lines += lines_below(&path);
        } else if path.extension().is_some_and(|end| end == "rs") {
            lines += std::fs::read_to_string(path).unwrap().lines().count();
        }
    }
    lines
}

/// Files that become programs of tests; those of unit tests are one for each crate.
fn test_programs() -> usize {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--no-deps"]);
    let output = cargo.args(["--offline", "--locked"]).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    targets.filter(|target| target["kind"][0] == "test").count()
}

fn counted() -> BTreeMap<String, usize> {
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let packages = lock.matches("[[package]]").count();
    let mut counted = BTreeMap::from([
        ("packages in `Cargo.lock`".to_owned(), packages),
        ("programs of integration tests".to_owned(), test_programs()),
    ]);
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        counted.insert(
            format!("lines of `crates/{name}/src`"),
            lines_below(&path.join("src")),
        );
    }
    counted
}

#[test]
fn nothing_grows_without_a_reason() {
    let budget = budget();
    let mut findings = Vec::new();
    for (what, count) in counted() {
        let row = budget.iter().find(|(name, ..)| *name == what);
        let Some((_, number, _)) = row else {
            findings.push(format!("{what}: {count}, and no row"));
            continue;
        };
        if count > *number {
            findings.push(format!("{what}: {count}, more than {number}"));
        } else if count * 100 < number * USED_PERCENT_MIN {
            findings.push(format!("{what}: {count}, so {number} is too much now"));
        }
    }
    must_be_empty(
        &findings,
        "make it smaller, or change docs/BUDGET.md and say there why:",
    );
}

#[test]
fn every_number_of_the_budget_is_compared_and_has_a_reason() {
    let counted = counted();
    let budget = budget();
    let mut findings = Vec::new();
    for (what, _, because) in &budget {
        if !counted.contains_key(what) && !MEASURED.contains(&what.as_str()) {
            findings.push(format!("{what}: nobody counts it"));
        }
        if because.split(' ').count() < 3 {
            findings.push(format!("{what}: no reason"));
        }
        if budget.iter().filter(|(name, ..)| name == what).count() > 1 {
            findings.push(format!("{what}: twice"));
        }
    }
    for what in MEASURED {
        if !budget.iter().any(|(name, ..)| name == what) {
            findings.push(format!("{what}: no row, and .ci/run wants it"));
        }
    }
    must_be_empty(&findings, "mend docs/BUDGET.md:");
}
