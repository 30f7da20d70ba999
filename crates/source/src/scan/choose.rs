//! Which way to look: by inodes from the device where that is allowed and right, or by walking.

use super::started::StartedScan;
use super::worth::{Part, is_worth_it};
use super::{ScanMode, ScanOptions, Scanner, Sources, device_copy, image_source, mounted};
use bale_pipeline::error::{Failure, Result};
use bale_pipeline::monitor::Monitor;
use std::os::fd::AsFd;

/// Would these be read as an image is, which changes nothing and holds nobody up?
pub fn is_of_image(sources: &Sources, mode: ScanMode) -> bool {
    let is_elsewhere = sources.device_copy().is_some() || !sources.read_at().is_empty();
    mode == ScanMode::Inode && !is_elsewhere && image_source::find(sources).is_some()
}

/// Chooses and begins.
pub fn choose(
    sources: &Sources,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    if let Some((source, device)) = sources.device_copy() {
        return device_copy::begin(sources, source, device, options, monitor);
    }
    match options.mode {
        ScanMode::Inode if !sources.read_at().is_empty() => Err(Failure::Other(
            "--scan inode cannot be used: the snapshot is a directory".to_owned(),
        )),
        _ if !sources.read_at().is_empty() => {
            monitor.note("walking the snapshot");
            walk(sources, options)
        }
        ScanMode::Walk => walk(sources, options),
        ScanMode::Inode => match image_source::find(sources) {
            Some(path) => image_source::begin(sources, &path, options, monitor),
            None => {
                let refuse =
                    |why: String| Failure::Other(format!("--scan inode cannot be used: {why}"));
                let target = mounted::target(sources, &options).map_err(refuse)?;
                mounted::begin(sources, target, options, monitor).map_err(|error| match error {
                    Failure::Interrupted => error,
                    error => refuse(error.to_string()),
                })
            }
        },
        ScanMode::Auto => choose_automatically(sources, options, monitor),
    }
}

/// By inodes where that is allowed and right; says in a line which it is, where there was a choice.
fn choose_automatically(
    sources: &Sources,
    options: ScanOptions,
    monitor: &dyn Monitor,
) -> Result<StartedScan> {
    let walking = |why: &str| monitor.note(&format!("walking: {why}"));
    let target = match mounted::target(sources, &options) {
        Ok(target) => target,
        Err(why) => {
            walking(&why);
            return walk(sources, options);
        }
    };
    let whole = target.path_inside.as_os_str().is_empty();
    let part = match whole {
        true => Part::All,
        false => Part::Of(sources.paths(), &options.filter, options.entries_before),
    };
    if let Err(why) = is_worth_it(target.directory.as_fd(), part) {
        walking(&why);
        return walk(sources, options);
    }
    let again = ScanOptions {
        filter: options.filter.clone(),
        left_out: options.left_out.clone(),
        spill_directory: options.spill_directory.clone(),
        freezer: options.freezer.clone(),
        known: options.known.clone(),
        parent_digests: options.parent_digests.clone(),
        ..options
    };
    match mounted::begin(sources, target, options, monitor) {
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        Err(error) => {
            walking(&error.to_string());
            walk(sources, again)
        }
        begun => begun,
    }
}

fn walk(sources: &Sources, options: ScanOptions) -> Result<StartedScan> {
    let scanner = Scanner::start(sources, options).map_err(Failure::local("scan", "/"))?;
    Ok(StartedScan::Walk(Box::new(scanner)))
}
