//! Snapshots, segments of their catalogs, and what rows refer to.

use bale_format::xattrs::{decode_xattrs, encode_xattrs};
use bale_format::{
    ChunkId, IMAGE_BLOCK_BYTES, ImageExtent, Kind, PieceList, PieceStep, PieceWalk, Segment,
    SegmentKeys, Snapshot,
};

/// An opened snapshot: what is accepted can be written again.
pub fn snapshot(data: &[u8]) {
    if let Ok(snapshot) = Snapshot::from_json(data) {
        assert!(snapshot.to_json().is_ok(), "written and read back");
    }
}

/// A catalog segment: keys alone, then all columns and every row.
pub fn segment(data: &[u8]) {
    let keys = SegmentKeys::decode(data).map(|keys| {
        for row in 0..keys.rows() {
            assert_eq!(keys.find(&keys.key(row)), Ok(row), "keys are in order");
        }
        keys.rows()
    });
    if let Ok(segment) = Segment::decode(data) {
        assert_eq!(keys.ok(), Some(segment.rows()));
        for row in 0..segment.rows() {
            let entry = segment.entry(row);
            if entry.kind == Kind::Extent {
                let extent = ImageExtent::of(&entry).expect("an extent has a place and content");
                let within = extent.start % IMAGE_BLOCK_BYTES;
                assert!(extent.bytes > 0 && within + extent.bytes <= IMAGE_BLOCK_BYTES);
            }
        }
    }
}

/// A piece list, and a walk through lists that all are this one.
pub fn piece_list(data: &[u8]) {
    const STEPS_MAX: usize = 1000;
    let size = match PieceList::decode(data) {
        Ok(list) => list.bytes().unwrap_or(u64::MAX),
        Err(_) => 1 << 20,
    };
    for from in [0, size / 2] {
        let mut walk = PieceWalk::starting_at(ChunkId([1; 32]), size, from);
        for _ in 0..STEPS_MAX {
            match walk.step() {
                PieceStep::Fetch(_) if walk.supply(data).is_ok() => {}
                PieceStep::Piece { .. } => {}
                _ => break,
            }
        }
    }
}

/// A set of extended attributes: what is accepted has one encoding.
pub fn xattrs(data: &[u8]) {
    if let Ok(mut attributes) = decode_xattrs(data) {
        let again = encode_xattrs(&mut attributes);
        assert_eq!(again.as_deref(), Ok(data));
    }
}
