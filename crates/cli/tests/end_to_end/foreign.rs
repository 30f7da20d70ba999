//! What stands in a repository and is no object of it: a check names it.

use crate::bench::Bench;
use std::os::unix::fs::symlink;

const NAMED: &str = "not an object of this repository: ";

#[test]
fn a_check_names_what_is_no_object_and_what_stands_in_the_place_of_one() {
    let bench = Bench::new();
    bench.write("source/file", "x");
    bench.backup();
    let repository = bench.repository();
    let clean = bench.ok(&["check"]);
    assert!(!format!("{clean}").contains(NAMED), "{clean}");
    // What somebody has put there hides nothing.
    std::fs::write(repository.join("keys/README"), "x").unwrap();
    for words in [&["check"][..], &["check", "--scrub"]] {
        let ran = bench.ok(words);
        assert!(ran.text().contains(&format!("{NAMED}keys/README")), "{ran}");
        let quiet = bench.ok(&[words, &["-q"]].concat());
        assert_eq!(quiet.text(), "", "{quiet}");
    }
    // What is reached through a link may be gone tomorrow, and nobody reads it today.
    let name = format!("keys/{}", "ab".repeat(32));
    std::fs::write(bench.path("elsewhere"), "key").unwrap();
    symlink(bench.path("elsewhere"), repository.join(&name)).unwrap();
    let run = format!("runs/{}", "cd".repeat(16));
    symlink(bench.path("source"), repository.join(&run)).unwrap();
    for words in [&["check", "-q"][..], &["check", "--scrub"]] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 4, "{ran}");
        for path in [&name, &run] {
            assert!(
                ran.text().contains(&format!("{NAMED}{path} (a link")),
                "{ran}"
            );
        }
    }
    let ran = bench.run(&["check", "--json"]);
    assert_eq!(ran.summary()["not_objects"], 3, "{ran}");
    let kinds: Vec<_> = (ran.of_type("not_object").iter())
        .map(|entry| entry["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.len(), 3, "{ran}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "link").count(), 2);
}
