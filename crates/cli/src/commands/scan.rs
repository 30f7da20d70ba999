//! `bale scan`

use super::entry_format::Format;
use super::{listing, look};
use crate::args::{Global, ScanPaths};
use crate::exit;
use crate::progress::Console;
use crate::{output, place, sizes};
use anyhow::{Context, Result};
use bale_format::{Entry, Kind};
use bale_pipeline::monitor::{Monitor, Problem};
use bale_source::scan::report::{ReportedEntry, ScanReport, report};
use bale_source::scan::{ScanOptions, Sources};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Bytes of the list between two writes.
const LIST_BUFFER_BYTES: usize = 256 << 10;

/// Lists what a backup would see; exit 3 if something could not be read.
pub fn run(global: &Global, options: &ScanPaths) -> Result<i32> {
    let filter = look::filter(&options.look)?;
    let listing = Listing::new(global, options)?;
    let console = match listing {
        Some(_) if !global.json => Console::for_data_on_stdout(global),
        _ => Console::new(global),
    };
    let (sources, missing) =
        Sources::resolve(&options.paths).context("look up the paths to scan")?;
    let missing: Vec<_> = missing.iter().map(look::missing_problem).collect();
    missing.iter().for_each(|problem| console.problem(problem));
    let scan_options = ScanOptions {
        memory: place::memory_plan(global)?,
        ..look::scan_options(&options.look, filter, place::writable_cache_dir(global)?)
    };
    let began = Instant::now();
    let mut list = Lister::new(listing, &console);
    let report = report(
        &sources,
        scan_options,
        options.densest,
        &console,
        &mut |seen| list.entry(&seen),
    );
    console.finish();
    let (mut report, seconds) = (report?, began.elapsed().as_secs_f64());
    list.flush();
    report.problems += missing.len() as u64 + list.problems;
    match global.json {
        true => output::object(&summary(&report, seconds)),
        false if list.format.is_none() => print(&report, seconds),
        false => {}
    }
    Ok(match report.problems {
        0 => exit::COMPLETE,
        _ => exit::INCOMPLETE,
    })
}

/// How entries are printed.
enum Listing {
    Json,
    /// Escaped, so that no name can forge a line.
    Lines(Format),
    /// As they are.
    Zeros(Format),
}

impl Listing {
    fn new(global: &Global, options: &ScanPaths) -> Result<Option<Listing>> {
        let format = options.format.as_deref().map(OsStrExt::as_bytes);
        let format = Format::parse(format.unwrap_or(b"%p"))?;
        Ok(
            match (options.list0, options.list || options.format.is_some()) {
                (true, _) => Some(Listing::Zeros(format)),
                (false, true) if global.json => Some(Listing::Json),
                (false, true) => Some(Listing::Lines(format)),
                (false, false) => None,
            },
        )
    }
}

struct Lister<'a> {
    format: Option<Listing>,
    console: &'a Console,
    out: Vec<u8>,
    problems: u64,
}

impl<'a> Lister<'a> {
    fn new(format: Option<Listing>, console: &'a Console) -> Lister<'a> {
        Lister {
            format,
            console,
            out: Vec::new(),
            problems: 0,
        }
    }

    fn entry(&mut self, seen: &ReportedEntry<'_>) {
        let Some(listing) = &self.format else {
            return;
        };
        match listing {
            Listing::Json => {
                let entry = completed(seen, self.console, &mut self.problems);
                let entry = entry.as_ref().unwrap_or(seen.entry);
                let line = listing::object(entry).to_string();
                self.out.extend_from_slice(line.as_bytes());
                self.out.push(b'\n');
            }
            Listing::Lines(format) => {
                let target = target(format, seen, self.console, &mut self.problems);
                format.write(seen, &target, true, &mut self.out);
                self.out.push(b'\n');
            }
            Listing::Zeros(format) => {
                let target = target(format, seen, self.console, &mut self.problems);
                format.write(seen, &target, false, &mut self.out);
                self.out.push(0);
            }
        }
        if self.out.len() >= LIST_BUFFER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        output::data(&self.out);
        self.out.clear();
    }
}

/// The entry with what takes another look; `None`: why not was reported.
fn completed(seen: &ReportedEntry<'_>, console: &Console, problems: &mut u64) -> Option<Entry> {
    match seen.completed() {
        Ok(entry) => Some(entry),
        Err(problem) => {
            *problems += 1;
            console.problem(&Problem {
                path: [b"/", &problem.path[..]].concat(),
                action: problem.action,
                text: problem.error.to_string(),
            });
            None
        }
    }
}

fn target(
    format: &Format,
    seen: &ReportedEntry<'_>,
    console: &Console,
    problems: &mut u64,
) -> Vec<u8> {
    match format.needs_target() && seen.entry.kind == Kind::Symlink {
        true => {
            completed(seen, console, problems).map_or_else(Vec::new, |entry| entry.target.to_vec())
        }
        false => Vec::new(),
    }
}

/// Fields: docs/SCRIPTING.md.
fn summary(report: &ScanReport, seconds: f64) -> Value {
    let filesystems = report.filesystems.iter().map(|filesystem| {
        let mut value = json!({
            "kind": filesystem.kind, "uuid": filesystem.uuid, "scanner": filesystem.scanner,
        });
        output::put_path(&mut value, "mount", &filesystem.mount.0);
        value
    });
    let densest = report.densest.iter().map(|dense| {
        let mut value = json!({"children": dense.children});
        output::put_path(&mut value, "path", &[b"/", &dense.path[..]].concat());
        value
    });
    json!({
        "type": "scan", "names": report.names(), "inodes": report.inodes(), "files": report.files,
        "dirs": report.directories, "symlinks": report.symlinks, "blockdevs": report.block_devices,
        "chardevs": report.char_devices, "fifos": report.fifos, "sockets": report.sockets,
        "bytes": report.bytes, "bytes_once": report.bytes_once, "hard_linked": report.hard_linked,
        "hard_linked_names": report.hard_linked_names, "densest": densest.collect::<Vec<_>>(),
        "filesystems": filesystems.collect::<Vec<_>>(), "choice": report.choice,
        "problems": report.problems,
        "vanished": report.vanished, "seconds": seconds, "inodes_per_second": rate(report, seconds),
    })
}

fn rate(report: &ScanReport, seconds: f64) -> u64 {
    (report.inodes() as f64 / seconds.max(1e-6)) as u64
}

fn print(report: &ScanReport, seconds: f64) {
    let kinds = [
        (report.files, "file", "files"),
        (report.directories, "directory", "directories"),
        (report.symlinks, "symbolic link", "symbolic links"),
        (report.block_devices, "block device", "block devices"),
        (report.char_devices, "character device", "character devices"),
        (report.fifos, "named pipe", "named pipes"),
        (report.sockets, "socket", "sockets"),
    ];
    for (count, one, more) in kinds {
        if count > 0 {
            let what = sizes::one_or_more(count, one, more);
            output::line(&format!("{:>15} {what}", sizes::count(count)));
        }
    }
    output::line(&format!("{:>15} in files", sizes::bytes(report.bytes)));
    if report.hard_linked > 0 {
        output::line(&format!(
            "{:>15} {} with several links, of which {} seen; every file once: {}",
            sizes::count(report.hard_linked),
            sizes::one_or_more(report.hard_linked, "inode", "inodes"),
            sizes::either(report.hard_linked_names, "name was", "names were"),
            sizes::bytes(report.bytes_once),
        ));
    }
    for dense in &report.densest {
        output::line(&format!(
            "{:>15} in /{}",
            sizes::count(dense.children),
            output::escape(&dense.path)
        ));
    }
    for filesystem in &report.filesystems {
        output::line(&format!(
            "{:>15} {} by {}",
            filesystem.kind,
            output::escape(&filesystem.mount.0),
            filesystem.scanner
        ));
    }
    output::line(&format!(
        "{} in {}, {} a second",
        sizes::counted(report.inodes(), "inode"),
        sizes::duration(seconds),
        sizes::count(rate(report, seconds)),
    ));
    if report.problems > 0 {
        output::line(&format!(
            "{}: a backup would lack what is concerned",
            sizes::counted(report.problems, "problem")
        ));
    }
}
