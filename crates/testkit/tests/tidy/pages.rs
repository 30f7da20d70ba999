//! House style of the pages, as far as a machine can check it: width, links, files that the map
//! names, decisions.

use crate::sources::{must_be_empty, repository};
use std::path::Path;

/// Columns of a page; rows of tables, fenced blocks and comments of a line may be longer.
const COLUMNS_MAX: usize = 120;

const GUIDE_LINES_MAX: usize = 150;

/// Name and text of every Markdown file in the directories that hold pages.
fn pages() -> Vec<(String, String)> {
    let directories = [
        "",
        "docs",
        "docs/decisions",
        "docs/guide",
        "fuzz",
        "testdata",
    ];
    let mut pages = Vec::new();
    for directory in directories {
        for entry in std::fs::read_dir(repository().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "md") {
                let name = path.file_name().unwrap().to_str().unwrap();
                let name = Path::new(directory).join(name).display().to_string();
                pages.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(pages.len() > 20, "tidy sees only {} pages", pages.len());
    pages.sort();
    pages
}

/// Lines of a page outside of fenced blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut prose = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            prose.push((number + 1, line));
        }
    }
    assert!(!is_fenced, "a fenced block has no end");
    prose
}

#[test]
fn pages_are_as_wide_as_a_screen() {
    let mut findings = Vec::new();
    for (name, text) in pages() {
        for (number, line) in prose(&text) {
            let columns = line.chars().count();
            let is_exempt = line.trim_start().starts_with('|') || line.starts_with("<!-- ");
            if columns > COLUMNS_MAX && !is_exempt {
                findings.push(format!("{name}:{number}: {columns} columns"));
            }
        }
    }
    must_be_empty(&findings, "wrap it at 120 columns:");
}

/// A page of the guide answers one question.
#[test]
fn a_page_of_the_guide_is_read_in_five_minutes() {
    let pages = pages().into_iter();
    let guide: Vec<_> = pages
        .filter(|(name, _)| name.starts_with("docs/guide/"))
        .collect();
    assert!(guide.len() > 20, "tidy sees only {} pages", guide.len());
    let findings: Vec<_> = guide
        .iter()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > GUIDE_LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    must_be_empty(&findings, "divide the page:");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut findings = Vec::new();
    for (name, text) in pages() {
        let directory = repository().join(&name).parent().unwrap().to_owned();
        for (number, line) in prose(&text) {
            for link in line.split("](").skip(1) {
                let link = link.split([')', '#']).next().unwrap_or_default();
                let is_here = !link.is_empty() && !link.contains("://");
                if is_here && !directory.join(link).exists() {
                    findings.push(format!("{name}:{number}: {link}"));
                }
            }
        }
    }
    must_be_empty(&findings, "name the page as it is called now:");
}

#[test]
fn files_that_pages_name_exist() {
    let crates = repository().join("crates");
    let mut seen = 0;
    let mut findings = Vec::new();
    for (name, text) in pages() {
        for (number, line) in prose(&text) {
            for word in line.split('`').skip(1).step_by(2) {
                let is_source = word.ends_with(".rs") && word.contains("/src/");
                if is_source && !word.contains("NAME") {
                    seen += 1;
                    let word = word.trim_start_matches("crates/");
                    if !crates.join(word).exists() {
                        findings.push(format!("{name}:{number}: {word}"));
                    }
                }
            }
        }
    }
    assert!(seen > 80, "tidy sees only {seen} names of files");
    must_be_empty(&findings, "name the file as it is called now:");
}

#[test]
fn a_decision_says_what_is_not_proven() {
    let mut numbers = Vec::new();
    let mut findings = Vec::new();
    for (name, text) in pages() {
        let Some(file) = name.strip_prefix("docs/decisions/") else {
            continue;
        };
        let number = &file[..4];
        if numbers.contains(&number.to_owned()) || !text.starts_with(&format!("# {number}: ")) {
            findings.push(format!("{name}: its number"));
        }
        numbers.push(number.to_owned());
        if !text.to_lowercase().contains("not proven") {
            findings.push(format!("{name}: \"What is not proven\""));
        }
    }
    must_be_empty(&findings, "complete the decision:");
}

/// Two branches that each add a promise take the next number.
#[test]
fn every_promise_has_a_number_of_its_own() {
    let proof = std::fs::read_to_string(repository().join("docs/PROOF.md")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut findings = Vec::new();
    for line in proof.lines() {
        let Some(id) = line
            .strip_prefix("| ")
            .and_then(|rest| rest.split(' ').next())
        else {
            continue;
        };
        let is_id = id.split_once('-').is_some_and(|(kind, number)| {
            kind.chars().all(|it| it.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
        });
        if is_id && !seen.insert(id) {
            findings.push(id.to_owned());
        }
    }
    assert!(seen.len() > 80, "tidy sees only {} promises", seen.len());
    must_be_empty(&findings, "give it a number of its own in docs/PROOF.md:");
}
