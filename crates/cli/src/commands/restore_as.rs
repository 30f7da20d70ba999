//! `bale restore --image-format`: an image as a file of another format.

use super::{cold, restore, select};
use crate::args::{DiskFormat, Global, Restore};
use crate::exit::{self, Usage};
use crate::named_paths::NamedPath;
use crate::place;
use crate::progress::Console;
use anyhow::Result;
use bale_engine::export::{convert_image, open_images};
use bale_nbd::ImageFormat;
use bale_restore::RestoreReport;
use std::time::Instant;

/// The format, if it is one that the restore itself does not write.
pub fn format(options: &Restore) -> Option<ImageFormat> {
    match options.image_format? {
        DiskFormat::Raw => None,
        DiskFormat::Qcow2 => Some(ImageFormat::Qcow2),
        DiskFormat::Vmdk => Some(ImageFormat::Vmdk),
        DiskFormat::Vdi => Some(ImageFormat::Vdi),
        DiskFormat::Vhdx => Some(ImageFormat::Vhdx),
    }
}

/// Writes one image; exit 3 if zeros stand for a part of it.
pub fn run(global: &Global, options: &Restore, format: ImageFormat) -> Result<i32> {
    let began = Instant::now();
    let target = options.target.as_deref().expect("required with the format");
    let place = NamedPath {
        by: "--target",
        attempt: "write an image to",
        path: target,
        advice: "Name a new file in a directory that is there",
    };
    place.require_place_for_file()?;
    let repository = place::open(global)?;
    let (address, json) = (&options.address, global.json);
    let chosen = select::choose_to_restore(&repository, address, &options.select, json)?;
    let console = Console::new(global).naming_whole_paths();
    let scratch = place::scratch(&repository)?;
    let warmer = cold::warmer(&repository, &options.cold)?;
    let (snapshot, path) = (&chosen.named, &chosen.path);
    let (images, unreadable) =
        open_images(&repository, snapshot, path, warmer, &scratch, &console)?;
    if images.len() > 1 {
        let text = "--image-format is of one image, and this snapshot holds several: SNAP:/IMAGE";
        return Err(Usage(text.to_owned()).into());
    }
    let how = (options.force, options.verify);
    let done = convert_image(&images[0], target, format, how, &console)?;
    console.finish();
    let is_whole = done.problems == 0 && !images[0].is_incomplete();
    let report = RestoreReport {
        files_written: u64::from(is_whole),
        incomplete: u64::from(!is_whole),
        bytes: done.bytes,
        differences: u64::from(done.differs),
        problems: done.problems + unreadable,
        ..RestoreReport::default()
    };
    let words = (options, console.lacks_cold_store());
    let seconds = began.elapsed().as_secs_f64();
    restore::summary(global, words, (&report, None, &[]), seconds);
    Ok(match is_whole && report.problems == 0 {
        true => exit::COMPLETE,
        false => exit::INCOMPLETE,
    })
}
