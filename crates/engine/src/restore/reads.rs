//! What a restore will read, as lines of JSON: for people and robots that fetch tapes.

use super::{into_engine_error, seams};
use bale_format::{ObjectId, PackNumber};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Result;
use bale_repository::index::ChunkIndex;
use bale_repository::repository::{Named, Repository};
use bale_repository::store::ObjectName;
use bale_repository::stretched::StretchedStore;
use bale_restore::{PackReads, ReadsTotals, RestoreOptions, ScratchSpace};
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;

/// Writes a line for each pack that a restore with these options would read, in the order in which
/// it would, and a last one with the sums. Of a pack in a segment it names that, and ranges in it.
pub fn plan_reads(
    repository: &Arc<Repository>,
    snapshot: &Named,
    options: &RestoreOptions,
    scratch: &ScratchSpace,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
) -> Result<ReadsTotals> {
    let (catalog, chunks) = seams(repository, snapshot, monitor)?;
    let packs = PackNames::of(repository)?;
    let write = |reads: &PackReads, out: &mut dyn Write| packs.write(reads, out);
    let planned =
        bale_restore::plan_reads(&catalog, &chunks, scratch, options, monitor, &mut |reads| {
            write(reads, out)
        });
    let totals = planned.map_err(|error| into_engine_error(error, snapshot, options))?;
    let written = write_totals(&totals, out).and_then(|()| out.flush());
    written.map_err(bale_repository::error::Error::local(
        "write",
        "the list of packs",
    ))?;
    Ok(totals)
}

/// What packs are called where they are kept: by their own names, or by that of their segment.
pub(super) struct PackNames {
    index: Arc<ChunkIndex>,
    stretched: Option<Arc<StretchedStore>>,
}

impl PackNames {
    pub(super) fn of(repository: &Repository) -> Result<PackNames> {
        let stretched = repository.stretched().cloned();
        if let Some(stretched) = &stretched {
            stretched.refresh()?;
        }
        let index = repository.index()?;
        Ok(PackNames { index, stretched })
    }

    /// The object that it is in, and where that begins to be the pack.
    fn place(&self, pack: PackNumber) -> (ObjectName, u64) {
        let id = self.index.pack(pack).id;
        let stretched = self.stretched.as_ref();
        match stretched.and_then(|stretched| stretched.place_of(&id)) {
            Some(place) => (ObjectName::stretch(place.stretch), place.offset),
            None => (ObjectName::pack(id), 0),
        }
    }

    /// The object that it is in.
    pub(super) fn object(&self, pack: PackNumber) -> ObjectName {
        self.place(pack).0
    }

    pub(super) fn number(&self, id: &ObjectId) -> Option<PackNumber> {
        self.index.pack_number(id)
    }

    /// One line, piece by piece: a pack may have very many ranges.
    pub(super) fn write(&self, reads: &PackReads, out: &mut dyn Write) -> io::Result<()> {
        let id = self.index.pack(reads.pack).id;
        let (object, start) = self.place(reads.pack);
        write!(
            out,
            r#"{{"type":"pack","pack":"{id}","path":"{object}","bytes":{},"ranges":["#,
            reads.bytes()
        )?;
        for (number, (from, to)) in reads.ranges.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(out, "{comma}[{},{}]", start + from, start + to)?;
        }
        writeln!(out, "]}}")
    }
}

fn write_totals(totals: &ReadsTotals, out: &mut dyn Write) -> io::Result<()> {
    let line = json!({
        "type": "summary", "packs": totals.packs, "bytes": totals.bytes, "files": totals.files,
        "problems": totals.problems,
    });
    writeln!(out, "{line}")
}
