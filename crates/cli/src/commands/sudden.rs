//! Sudden changes, as files that somebody encrypted look: said by backups, confirmed by people, and
//! until then in the way of what deletes.

use crate::args::Global;
use crate::exit::Usage;
use crate::output;
use anyhow::Result;
use bale_engine::forget::FoundObject;
use bale_engine::status::{SuddenChange, later_ones, sudden_change_of, unconfirmed};
use bale_format::{ObjectId, Snapshot};
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::repository::Repository;
use bale_repository::snapshots::confirmed;
use serde_json::{Value, json};

/// Says so if this backup is one; what stands in the way of knowing is said, too.
pub fn report(
    repository: &Repository,
    (id, snapshot): (Option<ObjectId>, &Snapshot),
    console: &dyn Monitor,
) -> Option<SuddenChange> {
    let found = sudden_change_of(repository, id?, snapshot);
    let text = match &found {
        Ok(None) => return None,
        Ok(Some(change)) => format!(
            "{}. Look at them before older snapshots go: until the change is confirmed (bale prune \
             --despite-sudden-change {}) or the snapshot forgotten, nothing is pruned",
            change.text(),
            change.snapshot.short()
        ),
        Err(error) => format!("whether the source changed suddenly is not known: {error}"),
    };
    console.problem(&Problem {
        path: Vec::new(),
        action: "compare with earlier backups",
        text,
    });
    found.ok().flatten()
}

/// The figures, for scripts.
pub fn object(change: &SuddenChange) -> Value {
    json!({
        "snapshot": change.snapshot.to_string(), "before": change.before.to_string(),
        "files_replaced": change.files_replaced, "files_before": change.files_before,
        "usual_share": change.usual_share, "saved": change.saved,
        "saved_before": change.saved_before,
    })
}

/// Somebody says that these are meant; of a dry run, nothing is remembered.
pub fn confirm(repository: &Repository, ids: &[String], dry_run: bool) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let (snapshots, _) = repository.snapshots_readable()?;
    let all = unconfirmed(repository, &snapshots);
    let known = confirmed::ids(repository);
    for text in ids {
        let begin = text.to_ascii_lowercase();
        let begins = |id: &ObjectId| id.to_string().starts_with(&begin);
        let here = all.iter().map(|change| change.snapshot).filter(begins);
        let here: Vec<ObjectId> = here.collect();
        match here.as_slice() {
            [id] => found.push(*id),
            [] if known.iter().any(begins) => {}
            [] => {
                let text = format!(
                    "--despite-sudden-change {}: no snapshot of this id changed its source so",
                    output::escape(text.as_bytes())
                );
                return Err(Usage(text).into());
            }
            _ => {
                let text = format!("--despite-sudden-change {begin}: more than one begins so");
                return Err(Usage(text).into());
            }
        }
    }
    if !dry_run {
        for id in &found {
            confirmed::add(repository, *id)?;
        }
    }
    Ok(found)
}

/// Who lets go of a sudden change because it was an attack must not keep what it left in later
/// snapshots: without the one that changed, nothing tells of those any more.
pub fn refuse_to_leave_later(repository: &Repository, removed: &[FoundObject]) -> Result<()> {
    let goes = |id: ObjectId| removed.iter().any(|found| found.name.id() == Some(id));
    let (snapshots, _) = repository.snapshots_readable()?;
    for change in unconfirmed(repository, &snapshots) {
        if !goes(change.snapshot) {
            continue;
        }
        let later = later_ones(&change, &snapshots);
        let stay: Vec<String> = (later.iter())
            .filter(|(id, _)| !goes(*id))
            .map(|(id, _)| id.short())
            .collect();
        if !stay.is_empty() {
            let id = change.snapshot.short();
            anyhow::bail!(
                "nothing is removed: {}. Later snapshots of that source hold what it left: forget \
                 them with it (bale forget {id} {}), or, if the change is meant, say so with \
                 --despite-sudden-change {id}",
                change.text(),
                stay.join(" ")
            );
        }
    }
    Ok(())
}

/// A dry run only says what would be refused.
pub fn note(global: &Global, text: &str) {
    match global.json {
        true => output::object(&json!({"type": "note", "message": text})),
        false => report!("bale: {text}"),
    }
}
