//! `bale snapshots`

use super::{select, unmatched};
use crate::args::{Global, Pick, Select, Snapshots};
use crate::exit::{self, Usage};
use crate::times::local_time;
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::forget::{self, GroupBy, Policy};
use bale_format::snapshot::{ImageRecord, ImageState};
use bale_format::{Snapshot, Time};
use bale_repository::repository::Named;
use jiff::tz::TimeZone;
use serde_json::json;

/// Lists snapshots, oldest first, and unfinished runs.
pub fn run(global: &Global, options: &Snapshots) -> Result<i32> {
    let by = GroupBy::parse(&options.group_by).map_err(Usage)?;
    let repository = place::open_for(global, place::Use::List)?;
    let mut listed = select::Listed::of(&repository)?;
    if global.json {
        for text in &listed.damaged {
            output::object(&json!({"type": "damage", "what": "snapshot", "message": text}));
        }
    }
    let running = std::mem::take(&mut listed.running);
    let mut all = match options.ids.is_empty() {
        true => listed.all(),
        false => named(&options.ids, listed, &options.select)?,
    };
    let filter = select::filter(&options.select);
    unmatched::report(global, &options.select, &all);
    all.retain(|(_, snapshot)| filter.passes(snapshot));
    if let Some(count) = options.latest {
        all = newest(all, count, by);
    }
    print_all(global, &all, by);
    let is_whole_list = options.ids.is_empty() && !global.quiet;
    for run in running
        .iter()
        .filter(|run| is_whole_list && filter.passes(&run.1))
    {
        print_running(run, repository.clock().time(), global.json);
    }
    if !global.json && !global.quiet {
        report!("{}", crate::sizes::counted(all.len() as u64, "snapshot"));
    }
    Ok(exit::COMPLETE)
}

/// Text has a line of headings, and one for each group if there are some.
fn print_all(global: &Global, all: &[Named], by: GroupBy) {
    if global.json {
        all.iter()
            .for_each(|(id, snapshot)| output::object(&object(id, snapshot)));
        return;
    }
    let widths = Widths::of(all);
    if !global.quiet && !all.is_empty() {
        output::line(&widths.headings());
    }
    let is_grouped = by.host || by.paths || by.filesystems || by.tags;
    if !is_grouped {
        all.iter().for_each(|named| print(named, &widths));
        return;
    }
    let plan = forget::plan(all, &Policy::default(), by, &TimeZone::UTC, ALL_OF_TIME);
    for group in &plan.groups {
        output::line(&super::forget::heading(&plan, group));
        // Oldest first, as without groups.
        for decision in group.decisions.iter().rev() {
            let named = all.iter().find(|(id, _)| *id == decision.id);
            named.into_iter().for_each(|named| print(named, &widths));
        }
    }
}

/// Those that were asked for, each once; one that is not there is an error.
pub(super) fn named(
    texts: &[String],
    listed: select::Listed,
    select: &Select,
) -> Result<Vec<Named>> {
    let pick = Pick {
        select: select.clone(),
        ..Pick::default()
    };
    let mut found: Vec<Named> = Vec::new();
    for text in texts {
        let digits = text.to_ascii_lowercase();
        let begins = |(id, _): &&Named| !digits.is_empty() && id.to_string().starts_with(&digits);
        let mut these: Vec<_> = listed.readable.iter().filter(begins).cloned().collect();
        if these.is_empty() {
            these.push(listed.find(text, &pick)?);
        }
        these.retain(|(id, _)| found.iter().all(|(other, _)| other != id));
        found.append(&mut these);
    }
    Ok(found)
}

/// Nothing is in the future of it.
const ALL_OF_TIME: Time = Time {
    seconds: i64::MAX,
    nanos: 0,
};

fn newest(all: Vec<Named>, count: u32, by: GroupBy) -> Vec<Named> {
    let policy = Policy {
        last: count,
        ..Policy::default()
    };
    let plan = forget::plan(&all, &policy, by, &TimeZone::UTC, ALL_OF_TIME);
    let kept: std::collections::HashSet<_> = plan.kept().map(|decision| decision.id).collect();
    all.into_iter()
        .filter(|(id, _)| kept.contains(id))
        .collect()
}

/// Of columns whose texts differ in length.
struct Widths {
    host: usize,
}

impl Widths {
    fn of(all: &[Named]) -> Widths {
        let host = |(_, snapshot): &Named| host_text(snapshot).chars().count();
        Widths {
            host: all.iter().map(host).max().unwrap_or_default().max(4),
        }
    }

    fn headings(&self) -> String {
        format!(
            "{:<8}  {:<19}  {:<host$}  {:>12}        {:>10}  Paths",
            "ID",
            "Time",
            "Host",
            "Files",
            "Size",
            host = self.host
        )
    }
}

fn host_text(snapshot: &Snapshot) -> String {
    output::escape(snapshot.host.as_bytes())
}

fn print((id, snapshot): &Named, widths: &Widths) {
    let paths: Vec<_> = snapshot
        .paths
        .iter()
        .map(|path| output::escape(&path.0))
        .collect();
    let mut marks = String::new();
    if snapshot.partial {
        marks.push_str("  [unfinished]");
    }
    if snapshot.pinned {
        marks.push_str("  [pinned]");
    }
    if snapshot.counts.problems > 0 {
        let problems = sizes::counted(snapshot.counts.problems, "problem");
        marks.push_str(&format!("  [{problems}]"));
    }
    let is_fuzzy = |image: &ImageRecord| image.how == ImageState::Fuzzy;
    if snapshot.images.iter().any(is_fuzzy) {
        marks.push_str("  [fuzzy]");
    }
    let tags = if snapshot.tags.is_empty() {
        String::new()
    } else {
        format!("  ({})", output::escape(snapshot.tags.join(",").as_bytes()))
    };
    output::line(&format!(
        "{:<8}  {}  {:<host$}  {:>12} {:<5}  {:>10}  {}{tags}{marks}",
        id.short(),
        local_time(snapshot.time),
        host_text(snapshot),
        sizes::count(snapshot.totals.files),
        sizes::one_or_more(snapshot.totals.files, "file", "files"),
        sizes::bytes(snapshot.totals.bytes),
        paths.join(" "),
        host = widths.host,
    ));
}

/// A run without a sign of life for so long was stopped, probably: it shows one every five minutes.
const SILENT_SECONDS_MAX: i64 = 3600;

/// A backup that is under way: there is nothing to restore yet.
fn print_running((id, run): &Named, now: Time, json: bool) {
    let is_silent = now.seconds - run.finished.seconds > SILENT_SECONDS_MAX;
    if json {
        let mut value = object(id, run);
        value["type"] = "running".into();
        value["silent"] = is_silent.into();
        return output::object(&value);
    }
    let (began, last, id) = (local_time(run.time), local_time(run.finished), id.short());
    let state = match is_silent {
        false => format!("is running since {began}: there is nothing to restore of it yet"),
        true => format!(
            "began {began} and showed its last sign of life {last}: it was stopped, probably, and \
             holds nothing (the next backup of its source removes this record, or bale forget {id})"
        ),
    };
    let paths: Vec<_> = run
        .paths
        .iter()
        .map(|path| output::escape(&path.0))
        .collect();
    let host = output::escape(run.host.as_bytes());
    report!("a backup of {host} {} {state}", paths.join(" "));
}

/// A snapshot for scripts. Fields: docs/SCRIPTING.md.
pub fn object(id: &bale_format::ObjectId, snapshot: &bale_format::Snapshot) -> serde_json::Value {
    let totals = &snapshot.totals;
    let paths: Vec<_> = snapshot
        .paths
        .iter()
        .map(|path| String::from_utf8_lossy(&path.0).into_owned())
        .collect();
    let paths_b64: Vec<_> = snapshot
        .paths
        .iter()
        .map(|path| serde_json::to_value(path).unwrap_or_default())
        .collect();
    let mut value = json!({
        "type": "snapshot", "id": id.to_string(), "short_id": id.short(),
        "time": crate::times::time_text(snapshot.time),
        "finished": crate::times::time_text(snapshot.finished), "host": snapshot.host,
        "user": snapshot.user,
        "program": snapshot.program, "tags": snapshot.tags, "pinned": snapshot.pinned,
        "atimes": snapshot.atimes,
        "paths": paths, "paths_b64": paths_b64,
        "source_filesystems": snapshot.source_filesystems,
        "partial": snapshot.partial, "parent": snapshot.parent.map(|id| id.to_string()),
        "original": snapshot.original.map(|id| id.to_string()),
        "files": totals.files, "dirs": totals.dirs, "others": totals.others, "bytes": totals.bytes,
        "hard_links": totals.hard_links, "problems": snapshot.counts.problems,
        "bytes_stored": snapshot.counts.bytes_stored,
    });
    super::backup_images::put(&mut value, snapshot);
    value
}
