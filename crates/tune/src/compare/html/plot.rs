//! Plots with a row for each tool: dots on a logarithmic axis, or bars from nothing.

use super::super::adapters::Kind;
use super::super::axis::{Axis, Round, Scale};
use super::super::markup::{Markup, px};
use super::letters;

const WIDTH: f64 = 520.0;
const NAME_WIDTH: f64 = 96.0;
const VALUE_WIDTH: f64 = 124.0;
const ROW_HEIGHT: f64 = 25.0;
const TICKS_HEIGHT: f64 = 24.0;
const TICK_SIZE: f64 = 11.0;
const TICK_GAP: f64 = 8.0;
/// So that a dot at an end of the axis stays clear of the words beside it.
const INSET: f64 = 10.0;

/// One tool.
pub(super) struct Row {
    pub name: &'static str,
    pub kind: Kind,
    /// Each run.
    pub values: Vec<f64>,
    /// What counts.
    pub median: Option<f64>,
    /// Beside the plot.
    pub label: String,
    /// To the right of that.
    pub ratio: String,
    /// When pointed at.
    pub title: String,
}

/// A plot.
pub(super) struct Plot<'a> {
    pub caption: &'a str,
    pub hint: &'a str,
    pub scale: Scale,
    pub round: Round,
    pub rows: Vec<Row>,
    pub unit: fn(f64) -> String,
}

impl Plot<'_> {
    /// Writes it; nothing if there is nothing to show.
    pub fn write(mut self, page: &mut Markup) {
        if self.rows.iter().all(|row| row.median.is_none()) {
            return;
        }
        let order = |row: &Row| row.median.unwrap_or(f64::INFINITY);
        self.rows.sort_by(|a, b| order(a).total_cmp(&order(b)));
        let numbers: Vec<f64> = self
            .rows
            .iter()
            .flat_map(|row| row.values.iter().copied().chain(row.median))
            .collect();
        let axis = Axis::around(self.scale, self.round, &numbers);
        let bottom = self.rows.len() as f64 * ROW_HEIGHT + 4.0;
        let view = format!("0 0 {} {}", px(WIDTH), px(bottom + TICKS_HEIGHT));
        page.open("figure", &[]);
        page.open("figcaption", &[]);
        page.text(self.caption);
        page.element("small", &[], self.hint);
        page.close();
        page.open(
            "svg",
            &[
                ("viewBox", &view),
                ("role", "img"),
                ("aria-label", self.caption),
            ],
        );
        self.write_axis(&axis, bottom, page);
        for (at, row) in self.rows.iter().enumerate() {
            let middle = at as f64 * ROW_HEIGHT + ROW_HEIGHT / 2.0 + 2.0;
            self.write_row(row, &axis, middle, page);
        }
        page.close();
        page.close();
    }

    fn write_axis(&self, axis: &Axis, bottom: f64, page: &mut Markup) {
        let mut free_from = f64::MIN;
        let bottom_text = px(bottom);
        let label_y = px(bottom + 15.0);
        for tick in &axis.ticks {
            let x = place(axis, *tick);
            let at = px(x);
            page.empty(
                "line",
                &[
                    ("x1", &at),
                    ("x2", &at),
                    ("y1", "0"),
                    ("y2", &bottom_text),
                    ("class", "grid"),
                ],
            );
            let label = (self.unit)(*tick);
            let half = letters::width(&label, TICK_SIZE) / 2.0;
            if x - half >= free_from {
                page.element(
                    "text",
                    &[
                        ("x", &at),
                        ("y", &label_y),
                        ("text-anchor", "middle"),
                        ("class", "tick"),
                    ],
                    &label,
                );
                free_from = x + half + TICK_GAP;
            }
        }
        let (from, to) = (px(place(axis, axis.from)), px(place(axis, axis.to)));
        page.empty(
            "line",
            &[
                ("x1", &from),
                ("x2", &to),
                ("y1", &bottom_text),
                ("y2", &bottom_text),
                ("class", "base"),
            ],
        );
    }

    fn write_row(&self, row: &Row, axis: &Axis, middle: f64, page: &mut Markup) {
        let baseline = px(middle + 4.5);
        let name_class = match row.kind {
            Kind::Ours => "name strong",
            Kind::Peer => "name",
            Kind::Reference => "name faint",
        };
        page.open("g", &[]);
        page.element("title", &[], &row.title);
        let name_x = px(NAME_WIDTH - INSET);
        page.element(
            "text",
            &[
                ("x", &name_x),
                ("y", &baseline),
                ("text-anchor", "end"),
                ("class", name_class),
            ],
            row.name,
        );
        let value_x = px(WIDTH - VALUE_WIDTH + INSET);
        let value_class = match (row.median, row.kind) {
            (None, _) | (_, Kind::Reference) => "value faint",
            (_, Kind::Ours) => "value strong",
            _ => "value",
        };
        page.element(
            "text",
            &[("x", &value_x), ("y", &baseline), ("class", value_class)],
            &row.label,
        );
        let ratio_x = px(WIDTH);
        let at = [
            ("x", ratio_x.as_str()),
            ("y", &baseline),
            ("text-anchor", "end"),
            ("class", value_class),
        ];
        page.element("text", &at, &row.ratio);
        if let Some(median) = row.median {
            match self.scale {
                Scale::Linear => write_bar(row, axis, median, middle, page),
                Scale::Log => write_dots(row, axis, median, middle, page),
            }
        }
        page.close();
    }
}

/// Pixels from the left.
fn place(axis: &Axis, number: f64) -> f64 {
    NAME_WIDTH + axis.place(number) * (WIDTH - NAME_WIDTH - VALUE_WIDTH)
}

fn kind_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => " ours",
        Kind::Peer => "",
        Kind::Reference => " reference",
    }
}

fn write_bar(row: &Row, axis: &Axis, median: f64, middle: f64, page: &mut Markup) {
    let from = place(axis, axis.from);
    let width = px((place(axis, median) - from).max(1.0));
    let (x, y) = (px(from), px(middle - 7.0));
    let class = format!("bar{}", kind_class(row.kind));
    page.empty(
        "rect",
        &[
            ("x", &x),
            ("y", &y),
            ("width", &width),
            ("height", "14"),
            ("rx", "2"),
            ("class", &class),
        ],
    );
}

fn write_dots(row: &Row, axis: &Axis, median: f64, middle: f64, page: &mut Markup) {
    let y = px(middle);
    let kind = kind_class(row.kind);
    let ends = row
        .values
        .iter()
        .fold((median, median), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
    let (from, to) = (px(place(axis, ends.0)), px(place(axis, ends.1)));
    let class = format!("range{kind}");
    page.empty(
        "line",
        &[
            ("x1", &from),
            ("x2", &to),
            ("y1", &y),
            ("y2", &y),
            ("class", &class),
        ],
    );
    let class = format!("run{kind}");
    for value in &row.values {
        page.empty(
            "circle",
            &[
                ("cx", &px(place(axis, *value))),
                ("cy", &y),
                ("r", "3.4"),
                ("class", &class),
            ],
        );
    }
    let class = format!("dot{kind}");
    page.empty(
        "circle",
        &[
            ("cx", &px(place(axis, median))),
            ("cy", &y),
            ("r", "5.2"),
            ("class", &class),
        ],
    );
}
