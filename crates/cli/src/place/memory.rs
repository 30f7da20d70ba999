//! What this command may take of memory, how large its packs become and how their contents are
//! compressed: options, else the environment, else what fits the machine and the store.

use super::Use;
use crate::args::Global;
use crate::exit::Usage;
use crate::{sizes, variables};
use bale_format::chunk::{Compression, LEVEL_MAX};
use bale_pipeline::memory::{MEMORY_BYTES_MIN, MEMORY_BYTES_USUAL, MemoryPlan};
use bale_repository::limits::{PACK_BYTES_MAX, PACK_BYTES_MIN, UPLOADS_MAX, UPLOADS_MAX_SFTP};
use bale_repository::pack::PackPlan;
use bale_repository::repository::Repository;
use bale_repository::store::StoreShape;
use bale_sys::memory::return_middle_blocks_at_once;

/// What is wanted of memory and of packs.
pub struct Plans {
    memory: MemoryPlan,
    /// Bytes, and how that was said.
    pack_size: Option<(u64, String)>,
    compression: Compression,
}

impl Plans {
    /// Looks at options and environment.
    pub fn read(global: &Global) -> Result<Plans, Usage> {
        Ok(Plans {
            memory: plan(global)?,
            pack_size: pack_size(global)?,
            compression: compression(global)?,
        })
    }

    /// Who writes packs shares the memory with them.
    pub fn apply(self, repository: &mut Repository, purpose: Use) -> Result<(), Usage> {
        if !purpose.writes() {
            repository.set_memory(self.memory);
            return Ok(());
        }
        let shape = repository.store().shape();
        let packs = match self.pack_size {
            None => PackPlan::of(shape, &self.memory),
            Some((bytes, said)) => {
                let packs = PackPlan::of_size(bytes, shape, &self.memory);
                packs.map_err(|needed| {
                    let needed = needed.div_ceil(1 << 20);
                    Usage(format!(
                        "{said}: on a server packs are whole in memory until they are there, and \
                         these need --memory {needed}M or smaller packs"
                    ))
                })?
            }
        };
        repository.set_memory_to_write(self.memory, packs);
        repository.set_compression(self.compression);
        Ok(())
    }
}

/// What a scan may take that begins before the repository is open, when it is not known how its
/// store takes packs.
pub fn beside_packs(global: &Global, is_near: bool) -> Result<MemoryPlan, Usage> {
    let memory = plan(global)?;
    if is_near {
        return Ok(memory);
    }
    let [usual, over_sftp] = [UPLOADS_MAX, UPLOADS_MAX_SFTP].map(|uploads_max| {
        let shape = StoreShape::Whole { uploads_max };
        PackPlan::of(shape, &memory).beside(&memory)
    });
    Ok(match usual.inode_bytes() < over_sftp.inode_bytes() {
        true => usual,
        false => over_sftp,
    })
}

/// The plan that is asked for. With less than usual, freed memory is given back sooner.
pub fn plan(global: &Global) -> Result<MemoryPlan, Usage> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let Some((by, text)) = given("--memory", &global.memory, "BALE_MEMORY")? else {
        return Ok(MemoryPlan::of_machine(processors));
    };
    let bytes = bytes_of(by, &text)?;
    // More than there are addresses is as much as there are.
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes < MEMORY_BYTES_USUAL {
        return_middle_blocks_at_once();
    }
    MemoryPlan::new(bytes, processors).ok_or_else(|| {
        Usage(format!(
            "{by} {text}: Bale needs {} at least",
            sizes::bytes(MEMORY_BYTES_MIN as u64)
        ))
    })
}

fn pack_size(global: &Global) -> Result<Option<(u64, String)>, Usage> {
    let Some((by, text)) = given("--pack-size", &global.pack_size, "BALE_PACK_SIZE")? else {
        return Ok(None);
    };
    let bytes = bytes_of(by, &text)?;
    if !(PACK_BYTES_MIN..=PACK_BYTES_MAX).contains(&bytes) {
        let (min, max) = (PACK_BYTES_MIN >> 20, PACK_BYTES_MAX >> 20);
        return Err(Usage(format!("{by} {text}: packs have {min}M to {max}M")));
    }
    Ok(Some((bytes, format!("{by} {text}"))))
}

fn compression(global: &Global) -> Result<Compression, Usage> {
    let Some((by, text)) = given("--compression", &global.compression, "BALE_COMPRESSION")? else {
        return Ok(Compression::Auto);
    };
    let level = || {
        text.parse()
            .ok()
            .filter(|level| (1..=LEVEL_MAX).contains(level))
    };
    match text.as_str() {
        "auto" => Ok(Compression::Auto),
        "off" => Ok(Compression::Off),
        _ => level().map(Compression::Level).ok_or_else(|| {
            Usage(format!(
                "{by} {text}: it is auto, off or a level from 1 to {LEVEL_MAX}"
            ))
        }),
    }
}

/// The text of an option or of its variable, and which of the two it is.
fn given(
    option: &'static str,
    text: &Option<String>,
    variable: &'static str,
) -> Result<Option<(&'static str, String)>, Usage> {
    Ok(match text {
        Some(text) => Some((option, text.clone())),
        None => variables::read_text(variable)?.map(|text| (variable, text)),
    })
}

fn bytes_of(by: &str, text: &str) -> Result<u64, Usage> {
    sizes::parse_bytes(text).map_err(|Usage(why)| Usage(format!("{by}: {why}")))
}
