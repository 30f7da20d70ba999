//! Test programs: a file below `tests` that no program has as a module is compiled by nothing, and
//! its tests are gone without a word.

use crate::sources::{files_below, must_be_empty, repository};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file, and whether its own modules lie beside it: not in a directory of its name.
type Module = (PathBuf, bool);

/// The files that `text` has as modules, of a file whose modules without a path are in `below`.
fn modules(file: &Path, below: &Path, text: &str) -> Vec<Module> {
    let mut modules = Vec::new();
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("#[path = \"") {
            path = named.strip_suffix("\"]");
        } else if let Some(name) = module(line) {
            let directory = below.join(name).join("mod.rs");
            modules.push(match path.take() {
                Some(path) => (file.with_file_name(path), true),
                None if directory.exists() => (directory, true),
                None => (below.join(name).with_extension("rs"), false),
            });
        }
    }
    modules
}

/// `mod name;` and `pub mod name;` declare a file.
fn module(line: &str) -> Option<&str> {
    let words = line.strip_prefix("pub ").unwrap_or(line);
    words.strip_prefix("mod ")?.strip_suffix(';')
}

/// Adds a file and all that it has as modules.
fn reach((file, is_beside): Module, reached: &mut BTreeSet<PathBuf>) {
    let Ok(file) = file.canonicalize() else {
        panic!("{}: no such file", file.display());
    };
    if !reached.insert(file.clone()) {
        return;
    }
    let below = match is_beside {
        true => file.parent().expect("it is in a directory").to_owned(),
        false => file.with_extension(""),
    };
    let text = std::fs::read_to_string(&file).unwrap();
    for module in modules(&file, &below, &text) {
        reach(module, reached);
    }
}

/// As cargo finds them: files in `tests`, and `main.rs` in directories there.
fn is_program(name: &Path) -> bool {
    let parts: Vec<_> = name.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], [_, "tests", _] | [_, "tests", _, "main.rs"])
}

/// Every Rust file below `tests` of a crate, from `crates/` on.
fn files_of_tests() -> (PathBuf, Vec<PathBuf>) {
    let root = repository().join("crates").canonicalize().unwrap();
    let mut files = Vec::new();
    files_below(&root, &mut files);
    let names = files.iter().map(|path| path.strip_prefix(&root).unwrap());
    let is_test = |name: &&Path| {
        let is_rust = name.extension().is_some_and(|end| end == "rs");
        is_rust && name.iter().nth(1).is_some_and(|part| part == "tests")
    };
    let names = names.filter(is_test).map(Path::to_owned).collect();
    (root, names)
}

#[test]
fn every_file_of_tests_belongs_to_a_program() {
    let (root, files) = files_of_tests();
    let mut reached = BTreeSet::new();
    for program in files.iter().filter(|name| is_program(name)) {
        reach((root.join(program), true), &mut reached);
    }
    assert!(reached.len() > 200, "tidy sees only {}", reached.len());
    let findings: Vec<_> = files
        .iter()
        .filter(|name| !reached.contains(&root.join(name)))
        .map(|name| name.display().to_string())
        .collect();
    must_be_empty(&findings, "name it with `mod` in a program, or delete it:");
}

/// Each is linked by itself, and they run one after the other.
const PROGRAMS_MAX: usize = 40;

#[test]
fn test_programs_are_few() {
    let (_, files) = files_of_tests();
    let programs: Vec<_> = files.iter().filter(|name| is_program(name)).collect();
    assert!(
        programs.len() <= PROGRAMS_MAX,
        "make the new one a module of another: {programs:#?}"
    );
}
