//! `bale gen`

use super::restore::new_image;
use crate::args::{Generate, Global};
use crate::exit::{self, Usage};
use crate::named_paths::NamedPath;
use crate::progress::Console;
use crate::{interrupt, output, sizes};
use anyhow::{Context, Result};
use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::{Ext4Options, Ext4Summary};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::Error;
use bale_restore::ext4::ImageTarget;
use bale_tune::generate::{
    ChangeOptions, Changed, GenerateError, GenerateMonitor, GenerateOptions, GenerateProgress,
    Generator, MountAccess, MountedImage, Verified, change, scratch_in, verify_manifest,
    write_manifest,
};
use serde_json::json;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a manifest between two reads or writes.
const MANIFEST_BUFFER_BYTES: usize = 1 << 20;

/// What a file's last block and a directory are thought to take.
const BLOCK_BYTES: u64 = 4096;

/// Makes a tree, ages one, or compares one with its manifest.
pub fn run(global: &Global, options: &Generate) -> Result<i32> {
    let began = Instant::now();
    options.ext4.need(options.to_ext4.is_some())?;
    if let (Some(manifest), Some(target)) = (&options.verify_manifest, &options.target) {
        return verify(global, target, manifest, options.threads);
    }
    if let Some(how) = options.change()? {
        let done = age(options, &how)?;
        changed(global, &done, began);
        return Ok(exit::COMPLETE);
    }
    let tree = options.options()?;
    let generator = Generator::new(tree.clone()).map_err(into_error)?;
    require_places(options)?;
    let console = Console::new(global);
    let watch = Watch::new(&console, &generator);
    let mut image = None;
    let mut progress = GenerateProgress::default();
    if let Some(path) = &options.to_ext4 {
        let written = write_image(&generator, &tree, path, options, &watch)?;
        progress = written.progress;
        image = Some(written);
    } else if let Some(target) = &options.target {
        announce(&console, &watch.expected, &tree, target, options.force)?;
        progress = generator
            .write_directory(target, &watch)
            .map_err(into_error)?;
    } else if options.manifest.is_none() {
        return Err(Usage("name a directory with -t, or a file with --to-ext4".to_owned()).into());
    }
    if let Some(manifest) = &options.manifest {
        let mut out = create(manifest)?;
        generator.write_manifest(&mut out).map_err(into_error)?;
    }
    console.finish();
    summary(global, &progress, image.as_ref(), began);
    Ok(exit::COMPLETE)
}

/// Before minutes are spent on what cannot be written.
fn require_places(options: &Generate) -> Result<()> {
    if let Some(path) = &options.to_ext4 {
        new_image(path).require_place_for_file()?;
    } else if let Some(path) = &options.target {
        let target = NamedPath {
            by: "--target",
            attempt: "make a tree in",
            path,
            advice: "Name a directory that is there",
        };
        let meta = std::fs::metadata(path).map_err(|error| target.trouble(error))?;
        if !meta.is_dir() {
            return Err(target.trouble("it is no directory"));
        }
    }
    let manifest = options.manifest.as_deref();
    manifest.map_or(Ok(()), |path| new_manifest(path).require_place_for_file())
}

fn new_manifest(path: &Path) -> NamedPath<'_> {
    NamedPath {
        by: "--manifest",
        attempt: "write the manifest to",
        path,
        advice: "Name a new file in a directory that is there",
    }
}

/// An image that was written.
struct Image {
    progress: GenerateProgress,
    bytes: u64,
    summary: Ext4Summary,
}

fn write_image(
    generator: &Generator,
    tree: &GenerateOptions,
    path: &Path,
    options: &Generate,
    watch: &Watch,
) -> Result<Image> {
    let target = ImageTarget::look_at(path, options.force)?;
    let (uuid, hash_seed) = tree.identity();
    let mut ext4 = Ext4Options {
        uuid,
        hash_seed,
        created: Timestamp {
            seconds: tree.time_seconds,
            nanos: 0,
        },
        ..Ext4Options::default()
    };
    target.apply(&mut ext4);
    options.ext4.apply(&mut ext4)?;
    let plan = generator.plan_ext4(&ext4).map_err(into_error)?;
    watch.console.note(&format!(
        "{} needs {}; the file system will have {} and {} inodes",
        path.display(),
        sizes::bytes(plan.needed_bytes()),
        sizes::bytes(plan.bytes()),
        sizes::count(plan.inodes()),
    ));
    let bytes = plan.bytes();
    let scratch = scratch_in(target.directory());
    let (sink, unfinished) = target.create(bytes)?;
    let (_sink, summary, progress) = generator
        .write_ext4(plan, sink, scratch, watch)
        .map_err(into_error)?;
    unfinished.keep();
    Ok(Image {
        progress,
        bytes,
        summary,
    })
}

/// Prints what will come, and refuses what cannot end well: the usual options make a tree of
/// terabytes.
fn announce(
    console: &Console,
    expected: &GenerateProgress,
    tree: &GenerateOptions,
    target: &Path,
    force: bool,
) -> Result<()> {
    let farm = u64::from(tree.snapshots.max(1));
    let mean_bytes = (tree.file_bytes.0 + tree.file_bytes.1) / 2 + BLOCK_BYTES / 2;
    // Of a link farm, the files of one snapshot; what changes from one to the next is less.
    let files_bytes = (expected.files / farm).saturating_mul(mean_bytes);
    let bytes = files_bytes.saturating_add(expected.directories.saturating_mul(BLOCK_BYTES));
    let free = rustix::fs::statvfs(target)
        .map_err(std::io::Error::from)
        .with_context(|| format!("look at {}", target.display()))?;
    let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
    let text = format!(
        "about {} in {}, {}",
        sizes::counted(expected.files, "file"),
        sizes::either(expected.directories, "directory", "directories"),
        sizes::bytes(bytes),
    );
    if bytes > free_bytes && !force {
        anyhow::bail!(
            "{text}: {} has {} free (choose fewer with --count or -M, or --force)",
            target.display(),
            sizes::bytes(free_bytes)
        );
    }
    console.note(&format!("making {text}"));
    Ok(())
}

/// Ages the tree in a directory, an image or on a device, and lists its hashes if that is wanted.
fn age(options: &Generate, how: &ChangeOptions) -> Result<Changed> {
    let (by, target) = match (&options.target, &options.to_ext4) {
        (Some(target), _) => ("--target", Some(target)),
        (None, image) => ("--to-ext4", image.as_ref()),
    };
    let Some(target) = target else {
        return Err(Usage("name the directory or image to age with -t".to_owned()).into());
    };
    how.check().map_err(into_error)?;
    let tree = StandingTree::open(by, target, MountAccess::Write)?;
    let done = change(&tree.root(), how).map_err(|error| tree.error_of(error))?;
    if let Some(manifest) = &options.manifest {
        let mut out = create(manifest)?;
        write_manifest(&tree.root(), options.threads, &mut out)
            .map_err(|error| tree.error_of(error))?;
    }
    tree.close()?;
    Ok(done)
}

/// A tree that is there: in a directory, or in the file system of an image.
enum StandingTree<'a> {
    Directory(&'a Path),
    Image(MountedImage),
}

impl StandingTree<'_> {
    fn open<'p>(by: &str, target: &'p Path, access: MountAccess) -> Result<StandingTree<'p>> {
        let named = NamedPath {
            by,
            attempt: "open the tree in",
            path: target,
            advice: "Name the directory, image or device with a tree that was made before",
        };
        let meta = std::fs::metadata(target);
        let meta = meta.map_err(|error| Usage(named.trouble(error).to_string()))?;
        if meta.is_dir() {
            return Ok(StandingTree::Directory(target));
        }
        // It refuses what is mounted or lent to others already; that there is something in it is
        // meant so.
        ImageTarget::look_at(target, true)?;
        let mounted = MountedImage::mount(target, access).map_err(into_error)?;
        Ok(StandingTree::Image(mounted))
    }

    fn root(&self) -> PathBuf {
        match self {
            StandingTree::Directory(path) => path.to_path_buf(),
            StandingTree::Image(mounted) => mounted.root(),
        }
    }

    fn error_of(&self, error: GenerateError) -> anyhow::Error {
        into_error(match self {
            StandingTree::Directory(_) => error,
            StandingTree::Image(mounted) => mounted.rename(error),
        })
    }

    fn close(self) -> Result<()> {
        match self {
            StandingTree::Directory(_) => Ok(()),
            StandingTree::Image(mounted) => mounted.unmount().map_err(into_error),
        }
    }
}

fn verify(global: &Global, target: &Path, manifest: &Path, threads: u32) -> Result<i32> {
    let named = NamedPath {
        by: "--verify-manifest",
        attempt: "read the manifest",
        path: manifest,
        advice: "Name the file that --manifest wrote",
    };
    let file = File::open(manifest).map_err(|error| named.trouble(error))?;
    let mut lines = BufReader::with_capacity(MANIFEST_BUFFER_BYTES, file);
    let tree = StandingTree::open("--target", target, MountAccess::Read)?;
    let verified = verify_manifest(&tree.root(), threads, &mut lines);
    let verified = verified.map_err(|error| tree.error_of(error))?;
    differences(global, &verified);
    Ok(if verified.different > 0 {
        exit::DAMAGE
    } else {
        exit::COMPLETE
    })
}

fn differences(global: &Global, verified: &Verified) {
    if global.json {
        for text in &verified.differences {
            output::object(&json!({"type": "difference", "message": text}));
        }
        return output::object(&json!({
            "type": "summary", "same": verified.same, "different": verified.different,
        }));
    }
    for text in &verified.differences {
        output::line(text);
    }
    let unlisted = verified.different - verified.differences.len() as u64;
    if unlisted > 0 {
        output::line(&format!("and {} more", sizes::count(unlisted)));
    }
    if !global.quiet {
        report!(
            "as the manifest says: {}; not so: {}",
            sizes::either(verified.same, "entry", "entries"),
            sizes::count(verified.different)
        );
    }
}

fn changed(global: &Global, done: &Changed, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    if global.json {
        return output::object(&json!({
            "type": "summary", "files": done.files, "changed": done.changed, "new": done.new,
            "deleted": done.deleted,
            "seconds": seconds,
        }));
    }
    if !global.quiet {
        report!(
            "of {} {} changed and {} went, {} came, in {}",
            sizes::counted(done.files, "file"),
            sizes::count(done.changed),
            sizes::count(done.deleted),
            sizes::count(done.new),
            sizes::duration(seconds),
        );
    }
}

fn summary(global: &Global, progress: &GenerateProgress, image: Option<&Image>, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    if global.json {
        let mut value = json!({
            "type": "summary", "files": progress.files, "dirs": progress.directories,
            "symlinks": progress.symlinks,
            "links": progress.links, "existing": progress.existing, "bytes": progress.content_bytes,
            "seconds": seconds,
        });
        if let Some(image) = image {
            value["image"] = json!({
                "bytes": image.bytes, "inodes": image.summary.inodes, "names": image.summary.names,
                "bytes_written": image.summary.bytes_written,
            });
        }
        return output::object(&value);
    }
    if global.quiet {
        return;
    }
    let existing = match progress.existing {
        0 => String::new(),
        count => format!(" (there already: {})", sizes::counted(count, "name")),
    };
    report!(
        "made {}{existing}, {}, {}, {}, {} in {}",
        sizes::counted(progress.files, "file"),
        sizes::either(progress.directories, "directory", "directories"),
        sizes::counted(progress.symlinks, "symbolic link"),
        sizes::counted(progress.links, "link"),
        sizes::bytes(progress.content_bytes),
        sizes::duration(seconds),
    );
}

fn create(path: &Path) -> Result<impl Write> {
    let file = File::create(path).map_err(|error| new_manifest(path).trouble(error))?;
    Ok(BufWriter::with_capacity(MANIFEST_BUFFER_BYTES, file))
}

/// The exit code follows from what the error is.
fn into_error(error: GenerateError) -> anyhow::Error {
    match error {
        GenerateError::Stopped => Error::Interrupted.into(),
        GenerateError::Options(text) => Usage(text).into(),
        other => other.into(),
    }
}

/// Forwards the generator's progress.
struct Watch<'c> {
    console: &'c Console,
    expected: GenerateProgress,
}

impl<'c> Watch<'c> {
    fn new(console: &'c Console, generator: &Generator) -> Watch<'c> {
        Watch {
            console,
            expected: generator.expected(),
        }
    }
}

impl GenerateMonitor for Watch<'_> {
    fn progress(&self, so_far: &GenerateProgress) -> bool {
        let names = |progress: &GenerateProgress| {
            progress.directories
                + progress.files
                + progress.symlinks
                + progress.links
                + progress.existing
        };
        let progress = Progress {
            done: names(so_far),
            total: names(&self.expected),
            bytes_done: so_far.content_bytes,
            bytes_total: 0,
        };
        self.console.progress(Phase::Generate, progress);
        !interrupt::is_requested()
    }
}
