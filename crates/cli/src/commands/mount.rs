//! `bale mount`

use super::{select, snapshots, unmatched};
use crate::args::{Global, MountCommand};
use crate::progress::Console;
use crate::{exit, interrupt, output, place, sizes};
use anyhow::Result;
use bale_engine::mount::{
    MountEvent, MountOptions, MountReport, MountedSnapshots, mount_snapshots,
};
use bale_mount::KernelOptions;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What `mount` and `df` show.
const SOURCE: &str = "bale";

/// For how long a request is tried again, unless somebody says something else.
const RETRY_FOR: &str = "1m";

/// Serves until it is unmounted, by a signal or by somebody; exit 3 if something could not be read.
pub fn run(global: &Global, options: &MountCommand) -> Result<i32> {
    let mut patient = global.clone();
    // Whoever reads waits meanwhile, and a file manager stands still.
    (patient.remote.retry_for).get_or_insert_with(|| RETRY_FOR.to_owned());
    let repository = place::open(&patient)?;
    let listed = select::Listed::of(&repository)?;
    let snapshots = match options.ids.is_empty() {
        true => {
            unmatched::report(global, &options.select, &listed.readable);
            MountedSnapshots::Passing(select::filter(&options.select))
        }
        false => {
            let named = snapshots::named(&options.ids, listed, &options.select)?;
            MountedSnapshots::These(named)
        }
    };
    let mounted = MountOptions {
        dir: options.dir.clone(),
        snapshots,
        kernel: KernelOptions {
            is_open_to_others: options.allow_other,
            source: SOURCE.to_owned(),
        },
    };
    let console = Console::new(global).naming_whole_paths();
    interrupt::go_on_after_the_first();
    let mut event = |event: MountEvent| say(event, global);
    let report = mount_snapshots(
        &repository,
        mounted,
        &console,
        &interrupt::requests,
        &mut event,
    );
    console.finish();
    let report = report?;
    summary(&report, global);
    Ok(match report.problems {
        0 => exit::COMPLETE,
        _ => exit::INCOMPLETE,
    })
}

/// Fields: docs/SCRIPTING.md.
fn say(event: MountEvent, global: &Global) {
    let shown = |dir: &Path| output::escape(dir.as_os_str().as_bytes());
    match event {
        MountEvent::Mounted { dir, snapshots } if global.json => {
            let mut value = json!({"type": "mounted", "snapshots": snapshots});
            output::put_path(&mut value, "path", dir.as_os_str().as_bytes());
            output::object(&value);
        }
        MountEvent::Unmounted { dir } if global.json => {
            let mut value = json!({"type": "unmounted"});
            output::put_path(&mut value, "path", dir.as_os_str().as_bytes());
            output::object(&value);
        }
        MountEvent::Mounted { dir, snapshots } if !global.quiet => report!(
            "{} at {}. Ctrl-C or fusermount3 -u ends it",
            sizes::counted(snapshots as u64, "snapshot"),
            shown(dir)
        ),
        MountEvent::Unmounted { dir } if !global.quiet => report!("unmounted {}", shown(dir)),
        MountEvent::Mounted { .. } | MountEvent::Unmounted { .. } => {}
        MountEvent::Busy { dir } => note(
            global,
            &format!(
                "{} is busy: somebody has a file open there, or works in one of its directories \
                 (lsof or fuser -m says who). It is served on; ask again, and it is unmounted all \
                 the same",
                shown(dir)
            ),
        ),
        MountEvent::Detached { dir } => note(
            global,
            &format!(
                "{} is unmounted, and somebody still reads there: served for ten seconds more",
                shown(dir)
            ),
        ),
    }
}

fn note(global: &Global, text: &str) {
    match global.json {
        true => output::object(&json!({"type": "note", "message": text})),
        false => report!("bale: {text}"),
    }
}

fn summary(report: &MountReport, global: &Global) {
    if global.json {
        output::object(&json!({"type": "summary", "problems": report.problems}));
    } else if !global.quiet && report.problems > 0 {
        report!("{}", sizes::counted(report.problems, "problem"));
    }
}
