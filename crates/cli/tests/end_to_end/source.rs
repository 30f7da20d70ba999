//! Everything a tree holds goes in and comes back.

use crate::bench::{Bench, have, is_root, skipped};
use crate::tree::assert_same;

const HARD_LINKS: u32 = 300;
const LEVELS: u32 = 300;

/// All kinds of entries that whoever runs the test may make.
pub fn fill(bench: &Bench) {
    bench.sh(
        r#"cd source
        mkdir -p plain readonly sticky attributes odd times holes
        for i in $(seq 1 200); do echo "$i" > plain/f$i; done
        head -c 3000000 /dev/urandom > plain/large
        ln -s f1 plain/link; ln -s '/no where' plain/dangling; mkfifo plain/fifo
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("plain/socket")' || true
        echo x > odd/$'new\nline'; echo x > odd/$'esc\e[2J'; echo x > odd/$'bad\xff\xfe'
        echo x > odd/"$(printf 'n%.0s' $(seq 255))"; echo x > 'odd/ space '; echo x > 'odd/a\b*[?'
        truncate -s 8M holes/all; truncate -s 8M holes/middle
        printf data | dd of=holes/middle bs=1 seek=5000000 conv=notrunc status=none
        cp --sparse=never holes/middle holes/zeros
        echo suid > sticky/suid; chmod 4755 sticky/suid; echo sgid > sticky/sgid; chmod 2755 sticky/sgid
        chmod 1777 sticky; echo no > plain/none; chmod 000 plain/none; echo inside > readonly/f
        touch -d @-1000000000.5 times/before; touch -d @7000000000.000000001 times/after
        touch -h -d @123.987654321 plain/link; touch -d @-0.000000001 times/minus; chmod 0555 readonly"#,
    );
    bench.sh(&format!(
        "cd source; echo many > plain/many; for i in $(seq 2 {HARD_LINKS}); do ln \
        plain/many odd/many$i; done"
    ));
    bench.sh(&format!(
        "cd source; d=deep; for i in $(seq {LEVELS}); do d=$d/levelled; done; mkdir \
        -p $d; echo bottom > $d/f"
    ));
}

#[test]
fn everything_a_tree_holds_comes_back_exactly() {
    let bench = Bench::new();
    fill(&bench);
    if have("setfattr") {
        bench.sh(
            "cd source; setfattr -n user.note -v 0x0001ff attributes; setfattr -n user.x -v y \
            plain/f1; setfattr -n user.long -v $(printf 'v%.0s' $(seq 3000)) plain/f2",
        );
    } else {
        skipped("setfattr");
    }
    if have("setfacl") {
        bench.sh("cd source; setfacl -m u:1234:rwx plain/f3; setfacl -d -m g:77:rx attributes");
    } else {
        skipped("setfacl");
    }
    if is_root() {
        bench.sh(
            "cd source; mknod plain/null c 1 3; mknod plain/block b 7 200; chown 1234:77 \
            plain/f4; chown -h 5:6 plain/link; chown 9:9 plain; chown 3:4 sticky/suid; chmod 4755 \
            sticky/suid",
        );
    } else {
        skipped("devices and owners need root");
    }
    let summary = bench.backup();
    for field in [
        "snapshot",
        "files",
        "dirs",
        "others",
        "bytes",
        "hard_links",
        "files_new",
        "files_changed",
        "files_unmodified",
        "bytes_read",
        "bytes_stored",
        "problems",
        "seconds",
        "dry_run",
    ] {
        assert!(
            summary.get(field).is_some(),
            "{field} is promised: {summary}"
        );
    }
    assert_eq!(summary["problems"], 0);
    assert_eq!(summary["hard_links"], HARD_LINKS);
    assert_eq!(summary["files_new"], summary["files"]);

    let address = bench.address("");
    let restored = bench.run(&["restore", &address, "--target", "out", "--json", "--verify"]);
    assert_eq!(restored.code, 0, "{restored}");
    let summary = restored.summary();
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["differences"], 0);
    assert_eq!(summary["losses"].as_array().unwrap().len(), 0, "{summary}");
    assert_same(&bench.source, &bench.path("out"));
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn paths_that_are_not_utf8_are_told_exactly_and_names_cannot_steer_a_terminal() {
    let bench = Bench::new();
    bench.sh("echo x > source/$'bad\\xff'; echo x > source/$'esc\\e[2J\\nnext'");
    bench.backup();
    let entries = bench
        .ok(&["ls", &bench.address(""), "--json"])
        .of_type("entry");
    let bad = entries.iter().find(|entry| entry["path_b64"].is_string());
    let exact = std::process::Command::new("base64")
        .arg("-d")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut exact = exact.unwrap();
    std::io::Write::write_all(
        &mut exact.stdin.take().unwrap(),
        bad.unwrap()["path_b64"].as_str().unwrap().as_bytes(),
    )
    .unwrap();
    let exact = exact.wait_with_output().unwrap().stdout;
    assert!(
        exact.ends_with(b"/source/bad\xff"),
        "{}",
        exact.escape_ascii()
    );
    let text = bench.ok(&["ls", &bench.address("")]);
    assert!(!text.out.contains(&0x1b), "{text}");
    assert_eq!(
        text.text()
            .lines()
            .filter(|line| line.contains("next"))
            .count(),
        1
    );
}
