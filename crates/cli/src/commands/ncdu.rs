//! `bale ls --ncdu`: a tree in the export format of ncdu 1, as restic prints it.
//!
//! The format nests: a directory is a list of itself, its files and the lists of its directories. A
//! catalog has all names of a directory before those of the next, so directories are sorted on disk
//! first, and then each is opened where its files come. In memory: the names of the directories
//! that are open.

use super::sorted_rows::{RowSorter, SortedRows, path_key};
use crate::{interrupt, output};
use anyhow::{Context, Result};
use bale_format::entry::{compare_parents, is_below};
use bale_format::snapshot::Snapshot;
use bale_format::{Entry, EntryFlags, Kind};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use serde_json::{Map, Value, json};
use std::io::{BufWriter, Write};

/// Unit of what a file takes on a disk. A snapshot does not hold how many there were.
const DISK_BYTES: u64 = 512;

/// Bytes collected before they are written to standard output.
const OUTPUT_BYTES: usize = 1 << 16;

/// Prints the directory at `root`, which is there, and what is below it.
pub fn print(
    repository: &Repository,
    catalog: &CatalogReader,
    snapshot: &Snapshot,
    root: &Entry,
) -> Result<()> {
    let out = BufWriter::with_capacity(OUTPUT_BYTES, output::Data);
    let path = root.path();
    let directories = sorted_directories(repository, catalog, &path)?;
    let mut tree = Tree {
        out,
        root: path.clone(),
        open: Vec::new(),
    };
    tree.begin(snapshot, root)?;
    tree.merge(catalog, directories)?;
    tree.end().context("write to standard output")
}

/// Those below `root`, each in front of what is below it.
fn sorted_directories(
    repository: &Repository,
    catalog: &CatalogReader,
    root: &[u8],
) -> Result<SortedRows> {
    let mut sorter = RowSorter::new(repository)?;
    for entry in catalog.subtree(root)? {
        let entry = entry?;
        check_interrupt()?;
        if entry.kind == Kind::Directory && entry.path() != root {
            sorter.push(&path_key(&entry.path()), &entry)?;
        }
    }
    sorter.finish()
}

fn check_interrupt() -> Result<()> {
    match interrupt::is_requested() {
        true => Err(Error::Interrupted.into()),
        false => Ok(()),
    }
}

struct Tree<W> {
    out: W,
    root: Vec<u8>,
    /// Paths of the directories whose lists have begun, each below the one before; without the
    /// root.
    open: Vec<Vec<u8>>,
}

impl<W: Write> Tree<W> {
    fn begin(&mut self, snapshot: &Snapshot, root: &Entry) -> Result<()> {
        let about = json!({
            "progname": "bale", "progver": env!("CARGO_PKG_VERSION"),
            "timestamp": snapshot.time.seconds,
        });
        let mut object = object(root);
        output::put_path_in(&mut object, "name", &[b"/", &self.root[..]].concat());
        writeln!(self.out, "[1,2,{about},")?;
        write!(self.out, "[{}", Value::Object(object))?;
        Ok(())
    }

    fn merge(&mut self, catalog: &CatalogReader, mut directories: SortedRows) -> Result<()> {
        let mut rows = catalog.subtree(&self.root)?;
        let mut next_row = || -> Result<Option<Entry>> {
            for entry in rows.by_ref() {
                check_interrupt()?;
                let entry = entry?;
                if entry.kind != Kind::Directory {
                    return Ok(Some(entry));
                }
            }
            Ok(None)
        };
        let mut next_directory = || directories.next().transpose();
        let (mut row, mut directory) = (next_row()?, next_directory()?);
        loop {
            let is_before = |entry: &Entry, directory: &Entry| {
                compare_parents(&entry.parent, &directory.path()).is_lt()
            };
            match (&row, &directory) {
                (None, None) => return Ok(()),
                (Some(entry), Some((_, other))) if !is_before(entry, other) => {
                    self.directory(other)?;
                    directory = next_directory()?;
                }
                (Some(entry), _) => {
                    self.file(entry)?;
                    row = next_row()?;
                }
                (None, Some((_, other))) => {
                    self.directory(other)?;
                    directory = next_directory()?;
                }
            }
        }
    }

    fn directory(&mut self, entry: &Entry) -> Result<()> {
        self.enter(&entry.parent)?;
        self.open(entry.path(), object(entry))
    }

    fn file(&mut self, entry: &Entry) -> Result<()> {
        self.enter(&entry.parent)?;
        write!(self.out, ",\n{}", Value::Object(object(entry)))?;
        Ok(())
    }

    /// Makes `path` the innermost directory that is open. One that has no row, which only a damaged
    /// catalog lacks, is nothing but its name.
    fn enter(&mut self, path: &[u8]) -> Result<()> {
        while let Some(last) = self.open.last()
            && !is_below(path, last)
        {
            write!(self.out, "]")?;
            self.open.pop();
        }
        let known = self.open.last().unwrap_or(&self.root).len();
        let ends = (known + 1..path.len()).filter(|at| path[*at] == b'/');
        let ends: Vec<usize> = match path.len() > known {
            true => ends.chain([path.len()]).collect(),
            false => Vec::new(),
        };
        for end in ends {
            let name = path[..end].rsplit(|byte| *byte == b'/').next();
            let mut object = Map::new();
            output::put_path_in(&mut object, "name", name.unwrap_or_default());
            self.open(path[..end].to_vec(), object)?;
        }
        Ok(())
    }

    fn open(&mut self, path: Vec<u8>, object: Map<String, Value>) -> Result<()> {
        write!(self.out, ",\n[{}", Value::Object(object))?;
        self.open.push(path);
        Ok(())
    }

    fn end(mut self) -> std::io::Result<()> {
        for _ in 0..self.open.len() + 2 {
            write!(self.out, "]")?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }
}

/// What ncdu knows of an entry. A name that is not UTF-8 stands in `name_b64`, too, which it does
/// not read.
fn object(entry: &Entry) -> Map<String, Value> {
    let mut map = Map::new();
    output::put_path_in(&mut map, "name", &entry.name);
    let is_directory = entry.kind == Kind::Directory;
    let bytes = if is_directory { 0 } else { entry.size };
    let on_disk = match entry.kind {
        Kind::File => bytes.checked_next_multiple_of(DISK_BYTES).unwrap_or(bytes),
        _ => 0,
    };
    let mut put = |field: &str, value: Value| map.insert(field.to_owned(), value);
    put("asize", json!(bytes));
    put("dsize", json!(on_disk));
    if is_directory {
        put("dev", json!(entry.filesystem));
    }
    put("ino", json!(entry.inode));
    if entry.is_hard_link() {
        put("hlnkc", json!(true));
        put("nlink", json!(entry.nlink));
    }
    if !matches!(entry.kind, Kind::File | Kind::Directory) {
        put("notreg", json!(true));
    }
    put("uid", json!(entry.uid));
    put("gid", json!(entry.gid));
    put("mode", json!(entry.mode | entry.kind.mode_bits()));
    // ncdu reads seconds since 1970.
    put("mtime", json!(entry.mtime.seconds.max(0)));
    if entry.flags.has(EntryFlags::UNREADABLE) {
        put("read_error", json!(true));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row below a directory that has none, and rows behind a directory that was closed.
    #[test]
    fn directories_without_a_row_are_opened_by_what_is_in_them() {
        let mut tree = Tree {
            out: Vec::new(),
            root: b"r".to_vec(),
            open: Vec::new(),
        };
        let entry = |parent: &'static str, name: &'static str, kind| {
            Entry::new(parent.as_bytes().into(), name.as_bytes().into(), kind)
        };
        write!(tree.out, "[1,2,{{}},[{{\"name\":\"/r\"}}").unwrap();
        tree.file(&entry("r", "f", Kind::File)).unwrap();
        tree.file(&entry("r/a/b", "g", Kind::File)).unwrap();
        tree.directory(&entry("r/a", "c", Kind::Directory)).unwrap();
        tree.directory(&entry("r", "z", Kind::Directory)).unwrap();
        let (mut out, open) = (std::mem::take(&mut tree.out), tree.open.len());
        out.resize(out.len() + open + 2, b']');
        let value: Value = serde_json::from_slice(&out).unwrap();
        let names = names(&value[3]);
        assert_eq!(names, "[/r f [a [b g] [c]] [z]]");
    }

    fn names(value: &Value) -> String {
        match value {
            Value::Array(list) => {
                let inner: Vec<_> = list.iter().map(names).collect();
                format!("[{}]", inner.join(" "))
            }
            other => other["name"].as_str().unwrap().to_owned(),
        }
    }
}
