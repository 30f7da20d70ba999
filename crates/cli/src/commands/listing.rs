//! An entry as a line, short or long, or as a JSON object.

use super::select::SelectedSnapshots;
use crate::output;
use crate::times::{local_time, time_text};
use anyhow::Result;
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use serde_json::{Value, json};

/// The entry at the path that was asked for, or the error that there is none.
pub fn require(catalog: &CatalogReader, chosen: &SelectedSnapshots) -> Result<Entry> {
    let found = catalog.lookup(&chosen.path)?;
    // A snapshot of images has no row of the root: nothing is to be said of it.
    let root = || Entry::new(Default::default(), Default::default(), Kind::Directory);
    let found = found.or_else(|| chosen.path.is_empty().then(root));
    Ok(found.ok_or_else(|| Error::NoPath {
        path: format!("/{}", String::from_utf8_lossy(&chosen.path)),
        snapshot: chosen.named.0.short(),
    })?)
}

pub fn print(entry: &Entry, long: bool, json: bool) {
    if json {
        return output::object(&object(entry));
    }
    let path = output::escape(&absolute(entry));
    if !long {
        return output::line(&path);
    }
    let target = if entry.kind == Kind::Symlink {
        format!(" -> {}", output::escape(&entry.target))
    } else {
        String::new()
    };
    output::line(&format!(
        "{} {:>4} {:>6} {:>6} {:>12} {} {path}{target}{}",
        mode_text(entry),
        entry.nlink,
        entry.uid,
        entry.gid,
        entry.size,
        local_time(entry.mtime),
        flags_text(entry.flags),
    ));
}

/// All of an entry, for scripts. Fields: docs/SCRIPTING.md.
pub fn object(entry: &Entry) -> Value {
    let mut value = json!({
        "type": "entry", "kind": kind_name(entry.kind), "mode": format!("{:04o}", entry.mode),
        "uid": entry.uid, "gid": entry.gid,
        "size": entry.size, "mtime": time_text(entry.mtime), "ctime": time_text(entry.ctime),
        "inode": entry.inode,
        "nlink": entry.nlink,
    });
    output::put_path(&mut value, "path", &absolute(entry));
    if entry.kind == Kind::Symlink {
        output::put_path(&mut value, "target", &entry.target);
    }
    if matches!(entry.kind, Kind::BlockDevice | Kind::CharDevice) {
        value["major"] = json!(entry.rdev >> 32);
        value["minor"] = json!(entry.rdev & 0xffff_ffff);
    }
    let flags = flag_names(entry.flags);
    if !flags.is_empty() {
        value["flags"] = json!(flags);
    }
    if entry.content != Content::None {
        value["content_hash"] = json!(entry.content_hash.map(|hash| bale_format::id::hex(&hash)));
    }
    value
}

/// With a leading slash.
pub fn absolute(entry: &Entry) -> Vec<u8> {
    [b"/".as_slice(), &entry.path()].concat()
}

/// `file`, `dir`, `symlink` ...
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "dir",
        Kind::Symlink => "symlink",
        Kind::BlockDevice => "blockdev",
        Kind::CharDevice => "chardev",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Extent => "extent",
    }
}

fn flag_names(flags: EntryFlags) -> Vec<&'static str> {
    let names = [
        (EntryFlags::SPARSE, "sparse"),
        (EntryFlags::CHANGED, "changed"),
        (EntryFlags::UNREADABLE, "unreadable"),
        (EntryFlags::RACY, "racy"),
        (EntryFlags::INCOMPLETE, "incomplete"),
        (EntryFlags::XATTRS_UNREADABLE, "xattrs-unreadable"),
        (EntryFlags::NOT_CROSSED, "not-crossed"),
    ];
    names
        .iter()
        .filter(|(flag, _)| flags.has(*flag))
        .map(|(_, name)| *name)
        .collect()
}

fn flags_text(flags: EntryFlags) -> String {
    let loud = EntryFlags(flags.0 & !(EntryFlags::SPARSE.0 | EntryFlags::RACY.0));
    let names = flag_names(loud);
    if names.is_empty() {
        String::new()
    } else {
        format!("  [{}]", names.join(", "))
    }
}

/// As `ls -l` shows it.
pub fn mode_text(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::BlockDevice => 'b',
        Kind::CharDevice => 'c',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Extent => 'e',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = entry.mode >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, entry.mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}
