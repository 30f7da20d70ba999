//! Takes out of a QEMU what a run has made in it, whether it is this one or one that was killed.
//!
//! Bitmaps stay: which of them a snapshot is recorded with is not known here.

use super::scratch::ScratchDirectory;
use super::{JOB_MAX, LOOK, PREFIX, Result};
use crate::qmp::{QmpClient, QmpError};
use serde_json::{Value, json};
use std::time::Instant;

/// Exports first, then the jobs, then the nodes that both use, then their files. Nobody else has
/// the directory, so nobody reads from them.
pub(super) fn remove(qmp: &mut QmpClient, scratch: &ScratchDirectory) -> Result<()> {
    for id in ids(qmp, "query-block-exports", "id")? {
        let delete = json!({ "id": id, "mode": "hard" });
        refused_is_gone(qmp.execute("block-export-del", delete))?;
    }
    wait_for_exports(qmp)?;
    stop_server(qmp, scratch)?;
    end_jobs(qmp)?;
    // A node of a file is in use by the one above it, which has a shorter name.
    let mut nodes = ids(qmp, "query-named-block-nodes", "node-name")?;
    nodes.sort_by_key(String::len);
    for node in nodes {
        refused_is_gone(qmp.execute("blockdev-del", json!({ "node-name": node })))?;
    }
    scratch.remove_files();
    Ok(())
}

/// Jobs end when they can, and some wait to be looked at when they have ended.
fn end_jobs(qmp: &mut QmpClient) -> Result<()> {
    let began = Instant::now();
    loop {
        let jobs = ids(qmp, "query-jobs", "id")?;
        if jobs.is_empty() || began.elapsed() > JOB_MAX {
            return Ok(());
        }
        for id in jobs {
            let job = json!({ "id": id });
            refused_is_gone(qmp.execute("job-cancel", job.clone()))?;
            refused_is_gone(qmp.execute("job-dismiss", job))?;
        }
        std::thread::sleep(LOOK);
    }
}

/// Only the one that listens in the directory: QEMU has one for everybody.
fn stop_server(qmp: &mut QmpClient, scratch: &ScratchDirectory) -> Result<()> {
    if scratch.is_listened_to() {
        refused_is_gone(qmp.execute("nbd-server-stop", json!({})))?;
    }
    scratch.remove_socket();
    Ok(())
}

/// Of everything that was made by a run.
fn ids(qmp: &mut QmpClient, query: &str, field: &str) -> Result<Vec<String>> {
    let found = qmp.execute(query, json!({}))?;
    let found = found.as_array().map_or(&[][..], Vec::as_slice);
    let ids = found
        .iter()
        .filter_map(|found: &Value| found[field].as_str());
    let own = ids.filter(|id| id.starts_with(PREFIX));
    Ok(own.map(str::to_owned).collect())
}

fn wait_for_exports(qmp: &mut QmpClient) -> Result<()> {
    let began = Instant::now();
    while !ids(qmp, "query-block-exports", "id")?.is_empty() && began.elapsed() < JOB_MAX {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What QEMU refuses to remove ended meanwhile, or shows when its name is used again.
fn refused_is_gone(done: std::result::Result<Value, QmpError>) -> Result<()> {
    match done {
        Err(QmpError::Refused { .. }) => Ok(()),
        done => Ok(done.map(|_| ())?),
    }
}
