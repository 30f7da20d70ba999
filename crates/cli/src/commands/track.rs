//! `bale track`

use crate::args::{Global, Track};
use crate::{exit, output, times};
use anyhow::{Context, Result, anyhow};
use bale_format::Time;
use bale_pipeline::amount;
use bale_pipeline::clock::{Clock, SystemClock};
use bale_pipeline::random::{OsRandom, draw};
use bale_source::raw::tracking::{
    TrackingStart, TrackingStatus, start_tracking, stop_tracking, tracked_devices, tracking_status,
};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Begins, shows and ends tracking.
pub fn run(global: &Global, command: &Track) -> Result<i32> {
    match command {
        Track::Start(options) => start(global, &options.device),
        Track::Status { devices, .. } if devices.is_empty() => {
            let found = tracked_devices().context("list the devices that are tracked")?;
            if found.is_empty() && !global.json && !global.quiet {
                report!("no device is tracked");
            }
            found.iter().for_each(|status| show(global, status));
            Ok(exit::COMPLETE)
        }
        Track::Status { devices, .. } => status(global, devices),
        Track::Stop(options) => stop(global, &options.device),
    }
}

fn start(global: &Global, device: &Path) -> Result<i32> {
    let id = u64::from_le_bytes(draw(&OsRandom)?);
    let seconds = SystemClock.time().seconds;
    let begun = start_tracking(device, id, seconds);
    let begun = begun.with_context(|| format!("track {}", output::path(device)))?;
    let (word, text) = match begun {
        TrackingStart::Begun => (
            "started",
            "is tracked from now on, until it is stopped or the machine is. The next backup of it \
             reads everything, and those after it what was written since",
        ),
        TrackingStart::WasThere => ("goes-on", "is tracked already, and goes on"),
    };
    said(global, word, device, text);
    Ok(exit::COMPLETE)
}

fn stop(global: &Global, device: &Path) -> Result<i32> {
    let was_there = stop_tracking(device);
    match was_there.with_context(|| format!("stop tracking {}", output::path(device)))? {
        true => {
            let text = "is tracked no more: the next backup of it reads everything";
            said(global, "stopped", device, text);
            Ok(exit::COMPLETE)
        }
        false => Err(anyhow!("{} is not tracked", output::path(device))),
    }
}

fn said(global: &Global, word: &str, device: &Path, text: &str) {
    if global.json {
        let mut value = json!({"type": "track", "action": word});
        output::put_path(&mut value, "device", device.as_os_str().as_bytes());
        output::object(&value);
    } else if !global.quiet {
        report!("{} {text}", output::path(device));
    }
}

fn status(global: &Global, devices: &[PathBuf]) -> Result<i32> {
    let mut code = exit::COMPLETE;
    for device in devices {
        let found = tracking_status(device);
        match found.with_context(|| format!("look at {}", output::path(device)))? {
            Some(status) => {
                show(global, &status);
                if status.trouble.is_some() {
                    code = exit::FAILED;
                }
            }
            None => {
                code = exit::FAILED;
                if global.json {
                    let mut value = json!({"type": "tracking", "tracked": false});
                    output::put_path(&mut value, "device", device.as_os_str().as_bytes());
                    output::object(&value);
                } else {
                    output::line(&format!("{} is not tracked", output::path(device)));
                }
            }
        }
    }
    Ok(code)
}

fn show(global: &Global, status: &TrackingStatus) {
    if global.json {
        return output::object(&object(status));
    }
    let name = output::path(&status.device);
    if let Some(why) = &status.trouble {
        return output::line(&format!(
            "{name} is tracked, but not to be relied on: {why} (stop it, and start it again)"
        ));
    }
    let since = status.started.map_or(String::new(), |seconds| {
        let nanos = 0;
        format!(" since {}", times::local_time(Time { seconds, nanos }))
    });
    let missed = match status.misses {
        0 => String::new(),
        misses => format!(", events missed: {misses}"),
    };
    output::line(&format!(
        "{name} is tracked{since}: epoch {}, {} of {} in blocks written in it{missed}",
        status.epoch,
        amount::bytes(status.changed_bytes),
        amount::bytes(status.len_bytes.unwrap_or_default()),
    ));
}

fn object(status: &TrackingStatus) -> Value {
    let started = status.started.map(|seconds| {
        let nanos = 0;
        times::time_text(Time { seconds, nanos })
    });
    let mut value = json!({
        "type": "tracking", "tracked": true, "bytes": status.len_bytes, "started": started,
        "epoch": status.epoch, "bytes_changed": status.changed_bytes,
        "events_missed": status.misses, "memory": status.marks_bytes, "trouble": status.trouble,
    });
    output::put_path(&mut value, "device", status.device.as_os_str().as_bytes());
    value
}
