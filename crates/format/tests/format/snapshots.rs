//! Snapshots come back, and one that a reader could not rely on is refused.

use bale_format::snapshot::{
    Counts, DENSEST_MAX, DENSEST_PATH_BYTES_MAX, DenseDirectory, Filesystem, IMAGES_MAX,
    ImageRecord, ImageState, ImageView, LEFT_OUT_RUNS_MAX, PathText, ProblemRecord, Totals,
};
use bale_format::{ChunkId, FormatError, Key, Layer, ObjectId, SegmentRef, Snapshot, Time};

fn time(seconds: i64) -> Time {
    Time {
        seconds,
        nanos: 999_999_999,
    }
}

fn segment(first: &str, last: &str) -> SegmentRef {
    SegmentRef {
        id: ChunkId([1; 32]),
        rows: 3,
        bytes: 10,
        first: Key::of_path(first.as_bytes()),
        last: Key::of_path(last.as_bytes()),
        from: None,
        to: None,
    }
}

fn snapshot(segments: Vec<SegmentRef>) -> Snapshot {
    Snapshot {
        version: 1,
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        partial: false,
        until: None,
        time: time(-5),
        finished: time(5),
        host: "host".to_owned(),
        user: "user \"quoted\"".to_owned(),
        program: "bale 0.1.0".to_owned(),
        tags: vec!["daily".to_owned()],
        paths: vec![PathText(b"/home/\xff\n".to_vec())],
        source_filesystems: vec!["00010203-0405-0607-0809-0a0b0c0d0eff".to_owned()],
        pinned: true,
        replaces: vec![ObjectId([8; 32])],
        excludes: vec!["*.tmp".to_owned()],
        withheld: vec![PathText(b"/home/key".to_vec())],
        withheld_more: true,
        atimes: false,
        parent: Some(ObjectId([4; 32])),
        original: None,
        filesystems: vec![Filesystem {
            uuid: "u".to_owned(),
            kind: "ext4".to_owned(),
            mount: PathText(b"/".to_vec()),
            scanner: "inode".to_owned(),
            barrier: Some(time(9)),
        }],
        images: Vec::new(),
        totals: Totals {
            files: 1,
            ..Totals::default()
        },
        counts: Counts::default(),
        transfers: Default::default(),
        problems: vec![ProblemRecord {
            path: PathText(b"/x".to_vec()),
            action: "read".to_owned(),
            text: "gone".to_owned(),
        }],
        layers: vec![Layer { rows: 6, segments }],
        thin: vec![ChunkId([5; 32])],
    }
}

fn bounded(segment: SegmentRef, from: Option<&str>, to: Option<&str>) -> SegmentRef {
    let key = |path: &str| Key::of_path(path.as_bytes());
    SegmentRef {
        from: from.map(key),
        to: to.map(key),
        ..segment
    }
}

#[test]
fn a_snapshot_comes_back() {
    let snapshots = [
        snapshot(Vec::new()),
        snapshot(vec![segment("a", "b/c"), segment("b/d", "b/e/f")]),
        snapshot(vec![
            bounded(segment("a", "m"), None, Some("g")),
            bounded(segment("c", "z"), Some("g"), Some("x")),
        ]),
        snapshot(vec![
            segment("a", "g"),
            bounded(segment("c", "z"), Some("h"), None),
        ]),
    ];
    for snapshot in snapshots {
        let plain = snapshot.to_json().unwrap();
        assert_eq!(Snapshot::from_json(&plain), Ok(snapshot));
    }
}

#[test]
fn fields_of_a_later_program_are_ignored() {
    let plain = snapshot(Vec::new()).to_json().unwrap();
    let text = String::from_utf8(plain).unwrap();
    let later = text.replacen('{', "{\"invented_later\":{\"a\":[1]},", 1);
    assert_eq!(
        Snapshot::from_json(later.as_bytes()),
        Ok(snapshot(Vec::new()))
    );
}

#[test]
fn catalogs_that_overlap_or_are_not_in_order_are_refused() {
    for segments in [
        vec![segment("b", "a")],
        vec![segment("a", "m"), segment("m", "z")],
        vec![segment("c", "d"), segment("a", "b")],
        vec![
            bounded(segment("a", "m"), None, Some("g")),
            bounded(segment("c", "z"), Some("f"), None),
        ],
        vec![bounded(segment("a", "m"), Some("h"), Some("g"))],
        vec![SegmentRef {
            rows: 0,
            ..segment("a", "b")
        }],
        vec![SegmentRef {
            rows: 131_073,
            ..segment("a", "b")
        }],
        vec![segment("a", &"x".repeat(256))],
    ] {
        let refused = snapshot(segments);
        let plain = serde_json::to_vec(&refused).unwrap();
        assert!(matches!(
            Snapshot::from_json(&plain),
            Err(FormatError::Damaged { .. })
        ));
        assert!(refused.to_json().is_err());
    }
}

#[test]
fn times_runs_and_counts_out_of_bounds_are_refused() {
    let mut broken = vec![snapshot(Vec::new()); 4];
    broken[0].time.nanos = 1_000_000_000;
    broken[1].run = "0123".to_owned();
    broken[2].version = 0;
    let problem = broken[3].problems[0].clone();
    broken[3].problems = vec![problem; 1001];
    for broken in broken {
        assert!(broken.to_json().is_err());
        let plain = serde_json::to_vec(&broken).unwrap();
        assert!(Snapshot::from_json(&plain).is_err());
    }
}

#[test]
fn a_snapshot_cut_off_anywhere_is_refused() {
    let plain = snapshot(vec![segment("a", "b")]).to_json().unwrap();
    for length in 0..plain.len() {
        assert!(Snapshot::from_json(&plain[..length]).is_err());
    }
}

fn image() -> ImageRecord {
    ImageRecord {
        path: PathText(b"/disk.raw".to_vec()),
        source: PathText(b"/dev/sdb".to_vec()),
        how: ImageState::Fuzzy,
        tracker: "none".to_owned(),
        basis: None,
        left_out: vec![(0, 3), (7, 1)],
        views: Vec::new(),
    }
}

fn with_image(version: u32) -> Snapshot {
    Snapshot {
        version,
        images: vec![image()],
        ..snapshot(Vec::new())
    }
}

fn with_views(paths: &[&[u8]]) -> Snapshot {
    let view = |path: &[u8]| ImageView {
        path: PathText(path.to_vec()),
        kind: "ext4".to_owned(),
        uuid: String::new(),
        totals: Totals::default(),
        problems: 0,
        bytes_apart: 0,
        not_listed: None,
        densest: vec![],
    };
    let mut snapshot = with_image(2);
    snapshot.images[0].views = paths.iter().map(|path| view(path)).collect();
    snapshot
}

#[test]
fn the_densest_directories_of_a_view_are_few_and_their_paths_are_bounded() {
    for (directories, bytes) in [(DENSEST_MAX, 1024), (DENSEST_MAX + 1, 9), (1, 1025)] {
        let mut snapshot = with_views(&[b"/p1"]);
        let directory = DenseDirectory {
            path: PathText(vec![b'/'; bytes]),
            children: 7,
        };
        snapshot.images[0].views[0].densest = vec![directory; directories];
        let json = snapshot.to_json();
        match directories <= DENSEST_MAX && bytes <= DENSEST_PATH_BYTES_MAX {
            true => assert_eq!(Snapshot::from_json(&json.unwrap()).unwrap(), snapshot),
            false => assert!(json.is_err(), "{directories} {bytes}"),
        }
    }
}

#[test]
fn images_make_a_record_that_older_readers_refuse_as_newer() {
    let image = image();
    let plain = with_image(2).to_json().unwrap();
    assert_eq!(Snapshot::from_json(&plain).unwrap(), with_image(2));
    let text = String::from_utf8(plain).unwrap();
    assert!(
        text.contains("\"version\":2") && text.contains("\"how\":\"fuzzy\""),
        "{text}"
    );
    // Nobody may take it for one of files.
    assert!(with_image(1).to_json().is_err());
    let newer = text.replace("\"version\":2", "\"version\":3");
    let refused = Snapshot::from_json(newer.as_bytes());
    assert!(
        matches!(refused, Err(FormatError::Newer { .. })),
        "{refused:?}"
    );
    let many = Snapshot {
        images: vec![image.clone(); IMAGES_MAX + 1],
        ..with_image(2)
    };
    assert!(many.to_json().is_err());
    let good = with_views(&[b"/p1", b"/root"]);
    assert_eq!(Snapshot::from_json(&good.to_json().unwrap()).unwrap(), good);
    for path in [&b""[..], b"/", b"p1", b"/p1/a", &[b'/'; 300]] {
        assert!(with_views(&[path]).to_json().is_err(), "{path:?}");
    }
    for left_out in [
        vec![(3, 2), (4, 1)],
        vec![(9, 1), (0, 1)],
        vec![(5, 0)],
        vec![(u64::MAX, 2)],
        vec![(0, u64::MAX >> 20 << 1)],
        (0..LEFT_OUT_RUNS_MAX as u64 + 1)
            .map(|run| (2 * run, 1))
            .collect(),
    ] {
        let mut odd = with_image(2);
        odd.images[0].left_out = left_out;
        assert!(odd.to_json().is_err(), "{odd:?}");
    }
}
