//! The tree that a mount shows: every question of the kernel, and its answer from catalogs and
//! packs.
//!
//! Knows no FUSE. Whatever is asked for is found from its number alone. A directory is listed from
//! a place on, which is the number of the row that was listed last: nothing is held between two
//! calls, and a directory of any size is listed in the same memory.

mod files;

use crate::above::{self, DOT, DOT_DOT, MountOwner};
use crate::attributes::NodeAttributes;
use crate::contents::TreeContents;
use crate::forward_rows::ForwardRows;
use crate::latest_used::LatestUsed;
use crate::link_groups::LinkGroups;
use crate::numbers::{MountNode, SnapshotNumber, shown_of_group};
use crate::open_catalogs::{OpenCatalog, OpenCatalogs};
use crate::problems::{MountProblem, MountProblems};
use crate::read_listings::ReadListings;
use crate::recent_places::{RecentPlace, RecentPlaces};
use crate::shown::{ShownSnapshot, ShownSnapshots};
use crate::store::{SnapshotStore, StoreTrouble};
use crate::tree_error::TreeError;
use bale_format::entry::join;
use bale_format::{ChunkId, Content, Entry, EntryFlags, Kind};
use bale_pipeline::error::with_causes;
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::{CatalogError, RowNumber};
use bale_restore::ChunkSource;
use bale_restore::image_reader::CachedChunks;
use bytes::Bytes;
use std::sync::{Arc, Mutex};

type Result<T> = std::result::Result<T, TreeError>;

/// Chunks of small files behind which others were wanted ahead.
const AHEAD_NOTED_MAX: usize = 64;

/// What to do about what cannot be read.
const ADVICE: &str = "bale check says what is damaged";

/// An entry of a directory.
pub struct ListedNode<'a> {
    pub name: &'a [u8],
    pub attributes: &'a NodeAttributes,
    /// From where the next call goes on.
    pub cookie: u64,
}

/// Used by many threads at once.
pub struct SnapshotTree {
    shown: ShownSnapshots,
    catalogs: OpenCatalogs,
    contents: TreeContents,
    recent: RecentPlaces,
    groups: LinkGroups,
    ahead: Mutex<LatestUsed<ChunkId, ()>>,
    forward: ForwardRows,
    listings: ReadListings,
    problems: Arc<MountProblems>,
    owner: MountOwner,
}

/// A row that was found.
struct FoundRow {
    catalog: Arc<OpenCatalog>,
    snapshot: SnapshotNumber,
    number: RowNumber,
    row: Entry,
}

impl SnapshotTree {
    /// Looks which snapshots there are, and reads nothing of them.
    pub fn open(
        store: Arc<dyn SnapshotStore>,
        source: Arc<dyn ChunkSource + Send>,
        memory: &MemoryPlan,
    ) -> std::result::Result<SnapshotTree, StoreTrouble> {
        let problems = Arc::new(MountProblems::default());
        let chunks = CachedChunks::start(source.clone(), memory)?;
        Ok(SnapshotTree {
            shown: ShownSnapshots::open(store.clone(), problems.clone())?,
            catalogs: OpenCatalogs::new(store),
            contents: TreeContents::new(source, chunks),
            recent: RecentPlaces::new(memory),
            groups: LinkGroups::default(),
            ahead: Mutex::new(LatestUsed::new(AHEAD_NOTED_MAX)),
            forward: ForwardRows::default(),
            listings: ReadListings::default(),
            problems,
            owner: MountOwner {
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
            },
        })
    }

    /// How many are shown.
    pub fn snapshots(&self) -> usize {
        self.shown.last().snapshots.len()
    }

    /// What could not be read since the last call.
    pub fn take_problems(&self) -> Vec<MountProblem> {
        self.problems.take()
    }

    /// The entry of a directory with this name.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<NodeAttributes> {
        match node(directory)? {
            MountNode::SnapshotRoot(snapshot) => {
                let catalog = self.catalog(snapshot)?;
                self.lookup_row(catalog, snapshot, name)
            }
            MountNode::Row(snapshot, number) => {
                let parent = self.row(snapshot, number)?;
                if parent.row.kind != Kind::Directory {
                    return Err(TreeError::NotDirectory);
                }
                let path = join(&parent.row.path(), name);
                self.lookup_row(parent.catalog, snapshot, &path)
            }
            above => {
                let found = above::lookup(&self.shown.now(), above, name);
                self.attributes_of(found.ok_or(TreeError::NoEntry)?)
            }
        }
    }

    fn lookup_row(
        &self,
        catalog: Arc<OpenCatalog>,
        snapshot: SnapshotNumber,
        path: &[u8],
    ) -> Result<NodeAttributes> {
        let found = catalog.rows.lookup(path);
        let found = found.map_err(|error| self.unlisted(snapshot, path, &error))?;
        let (number, row) = found.ok_or(TreeError::NoEntry)?;
        self.attributes_of_row(&FoundRow {
            catalog,
            snapshot,
            number,
            row,
        })
    }

    /// What `stat` shows.
    pub fn attributes(&self, number: u64) -> Result<NodeAttributes> {
        self.attributes_of(node(number)?)
    }

    fn attributes_of(&self, node: MountNode) -> Result<NodeAttributes> {
        let number = node.number().ok_or(TreeError::Gone)?;
        let directory = (number, Kind::Directory);
        let above = |time| above::attributes(directory, self.owner, time, 0);
        match node {
            MountNode::Row(snapshot, row) => self.attributes_of_row(&self.row(snapshot, row)?),
            MountNode::SnapshotRoot(snapshot) => {
                let shown = self.shown_snapshot(snapshot)?;
                let catalog = self.catalog(snapshot)?;
                let root = catalog.root();
                let root = root.map_err(|error| self.unlisted(snapshot, b"", &error))?;
                Ok(match root {
                    Some(row) => NodeAttributes {
                        lasts: above(shown.time).lasts,
                        ..NodeAttributes::of_row(number, &row, None)
                    },
                    // A snapshot of images has none.
                    None => above(shown.time),
                })
            }
            MountNode::Latest(snapshot)
            | MountNode::IdLink(snapshot)
            | MountNode::HostLink(snapshot)
            | MountNode::HostLatest(snapshot) => {
                let shown = self.shown_snapshot(snapshot)?;
                let target = above::target(node, &shown).unwrap_or_default();
                let link = (number, Kind::Symlink);
                let size = target.len() as u64;
                Ok(above::attributes(link, self.owner, shown.time, size))
            }
            // The kernel keeps the list of a directory for as long as this stays.
            _ => Ok(above(self.shown.now().changed)),
        }
    }

    /// The same for a listing: the catalogs of all snapshots are not opened for it.
    fn attributes_above(&self, node: MountNode) -> Result<NodeAttributes> {
        let MountNode::SnapshotRoot(snapshot) = node else {
            return self.attributes_of(node);
        };
        let number = node.number().ok_or(TreeError::Gone)?;
        let time = self.shown_snapshot(snapshot)?.time;
        Ok(NodeAttributes {
            is_partly_known: true,
            ..above::attributes((number, Kind::Directory), self.owner, time, 0)
        })
    }

    /// Remembers where its bytes are: whoever asks for it reads it next, often.
    fn attributes_of_row(&self, found: &FoundRow) -> Result<NodeAttributes> {
        let attributes = self.listed_attributes(found.snapshot, found.number, &found.row)?;
        let is_sparse = found.row.flags.has(EntryFlags::SPARSE);
        if is_sparse && matches!(found.row.content, Content::Pieces { .. }) {
            let place = RecentPlace::of(&found.row);
            return Ok(attributes.with_data(self.contents.data_bytes(&place)));
        }
        Ok(attributes)
    }

    fn listed_attributes(
        &self,
        snapshot: SnapshotNumber,
        number: RowNumber,
        row: &Entry,
    ) -> Result<NodeAttributes> {
        let number = MountNode::Row(snapshot, number).number();
        let number = number.ok_or(TreeError::Gone)?;
        self.recent.put(number, RecentPlace::of(row));
        let group = self.groups.of(row);
        let group = group.map(|group| shown_of_group(snapshot, group));
        let mut attributes = NodeAttributes::of_row(number, row, group);
        attributes.is_partly_known |= row.flags.has(EntryFlags::SPARSE);
        Ok(attributes)
    }

    /// Calls `add` for the entries of a directory behind a place (0: from the beginning) until it
    /// wants no more.
    pub fn list(
        &self,
        directory: u64,
        cookie: u64,
        add: &mut dyn FnMut(&ListedNode) -> bool,
    ) -> Result<()> {
        let node = node(directory)?;
        if cookie < DOT_DOT && !self.list_dots(node, directory, cookie, add)? {
            return Ok(());
        }
        let cookie = cookie.max(DOT_DOT);
        let mut is_first = cookie == DOT_DOT;
        let add_row = &mut |listed: &ListedNode| {
            if std::mem::take(&mut is_first) {
                (self.listings).begins(directory, listed.attributes.number);
            }
            add(listed)
        };
        match node {
            MountNode::SnapshotRoot(snapshot) => {
                let catalog = self.catalog(snapshot)?;
                self.list_rows(&catalog, snapshot, (b"", cookie), add_row)
            }
            MountNode::Row(snapshot, number) => {
                let found = self.row(snapshot, number)?;
                if found.row.kind != Kind::Directory {
                    return Err(TreeError::NotDirectory);
                }
                let path = found.row.path();
                self.list_rows(&found.catalog, snapshot, (&path, cookie), add_row)
            }
            above => {
                for entry in above::list(&self.shown.now(), above, cookie) {
                    // One that went meanwhile is not there.
                    let Ok(attributes) = self.attributes_above(entry.node) else {
                        continue;
                    };
                    let listed = ListedNode {
                        name: &entry.name,
                        attributes: &attributes,
                        cookie: entry.cookie,
                    };
                    if !add(&listed) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// False: `add` wants no more.
    fn list_dots(
        &self,
        node: MountNode,
        number: u64,
        cookie: u64,
        add: &mut dyn FnMut(&ListedNode) -> bool,
    ) -> Result<bool> {
        let parent = self.parent(node)?.number().unwrap_or(number);
        for (name, shown, place) in [(&b"."[..], number, DOT), (b"..", parent, DOT_DOT)] {
            let kind = (shown, Kind::Directory);
            let attributes = NodeAttributes {
                is_partly_known: true,
                ..above::attributes(kind, self.owner, self.shown.last().changed, 0)
            };
            let listed = ListedNode {
                name,
                attributes: &attributes,
                cookie: place,
            };
            if cookie < place && !add(&listed) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn parent(&self, node: MountNode) -> Result<MountNode> {
        let MountNode::Row(snapshot, number) = node else {
            return Ok(above::parent(node));
        };
        let found = self.row(snapshot, number)?;
        let path = &found.row.parent;
        if path.is_empty() {
            return Ok(MountNode::SnapshotRoot(snapshot));
        }
        let parent = found.catalog.rows.lookup(path);
        let parent = parent.map_err(|error| self.unlisted(snapshot, path, &error))?;
        Ok(
            parent.map_or(MountNode::SnapshotRoot(snapshot), |(number, _)| {
                MountNode::Row(snapshot, number)
            }),
        )
    }

    fn list_rows(
        &self,
        catalog: &OpenCatalog,
        snapshot: SnapshotNumber,
        (path, cookie): (&[u8], u64),
        add: &mut dyn FnMut(&ListedNode) -> bool,
    ) -> Result<()> {
        let unlisted = |error: CatalogError| self.unlisted(snapshot, path, &error);
        let behind = match cookie.checked_sub(DOT_DOT + 1) {
            None => None,
            Some(last) => {
                let last = catalog.rows.row(RowNumber(last)).map_err(unlisted)?;
                Some(last.ok_or(TreeError::Gone)?.name)
            }
        };
        for row in catalog.rows.list_behind(path, behind.as_deref()) {
            let (number, row) = row.map_err(unlisted)?;
            let attributes = self.listed_attributes(snapshot, number, &row)?;
            let listed = ListedNode {
                name: &row.name,
                attributes: &attributes,
                cookie: number.0 + DOT_DOT + 1,
            };
            if !add(&listed) {
                break;
            }
        }
        Ok(())
    }

    /// Where a symbolic link leads.
    pub fn target(&self, number: u64) -> Result<Bytes> {
        let node = node(number)?;
        match node {
            MountNode::Row(snapshot, row) => {
                let found = self.row(snapshot, row)?;
                match found.row.kind {
                    Kind::Symlink => Ok(found.row.target.into()),
                    _ => Err(TreeError::NotLink),
                }
            }
            MountNode::Latest(snapshot)
            | MountNode::IdLink(snapshot)
            | MountNode::HostLink(snapshot)
            | MountNode::HostLatest(snapshot) => {
                let target = above::target(node, &*self.shown_snapshot(snapshot)?);
                target.map(Bytes::from).ok_or(TreeError::NotLink)
            }
            _ => Err(TreeError::NotLink),
        }
    }

    fn row(&self, snapshot: SnapshotNumber, number: RowNumber) -> Result<FoundRow> {
        let catalog = self.catalog(snapshot)?;
        let row = catalog.rows.row(number);
        let row = row.map_err(|error| self.unlisted(snapshot, b"", &error))?;
        Ok(FoundRow {
            row: row.ok_or(TreeError::Gone)?,
            catalog,
            snapshot,
            number,
        })
    }

    fn catalog(&self, snapshot: SnapshotNumber) -> Result<Arc<OpenCatalog>> {
        if let Some(catalog) = self.catalogs.known(snapshot) {
            return Ok(catalog);
        }
        let shown = self.shown_snapshot(snapshot)?;
        self.catalogs.open(&shown).map_err(|trouble| {
            let path = format!("snapshots/{}", shown.name);
            let text = format!("{}; it was forgotten, or {ADVICE}", with_causes(&*trouble));
            self.problems.add(path.into_bytes(), "open", text);
            TreeError::Unreadable
        })
    }

    fn shown_snapshot(&self, snapshot: SnapshotNumber) -> Result<Arc<ShownSnapshot>> {
        self.shown.of_number(snapshot).ok_or(TreeError::Gone)
    }

    fn unlisted(&self, snapshot: SnapshotNumber, path: &[u8], error: &CatalogError) -> TreeError {
        let text = format!("{}; {ADVICE}", with_causes(error));
        let path = self.shown_path(snapshot, path);
        self.problems.add(path, "list", text);
        TreeError::Unreadable
    }

    /// Below the mount.
    fn shown_path(&self, snapshot: SnapshotNumber, path: &[u8]) -> Vec<u8> {
        let name = self.shown.of_number(snapshot);
        let name = name.map_or_else(String::new, |shown| shown.name.clone());
        join(format!("snapshots/{name}").as_bytes(), path)
    }
}

fn node(number: u64) -> Result<MountNode> {
    MountNode::of(number).ok_or(TreeError::Gone)
}
