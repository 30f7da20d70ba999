//! What this command may take of memory: `--memory`, `BALE_MEMORY`, or what fits the machine.

use crate::args::Global;
use crate::exit::Usage;
use crate::{sizes, variables};
use bale_pipeline::memory::{MEMORY_BYTES_MIN, MEMORY_BYTES_USUAL, MemoryPlan};
use bale_sys::memory::return_middle_blocks_at_once;

/// The plan that is asked for. With less than usual, freed memory is given back sooner.
pub fn plan(global: &Global) -> Result<MemoryPlan, Usage> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (by, text) = match &global.memory {
        Some(text) => ("--memory", text.clone()),
        None => match variables::read_text("BALE_MEMORY")? {
            Some(text) => ("BALE_MEMORY", text),
            None => return Ok(MemoryPlan::of_machine(processors)),
        },
    };
    let wrong = |Usage(why)| Usage(format!("{by}: {why}"));
    let bytes = sizes::parse_bytes(&text).map_err(wrong)?;
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
