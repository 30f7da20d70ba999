//! `find` by what is no name: size, time, kind, content; and of each path one snapshot.

use crate::bench::Bench;
use serde_json::Value;

fn paths(bench: &Bench, entries: &[Value]) -> Vec<String> {
    let cut = bench.source.as_os_str().len();
    let path = |entry: &Value| entry["path"].as_str().unwrap()[cut..].to_owned();
    entries.iter().map(path).collect()
}

fn found(bench: &Bench, words: &[&str]) -> Vec<String> {
    let source = bench.source.display().to_string();
    let all = [&["find", "--json", "--below", &source], words].concat();
    paths(bench, &bench.ok(&all).of_type("entry"))
}

#[test]
fn find_needs_no_pattern_if_there_is_a_condition_and_all_conditions_hold() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir d; head -c 4096 /dev/zero > d/big.bin; head -c 10 /dev/zero > small.bin; \
         ln -s x link; mkfifo pipe; touch -d '2001-02-03 04:05:06' d/big.bin; touch -d '3 days \
         ago' small.bin; touch -h -d 2001-01-01 link pipe; touch -d 2020-01-01 d .",
    );
    bench.backup();
    let found = |words: &[&str]| found(&bench, words);
    assert_eq!(found(&["--min-size", "4K"]), ["/d/big.bin"]);
    assert_eq!(
        found(&["--max-size", "4095"]),
        ["/small.bin"],
        "a size is one of files"
    );
    assert_eq!(found(&["--type", "l,p"]), ["/link", "/pipe"]);
    assert_eq!(found(&["--type", "d"]), ["", "/d"]);
    assert_eq!(found(&["--newer-than", "7d"]), ["/small.bin"]);
    assert_eq!(
        found(&["-O", "2001-02-03 04:05:06", "-N", "2001-02-03 04:05:06"]),
        ["/d/big.bin"]
    );
    assert_eq!(
        found(&["--newest", "2001-02-01", "--type", "l"]),
        ["/link"],
        "restic's word"
    );
    assert_eq!(
        found(&["*.bin", "--older-than", "2001-12-31"]),
        ["/d/big.bin"]
    );
    let entry = &bench.ok(&["find", "big.bin", "--json"]).of_type("entry")[0];
    let hash = entry["content_hash"].as_str().unwrap();
    assert_eq!(found(&["--content-hash", hash]), ["/d/big.bin"]);
    let nothing = bench.run(&["find", "--min-size", "5K", "--type", "f"]);
    assert_eq!(nothing.code, 1, "{nothing}");
    for (words, advice) in [
        (&["find"][..], "nothing to look for"),
        (&["find", "--min-size", "x"], "not a size"),
        (&["find", "--newer-than", "tomorrow"], "no moment"),
        (&["find", "--type", "q"], "possible values"),
        (
            &["find", "--min-size", "2K", "--max-size", "1K"],
            "nothing can match",
        ),
        (
            &["find", "a", "--latest", "--earliest"],
            "cannot be used with",
        ),
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        assert!(ran.err.contains(advice), "{words:?}: {ran}");
    }
}

/// The newest snapshot that has a file is where to restore it from; the oldest says when it came.
#[test]
fn of_each_path_the_newest_or_oldest_snapshot_that_has_it_is_found() {
    let bench = Bench::new();
    let snapshot = |script: &str| {
        bench.sh(script);
        bench.backup()["snapshot"].as_str().unwrap().to_owned()
    };
    let first = snapshot("cd source; mkdir a; echo 1 > a/gone; echo 1 > stays; echo 1 > a/stays");
    let second = snapshot("cd source; rm a/gone; echo 1 > new");
    let third = snapshot("cd source; head -c 99 /dev/zero > stays");
    let source = bench.source.display().to_string();
    let once = |words: &[&str]| {
        let all = [&["find", "--json", "--below", &source], words].concat();
        let entries = bench.ok(&all).of_type("entry");
        let snapshots = entries
            .iter()
            .map(|entry| entry["snapshot"].as_str().unwrap().to_owned());
        paths(&bench, &entries)
            .into_iter()
            .zip(snapshots)
            .collect::<Vec<_>>()
    };
    let pairs = |list: &[(&str, &String)]| {
        let own = |(path, id): &(&str, &String)| ((*path).to_owned(), (*id).clone());
        list.iter().map(own).collect::<Vec<_>>()
    };
    assert_eq!(
        once(&["--type", "f", "--latest"]),
        pairs(&[
            ("/a/gone", &first),
            ("/a/stays", &third),
            ("/new", &third),
            ("/stays", &third)
        ])
    );
    assert_eq!(
        once(&["--type", "f", "--earliest"]),
        pairs(&[
            ("/a/gone", &first),
            ("/a/stays", &first),
            ("/new", &second),
            ("/stays", &first)
        ])
    );
    // The newest that is as small as that, and not the newest of all.
    assert_eq!(
        once(&["stays", "--max-size", "10", "--latest"])[1],
        pairs(&[("/stays", &second)])[0]
    );
    let text = bench.ok(&["find", "gone", "--latest"]).text();
    assert!(
        text.starts_with(&first[..8]) && text.trim_end().ends_with("/a/gone"),
        "{text}"
    );
}

/// Durations are counted back from now, also beside a date.
#[test]
fn a_date_and_a_duration_make_a_window() {
    let bench = Bench::new();
    bench.sh("touch -d 2020-05-05 source/old");
    bench.backup();
    let window = ["--newer-than", "2000-01-01", "--older-than", "1h"];
    let found = bench.ok(&[&["find", "old"], &window[..]].concat());
    assert!(found.text().contains("source/old"), "{found}");
}
