//! An entry as a line, short or long, or as a JSON object.

use super::owners::Owners;
use super::select::SelectedSnapshots;
use crate::args::{Global, LongListing};
use crate::output;
use crate::times::{local_time, time_text};
use anyhow::Result;
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use serde_json::{Value, json};
use std::io::IsTerminal;

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

/// Prints entries, as the options say.
pub struct Listing {
    is_long: bool,
    is_json: bool,
    owners: Owners,
}

impl Listing {
    pub fn new(options: &LongListing, global: &Global) -> Listing {
        let shows_owners = (options.long || global.json) && !options.numeric_owner;
        Listing {
            is_long: options.long,
            is_json: global.json,
            owners: match shows_owners {
                true => Owners::of_this_machine(),
                false => Owners::numeric(),
            },
        }
    }

    /// What the columns are, for a person, `before` in front of them: a list of paths in a pipe is
    /// nothing but paths.
    pub fn headings(&self, before: &str) {
        if self.is_long && !self.is_json && std::io::stdout().is_terminal() {
            let owner = format!("{:<8} {:<8}", "Owner", "Group");
            output::line(&format!(
                "{before}{:<10} {:>5} {owner} {:>12} {:<19} Path",
                "Mode", "Links", "Size", "Modified"
            ));
        }
    }

    pub fn print(&self, entry: &Entry) {
        match self.is_json {
            true => output::object(&self.object(entry)),
            false => output::line(&self.line(entry)),
        }
    }

    /// For people.
    pub fn line(&self, entry: &Entry) -> String {
        let path = output::escape(&absolute(entry));
        if !self.is_long {
            return path;
        }
        let target = if entry.kind == Kind::Symlink {
            format!(" -> {}", output::escape(&entry.target))
        } else {
            String::new()
        };
        let named =
            |name: Option<&str>, id: u32| name.map_or_else(|| id.to_string(), str::to_owned);
        format!(
            "{} {:>5} {:<8} {:<8} {:>12} {} {path}{target}{}",
            mode_text(entry),
            entry.nlink,
            named(self.owners.user(entry.uid), entry.uid),
            named(self.owners.group(entry.gid), entry.gid),
            entry.size,
            local_time(entry.mtime),
            flags_text(entry.flags),
        )
    }

    /// The same as [`object`], with the names of its owners where this machine knows them.
    pub fn object(&self, entry: &Entry) -> Value {
        let mut value = object(entry);
        for (field, name) in [
            ("user", self.owners.user(entry.uid)),
            ("group", self.owners.group(entry.gid)),
        ] {
            if let Some(name) = name {
                value[field] = json!(name);
            }
        }
        value
    }
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
    if let Some(atime) = entry.atime.get() {
        value["atime"] = json!(time_text(atime));
    }
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
