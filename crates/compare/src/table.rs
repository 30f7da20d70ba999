//! The report as tables for a terminal, at most a hundred columns wide.

use super::adapters::ToolKind;
use super::figures;
use super::options::Case;
use super::report::{Report, Tool};

const GAP: &str = "  ";

/// All tables, ended by a line end.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let title = "Seconds by the clock, medians; in brackets the ratio to the fastest peer";
    text.push_str(&block(title, &times(report)));
    let resources = resources(report);
    if resources.len() > 1 {
        text.push('\n');
        text.push_str(&block("Space and memory", &resources));
    }
    let troubles = troubles(report);
    if !troubles.is_empty() {
        text.push('\n');
        for line in troubles {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// The heading of a column.
fn heading(case: Case) -> &'static str {
    match case {
        Case::Scan => "scan",
        Case::First => "first",
        Case::Unchanged => "unchanged",
        Case::Changed => "1 % + 1 %",
        Case::Restore => "restore",
        Case::OneFile => "one file",
    }
}

fn times(report: &Report) -> Vec<Vec<String>> {
    let heading = std::iter::once(String::new())
        .chain(report.cases.iter().map(|case| heading(*case).to_owned()));
    let mut rows = vec![heading.collect()];
    for tool in &report.tools {
        let cells = report
            .cases
            .iter()
            .map(|case| time_cell(report, *case, tool));
        rows.push(std::iter::once(name(tool)).chain(cells).collect());
    }
    rows
}

fn time_cell(report: &Report, case: Case, tool: &Tool) -> String {
    let Some(cell) = report.cell(case, tool.name) else {
        return "-".to_owned();
    };
    match (cell.seconds, cell.ratio, &cell.trouble) {
        (Some(seconds), Some(ratio), _) => format!(
            "{} ({})",
            figures::seconds(seconds.median),
            figures::ratio(ratio)
        ),
        (Some(seconds), None, _) => figures::seconds(seconds.median),
        (None, _, Some(trouble)) => trouble.words().0.to_owned(),
        (None, _, None) => "-".to_owned(),
    }
}

fn resources(report: &Report) -> Vec<Vec<String>> {
    let headings = [
        "",
        "repository",
        "growth",
        "peak memory",
        "reads first",
        "reads unchanged",
    ];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for tool in report
        .tools
        .iter()
        .filter(|tool| tool.kind != ToolKind::Reference)
    {
        let bytes = |value: Option<f64>| value.map_or("-".to_owned(), figures::bytes);
        let reads = |case| {
            let reads = report.cell(case, tool.name).and_then(|cell| cell.reads);
            reads.map_or("-".to_owned(), |reads| figures::short_count(reads.median))
        };
        rows.push(vec![
            name(tool),
            bytes(
                report
                    .repository_bytes(Case::First, tool.name)
                    .map(|spread| spread.median),
            ),
            bytes(report.growth_bytes(tool.name).map(|spread| spread.median)),
            bytes(report.peak_memory_bytes(tool.name)),
            reads(Case::First),
            reads(Case::Unchanged),
        ]);
    }
    rows
}

/// One line for each cell without numbers, caveats and absent tools.
fn troubles(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for tool in &report.tools {
        for case in &report.cases {
            if let Some(trouble) = report.cell(*case, tool.name).and_then(|cell| cell.trouble) {
                let (word, why) = trouble.words();
                lines.push(format!("{}, {}: {word}: {why}", tool.name, heading(*case)));
            }
        }
    }
    for absent in &report.absent {
        let get = if absent.get.is_empty() {
            String::new()
        } else {
            format!(" ({})", absent.get)
        };
        lines.push(format!("{} took no part: {}{get}", absent.name, absent.why));
    }
    lines.extend(
        report
            .caveats
            .iter()
            .map(|caveat| format!("Note: {caveat}")),
    );
    lines
}

fn name(tool: &Tool) -> String {
    match tool.kind {
        ToolKind::Reference => format!("[{}]", tool.name),
        _ => tool.name.to_owned(),
    }
}

/// First column to the left, the others to the right.
fn block(title: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let letters = |text: &str| text.chars().count();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| letters(cell))
            .max()
    };
    let widths: Vec<_> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = format!("{title}\n");
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - letters(cell));
            let padded = if column == 0 {
                format!("{cell}{padding}")
            } else {
                format!("{GAP}{padding}{cell}")
            };
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn columns_stand_straight_and_ratios_are_to_the_fastest_peer() {
        let text = table(&samples::report());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "               first    unchanged");
        assert_eq!(lines[2], "bale  10.0 s (0.50×)  1.00 s (1×)");
        assert_eq!(lines[3], "tar      20.0 s (1×)  1.00 s (1×)");
        assert_eq!(lines[4], "borg     40.0 s (2×)       failed");
        let widest = lines.iter().take(5).map(|line| line.chars().count()).max();
        assert!(widest <= Some(100));
        assert!(text.contains("borg, unchanged: failed: exit 2: <b>&\"'"));
        assert!(text.contains("kopia took no part: not installed (https://example.org/?a=1&b=2)"));
    }
}
