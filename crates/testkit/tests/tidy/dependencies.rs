//! What may become part of Bale: licences that ask for no more than notices, sources that everybody
//! can fetch, and nothing that no source file names.
//!
//! Advisories are not checked here: their database would have to be fetched.

use super::sources::{must_be_empty, repository};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bale is MIT OR Apache-2.0. A licence with an exception stands here with it, `A WITH B`.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// What Bale runs on. Other systems would bring packages that are never built.
const TARGETS: [&str; 4] = [
    "aarch64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl",
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What cargo says of a workspace. Everything was fetched for this machine, not for all targets:
/// the network is used if that is not enough.
fn metadata(manifest: &str, words: &[&str]) -> Value {
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--format-version", "1", "--locked"]);
        command
            .arg("--manifest-path")
            .arg(repository().join(manifest));
        command.args(words).args(more).output().unwrap()
    };
    let mut output = run(&["--offline"]);
    if !output.status.success() {
        output = run(&[]);
    }
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {trouble}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every package that is built for one of our targets, with any feature of ours.
fn built() -> Value {
    let targets = TARGETS
        .iter()
        .flat_map(|target| ["--filter-platform", target]);
    let words: Vec<_> = ["--all-features"].into_iter().chain(targets).collect();
    metadata("Cargo.toml", &words)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn name_of(package: &Value) -> String {
    format!("{} {}", text(package, "name"), text(package, "version"))
}

/// A licence expression of SPDX, read from its beginning: `OR` binds less than `AND`, and that less
/// than `WITH`. In old manifests a slash means `OR`.
struct Expression {
    /// Last word first.
    words: Vec<String>,
}

impl Expression {
    fn new(text: &str) -> Self {
        let spaced = ["(", ")", "/"].iter().fold(text.to_owned(), |text, sign| {
            text.replace(sign, &format!(" {sign} "))
        });
        let words = spaced.split_whitespace().rev().map(str::to_owned);
        Self {
            words: words.collect(),
        }
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is_next = self
            .words
            .last()
            .is_some_and(|next| words.contains(&next.as_str()));
        if is_next {
            self.words.pop();
        }
        is_next
    }

    /// May it be used by somebody who accepts these licences alone? Not if it cannot be read.
    fn satisfied_by(mut self, accepted: &[&str]) -> bool {
        self.either(accepted) && self.words.is_empty()
    }

    fn either(&mut self, accepted: &[&str]) -> bool {
        let mut is_satisfied = self.all(accepted);
        while self.takes(&["OR", "/"]) {
            is_satisfied |= self.all(accepted);
        }
        is_satisfied
    }

    fn all(&mut self, accepted: &[&str]) -> bool {
        let mut is_satisfied = self.one(accepted);
        while self.takes(&["AND"]) {
            is_satisfied &= self.one(accepted);
        }
        is_satisfied
    }

    fn one(&mut self, accepted: &[&str]) -> bool {
        if self.takes(&["("]) {
            let is_satisfied = self.either(accepted);
            return self.takes(&[")"]) && is_satisfied;
        }
        let mut licence = self.words.pop().unwrap_or_default();
        if self.takes(&["WITH"]) {
            licence = format!("{licence} WITH {}", self.words.pop().unwrap_or_default());
        }
        accepted.contains(&licence.as_str())
    }
}

#[test]
fn licences_of_dependencies_ask_for_no_more_than_notices() {
    let metadata = built();
    let packages = list(&metadata, "packages");
    assert!(packages.len() > 100, "cargo names {}", packages.len());
    let findings: Vec<_> = packages
        .iter()
        .filter(|package| !Expression::new(text(package, "license")).satisfied_by(&LICENCES))
        .map(|package| format!("{}: {:?}", name_of(package), text(package, "license")))
        .collect();
    must_be_empty(
        &findings,
        "use something else, or add the licence to LICENCES with a decision:",
    );
}

#[test]
fn licence_expressions_are_read_right() {
    let accepted = ["MIT", "ISC", "GPL-2.0 WITH exception"];
    let is_satisfied = |text: &str| Expression::new(text).satisfied_by(&accepted);
    for text in [
        "MIT",
        "Other OR MIT",
        "Other/MIT",
        "Other / MIT",
        "MIT AND ISC",
        "Other AND Another OR MIT",
        "MIT OR Other AND Another",
        "ISC AND (Other OR MIT)",
        "(Other OR (MIT AND ISC))",
        "GPL-2.0 WITH exception",
        "Other WITH exception OR MIT",
    ] {
        assert!(is_satisfied(text), "{text}");
    }
    for text in [
        "",
        "Other",
        "GPL-2.0",
        "MIT WITH exception",
        "MIT AND Other",
        "MIT AND (Other OR Another)",
        "(MIT OR Other) AND Other",
        "MIT ISC",
        "(MIT",
        "MIT)",
        "MIT AND",
    ] {
        assert!(!is_satisfied(text), "{text}");
    }
}

/// Of all targets, and of the fuzzer: whoever builds either fetches it.
#[test]
fn everything_comes_from_the_one_registry() {
    let mut findings = Vec::new();
    for name in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let lock = std::fs::read_to_string(repository().join(name)).unwrap();
        let sources: Vec<_> = (lock.lines())
            .filter_map(|line| line.strip_prefix("source = "))
            .map(|source| source.trim_matches('"'))
            .collect();
        assert!(sources.len() > 50, "{name} has {} sources", sources.len());
        let others = sources.iter().filter(|source| **source != REGISTRY);
        findings.extend(others.map(|source| format!("{name}: {source}")));
        // What has no source is a directory, and that is ours.
        for package in lock
            .split("[[package]]")
            .filter(|it| !it.contains("\nsource = "))
        {
            let name = package
                .lines()
                .find_map(|line| line.strip_prefix("name = "));
            let foreign = name.filter(|name| !name.starts_with("\"bale-"));
            findings.extend(foreign.map(|name| format!("{name}: no source")));
        }
    }
    must_be_empty(&findings, "take it from crates.io:");
}

/// A dependency that one of our crates gained is in the fuzzer's lock, too: its lints are refused
/// where it is not. Of the other lock `built` sees to it.
#[test]
fn the_lock_of_the_fuzzer_is_of_its_manifest() {
    metadata("fuzz/Cargo.toml", &["--filter-platform", TARGETS[0]]);
}

/// The packages of both workspaces that are ours.
fn ours() -> Vec<Value> {
    let mut ours = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        ours.extend_from_slice(list(&metadata(manifest, &["--no-deps"]), "packages"));
    }
    assert!(ours.len() > 15, "tidy sees only {} crates", ours.len());
    ours
}

/// A directory of ours has a version where it is published with the crate that names it.
#[test]
fn dependencies_have_versions() {
    let mut findings = Vec::new();
    for package in ours() {
        for dependency in list(&package, "dependencies") {
            let is_ours = !text(dependency, "path").is_empty();
            if text(dependency, "req").contains('*') && !is_ours {
                let name = text(dependency, "name");
                findings.push(format!("{}: {name}", text(&package, "name")));
            }
        }
    }
    must_be_empty(&findings, "say which version it was written for:");
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The code of a package's programs and of all files below these directories of it, without lines
/// that are comments.
fn code(package: &Value, directories: &[&str]) -> String {
    let root = Path::new(text(package, "manifest_path")).parent().unwrap();
    let programs = list(package, "targets").iter();
    let programs = programs.filter(|target| {
        let kinds = list(target, "kind");
        !kinds
            .iter()
            .any(|kind| ["test", "bench", "example"].contains(&kind.as_str().unwrap()))
    });
    let mut files: Vec<_> = programs
        .map(|target| text(target, "src_path").into())
        .collect();
    for directory in directories {
        files_below(&root.join(directory), &mut files);
    }
    let mut code = String::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        code.extend(lines.flat_map(|line| [line, "\n"]));
    }
    code
}

/// `name::`, or the name as a word of a `use`, an `extern crate` or an attribute.
fn is_named(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        if before.ends_with(is_letter) || after.starts_with(is_letter) {
            return false;
        }
        let is_inner =
            (before.strip_suffix("::")).is_some_and(|before| before.ends_with(is_letter));
        let is_path = after.starts_with("::") && !is_inner;
        let is_word = ["use ", "extern crate "]
            .iter()
            .any(|word| before.ends_with(word));
        is_path || is_word
    })
}

/// By which name a package's library is called in sources, where that is not its own.
fn libraries() -> BTreeMap<String, String> {
    let metadata = built();
    let packages = list(&metadata, "packages").iter();
    let libraries = packages.filter_map(|package| {
        let is_library = |target: &&Value| {
            let kinds = list(target, "kind").iter();
            let mut kinds = kinds.filter_map(Value::as_str);
            kinds.any(|kind| kind.ends_with("lib") || kind == "proc-macro")
        };
        let library = list(package, "targets").iter().find(is_library)?;
        let name = text(package, "name").to_owned();
        Some((name, text(library, "name").to_owned()))
    });
    libraries.collect()
}

#[test]
fn what_a_crate_depends_on_is_named_in_its_sources() {
    let libraries = libraries();
    let mut findings = Vec::new();
    let mut seen = 0;
    for package in ours() {
        let of_all = code(&package, &["src"]);
        let of_tests = code(&package, &["src", "tests", "benches", "examples"]);
        // Of crates that are used without being named, the manifest says why.
        let unnamed = list(&package["metadata"]["dependencies"], "unnamed");
        for dependency in list(&package, "dependencies") {
            seen += 1;
            let name = text(dependency, "name");
            let library = libraries.get(name).map_or(name, String::as_str);
            let library = dependency["rename"].as_str().unwrap_or(library);
            let is_of_tests = text(dependency, "kind") == "dev";
            let code = if is_of_tests { &of_tests } else { &of_all };
            if is_named(code, &library.replace('-', "_")) == unnamed.contains(&name.into()) {
                findings.push(format!("{}: {name}", text(&package, "name")));
            }
        }
    }
    assert!(seen > 100, "tidy sees only {seen} dependencies");
    must_be_empty(
        &findings,
        "take it out of the manifest, or make it one of tests, or take it out of `unnamed` in \
            [package.metadata.dependencies]:",
    );
}

#[test]
fn names_of_crates_are_found_as_words() {
    for code in [
        "use bytes::Bytes;",
        "let a = bytes::Bytes::new();",
        "#[derive(bytes::Derive)]",
        "    use bytes;",
        "extern crate bytes;",
        "pub use bytes as other;",
        "::bytes::new()",
    ] {
        assert!(is_named(code, "bytes"), "{code}");
    }
    for code in [
        "use my_bytes::Bytes;",
        "use bytes_of::Bytes;",
        "let bytes = 5;",
        "self::bytes::new()",
        "f(bytes)",
    ] {
        assert!(!is_named(code, "bytes"), "{code}");
    }
}
