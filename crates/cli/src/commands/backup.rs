//! `bale backup`

use super::{backup_images, backup_stream, host, left_out, look, retain, select, sudden};
use crate::args::{Backup, Global};
use crate::exit::{self, GoesOn, Usage};
use crate::named_paths::NamedPath;
use crate::progress::Console;
use crate::{interrupt, output, place, run_record, secrets, sizes, times, variables};
use anyhow::{Context, Result};
use bale_engine::backup::{self as engine, BackupOptions, EarlyScan, Outcome};
use bale_engine::status::SuddenChange;
use bale_format::{ObjectId, Time};
use bale_pipeline::filter::Filter;
use bale_pipeline::monitor::{Kept, Monitor};
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_repository::snapshots::is_time_in_future;
use bale_source::scan::snapshot_command::{SnapshotCommand, StorageSnapshot, take_all};
use bale_source::scan::{
    LeftOut, ScanMode, ScanOptions, Sources, barrier_before_snapshots, barrier_now, is_of_image,
    parse_list,
};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long making and releasing a storage snapshot may take.
const SNAPSHOT_WAIT_MAX: Duration = Duration::from_secs(600);

/// Backs up; exit 3 if something could not be read or changed while it was read.
pub fn run(global: &Global, options: &Backup) -> Result<i32> {
    if !options.image.is_empty() {
        return backup_images::run(global, options);
    }
    if options.stdin || options.stdin_from_command {
        return backup_stream::run(global, options);
    }
    if options.stdin_filename.is_some() {
        let text = "--stdin-filename names what --stdin or --stdin-from-command backs up, and \
                    neither is given";
        return Err(Usage(text.to_owned()).into());
    }
    let began = Instant::now();
    let paths = paths(options)?;
    let filter = look::filter(&options.look)?;
    let early = scan_early(global, options, &paths, &filter);
    let repository = open(global, options)?;
    retain::check(options, &repository)?;
    let console = Console::new(global);
    let (mut sources, missing) =
        Sources::resolve(&paths).context("look up the paths to back up")?;
    let not_found: Vec<_> = missing.iter().map(look::missing_problem).collect();
    if sources.paths().is_empty() {
        for problem in &not_found {
            bale_pipeline::monitor::Monitor::problem(&console, problem);
        }
        return Err(anyhow::anyhow!("none of the paths can be backed up"));
    }
    let now = barrier_now();
    let mode = look::scan_mode(options.look.scan);
    let snapshots = match &options.snapshot_command {
        Some(command) => take_snapshots(command, &mut sources, mode, &console)?,
        None => Vec::new(),
    };
    let is_snapshot = options.snapshot_command.is_some();
    answer_interruptions(global, options)?;
    note_links(global, &sources, &console);
    let works_with = place::works_with(global)?;
    let scan = look::scan_options(&options.look, filter, repository.spill_dir()?);
    let scan = ScanOptions {
        with_atime: options.with_atime,
        barrier: is_snapshot.then(|| barrier_before_snapshots(now, &snapshots)),
        memory: repository.memory(),
        left_out: in_use(scan.left_out, &works_with, &sources),
        ..scan
    };
    let engine_options = BackupOptions {
        not_found,
        ..engine_options(options, &repository, &works_with)?
    };
    let begun = (&sources, early);
    let outcome = engine::backup_begun(&repository, begun, scan, &engine_options, &console);
    ended(
        (global, options),
        &repository,
        outcome,
        (&console, began),
        snapshots,
    )
}

/// What comes behind a backup of any kind: storage snapshots are released, what was stored is
/// locked, and all is told. The exit code.
pub fn ended(
    (global, options): (&Global, &Backup),
    repository: &Arc<Repository>,
    outcome: bale_repository::error::Result<Outcome>,
    (console, began): (&Console, Instant),
    snapshots: Vec<StorageSnapshot>,
) -> Result<i32> {
    for snapshot in snapshots {
        if let Err(error) = snapshot.release() {
            console.note(&error.to_string());
        }
    }
    console.finish();
    let outcome = outcome.map_err(interrupted_while_waiting);
    let outcome = outcome.map_err(|error| how_it_ends(error, (global, options), console))?;
    let problems = outcome.snapshot.counts.problems;
    let is_locked = retain::run(global, options, repository, &outcome, console);
    let sudden = sudden::report(repository, (outcome.id, &outcome.snapshot), console);
    let seconds = began.elapsed().as_secs_f64();
    summary(
        global,
        (options, sudden.as_ref()),
        &outcome,
        problems,
        seconds,
    );
    Ok(if problems > 0 || !is_locked? || sudden.is_some() {
        exit::INCOMPLETE
    } else {
        exit::COMPLETE
    })
}

/// Begins the scan of an image, where opening the repository will not wait for somebody to type.
/// Whatever is in the way of it is told once the repository is open.
fn scan_early(
    global: &Global,
    options: &Backup,
    paths: &[PathBuf],
    filter: &Filter,
) -> Option<EarlyScan> {
    if options.snapshot_command.is_some() || !secrets::is_given(global) {
        return None;
    }
    let (sources, missing) = Sources::resolve(paths).ok()?;
    if !missing.is_empty() || !is_of_image(&sources, look::scan_mode(options.look.scan)) {
        return None;
    }
    let is_near = place::directory(global).ok()?.is_some();
    let works_with = place::works_with(global).ok()?;
    let spill = place::writable_cache_dir(global).ok()?;
    let scan = look::scan_options(&options.look, filter.clone(), spill);
    let scan = ScanOptions {
        with_atime: options.with_atime,
        memory: place::memory_beside_packs(global, is_near).ok()?,
        left_out: in_use(scan.left_out, &works_with, &sources),
        ..scan
    };
    EarlyScan::begin(&sources, &scan, &place::cache_dir(global).ok()?)
}

/// Whoever waits for a store is waked by an interruption, with the trouble that he waited for.
fn interrupted_while_waiting(error: Error) -> Error {
    match error {
        Error::Store(trouble) if trouble.may_pass() && interrupt::is_requested() => {
            Error::Interrupted
        }
        error => error,
    }
}

/// The last words of a run that made no snapshot.
fn words_of_kept(kept: Kept) -> &'static str {
    match kept {
        Kept::All => {
            "everything is stored: whether the snapshot was made, too, bale snapshots tells"
        }
        Kept::Record => "what was recorded so far is kept: run the same command again to continue",
        Kept::Content => {
            "no snapshot was made, and what was stored so far is kept: the same command reads \
             everything again, and stores only the rest"
        }
        Kept::Nothing => "no snapshot was made, and nothing of this run is kept",
    }
}

/// Records are nothing to those who go on from no unfinished run.
fn kept(console: &Console, options: &Backup) -> Kept {
    let begins_anew = options.force || options.parent.is_some() || options.changes_since.is_some();
    match console.what_is_kept() {
        Kept::Record if begins_anew => Kept::Content,
        kept => kept,
    }
}

/// A store that could not be reached any more ends a run as an interruption does.
fn how_it_ends(
    error: Error,
    (global, options): (&Global, &Backup),
    console: &Console,
) -> anyhow::Error {
    let kept = kept(console, options);
    match &error {
        Error::Store(trouble) if trouble.may_pass() && !options.dry_run => {
            return anyhow::Error::from(error).context(GoesOn(kept));
        }
        _ => {}
    }
    let is_worth_it = matches!(error, Error::Interrupted) || kept > Kept::Nothing;
    if is_worth_it && !global.quiet && !options.dry_run {
        report!("{}", words_of_kept(kept));
    }
    error.into()
}

/// What the words say; whatever this command works with is excluded in any case.
pub fn engine_options(
    options: &Backup,
    repository: &Arc<Repository>,
    works_with: &[PathBuf],
) -> Result<BackupOptions> {
    let mut excludes = look::excludes_as_given(&options.look)?;
    excludes.extend(left_out::files_in_use(works_with));
    let tags = options.tag.iter().flat_map(|tags| select::split_tags(tags));
    Ok(BackupOptions {
        host: host::name(options.host.as_deref())?,
        user: user_name(),
        program: concat!("bale ", env!("CARGO_PKG_VERSION")).to_owned(),
        tags: tags.collect(),
        excludes,
        parent: parent(repository, options)?,
        force: options.force,
        time: options
            .time
            .as_deref()
            .map(|text| recorded_time(text, repository))
            .transpose()?,
        with_atime: options.with_atime,
        skip_if_unchanged: options.skip_if_unchanged,
        dry_run: options.dry_run,
        ..BackupOptions::default()
    })
}

/// What has not been cannot be backed up; and what is dated in the future is never the newest.
fn recorded_time(text: &str, repository: &Repository) -> Result<Time> {
    let time = times::parse_moment(text, repository.clock().time())
        .map_err(|Usage(why)| Usage(format!("--time: {why}")))?;
    if is_time_in_future(time, repository.clock().time()) {
        let text = format!("--time: {text:?} is in the future");
        return Err(Usage(text).into());
    }
    Ok(time)
}

/// A run on a slow line does not end at once.
pub fn answer_interruptions(global: &Global, options: &Backup) -> Result<()> {
    if place::directory(global)?.is_none() && !global.quiet && !options.dry_run {
        interrupt::answer_the_first(
            "ending: what is on its way to the repository is stored first; the next signal ends at \
             once",
        );
    }
    Ok(())
}

/// Of a link only the link is stored, which may not be what was meant.
fn note_links(global: &Global, sources: &Sources, console: &Console) {
    for (link, place) in sources.links_to_directories() {
        let text = format!(
            "{} is a link to a directory, and only the link is backed up: write {}/ or {} for what \
             is in it",
            link.display(),
            link.display(),
            place.display()
        );
        // A mistake that nobody sees is made every night.
        match global.quiet && !global.json {
            true => report!("bale: {}", output::escape(text.as_bytes())),
            false => console.note(&text),
        }
    }
}

/// With what this command works, where it is and where a storage snapshot has it.
fn in_use(left_out: LeftOut, works_with: &[PathBuf], sources: &Sources) -> LeftOut {
    let copies = works_with.iter().filter_map(|path| sources.in_copy(path));
    let all = works_with.iter().cloned().chain(copies);
    all.fold(left_out, |left_out, path| left_out.and_in_use(&path))
}

/// The snapshot that was named to compare with.
fn parent(repository: &Arc<Repository>, options: &Backup) -> Result<Option<ObjectId>> {
    let Some(text) = options.parent.as_ref().or(options.changes_since.as_ref()) else {
        return Ok(None);
    };
    let listed = select::Listed::of(repository)?;
    Ok(Some(listed.find(text, &Default::default())?.0))
}

/// A dry run makes nothing, nor does a run that only lost the name of its repository.
pub fn open(global: &Global, options: &Backup) -> Result<Arc<Repository>> {
    if options.dry_run {
        return place::open(global);
    }
    let may_make = options.init || variables::is_on("BALE_INIT");
    place::open_or_make_own(global, may_make)
}

/// Has the sources read from storage snapshots, which are released when dropped.
fn take_snapshots(
    command: &str,
    sources: &mut Sources,
    mode: ScanMode,
    console: &Console,
) -> Result<Vec<StorageSnapshot>> {
    let command = SnapshotCommand {
        program: "sh".into(),
        arguments: vec!["-c".into(), command.into()],
        wait_max: SNAPSHOT_WAIT_MAX,
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let name = format!("{}-{}", std::process::id(), now.as_secs());
    let mut note = |text: String| console.note(&text);
    take_all(&command, sources, mode, &name, &mut note).context("take a storage snapshot")
}

fn summary(
    global: &Global,
    (options, sudden): (&Backup, Option<&SuddenChange>),
    outcome: &Outcome,
    problems: u64,
    seconds: f64,
) {
    let mut value = summary_object(options, outcome, problems, seconds);
    value["sudden_change"] = sudden.map_or(Value::Null, sudden::object);
    run_record::keep(&value);
    if global.json {
        return output::object(&value);
    }
    if !global.quiet {
        print_summary(options, outcome, problems, seconds);
    }
}

fn summary_object(options: &Backup, outcome: &Outcome, problems: u64, seconds: f64) -> Value {
    let (totals, counts) = (&outcome.snapshot.totals, &outcome.snapshot.counts);
    let id = outcome
        .id
        .map_or(Value::Null, |id| Value::String(id.to_string()));
    let mut value = json!({
        "type": "summary", "snapshot": id, "files": totals.files, "dirs": totals.dirs,
        "others": totals.others,
        "bytes": totals.bytes, "hard_links": totals.hard_links, "files_new": counts.files_new,
        "files_changed": counts.files_changed, "files_unmodified": counts.files_unmodified,
        "bytes_read": counts.bytes_read, "bytes_stored": counts.bytes_stored,
        "problems": problems,
        "vanished": outcome.noted.vanished, "not_crossed": outcome.noted.not_crossed,
        "bytes_uploaded": outcome.uploads.bytes, "uploads": outcome.uploads.uploads,
        "upload_retries": outcome.uploads.retries,
        "upload_wait_seconds": outcome.uploads.waited.as_secs_f64(),
        "left_out": outcome.noted.left_out, "seconds": seconds, "dry_run": options.dry_run,
    });
    backup_images::put(&mut value, &outcome.snapshot);
    value
}

fn print_summary(options: &Backup, outcome: &Outcome, problems: u64, seconds: f64) {
    let (totals, counts) = (&outcome.snapshot.totals, &outcome.snapshot.counts);
    let others = match totals.others {
        0 => String::new(),
        others => format!(
            ", {}",
            sizes::either(others, "link or special file", "links and special files")
        ),
    };
    report!(
        "{} ({} new, {} changed, {} unmodified), {}{others}, {}",
        sizes::counted(totals.files, "file"),
        sizes::count(counts.files_new),
        sizes::count(counts.files_changed),
        sizes::count(counts.files_unmodified),
        sizes::either(totals.dirs, "directory", "directories"),
        sizes::bytes(totals.bytes),
    );
    backup_images::report(&outcome.snapshot);
    let (read, stored) = (
        sizes::bytes(counts.bytes_read),
        sizes::bytes(counts.bytes_stored),
    );
    report!(
        "read {read}, stored {stored}, in {}",
        sizes::duration(seconds)
    );
    match outcome.id {
        Some(id) => report!("snapshot {} saved", id.short()),
        None if options.dry_run => report!("dry run: nothing was stored"),
        None => report!("nothing changed: no snapshot was made"),
    }
    if outcome.noted.vanished > 0 {
        report!(
            "{} vanished while they were backed up, named above",
            sizes::count(outcome.noted.vanished)
        );
    }
    if problems > 0 {
        report!(
            "{}, listed above and recorded in the snapshot: data there may be missing or \
             inconsistent",
            sizes::counted(problems, "problem")
        );
    }
}

fn paths(options: &Backup) -> Result<Vec<PathBuf>> {
    let mut paths = options.paths.clone();
    let lists = [
        ("--files-from", &options.files_from, false),
        ("--files-from0", &options.files_from0, true),
    ];
    for (by, files, zeros) in lists {
        for file in files {
            paths.extend(parse_list(&read_list(by, file)?, zeros));
        }
    }
    if paths.is_empty() {
        return Err(Usage(
            "nothing to back up: name a file or directory, or use --files-from".to_owned(),
        )
        .into());
    }
    Ok(paths)
}

fn read_list(by: &str, file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .context("read the list of paths from standard input")?;
    } else {
        let list = NamedPath {
            by,
            attempt: "read the paths to back up from",
            path: file,
            advice: "Name a file with their list, or - for standard input",
        };
        bytes = std::fs::read(file).map_err(|error| list.trouble(error))?;
    }
    Ok(bytes)
}

fn user_name() -> String {
    std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| {
            let uid = rustix::process::getuid().as_raw();
            let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            name_of(uid, &users).unwrap_or_else(|| uid.to_string())
        })
}

/// The name of a user in the manner of /etc/passwd.
fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("me"));
        assert_eq!(name_of(1, users), None);
    }
}
