//! `bale tag`, `bale pin` and `bale unpin`: a snapshot gets a successor that says other things of
//! itself, and a new id.

use super::{select, unmatched};
use crate::args::{Global, Pick, Pin, Select, Tag};
use crate::{exit, output, place, sizes};
use anyhow::{Context, Result, bail};
use bale_engine::replace::{can_replace, replace};
use bale_format::Snapshot;
use bale_repository::repository::{Named, Repository};
use serde_json::json;

/// Changes tags.
pub fn run(global: &Global, options: &Tag) -> Result<i32> {
    let split = |texts: &[String]| -> Vec<String> {
        let tags = texts.iter().flat_map(|text| select::split_tags(text));
        tags.collect()
    };
    let (add, remove, set) = (
        split(&options.add),
        split(&options.remove),
        split(&options.set),
    );
    let change = |snapshot: &mut Snapshot| {
        if !options.set.is_empty() {
            snapshot.tags.clear();
        }
        snapshot.tags.retain(|tag| !remove.contains(tag));
        for tag in set.iter().chain(&add) {
            if !snapshot.tags.contains(tag) {
                snapshot.tags.push(tag.clone());
            }
        }
    };
    change_all(
        global,
        (&options.ids, &options.select),
        options.dry_run,
        &change,
    )
}

/// Pins, so that no rule and no id removes them, or takes that back.
pub fn pin(global: &Global, options: &Pin, is_pinned: bool) -> Result<i32> {
    let change = |snapshot: &mut Snapshot| snapshot.pinned = is_pinned;
    change_all(
        global,
        (&options.ids, &options.select),
        options.dry_run,
        &change,
    )
}

fn change_all(
    global: &Global,
    (ids, filter): (&[String], &Select),
    is_dry: bool,
    change: &dyn Fn(&mut Snapshot),
) -> Result<i32> {
    let repository = place::open_for(global, place::Use::unless_dry_run(is_dry))?;
    if !is_dry {
        can_replace(&repository)?;
    }
    let chosen = chosen(global, &repository, ids, filter)?;
    let mut changed = 0;
    for named in &chosen {
        let (id, old) = named;
        let mut new = old.clone();
        change(&mut new);
        if new == *old {
            continue;
        }
        let made = match is_dry {
            true => None,
            false => {
                let attempt = || match changed {
                    0 => format!("change {}", id.short()),
                    _ => format!("change {} ({changed} others are changed)", id.short()),
                };
                Some(replace(&repository, named, new.clone()).with_context(attempt)?)
            }
        };
        changed += 1;
        let is_new = |new: bale_format::ObjectId| (new, new.short());
        print(global, named, made.map(is_new), &new);
    }
    finish(global, changed, chosen.len() as u64, is_dry);
    Ok(exit::COMPLETE)
}

/// Those that were named, each once; or, if none was, those that pass.
fn chosen(
    global: &Global,
    repository: &Repository,
    ids: &[String],
    select: &Select,
) -> Result<Vec<Named>> {
    let listed = select::Listed::of(repository)?;
    if ids.is_empty() {
        let all = listed.all();
        unmatched::report(global, select, &all);
        let filter = select::filter(select);
        let passes = |(_, snapshot): &Named| !snapshot.partial && filter.passes(snapshot);
        return Ok(all.into_iter().filter(passes).collect());
    }
    let pick = Pick {
        select: select.clone(),
        ..Pick::default()
    };
    let mut chosen: Vec<Named> = Vec::new();
    for text in ids {
        let found = listed.find(text, &pick)?;
        let would = "the snapshot of another machine would be changed";
        listed.need_own(text, &found, select, would)?;
        if found.1.partial {
            bail!(
                "{} is an unfinished run: only a snapshot can be changed",
                found.0.short()
            );
        }
        if chosen.iter().all(|(id, _)| *id != found.0) {
            chosen.push(found);
        }
    }
    Ok(chosen)
}

fn print(
    global: &Global,
    (old, _): &Named,
    made: Option<(bale_format::ObjectId, String)>,
    new: &Snapshot,
) {
    if global.json {
        return output::object(&json!({
            "type": "changed", "old": old.to_string(),
            "new": made.map(|(id, _)| id.to_string()),
            "tags": new.tags, "pinned": new.pinned,
        }));
    }
    if global.quiet {
        return;
    }
    let tags = match new.tags.is_empty() {
        true => "no tags".to_owned(),
        false => format!("({})", output::escape(new.tags.join(",").as_bytes())),
    };
    let pinned = if new.pinned { "  [pinned]" } else { "" };
    let now = made.map_or_else(
        || "would be".to_owned(),
        |(_, short)| format!("is now {short}"),
    );
    output::line(&format!("{} {now}  {tags}{pinned}", old.short()));
}

fn finish(global: &Global, changed: u64, chosen: u64, is_dry: bool) {
    if global.json {
        return output::object(&json!({
            "type": "summary", "changed": changed, "unchanged": chosen - changed,
            "dry_run": is_dry,
        }));
    }
    if !global.quiet {
        let word = if is_dry { "would change" } else { "changed" };
        let kept = match chosen - changed {
            0 => String::new(),
            kept => format!(", {} as wanted already", sizes::count(kept)),
        };
        report!("{word} {}{kept}", sizes::counted(changed, "snapshot"));
    }
}
