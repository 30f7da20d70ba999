//! Which numbers of a command's summary are metrics.

use super::{Exposition, Labels};
use serde_json::{Map, Value};

/// Command, field of its summary (docs/SCRIPTING.md), metric, and the label that tells it from
/// others of its name.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    Option<(&'static str, &'static str)>,
);

const ROWS: [Row; 35] = [
    ("backup", "files_new", "bale_files", state("new")),
    ("backup", "files_changed", "bale_files", state("changed")),
    (
        "backup",
        "files_unmodified",
        "bale_files",
        state("unmodified"),
    ),
    ("backup", "bytes_read", "bale_bytes", kind("read")),
    ("backup", "bytes_stored", "bale_bytes", kind("stored")),
    ("backup", "bytes_uploaded", "bale_bytes", kind("uploaded")),
    ("backup", "problems", "bale_problems", None),
    ("backup", "files", "bale_snapshot_files", None),
    ("backup", "bytes", "bale_snapshot_bytes", None),
    ("forget", "removed", "bale_snapshots", state("removed")),
    ("forget", "bytes_deleted", "bale_bytes", kind("deleted")),
    ("forget", "bytes_condemned", "bale_bytes", kind("condemned")),
    ("forget", "bytes_repacked", "bale_bytes", kind("repacked")),
    ("forget", "problems", "bale_problems", None),
    ("forget", "bytes_packs", "bale_repository_bytes", None),
    ("prune", "bytes_deleted", "bale_bytes", kind("deleted")),
    ("prune", "bytes_condemned", "bale_bytes", kind("condemned")),
    ("prune", "bytes_repacked", "bale_bytes", kind("repacked")),
    ("prune", "problems", "bale_problems", None),
    ("prune", "bytes_packs", "bale_repository_bytes", None),
    ("check", "snapshots", "bale_snapshots", state("checked")),
    ("check", "bytes_read", "bale_bytes", kind("read")),
    ("check", "damage", "bale_damage", None),
    ("check", "paths_lost", "bale_paths_lost", None),
    ("check", "unread", "bale_objects", state("unread")),
    (
        "copy",
        "snapshots_copied",
        "bale_snapshots",
        state("copied"),
    ),
    (
        "copy",
        "snapshots_not_made",
        "bale_snapshots",
        state("not-made"),
    ),
    ("copy", "bytes_read", "bale_bytes", kind("read")),
    ("copy", "bytes_stored", "bale_bytes", kind("stored")),
    ("mirror", "objects_sent", "bale_objects", state("sent")),
    ("mirror", "bytes_sent", "bale_bytes", kind("sent")),
    ("mirror", "problems", "bale_problems", None),
    ("restore", "files_written", "bale_files", state("restored")),
    ("restore", "bytes", "bale_bytes", kind("restored")),
    ("restore", "differences", "bale_differences", None),
];

const fn state(value: &'static str) -> Option<(&'static str, &'static str)> {
    Some(("state", value))
}

const fn kind(value: &'static str) -> Option<(&'static str, &'static str)> {
    Some(("kind", value))
}

/// Adds what the summary of this command says; of a run that had none, nothing.
pub(super) fn push(
    file: &mut Exposition,
    (command, labels): (&str, &Labels),
    summary: &Map<String, Value>,
) {
    for (_, field, name, label) in ROWS.iter().filter(|(of, ..)| *of == command) {
        let Some(number) = summary.get(*field).and_then(Value::as_f64) else {
            continue;
        };
        let mut labels = labels.clone();
        labels.extend(label.map(|(label, value)| (label, value.to_owned())));
        file.push(name, &labels, number);
    }
}
