//! `bale copy`

use super::{host, select, snapshots, unmatched};
use crate::args::{Copy, Global};
use crate::exit::{self, Usage};
use crate::place::Use;
use crate::progress::Console;
use crate::times::local_time;
use crate::{output, place, run_record, sizes};
use anyhow::Result;
use bale_engine::copy::{self as engine, Copied, CopyOptions, Fate};
use bale_repository::repository::{Named, Repository};
use serde_json::json;

/// Copies the snapshots that are chosen and prints what became of each.
pub fn run(global: &Global, options: &Copy) -> Result<i32> {
    let source = place::open_from(global, &options.from)?;
    let target = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    let (chosen, are_all_wrong) = chosen(global, options, &source)?;
    let engine_options = CopyOptions {
        dry_run: options.dry_run,
        verify: options.verify,
        host: host::name(None)?,
        program: format!("bale {}", env!("CARGO_PKG_VERSION")),
    };
    let console = Console::new(global);
    let copied = engine::copy(&source, &target, &chosen, &engine_options, &console)?;
    console.finish();
    for (named, copied) in chosen.iter().zip(&copied.snapshots) {
        print(global, named, &copied.fate);
    }
    summary(global, options, &copied);
    Ok(match copied.is_incomplete() || are_all_wrong {
        true => exit::INCOMPLETE,
        false => exit::COMPLETE,
    })
}

/// The snapshots; and whether there are some, and options that match none of them.
fn chosen(global: &Global, options: &Copy, source: &Repository) -> Result<(Vec<Named>, bool)> {
    let listed = select::Listed::of(source)?;
    let mut all = match options.ids.is_empty() {
        true => listed.all(),
        false => snapshots::named(&options.ids, listed, &options.select)?,
    };
    let filter = select::filter(&options.select);
    let are_all_wrong = unmatched::text(&options.select, &all).is_some();
    unmatched::report(global, &options.select, &all);
    all.retain(|(_, snapshot)| filter.passes(snapshot));
    if let Some((id, _)) = all.iter().find(|(_, snapshot)| snapshot.partial)
        && !options.ids.is_empty()
    {
        let text = format!(
            "{} is an unfinished run: only snapshots are copied",
            id.short()
        );
        return Err(Usage(text).into());
    }
    all.retain(|(_, snapshot)| !snapshot.partial);
    Ok((all, are_all_wrong))
}

fn print(global: &Global, (id, snapshot): &Named, fate: &Fate) {
    let (word, target, why) = match fate {
        Fate::Copied(target) => ("copied", Some(target), None),
        Fate::There(target) => ("there", Some(target), None),
        Fate::Refilled(target) => ("refilled", Some(target), None),
        Fate::WouldCopy => ("would-copy", None, None),
        Fate::NotMade(why) => ("not-made", None, Some(why)),
    };
    if global.json {
        return output::object(&json!({
            "type": "copied", "source": id.to_string(), "fate": word,
            "id": target.map(ToString::to_string), "message": why,
        }));
    }
    if global.quiet {
        return;
    }
    let paths: Vec<_> = snapshot
        .paths
        .iter()
        .map(|path| output::escape(&path.0))
        .collect();
    let whose = format!(
        "{}  {}  {}",
        local_time(snapshot.time),
        output::escape(snapshot.host.as_bytes()),
        paths.join(" ")
    );
    let short = id.short();
    let text = match fate {
        Fate::Copied(target) => format!("copied as {}", target.short()),
        Fate::There(target) => format!("there already as {}", target.short()),
        Fate::Refilled(target) => format!(
            "there as {}, which lacked something that was copied again",
            target.short()
        ),
        Fate::WouldCopy => "would be copied".to_owned(),
        Fate::NotMade(_) => "not copied".to_owned(),
    };
    output::line(&format!("{short}  {whose}  {text}"));
}

fn summary(global: &Global, options: &Copy, copied: &Copied) {
    let count = |is_meant: fn(&Fate) -> bool| {
        let fates = copied.snapshots.iter().map(|copied| &copied.fate);
        fates.filter(|fate| is_meant(fate)).count() as u64
    };
    let made = count(|fate| matches!(fate, Fate::Copied(_) | Fate::WouldCopy));
    let there = count(|fate| matches!(fate, Fate::There(_)));
    let refilled = count(|fate| matches!(fate, Fate::Refilled(_)));
    let not_made = count(|fate| matches!(fate, Fate::NotMade(_)));
    let summary = json!({
        "type": "summary", "dry_run": options.dry_run, "snapshots_copied": made,
        "snapshots_there": there, "snapshots_refilled": refilled,
        "snapshots_not_made": not_made,
        "chunks_to_read": copied.chunks_to_read, "bytes_to_read": copied.bytes_to_read,
        "chunks_read": copied.chunks_read, "bytes_read": copied.bytes_read,
        "chunks_stored": copied.chunks_stored, "chunks_known": copied.chunks_known,
        "bytes_stored": copied.bytes_stored, "chunks_lost": copied.chunks_lost,
        "paths_lost": copied.paths_lost,
    });
    run_record::keep(&summary);
    if global.json {
        return output::object(&summary);
    }
    if global.quiet {
        return;
    }
    let snapshots = |number| sizes::counted(number, "snapshot");
    let mut beside = match there {
        0 => String::new(),
        there => format!("; {} there already", snapshots(there)),
    };
    if refilled > 0 {
        beside.push_str(&format!("; {} filled again", snapshots(refilled)));
    }
    if options.dry_run {
        report!(
            "{} would be copied{beside}: {} in {} to read, and to send what of it the target does \
             not have",
            snapshots(made),
            sizes::bytes(copied.bytes_to_read),
            sizes::counted(copied.chunks_to_read, "chunk"),
        );
    } else {
        report!(
            "{} copied{beside}: {} read, {} added in {}",
            snapshots(made),
            sizes::bytes(copied.bytes_read),
            sizes::bytes(copied.bytes_stored),
            sizes::counted(copied.chunks_stored, "chunk"),
        );
    }
    if not_made > 0 {
        report!(
            "{} not copied, for what is lost in the source and named above: bale check names all \
             of it, bale repair brings back what can be had, and a backup stores again what its \
             sources still have; then copy again",
            snapshots(not_made)
        );
    }
}
