//! What a tracker says is believed, and no further than it can be.

use crate::bench::{BLOCK, Images, NAME};
use crate::told::tracked;
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_pipeline::monitor::Recorder;
use bale_source::raw::change_list::{ChangeListFormat, ImportedChanges, read_change_list};
use bale_testkit::scene::noise;
use std::ops::Range;
use std::time::Duration;

fn backup(images: &mut Images, epoch: u64, changes: &[Range<u64>]) -> Outcome {
    let outcome = tracked(images, epoch, changes.to_vec());
    images.kept.push((outcome.id.unwrap(), images.bytes()));
    outcome
}

fn read(outcome: &Outcome) -> u64 {
    outcome.snapshot.counts.bytes_read / BLOCK
}

#[test]
fn only_blocks_that_may_have_changed_are_read_and_every_snapshot_is_a_full() {
    let mut images = Images::of(&noise(1, 20 * BLOCK as usize));
    assert_eq!(read(&backup(&mut images, 0, &[])), 20);
    images.write_at(3 * BLOCK + 7, b"changed");
    images.write_at(11 * BLOCK, &vec![0; BLOCK as usize]);
    let changes = [3 * BLOCK + 7..3 * BLOCK + 14, 11 * BLOCK..12 * BLOCK];
    assert_eq!(read(&backup(&mut images, 1, &changes)), 2);
    // A superset costs reading and nothing else.
    let outcome = backup(&mut images, 2, std::slice::from_ref(&(BLOCK..5 * BLOCK)));
    assert_eq!(read(&outcome), 4);
    let stored = outcome.snapshot.counts.bytes_stored;
    assert!(stored < 64 << 10, "{stored}");
    assert_eq!(read(&backup(&mut images, 3, &[])), 0);
    images.assert_whole();
}

#[test]
fn a_tracker_is_not_believed_where_the_parent_is_another_or_lacks_something() {
    let mut images = Images::of(&noise(1, 8 * BLOCK as usize));
    backup(&mut images, 0, &[]);
    // Another basis.
    assert_eq!(read(&backup(&mut images, 7, &[])), 8);
    // A snapshot without a tracker in between.
    images.write_at(0, b"unseen");
    images.keep();
    images.write_at(BLOCK, b"unseen, too");
    assert_eq!(read(&backup(&mut images, 8, &[])), 8);
    // A longer image: what is new of it is read.
    images.set_len(9 * BLOCK);
    images.write_at(8 * BLOCK, &noise(3, BLOCK as usize));
    assert_eq!(read(&backup(&mut images, 9, &[])), 1);
    // A shorter one.
    images.set_len(6 * BLOCK);
    assert_eq!(read(&backup(&mut images, 10, &[])), 6);
    images.assert_whole();
    // Something of it is lost.
    let outcome = backup(&mut images, 10, &[]);
    let lost = images.extents(&outcome).last().map(|extent| extent.chunk);
    images.scene.lose_from_index(|chunk| Some(chunk.id) == lost);
    images.kept.clear();
    // That alone is read again.
    assert_eq!(read(&backup(&mut images, 11, &[])), 1);
    let (id, bytes) = images.kept[0].clone();
    images.assert_restores(&images.scene.repository(), id, &bytes);
}

/// Packs that a prune gave up stay for a while, and the index tells of them.
#[test]
fn a_tracker_is_believed_while_packs_of_a_prune_wait_to_be_deleted() {
    let mut images = Images::of(&noise(1, 12 * BLOCK as usize));
    backup(&mut images, 0, &[]);
    images.write_at(0, &noise(2, 10 * BLOCK as usize));
    backup(&mut images, 1, std::slice::from_ref(&(0..10 * BLOCK)));
    let (first, _) = images.kept.remove(0);
    images.scene.repository().forget_snapshot(first).unwrap();
    let grace = Duration::from_secs(86_400);
    let pruned = images
        .scene
        .prune(&images.scene.repository(), grace)
        .unwrap();
    assert!(pruned.packs_condemned > 0, "{pruned:?}");
    images.write_at(9 * BLOCK, b"new");
    let range = 9 * BLOCK..10 * BLOCK;
    assert_eq!(
        read(&backup(&mut images, 2, std::slice::from_ref(&range))),
        1
    );
    images.assert_whole();
    let pruned = images
        .scene
        .prune(&images.scene.repository(), Duration::ZERO);
    pruned.unwrap();
    images.assert_whole();
}

/// With the list of changes that another program made.
fn import(images: &mut Images, since: usize, list: &str, parent: Option<usize>) -> Outcome {
    let ranges = read_change_list(list.as_bytes(), ChangeListFormat::Json, None).unwrap();
    let since = images.kept[since].0;
    let mut sources = [ImageSource {
        tracker: Box::new(ImportedChanges { since, ranges }),
        ..images.source(NAME)
    }];
    let options = BackupOptions {
        parent: parent.map(|parent| images.kept[parent].0),
        ..BackupOptions::default()
    };
    let (monitor, repository) = (Recorder::default(), images.scene.repository());
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.snapshot.images[0].tracker, "import");
    images.kept.push((outcome.id.unwrap(), images.bytes()));
    outcome
}

#[test]
fn with_a_list_of_changes_what_it_names_is_read_and_every_snapshot_is_what_was_there() {
    let mut images = Images::of(&noise(1, 20 * BLOCK as usize));
    // Made without any tracker.
    images.keep();
    let mut number = 7u64;
    for round in 0..6 {
        let mut extents = Vec::new();
        for _ in 0..3 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            let (offset, len) = ((number >> 33) % (19 * BLOCK), 1 + (number >> 20) % 9000);
            images.write_at(offset, &noise(number, len as usize));
            extents.push(format!("{{\"offset\": {offset}, \"length\": {len}}}"));
        }
        let list = format!("{{\"extents\": [{}]}}", extents.join(", "));
        let outcome = import(&mut images, round, &list, Some(round));
        assert!(read(&outcome) <= 6, "{}", read(&outcome));
    }
    images.assert_whole();
}

#[test]
fn a_list_of_changes_is_not_believed_with_another_parent_than_its_own() {
    let mut images = Images::of(&noise(1, 8 * BLOCK as usize));
    images.keep();
    images.write_at(BLOCK, b"not in the list");
    images.keep();
    images.write_at(3 * BLOCK, b"in the list");
    let list = format!(
        "{{\"extents\": [{{\"offset\": {}, \"length\": 11}}]}}",
        3 * BLOCK
    );
    assert_eq!(read(&import(&mut images, 1, &list, None)), 1);
    // Of the second snapshot, but compared with the first; and with the newest, which is neither.
    assert_eq!(read(&import(&mut images, 1, &list, Some(0))), 8);
    assert_eq!(read(&import(&mut images, 1, &list, None)), 8);
    images.assert_whole();
}
