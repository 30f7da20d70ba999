//! A list of hashes to hold a restored tree against.
//!
//! ```text
//! bale-manifest 1
//! f <BLAKE3 of the content, hex> <size> <path>
//! l <BLAKE3 of the target, hex> <length> <path>
//! d - - <path>
//! o - - <path>            device, pipe or socket
//! ```
//!
//! Lines come in catalog order. In paths, bytes below 0x20, `\`, 0x7f and above that are no UTF-8
//! are `\xNN`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::content::Pool;
use super::error::{GenerateError, Result, at_path};
use super::file::{FileShape, Kind};
use super::options::GenerateOptions;
use super::rows::{FilledDirectory, What, batches, for_each_filled};
use super::tree::Shape;
use super::workers::{in_order, threads_for};

const HEADER: &str = "bale-manifest 1";
/// Content is hashed in pieces of this size.
const READ_BYTES: usize = 1 << 20;
/// Entries hashed by one worker at a time.
const BATCH_ENTRIES: usize = 256;
/// Differences are counted beyond this, not listed.
pub const DIFFERENCES_LISTED_MAX: usize = 1_000;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries that are as the manifest says.
    pub same: u64,
    /// Entries that differ, are missing or are not in the manifest.
    pub different: u64,
    /// The first of them, each with its path.
    pub differences: Vec<String>,
}

impl Verified {
    fn note(&mut self, what: &str, path: &str) {
        self.different += 1;
        if self.differences.len() < DIFFERENCES_LISTED_MAX {
            self.differences.push(format!("{what}: {path}"));
        }
    }
}

/// The manifest of a tree that is generated, whether or not it was written.
pub(super) fn of_options(
    options: &GenerateOptions,
    pool: &Pool,
    out: &mut dyn Write,
) -> Result<()> {
    let shape = Shape::new(options);
    writeln!(out, "{HEADER}").map_err(GenerateError::Manifest)?;
    let lines = |directories: &mut dyn Iterator<Item = FilledDirectory>| {
        let (mut text, mut buffer) = (String::new(), vec![0; READ_BYTES]);
        for directory in directories {
            for row in &directory.rows {
                let path = joined(&directory.plan.path, &row.name);
                match &row.what {
                    What::Directory(..) => push_line(&mut text, 'd', None, &path),
                    What::File(file) => {
                        push_shape(&mut text, &file.shape, pool, &path, &mut buffer)
                    }
                }
            }
        }
        text
    };
    for_each_filled(
        options,
        threads_for(options.threads),
        batches(shape.plans()),
        lines,
        |text| {
            out.write_all(text.as_bytes())
                .map_err(GenerateError::Manifest)
        },
    )?;
    out.flush().map_err(GenerateError::Manifest)
}

/// The manifest of what is in a directory. `lost+found` at its top is left out.
pub fn write_manifest(root: &Path, threads: u32, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{HEADER}").map_err(GenerateError::Manifest)?;
    for_each_line(root, threads, |line| {
        writeln!(out, "{line}").map_err(GenerateError::Manifest)
    })?;
    out.flush().map_err(GenerateError::Manifest)
}

/// Compares what is in a directory with a manifest.
pub fn verify_manifest(root: &Path, threads: u32, manifest: &mut dyn BufRead) -> Result<Verified> {
    let mut expected = ManifestLines::open(manifest)?;
    let mut verified = Verified::default();
    for_each_line(root, threads, |line| {
        let place = order_of(&line);
        while let Some(wanted) = expected.peek()? {
            match order_of(wanted).cmp(&place) {
                std::cmp::Ordering::Less => verified.note("missing", path_of(wanted)),
                std::cmp::Ordering::Equal => {
                    if *wanted == line {
                        verified.same += 1;
                    } else {
                        verified.note("different", path_of(&line));
                    }
                    expected.take();
                    return Ok(());
                }
                std::cmp::Ordering::Greater => break,
            }
            expected.take();
        }
        verified.note("not in the manifest", path_of(&line));
        Ok(())
    })?;
    while let Some(wanted) = expected.peek()? {
        verified.note("missing", path_of(wanted));
        expected.take();
    }
    Ok(verified)
}

/// The lines of a manifest, one ahead.
struct ManifestLines<'a> {
    source: &'a mut dyn BufRead,
    next: Option<String>,
    line: u64,
}

impl ManifestLines<'_> {
    fn open(source: &mut dyn BufRead) -> Result<ManifestLines<'_>> {
        let mut lines = ManifestLines {
            source,
            next: None,
            line: 0,
        };
        let is_header = lines.peek()?.is_some_and(|line| line == HEADER);
        if !is_header {
            return Err(GenerateError::ManifestLine {
                line: 1,
                text: "this is no manifest, or one of a newer version",
            });
        }
        lines.take();
        Ok(lines)
    }

    fn peek(&mut self) -> Result<Option<&String>> {
        if self.next.is_none() {
            let mut line = String::new();
            if self
                .source
                .read_line(&mut line)
                .map_err(GenerateError::Manifest)?
                > 0
            {
                self.line += 1;
                if !line.ends_with('\n') || (self.line > 1 && line.splitn(4, ' ').count() != 4) {
                    return Err(GenerateError::ManifestLine {
                        line: self.line,
                        text: "cut short",
                    });
                }
                line.pop();
                self.next = Some(line);
            }
        }
        Ok(self.next.as_ref())
    }

    fn take(&mut self) {
        self.next = None;
    }
}

fn path_of(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or("")
}

/// Catalog order of the bytes that an escaped path stands for: parent components, then name.
fn order_of(line: &str) -> (Vec<u8>, Vec<u8>) {
    let mut path = Vec::new();
    let mut rest = path_of(line).as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let hex = after
            .get(1..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) if *byte == b'\\' => {
                path.push(escaped);
                rest = &after[3..];
            }
            _ => {
                // The separator sorts before every byte of a name.
                path.push(if *byte == b'/' { 0 } else { *byte });
                rest = after;
            }
        }
    }
    let name = path
        .iter()
        .rposition(|byte| *byte == 0)
        .map_or(0, |at| at + 1);
    let name = path.split_off(name);
    path.pop();
    (path, name)
}

/// An entry met on the walk.
struct Found {
    path: Vec<u8>,
    kind: char,
}

/// Every entry below `root` in catalog order, hashed on `threads` workers.
fn for_each_line(
    root: &Path,
    threads: u32,
    mut each: impl FnMut(String) -> Result<()>,
) -> Result<()> {
    let mut failed = None;
    let mut walk = FoundWalk {
        root,
        waiting: vec![Vec::new()],
        run: Vec::new().into_iter(),
    };
    let batches = std::iter::from_fn(|| {
        let mut batch = Vec::new();
        while batch.len() < BATCH_ENTRIES && failed.is_none() {
            match walk.next_entry() {
                Ok(Some(found)) => batch.push(found),
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        (!batch.is_empty()).then_some(batch)
    });
    let hash = |batch: Vec<Found>| {
        let mut buffer = vec![0; READ_BYTES];
        batch
            .iter()
            .map(|found| line_of(root, found, &mut buffer))
            .collect::<Result<Vec<String>>>()
    };
    in_order(threads_for(threads), batches, hash, |lines| {
        lines?.into_iter().try_for_each(&mut each)
    })?;
    failed.map_or(Ok(()), Err)
}

struct FoundWalk<'a> {
    root: &'a Path,
    waiting: Vec<Vec<u8>>,
    run: std::vec::IntoIter<Found>,
}

impl FoundWalk<'_> {
    fn next_entry(&mut self) -> Result<Option<Found>> {
        loop {
            if let Some(found) = self.run.next() {
                return Ok(Some(found));
            }
            let Some(directory) = self.waiting.pop() else {
                return Ok(None);
            };
            let run = self.read_run(&directory)?;
            self.waiting.extend(
                run.iter()
                    .rev()
                    .filter(|found| found.kind == 'd')
                    .map(|found| found.path.clone()),
            );
            self.run = run.into_iter();
        }
    }

    fn read_run(&self, directory: &[u8]) -> Result<Vec<Found>> {
        let at = self.root.join(OsString::from_vec(directory.to_vec()));
        let mut run = Vec::new();
        for entry in fs::read_dir(&at).map_err(at_path("read", &at))? {
            let entry = entry.map_err(at_path("read", &at))?;
            let kind = entry.file_type().map_err(at_path("stat", &entry.path()))?;
            let name = entry.file_name();
            if directory.is_empty() && name == "lost+found" {
                continue;
            }
            let kind = match kind {
                kind if kind.is_dir() => 'd',
                kind if kind.is_symlink() => 'l',
                kind if kind.is_file() => 'f',
                _ => 'o',
            };
            run.push(Found {
                path: joined(directory, name.as_bytes()),
                kind,
            });
        }
        run.sort_unstable_by(|left, right| left.path.cmp(&right.path));
        Ok(run)
    }
}

fn line_of(root: &Path, found: &Found, buffer: &mut [u8]) -> Result<String> {
    let at = root.join(OsString::from_vec(found.path.clone()));
    let mut text = String::new();
    let summary = match found.kind {
        'f' => Some(hash_file(&at, buffer).map_err(at_path("read", &at))?),
        'l' => {
            let target = fs::read_link(&at).map_err(at_path("read", &at))?;
            Some((
                blake3::hash(target.as_os_str().as_bytes()),
                target.as_os_str().len() as u64,
            ))
        }
        _ => None,
    };
    push_line(&mut text, found.kind, summary, &found.path);
    text.pop();
    Ok(text)
}

fn hash_file(path: &Path, buffer: &mut [u8]) -> io::Result<(blake3::Hash, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok((hasher.finalize(), hasher.count())),
            Ok(len) => hasher.update(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
    }
}

fn push_shape(text: &mut String, shape: &FileShape, pool: &Pool, path: &[u8], buffer: &mut [u8]) {
    match &shape.kind {
        Kind::Symlink { target } => {
            push_line(
                text,
                'l',
                Some((blake3::hash(target), target.len() as u64)),
                path,
            );
        }
        Kind::Regular { size_bytes, .. } => {
            let content = shape.content(pool);
            let mut hasher = blake3::Hasher::new();
            let mut offset = 0;
            while offset < *size_bytes {
                let len = (size_bytes - offset).min(buffer.len() as u64) as usize;
                content.fill(offset, &mut buffer[..len]);
                hasher.update(&buffer[..len]);
                offset += len as u64;
            }
            push_line(text, 'f', Some((hasher.finalize(), *size_bytes)), path);
        }
    }
}

fn push_line(text: &mut String, kind: char, summary: Option<(blake3::Hash, u64)>, path: &[u8]) {
    let written = match summary {
        Some((hash, len)) => write!(text, "{kind} {} {len} ", hash.to_hex()),
        None => write!(text, "{kind} - - "),
    };
    written.expect("a string takes everything");
    for chunk in path.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter < ' ' || letter == '\\' || letter == '\x7f' {
                push_escaped(text, letter as u8);
            } else {
                text.push(letter);
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| push_escaped(text, *byte));
    }
    text.push('\n');
}

fn push_escaped(text: &mut String, byte: u8) {
    write!(text, "\\x{byte:02x}").expect("a string takes everything");
}

fn joined(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() {
        name.to_vec()
    } else {
        [parent, b"/", name].concat()
    }
}
