use super::*;

const MIB: u64 = IMAGE_BLOCK_BYTES;

fn thin(inner: &str) -> Result<Vec<Range<u64>>, ChangeListError> {
    let text = format!(
        "<superblock uuid=\"\" time=\"1\" transaction=\"2\" data_block_size=\"128\" \
         nr_data_blocks=\"100\">\n  {inner}\n</superblock>\n"
    );
    read_change_list(text.as_bytes(), ChangeListFormat::ThinDelta, None)
}

fn era(text: &str) -> Result<Vec<Range<u64>>, ChangeListError> {
    read_change_list(text.as_bytes(), ChangeListFormat::EraInvalidate, Some(MIB))
}

fn json(text: &str) -> Result<Vec<Range<u64>>, ChangeListError> {
    read_change_list(text.as_bytes(), ChangeListFormat::Json, None)
}

#[test]
fn a_list_of_thin_delta_is_read_in_both_of_its_forms() {
    // Blocks of 64 KiB.
    let short = "<diff left=\"1\" right=\"2\"><same begin=\"0\" length=\"48\"/>\
                 <different begin=\"48\" length=\"1\"/><right_only begin=\"49\" length=\"15\"/>\
                 <left_only begin=\"160\" length=\"17\"/></diff>";
    let expected = vec![3 * MIB..4 * MIB, 10 * MIB..12 * MIB];
    assert_eq!(thin(short).unwrap(), expected);
    let long = "<diff left=\"1\" right=\"2\"><same><range begin=\"0\" data_begin=\"7\" \
                length=\"48\"/></same><different><range begin=\"48\" left_data_begin=\"1\" \
                right_data_begin=\"2\" length=\"16\"/></different>\
                <left_only><range begin=\"160\" data_begin=\"3\" length=\"17\"/></left_only></diff>";
    assert_eq!(thin(long).unwrap(), expected);
    assert_eq!(thin("<diff left=\"1\" right=\"1\"/>").unwrap(), []);
}

#[test]
fn a_list_of_era_invalidate_and_one_of_extents_are_read_and_rounded_to_more() {
    let list = "<blocks>\n <block block=\"3\"/>\n <range begin=\"7\" end=\"9\"/>\n</blocks>\n";
    assert_eq!(era(list).unwrap(), [3 * MIB..4 * MIB, 7 * MIB..10 * MIB]);
    assert_eq!(era("<blocks/>").unwrap(), []);
    let list = "{\"made_by\": \"x\", \"extents\": [{\"offset\": 5000000, \"length\": 1}, \
                {\"offset\": 0, \"length\": 1048577}, {\"offset\": 9, \"length\": 0}]}";
    assert_eq!(json(list).unwrap(), [0..2 * MIB, 4 * MIB..5 * MIB]);
    assert_eq!(json("{\"extents\": []}").unwrap(), []);
}

#[test]
fn what_is_cut_short_anywhere_is_refused() {
    let lists = [
        "<blocks><block block=\"3\"/><range begin=\"7\" end=\"9\"/></blocks>",
        "{\"extents\": [{\"offset\": 5000000, \"length\": 1}]}",
        "<superblock data_block_size=\"128\"><diff left=\"1\" right=\"2\"><different begin=\"4\" \
         length=\"1\"/></diff></superblock>",
    ];
    let formats = [
        ChangeListFormat::EraInvalidate,
        ChangeListFormat::Json,
        ChangeListFormat::ThinDelta,
    ];
    for (list, format) in lists.into_iter().zip(formats) {
        let size = (format == ChangeListFormat::EraInvalidate).then_some(4096);
        assert!(read_change_list(list.as_bytes(), format, size).is_ok());
        for len in 0..list.len() {
            let cut = read_change_list(&list.as_bytes()[..len], format, size);
            assert!(cut.is_err(), "{}", &list[..len]);
        }
    }
}

#[test]
fn what_is_not_known_is_refused_and_not_left_out() {
    for inner in [
        "",
        "<device dev_id=\"1\"/>",
        "<diff/><diff/>",
        "<diff><changed begin=\"1\" length=\"1\"/></diff>",
        "<diff><different begin=\"1\"/></diff>",
        "<diff><different length=\"1\"/></diff>",
        "<diff><different first begin=\"1\" length=\"1\"/></diff>",
        "<diff><different begin=1 length=\"1\"/></diff>",
        "<diff><different begin=\"-1\" length=\"1\"/></diff>",
        "<diff><different begin=\"+1\" length=\"1\"/></diff>",
        "<diff><different begin=\"1\" length=\"18446744073709551615\"/></diff>",
        "<diff>&lt;</diff>",
        "<superblock data_block_size=\"1\"/>",
    ] {
        assert!(thin(inner).is_err(), "{inner}");
    }
    for text in [
        "",
        "<blocks/><blocks/>",
        "<ranges/>",
        "<blocks><range begin=\"9\" end=\"7\"/></blocks>",
        "<blocks><range begin=\"9\"/></blocks>",
        "<!DOCTYPE blocks><blocks/>",
    ] {
        assert!(era(text).is_err(), "{text}");
    }
    for text in [
        "[]",
        "{}",
        "{\"extents\": [{\"offset\": 1}]}",
        "{\"extents\": [{\"offset\": 1, \"length\": -1}]}",
        "{\"extents\": [{\"offset\": 1, \"length\": 1, \"unit\": 512}]}",
        "{\"extents\": [{\"offset\": 18446744073709551615, \"length\": 1}]}",
    ] {
        assert!(json(text).is_err(), "{text}");
    }
    let list = read_change_list(b"<blocks/>", ChangeListFormat::EraInvalidate, None);
    assert!(matches!(list, Err(ChangeListError::NoBlockSize)));
    // 128 are sectors, as a table of the device mapper has them.
    for bytes in [0, 1, 128, 512, 4095, 6144] {
        let era = ChangeListFormat::EraInvalidate;
        let list = read_change_list(b"<blocks/>", era, Some(bytes));
        assert!(
            matches!(list, Err(ChangeListError::BlockSize(_))),
            "{bytes}"
        );
    }
    let list = read_change_list(b"{\"extents\": []}", ChangeListFormat::Json, Some(1));
    assert!(matches!(list, Err(ChangeListError::BlockSizeTwice)));
}

#[test]
fn a_list_of_more_stretches_than_are_kept_is_refused_and_one_out_of_order_is_sorted() {
    let mut blocks = ChangedBlocks::default();
    for block in (0..1000).rev() {
        blocks.push(block, 1, MIB).unwrap();
    }
    assert_eq!(
        blocks.finish().unwrap(),
        std::slice::from_ref(&(0..1000 * MIB))
    );
    let mut blocks = ChangedBlocks::default();
    let mut pushed = (0..3 * CHANGE_RANGES_MAX as u64).map(|block| blocks.push(2 * block, 1, MIB));
    assert!(pushed.any(|pushed| matches!(pushed, Err(ChangeListError::TooMany))));
}
