//! Lists of sources, marks of directories and addresses of snapshots, as users write them.

#![no_main]

use bale_pipeline::filter::Mark;
use bale_repository::snapshots::Address;
use bale_source::scan::parse_list;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for zeros in [false, true] {
        let sources = parse_list(data, zeros);
        assert!(sources.iter().all(|path| !path.as_os_str().is_empty()));
    }
    let _ = Mark::parse(data);
    let address = Address::parse(data);
    assert!(!address.path.starts_with(b"/") && !address.path.ends_with(b"/"));
});
