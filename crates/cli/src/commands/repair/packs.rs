//! `bale repair packs`

use crate::args::Global;
use crate::commands::check::print_lost;
use crate::exit::{self, Usage};
use crate::place::{self, Use};
use crate::progress::Console;
use crate::{output, sizes};
use anyhow::Result;
use bale_engine::repair::{PackRepair, PacksRepair, repair_packs};
use bale_format::ObjectId;
use bale_repository::index::ChunkIndex;
use serde_json::json;

/// Saves what opens of damaged packs; exit 4 if something that a snapshot needs is lost.
pub(super) fn run(global: &Global, ids: &[String], dry_run: bool) -> Result<i32> {
    let repository = place::open_for(global, Use::unless_dry_run(dry_run))?;
    let console = Console::new(global);
    let named = match ids.is_empty() {
        true => Vec::new(),
        false => named(&*repository.reload_index_as_far_as_possible()?, ids)?,
    };
    let report = repair_packs(&repository, &named, dry_run, &console)?;
    console.finish();
    report
        .packs
        .iter()
        .for_each(|pack| print_pack(global, pack));
    print_lost(global, &report.lost, report.lost_count);
    print_summary(global, &report, dry_run);
    let is_left = |pack: &PackRepair| {
        let is_left = pack.archived.is_some() || pack.unread.is_some();
        is_left || pack.chunks_archived + pack.chunks_unread > 0
    };
    Ok(
        match (report.lost_count, report.packs.iter().any(is_left)) {
            (0, false) => exit::COMPLETE,
            (0, true) => exit::INCOMPLETE,
            _ => exit::DAMAGE,
        },
    )
}

/// The packs whose ids begin so, each exactly one.
fn named(index: &ChunkIndex, ids: &[String]) -> Result<Vec<ObjectId>> {
    let find = |text: &String| {
        let text = text.to_ascii_lowercase();
        let begins = |id: &ObjectId| !text.is_empty() && id.to_string().starts_with(&text);
        let mut found = index.packs().iter().map(|pack| pack.id).filter(begins);
        match (found.next(), found.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => Err(Usage(format!(
                "no index names a pack {text}: bale check names damaged packs"
            ))),
            (Some(_), Some(_)) => Err(Usage(format!("several packs begin with {text}"))),
        }
    };
    Ok(ids.iter().map(find).collect::<Result<Vec<_>, _>>()?)
}

fn print_pack(global: &Global, pack: &PackRepair) {
    if global.json {
        output::object(&json!({
            "type": "pack", "pack": pack.pack.to_string(),
            "message": (pack.trouble.as_ref()).or(pack.archived.as_ref()).or(pack.unread.as_ref()),
            "unread": pack.unread.is_some(), "chunks_unread": pack.chunks_unread,
            "archived": pack.archived.is_some(), "chunks_archived": pack.chunks_archived,
            "chunks_saved": pack.chunks_saved,
            "bytes_saved": pack.bytes_saved, "chunks_elsewhere": pack.chunks_elsewhere,
            "chunks_lost": pack.chunks_lost,
        }));
        return;
    }
    let left = |text: &String| output::escape(text.as_bytes());
    let text = match (&pack.trouble, &pack.archived, &pack.unread) {
        (None, None, None) => "whole: not marked as damaged any more".to_owned(),
        (None, Some(text), _) => format!("archived, left alone: {}", left(text)),
        (None, None, Some(text)) => format!("could not be read, left alone: {}", left(text)),
        (Some(trouble), ..) => format!(
            "{}: {} saved ({}), {} elsewhere, {} archived elsewhere, {} lost",
            output::escape(trouble.as_bytes()),
            sizes::counted(pack.chunks_saved, "chunk"),
            sizes::bytes(pack.bytes_saved),
            sizes::count(pack.chunks_elsewhere),
            sizes::count(pack.chunks_archived),
            sizes::count(pack.chunks_lost),
        ),
    };
    output::line(&format!("pack {}: {text}", pack.pack));
}

fn print_unread(packs: u64, chunks: u64) {
    if packs + chunks > 0 {
        report!(
            "could not be read, and so left alone: {}, and {} of damaged ones. See to what the \
             store says (rights, the way to it), and repair again",
            sizes::counted(packs, "pack"),
            sizes::counted(chunks, "chunk")
        );
    }
}

fn print_summary(global: &Global, report: &PacksRepair, dry_run: bool) {
    let sum = |of: fn(&PackRepair) -> u64| report.packs.iter().map(of).sum::<u64>();
    let damaged = sum(|pack| u64::from(pack.trouble.is_some()));
    let (saved, bytes) = (sum(|pack| pack.chunks_saved), sum(|pack| pack.bytes_saved));
    let lost = sum(|pack| pack.chunks_lost);
    let archived = sum(|pack| u64::from(pack.archived.is_some()));
    let chunks_archived = sum(|pack| pack.chunks_archived);
    let unread = sum(|pack| u64::from(pack.unread.is_some()));
    let chunks_unread = sum(|pack| pack.chunks_unread);
    if global.json {
        output::object(&json!({
            "type": "summary", "packs": report.packs.len(), "packs_damaged": damaged,
            "packs_archived": archived, "chunks_archived": chunks_archived,
            "packs_unread": unread, "chunks_unread": chunks_unread,
            "chunks_saved": saved, "bytes_saved": bytes,
            "chunks_lost": lost, "paths_lost": report.lost_count, "dry_run": dry_run,
        }));
        return;
    }
    if global.quiet {
        return;
    }
    if report.packs.is_empty() {
        report!(
            "no pack is missing, cut, or marked as damaged: bale check --read-data finds those \
             that are damaged"
        );
        return;
    }
    let word = if dry_run { "would save" } else { "saved" };
    report!(
        "{}: {word} {}, {}; lost: {}",
        sizes::counted(damaged, "damaged pack"),
        sizes::counted(saved, "chunk"),
        sizes::bytes(bytes),
        sizes::counted(lost, "chunk")
    );
    if archived > 0 {
        report!(
            "left alone: {}, archived in a cold storage class: whether they are whole is not known \
             before they are brought back",
            sizes::counted(archived, "pack")
        );
    }
    print_unread(unread, chunks_unread);
    if chunks_archived > 0 {
        report!(
            "not known: {} of which another copy is archived. Bring its pack back, and repair \
             again",
            sizes::counted(chunks_archived, "chunk")
        );
    }
    if report.lost_count > 0 {
        report!(
            "{} cannot be restored whole. The next backup stores again what the sources still \
             have; what a check names after that does not come back, and `bale forget ID` lets go \
             of a snapshot that is named.",
            sizes::counted(report.lost_count, "path")
        );
    } else if damaged > 0 && chunks_archived == 0 {
        report!("No path is lost. A prune removes the damaged packs.");
    }
}
