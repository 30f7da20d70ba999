//! `--metrics-dir`: what Prometheus is told of runs, also of those that failed, and that the alerts
//! and the dashboard in `contrib` speak of nothing else.

use crate::bench::{Bench, Ran, have};
use crate::serving;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Series by name and labels.
type Series = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn files(bench: &Bench) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(bench.path("metrics")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// All that a collector would read.
fn series(bench: &Bench) -> Series {
    let mut all = Series::new();
    for file in files(bench) {
        assert_eq!(
            file.extension().unwrap(),
            "prom",
            "nothing else is left: {file:?}"
        );
        let text = std::fs::read_to_string(&file).unwrap();
        all.extend(parsed(&text));
    }
    all
}

/// The text format, held to what the collector demands: each metric once with its type, its series
/// together, no series twice, a newline at the end.
fn parsed(text: &str) -> Series {
    let (mut all, mut types, mut current) = (Series::new(), BTreeSet::new(), String::new());
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            assert!(
                types.insert(name.to_owned()),
                "{name} stands in two places: {text}"
            );
            current = name.to_owned();
        } else if !line.starts_with("# HELP ") {
            let (name, labels, value) = sample(line);
            assert_eq!(name, current, "{text}");
            let value = value.parse::<f64>().unwrap();
            let one = all.insert((name, labels), value);
            assert!(one.is_none(), "twice: {line}");
        }
    }
    all
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, &str) {
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ').unwrap();
        return (name.to_owned(), BTreeMap::new(), value);
    };
    let (mut rest, mut labels) = (rest, BTreeMap::new());
    loop {
        let (label, after) = rest.split_once("=\"").unwrap();
        let (mut value, mut letters) = (String::new(), after.char_indices());
        let end = loop {
            match letters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(letters.next().unwrap().1),
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(label.to_owned(), value);
        match after[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                return (
                    name.to_owned(),
                    labels,
                    after[end + 1..].strip_prefix("} ").unwrap(),
                );
            }
        }
    }
}

/// The one value of a metric with these labels.
fn value(series: &Series, name: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |other: &BTreeMap<String, String>| {
        labels
            .iter()
            .all(|(label, value)| other.get(*label).is_some_and(|it| it == value))
    };
    let found: Vec<_> = series
        .iter()
        .filter(|((other, labels), _)| other == name && is_it(labels))
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {series:?}");
    *found[0].1
}

fn has(series: &Series, name: &str) -> bool {
    series.keys().any(|(other, _)| other == name)
}

fn measured(bench: &Bench, words: &[&str]) -> Ran {
    let directory = bench.path("metrics");
    let mut command = bench.command();
    command.args(words).env("BALE_METRICS_DIR", directory);
    Ran::from(command.output().unwrap())
}

fn with_directory() -> Bench {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("metrics")).unwrap();
    bench.write("source/a", "one");
    bench.write("source/b", vec![7u8; 100_000]);
    bench
}

const BACKUP: [(&str, &str); 1] = [("command", "backup")];
const SUCCESS: &str = "bale_last_success_timestamp_seconds";
const LAST_RUN: &str = "bale_last_run_timestamp_seconds";
const EXIT_CODE: &str = "bale_last_run_exit_code";

#[test]
fn the_last_success_outlives_runs_that_fail() {
    let bench = with_directory();
    let ran = measured(&bench, &["backup", "source"]);
    assert_eq!(ran.code, 0, "{ran}");
    let first = series(&bench);
    let success = value(&first, SUCCESS, &BACKUP);
    assert_eq!(success, value(&first, LAST_RUN, &BACKUP));
    assert_eq!(value(&first, EXIT_CODE, &BACKUP), 0.0);
    let new = [("command", "backup"), ("state", "new")];
    assert_eq!(value(&first, "bale_files", &new), 2.0);
    assert_eq!(value(&first, "bale_snapshot_bytes", &BACKUP), 100_003.0);

    // A repository that cannot be opened: the name of its file is the same.
    std::fs::rename(bench.repository(), bench.path("away")).unwrap();
    let ran = measured(&bench, &["backup", "source", "--key-file", "/nowhere"]);
    assert_ne!(ran.code, 0, "{ran}");
    std::fs::rename(bench.path("away"), bench.repository()).unwrap();
    let failed = series(&bench);
    assert_eq!(files(&bench).len(), 1);
    assert_eq!(value(&failed, SUCCESS, &BACKUP), success);
    assert!(value(&failed, LAST_RUN, &BACKUP) >= success);
    assert_eq!(value(&failed, EXIT_CODE, &BACKUP), f64::from(ran.code));
    assert!(
        !has(&failed, "bale_files"),
        "of a run that did nothing: {failed:?}"
    );

    // With problems, and a snapshot: that is a success, and the problems are another alert.
    let ran = measured(&bench, &["backup", "source", "missing"]);
    assert_eq!(ran.code, 3, "{ran}");
    let of_both = format!(
        "{} {}",
        bench.path("missing").display(),
        bench.source.display()
    );
    let both = [("paths", of_both.as_str())];
    let third = series(&bench);
    assert_eq!(files(&bench).len(), 2, "other sources are other work");
    assert_eq!(value(&third, EXIT_CODE, &both), 3.0);
    assert_eq!(
        value(&third, SUCCESS, &both),
        value(&third, LAST_RUN, &both)
    );
    assert_eq!(value(&third, "bale_problems", &both), 1.0);
    // What was never good says so by its absence.
    let ran = measured(&bench, &["backup", "not-there"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(
        series(&bench)
            .keys()
            .filter(|(name, _)| name == SUCCESS)
            .count(),
        2
    );
}

#[test]
fn what_cannot_be_written_is_a_problem_and_no_failure() {
    let bench = with_directory();
    let backup = |directory: &str| {
        let words = ["backup", "source", "--json", "--metrics-dir", directory];
        bench.run(&words)
    };
    bench.write("a-file", "x");
    for directory in ["nowhere", "a-file"] {
        let ran = backup(directory);
        assert_eq!(ran.code, 3, "{ran}");
        assert_eq!(ran.of_type("problem").len(), 1, "{ran}");
        assert!(ran.summary()["snapshot"].is_string(), "{ran}");
        assert!(ran.err.contains("write metrics to"), "{ran}");
    }
    // A directory stands in the place of the file, and nothing is left beside it.
    assert_eq!(backup("metrics").code, 0);
    let file = files(&bench).remove(0);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    bench.write(
        &format!("metrics/{}/x", file.file_name().unwrap().to_str().unwrap()),
        "",
    );
    let ran = backup("metrics");
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(files(&bench), [file]);
    let damage = bench.run(&["check", "--metrics-dir", "nowhere"]);
    assert_eq!(damage.code, 3, "{damage}");
}

/// Whoever can write there can put anything in the place of a file.
#[test]
fn what_is_read_back_is_believed_only_if_it_can_be() {
    let bench = with_directory();
    assert_eq!(measured(&bench, &["backup", "source"]).code, 0);
    let file = files(&bench).remove(0);
    let shown = file.display();
    for put in [
        format!("mkfifo {shown}"),
        format!("ln -s /dev/zero {shown}"),
        format!("head -c 200000 /dev/urandom > {shown}"),
        format!(
            "(echo 'bale_last_success_timestamp_seconds 5'; head -c 200000 /dev/zero) > {shown}"
        ),
        format!("echo '{SUCCESS}{{}} 99999999999' > {shown}"),
        format!("echo '{SUCCESS}{{}} NaN' > {shown}"),
    ] {
        bench.sh(&format!("rm {shown}; {put}"));
        let ran = measured(&bench, &["backup", "source", "--key-file", "/nowhere"]);
        assert_eq!(ran.code, 1, "{put}: {ran}");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file(), "{put}");
        assert!(!has(&series(&bench), SUCCESS), "{put}");
    }
    bench.sh(&format!("echo '{SUCCESS}{{}} 1234.5' > {shown}"));
    measured(&bench, &["backup", "source", "--key-file", "/nowhere"]);
    assert_eq!(value(&series(&bench), SUCCESS, &BACKUP), 1234.5);
}

#[test]
fn neither_passwords_nor_odd_names_get_into_the_files() {
    let bench = with_directory();
    bench.sh("mkdir \"$(printf 'odd\\n\"} 1\\\\ \\377')\"");
    let mut command = bench.command();
    command
        .env("BALE_PROFILE", "../nightly job")
        .args(["--metrics-dir", "metrics", "backup", "-r"])
        .arg("rest:http://me:secret@127.0.0.1:9/x")
        .args(["--retry-for", "0"]);
    for entry in std::fs::read_dir(bench.path("")).unwrap() {
        command.arg(entry.unwrap().path());
    }
    let ran = Ran::from(command.output().unwrap());
    assert_ne!(ran.code, 0, "{ran}");
    let file = files(&bench).remove(0);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("bale_---nightly-job_backup_"), "{name}");
    let series = series(&bench);
    let ((_, labels), _) = series.first_key_value().unwrap();
    assert_eq!(labels["repository"], "rest:http://***@127.0.0.1:9/x");
    assert_eq!(labels["profile"], "../nightly job");
    assert!(!labels["paths"].contains(char::is_control), "{labels:?}");
    let mut dry = bench.command();
    dry.args(["--metrics-dir", "metrics", "backup", "source", "--dry-run"]);
    dry.output().unwrap();
    assert_eq!(files(&bench).len(), 1, "a dry run is no run");
}

fn contrib(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("contrib").join(name)).unwrap()
}

/// Words of a query that are names of our metrics.
fn names(query: &str) -> BTreeSet<String> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("bale_"));
    ours.map(str::to_owned).collect()
}

/// Every kind of run that is measured, and the server's counters.
fn all_there_is(bench: &Bench) -> Series {
    let directory = bench.path("metrics").display().to_string();
    bench.ok(&["init", "-r", "second", "--new-key-file", "second.key"]);
    bench.write(
        "bale.toml",
        format!(
            "[profile.home]\nsources = {:?}\nrepository = {:?}\nkey-file = {:?}\n\
             schedule = \"daily\"\n",
            bench.source.display().to_string(),
            bench.repository().display().to_string(),
            bench
                .repository()
                .with_extension("key")
                .display()
                .to_string(),
        ),
    );
    let of_profile = ["--profiles", "bale.toml", "--state-dir", "state"];
    bench.ok(&["backup", "source"]);
    bench.ok(&[&["run", "home"][..], &of_profile].concat());
    for words in [
        &["backup", "source"][..],
        &["check", "--read-data"],
        &["forget", "--keep-last", "1"],
        &["prune"],
        &["restore", "latest", "--target", "out", "--verify"],
        &["mirror", "--to", "mirrored"],
        &[&["status"][..], &of_profile].concat(),
    ] {
        bench.ok(&[words, &["--metrics-dir", &directory]].concat());
    }
    let mut copy = bench.command();
    copy.args(["copy", "-r", "second", "--metrics-dir", &directory]);
    copy.arg("--from-repo").arg(bench.repository());
    copy.arg("--from-key-file")
        .arg(bench.repository().with_extension("key"));
    copy.arg("--key-file").arg(bench.path("second.key"));
    let ran = Ran::from(copy.output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let mut all = series(bench);
    let served = bench.repository().parent().unwrap().display().to_string();
    let (_server, address) = serving::start(bench, &["--no-auth", "--max-size", "1G", &served]);
    let answer = serving::get(&address, "/metrics", "");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    all.extend(parsed(text));
    all
}

#[test]
fn alerts_and_the_dashboard_ask_for_nothing_that_is_not_exported() {
    let bench = with_directory();
    let all = all_there_is(&bench);
    let exported: BTreeSet<&str> = all.keys().map(|(name, _)| name.as_str()).collect();
    let values = |label: &str| -> BTreeSet<&str> {
        let values = all.keys().filter_map(|(_, labels)| labels.get(label));
        values.map(String::as_str).collect()
    };
    let alerts = contrib("prometheus/alerts.yml");
    let queries: Vec<String> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned))
        .collect();
    assert_eq!(queries.len(), alerts.matches("- alert:").count());
    let dashboard: serde_json::Value = serde_json::from_str(&contrib("grafana/bale.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let queries: Vec<String> = queries.into_iter().chain(shown).collect();
    assert!(queries.len() > 25);
    for query in &queries {
        let names = names(query);
        assert!(!names.is_empty(), "{query}");
        for name in &names {
            assert!(exported.contains(name.as_str()), "{name} of {query}");
        }
        for label in ["command", "state", "kind"] {
            for selector in query.split(&format!("{label}=")).skip(1) {
                let words = selector.trim_start_matches('~').split('"').nth(1).unwrap();
                for word in words.split('|') {
                    assert!(values(label).contains(word), "{label} {word} of {query}");
                }
            }
        }
    }
    promtool(&bench);
}

/// Prometheus' own opinion, where it is installed: our parser above is held to the same rules.
fn promtool(bench: &Bench) {
    if !have("promtool") {
        return;
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/alerts.yml");
    let mut check = Command::new("promtool");
    let ran = Ran::from(check.args(["check", "rules"]).arg(rules).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    for file in files(bench) {
        let file = std::fs::File::open(file).unwrap();
        let mut check = Command::new("promtool");
        let check = check.args(["check", "metrics"]).stdin(file);
        let ran = Ran::from(check.output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
    }
}

#[test]
fn status_writes_what_it_found_of_each_source() {
    let bench = with_directory();
    bench.backup();
    bench.ok(&["backup", "source", "--host", "web\"2"]);
    let ran = measured(&bench, &["status", "--max-age", "1ns", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    let found = series(&bench);
    let of = |name: &str| value(&found, name, &[("source_host", "web\"2")]);
    assert_eq!(
        (of("bale_source_well"), of("bale_source_files")),
        (0.0, 2.0)
    );
    assert_eq!(
        (of("bale_source_bytes"), of("bale_source_snapshots")),
        (100_003.0, 1.0)
    );
    assert!(of("bale_source_last_backup_timestamp_seconds") > 1.7e9);
    assert_eq!(value(&found, "bale_repository_sources", &[]), 2.0);
    let unwritable = bench.run(&["status", "--metrics-dir", "nowhere"]);
    assert_eq!(unwritable.code, 3, "{unwritable}");
    let nagios = bench.run(&["status", "--nagios", "--metrics-dir", "nowhere"]);
    assert_eq!(nagios.code, 1, "{nagios}");
    assert!(nagios.text().starts_with("BALE WARNING - "), "{nagios}");
}
