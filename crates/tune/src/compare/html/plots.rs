//! Which plots a page has.

use super::super::adapters::Kind;
use super::super::axis::Scale;
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
            rows,
            unit: figures::seconds,
        };
        plot.write(page);
    }
    page.close();
}

fn time_row(report: &Report, case: Case, tool: &Tool) -> Option<Row> {
    let cell = report.cell(case, tool.name)?;
    let label = match (cell.seconds, cell.ratio, &cell.trouble) {
        (Some(seconds), Some(ratio), _) if tool.kind != Kind::Reference => {
            format!(
                "{}  {}",
                figures::seconds(seconds.median),
                figures::ratio(ratio)
            )
        }
        (Some(seconds), ..) => figures::seconds(seconds.median),
        (None, _, Some(trouble)) => trouble.words().0.to_owned(),
        (None, ..) => "–".to_owned(),
    };
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
        title,
    })
}

/// Space, memory, operations, CPU.
pub(super) fn write_resources(report: &Report, page: &mut Markup) {
    let of = |case: Case, tool: &Tool, value: fn(&super::super::report::Cell) -> Option<Spread>| {
        report.cell(case, tool.name).and_then(|cell| value(&cell))
    };
    let plots: [(
        &str,
        &str,
        Scale,
        fn(f64) -> String,
        &dyn Fn(&Tool) -> Option<Spread>,
    ); 6] = [
        (
            "Repository",
            "after the first backup, from zero",
            Scale::Linear,
            figures::bytes,
            &|tool| {
                report
                    .repository_bytes(Case::First, tool.name)
                    .filter(|_| tool.kind != Kind::Reference)
            },
        ),
        (
            "Growth",
            "by 1 % changed + 1 % new",
            Scale::Log,
            figures::bytes,
            &|tool| {
                report
                    .growth_bytes(tool.name)
                    .filter(|_| tool.kind != Kind::Reference)
            },
        ),
        (
            "Peak memory",
            "most of any work",
            Scale::Log,
            figures::bytes,
            &|tool| {
                let peaks = report
                    .cases
                    .iter()
                    .filter_map(|case| report.cell(*case, tool.name)?.peak_memory_bytes);
                peaks
                    .filter(|_| tool.kind != Kind::Reference)
                    .max_by(|a, b| a.median.total_cmp(&b.median))
            },
        ),
        (
            "CPU of the first backup",
            "seconds of all processors",
            Scale::Log,
            figures::seconds,
            &|tool| of(Case::First, tool, |cell| cell.cpu_seconds),
        ),
        (
            "Reads of the first backup",
            "operations of the device",
            Scale::Log,
            figures::short_count,
            &|tool| of(Case::First, tool, |cell| cell.reads),
        ),
        (
            "Reads of an unchanged backup",
            "operations of the device",
            Scale::Log,
            figures::short_count,
            &|tool| of(Case::Unchanged, tool, |cell| cell.reads),
        ),
    ];
    page.open("div", &[("class", "plots")]);
    for (caption, hint, scale, unit, value) in plots {
        let rows = report
            .tools
            .iter()
            .filter_map(|tool| spread_row(tool, value(tool)?, unit))
            .collect();
        Plot {
            caption,
            hint,
            scale,
            rows,
            unit,
        }
        .write(page);
    }
    page.close();
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
        title,
    })
}
