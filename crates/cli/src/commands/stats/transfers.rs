//! `bale stats --transfers`: how each pack of a run reached its server.

use crate::args::{Global, Stats};
use crate::commands::select;
use crate::{exit, output, sizes};
use anyhow::Result;
use bale_format::{Snapshot, Transfer};
use bale_repository::repository::Repository;
use serde_json::json;

/// Of one snapshot, or of all and of unfinished runs.
pub fn run(global: &Global, repository: &Repository, options: &Stats) -> Result<i32> {
    let runs = match &options.address {
        Some(address) => {
            let chosen = select::choose(repository, address, &options.select, global.json)?;
            vec![chosen.named]
        }
        None => select::Listed::of(repository)?.all(),
    };
    let mut totals = Totals::default();
    for (id, snapshot) in &runs {
        for transfer in &snapshot.transfers.list {
            totals.add(transfer);
            print(global, &id.to_string(), snapshot, transfer);
        }
    }
    let Totals {
        transfers,
        bytes,
        tries,
    } = totals;
    if global.json {
        output::object(&json!({
            "type": "summary", "transfers": transfers, "bytes": bytes, "tries": tries,
        }));
    } else {
        output::line(&format!(
            "{} of {} in all, in {}",
            sizes::either(transfers, "transfer", "transfers"),
            sizes::bytes(bytes),
            sizes::either(tries, "try", "tries"),
        ));
    }
    Ok(exit::COMPLETE)
}

#[derive(Default)]
struct Totals {
    transfers: u64,
    bytes: u64,
    tries: u64,
}

impl Totals {
    fn add(&mut self, transfer: &Transfer) {
        self.transfers += 1;
        self.bytes = self.bytes.saturating_add(transfer.bytes);
        self.tries = self.tries.saturating_add(transfer.tries);
    }
}

fn print(global: &Global, id: &str, snapshot: &Snapshot, transfer: &Transfer) {
    let each = snapshot.transfers.each;
    let seconds = transfer.duration_ms as f64 / 1000.0;
    let rate = transfer.bytes as f64 / seconds.max(0.001);
    if global.json {
        return output::object(&json!({
            "type": "transfer", "snapshot": id, "run": snapshot.run, "bytes": transfer.bytes,
            "start_ms": transfer.start_ms, "duration_ms": transfer.duration_ms,
            "tries": transfer.tries, "packs": each, "bytes_per_second": rate as u64,
        }));
    }
    let tries = match transfer.tries.saturating_sub(each) {
        0 => String::new(),
        more => format!(", {}", sizes::either(more, "retry", "retries")),
    };
    output::line(&format!(
        "{}  {:>10.3} s  {:>11} in {seconds:.3} s, {}/s{tries}",
        &id[..8],
        transfer.start_ms as f64 / 1000.0,
        sizes::bytes(transfer.bytes),
        sizes::bytes(rate as u64),
    ));
}
