//! The report for programs: JSON objects, and CSV with one line for each run.

use serde_json::{Value, json};

use super::adapters::ToolKind;
use super::figures;
use super::report::{Report, Run};
use super::statistics::Spread;

/// Columns of the CSV.
const COLUMNS: [&str; 18] = [
    "round",
    "work",
    "tool",
    "result",
    "message",
    "seconds",
    "user_seconds",
    "system_seconds",
    "other_cpu_seconds",
    "peak_memory_bytes",
    "device_reads",
    "device_read_bytes",
    "device_writes",
    "device_written_bytes",
    "repository_bytes",
    "files",
    "version",
    "started",
];

/// One run, as it is told when it ends.
pub fn run_object(run: &Run) -> Value {
    let measured = run.measured.as_ref();
    let device = measured.and_then(|measured| measured.device);
    let (result, message) = result(run);
    json!({
        "type": "run", "round": run.round, "work": run.case.word(), "tool": run.tool,
        "result": result, "message": message,
        "seconds": measured.map(|run| run.wall_seconds),
        "user_seconds": measured.map(|run| run.user_seconds),
        "system_seconds": measured.map(|run| run.system_seconds),
        "other_cpu_seconds": measured.and_then(|run| run.other_cpu_seconds),
        "peak_memory_bytes": measured.and_then(|run| run.peak_memory_bytes),
        "device_reads": device.map(|stat| stat.reads),
        "device_read_bytes": device.map(|stat| stat.read_bytes),
        "device_writes": device.map(|stat| stat.writes),
        "device_written_bytes": device.map(|stat| stat.written_bytes),
        "repository_bytes": measured.and_then(|run| run.repository_bytes),
    })
}

/// Medians of every tool at every kind of work.
pub fn cell_objects(report: &Report) -> Vec<Value> {
    let spread = |spread: Option<Spread>| {
        spread.map(|spread| json!({"median": spread.median, "min": spread.min, "max": spread.max}))
    };
    let mut objects = Vec::new();
    for case in &report.cases {
        for tool in &report.tools {
            let Some(cell) = report.cell(*case, tool.name) else {
                continue;
            };
            let trouble = cell.trouble.as_ref().map(|trouble| trouble.words());
            objects.push(json!({
                "type": "cell", "work": case.word(), "tool": tool.name,
                "kind": kind_word(tool.kind), "runs": cell.runs,
                "result": trouble.map_or("ok", |(word, _)| word),
                "message": trouble.map_or("", |(_, why)| why),
                "seconds": spread(cell.seconds), "ratio_to_fastest_peer": cell.ratio,
                "cpu_seconds": spread(cell.cpu_seconds),
                "peak_memory_bytes": spread(cell.peak_memory_bytes),
                "device_reads": spread(cell.reads), "device_read_bytes": spread(cell.read_bytes),
                "device_writes": spread(cell.writes),
                "device_written_bytes": spread(cell.written_bytes),
                "repository_bytes": spread(report.repository_bytes(*case, tool.name)),
            }));
        }
    }
    objects
}

/// Everything, for the JSON file.
pub fn report_object(report: &Report) -> Value {
    let tools: Vec<_> = report
        .tools
        .iter()
        .map(|tool| {
            let commands: serde_json::Map<String, Value> = tool
                .commands
                .iter()
                .map(|(word, script)| ((*word).to_owned(), script.as_str().into()))
                .collect();
            json!({
                "name": tool.name, "kind": kind_word(tool.kind), "version": tool.version,
                "note": tool.note,
                "commands": commands,
                "growth_bytes": report.growth_bytes(tool.name).map(|spread| spread.median),
            })
        })
        .collect();
    let absent: Vec<_> = report
        .absent
        .iter()
        .map(|absent| json!({"name": absent.name, "why": absent.why, "get": absent.get}))
        .collect();
    let circumstances: Vec<_> = report
        .circumstances
        .iter()
        .map(|fact| json!({"topic": fact.topic, "name": fact.name, "value": fact.value}))
        .collect();
    let works: Vec<_> = report
        .cases
        .iter()
        .map(|case| json!({"work": case.word(), "title": case.title()}))
        .collect();
    json!({
        "type": "report", "started": report.started, "command_line": report.command_line,
        "files": report.files,
        "bytes": report.bytes, "runs_wanted": report.runs_wanted, "seconds": report.seconds,
        "interrupted": report.is_interrupted, "broken_by": report.broken_by, "works": works,
        "caveats": report.caveats, "circumstances": circumstances,
        "tools": tools, "absent": absent, "cells": cell_objects(report),
        "runs": report.runs.iter().map(run_object).collect::<Vec<_>>(),
    })
}

/// One line for each run, with a heading.
pub fn csv(report: &Report) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for run in &report.runs {
        let object = run_object(run);
        let version = report
            .tool(run.tool)
            .map_or("", |tool| tool.version.as_str());
        let values = COLUMNS.map(|column| match column {
            "files" => report.files.to_string(),
            "version" => quoted(version),
            "started" => quoted(&report.started),
            _ => match &object[column] {
                Value::Null => String::new(),
                Value::String(words) => quoted(words),
                number => number.to_string(),
            },
        });
        text.push_str(&values.join(","));
        text.push('\n');
    }
    text
}

/// One line about a run, for people who wait.
pub fn run_line(run: &Run) -> String {
    let what = format!("{}: {}", run.case.title(), run.tool);
    match (&run.trouble, &run.measured) {
        (Some(trouble), _) => {
            let (word, why) = trouble.words();
            format!("{what}: {word}: {why}")
        }
        (None, Some(measured)) => {
            let memory = measured
                .peak_memory_bytes
                .map(|bytes| figures::bytes(bytes as f64));
            let memory = memory.map_or(String::new(), |memory| format!(", {memory}"));
            let reads = measured
                .device
                .map(|stat| format!(", {} reads", figures::count(stat.reads)));
            let seconds = figures::seconds(measured.wall_seconds);
            format!("{what}: {seconds}{memory}{}", reads.unwrap_or_default())
        }
        (None, None) => what,
    }
}

fn result(run: &Run) -> (&'static str, &str) {
    run.trouble
        .as_ref()
        .map_or(("ok", ""), |trouble| trouble.words())
}

/// The word for a kind of tool.
pub(super) fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Ours => "ours",
        ToolKind::Peer => "peer",
        ToolKind::Reference => "reference",
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn csv_has_a_line_for_each_run_and_quotes_what_tools_say() {
        let report = samples::report();
        let text = csv(&report);
        assert_eq!(text.lines().count(), 1 + report.runs.len());
        let failed = text.lines().find(|line| line.contains(",failed,")).unwrap();
        assert!(
            failed.contains(",\"exit 2: <b>&\"\"'</td></script>\u{fffd}\","),
            "{failed}"
        );
        for line in text.lines() {
            let bare: String = line.split('"').step_by(2).collect();
            assert_eq!(bare.matches(',').count(), COLUMNS.len() - 1, "{line}");
        }
    }

    #[test]
    fn the_object_of_a_cell_says_the_ratio_and_the_failure() {
        let objects = cell_objects(&samples::report());
        let of = |work: &str, tool: &str| {
            let mut objects = objects.iter();
            objects
                .find(|cell| cell["work"] == work && cell["tool"] == tool)
                .unwrap()
                .clone()
        };
        assert_eq!(of("first", "bale")["ratio_to_fastest_peer"], 0.5);
        assert_eq!(of("first", "bale")["seconds"]["median"], 10.0);
        assert_eq!(of("unchanged", "borg")["result"], "failed");
        assert_eq!(of("first", "dd")["kind"], "reference");
    }
}
