//! What is left out, and what never is.

use crate::walk_support::{TempPlace, Walked, walk};
use bale_format::entry::EntryFlags;
use bale_pipeline::filter::{Filter, FilterOptions, Mark, Pattern, parse_exclude_file};
use bale_source::scan::ScanOptions;
use std::path::Path;

fn filter(patterns: &[&str]) -> Filter {
    let pattern = |text: &&str| Pattern {
        text: text.to_string(),
        ignore_case: false,
    };
    Filter::new(&FilterOptions {
        patterns: patterns.iter().map(pattern).collect(),
        ..FilterOptions::default()
    })
    .unwrap()
}

#[test]
fn patterns_mean_what_users_of_restic_expect() {
    let cases: [(&str, &[&str], &[&str]); 16] = [
        (
            "cache",
            &["cache", "a/cache"],
            &["a/cached", "a/cache2", "Cache"],
        ),
        ("cache/", &["a/cache"], &["a/cached"]),
        ("*.o", &["x.o", "a/b/x.o", ".o"], &["x.o/y.c", "x.obj"]),
        (
            "/home/*/tmp",
            &["home/u/tmp"],
            &["home/u/v/tmp", "x/home/u/tmp", "home/tmp"],
        ),
        ("a/*.o", &["a/x.o", "z/a/x.o"], &["a/b/x.o", "ba/x.o"]),
        ("/a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["b/a/z", "a/zz"]),
        ("a/**/z", &["x/a/b/z"], &["x/az"]),
        ("file?", &["file1", "d/fileX"], &["file", "file12"]),
        ("[a-c]x", &["ax", "d/cx"], &["dx"]),
        ("[!a-c]x", &["dx"], &["ax"]),
        ("{a,b}", &["{a,b}"], &["a", "b"]),
        ("a\\*b", &["a*b"], &["axb"]),
        ("/", &[], &["a", "a/b"]),
        ("/a", &["a"], &["b/a", "a/b"]),
        ("*", &["a", "a/b"], &[]),
        ("caf\u{e9}", &["d/caf\u{e9}"], &["cafe"]),
    ];
    for (pattern, excluded, kept) in cases {
        let filter = filter(&[pattern]);
        for path in excluded {
            assert!(
                filter.excludes(path.as_bytes()),
                "{pattern} must exclude {path}"
            );
        }
        for path in kept {
            assert!(
                !filter.excludes(path.as_bytes()),
                "{pattern} must keep {path}"
            );
        }
    }
}

#[test]
fn names_that_are_not_text_are_matched_as_bytes() {
    let filter = filter(&["*.o", "a?c"]);
    assert!(filter.excludes(b"d/\xff\xfe.o"));
    assert!(!filter.excludes(b"d/\xff\xfe"));
    assert!(filter.excludes(b"new\nline.o"));
}

#[test]
fn later_patterns_take_back_what_earlier_ones_left_out() {
    let filter = filter(&["*.log", "!keep.log", "/x/keep.log"]);
    assert!(filter.excludes(b"a.log"));
    assert!(!filter.excludes(b"d/keep.log"));
    assert!(filter.excludes(b"x/keep.log"));
}

#[test]
fn case_is_ignored_only_where_asked_for() {
    let pattern = |ignore_case| Pattern {
        text: "*.JPG".to_string(),
        ignore_case,
    };
    for (ignore_case, excluded) in [(true, true), (false, false)] {
        let filter = Filter::new(&FilterOptions {
            patterns: vec![pattern(ignore_case)],
            ..FilterOptions::default()
        });
        assert_eq!(filter.unwrap().excludes(b"a.jpg"), excluded);
    }
}

#[test]
fn pattern_that_cannot_be_understood_is_an_error_that_names_it() {
    let options = FilterOptions {
        patterns: parse_exclude_file("ok\n[unclosed", false),
        ..FilterOptions::default()
    };
    let error = Filter::new(&options).unwrap_err();
    assert!(error.to_string().contains("[unclosed"));
}

#[test]
fn exclude_files_have_comments_and_blank_lines() {
    let patterns = parse_exclude_file("# comment\n\n  *.o  \r\n!x.o\n", false);
    let texts: Vec<&str> = patterns.iter().map(|pattern| &pattern.text[..]).collect();
    assert_eq!(texts, ["*.o", "!x.o"]);
}

fn walk_with(filter: Filter, paths: &[&Path]) -> Walked {
    let options = ScanOptions {
        filter,
        ..ScanOptions::default()
    };
    walk(paths, options)
}

#[test]
fn what_is_below_an_excluded_directory_is_never_looked_at() {
    let place = TempPlace::new();
    place.write("a/skip/deep/file", b"1");
    place.write("a/keep/file.o", b"1");
    place.write("a/keep/file.c", b"1");
    let walked = walk_with(filter(&["skip", "*.o"]), &[&place.path]);
    assert_eq!(
        walked.below(&place.path),
        [&b"a"[..], b"a/keep", b"a/keep/file.c"]
    );
}

#[test]
fn sources_are_never_excluded_even_inside_an_excluded_directory() {
    let place = TempPlace::new();
    let inner = place.write("skip/inner/file", b"1");
    place.write("skip/other", b"1");
    let big = place.write("big", &[0; 100]);
    let inner = inner.parent().unwrap();
    let options = FilterOptions {
        patterns: parse_exclude_file("skip\nbig\ninner", false),
        larger_than_bytes: Some(10),
        ..FilterOptions::default()
    };
    let filter = Filter::new(&options).unwrap();
    let walked = walk_with(filter, &[&place.path, inner, &big]);
    assert_eq!(
        walked.below(&place.path),
        [&b"big"[..], b"skip", b"skip/inner", b"skip/inner/file"]
    );
}

#[test]
fn files_above_the_size_are_left_out_and_directories_and_links_are_not() {
    let place = TempPlace::new();
    place.write("d/ten", &[0; 10]);
    place.write("d/eleven", &[0; 11]);
    std::os::unix::fs::symlink("a target longer than ten", place.join("d/link")).unwrap();
    let filter = Filter::new(&FilterOptions {
        larger_than_bytes: Some(10),
        ..FilterOptions::default()
    });
    let walked = walk_with(filter.unwrap(), &[&place.path]);
    assert_eq!(walked.below(&place.path), [&b"d"[..], b"d/link", b"d/ten"]);
}

#[test]
fn marked_directories_keep_their_mark_and_lose_the_rest() {
    let place = TempPlace::new();
    let signature = b"Signature: 8a477f597d28d172789f06886806bc55\nmore";
    place.write("cache/CACHEDIR.TAG", signature);
    place.write("cache/data/file", b"1");
    place.write(
        "fake/CACHEDIR.TAG",
        b"Signature: something else, and long enough",
    );
    place.write("fake/file", b"1");
    place.write("off/.nobackup", b"");
    place.write("off/file", b"1");
    place.write("header/.ignore", b"really: yes");
    place.write("header/file", b"1");
    place.write("other/.ignore", b"real");
    place.write("other/file", b"1");
    std::fs::create_dir_all(place.join("linked")).unwrap();
    std::os::unix::fs::symlink("../cache/CACHEDIR.TAG", place.join("linked/CACHEDIR.TAG")).unwrap();
    place.write("linked/file", b"1");
    let marks = [".nobackup", ".ignore:really"].map(|text| Mark::parse(text.as_bytes()).unwrap());
    let filter = Filter::new(&FilterOptions {
        marks: [&marks[..], &[Mark::cachedir()]].concat(),
        ..FilterOptions::default()
    });
    let walked = walk_with(filter.unwrap(), &[&place.path]);
    let kept = [
        ("cache/CACHEDIR.TAG", true),
        ("cache/data", false),
        ("fake/file", true),
        ("off/.nobackup", true),
        ("off/file", false),
        ("header/.ignore", true),
        ("header/file", false),
        ("other/file", true),
        ("linked/file", true),
    ];
    for (name, expected) in kept {
        assert_eq!(walked.has(&place.join(name)), expected, "{name}");
    }
    for (name, marked) in [
        ("cache", true),
        ("off", true),
        ("header", true),
        ("fake", false),
    ] {
        let flags = walked.find(&place.join(name)).unwrap().flags;
        assert_eq!(flags.has(EntryFlags::NOT_CROSSED), marked, "{name}");
    }
    assert!(walked.notes.is_empty() && walked.problems.is_empty());
    for bad in ["", "a/b", "..", ":header"] {
        assert!(Mark::parse(bad.as_bytes()).is_none(), "{bad}");
    }
}
