//! Random trees with random options, hundreds in every run.
//!
//! Thousands: `BALE_MKEXT4_TREES=5000 cargo test -p bale-fsimage --release --test ext4
//! mkext4_random`, with `BALE_MKEXT4_SEED` for the first seed. A failure names its seed.

use crate::mkext4_tree::random::*;
use crate::mkext4_tree::*;
use bale_fsimage::mkext4::*;

const TREES: u64 = 200;

#[test]
fn random_trees_come_back_in_every_field() {
    if !tools_are_here(&["e2fsck", "mount", "umount"]) {
        return;
    }
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let first = number("BALE_MKEXT4_SEED", 1);
    for seed in first..first + number("BALE_MKEXT4_TREES", TREES) {
        let mut random = Random(seed);
        let mut options = random_options(&mut random);
        let tree = random_tree(&mut random, &mut options);
        let attempt = std::panic::catch_unwind(|| assert_round_trip(&options, &tree));
        assert!(
            attempt.is_ok(),
            "seed {seed} with {} entries and {options:?}",
            tree.0.len()
        );
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    for seed in 1..20 {
        let image = || {
            let mut random = Random(seed);
            let mut options = random_options(&mut random);
            let tree = random_tree(&mut random, &mut options);
            let plan = Plan::new(options.clone(), totals(&options, &tree)).unwrap();
            build(&options, &tree, Memory(vec![0; plan.bytes() as usize]))
                .unwrap()
                .0
                .0
        };
        assert!(image() == image(), "seed {seed}");
    }
}
