//! A small report for the tests of what shows it, with everything in it that could break a page.

use super::adapters::ToolKind;
use super::block_stat::BlockStat;
use super::options::Case;
use super::report::{Absent, Circumstance, Measured, Report, Run, Tool, Trouble};

fn run(
    round: u32,
    case: Case,
    tool: &'static str,
    wall_seconds: f64,
    repository_bytes: u64,
) -> Run {
    let measured = Measured {
        wall_seconds,
        user_seconds: wall_seconds / 2.0,
        system_seconds: wall_seconds / 4.0,
        peak_memory_bytes: Some(50 << 20),
        device: Some(BlockStat {
            reads: 1000,
            read_bytes: 4 << 20,
            writes: 1,
            written_bytes: 4096,
        }),
        repository_bytes: Some(repository_bytes),
        other_cpu_seconds: Some(0.1),
    };
    Run {
        round,
        case,
        tool,
        trouble: None,
        measured: Some(measured),
    }
}

fn tool(name: &'static str, kind: ToolKind) -> Tool {
    let commands = vec![(
        "backup",
        format!("{name} \"$SRC\" > /dev/null && echo '<done>'"),
    )];
    Tool {
        name,
        kind,
        version: format!("{name} <1> & \"more\""),
        note: "a < b",
        commands,
    }
}

/// Bale, two peers and a reference; one failure.
pub(super) fn report() -> Report {
    let mut runs = Vec::new();
    for (round, noise) in [(1, 0.0), (2, 0.5), (3, -0.5)] {
        runs.push(run(round, Case::First, "bale", 10.0 + noise, 900 << 20));
        runs.push(run(round, Case::First, "tar", 20.0 + noise, 800 << 20));
        runs.push(run(round, Case::First, "borg", 40.0 + noise, 1000 << 20));
        runs.push(run(round, Case::First, "dd", 2.0, 0));
        runs.push(run(round, Case::Unchanged, "bale", 1.0, 901 << 20));
        runs.push(run(round, Case::Unchanged, "tar", 1.0, 801 << 20));
        let trouble = Some(Trouble::Failed(
            "exit 2: <b>&\"'</td></script>\u{fffd}".to_owned(),
        ));
        runs.push(Run {
            round,
            case: Case::Unchanged,
            tool: "borg",
            trouble,
            measured: None,
        });
    }
    Report {
        started: "2026-01-02 03:04".to_owned(),
        command_line: "bale-compare --dir 'a&<b>'".to_owned(),
        files: 1_000_000,
        bytes: 1_536_000_000,
        runs_wanted: 3,
        seconds: 500.0,
        cases: vec![Case::First, Case::Unchanged],
        tools: vec![
            tool("bale", ToolKind::Ours),
            tool("tar", ToolKind::Peer),
            tool("borg", ToolKind::Peer),
            tool("dd", ToolKind::Reference),
        ],
        absent: vec![Absent {
            name: "kopia",
            why: "not installed".to_owned(),
            get: "https://example.org/?a=1&b=2",
        }],
        runs,
        circumstances: vec![Circumstance {
            topic: "Machine",
            name: "cpu".to_owned(),
            value: "<fast> & cheap".to_owned(),
        }],
        caveats: vec!["5 < 6".to_owned()],
        is_interrupted: false,
        broken_by: None,
    }
}
