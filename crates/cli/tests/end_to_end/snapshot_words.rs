//! What is said when a snapshot command fails: the command that was given, what it did, and nothing
//! that is not so.

use crate::bench::Bench;

/// It named `sh`, told of a snapshot that never was, and did not name a directory that is missing.
#[test]
fn every_way_in_which_a_snapshot_command_fails_is_told_as_it_was() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    let none = "there is no snapshot to read";
    for (command, told) in [
        ("no-such-command", &["127", "did not find it", none][..]),
        ("/etc/passwd", &["126", "could not run it", none]),
        ("exit 7", &["exit status: 7", none]),
        ("true", &["exit status: 0", none]),
        ("kill -9 $$", &["SIGKILL", "may still be there"]),
        // It ends when nobody reads on, not when the wait is over.
        (
            "exec yes",
            &["prints too much", "SIGPIPE", "may still be there"],
        ),
        (
            "echo ready; cat",
            &["names no directory and no device", "directory PATH"],
        ),
        (
            "echo directory rel; echo ready; cat",
            &["names rel", "no absolute path"],
        ),
        (
            "echo directory /no/where; echo ready; cat",
            &["/no/where: No such file"],
        ),
        (
            "echo directory /etc/passwd; echo ready; cat",
            &["/etc/passwd is no directory"],
        ),
        (
            "echo device /no/where; echo ready; cat",
            &["names no directory"],
        ),
        (
            "echo ready; cat; exit 5",
            &[
                "no directory and no device",
                "exit status: 5",
                "may still be there",
            ],
        ),
    ] {
        let words = ["backup", "source", "--json", "--snapshot-command", command];
        let ran = bench.run(&words);
        assert_eq!(ran.code, 1, "{command}: {ran}");
        let text = ran.of_type("error")[0]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            text.contains(&format!("the snapshot command {command:?}")),
            "{text}"
        );
        for word in told {
            assert_eq!(text.matches(word).count(), 1, "{command}, {word}: {text}");
        }
        let is_there = told.contains(&"may still be there");
        assert_eq!(text.contains("may still"), is_there, "{command}: {text}");
    }
    assert!(
        bench
            .ok(&["snapshots", "--json"])
            .of_type("snapshot")
            .is_empty()
    );
    let file = ["backup", "source/file", "--snapshot-command", "true"];
    let file = bench.run(&file);
    assert!(
        file.code == 1
            && file
                .err
                .contains("source/file cannot be read from a storage snapshot"),
        "{file}"
    );
    assert_eq!(
        bench
            .run(&["backup", "source", "--snapshot-command", ""])
            .code,
        2
    );
}

#[test]
fn a_snapshot_that_was_not_released_is_told_by_its_name_and_the_backup_stands() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    for (end, how) in [("exit 5", "exit status: 5"), ("kill -9 $$", "SIGKILL")] {
        let command = format!(
            "echo $BALE_SNAPSHOT_NAME >name; echo directory $BALE_SOURCE; echo ready; cat \
             >/dev/null; {end}"
        );
        let words = [
            "backup",
            "source",
            "--force",
            "--json",
            "--snapshot-command",
            &command,
        ];
        let ran = bench.ok(&words);
        let name = std::fs::read_to_string(bench.path("name")).unwrap();
        let told = ran.of_type("note");
        let told = told.iter().filter_map(|note| note["message"].as_str());
        let told: Vec<_> = told
            .filter(|text| text.contains("may still be there"))
            .collect();
        assert_eq!(told.len(), 1, "{ran}");
        assert!(
            told[0].contains(how) && told[0].contains(name.trim()),
            "{ran}"
        );
        assert!(ran.summary()["snapshot"].is_string());
    }
}
