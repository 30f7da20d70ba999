//! The text format of Prometheus, for the textfile collector of node_exporter: which metrics there
//! are, and how they are written and read back.
//!
//! One bad line makes the collector drop a whole file, so a series is written once, and no name can
//! break out of its label.

use std::collections::BTreeMap;
use std::fmt::Write;

/// All metrics, in the order in which they are written, with what they mean. All are gauges: they
/// are of the last run, or of the repository as it was looked at.
pub const METRICS: [(&str, &str); 32] = [
    (
        LAST_RUN,
        "When the last run of the command ended, whatever came of it.",
    ),
    (EXIT_CODE, "Exit code of the last run."),
    (
        LAST_SUCCESS,
        "When the last run ended that did its work: exit code 0, or a backup's 3 with a snapshot.",
    ),
    ("bale_run_duration_seconds", "How long the last run took."),
    (
        "bale_files",
        "Files of the last run, by what became of them.",
    ),
    (
        "bale_bytes",
        "Bytes of the last run, by what became of them.",
    ),
    ("bale_problems", "Problems that the last run named."),
    (
        "bale_snapshot_files",
        "Files in the snapshot that the last run made.",
    ),
    (
        "bale_snapshot_bytes",
        "Bytes of the files in the snapshot that the last run made.",
    ),
    (
        "bale_snapshots",
        "Snapshots of the last run, by what became of them.",
    ),
    (
        "bale_objects",
        "Objects of the last run, by what became of them.",
    ),
    (
        "bale_damage",
        "Damaged objects and chunks that the last check found.",
    ),
    (
        "bale_paths_lost",
        "Paths that cannot be restored whole, as the last check found.",
    ),
    (
        "bale_differences",
        "Differences that the last restore found when it verified.",
    ),
    (
        "bale_repository_bytes",
        "Bytes of all packs, as the last prune saw them.",
    ),
    (
        "bale_status_timestamp_seconds",
        "When bale status looked at the repository.",
    ),
    (
        "bale_repository_sources",
        "Sources that have backups, or runs, in the repository.",
    ),
    (
        "bale_repository_snapshots_missing",
        "Snapshots that were seen, are gone, and were not forgotten here.",
    ),
    (
        "bale_repository_snapshots_damaged",
        "Snapshots that cannot be read.",
    ),
    (
        "bale_source_last_backup_timestamp_seconds",
        "When the last backup of the source began.",
    ),
    (
        "bale_source_age_seconds",
        "How long ago that was when bale status looked.",
    ),
    (
        "bale_source_well",
        "1 if bale status found no trouble with the source, else 0.",
    ),
    (
        "bale_source_sudden_change",
        "1 if a recent run replaced its files as somebody who encrypts them would, else 0.",
    ),
    (
        "bale_source_files",
        "Files in the last snapshot of the source.",
    ),
    (
        "bale_source_bytes",
        "Bytes of the files in the last snapshot of the source.",
    ),
    (
        "bale_source_stored_bytes",
        "Bytes that the last backup of the source stored.",
    ),
    (
        "bale_source_problems",
        "Problems of the last backup of the source.",
    ),
    ("bale_source_snapshots", "Snapshots of the source."),
    (
        "bale_profile_well",
        "1 if bale status found no trouble with the runs of the profile, else 0.",
    ),
    (
        "bale_profile_last_run_timestamp_seconds",
        "When the last run of the profile ended, as this machine recorded it.",
    ),
    (
        "bale_profile_last_run_exit_code",
        "How it ended, hooks among it.",
    ),
    (
        "bale_profile_next_due_timestamp_seconds",
        "When the profile is due next.",
    ),
];

pub const LAST_RUN: &str = "bale_last_run_timestamp_seconds";
pub const EXIT_CODE: &str = "bale_last_run_exit_code";
pub const LAST_SUCCESS: &str = "bale_last_success_timestamp_seconds";

/// Label names and values of a series.
pub type Labels = Vec<(&'static str, String)>;

/// Values of metrics, to be written as one file.
#[derive(Debug, Default)]
pub struct Exposition {
    series: BTreeMap<&'static str, Vec<(String, f64)>>,
}

impl Exposition {
    /// Adds one value of a metric of [`METRICS`]; of a series that is there already, nothing.
    pub fn push(&mut self, name: &str, labels: &Labels, value: f64) {
        let Some((name, _)) = METRICS.iter().find(|(known, _)| *known == name) else {
            debug_assert!(false, "{name} is no metric");
            return;
        };
        let labels = labels_text(labels);
        let series = self.series.entry(name).or_default();
        if series.iter().all(|(other, _)| *other != labels) {
            series.push((labels, value));
        }
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, help) in METRICS {
            let Some(series) = self.series.get(name) else {
                continue;
            };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in series {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
        text
    }
}

fn labels_text(labels: &Labels) -> String {
    let labels = labels.iter().map(|(name, value)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    labels.collect::<Vec<_>>().join(",")
}

/// The value of a metric in a file that anybody may have written: the first that is a number.
pub fn value_in(text: &str, name: &str) -> Option<f64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let of_name = lines.filter(|rest| rest.starts_with(['{', ' ']));
    let mut values = of_name.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
    values.find(|value| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(path: &str) -> Labels {
        vec![("paths", path.to_owned()), ("host", "web1".to_owned())]
    }

    #[test]
    fn a_file_groups_the_series_of_a_metric_and_has_each_once() {
        let mut file = Exposition::default();
        file.push("bale_source_files", &labels("/a"), 1.0);
        file.push(LAST_SUCCESS, &labels("/a"), 1_795_240_329.5);
        file.push("bale_source_files", &labels("/b"), 3.0);
        file.push("bale_source_files", &labels("/a"), 9.0);
        let text = file.text();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with("# HELP"))
            .collect();
        assert_eq!(
            lines,
            [
                "# TYPE bale_last_success_timestamp_seconds gauge",
                "bale_last_success_timestamp_seconds{paths=\"/a\",host=\"web1\"} 1795240329.5",
                "# TYPE bale_source_files gauge",
                "bale_source_files{paths=\"/a\",host=\"web1\"} 1",
                "bale_source_files{paths=\"/b\",host=\"web1\"} 3",
            ]
        );
    }

    #[test]
    fn no_name_breaks_out_of_its_label() {
        let mut file = Exposition::default();
        file.push("bale_problems", &labels("\"} 0\nbale_x \\"), 1.0);
        let text = file.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.ends_with("{paths=\"\\\"} 0\\nbale_x \\\\\",host=\"web1\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn only_a_number_is_read_back() {
        for (text, value) in [
            ("bale_a{x=\"y\"} 12.5\n", Some(12.5)),
            ("bale_a 3\n", Some(3.0)),
            (
                "# TYPE bale_a gauge\nbale_ab 4\nbale_a{x=\" 7\"} 5",
                Some(5.0),
            ),
            (
                "bale_a NaN\nbale_a inf\nbale_a -1\nbale_a x\nbale_a\n\0\n",
                None,
            ),
        ] {
            assert_eq!(value_in(text, "bale_a"), value, "{text:?}");
        }
    }

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let mut names: Vec<_> = METRICS.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        assert!(names.iter().all(|name| name.starts_with("bale_")));
    }
}
