//! The report as one page that needs nothing else: no script, no font, no picture from anywhere.

mod letters;
mod plot;
mod plots;
mod treemap;

use std::collections::BTreeSet;

use super::adapters::Kind;
use super::figures;
use super::markup::Markup;
use super::options::Case;
use super::report::{Cell, Report, Tool, Trouble};
use super::statistics::Spread;

const STYLE: &str = include_str!("html/style.css");

/// The page.
pub fn html(report: &Report) -> String {
    let mut page = Markup::default();
    page.literal("<!DOCTYPE html>");
    page.open("html", &[("lang", "en")]);
    page.open("head", &[]);
    page.empty("meta", &[("charset", "utf-8")]);
    page.empty(
        "meta",
        &[
            ("name", "viewport"),
            ("content", "width=device-width, initial-scale=1"),
        ],
    );
    page.element(
        "title",
        &[],
        &format!("bale compare: {} files", figures::count(report.files)),
    );
    page.open("style", &[]);
    page.literal(STYLE);
    page.close();
    page.close();
    page.open("body", &[]);
    page.open("main", &[]);
    write_head(report, &mut page);
    write_times(report, &mut page);
    write_section(
        &mut page,
        "Where the time goes",
        "Every rectangle is a tool at one kind of work; its area is the median of its seconds, so areas may be compared across the whole picture.",
    );
    treemap::write(report, &mut page);
    write_section(
        &mut page,
        "Work by work",
        "Every run is a pale dot, the median a full one; axes are logarithmic, so equal distances are equal ratios. Rings are references that are no backup tools.",
    );
    plots::write_times(report, &mut page);
    write_section(
        &mut page,
        "Space, memory and the disk",
        "Repositories after the first backup; what a further backup of 1 % changed and 1 % new files adds; the largest process; operations of the disk that holds the tree.",
    );
    plots::write_resources(report, &mut page);
    write_resources(report, &mut page);
    write_circumstances(report, &mut page);
    write_tools(report, &mut page);
    write_runs(report, &mut page);
    page.close();
    page.finish()
}

fn write_section(page: &mut Markup, heading: &str, text: &str) {
    page.element("h2", &[], heading);
    page.element("p", &[("class", "lead")], text);
}

fn write_head(report: &Report, page: &mut Markup) {
    page.element(
        "h1",
        &[],
        &format!(
            "{} files, {} tools",
            figures::count(report.files),
            report
                .tools
                .iter()
                .filter(|tool| tool.kind != Kind::Reference)
                .count()
        ),
    );
    let rounds = report
        .runs
        .iter()
        .map(|run| run.round)
        .collect::<BTreeSet<_>>()
        .len();
    let runs = if rounds == 1 {
        "one run of each".to_owned()
    } else {
        format!("medians of up to {rounds} runs")
    };
    let lead = format!(
        "{} in {} files, {runs}, {}. The comparison took {}.",
        figures::bytes(report.bytes as f64),
        figures::count(report.files),
        report.started,
        figures::seconds(report.seconds)
    );
    page.element("p", &[("class", "lead")], &lead);
    if report.is_interrupted {
        page.element(
            "p",
            &[("class", "caveat")],
            "It was interrupted; this is what there was by then.",
        );
    }
    if let Some(why) = &report.broken_by {
        page.element(
            "p",
            &[("class", "caveat")],
            &format!("It ended early: {why}."),
        );
    }
    for caveat in &report.caveats {
        let mut letters = caveat.chars();
        let first = letters
            .next()
            .map(|letter| letter.to_uppercase().to_string())
            .unwrap_or_default();
        page.element(
            "p",
            &[("class", "caveat")],
            &format!("{first}{}.", letters.as_str()),
        );
    }
    page.open("div", &[("class", "tiles")]);
    for case in &report.cases {
        write_tile(report, *case, page);
    }
    page.close();
}

/// The best of ours beside the fastest peer.
fn write_tile(report: &Report, case: Case, page: &mut Markup) {
    let ours = report.tools.iter().filter(|tool| tool.kind == Kind::Ours);
    let best = ours.filter_map(|tool| {
        let cell = report.cell(case, tool.name)?;
        Some((tool.name, cell.seconds?.median, cell.ratio?))
    });
    let best = best.min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some((name, seconds, ratio)), Some((peer, peer_seconds))) =
        (best, report.fastest_peer(case))
    else {
        return;
    };
    page.open("div", &[("class", "tile")]);
    page.element("span", &[("class", "what")], case.title());
    page.element(
        "b",
        &[("class", if ratio < 1.0 { "win" } else { "" })],
        &figures::ratio(ratio),
    );
    page.element(
        "span",
        &[],
        &format!("{name} {}", figures::seconds(seconds)),
    );
    page.element(
        "span",
        &[],
        &format!("fastest peer: {peer} {}", figures::seconds(peer_seconds)),
    );
    page.close();
}

fn write_times(report: &Report, page: &mut Markup) {
    write_section(
        page,
        "Times",
        "Seconds by the clock; below them the ratio to the fastest peer, and the least and the greatest of several runs. The fastest tool of a column is shaded; references, in italics, are no backup tools and stand outside of that.",
    );
    page.open("div", &[("class", "scroll")]);
    page.open("table", &[("class", "table")]);
    page.open("thead", &[]);
    page.open("tr", &[]);
    page.element("th", &[], "tool");
    for case in &report.cases {
        page.element("th", &[], case.title());
    }
    page.close();
    page.close();
    page.open("tbody", &[]);
    for tool in &report.tools {
        page.open("tr", &[("class", kind_class(tool.kind))]);
        page.element("th", &[("scope", "row")], tool.name);
        for case in &report.cases {
            write_time_cell(report, *case, tool, page);
        }
        page.close();
    }
    page.close();
    page.close();
    page.close();
}

fn write_time_cell(report: &Report, case: Case, tool: &Tool, page: &mut Markup) {
    let Some(cell) = report.cell(case, tool.name) else {
        page.element("td", &[("class", "none")], "–");
        return;
    };
    let Some(seconds) = cell.seconds else {
        write_trouble(cell.trouble.as_ref(), page);
        return;
    };
    let is_best = tool.kind != Kind::Reference && fastest(report, case) == Some(seconds.median);
    page.open("td", &[("class", if is_best { "best" } else { "" })]);
    page.element("b", &[], &figures::seconds(seconds.median));
    if let Some(ratio) = cell.ratio {
        page.element("small", &[], &figures::ratio(ratio));
    }
    if cell.runs > 1 {
        page.element("small", &[], &range(seconds));
    }
    page.close();
}

fn range(spread: Spread) -> String {
    format!(
        "{} – {}",
        figures::seconds(spread.min),
        figures::seconds(spread.max)
    )
}

fn write_trouble(trouble: Option<&Trouble>, page: &mut Markup) {
    let (word, why) = trouble.map_or(("–", ""), |trouble| trouble.words());
    let class = if matches!(trouble, Some(Trouble::Failed(_))) {
        "bad"
    } else {
        "none"
    };
    page.element("td", &[("class", class), ("title", why)], word);
}

/// Least median of all tools that are no references.
fn fastest(report: &Report, case: Case) -> Option<f64> {
    let tools = report
        .tools
        .iter()
        .filter(|tool| tool.kind != Kind::Reference);
    let medians = tools.filter_map(|tool| Some(report.cell(case, tool.name)?.seconds?.median));
    medians.min_by(f64::total_cmp)
}

fn kind_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "ours",
        Kind::Peer => "peer",
        Kind::Reference => "reference",
    }
}

fn write_resources(report: &Report, page: &mut Markup) {
    page.open("div", &[("class", "scroll")]);
    page.open("table", &[("class", "table dense")]);
    page.open("thead", &[]);
    page.open("tr", &[]);
    for heading in [
        "tool",
        "work",
        "CPU",
        "CPU of others",
        "peak memory",
        "read",
        "reads",
        "written",
        "writes",
        "repository",
    ] {
        let class = if heading == "work" { "left" } else { "" };
        page.element("th", &[("class", class)], heading);
    }
    page.close();
    page.close();
    page.open("tbody", &[]);
    for tool in &report.tools {
        let mut name = tool.name;
        for case in &report.cases {
            if let Some(cell) = report
                .cell(*case, tool.name)
                .filter(|cell| cell.seconds.is_some())
            {
                write_resource_row(report, tool, (name, *case), &cell, page);
                name = "";
            }
        }
    }
    page.close();
    page.close();
    page.close();
}

fn write_resource_row(
    report: &Report,
    tool: &Tool,
    (name, case): (&str, Case),
    cell: &Cell,
    page: &mut Markup,
) {
    let shown = |spread: Option<Spread>, figure: fn(f64) -> String| {
        spread.map_or("–".to_owned(), |spread| figure(spread.median))
    };
    let others = Spread::of(
        report
            .good(case, tool.name)
            .filter_map(|run| run.other_cpu_seconds),
    );
    let class = format!(
        "{}{}",
        kind_class(tool.kind),
        if name.is_empty() { "" } else { " new" }
    );
    page.open("tr", &[("class", &class)]);
    page.element("th", &[("scope", "row")], name);
    page.element("td", &[("class", "left")], case.title());
    for text in [
        shown(cell.cpu_seconds, figures::seconds),
        shown(others, figures::seconds),
        shown(cell.peak_memory_bytes, figures::bytes),
        shown(cell.read_bytes, figures::bytes),
        shown(cell.reads, figures::short_count),
        shown(cell.written_bytes, figures::bytes),
        shown(cell.writes, figures::short_count),
        shown(
            report
                .repository_bytes(case, tool.name)
                .filter(|_| tool.kind != Kind::Reference),
            figures::bytes,
        ),
    ] {
        page.element("td", &[], &text);
    }
    page.close();
}

fn write_circumstances(report: &Report, page: &mut Markup) {
    write_section(
        page,
        "Circumstances",
        "What the numbers depend on. Ratios on one page may be compared; seconds of two machines may not.",
    );
    page.open("dl", &[]);
    page.element("dt", &[], "command");
    page.open("dd", &[]);
    page.element("code", &[], &report.command_line);
    page.close();
    page.close();
    let mut topics: Vec<&str> = Vec::new();
    for fact in &report.circumstances {
        if !topics.contains(&fact.topic) {
            topics.push(fact.topic);
        }
    }
    for topic in topics {
        page.element("h3", &[], topic);
        page.open("dl", &[]);
        for fact in report
            .circumstances
            .iter()
            .filter(|fact| fact.topic == topic)
        {
            page.element("dt", &[], &fact.name);
            page.element("dd", &[], &fact.value);
        }
        page.close();
    }
}

fn write_tools(report: &Report, page: &mut Markup) {
    write_section(
        page,
        "Tools",
        "Versions, and exactly what was run. Scripts end at the first command that fails; each runs in an empty environment with its home, its caches and its repository below the work directory.",
    );
    page.open("pre", &[]);
    page.text(VARIABLES);
    page.close();
    for tool in &report.tools {
        page.open("div", &[("class", "command")]);
        page.element("h3", &[], tool.name);
        let note = if tool.note.is_empty() {
            String::new()
        } else {
            format!(": {}", tool.note)
        };
        page.element(
            "p",
            &[("class", "note")],
            &format!("{}{note}", tool.version),
        );
        for (word, script) in &tool.commands {
            page.element("span", &[], word);
            page.element("pre", &[], script);
        }
        page.close();
    }
    if report.absent.is_empty() {
        return;
    }
    page.element("h3", &[], "Not taking part");
    page.open("dl", &[]);
    for absent in &report.absent {
        page.element("dt", &[], absent.name);
        let get = if absent.get.is_empty() {
            String::new()
        } else {
            format!("; {}", absent.get)
        };
        page.element("dd", &[], &format!("{}{get}", absent.why));
    }
    page.close();
}

const VARIABLES: &str = "SRC the tree · DEV the device below it · REPO the repository · CACHE the tool's own directory\n\
DST where to restore · DST_DEV the device below that · ONE the path of one file · NUMBER of the latest backup, from 1\n\
A restore is followed by: sync -f \"$DST\" (a device: sync \"$DST_DEV\"), which is part of the time.";

fn write_runs(report: &Report, page: &mut Markup) {
    page.open("details", &[]);
    page.element("summary", &[], &format!("All {} runs", report.runs.len()));
    page.open("div", &[("class", "scroll")]);
    page.open("table", &[("class", "table")]);
    page.open("thead", &[]);
    page.open("tr", &[]);
    for heading in [
        "round",
        "work",
        "tool",
        "seconds",
        "CPU",
        "CPU of others",
        "peak memory",
        "result",
    ] {
        let is_left = ["work", "tool", "result"].contains(&heading);
        page.element(
            "th",
            &[("class", if is_left { "left" } else { "" })],
            heading,
        );
    }
    page.close();
    page.close();
    page.open("tbody", &[]);
    for run in &report.runs {
        let measured = run.measured.as_ref();
        let shown =
            |value: Option<f64>, figure: fn(f64) -> String| value.map_or("–".to_owned(), figure);
        page.open("tr", &[]);
        page.element("th", &[], &run.round.to_string());
        page.element("td", &[("class", "left")], run.case.title());
        page.element("td", &[("class", "left")], run.tool);
        page.element(
            "td",
            &[],
            &shown(measured.map(|run| run.wall_seconds), figures::seconds),
        );
        let cpu = measured.map(|run| run.user_seconds + run.system_seconds);
        page.element("td", &[], &shown(cpu, figures::seconds));
        page.element(
            "td",
            &[],
            &shown(
                measured.and_then(|run| run.other_cpu_seconds),
                figures::seconds,
            ),
        );
        page.element(
            "td",
            &[],
            &shown(
                measured.and_then(|run| Some(run.peak_memory_bytes? as f64)),
                figures::bytes,
            ),
        );
        let result = run.trouble.as_ref().map(|trouble| trouble.words());
        let result = result.map_or("ok".to_owned(), |(word, why)| format!("{word}: {why}"));
        page.element("td", &[("class", "wrap")], &result);
        page.close();
    }
    page.close();
    page.close();
    page.close();
    page.close();
}

#[cfg(test)]
mod tests {
    use super::super::markup::check_well_formed;
    use super::super::samples;
    use super::*;

    #[test]
    fn the_page_is_well_formed_whatever_tools_say() {
        let page = html(&samples::report());
        let elements = check_well_formed(&page).unwrap();
        assert!(elements > 200, "{elements}");
        for forbidden in [
            "<script",
            "</td></script>",
            "<1>",
            "<done>",
            "<fast>",
            "<b>&",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("exit 2: &lt;b&gt;&amp;&quot;&#39;&lt;/td&gt;"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = html(&samples::report());
        for outside in ["src=", "href=", "url(", "@import", "http-equiv"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_comparison_without_any_number_still_is_a_page() {
        let mut report = samples::report();
        report.runs.clear();
        assert!(check_well_formed(&html(&report)).is_ok());
        report.tools.clear();
        report.cases.clear();
        assert!(check_well_formed(&html(&report)).is_ok());
    }
}
