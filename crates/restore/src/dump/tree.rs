//! A tree as an archive: directories depth first, hard links to the first name that was written.
//!
//! What lies below something that is no directory is refused and named: whoever extracts a link and
//! then a name below it may follow the link.

use super::file_bytes::Contents;
use super::members::{Members, Sink};
use super::{CatalogSource, DumpError, ScratchSpace};
use crate::names::{check_name, check_path};
use crate::plan::{GROUP_KEY_BYTES, group_key};
use crate::rows_ahead::{CatalogRowsAhead, RowReads, RowsAhead};
use crate::scratch::{PairSorter, SortedPairs};
use bale_format::entry::is_below;
use bale_format::{Content, Entry, EntryFlags, Kind};

/// Memory of each sorter, with the usual ceiling.
pub const SORTER_BYTES: usize = 16 << 20;

/// Writes everything at `root` and below, named relative to it. Returns the number of members.
pub fn write(
    scratch: &ScratchSpace,
    root: &[u8],
    mut sink: Sink,
    members: &mut dyn Members,
) -> Result<u64, DumpError> {
    let catalog = sink.catalog;
    let (directories, links) = sort(catalog, scratch, root, sink.contents)?;
    let rows = catalog.rows(root).map_err(DumpError::Catalog)?;
    let chunks = sink.contents.chunks;
    let mut writer = Writer {
        ways: CheckedPaths::default(),
        sink: &mut sink,
        members,
        root,
        rows: RowsAhead::new(rows, chunks, RowReads::Contents),
        next: None,
        links,
        next_link: None,
    };
    writer.advance()?;
    writer.advance_link()?;
    for pair in directories {
        let (_, row) = pair.map_err(DumpError::Scratch)?;
        let entry = crate::decode_row(row).map_err(DumpError::Scratch)?;
        writer.directory(&entry)?;
    }
    // Rows whose directory has no row: an incomplete catalog.
    while let Some(entry) = writer.next.take() {
        writer.member(entry)?;
        writer.advance()?;
    }
    writer.members.end(writer.sink)?;
    Ok(writer.sink.members)
}

/// Bytes that sort as the catalog does.
fn key(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(parent.len() + 2 + name.len());
    key.extend(
        parent
            .iter()
            .map(|byte| if *byte == b'/' { 0 } else { *byte }),
    );
    key.extend_from_slice(&[0, 0]);
    key.extend_from_slice(name);
    key
}

/// Directories by path, and for each further name of an inode the first one.
fn sort(
    catalog: &dyn CatalogSource,
    scratch: &ScratchSpace,
    root: &[u8],
    contents: &mut Contents,
) -> Result<(SortedPairs, SortedPairs), DumpError> {
    let sorter = || scratch.sorter(SORTER_BYTES);
    let (mut directories, mut groups) = (sorter(), sorter());
    let mut buffer = Vec::new();
    for row in catalog.rows(root).map_err(DumpError::Catalog)? {
        let Ok(entry) = row else {
            continue; // Told in the second pass.
        };
        if !is_reachable(&entry, root) {
            continue;
        }
        if entry.kind == Kind::Directory {
            buffer.clear();
            crate::encode_row(&entry, &mut buffer);
            let mut path = entry.path();
            path.iter_mut()
                .filter(|byte| **byte == b'/')
                .for_each(|byte| *byte = 0);
            directories
                .push(&path, &buffer)
                .map_err(DumpError::Scratch)?;
        } else if entry.is_hard_link() {
            let mut group = group_key(&entry);
            group.extend_from_slice(&key(&entry.parent, &entry.name));
            groups
                .push(&group, &entry.path())
                .map_err(DumpError::Scratch)?;
        }
        if contents.monitor.interrupted() {
            return Err(DumpError::Stopped);
        }
    }
    let links = link_targets(groups, sorter())?;
    Ok((directories.finish().map_err(DumpError::Scratch)?, links))
}

fn link_targets(groups: PairSorter, mut links: PairSorter) -> Result<SortedPairs, DumpError> {
    let mut first: Option<(Vec<u8>, Vec<u8>)> = None;
    for pair in groups.finish().map_err(DumpError::Scratch)? {
        let (mut group, path) = pair.map_err(DumpError::Scratch)?;
        let place = group.split_off(GROUP_KEY_BYTES.min(group.len()));
        match &first {
            Some((of, target)) if *of == group => {
                links.push(&place, target).map_err(DumpError::Scratch)?;
            }
            _ => first = Some((group, path)),
        }
    }
    links.finish().map_err(DumpError::Scratch)
}

/// May this row be in an archive? Whoever extracts it may be less careful than our restore.
fn is_reachable(entry: &Entry, root: &[u8]) -> bool {
    let named =
        check_name(&entry.name).is_ok() || (entry.name.is_empty() && entry.parent.is_empty());
    named && check_path(&entry.parent).is_ok() && is_below(&entry.path(), root)
}

/// Cache: is there nothing but directories on the path to this directory?
#[derive(Default)]
struct CheckedPaths {
    /// Each below the one before, and the verdict.
    open: Vec<(Vec<u8>, bool)>,
}

impl CheckedPaths {
    /// This directory has a row, and there are none but directories above it.
    fn enter(&mut self, path: Vec<u8>) {
        if self.open.last().is_none_or(|(last, _)| *last != path) {
            self.open.push((path, true));
        }
    }

    /// May there be anything in the directory at `path`, below `root`? One that has no row is none
    /// that leads elsewhere.
    fn is_reachable(
        &mut self,
        catalog: &dyn CatalogSource,
        root: &[u8],
        path: &[u8],
    ) -> Result<bool, DumpError> {
        while self
            .open
            .last()
            .is_some_and(|(above, _)| !is_below(path, above))
        {
            self.open.pop();
        }
        let known = self
            .open
            .last()
            .map_or(root.len(), |(above, _)| above.len());
        let mut verdict = self.open.last().is_none_or(|(_, verdict)| *verdict);
        let ends = path
            .iter()
            .enumerate()
            .filter(|(at, byte)| **byte == b'/' && *at > known);
        let ends: Vec<usize> = ends.map(|(at, _)| at).chain([path.len()]).collect();
        for end in ends.into_iter().filter(|end| *end > known) {
            let above = &path[..end];
            if verdict {
                let row = catalog.lookup(above).map_err(DumpError::Catalog)?;
                verdict = row.is_none_or(|row| row.kind == Kind::Directory);
            }
            self.open.push((above.to_vec(), verdict));
        }
        Ok(verdict)
    }
}

struct Writer<'w, 's, 'c> {
    ways: CheckedPaths,
    sink: &'w mut Sink<'s, 'c>,
    members: &'w mut dyn Members,
    root: &'w [u8],
    rows: CatalogRowsAhead<'w>,
    /// The next row that is not a directory.
    next: Option<Entry>,
    links: SortedPairs,
    next_link: Option<(Vec<u8>, Vec<u8>)>,
}

impl Writer<'_, '_, '_> {
    fn advance(&mut self) -> Result<(), DumpError> {
        self.next = loop {
            match self.rows.next() {
                None => break None,
                Some(Err(trouble)) => self
                    .sink
                    .contents
                    .problem(self.root, &format!("read the catalog: {trouble}")),
                Some(Ok(entry)) if !is_reachable(&entry, self.root) => {
                    self.sink
                        .contents
                        .problem(&entry.path(), "refused: bad name");
                }
                Some(Ok(entry)) if matches!(entry.kind, Kind::Directory | Kind::Socket) => {}
                Some(Ok(entry)) => break Some(entry),
            }
        };
        Ok(())
    }

    fn advance_link(&mut self) -> Result<(), DumpError> {
        self.next_link = self.links.next().transpose().map_err(DumpError::Scratch)?;
        Ok(())
    }

    /// A directory, and after it what is in it but directories: its own come next, in order.
    fn directory(&mut self, entry: &Entry) -> Result<(), DumpError> {
        let path = entry.path();
        if !self.is_reachable_entry(entry)? {
            return Ok(());
        }
        self.ways.enter(path.clone());
        self.sink.contents.report_flags(entry);
        let mut name = self.relative(&path);
        name.push(b'/');
        self.members.without_content(self.sink, entry, &name)?;
        while let Some(child) = self
            .next
            .take_if(|next| bale_format::entry::compare_parents(&next.parent, &path).is_le())
        {
            self.member(child)?;
            self.advance()?;
        }
        Ok(())
    }

    /// Is there nothing but directories above this row? Else it has been told.
    fn is_reachable_entry(&mut self, entry: &Entry) -> Result<bool, DumpError> {
        if entry.path() == self.root || entry.name.is_empty() {
            return Ok(true);
        }
        let sound = self
            .ways
            .is_reachable(self.sink.catalog, self.root, &entry.parent)?;
        if !sound {
            let text = "refused: it lies below something that is no directory";
            self.sink.contents.problem(&entry.path(), text);
        }
        Ok(sound)
    }

    /// Names in the archive are relative to what is dumped, which itself is `.`.
    fn relative(&self, path: &[u8]) -> Vec<u8> {
        let cut = match self.root.len() {
            0 => 0,
            len => (len + 1).min(path.len()),
        };
        match &path[cut..] {
            b"" => b".".to_vec(),
            below => below.to_vec(),
        }
    }

    fn member(&mut self, entry: Entry) -> Result<(), DumpError> {
        let path = entry.path();
        if !self.is_reachable_entry(&entry)? {
            return Ok(());
        }
        self.sink.contents.report_flags(&entry);
        let name = self.relative(&path);
        if entry.is_hard_link()
            && let Some(first) = self.link_of(&entry)?
        {
            let first = self.relative(&first);
            if self.members.link(self.sink, &entry, &name, &first)? {
                return Ok(());
            }
        }
        if entry.kind != Kind::File || (entry.size == 0 && !entry.flags.has(EntryFlags::UNREADABLE))
        {
            return self.members.without_content(self.sink, &entry, &name);
        }
        match entry.content {
            Content::None => {
                let text = "its content could not be read by the backup";
                self.sink.contents.problem(&path, text);
                Ok(())
            }
            Content::Bundled { chunk, offset } => {
                match self.sink.contents.bundled(&chunk, offset, entry.size) {
                    Ok(bytes) => self.members.small(self.sink, &entry, &name, &bytes),
                    Err(text) => {
                        self.sink.contents.problem(&path, &text);
                        Ok(())
                    }
                }
            }
            Content::Pieces { list } => self.members.large(self.sink, &entry, &name, &list),
            Content::Image => self.members.image(self.sink, &entry, &name),
        }
    }

    /// The first name of this inode, if this is a further one.
    fn link_of(&mut self, entry: &Entry) -> Result<Option<Vec<u8>>, DumpError> {
        let place = key(&entry.parent, &entry.name);
        while self.next_link.as_ref().is_some_and(|link| link.0 < place) {
            self.advance_link()?;
        }
        match self.next_link.take_if(|link| link.0 == place) {
            Some((_, first)) => {
                self.advance_link()?;
                Ok(Some(first))
            }
            None => Ok(None),
        }
    }
}
