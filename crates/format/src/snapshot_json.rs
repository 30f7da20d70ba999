//! Snapshots, condemned lists and marks of damage as JSON, with everything checked that a reader
//! relies on. docs/FORMAT.md, sections 8 and 9.

use crate::entry::{Key, Time};
use crate::error::{Fault, FormatError};
use crate::extent::IMAGE_BLOCK_BYTES;
use crate::id::{ObjectId, from_hex, hex};
use crate::limits::{
    FILESYSTEMS_MAX, LAYERS_MAX, NAME_BYTES_MAX, OBJECT_PLAIN_BYTES_MAX, PARENT_BYTES_MAX,
    SEGMENT_ROWS_MAX, TRANSFERS_LISTED_MAX,
};
use crate::snapshot::{DENSEST_MAX, DENSEST_PATH_BYTES_MAX, DenseDirectory};
use crate::snapshot::{
    IMAGES_MAX, ImageRecord, LEFT_OUT_RUNS_MAX, Layer, PROBLEMS_LISTED_MAX, REPLACES_LISTED_MAX,
    SegmentRef, Snapshot, VIEWS_MAX, WITHHELD_LISTED_MAX,
};
use serde::{Deserialize, Serialize};

const WHAT: &str = "snapshot";
const WHAT_CONDEMNED: &str = "condemned list";
const WHAT_DAMAGED: &str = "mark of damaged packs";
/// The version of a snapshot of files.
pub const SNAPSHOT_VERSION: u32 = 1;
/// The version of one with images, and the highest one read: who does not know extents would show
/// images of no content, and take away what they are made of.
pub const SNAPSHOT_VERSION_IMAGES: u32 = 2;
const CONDEMNED_VERSION: u32 = 1;
const DAMAGED_VERSION: u32 = 1;
const NANOS_MAX: u32 = 999_999_999;

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

impl Snapshot {
    /// Of a run that begins: nothing is known of it but this.
    pub fn begun(run: [u8; 16], time: Time) -> Snapshot {
        Snapshot {
            version: SNAPSHOT_VERSION,
            run: hex(&run),
            partial: false,
            until: None,
            time,
            finished: Time::default(),
            host: String::new(),
            user: String::new(),
            program: String::new(),
            tags: Vec::new(),
            pinned: false,
            replaces: Vec::new(),
            paths: Vec::new(),
            source_filesystems: Vec::new(),
            excludes: Vec::new(),
            withheld: Vec::new(),
            withheld_more: false,
            atimes: false,
            parent: None,
            original: None,
            filesystems: Vec::new(),
            images: Vec::new(),
            totals: Default::default(),
            counts: Default::default(),
            transfers: Default::default(),
            problems: Vec::new(),
            layers: Vec::new(),
            thin: Vec::new(),
        }
    }

    /// Does it say only that a run is under way (docs/FORMAT.md, section 9)? It holds nothing.
    pub fn is_sign_of_life(&self) -> bool {
        self.partial && self.until.is_none() && self.layers.is_empty()
    }

    /// The plaintext of the object, read back and compared.
    pub fn to_json(&self) -> Result<Vec<u8>, FormatError> {
        check_snapshot(self)?;
        let plain = serde_json::to_vec(self).expect("a snapshot has a JSON form");
        if plain.len() > OBJECT_PLAIN_BYTES_MAX {
            return Err(FormatError::TooLarge {
                what: WHAT,
                found: plain.len() as u64,
                max: OBJECT_PLAIN_BYTES_MAX as u64,
            });
        }
        match Snapshot::from_json(&plain) {
            Ok(read_back) if read_back == *self => Ok(plain),
            _ => Err(FormatError::NotVerified { what: WHAT }),
        }
    }

    /// From an opened object.
    pub fn from_json(plain: &[u8]) -> Result<Snapshot, FormatError> {
        check_json(WHAT, plain, SNAPSHOT_VERSION_IMAGES)?;
        let snapshot: Snapshot =
            serde_json::from_slice(plain).map_err(|error| FormatError::json(WHAT, &error))?;
        check_snapshot(&snapshot)?;
        Ok(snapshot)
    }
}

/// Packs that a prune intends to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condemned {
    /// Version of this record: 1.
    pub version: u32,
    /// When they were condemned.
    pub time: Time,
    pub packs: Vec<ObjectId>,
}

impl Condemned {
    /// Of the version written here.
    pub fn new(time: Time, packs: Vec<ObjectId>) -> Condemned {
        Condemned {
            version: CONDEMNED_VERSION,
            time,
            packs,
        }
    }

    /// The plaintext of the object, read back and compared.
    pub fn to_json(&self) -> Result<Vec<u8>, FormatError> {
        let plain = serde_json::to_vec(self).expect("a list of ids has a JSON form");
        match Condemned::from_json(&plain) {
            Ok(read_back) if read_back == *self => Ok(plain),
            _ => Err(FormatError::NotVerified {
                what: WHAT_CONDEMNED,
            }),
        }
    }

    /// From an opened object.
    pub fn from_json(plain: &[u8]) -> Result<Condemned, FormatError> {
        check_json(WHAT_CONDEMNED, plain, CONDEMNED_VERSION)?;
        let condemned: Condemned = serde_json::from_slice(plain)
            .map_err(|error| FormatError::json(WHAT_CONDEMNED, &error))?;
        check_time(WHAT_CONDEMNED, condemned.time)?;
        Ok(condemned)
    }
}

/// Packs in which damage was found: writers do without them, and deleters count no copy in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPacks {
    /// Version of this record: 1.
    pub version: u32,
    /// When they were found damaged.
    pub time: Time,
    pub packs: Vec<ObjectId>,
}

impl DamagedPacks {
    /// Of the version written here.
    pub fn new(time: Time, packs: Vec<ObjectId>) -> DamagedPacks {
        DamagedPacks {
            version: DAMAGED_VERSION,
            time,
            packs,
        }
    }

    /// The plaintext of the object, read back and compared.
    pub fn to_json(&self) -> Result<Vec<u8>, FormatError> {
        let plain = serde_json::to_vec(self).expect("a list of ids has a JSON form");
        match DamagedPacks::from_json(&plain) {
            Ok(read_back) if read_back == *self => Ok(plain),
            _ => Err(FormatError::NotVerified { what: WHAT_DAMAGED }),
        }
    }

    /// From an opened object.
    pub fn from_json(plain: &[u8]) -> Result<DamagedPacks, FormatError> {
        check_json(WHAT_DAMAGED, plain, DAMAGED_VERSION)?;
        let damaged: DamagedPacks = serde_json::from_slice(plain)
            .map_err(|error| FormatError::json(WHAT_DAMAGED, &error))?;
        check_time(WHAT_DAMAGED, damaged.time)?;
        Ok(damaged)
    }
}

/// Length and version, before anything else is believed.
fn check_json(what: &'static str, plain: &[u8], known: u32) -> Result<(), FormatError> {
    if plain.len() > OBJECT_PLAIN_BYTES_MAX {
        return Err(FormatError::over(
            what,
            "length",
            plain.len(),
            OBJECT_PLAIN_BYTES_MAX,
        ));
    }
    let VersionOnly { version } =
        serde_json::from_slice(plain).map_err(|error| FormatError::json(what, &error))?;
    if version > u64::from(known) {
        return Err(FormatError::Newer {
            what,
            found: version,
            known: u64::from(known),
        });
    }
    if version == 0 {
        return Err(FormatError::damaged(
            what,
            Fault::Value {
                field: "version",
                found: 0,
            },
        ));
    }
    Ok(())
}

fn check_snapshot(snapshot: &Snapshot) -> Result<(), FormatError> {
    let version = match snapshot.images.is_empty() {
        true => SNAPSHOT_VERSION,
        false => SNAPSHOT_VERSION_IMAGES,
    };
    if !(version..=SNAPSHOT_VERSION_IMAGES).contains(&snapshot.version) {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Value {
                field: "version",
                found: u64::from(snapshot.version),
            },
        ));
    }
    if from_hex::<16>(&snapshot.run).is_err() {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Text {
                field: "run",
                reason: "not 32 lower-case hex digits".to_owned(),
            },
        ));
    }
    let barriers = snapshot.filesystems.iter().filter_map(|fs| fs.barrier);
    for time in [snapshot.time, snapshot.finished]
        .into_iter()
        .chain(barriers)
    {
        check_time(WHAT, time)?;
    }
    for (field, found, max) in [
        (
            "number of problems",
            snapshot.problems.len(),
            PROBLEMS_LISTED_MAX,
        ),
        (
            "number of paths withheld",
            snapshot.withheld.len(),
            WITHHELD_LISTED_MAX,
        ),
        (
            "number of snapshots replaced",
            snapshot.replaces.len(),
            REPLACES_LISTED_MAX,
        ),
        (
            "number of file systems",
            snapshot.filesystems.len(),
            FILESYSTEMS_MAX,
        ),
        ("number of images", snapshot.images.len(), IMAGES_MAX),
        (
            "number of transfers",
            snapshot.transfers.list.len(),
            TRANSFERS_LISTED_MAX,
        ),
        ("number of layers", snapshot.layers.len(), LAYERS_MAX),
    ] {
        if found > max {
            return Err(FormatError::over(WHAT, field, found, max));
        }
    }
    snapshot.images.iter().try_for_each(check_image)?;
    snapshot.until.iter().try_for_each(check_key)?;
    snapshot.layers.iter().try_for_each(check_layer)
}

fn check_time(what: &'static str, time: Time) -> Result<(), FormatError> {
    if time.nanos > NANOS_MAX {
        return Err(FormatError::damaged(
            what,
            Fault::Over {
                field: "nanoseconds",
                found: u64::from(time.nanos),
                max: u64::from(NANOS_MAX),
            },
        ));
    }
    Ok(())
}

/// Blocks that were left out come in runs that are sorted and apart; a view is a child of the root.
fn check_image(image: &ImageRecord) -> Result<(), FormatError> {
    if image.views.len() > VIEWS_MAX {
        let field = "number of views";
        return Err(FormatError::over(WHAT, field, image.views.len(), VIEWS_MAX));
    }
    for view in &image.views {
        check_densest(&view.densest)?;
        let name = view.path.0.strip_prefix(b"/").unwrap_or_default();
        if name.is_empty() || name.contains(&b'/') || name.len() > NAME_BYTES_MAX {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Text {
                    field: "path of a view",
                    reason: "no child of the root".to_owned(),
                },
            ));
        }
    }
    let runs = &image.left_out;
    if runs.len() > LEFT_OUT_RUNS_MAX {
        let field = "number of runs left out";
        return Err(FormatError::over(
            WHAT,
            field,
            runs.len(),
            LEFT_OUT_RUNS_MAX,
        ));
    }
    let mut behind = 0;
    for (first, count) in runs {
        let end = first.checked_add(*count);
        let end = end.and_then(|end| end.checked_mul(IMAGE_BLOCK_BYTES).map(|_| end));
        let end = end.filter(|end| *end > *first && *first >= behind);
        behind = end.ok_or_else(|| order("blocks left out"))?;
    }
    Ok(())
}

/// Few, with paths that are not too long.
fn check_densest(densest: &[DenseDirectory]) -> Result<(), FormatError> {
    let longest = densest.iter().map(|one| one.path.0.len()).max();
    for (field, found, max) in [
        ("number of densest directories", densest.len(), DENSEST_MAX),
        (
            "path of a densest directory",
            longest.unwrap_or(0),
            DENSEST_PATH_BYTES_MAX,
        ),
    ] {
        if found > max {
            return Err(FormatError::over(WHAT, field, found, max));
        }
    }
    Ok(())
}

/// Segments in key order, their counted rows not overlapping.
fn check_layer(layer: &Layer) -> Result<(), FormatError> {
    for segment in &layer.segments {
        check_segment(segment)?;
    }
    for pair in layer.segments.windows(2) {
        let start = pair[1].start();
        let ended_by_bound = pair[0].to.as_ref().is_some_and(|to| start >= to);
        if !ended_by_bound && *start <= pair[0].last {
            return Err(order("segments"));
        }
    }
    Ok(())
}

fn check_segment(segment: &SegmentRef) -> Result<(), FormatError> {
    if segment.rows == 0 || segment.rows > SEGMENT_ROWS_MAX {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Value {
                field: "rows of a segment",
                found: u64::from(segment.rows),
            },
        ));
    }
    let bounds = [segment.from.as_ref(), segment.to.as_ref()];
    for key in [&segment.first, &segment.last]
        .into_iter()
        .chain(bounds.into_iter().flatten())
    {
        check_key(key)?;
    }
    if segment.first > segment.last {
        return Err(order("keys of a segment"));
    }
    if let (Some(from), Some(to)) = (&segment.from, &segment.to)
        && from > to
    {
        return Err(order("bounds of a segment"));
    }
    Ok(())
}

fn check_key(key: &Key) -> Result<(), FormatError> {
    for (field, found, max) in [
        ("length of a parent", key.parent.len(), PARENT_BYTES_MAX),
        ("length of a name", key.name.len(), NAME_BYTES_MAX),
    ] {
        if found > max {
            return Err(FormatError::over(WHAT, field, found, max));
        }
    }
    Ok(())
}

fn order(field: &'static str) -> FormatError {
    FormatError::damaged(WHAT, Fault::Order { field })
}
