//! An image in which nothing changed: what was known of it holds only for who asks in the same way.

use super::image::{Image, can_run};
use super::snapshots::{Pair, Taken, WHOLE_SECONDS, settle, settle_for};
use bale_format::ChunkKind;
use bale_source::scan::LeftOut;
use std::fs;
use std::path::Path;

const AREAS: usize = 8;

pub fn populated(test: &str, populate: impl FnOnce(&Path)) -> Option<Image> {
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return None;
    }
    let image = Image::make(16, "-t ext4 -b 1024 -I 256");
    populate(&image.mount("noatime").path);
    settle_for(&image.path, WHOLE_SECONDS);
    Some(image)
}

pub fn comparing() -> Pair {
    let mut pair = Pair::new();
    pair.force = false;
    pair
}

/// Was nothing read but the tables?
pub fn is_as_known(taken: &Taken) -> bool {
    let is_said = |note: &String| note.contains("no inode was changed");
    taken.notes.iter().any(is_said)
}

/// A repository that was left out by its mark was still missing when it was asked for: the tables
/// said what they had said.
#[test]
fn what_was_left_out_before_is_there_once_it_is_wanted() {
    let test = "what_was_left_out_before_is_there_once_it_is_wanted";
    let Some(image) = populated(test, |root| {
        for number in 0..AREAS {
            fs::create_dir_all(root.join(format!("repo/area{number}"))).unwrap();
        }
        let tag = "Signature: bale repository 5c1f0a3e9b7d4286\n";
        fs::write(root.join("repo/BALE-REPOSITORY.TAG"), tag).unwrap();
        fs::write(root.join("repo/config"), "{\"format\":1}").unwrap();
        fs::write(root.join("repo/area0/pack"), "bytes").unwrap();
        fs::write(root.join("beside"), "bytes").unwrap();
    }) else {
        return;
    };
    let mut pair = comparing();
    let has_it = |taken: &Taken| taken.rows.contains_key(&b"/repo/area0/pack"[..]);
    pair.left_out = LeftOut::default().and_repositories();
    for is_known in [false, true] {
        let taken = pair.inode_scan(&image.path);
        assert!(!has_it(&taken));
        assert_eq!(is_as_known(&taken), is_known, "{:?}", taken.notes);
    }
    pair.left_out = LeftOut::default();
    for is_known in [false, true] {
        let taken = pair.inode_scan(&image.path);
        assert!(has_it(&taken), "{:?}", taken.notes);
        assert_eq!(is_as_known(&taken), is_known, "{:?}", taken.notes);
    }
    pair.left_out = LeftOut::default().and_repositories();
    assert!(!has_it(&pair.inode_scan(&image.path)));
}

#[test]
fn an_image_is_skipped_only_if_nothing_changed_in_it() {
    let test = "an_image_is_skipped_only_if_nothing_changed_in_it";
    let Some(image) = populated(test, |root| fs::write(root.join("a"), "first").unwrap()) else {
        return;
    };
    let mut pair = comparing();
    pair.skip_if_unchanged = true;
    let made = |pair: &Pair| pair.inode_scan(&image.path).outcome.id.is_some();
    assert!(made(&pair), "the first");
    assert!(!made(&pair), "nothing changed");
    fs::write(image.mount("noatime").path.join("a"), "FIRST").unwrap();
    settle(&image.path);
    assert!(made(&pair), "a file changed");
    assert!(!made(&pair), "nothing changed since");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(image.mount("noatime").path.join("a"), mode).unwrap();
    settle(&image.path);
    assert!(made(&pair), "a mode");
    pair.force = true;
    assert!(made(&pair), "who forces compares with nothing");
}

/// The tables prove that the rows are what they were, and nothing of what they point at.
#[test]
fn tables_that_are_as_they_were_do_not_stand_for_chunks_that_no_index_names_any_more() {
    let test = "tables_that_are_as_they_were_do_not_stand_for_chunks_that_no_index_names_any_more";
    let Some(image) = populated(test, |root| fs::write(root.join("a"), "bytes").unwrap()) else {
        return;
    };
    let pair = comparing();
    pair.inode_scan(&image.path);
    assert!(is_as_known(&pair.inode_scan(&image.path)));
    pair.scene
        .lose_from_index(|chunk| chunk.kind == ChunkKind::Data);
    let taken = pair.inode_scan(&image.path);
    assert!(!is_as_known(&taken), "{:?}", taken.notes);
    let index = pair.scene.repository().index().unwrap();
    let mut all = index.entries().iter();
    assert!(all.any(|place| place.chunk.kind == ChunkKind::Data));
    assert!(is_as_known(&pair.inode_scan(&image.path)), "known again");
}
