//! Where the time goes: every tool at every kind of work as a rectangle, its area the seconds.

use super::super::adapters::Kind;
use super::super::figures;
use super::super::markup::{Markup, px};
use super::super::options::Case;
use super::super::report::{Report, Tool};
use super::super::squarify::{Rectangle, squarify};
use super::letters;

const FRAME: Rectangle = Rectangle {
    left: 0.0,
    top: 0.0,
    width: 1076.0,
    height: 620.0,
};
/// Between the border of a rectangle and its words.
const PADDING: f64 = 7.0;
const OVER_SIZE: f64 = 11.0;
const OVER_HEIGHT: f64 = 17.0;
const SIZE_MAX: f64 = 24.0;
/// Smaller letters would not be read; the words are then only in the title of the rectangle.
const SIZE_MIN: f64 = 9.5;

struct Leaf<'a> {
    case: Case,
    tool: &'a Tool,
    seconds: f64,
    ratio: Option<f64>,
}

struct Group<'a> {
    case: Case,
    leaves: Vec<Leaf<'a>>,
    seconds: f64,
}

/// Words of a rectangle, one below another.
struct Label {
    size: f64,
    lines: Vec<String>,
}

/// Writes legend and picture.
pub(super) fn write(report: &Report, page: &mut Markup) {
    let groups = groups(report);
    if groups.is_empty() {
        page.element(
            "p",
            &[("class", "none")],
            "No run went well, so there is nothing to draw.",
        );
        return;
    }
    write_legend(&groups, page);
    let view = format!("0 0 {} {}", px(FRAME.width), px(FRAME.height));
    page.open("figure", &[]);
    let title = "Treemap of the times: areas are seconds, by kind of work and tool";
    page.open(
        "svg",
        &[("viewBox", &view), ("role", "img"), ("aria-label", title)],
    );
    let weights: Vec<f64> = groups.iter().map(|group| group.seconds).collect();
    let frames = squarify(&weights, FRAME);
    for (group, frame) in groups.iter().zip(&frames) {
        write_group(group, *frame, page);
    }
    for frame in frames {
        rectangle(page, "group", frame);
        page.literal("/>");
    }
    page.close();
    page.close();
}

fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    for case in &report.cases {
        let leaf = |tool| {
            let cell = report.cell(*case, tool_name(tool))?;
            let seconds = cell.seconds?.median;
            Some(Leaf {
                case: *case,
                tool,
                seconds,
                ratio: cell.ratio,
            })
        };
        let leaves: Vec<_> = report.tools.iter().filter_map(leaf).collect();
        let seconds: f64 = leaves.iter().map(|leaf| leaf.seconds).sum();
        if seconds > 0.0 {
            groups.push(Group {
                case: *case,
                leaves,
                seconds,
            });
        }
    }
    groups
}

fn tool_name(tool: &Tool) -> &'static str {
    tool.name
}

fn write_legend(groups: &[Group<'_>], page: &mut Markup) {
    page.open("ul", &[("class", "legend")]);
    for group in groups {
        let words = format!(
            "{}: {} of all tools together",
            group.case.title(),
            figures::seconds(group.seconds)
        );
        legend_item(group.case.word(), &words, page);
    }
    legend_item("our", "bale", page);
    page.close();
}

fn legend_item(class: &str, words: &str, page: &mut Markup) {
    page.open("li", &[]);
    page.open("svg", &[("viewBox", "0 0 16 16"), ("aria-hidden", "true")]);
    page.empty(
        "rect",
        &[
            ("width", "16"),
            ("height", "16"),
            ("rx", "3"),
            ("class", class),
        ],
    );
    page.close();
    page.text(words);
    page.close();
}

fn write_group(group: &Group<'_>, frame: Rectangle, page: &mut Markup) {
    let weights: Vec<f64> = group.leaves.iter().map(|leaf| leaf.seconds).collect();
    let places = squarify(&weights, frame);
    for (leaf, place) in group.leaves.iter().zip(places) {
        // The largest lies in the corner where people begin to read, and carries the name of the work.
        let is_first = place.left <= frame.left && place.top <= frame.top;
        write_leaf(leaf, place, is_first, page);
    }
}

fn write_leaf(leaf: &Leaf<'_>, place: Rectangle, is_first: bool, page: &mut Markup) {
    let ratio = leaf.ratio.map(figures::ratio);
    let ratio = ratio.map_or(String::new(), |ratio| format!(", {ratio} the fastest peer"));
    let seconds = figures::seconds(leaf.seconds);
    page.open("g", &[]);
    page.element(
        "title",
        &[],
        &format!(
            "{}, {}: {seconds}{ratio}",
            leaf.case.title(),
            leaf.tool.name
        ),
    );
    let class = match leaf.tool.kind {
        Kind::Ours => "leaf our".to_owned(),
        Kind::Peer => format!("leaf {}", leaf.case.word()),
        Kind::Reference => format!("leaf weak {}", leaf.case.word()),
    };
    rectangle(page, &class, place);
    page.literal("/>");
    let text_class = if leaf.tool.kind == Kind::Ours {
        "our"
    } else {
        ""
    };
    let mut top = place.top + PADDING;
    let mut height = place.height - 2.0 * PADDING;
    let width = place.width - 2.0 * PADDING;
    let over = leaf.case.title();
    if is_first && letters::bold_width(over, OVER_SIZE) <= width && OVER_HEIGHT + SIZE_MIN <= height
    {
        let class = format!("over {text_class}");
        write_line(
            page,
            (place.left + PADDING, top + OVER_SIZE),
            None,
            class.trim_end(),
            over,
        );
        top += OVER_HEIGHT;
        height -= OVER_HEIGHT;
    }
    if let Some(label) = label(leaf.tool.name, &seconds, width, height, place.area()) {
        for line in &label.lines {
            let baseline = top + label.size * 0.95;
            write_line(
                page,
                (place.left + PADDING, baseline),
                Some(label.size),
                text_class,
                line,
            );
            top += label.size * 1.2;
        }
    }
    page.close();
}

/// The largest words that fit: on two lines, on one, or the name alone.
fn label(name: &str, seconds: &str, width: f64, height: f64, area: f64) -> Option<Label> {
    let wanted = (area.sqrt() / 7.0).clamp(SIZE_MIN, SIZE_MAX);
    let candidates = [
        vec![name.to_owned(), seconds.to_owned()],
        vec![format!("{name} {seconds}")],
        vec![name.to_owned()],
    ];
    candidates.into_iter().find_map(|lines| {
        let widest = lines
            .iter()
            .map(|line| letters::bold_width(line, 1.0))
            .fold(0.0, f64::max);
        let size = wanted
            .min(width / widest)
            .min(height / (lines.len() as f64 * 1.2));
        (size >= SIZE_MIN).then_some(Label { size, lines })
    })
}

fn write_line(page: &mut Markup, at: (f64, f64), size: Option<f64>, class: &str, text: &str) {
    let (x, y) = (px(at.0), px(at.1));
    match size.map(px) {
        Some(size) => page.element(
            "text",
            &[("x", &x), ("y", &y), ("font-size", &size), ("class", class)],
            text,
        ),
        None => page.element("text", &[("x", &x), ("y", &y), ("class", class)], text),
    }
}

/// Begins an element that the caller ends.
fn rectangle(page: &mut Markup, class: &str, place: Rectangle) {
    let numbers = [place.left, place.top, place.width, place.height].map(px);
    let [x, y, width, height] = &numbers;
    page.begin(
        "rect",
        &[
            ("x", x),
            ("y", y),
            ("width", width),
            ("height", height),
            ("class", class),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_inside_of_their_rectangle_or_are_left_out() {
        for width in [5.0, 20.0, 40.0, 80.0, 300.0] {
            for height in [4.0, 11.0, 14.0, 30.0, 200.0] {
                if let Some(label) = label("bupstash", "12.3 s", width, height, width * height) {
                    assert!(label.size >= SIZE_MIN);
                    assert!(label.lines.len() as f64 * label.size * 1.2 <= height + 1e-9);
                    for line in &label.lines {
                        assert!(letters::bold_width(line, label.size) <= width + 1e-9);
                    }
                }
            }
        }
        assert!(
            label("bupstash", "12.3 s", 300.0, 200.0, 6e4)
                .is_some_and(|label| label.lines.len() == 2)
        );
        assert!(label("bupstash", "12.3 s", 5.0, 4.0, 20.0).is_none());
    }
}
