//! `bale backup --image`

use super::{backup, retain};
use crate::args::{Backup, DiskFormat, Global};
use crate::output;
use crate::progress::Console;
use crate::{exit, place, sizes};
use anyhow::{Context, Result};
use bale_engine::backup::{BackupOptions, ImageSource, backup_images};
use bale_format::Snapshot;
use bale_format::snapshot::{DenseDirectory, ImageRecord, ImageView};
use bale_pipeline::clock::{Clock, SystemClock};
use bale_pipeline::monitor::{Monitor, Problem};
use bale_pipeline::random::{OsRandom, draw};
use bale_repository::repository::Repository;
use bale_source::raw::change_list::{ChangeListFormat, ImportedChanges, read_change_file};
use bale_source::raw::tracking::begin_epoch;
use bale_source::raw::{
    BitmapChanges, Changes, ImageFormat, QemuSource, RawImage, RawImageOptions, SourceFormat,
    has_bitmap, is_export, is_of_server, open_disks, shown_source,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Of the repository's id, in names of QEMU's bitmaps.
const OWNER_CHARS: usize = 12;

/// Backs up devices and images of them; exit 3 if something could not be read, or is fuzzy.
pub fn run(global: &Global, options: &Backup) -> Result<i32> {
    let began = Instant::now();
    let repository = backup::open(global, options)?;
    retain::check(options, &repository)?;
    let console = Console::new(global);
    check_words(options)?;
    let (machines, images) = (options.image.iter())
        .map(PathBuf::as_path)
        .partition(|path| QemuSource::is_meant(path));
    let changes = change_list(options)?;
    let opened = RawImageOptions {
        is_point_in_time: options.point_in_time,
        changes_only: options.changes_only,
        format: source_format(options.image_format),
        allows_files_elsewhere: options.allow_files_elsewhere,
    };
    let (mut sources, mut not_found) = open_machines(machines, &repository);
    let mut bitmaps = Vec::new();
    for path in images {
        match open_image(path, &opened, changes.is_none()) {
            Ok((source, bitmap)) => {
                bitmaps.extend(bitmap.map(|bitmap| (sources.len(), bitmap)));
                sources.push(source);
            }
            Err(error) => not_found.push(not_opened(path, &error)),
        }
    }
    if sources.is_empty() {
        not_found
            .iter()
            .for_each(|problem| console.problem(problem));
        return Err(anyhow::anyhow!("none of the images can be read"));
    }
    backup::answer_interruptions(global, options)?;
    let works_with = place::works_with(global)?;
    let engine_options = BackupOptions {
        not_found,
        excludes: Vec::new(),
        ..backup::engine_options(options, &repository, &works_with)?
    };
    if let Some(since) = engine_options.parent {
        if let Some(ranges) = changes {
            check_within(&ranges, &sources[0].image)?;
            sources[0].tracker = Box::new(ImportedChanges { since, ranges });
        }
        for (place, changes) in bitmaps {
            sources[place].tracker = Box::new(BitmapChanges { since, changes });
        }
    }
    sources
        .iter_mut()
        .for_each(|source| set_options(source, options));
    let fuzzy = options.allow_fuzzy;
    let outcome = backup_images(&repository, &mut sources, fuzzy, &engine_options, &console);
    backup::ended(
        (global, options),
        &repository,
        outcome,
        (&console, began),
        Vec::new(),
    )
}

fn set_options(source: &mut ImageSource, options: &Backup) {
    source.reads_free = options.read_free;
    source.trusts_metadata = options.trust_metadata;
    source.was_frozen = options.frozen;
    source.lists_files = !options.no_file_catalog;
    source.is_one_of_several = options.image.len() > 1;
}

/// An image, and what its bitmap says if it names one, before anything else is looked at. With the
/// epoch that begins now, if it is a device that is tracked. First that, as it has written what is
/// in memory alone, and all that is read is to be read later.
fn open_image(
    path: &Path,
    options: &RawImageOptions,
    is_tracked: bool,
) -> std::io::Result<(ImageSource, Option<Changes>)> {
    let epoch = match is_tracked {
        true => begin_epoch(path, new_epoch_id()?),
        false => None,
    };
    let image = RawImage::open_with(path, options)?;
    let changes = image.bitmap_changes()?;
    let source = ImageSource::untracked(image);
    let source = match epoch {
        Some(epoch) => ImageSource {
            tracker: Box::new(epoch),
            ..source
        },
        None => source,
    };
    Ok((source, changes))
}

/// A machine whose memory was set back may draw the same numbers again, at another time.
fn new_epoch_id() -> std::io::Result<u64> {
    let (drawn, now) = (u64::from_le_bytes(draw(&OsRandom)?), SystemClock.time());
    let nanos = (now.seconds as u64).wrapping_mul(1_000_000_000);
    Ok(drawn ^ nanos.wrapping_add(u64::from(now.nanos)))
}

/// What a list says, before anything else is looked at.
fn change_list(options: &Backup) -> Result<Option<Vec<Range<u64>>>> {
    let Some(text) = &options.changes else {
        return Ok(None);
    };
    if options.image.len() != 1 || QemuSource::is_meant(&options.image[0]) {
        let text = "--changes is of one image, and of none in QEMU, which knows what changed";
        return Err(exit::Usage(text.to_owned()).into());
    }
    let formats = [
        ("thin_delta:", ChangeListFormat::ThinDelta),
        ("era_invalidate:", ChangeListFormat::EraInvalidate),
        ("json:", ChangeListFormat::Json),
    ];
    let shown = output::escape(text.as_bytes());
    let mut found = formats.iter().filter_map(|(name, format)| {
        let path = text.as_bytes().strip_prefix(name.as_bytes())?;
        Some((Path::new(OsStr::from_bytes(path)), *format))
    });
    let Some((path, format)) = found.next() else {
        let text = format!(
            "--changes {shown}: neither thin_delta:FILE, era_invalidate:FILE nor json:FILE"
        );
        return Err(exit::Usage(text).into());
    };
    let block_bytes = options
        .changes_block_size
        .as_deref()
        .map(sizes::parse_bytes);
    let block_bytes = block_bytes.transpose()?;
    let ranges = read_change_file(path, format, block_bytes)
        .with_context(|| format!("the list of changes {}", output::path(path)))?;
    Ok(Some(ranges))
}

/// A list of another device, or one whose blocks are of another size, may name too little as well.
fn check_within(ranges: &[Range<u64>], image: &RawImage) -> Result<()> {
    let len = image.len_bytes();
    match ranges.last().filter(|last| last.start >= len) {
        None => Ok(()),
        Some(last) => Err(anyhow::anyhow!(
            "the list of changes names byte {}, and {} has {len} bytes: it is of another device, \
             or its blocks are of another size (without --changes everything is read)",
            last.start,
            output::path(image.path()),
        )),
    }
}

/// Options of one kind of image, and no image of that kind.
fn check_words(options: &Backup) -> Result<()> {
    let bitmaps = options.image.iter().filter(|path| has_bitmap(path)).count();
    let since = options.changes_since.is_some();
    let is_of_files = options.image_format.is_some() || options.allow_files_elsewhere;
    let text = if options.point_in_time && !options.image.iter().any(|path| is_export(path)) {
        "--point-in-time is said of exports (nbd://...), and no --image names one"
    } else if is_of_files && options.image.iter().all(|path| is_of_server(path)) {
        "--image-format and --allow-files-elsewhere are of files, and no --image names one"
    } else if bitmaps > 0 && !since {
        "bitmap=NAME says what changed since a snapshot: --changes-since names it"
    } else if bitmaps > 0 && options.changes.is_some() {
        "--changes and bitmap=NAME both say what changed: one of them"
    } else if since && bitmaps == 0 && options.changes.is_none() {
        "--changes-since is of --changes, or of an export with bitmap=NAME, and there is neither"
    } else if options.changes_only && bitmaps == 0 {
        "--changes-only is of exports with bitmap=NAME, and no --image names one"
    } else {
        return Ok(());
    };
    Err(exit::Usage(text.to_owned()).into())
}

fn source_format(format: Option<DiskFormat>) -> SourceFormat {
    match format {
        None => SourceFormat::ByName,
        Some(DiskFormat::Raw) => SourceFormat::Raw,
        Some(DiskFormat::Qcow2) => SourceFormat::Qemu(ImageFormat::Qcow2),
        Some(DiskFormat::Vmdk) => SourceFormat::Qemu(ImageFormat::Vmdk),
        Some(DiskFormat::Vdi) => SourceFormat::Qemu(ImageFormat::Vdi),
        Some(DiskFormat::Vhdx) => SourceFormat::Qemu(ImageFormat::Vhdx),
    }
}

/// Disks of running machines, those of one machine at one moment.
fn open_machines(paths: Vec<&Path>, repository: &Repository) -> (Vec<ImageSource>, Vec<Problem>) {
    // Bitmaps of this repository are told from those of others.
    let owner = repository
        .id()
        .to_string()
        .chars()
        .take(OWNER_CHARS)
        .collect::<String>();
    let (mut sources, mut not_found) = (Vec::new(), Vec::new());
    let mut machines: Vec<Vec<(&Path, QemuSource)>> = Vec::new();
    for path in paths {
        match QemuSource::parse(path) {
            Err(error) => not_found.push(not_opened(path, &error)),
            Ok(disk) => {
                let same = machines
                    .iter_mut()
                    .find(|disks| disks[0].1.is_of_same_machine(&disk));
                match same {
                    Some(disks) => disks.push((path, disk)),
                    None => machines.push(vec![(path, disk)]),
                }
            }
        }
    }
    for machine in machines {
        let (paths, disks): (Vec<&Path>, Vec<QemuSource>) = machine.into_iter().unzip();
        match open_disks(&disks, &owner) {
            Err(error) => {
                not_found.extend(paths.into_iter().map(|path| not_opened(path, &error)));
            }
            Ok(opened) => sources.extend(opened.into_iter().map(|(image, tracker)| ImageSource {
                tracker,
                ..ImageSource::untracked(image)
            })),
        }
    }
    (sources, not_found)
}

fn not_opened(path: &Path, error: &std::io::Error) -> Problem {
    let shown = shown_source(path);
    let text = error.to_string();
    Problem {
        path: shown.as_os_str().as_bytes().to_vec(),
        action: "open the image",
        text,
    }
}

/// Images of a snapshot for scripts, if it has any. Fields: docs/SCRIPTING.md.
pub fn put(value: &mut Value, snapshot: &Snapshot) {
    if snapshot.images.is_empty() {
        return;
    }
    let images: Vec<Value> = snapshot.images.iter().map(object).collect();
    value["images"] = json!(images);
}

fn object(image: &ImageRecord) -> Value {
    let mut value = json!({
        "how": image.how.text(), "tracker": image.tracker, "basis": image.basis,
        "left_out": image.left_out,
        "views": image.views.iter().map(view_object).collect::<Vec<_>>(),
    });
    output::put_path(&mut value, "path", &image.path.0);
    output::put_path(&mut value, "source", &image.source.0);
    value
}

fn view_object(view: &ImageView) -> Value {
    let totals = &view.totals;
    let mut value = json!({
        "kind": view.kind, "uuid": view.uuid, "files": totals.files, "dirs": totals.dirs,
        "others": totals.others, "bytes": totals.bytes, "hard_links": totals.hard_links,
        "problems": view.problems, "not_listed": view.not_listed,
        "densest": densest(&view.densest),
    });
    output::put_path(&mut value, "path", &view.path.0);
    value
}

/// For scripts.
pub fn densest(directories: &[DenseDirectory]) -> Value {
    let object = |one: &DenseDirectory| {
        let mut value = json!({"children": one.children});
        output::put_path(&mut value, "path", &one.path.0);
        value
    };
    directories.iter().map(object).collect()
}

/// The same for people.
pub fn report(snapshot: &Snapshot) {
    for image in &snapshot.images {
        report!(
            "image {} of {}: {}",
            output::escape(&image.path.0),
            output::escape(&image.source.0),
            image.how.text()
        );
        for view in &image.views {
            let path = output::escape(&view.path.0);
            match &view.not_listed {
                Some(why) => report!("  {path}: {}, not listed: {why}", view.kind),
                None => report!("  {path}: {}, {} files", view.kind, view.totals.files),
            }
        }
    }
}
