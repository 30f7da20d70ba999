//! Reading stored bytes: every record of the chosen packs is opened, decompressed and compared with its id.

use super::damage::Findings;
use super::scrub::hash_object;
use crate::error::{Error, Result};
use crate::index::{ChunkIndex, PackNumber, Place};
use crate::monitor::{Monitor, Phase, Progress};
use crate::repository::Repository;
use crate::store::{ObjectInfo, ObjectName};
use bale_format::ChunkId;
use std::collections::HashSet;

/// Which packs are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subset {
    /// All.
    All,
    /// Part `part` (from 1) of `of`, by the packs' names: after all parts everything was read.
    Part {
        /// Which.
        part: u64,
        /// Of how many.
        of: u64,
    },
    /// So many per cent of the packs, at random.
    Percent(f64),
    /// So many bytes of packs, at random.
    Bytes(u64),
}

pub(super) fn check_data(
    repository: &Repository,
    index: &ChunkIndex,
    subset: Subset,
    findings: &mut Findings,
    monitor: &dyn Monitor,
) -> Result<()> {
    let chosen = choose(repository, index, subset)?;
    let mut by_pack: Vec<Place> = index
        .entries()
        .iter()
        .filter(|place| chosen.contains(&place.pack))
        .copied()
        .collect();
    by_pack.sort_unstable_by_key(|place| (place.pack, place.chunk.offset));
    let total: u64 = chosen.iter().map(|number| index.pack(*number).len).sum();
    let mut bad: HashSet<ChunkId> = HashSet::new();
    for places in by_pack.chunk_by(|a, b| a.pack == b.pack) {
        if monitor.interrupted() {
            return Err(Error::Interrupted);
        }
        check_pack(repository, index, places, findings, &mut bad);
        let bytes_done = findings.report.bytes_read;
        monitor.progress(
            Phase::ReadData,
            Progress {
                bytes_done,
                bytes_total: total,
                ..Progress::default()
            },
        );
    }
    for id in bad {
        // Another copy may be good.
        let good = index.copies(&id).any(|place| {
            repository
                .read_place(index, place.chunk.kind, &place)
                .is_ok()
        });
        if !good {
            findings.bad_chunk(id, "no copy of it can be read");
        }
    }
    Ok(())
}

fn check_pack(
    repository: &Repository,
    index: &ChunkIndex,
    places: &[Place],
    findings: &mut Findings,
    bad: &mut HashSet<ChunkId>,
) {
    let pack = index.pack(places[0].pack);
    let name = ObjectName::pack(pack.id);
    let info = ObjectInfo {
        name,
        len: pack.len,
        modified: None,
    };
    match hash_object(&**repository.store(), &info) {
        Ok(hash) if hash == pack.id.0 => {}
        Ok(_) => findings.damage(
            name.to_string(),
            "its bytes are not those it was stored with",
        ),
        Err(error) => findings.damage(name.to_string(), error.to_string()),
    }
    for place in places {
        if repository
            .read_place(index, place.chunk.kind, place)
            .is_err()
        {
            bad.insert(place.chunk.id);
        }
    }
    findings.report.packs_read += 1;
    findings.report.bytes_read += pack.len;
}

fn choose(
    repository: &Repository,
    index: &ChunkIndex,
    subset: Subset,
) -> Result<HashSet<PackNumber>> {
    let numbers = (0..index.packs().len() as u32).map(PackNumber);
    let chosen = match subset {
        Subset::All => numbers.collect(),
        Subset::Part { part, of } => numbers
            .filter(|number| {
                let start: [u8; 8] = index.pack(*number).id.0[..8]
                    .try_into()
                    .expect("8 of 32 bytes");
                u64::from_be_bytes(start) % of.max(1) + 1 == part
            })
            .collect(),
        Subset::Percent(percent) => {
            let shuffled = shuffled(repository, numbers.collect())?;
            let count = (shuffled.len() as f64 * percent / 100.0).ceil() as usize;
            shuffled.into_iter().take(count).collect()
        }
        Subset::Bytes(bytes) => {
            let mut left = bytes;
            let shuffled = shuffled(repository, numbers.collect())?;
            let fits = |number: &PackNumber| {
                let go_on = left > 0;
                left = left.saturating_sub(index.pack(*number).len);
                go_on
            };
            shuffled.into_iter().take_while(fits).collect()
        }
    };
    Ok(chosen)
}

fn shuffled(repository: &Repository, mut numbers: Vec<PackNumber>) -> Result<Vec<PackNumber>> {
    let seed = repository.salt()?;
    numbers.sort_by_cached_key(|number| {
        *blake3::keyed_hash(&seed, &number.0.to_le_bytes()).as_bytes()
    });
    Ok(numbers)
}
