//! The end of a copy: everything the snapshots rely on is made sure of, then they are written.
//!
//! A snapshot keeps its time, host, tags, paths and run, so that rules and parents work as they
//! did. Its catalog, its parent and its thin chunks have the ids of the target.

use super::choose::origin;
use super::lost_rows::LostRows;
use super::needs::Needs;
use super::reading::Reading;
use super::segments::NewSegments;
use super::storing::Storing;
use super::{CopiedSnapshot, Fate};
use crate::relied::{store_lost_again, take_back};
use bale_format::{Layer, ObjectId, SegmentRef, Snapshot};
use bale_pipeline::amount::counted;
use bale_repository::error::Result;
use bale_repository::pack::LookBegun;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::remembered;
use std::collections::HashMap;
use std::sync::Arc;

/// Writes the snapshots that are whole; `there`: ids in the target by what they are copies of.
pub(super) fn commit(
    reading: Reading<'_>,
    target: &Arc<Repository>,
    (needs, made): (&Needs, &NewSegments),
    storing: &Storing<'_>,
    (queue, there, spoiled): (
        &[Named],
        &mut HashMap<ObjectId, ObjectId>,
        &HashMap<ObjectId, &Named>,
    ),
    lost: &mut LostRows,
) -> Result<Vec<CopiedSnapshot>> {
    let writer = storing.writer;
    let begun = writer.flush_before_look()?;
    let found_damaged = writer.packs_found_damaged();
    let begun = begun.before_marks(&found_damaged);
    target.mark_damaged(found_damaged)?;
    store_lost_again(target, writer, begun, "copy")?;
    let mut written: Vec<(ObjectId, Snapshot)> = Vec::new();
    let mut copied = Vec::new();
    for named in queue {
        let layers = match lost.visible_in(reading, &named.1, (needs, made), storing)? {
            0 => layers(needs, made, &named.1),
            rows => Err(format!("content of {} is lost", counted(rows, "path"))),
        };
        let fate = match layers {
            Err(why) => Fate::NotMade(why),
            Ok(layers) => match filled(spoiled.get(&origin(named)), &layers) {
                Some(id) => {
                    there.insert(origin(named), id);
                    Fate::Refilled(id)
                }
                None => {
                    let snapshot = rewritten(named, layers, storing, there);
                    let id = target.write_snapshot(&snapshot)?;
                    there.insert(origin(named), id);
                    written.push((id, snapshot));
                    Fate::Copied(id)
                }
            },
        };
        if let Fate::NotMade(why) = &fate {
            let text = format!("snapshot {} is not copied: {why}", named.0.short());
            reading.problem(Vec::new(), text);
        }
        copied.push(CopiedSnapshot {
            source: named.0,
            fate,
        });
    }
    // A prune that looked before the snapshots were there may have deleted since the last look.
    if let Err(error) = store_lost_again(target, writer, LookBegun::default(), "copy") {
        let ids: Vec<ObjectId> = written.iter().map(|(id, _)| *id).collect();
        return Err(take_back(target, &ids, error));
    }
    for (id, snapshot) in &written {
        remembered::made(target, *id, snapshot);
    }
    Ok(copied)
}

/// The copy that was there and lacked something, if that is there again. One with another catalog
/// stays as it is, beside the new one.
fn filled(spoiled: Option<&&Named>, layers: &[Layer]) -> Option<ObjectId> {
    let (id, copy) = spoiled?;
    (copy.layers == layers).then_some(*id)
}

fn rewritten(
    named: &Named,
    layers: Vec<Layer>,
    storing: &Storing<'_>,
    there: &HashMap<ObjectId, ObjectId>,
) -> Snapshot {
    let (_, snapshot) = named;
    let thin = snapshot.thin.iter();
    let mut thin: Vec<_> = thin.filter_map(|id| storing.new_id(id)).collect();
    thin.sort();
    Snapshot {
        original: Some(origin(named)),
        parent: snapshot.parent.and_then(|id| there.get(&id).copied()),
        thin,
        layers,
        ..snapshot.clone()
    }
}

/// The catalog in the target; otherwise why there is none.
fn layers(
    needs: &Needs,
    made: &NewSegments,
    snapshot: &Snapshot,
) -> std::result::Result<Vec<Layer>, String> {
    let layers = snapshot.layers.iter().map(|layer| {
        let mut segments = Vec::new();
        for old in &layer.segments {
            let new = needs.numbers.get(&old.id).map(|at| &made[*at as usize]);
            let new = new.ok_or("its catalog cannot be read")?;
            let new = new.as_ref().ok_or("its catalog cannot be read any more")?;
            add_parts(old, &new.parts, &mut segments)?;
        }
        Ok(Layer {
            rows: layer.rows,
            segments,
        })
    });
    layers.collect()
}

/// The parts of a segment with what counts of it. A part of which nothing counts is left out.
fn add_parts(
    old: &SegmentRef,
    parts: &[SegmentRef],
    segments: &mut Vec<SegmentRef>,
) -> std::result::Result<(), String> {
    let rows: u64 = parts.iter().map(|part| u64::from(part.rows)).sum();
    let (first, last) = (parts.first(), parts.last());
    let is_meant = rows == u64::from(old.rows)
        && first.is_some_and(|part| part.first == old.first)
        && last.is_some_and(|part| part.last == old.last);
    if !is_meant {
        return Err("its list of segments is damaged".to_owned());
    }
    let is_alone = parts.len() == 1;
    for part in parts {
        let ends_before = old.from.as_ref().is_some_and(|from| part.last < *from);
        let begins_after = old.to.as_ref().is_some_and(|to| *to <= part.first);
        if is_alone || !(ends_before || begins_after) {
            segments.push(SegmentRef {
                from: old.from.clone(),
                to: old.to.clone(),
                ..part.clone()
            });
        }
    }
    Ok(())
}
