//! What another program says changed: `backup --changes`.

use crate::bench::Bench;
use std::fs;

#[test]
fn lists_of_other_programs_save_reading_and_are_of_the_snapshot_that_is_named() {
    let bench = Bench::new();
    bench.sh("head -c 20M /dev/urandom > disk.img");
    bench.ok(&["backup", "--image", "disk.img"]);
    let write = |block: u32| {
        bench.sh(&format!(
            "printf changed | dd of=disk.img bs=1M seek={block} conv=notrunc status=none"
        ));
    };
    bench.write(
        "thin.xml",
        "<superblock uuid=\"\" time=\"0\" transaction=\"1\" data_block_size=\"128\" \
         nr_data_blocks=\"320\"><diff left=\"0\" right=\"1\"><same begin=\"0\" length=\"32\"/>\
         <different begin=\"32\" length=\"1\"/></diff></superblock>",
    );
    bench.write("era.xml", "<blocks><block block=\"3\"/></blocks>");
    bench.write(
        "list.json",
        "{\"extents\": [{\"offset\": 4194304, \"length\": 7}]}",
    );
    let backup = |words: &[&str]| {
        let all = [&["backup", "--image", "disk.img", "--json"], words].concat();
        bench.ok(&all).summary()["bytes_read"].as_u64().unwrap() >> 20
    };
    write(2);
    assert_eq!(
        backup(&[
            "--changes",
            "thin_delta:thin.xml",
            "--changes-since",
            "latest"
        ]),
        1
    );
    write(3);
    let era = [
        "--changes",
        "era_invalidate:era.xml",
        "--changes-since",
        "latest",
    ];
    let ran = bench.run(&[&["backup", "--image", "disk.img"], &era[..]].concat());
    assert!(
        ran.code == 1 && ran.err.contains("--changes-block-size"),
        "{ran}"
    );
    // The end of a range may be meant as one of its blocks, but this is no range.
    assert_eq!(
        backup(&[&era[..], &["--changes-block-size", "1M"]].concat()),
        1
    );
    write(4);
    assert_eq!(
        backup(&["--changes", "json:list.json", "--changes-since", "latest"]),
        1
    );
    bench.ok(&["restore", "latest", "--target", "restored.img"]);
    bench.sh("cmp restored.img disk.img");
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn a_list_that_is_no_list_stops_the_backup_before_anything_is_stored() {
    let bench = Bench::new();
    bench.sh("head -c 3M /dev/urandom > disk.img");
    bench.ok(&["backup", "--image", "disk.img"]);
    bench.write("cut.xml", "<blocks><block block=\"3\"/>");
    bench.write(
        "beyond.json",
        "{\"extents\": [{\"offset\": 3145728, \"length\": 1}]}",
    );
    let since = ["--changes-since", "latest"];
    for (words, code, said) in [
        (&["--changes", "json:nothing.json"][..], 1, "nothing.json"),
        (&["--changes", "json:cut.xml"], 1, "no list of extents"),
        (
            &[
                "--changes",
                "era_invalidate:cut.xml",
                "--changes-block-size",
                "4K",
            ],
            1,
            "cut short",
        ),
        (&["--changes", "json:beyond.json"], 1, "of another device"),
        (&["--changes", "list.json"], 2, "thin_delta:FILE"),
        (
            &["--changes", "json:cut.xml", "--image", "disk.img"],
            2,
            "one image",
        ),
        (&["--changes", "json:cut.xml", "--force"], 2, "--force"),
    ] {
        let ran = bench.run(&[&["backup", "--image", "disk.img"], words, &since].concat());
        assert_eq!(ran.code, code, "{ran}");
        assert!(ran.err.contains(said), "{ran}");
    }
    let ran = bench.run(&["backup", "--image", "disk.img", "--changes", "json:cut.xml"]);
    assert_eq!(ran.code, 2, "{ran}");
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(snapshots.len(), 1);
    assert!(fs::metadata(bench.path("cut.xml")).is_ok());
}
