//! `bale rewrite`

use super::{host, look, select, unmatched};
use crate::args::{Global, Pick, Rewrite};
use crate::exit;
use crate::place::Use;
use crate::progress::Console;
use crate::times::local_time;
use crate::{output, place, sizes};
use anyhow::{Result, bail};
use bale_engine::rewrite::{
    self as engine, OTHER_NAMES_MAX, OtherNames, RewriteOptions, Rewritten, RewrittenSnapshot,
    SnapshotFate,
};
use bale_format::ObjectId;
use bale_pipeline::filter::{FilterOptions, Pattern};
use bale_repository::repository::{Named, Repository};
use serde_json::json;

/// Prints what became of each snapshot, and what is to be done until the bytes are gone.
pub fn run(global: &Global, options: &Rewrite) -> Result<i32> {
    let patterns = look::patterns(&options.excludes)?;
    let engine_options = RewriteOptions {
        patterns: patterns.iter().map(recorded).collect(),
        filter: crate::patterns::compile(FilterOptions {
            patterns,
            ..FilterOptions::default()
        })?,
        forget: options.forget,
        dry_run: options.dry_run,
        host: host::name(None)?,
        program: format!("bale {}", env!("CARGO_PKG_VERSION")),
    };
    let repository = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    let (chosen, others) = chosen(global, options, &repository)?;
    let console = Console::new(global);
    let rewritten = engine::rewrite(&repository, &chosen, &others, &engine_options, &console)?;
    console.finish();
    for (named, one) in chosen.iter().zip(&rewritten.snapshots) {
        print(global, rewritten.is_old_removed, named, one);
    }
    print_other_names(global, &rewritten.other_names);
    summary(global, options, &rewritten);
    let holds_images = |one: &RewrittenSnapshot| one.fate == SnapshotFate::HoldsImages;
    let is_incomplete = chosen.is_empty()
        || rewritten.bundles_unreadable > 0
        || !rewritten.other_names.linked.is_empty()
        || rewritten.snapshots.iter().any(holds_images);
    Ok(match is_incomplete {
        true => exit::INCOMPLETE,
        false => exit::COMPLETE,
    })
}

/// In the record of a snapshot.
fn recorded(pattern: &Pattern) -> String {
    match pattern.ignore_case {
        true => format!("iexclude:{}", pattern.text),
        false => pattern.text.clone(),
    }
}

/// Those that are to be rewritten, and all others, of which some may hold the same.
fn chosen(
    global: &Global,
    options: &Rewrite,
    repository: &Repository,
) -> Result<(Vec<Named>, Vec<Named>)> {
    let listed = select::Listed::of(repository)?;
    if !listed.damaged.is_empty() {
        bail!(
            "{} cannot be read: nobody can say whether it holds the same, and nothing is changed \
             (bale check says what to do about it)",
            sizes::counted(listed.damaged.len() as u64, "snapshot")
        );
    }
    let pick = Pick {
        select: options.select.clone(),
        ..Pick::default()
    };
    let mut ids: Vec<ObjectId> = Vec::new();
    for text in &options.ids {
        let found = listed.find(text, &pick)?;
        listed.need_own(
            text,
            &found,
            &pick.select,
            "that of another machine would be changed",
        )?;
        if found.1.partial {
            bail!(
                "{} is an unfinished run: it goes with the next backup of its source, or with bale \
                 forget",
                found.0.short()
            );
        }
        ids.push(found.0);
    }
    let filter = select::filter(&options.select);
    unmatched::report(global, &options.select, &listed.readable);
    let is_chosen = |(id, snapshot): &Named| match ids.is_empty() {
        true => !snapshot.partial && filter.passes(snapshot),
        false => ids.contains(id),
    };
    Ok(listed.all().into_iter().partition(is_chosen))
}

fn print(global: &Global, is_old_removed: bool, (id, snapshot): &Named, one: &RewrittenSnapshot) {
    let excluded = &one.excluded;
    let (word, new) = match &one.fate {
        SnapshotFate::Rewritten(new) => ("rewritten", Some(new)),
        SnapshotFate::WouldRewrite => ("would-rewrite", None),
        SnapshotFate::Unchanged => ("unchanged", None),
        SnapshotFate::HoldsImages => ("holds-images", None),
    };
    if global.json {
        return output::object(&json!({
            "type": "rewritten", "old": id.to_string(), "fate": word,
            "new": new.map(ToString::to_string),
            "is_old_removed": new.is_some() && is_old_removed,
            "files": excluded.files, "dirs": excluded.dirs, "others": excluded.others,
            "bytes": excluded.bytes,
        }));
    }
    if global.quiet || one.fate == SnapshotFate::Unchanged {
        return;
    }
    let names = excluded.files + excluded.dirs + excluded.others;
    let what = match names {
        0 => "nothing of it matches, but it shares chunks with what does".to_owned(),
        _ => format!(
            "without {} ({})",
            sizes::counted(names, "name"),
            sizes::bytes(excluded.bytes)
        ),
    };
    let fate = match (&one.fate, is_old_removed) {
        (SnapshotFate::Rewritten(new), true) => format!("now {}", new.short()),
        (SnapshotFate::Rewritten(new), false) => {
            format!("as {}, and the old one stays", new.short())
        }
        (SnapshotFate::WouldRewrite, _) => "would be rewritten".to_owned(),
        _ => "NOT rewritten, as an image in it holds that: forget the snapshot".to_owned(),
    };
    let (short, time) = (id.short(), local_time(snapshot.time));
    output::line(&format!("{short}  {time}  {what}: {fate}"));
}

/// What has the content still: that it is known, even if nothing else is wanted.
fn print_other_names(global: &Global, other: &OtherNames) {
    for (names, is_same_file) in [(&other.linked, true), (&other.equal, false)] {
        for name in names {
            let path = [b"/", &name[..]].concat();
            if global.json {
                let mut object = json!({"type": "other_name", "is_same_file": is_same_file});
                output::put_path(&mut object, "path", &path);
                output::object(&object);
            } else if is_same_file {
                report!(
                    "bale: {} stays, a further name of a file that is excluded",
                    output::escape(&path)
                );
            } else if !global.quiet {
                report!(
                    "bale: {} stays, and its content is that of a file that is excluded",
                    output::escape(&path)
                );
            }
        }
    }
}

fn summary(global: &Global, options: &Rewrite, rewritten: &Rewritten) {
    let count = |is_meant: fn(&SnapshotFate) -> bool| {
        let fates = rewritten.snapshots.iter().map(|one| &one.fate);
        fates.filter(|fate| is_meant(fate)).count() as u64
    };
    let made = count(|fate| {
        matches!(
            fate,
            SnapshotFate::Rewritten(_) | SnapshotFate::WouldRewrite
        )
    });
    let steps = steps(options, rewritten, made);
    if global.json {
        let held_by: Vec<String> = rewritten.held_by.iter().map(ToString::to_string).collect();
        return output::object(&json!({
            "type": "summary", "dry_run": options.dry_run, "rewritten": made,
            "unchanged": count(|fate| matches!(fate, SnapshotFate::Unchanged)),
            "holds_images": count(|fate| matches!(fate, SnapshotFate::HoldsImages)),
            "bundles": rewritten.bundles, "bundles_unreadable": rewritten.bundles_unreadable,
            "bytes_stored": rewritten.bytes_stored, "held_by": held_by,
            "other_names": rewritten.other_names.linked.len(),
            "same_content": rewritten.other_names.equal.len(),
            "has_more_names": rewritten.other_names.has_more, "next": steps,
        }));
    }
    if global.quiet {
        return;
    }
    if made == 0
        && rewritten
            .snapshots
            .iter()
            .all(|one| one.fate == SnapshotFate::Unchanged)
    {
        report!(
            "nothing in {} matches",
            sizes::counted(rewritten.snapshots.len() as u64, "snapshot")
        );
        return;
    }
    let word = if options.dry_run {
        "would rewrite"
    } else {
        "rewrote"
    };
    report!(
        "{word} {}, {} of small files among them",
        sizes::counted(made, "snapshot"),
        sizes::counted(rewritten.bundles, "bundle")
    );
    if steps.is_empty() {
        return;
    }
    report!("Until the bytes are gone from the repository:");
    for step in steps {
        report!("  - {step}");
    }
}

/// What has to happen yet, in order.
fn steps(options: &Rewrite, rewritten: &Rewritten, made: u64) -> Vec<String> {
    let holds_images = |one: &&RewrittenSnapshot| one.fate == SnapshotFate::HoldsImages;
    if made == 0 && !rewritten.snapshots.iter().any(|one| holds_images(&one)) {
        return Vec::new();
    }
    let list = |ids: Vec<String>| ids.join(" ");
    let mut steps = Vec::new();
    let old = rewritten.snapshots.iter();
    let old = old.filter(|one| {
        matches!(
            one.fate,
            SnapshotFate::Rewritten(_) | SnapshotFate::WouldRewrite
        )
    });
    let old: Vec<String> = old.map(|one| one.old.short()).collect();
    let will_be_removed = rewritten.is_old_removed || options.forget && options.dry_run;
    if rewritten.bundles_unreadable > 0 {
        steps.push(
            "mend the damaged packs (bale check --read-data, bale repair packs, or a mirror), and \
             rewrite again: the old snapshots stay until then, as what cannot be read is found by \
             them"
                .to_owned(),
        );
    } else if !will_be_removed && !old.is_empty() {
        steps.push(format!(
            "remove the old snapshots: bale forget {}",
            list(old)
        ));
    }
    if !rewritten.held_by.is_empty() {
        let held = rewritten.held_by.iter().map(|id| id.short()).collect();
        steps.push(format!(
            "rewrite or forget those that were not chosen, hold images, or are unfinished, and \
             hold some of it: {}",
            list(held)
        ));
    }
    steps.extend(step_of_names(&rewritten.other_names));
    steps.push(
        "bale prune --repack-below 100, and the same again once its grace period is over (a day)"
            .to_owned(),
    );
    steps.push(
        "the same in copies of the repository; bale mirror --delete for mirrors; where objects are \
         locked or only added to, they stay until that ends"
            .to_owned(),
    );
    steps.push(
        "leave it out of backups, too (--exclude), or the next one stores it again".to_owned(),
    );
    steps
}

/// While a name stays, its bytes do.
fn step_of_names(other: &OtherNames) -> Option<String> {
    let (linked, equal) = (other.linked.len() as u64, other.equal.len() as u64);
    let more = match other.has_more {
        true => format!(
            ". There may be more: {OTHER_NAMES_MAX} are listed of each kind, and of a million \
             contents; rewrite again with those excluded"
        ),
        false => String::new(),
    };
    (linked + equal > 0 || other.has_more).then(|| {
        format!(
            "exclude what has the same content, too: {} of files that were excluded and {} of \
             others, named above{more}",
            sizes::counted(linked, "further name"),
            sizes::counted(equal, "name"),
        )
    })
}
