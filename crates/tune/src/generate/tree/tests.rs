//! What the shape of a tree promises: its counts, its order, and names that are unique.

use super::*;

fn dense(seed: u64) -> GenerateOptions {
    GenerateOptions {
        seed,
        directories: (2, 4),
        files: (3, 9),
        depth: (2, 4),
        ..GenerateOptions::default()
    }
}

#[test]
fn a_count_is_met_exactly_and_a_limit_is_not_exceeded() {
    for seed in 0..50 {
        for count in [1, 5, 100, 5_000] {
            let options = GenerateOptions {
                count: Some(count),
                ..dense(seed)
            };
            let files: u64 = Shape::new(&options).plans().map(|plan| plan.files).sum();
            assert_eq!(files, count, "seed {seed}");
        }
        let free: u64 = Shape::new(&dense(seed))
            .plans()
            .map(|plan| plan.files)
            .sum();
        let options = GenerateOptions {
            files_max: 50,
            ..dense(seed)
        };
        let files: u64 = Shape::new(&options).plans().map(|plan| plan.files).sum();
        assert_eq!(files, free.min(50));
    }
}

#[test]
fn directories_come_in_catalog_order_with_unique_ascending_names() {
    let options = GenerateOptions {
        name_bytes: (2, 2),
        files: (100, 900),
        odd_name_share: 500,
        ..dense(3)
    };
    let mut previous: Option<Vec<Vec<u8>>> = None;
    for plan in Shape::new(&options).plans() {
        let parts: Vec<Vec<u8>> = plan
            .path
            .split(|byte| *byte == b'/')
            .map(<[u8]>::to_vec)
            .collect();
        assert!(previous.as_ref().is_none_or(|previous| *previous < parts
            || plan.path.is_empty()
            || previous[0].is_empty()));
        previous = Some(parts);
        let children = plan.children(&options);
        assert_eq!(
            children.len() as u64,
            plan.files + plan.subdirectories.len() as u64
        );
        assert!(children.windows(2).all(|pair| pair[0].name < pair[1].name));
        for child in &children {
            assert!(
                child.name.len() <= 255 && !child.name.contains(&b'/') && !child.name.contains(&0)
            );
        }
    }
}

#[test]
fn a_large_directory_comes_in_parts_with_names_that_ascend_over_all_of_them() {
    let count = 2 * LARGE_FILES + 12_345;
    let options = GenerateOptions {
        count: Some(count),
        files: (count - 100, count - 100),
        name_bytes: (3, 3),
        directories: (3, 3),
        depth: (1, 1),
        ..dense(5)
    };
    let plans: Vec<DirectoryPlan> = Shape::new(&options).plans().collect();
    let parts: Vec<_> = plans.iter().filter(|plan| plan.path.is_empty()).collect();
    assert!(parts.len() > 10);
    assert_eq!(parts.iter().filter(|plan| plan.is_first_part).count(), 1);
    let (mut last, mut files, mut directories) = (Vec::new(), 0, 0);
    for plan in &parts {
        for child in plan.children(&options) {
            assert!(last < child.name, "{last:?} {child:?}");
            match child.file {
                Some(position) => {
                    assert_eq!(position, files);
                    files += 1;
                }
                None => directories += 1,
            }
            last = child.name;
        }
    }
    let in_root = |plan: &&DirectoryPlan| !plan.path.is_empty() && !plan.path.contains(&b'/');
    assert_eq!(files, count - 100);
    assert_eq!(directories, plans.iter().filter(in_root).count());
    let files: u64 = plans.iter().map(|plan| plan.files).sum();
    assert_eq!(files, count);
}

#[test]
fn every_number_of_directories_and_every_depth_is_reached() {
    let mut depths = [false; 6];
    let mut widths = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let options = GenerateOptions {
            depth: (1, 4),
            ..dense(seed)
        };
        for plan in Shape::new(&options).plans() {
            let depth = if plan.path.is_empty() {
                0
            } else {
                1 + plan.path.iter().filter(|byte| **byte == b'/').count()
            };
            depths[depth] = true;
            widths.insert(plan.subdirectories.len());
        }
    }
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4]);
    assert_eq!(depths, [true, true, true, true, true, true]);
}
