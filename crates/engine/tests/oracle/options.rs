//! Every option of a backup and a restore. The engine's structs are made here field by field,
//! without a rest: an option that is new does not compile until it is in the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bale_engine::backup::BackupOptions;
use bale_engine::prune::PruneOptions;
use bale_format::ObjectId;
use bale_pipeline::filter::{Filter, FilterOptions, Mark, Pattern};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::Problem;
use bale_restore::{Overwrite, Protected, RestoreOptions, Selection};
use bale_source::scan::{LeftOut, Protocol, ScanMode, ScanOptions};
use bytes::Bytes;

use super::steps::{Backup, LeaveOut, Look, Prune, Restore};
use super::world::World;

pub fn backup(step: &Backup, parent: Option<ObjectId>, not_found: Vec<Problem>) -> BackupOptions {
    BackupOptions {
        host: World::host_name(step.host).to_owned(),
        user: "somebody".to_owned(),
        program: "oracle".to_owned(),
        tags: tags(step.tags),
        excludes: Vec::new(),
        parent,
        force: step.force,
        time: None,
        with_atime: false,
        skip_if_unchanged: step.skip_if_unchanged,
        dry_run: step.dry_run,
        not_found,
        checkpoint_every: step.checkpoints.then_some(Duration::ZERO),
        sign_of_life_every: step.checkpoints.then_some(Duration::from_millis(1)),
    }
}

pub fn tags(number: usize) -> Vec<String> {
    let tags: &[&str] = [&[][..], &["one"], &["one", "two"], &["keep"]][number % 4];
    tags.iter().map(|tag| tag.to_string()).collect()
}

pub fn scan(
    step: &Backup,
    sources: &[PathBuf],
    spill_directory: &Path,
    in_use: &[PathBuf],
) -> ScanOptions {
    ScanOptions {
        mode: match step.look {
            Look::Walk | Look::Copy => ScanMode::Walk,
            Look::Auto => ScanMode::Auto,
            Look::Image => ScanMode::Inode,
        },
        freezer: None,
        known: None,
        parent_digests: None,
        entries_before: 0,
        inode_key: [0; 16],
        protocol: Protocol {
            memory_is_racy: step.memory_is_racy,
            ..Protocol::default()
        },
        barrier: (step.look == Look::Copy).then(bale_source::scan::barrier_now),
        one_file_system: step.one_file_system,
        with_atime: false,
        filter: filter(step.leave_out, sources),
        left_out: left_out(step, in_use),
        threads: step.threads,
        memory: MemoryPlan::default(),
        spill_directory: spill_directory.to_owned(),
    }
}

fn left_out(step: &Backup, in_use: &[PathBuf]) -> LeftOut {
    let left_out = match step.repositories {
        true => LeftOut::default(),
        false => LeftOut::default().and_repositories(),
    };
    in_use
        .iter()
        .fold(left_out, |left_out, path| left_out.and_in_use(path))
}

pub fn filter(leave_out: LeaveOut, sources: &[PathBuf]) -> Filter {
    let LeaveOut {
        by_name,
        ignoring_case,
        by_path,
        marked,
        caches,
        larger_than,
    } = leave_out;
    let pattern = |text: &str, ignore_case| Pattern {
        text: text.to_owned(),
        ignore_case,
    };
    let mut patterns = Vec::new();
    if by_name {
        patterns.extend([pattern("*.skip", false), pattern("skipped", false)]);
    }
    if ignoring_case {
        patterns.push(pattern("*.tmp", true));
    }
    if by_path {
        let paths = sources.iter().map(|source| source.join(LEFT_OUT));
        patterns.extend(paths.map(|path| pattern(path.to_str().expect("our own names"), false)));
    }
    let mut marks = Vec::new();
    if marked {
        marks.push(Mark::parse(b"NOBACKUP").expect("a file name"));
    }
    if caches {
        marks.push(Mark::cachedir());
    }
    let options = FilterOptions {
        patterns,
        marks,
        larger_than_bytes: larger_than,
    };
    Filter::new(&options).expect("patterns that are understood")
}

/// Below a source, what is left out by its path.
pub const LEFT_OUT: &str = "d0/e";

pub fn restore<'a>(
    step: &Restore,
    below: &[u8],
    select: &'a dyn Selection,
    guard: Protected,
) -> RestoreOptions<'a> {
    RestoreOptions {
        below: Bytes::copy_from_slice(below),
        select,
        overwrite: overwrite(step),
        delete: step.delete,
        guard,
        dry_run: step.dry_run,
        is_plan_reported: false,
        reported: None,
        force_space: step.force_space,
        specials: step.specials,
        inode_flags: step.inode_flags,
        sync: step.sync,
        threads: step.threads,
        memory: MemoryPlan::default(),
        warmer: None,
    }
}

pub fn overwrite(step: &Restore) -> Overwrite {
    [Overwrite::Always, Overwrite::IfChanged, Overwrite::Never][step.overwrite % 3]
}

/// Names to take and to leave, each of any path of that name.
pub fn include(step: &Restore) -> Vec<String> {
    names(step.include, &["d0", "*.skip"])
}

pub fn exclude(step: &Restore) -> Vec<String> {
    names(step.exclude, &["e", "a"])
}

fn names(number: usize, of: &[&str]) -> Vec<String> {
    let chosen = number.checked_sub(1).map(|at| of[at % of.len()].to_owned());
    chosen.into_iter().collect()
}

pub fn prune(step: &Prune) -> PruneOptions {
    PruneOptions {
        grace: step.grace,
        repack_below_percent: step.repack_below,
    }
}
