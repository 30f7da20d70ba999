//! What `latest` turned out to be, where somebody may have thought of another: of another host, or
//! of a part of the path.

use super::host;
use crate::args::Select;
use crate::output;
use crate::sizes;
use anyhow::Result;
use bale_format::entry::is_below;
use bale_repository::repository::Named;
use bale_repository::snapshots::{FoundSnapshot, Holds, clean_path, holds};

/// So many sources are named.
const SOURCES_NAMED_MAX: usize = 3;

/// The name of this machine, if the snapshot is of another one: no host was asked for, and there
/// are several.
pub fn is_other_hosts(found: &Named, select: &Select, has_several: bool) -> Result<Option<String>> {
    if !has_several || !select.hosts.is_empty() {
        return Ok(None);
    }
    let own = host::name(None)?;
    Ok((found.1.host != own).then_some(own))
}

/// Whose it is: `own` is the name of this machine.
pub fn text(text: &str, (id, snapshot): &Named, own: &str) -> String {
    format!(
        "{text} is snapshot {} of {}, {}, and this machine is {}",
        id.short(),
        output::escape(snapshot.host.as_bytes()),
        crate::times::local_time(snapshot.time),
        output::escape(own.as_bytes()),
    )
}

/// Why it is no newer one, or why all of the path is in none.
pub fn of_part(text: &str, path: &[u8], found: &FoundSnapshot) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    let ((id, snapshot), path_text) = (found.named, output::escape(&[b"/", path].concat()));
    if let Some(newest) = found.newer_parts.first() {
        return Some(format!(
            "{text}:{path_text} is snapshot {} of {}, the newest of all of it: {} of a part only, \
             such as {} of {}",
            id.short(),
            crate::times::local_time(snapshot.time),
            sizes::either(
                found.newer_parts.len() as u64,
                "newer snapshot is",
                "newer snapshots are"
            ),
            newest.0.short(),
            sources_below(newest, path),
        ));
    }
    (holds(snapshot, path) == Holds::Part).then(|| {
        format!(
            "no snapshot holds all of {path_text}: {text} is {}, which holds only {} of it",
            id.short(),
            sources_below(found.named, path),
        )
    })
}

fn sources_below((_, snapshot): &Named, path: &[u8]) -> String {
    let is_in_path = |source: &&[u8]| is_below(&clean_path(source), path);
    let sources = snapshot.paths.iter().map(|source| &source.0[..]);
    let mut sources = sources.filter(is_in_path).map(output::escape);
    let mut text: Vec<String> = sources.by_ref().take(SOURCES_NAMED_MAX).collect();
    let more = sources.count() as u64;
    if more > 0 {
        text.push(format!("{} more", sizes::count(more)));
    }
    text.join(", ")
}
