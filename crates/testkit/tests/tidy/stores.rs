//! A store around another one hands on every method of `Store`, or says which it does not: a method
//! with a body in the trait is forgotten without a word otherwise, and the store around answers for
//! the one inside.

use crate::sources::{is_comment, must_be_empty, sources};

/// How an `impl` says what it leaves to the bodies in the trait, before the reason.
const LEFT: &str = "// Not handed on: ";

/// By one of these a store around another one is known.
const HANDS_ON: [&str; 3] = [
    "store.read_at(name, offset, ",
    "inner.read_at(name, offset, ",
    "base.read_at(name, offset, ",
];

/// Names of the functions in a block of lines.
fn functions(lines: &[String]) -> Vec<&str> {
    let lines = lines.iter().filter_map(|line| {
        let name = line.strip_prefix("    fn ")?;
        name.split(['(', '<']).next()
    });
    lines.collect()
}

/// The lines from one on that begins a block, to its end.
fn block(lines: &[String], begin: usize) -> &[String] {
    let len = lines[begin..].iter().position(|line| line == "}");
    &lines[begin..begin + len.expect("a block at the margin ends there")]
}

#[test]
fn a_store_around_another_hands_on_every_method_or_names_those_it_does_not() {
    let sources = sources();
    let trait_ = sources.iter().find_map(|source| {
        let begin = |line: &String| line.starts_with("pub trait Store:");
        let at = source.lines.iter().position(begin)?;
        Some(functions(block(&source.lines, at)))
    });
    let methods = trait_.expect("the trait of stores");
    assert!(methods.len() > 15, "{methods:?}");
    let (mut findings, mut seen) = (Vec::new(), 0);
    for source in &sources {
        for (at, line) in source.lines.iter().enumerate() {
            if !line.starts_with("impl") || !line.contains("Store for ") {
                continue;
            }
            let lines = block(&source.lines, at);
            let hands_on = |line: &String| HANDS_ON.iter().any(|call| line.contains(call));
            if !lines.iter().any(hands_on) {
                continue;
            }
            seen += 1;
            let there = functions(lines);
            let comments = lines.iter().filter(|line| is_comment(line));
            let left = comments.filter_map(|line| line.trim().strip_prefix(LEFT));
            let left: Vec<&str> = left
                .flat_map(|names| names.split(':').next().unwrap_or_default().split(", "))
                .collect();
            let is_missing = |method: &&&str| !there.contains(method) && !left.contains(method);
            for method in methods.iter().filter(is_missing) {
                findings.push(format!("{}: {line} {method}", source.name));
            }
            for name in left {
                if there.contains(&name) || !methods.contains(&name) {
                    findings.push(format!("{}: {line} {name}, said not to be", source.name));
                }
            }
        }
    }
    assert!(seen > 8, "tidy sees only {seen} stores around others");
    must_be_empty(
        &findings,
        "hand the method on to the store inside, or say `// Not handed on: NAMES: reason` in the \
         impl (the body in the trait then answers for it):",
    );
}
