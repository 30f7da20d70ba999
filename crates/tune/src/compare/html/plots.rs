//! Which plots a page has.

use super::super::adapters::Kind;
use super::super::axis::{Round, Scale};
use super::super::figures;
use super::super::markup::Markup;
use super::super::options::Case;
use super::super::report::{Report, Tool};
use super::super::statistics::Spread;
use super::plot::{Plot, Row};

/// One plot for each kind of work.
pub(super) fn write_times(report: &Report, page: &mut Markup) {
    page.open("div", &[("class", "plots")]);
    for case in &report.cases {
        let rows = report
            .tools
            .iter()
            .filter_map(|tool| time_row(report, *case, tool))
            .collect();
        let plot = Plot {
            caption: case.title(),
            hint: "time",
            scale: Scale::Log,
            round: Round::Decimal,
            rows,
            unit: figures::seconds,
        };
        plot.write(page);
    }
    page.close();
}

fn time_row(report: &Report, case: Case, tool: &Tool) -> Option<Row> {
    let cell = report.cell(case, tool.name)?;
    let label = match (cell.seconds, &cell.trouble) {
        (Some(seconds), _) => figures::seconds(seconds.median),
        (None, Some(trouble)) => trouble.words().0.to_owned(),
        (None, None) => "–".to_owned(),
    };
    let ratio = cell.ratio.filter(|_| tool.kind != Kind::Reference);
    let ratio = ratio.map_or(String::new(), figures::ratio);
    let title = match (cell.seconds, &cell.trouble) {
        (Some(seconds), _) => format!(
            "{}: median {}, {} to {}, {} runs",
            tool.name,
            figures::seconds(seconds.median),
            figures::seconds(seconds.min),
            figures::seconds(seconds.max),
            cell.runs
        ),
        (None, Some(trouble)) => format!(
            "{}: {}: {}",
            tool.name,
            trouble.words().0,
            trouble.words().1
        ),
        (None, None) => tool.name.to_owned(),
    };
    let values = report
        .good(case, tool.name)
        .map(|run| run.wall_seconds)
        .collect();
    Some(Row {
        name: tool.name,
        kind: tool.kind,
        values,
        median: cell.seconds.map(|spread| spread.median),
        label,
        ratio,
        title,
    })
}

/// Space, memory, operations, CPU.
pub(super) fn write_resources(report: &Report, page: &mut Markup) {
    type Figure = fn(f64) -> String;
    let rows = |unit: Figure, value: &dyn Fn(&Tool) -> Option<Spread>| -> Vec<Row> {
        let row = |tool| spread_row(tool, value(tool)?, unit);
        report.tools.iter().filter_map(row).collect()
    };
    let bytes = |caption, hint, scale, value: &dyn Fn(&Tool) -> Option<Spread>| Plot {
        caption,
        hint,
        scale,
        round: Round::Binary,
        rows: rows(figures::bytes, &|tool| {
            value(tool).filter(|_| tool.kind != Kind::Reference)
        }),
        unit: figures::bytes,
    };
    let counts = |caption, hint, unit: Figure, value: &dyn Fn(&Tool) -> Option<Spread>| Plot {
        caption,
        hint,
        scale: Scale::Log,
        round: Round::Decimal,
        rows: rows(unit, value),
        unit,
    };
    let cpu = |tool: &Tool| report.cell(Case::First, tool.name)?.cpu_seconds;
    let reads = |case: Case| move |tool: &Tool| report.cell(case, tool.name)?.reads;
    let (device, kept) = ("operations of the device", |tool: &Tool| {
        report.repository_bytes(Case::First, tool.name)
    });
    let plots = [
        bytes(
            "Repository",
            "after the first backup, from zero",
            Scale::Linear,
            &kept,
        ),
        bytes("Growth", "by 1 % changed + 1 % new", Scale::Log, &|tool| {
            report.growth_bytes(tool.name)
        }),
        bytes("Peak memory", "most of any work", Scale::Log, &|tool| {
            most_memory(report, tool)
        }),
        counts(
            "CPU of the first backup",
            "seconds of all processors",
            figures::seconds,
            &cpu,
        ),
        counts(
            "Reads of the first backup",
            device,
            figures::short_count,
            &reads(Case::First),
        ),
        counts(
            "Reads of an unchanged backup",
            device,
            figures::short_count,
            &reads(Case::Unchanged),
        ),
    ];
    page.open("div", &[("class", "plots")]);
    for plot in plots {
        plot.write(page);
    }
    page.close();
}

/// Of the work that took most.
fn most_memory(report: &Report, tool: &Tool) -> Option<Spread> {
    let cells = report
        .cases
        .iter()
        .filter_map(|case| report.cell(*case, tool.name));
    let peaks = cells.filter_map(|cell| cell.peak_memory_bytes);
    peaks.max_by(|a, b| a.median.total_cmp(&b.median))
}

/// Nothing at all has no place on a logarithmic axis; it is said in words.
fn spread_row(tool: &Tool, spread: Spread, unit: fn(f64) -> String) -> Option<Row> {
    let values = [spread.min, spread.max]
        .into_iter()
        .filter(|value| *value > 0.0)
        .collect();
    let median = Some(spread.median).filter(|median| *median > 0.0);
    let label = median.map_or("none".to_owned(), unit);
    let title = format!("{}: {label}", tool.name);
    Some(Row {
        name: tool.name,
        kind: tool.kind,
        values,
        median,
        label,
        ratio: String::new(),
        title,
    })
}
