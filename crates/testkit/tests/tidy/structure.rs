//! The structure that a machine can check: arrows between crates, circles between files, and that a
//! word names one type.

use crate::modules::Modules;
use crate::sources::{must_be_empty, repository, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Which of our crates a crate may use, its tests aside: the drawing in docs/ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 19] = [
    ("format", &[]),
    ("sys", &[]),
    ("fsimage", &[]),
    ("pipeline", &["format", "sys"]),
    ("repository", &["format", "sys", "pipeline"]),
    ("source", &["format", "sys", "fsimage", "pipeline", "nbd"]),
    ("restore", &["format", "sys", "fsimage", "pipeline"]),
    (
        "engine",
        &[
            "format",
            "sys",
            "fsimage",
            "pipeline",
            "repository",
            "source",
            "restore",
            "nbd",
            "mount",
        ],
    ),
    ("mount", &["format", "pipeline", "repository", "restore"]),
    ("cloud", &["format", "pipeline", "repository"]),
    ("remote", &["format", "pipeline", "repository", "cloud"]),
    ("serve", &["format", "pipeline", "repository"]),
    ("nbd", &["pipeline"]),
    ("profile", &[]),
    ("tune", &["fsimage"]),
    ("compare", &["fsimage", "tune"]),
    (
        "cli",
        &[
            "format",
            "sys",
            "fsimage",
            "pipeline",
            "repository",
            "remote",
            "source",
            "restore",
            "nbd",
            "mount",
            "engine",
            "serve",
            "profile",
            "tune",
        ],
    ),
    (
        "testkit",
        &[
            "format",
            "sys",
            "pipeline",
            "repository",
            "source",
            "restore",
            "engine",
        ],
    ),
    (
        "fuzz-targets",
        &[
            "format",
            "sys",
            "fsimage",
            "pipeline",
            "repository",
            "cloud",
            "remote",
            "serve",
            "source",
            "nbd",
            "profile",
        ],
    ),
];

#[test]
fn no_crate_uses_another_against_the_drawing() {
    let mut findings = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let section = text.split("[dependencies]").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let Some((_, may)) = ARROWS.iter().find(|(crate_, _)| *crate_ == name) else {
            findings.push(format!("{name}: not in the drawing"));
            continue;
        };
        for line in section.lines() {
            if let Some(rest) = line.strip_prefix("bale-") {
                seen += 1;
                let used = rest.split(['.', ' ']).next().unwrap_or_default();
                if !may.contains(&used) {
                    findings.push(format!("{name} uses {used}"));
                }
            }
        }
    }
    assert!(seen > 20, "tidy sees only {seen} arrows");
    must_be_empty(
        &findings,
        "turn the arrow round, or draw it in docs/ARCHITECTURE.md:",
    );
}

/// Files that may be in a circle.
const CIRCLE_FILES_MAX: usize = 3;
/// Files whose own arrows do not count, and why.
const OVERSEERS: [(&str, &str, &str); 1] = [(
    "format",
    "limits",
    "it proves how the bounds of all others relate",
)];

#[test]
fn files_stand_in_no_circles() {
    let sources = sources();
    let mut findings = Vec::new();
    let mut arrows = 0;
    for (name, _) in ARROWS.iter() {
        let mut modules = Modules::of(name, &sources);
        for (_, file, _) in OVERSEERS.iter().filter(|(of, ..)| of == name) {
            let seen = modules
                .arrows
                .insert(vec![(*file).to_owned()], BTreeSet::new());
            assert!(
                seen.is_some_and(|arrows| !arrows.is_empty()),
                "{file} sees nothing"
            );
        }
        arrows += modules.arrows.values().map(BTreeSet::len).sum::<usize>();
        for circle in modules.circles(CIRCLE_FILES_MAX) {
            let files: Vec<_> = circle.iter().map(|path| path.join("/")).collect();
            findings.push(format!("{name}: {}", files.join(" ")));
        }
    }
    assert!(arrows > 500, "tidy sees only {arrows} arrows");
    must_be_empty(
        &findings,
        "let what they share lie in a file below them all, or name the circle here:",
    );
}

/// Types of ext4 and XFS that are the same thing of either, in a module of its name.
const OF_EITHER: [&str; 2] = ["DirBlock", "Superblock"];

#[test]
fn a_word_names_one_type() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for line in &source.lines {
            let code = line.trim_start();
            let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub union "];
            let Some(rest) = kinds.iter().find_map(|kind| code.strip_prefix(kind)) else {
                continue;
            };
            let end = rest.find(|letter: char| !letter.is_alphanumeric());
            let name = rest[..end.unwrap_or(rest.len())].to_owned();
            places.entry(name).or_default().push(source.name.clone());
        }
    }
    assert!(places.len() > 400, "tidy sees only {} types", places.len());
    let findings: Vec<_> = places
        .iter()
        .filter(|(name, files)| files.len() > 1 && !OF_EITHER.contains(&name.as_str()))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    must_be_empty(&findings, "call each by what only it is:");
}
