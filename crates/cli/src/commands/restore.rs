//! `bale restore`

use super::select::SelectedSnapshots;
use super::{cold, deleting, restore_as, select};
use crate::args::{Global, Restore};
use crate::exit::{self, Usage};
use crate::named_paths::NamedPath;
use crate::progress::Console;
use crate::{output, place, run_record, sizes};
use anyhow::Result;
use bale_engine::restore::to_ext4::SnapshotToExt4;
use bale_engine::restore::{Patterns, SnapshotRestore};
use bale_format::Snapshot;
use bale_repository::repository::Repository;
use bale_restore::ext4::{Ext4Report, ImageTarget};
use bale_restore::{
    Loss, Overwrite, ReportedProblems, RestoreOptions, RestoreReport, ScratchSpace,
};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Instant;

/// Restores; exit 3 if something did not come back as it was.
pub fn run(global: &Global, options: &Restore) -> Result<i32> {
    match restore_as::format(options) {
        Some(format) => restore_as::run(global, options, format),
        None => restore(global, options),
    }
}

fn restore(global: &Global, options: &Restore) -> Result<i32> {
    let began = Instant::now();
    check_words(global, options)?;
    let repository = place::open(global)?;
    let chosen = chosen(global, options, &repository)?;
    deleting::refuse_images(options, &chosen.named.1)?;
    let patterns = Patterns::new(&chosen.path, &options.include, &options.exclude)
        .map_err(crate::patterns::refused)?;
    let reported = ReportedProblems::default();
    let warmer = cold::warmer(&repository, &options.cold)?;
    let restore_options = RestoreOptions {
        warmer: warmer.as_deref(),
        reported: Some(&reported),
        below: chosen.path.clone().into(),
        overwrite: overwrite(options),
        delete: options.delete,
        guard: deleting::guard(global, &chosen.named),
        dry_run: options.dry_run,
        force_space: options.force,
        inode_flags: options.inode_flags,
        memory: repository.memory(),
        ..RestoreOptions::new(&patterns)
    };
    let scratch = place::scratch(&repository)?;
    let console = console(global, options);
    if options.cold.plan {
        let named = &chosen.named;
        return cold::print_plan(&repository, named, &restore_options, &scratch, &console);
    }
    let mut image_report = None;
    let report = match (&options.to_ext4, &options.target) {
        (Some(image), _) => {
            let work = SnapshotToExt4 {
                repository: &repository,
                snapshot: &chosen.named,
                options: restore_options,
                ext4: SnapshotToExt4::usual_options(&repository)?,
            };
            let mut report = into_image(options, image, work, &scratch, &console)?;
            from_root(&mut report.restored.losses);
            image_report = Some(report.clone());
            report.restored
        }
        (None, Some(target)) => {
            let work = SnapshotRestore {
                repository: &repository,
                snapshot: &chosen.named,
                target,
                options: restore_options,
            };
            into_target(options, &chosen, &work, &scratch, &console)?
        }
        (None, None) => unreachable!("one of both is required"),
    };
    let lacks_cold = console.lacks_cold_store();
    console.finish();
    summary(
        global,
        (options, lacks_cold),
        (&report, image_report.as_ref(), &patterns.unmatched()),
        began.elapsed().as_secs_f64(),
    );
    let is_whole = is_whole(&report.losses, &chosen.named.1) && patterns.unmatched().is_empty();
    Ok(if report.problems > 0 || !is_whole {
        exit::INCOMPLETE
    } else {
        exit::COMPLETE
    })
}

fn console(global: &Global, options: &Restore) -> Console {
    match options.to_ext4 {
        _ if options.cold.plan => Console::for_data_on_stdout(global).naming_whole_paths(),
        Some(_) => Console::new(global).naming_whole_paths(),
        None => Console::new(global),
    }
}

fn overwrite(options: &Restore) -> Overwrite {
    if options.metadata_only {
        return Overwrite::MetadataOnly;
    }
    match options.overwrite.as_str() {
        "always" => Overwrite::Always,
        "never" => Overwrite::Never,
        _ => Overwrite::IfChanged,
    }
}

/// Before anything is read: what can make no sense, whatever is in the repository.
fn check_words(global: &Global, options: &Restore) -> Result<()> {
    options.ext4.need(options.to_ext4.is_some())?;
    crate::patterns::check_texts(&options.include)?;
    crate::patterns::check_texts(&options.exclude)?;
    require_target(options)?;
    deleting::refuse_repositories(global, options)
}

fn chosen(
    global: &Global,
    options: &Restore,
    repository: &Repository,
) -> Result<SelectedSnapshots> {
    let choose = match options.delete {
        true => select::choose_to_delete,
        false => select::choose_to_restore,
    };
    choose(repository, &options.address, &options.select, global.json)
}

/// Before anything is read: it is known what can stand there.
fn require_target(options: &Restore) -> Result<()> {
    if let Some(path) = options.target.as_deref().filter(|_| options.metadata_only)
        && !path.is_dir()
    {
        let text = format!(
            "--metadata-only: {} is no directory: name the one whose files get their metadata back",
            output::path(path)
        );
        return Err(Usage(text).into());
    }
    if let Some(path) = &options.target {
        // An image may be meant, which is known only once the snapshot is.
        return match may_hold_image(path) {
            true => Ok(()),
            false => target_directory(path).require_directory(),
        };
    }
    match &options.to_ext4 {
        Some(path) => new_image(path).require_place_for_file(),
        None => Ok(()),
    }
}

fn target_directory(path: &Path) -> NamedPath<'_> {
    NamedPath {
        by: "--target",
        attempt: "restore to",
        path,
        advice: "Name a directory that is there or can be made",
    }
}

/// A file or a block device.
fn may_hold_image(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device())
}

/// Is the target the place of one image itself, and no directory for it? So it is if it is a file
/// or a device, or is not there and has no slash at its end, and one image is meant.
fn is_image_itself(chosen: &SelectedSnapshots, target: &Path) -> Result<bool> {
    let images = &chosen.named.1.images;
    let is_named = |path: &[u8]| path.strip_prefix(b"/") == Some(&chosen.path[..]);
    let is_one = match chosen.path.is_empty() {
        true => images.len() == 1,
        false => images.iter().any(|image| is_named(&image.path.0)),
    };
    let is_for_directory = target.as_os_str().as_bytes().ends_with(b"/") || target.is_dir();
    if !is_one || is_for_directory {
        target_directory(target).require_directory()?;
        return Ok(false);
    }
    let place = NamedPath {
        advice: "Name a file in a directory that is there, a device, or a directory",
        ..target_directory(target)
    };
    place.require_place_for_file()?;
    Ok(true)
}

fn to_itself(
    options: &Restore,
    work: &SnapshotRestore,
    scratch: &ScratchSpace,
    console: &Console,
) -> Result<RestoreReport> {
    let mut report = work.restore_image(options.force, scratch, console)?;
    if options.verify && !options.dry_run {
        let verified = reported(work).verify_image(scratch, console)?;
        add_verified(&mut report, &verified);
    }
    Ok(report)
}

/// Of every command that makes a file system.
pub fn new_image(path: &Path) -> NamedPath<'_> {
    NamedPath {
        by: "--to-ext4",
        attempt: "make a file system in",
        path,
        advice: "Name a new file in a directory that is there, or an unused device",
    }
}

/// Is it all that there was when the backup was made, as far as files can take it?
pub fn is_whole(losses: &[Loss], snapshot: &Snapshot) -> bool {
    !snapshot.partial && losses.iter().all(|loss| loss.kind.is_note())
}

fn loss_object(loss: &Loss) -> Value {
    let mut value = json!({"kind": loss.kind.text(), "count": loss.entries, "message": loss.text});
    let first = loss.paths.first().map_or(&[][..], |path| path);
    output::put_path(&mut value, "first", first);
    value
}

/// Paths in a snapshot or an image, as people write them.
pub fn from_root(losses: &mut [Loss]) {
    for path in losses.iter_mut().flat_map(|loss| &mut loss.paths) {
        path.insert(0, b'/');
    }
}

/// Says what did not come back, or came back in part, for people.
pub fn print_loss(loss: &Loss) {
    report!(
        "not restored for {}: {} ({})",
        sizes::either(loss.entries, "entry", "entries"),
        loss.kind.text(),
        output::escape(loss.text.as_bytes())
    );
    for path in &loss.paths {
        report!("  {}", output::escape(path));
    }
    output::and_more(loss.paths.len(), loss.entries, |more| report!("  {more}"));
}

/// Says that nothing came for a pattern: a slip, probably.
fn print_unmatched(pattern: &str) {
    report!(
        "--include \"{}\" matched nothing: patterns are of paths below the one that is restored",
        output::escape(pattern.as_bytes())
    );
}

fn into_target(
    options: &Restore,
    chosen: &SelectedSnapshots,
    work: &SnapshotRestore,
    scratch: &ScratchSpace,
    console: &Console,
) -> Result<RestoreReport> {
    let is_itself = is_image_itself(chosen, work.target)?;
    deleting::refuse_large_targets(options, work.target)?;
    match is_itself {
        true => to_itself(options, work, scratch, console),
        false => into_directory(options, work, scratch, console),
    }
}

fn into_directory(
    options: &Restore,
    work: &SnapshotRestore,
    scratch: &ScratchSpace,
    console: &Console,
) -> Result<RestoreReport> {
    let mut report = work.restore(scratch, console)?;
    if options.verify && !options.dry_run {
        let verified = reported(work).verify(scratch, console)?;
        add_verified(&mut report, &verified);
    }
    Ok(report)
}

/// The same restore, whose plan has been reported.
fn reported<'a>(work: &SnapshotRestore<'a>) -> SnapshotRestore<'a> {
    SnapshotRestore {
        options: RestoreOptions {
            is_plan_reported: true,
            ..work.options.clone()
        },
        ..*work
    }
}

fn add_verified(report: &mut RestoreReport, verified: &RestoreReport) {
    report.differences = verified.differences;
    report.problems += verified.problems;
    report.has_damage |= verified.has_damage;
}

fn into_image(
    options: &Restore,
    image: &Path,
    mut work: SnapshotToExt4,
    scratch: &ScratchSpace,
    console: &Console,
) -> Result<Ext4Report> {
    options.ext4.apply(&mut work.ext4)?;
    let target = ImageTarget::look_at(image, options.force)?;
    let mut report = work.restore(target, scratch, console)?;
    if options.verify && !options.dry_run {
        work.options.is_plan_reported = true;
        let verified = work.verify(image, scratch, console)?;
        add_verified(&mut report.restored, &verified);
    }
    Ok(report)
}

pub fn summary(
    global: &Global,
    (options, lacks_cold): (&Restore, bool),
    (report, image, unmatched): (&RestoreReport, Option<&Ext4Report>, &[&str]),
    seconds: f64,
) {
    let value = summary_object(options, (report, image, unmatched), seconds);
    run_record::keep(&value);
    if global.json {
        return output::object(&value);
    }
    report.losses.iter().for_each(print_loss);
    unmatched.iter().for_each(|text| print_unmatched(text));
    if global.quiet {
        return;
    }
    let word = if options.dry_run {
        "would restore"
    } else {
        "restored"
    };
    report!(
        "{word} {}, {}, {}, {}, {} in {}",
        sizes::counted(report.files_written, "file"),
        sizes::either(report.directories, "directory", "directories"),
        sizes::counted(report.links, "hard link"),
        sizes::counted(report.others, "other"),
        sizes::bytes(report.bytes),
        sizes::duration(seconds),
    );
    let kept = report.kept + report.skipped;
    if kept + report.directories_kept > 0 {
        let what = match (options.metadata_only, options.dry_run) {
            (false, _) => "content unchanged",
            (true, false) => "metadata is as in the snapshot",
            (true, true) => "metadata would be looked after",
        };
        report!(
            "{what}: {}, {}",
            sizes::either(kept, "entry", "entries"),
            sizes::either(report.directories_kept, "directory", "directories")
        );
    }
    if report.times_changed > 0 {
        report!(
            "{} had another modification time and has the snapshot's now: what changed in it since \
             the backup stays, and shows only to restore --overwrite always",
            sizes::counted(report.times_changed, "file")
        );
    }
    print_in_part(report);
    print_deleted(options, report);
    if options.verify && !options.dry_run {
        report!(
            "verified: {}",
            sizes::counted(report.differences, "difference")
        );
    }
    if report.problems > 0 {
        let problems = format!(
            "{}, named above.",
            sizes::counted(report.problems, "problem")
        );
        let words = [vec![problems.as_str()], advice(options, lacks_cold, report)].concat();
        report!("{}", words.join(" "));
    }
}

fn summary_object(
    options: &Restore,
    (report, image, unmatched): (&RestoreReport, Option<&Ext4Report>, &[&str]),
    seconds: f64,
) -> Value {
    let losses: Vec<_> = report.losses.iter().map(loss_object).collect();
    let mut value = json!({
        "type": "summary", "files_written": report.files_written, "kept": report.kept,
        "skipped": report.skipped,
        "incomplete": report.incomplete, "bytes_missing": report.bytes_missing,
        "dirs": report.directories, "dirs_kept": report.directories_kept,
        "replaced": report.replaced, "times_changed": report.times_changed,
        "others": report.others, "links": report.links,
        "deleted": report.deleted,
        "spared": report.spared, "salvaged": report.salvaged,
        "bytes": report.bytes, "differences": report.differences, "problems": report.problems,
        "losses": losses,
        "includes_unmatched": unmatched,
        "seconds": seconds, "dry_run": options.dry_run, "verified": options.verify,
    });
    if let Some(image) = image {
        value["image"] = json!({
            "needed_bytes": image.needed_bytes, "bytes": image.bytes, "inodes": image.inodes,
            "bytes_written": image.bytes_written,
        });
    }
    value
}

/// What went because the snapshot does not have it.
fn print_deleted(options: &Restore, report: &RestoreReport) {
    if !options.delete {
        return;
    }
    let word = if options.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    report!(
        "{word} {} that the snapshot does not have{}",
        sizes::count(report.deleted),
        match report.spared {
            0 => String::new(),
            spared => format!(
                ", left {} that the backup left out or that {} not to be deleted (-v names {})",
                sizes::count(spared),
                sizes::one_or_more(spared, "is", "are"),
                sizes::one_or_more(spared, "it", "them"),
            ),
        }
    );
}

/// Files that did not come back whole.
fn print_in_part(report: &RestoreReport) {
    let files = report.incomplete + report.salvaged;
    if files == 0 {
        return;
    }
    let mut kinds = Vec::new();
    if report.incomplete > 0 {
        kinds.push(format!("{} incomplete", sizes::count(report.incomplete)));
    }
    if report.salvaged > 0 {
        kinds.push(format!("{} salvaged", sizes::count(report.salvaged)));
    }
    report!(
        "not complete: {} ({}): in {} zeros replace {}",
        sizes::counted(files, "file"),
        kinds.join(", "),
        sizes::one_or_more(files, "it", "them"),
        sizes::bytes(report.bytes_missing),
    );
}

/// What helps with problems. A file of the right size and time is not looked into again, whatever
/// it holds.
fn advice(options: &Restore, lacks_cold: bool, report: &RestoreReport) -> Vec<&'static str> {
    let mut words = Vec::new();
    if lacks_cold {
        words.push("With --cold, the same command brings what is in the cold store.");
    } else if options.cold.warms() {
        words.push("The same command brings what was not made readable.");
    } else if report.has_damage {
        words.push(
            "What cannot be read of the repository stays so if this is tried again: `bale \
            check --read-data` lists what is damaged, and says what may help.",
        );
    }
    if options.to_ext4.is_some() {
        return words;
    }
    if report.differences > report.incomplete + report.salvaged && options.overwrite != "always" {
        words.push("What differs is written again with --overwrite always.");
    } else if report.has_failed_calls {
        words.push("The same command tries again what is missing.");
    }
    words
}
