//! The commands of docs/HYPERVISORS.md that can be tried without a hypervisor, as they stand there.

use crate::bench::{Bench, binary};
use crate::exports::has_all;
use std::fs;
use std::path::Path;

/// The commands that the page has under a mark.
fn commands(mark: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/HYPERVISORS.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("<!-- tried: {mark} -->\n```sh\n");
    let (_, rest) = page.split_once(&begin).expect("the page has the mark");
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_commands_of_the_page_back_up_a_machine_and_then_what_changed() {
    if !has_all(&["qemu-nbd", "qemu-img", "qemu-io"]) {
        return;
    }
    let bench = Bench::new();
    let directory = binary().parent().unwrap().display().to_string();
    let run = |mark: &str| {
        let commands = commands(mark);
        // The server ends a moment later.
        bench.sh(&format!(
            "PATH={directory}:$PATH; set -o pipefail; {commands}
            while pgrep -f \"qemu-nbd.*$PWD\" >&2; do sleep 0.01; done"
        ));
    };
    bench.sh("head -c 5M /dev/urandom > disk.raw; truncate -s 9M disk.raw
        qemu-img convert -f raw -O qcow2 disk.raw web.qcow2");
    run("first");
    bench.sh("qemu-io -f qcow2 -c 'write -q -P 7 3M 100k' web.qcow2
        qemu-img convert -f qcow2 -O raw web.qcow2 now.raw");
    run("next");
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let trackers = snapshots
        .iter()
        .map(|it| it["images"][0]["tracker"].as_str().unwrap());
    assert_eq!(trackers.collect::<Vec<_>>(), ["none", "bitmap"]);
    let stored = snapshots[1]["bytes_stored"].as_u64().unwrap();
    assert!(stored < 2 << 20, "{stored}");
    bench.ok(&["restore", "latest", "--target", "restored"]);
    bench.sh("cmp restored now.raw");
}
