//! The writers themselves: their log says what is there.

use super::mounts::*;
use bale_testkit::LiveTree;
use bale_testkit::live_tree::{Load, Moment};
use std::time::Duration;

#[test]
fn the_log_of_the_writers_says_what_is_in_the_tree() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 1024);
        let load = Load {
            large_bytes: 8 << 20,
            pause_max: Duration::from_millis(2),
            ..Load::default()
        };
        let mut tree = LiveTree::create(&mounted.path(), load);
        for _ in 0..2 {
            let before = tree.steps();
            tree.write_while(|steps| until("much is written", || steps() > before + 1500));
            let report = tree.check(Moment::now(), tree.look());
            assert_eq!(report.wrong(), 0, "{kind}: {:#?}", report.faults);
            assert!(report.settled >= 400, "{report:?}");
        }
    }
}
