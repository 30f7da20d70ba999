//! Options that choose snapshots and match none are a slip, probably: this says which, and what
//! there is to choose from.

use super::select;
use crate::args::{Global, Select};
use crate::output;
use bale_format::Snapshot;
use bale_repository::repository::Named;
use std::collections::BTreeSet;

/// Names that are listed at most.
const NAMES_MAX: usize = 10;

/// Says that none of these snapshots passes, if that is so; nothing of a repository without
/// snapshots.
pub fn report(global: &Global, select: &Select, all: &[Named]) {
    let Some(text) = text(select, all).filter(|_| !global.quiet) else {
        return;
    };
    if global.json {
        return output::object(&serde_json::json!({"type": "note", "message": text}));
    }
    report!("bale: {text}");
}

/// What there is instead, if none passes.
pub fn text(select: &Select, all: &[Named]) -> Option<String> {
    let passes = |select: &Select| {
        let filter = select::filter(select);
        all.iter().any(|(_, snapshot)| filter.passes(snapshot))
    };
    if all.is_empty() || passes(select) {
        return None;
    }
    let mut wrong = Vec::new();
    for (kind, alone) in alone(select) {
        if !passes(&alone) {
            let there = names(all, kind.of);
            wrong.push(format!("{} ({} here: {there})", words(&alone), kind.many));
        }
    }
    // Each of them matches something, all of them nothing.
    if wrong.is_empty() {
        wrong.push(words(select));
    }
    Some(format!("no snapshot matches {}", wrong.join(", nor ")))
}

/// One of the options.
struct Kind {
    many: &'static str,
    of: fn(&Snapshot) -> Vec<String>,
}

const KINDS: [Kind; 3] = [
    Kind {
        many: "hosts",
        of: |snapshot| vec![output::escape(snapshot.host.as_bytes())],
    },
    Kind {
        many: "paths",
        of: |snapshot| {
            snapshot
                .paths
                .iter()
                .map(|path| output::escape(&path.0))
                .collect()
        },
    },
    Kind {
        many: "tags",
        of: |snapshot| {
            snapshot
                .tags
                .iter()
                .map(|tag| output::escape(tag.as_bytes()))
                .collect()
        },
    },
];

/// Each option that was given, without the others.
fn alone(select: &Select) -> impl Iterator<Item = (Kind, Select)> {
    let hosts = Select {
        hosts: select.hosts.clone(),
        ..Select::default()
    };
    let paths = Select {
        paths: select.paths.clone(),
        ..Select::default()
    };
    let tags = Select {
        tags: select.tags.clone(),
        ..Select::default()
    };
    KINDS.into_iter().zip([hosts, paths, tags])
}

/// As they were given.
fn words(select: &Select) -> String {
    let mut words = Vec::new();
    for host in &select.hosts {
        words.push(format!("--host {}", output::escape(host.as_bytes())));
    }
    for path in &select.paths {
        words.push(format!("--path {}", output::path(path)));
    }
    for tags in &select.tags {
        words.push(format!("--tag {}", output::escape(tags.as_bytes())));
    }
    words.join(" ")
}

fn names(all: &[Named], of: fn(&Snapshot) -> Vec<String>) -> String {
    let names: BTreeSet<String> = all.iter().flat_map(|(_, snapshot)| of(snapshot)).collect();
    let mut text: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    if names.len() > NAMES_MAX {
        text.push("...");
    }
    match text.is_empty() {
        true => "none".to_owned(),
        false => text.join(", "),
    }
}
