//! `diff --content`: what changed in files, and not only that they did; and which source is meant.

use crate::bench::{Bench, have, skipped};

#[test]
fn lines_that_differ_are_those_of_diff_u_and_binary_files_are_named() {
    if !have("diff") {
        return skipped("diff");
    }
    let bench = Bench::new();
    bench.sh(
        "cd source; seq 60 > text; printf 'a\\0b' > binary; ln -s one link; seq 9 > touched; head \
         -c 2M /dev/zero > large; cp text old",
    );
    bench.backup();
    bench.sh(
        "cd source; sed -i -e 's/^7$/seven/' -e 30d -e '$aend' text; printf 'a\\0c' > binary; ln \
         -sfn two link; touch -d 2001-01-01 touched; printf x | dd of=large bs=1 seek=1M \
         conv=notrunc status=none",
    );
    bench.backup();
    let ran = bench.ok(&["diff", "latest~1", "latest", "--content"]);
    let text = ran.text();
    let mut command = bench.prepared(std::process::Command::new("diff"));
    let expected = command
        .args(["-u", "source/old", "source/text"])
        .output()
        .unwrap();
    let expected = String::from_utf8(expected.stdout).unwrap();
    let hunks = expected.splitn(3, '\n').nth(2).unwrap();
    assert!(
        hunks.contains("+seven") && text.contains(hunks),
        "{text}\n{hunks}"
    );
    let at = |name: &str| format!("M  {}/{name}\n", bench.source.display());
    assert!(
        text.contains(&format!(
            "{}   the bytes differ from byte 3 on\n",
            at("binary")
        )),
        "{text}"
    );
    assert!(text.contains(&format!(
        "{}   the bytes differ from byte 1,048,577 on\n",
        at("large")
    )));
    assert!(text.contains("-one\n+two\n"), "{text}");
    assert!(!text.contains("touched"), "only in metadata: {text}");
    let changes = bench
        .ok(&["diff", "latest~1", "latest", "--content", "--json"])
        .of_type("change");
    let change = |name: &str| {
        let ends = |one: &&serde_json::Value| one["path"].as_str().unwrap().ends_with(name);
        changes.iter().find(ends).unwrap().clone()
    };
    assert_eq!(change("/text")["diff"], hunks);
    assert_eq!(
        (
            &change("/binary")["first_difference"],
            &change("/binary")["diff"]
        ),
        (&2.into(), &serde_json::Value::Null)
    );
    // Without being asked, nothing is read.
    let plain = bench
        .ok(&["diff", "latest~1", "latest", "--json"])
        .of_type("change");
    assert!(
        plain.iter().all(|one| one.get("diff").is_none()),
        "{plain:?}"
    );
}

/// The list of pieces of a file says where its bytes are: that may differ, and the bytes not.
#[test]
fn content_that_cannot_be_read_is_a_problem_and_no_silence() {
    let bench = Bench::new();
    bench.sh("cd source; seq 9 > text");
    bench.backup();
    bench.sh("cd source; seq 8 > text");
    bench.backup();
    // Not the metadata, which is read first: the packs of data are the larger ones here, or equal.
    bench.sh("head -c 2M /dev/urandom > source/large");
    bench.backup();
    bench.sh("printf x | dd of=source/large bs=1 seek=1M conv=notrunc status=none");
    bench.backup();
    let whole = bench.ok(&["diff", "latest~1", "latest", "--content"]);
    assert!(whole.text().contains("byte 1,048,577"), "{whole}");
    bench.sh(&format!(
        "find {}/packs -type f -size +500k -delete",
        bench.repository().display()
    ));
    let ran = bench.run(&["diff", "latest~1", "latest", "--content"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        ran.text().contains("M  ") && ran.err.contains("compare "),
        "{ran}"
    );
    assert_eq!(bench.run(&["diff", "latest~1", "latest"]).code, 0);
}

/// README's `diff latest~1 latest` compared one source with another as soon as there were two.
#[test]
fn latest_and_the_one_before_it_are_of_one_source_however_many_there_are() {
    let bench = Bench::new();
    bench.sh("mkdir other; echo a > source/a; echo o > other/o");
    bench.backup();
    bench.ok(&["backup", "other"]);
    bench.ok(&["backup", "source", "--host", "elsewhere"]);
    bench.sh("echo b > source/b");
    bench.backup();
    let ran = bench.ok(&["diff", "latest~1", "latest"]);
    let source = bench.source.display().to_string();
    assert_eq!(
        ran.text(),
        format!("+  {source}/b\nM  {source}/\n").replace(&format!("M  {source}/\n"), "")
    );
    assert_eq!(
        ran.err
            .lines()
            .take(2)
            .filter(|line| line.ends_with(&source))
            .count(),
        2,
        "{ran}"
    );
    // With the newest one of another source the words mean that source, and say so.
    bench.sh("echo p > other/p");
    bench.ok(&["backup", "other"]);
    let ran = bench.ok(&["diff", "latest~1", "latest"]);
    assert!(
        ran.text().contains("/other/p") && !ran.text().contains("source"),
        "{ran}"
    );
    let chosen = bench.ok(&["diff", "latest~1", "latest", "--path", &source]);
    assert!(chosen.text().contains("/source/b"), "{chosen}");
    let other = bench.run(&["diff", "latest~1", "latest", "--host", "elsewhere"]);
    assert_eq!(other.code, 1, "{other}");
}
