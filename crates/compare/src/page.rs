//! The report as one page that needs nothing else: the JSON of the report, and a script that draws
//! it.
//!
//! What tools say is data: it stands in the page as JSON, and the script shows it as text only.

use serde_json::Value;

use super::lines::report_object;
use super::report::Report;

/// Style and script, and the place of the report.
const PAGE: &str = include_str!("page.html");
const PLACE: &str = "__REPORT__";

/// The page.
pub fn html(report: &Report) -> String {
    PAGE.replacen(PLACE, &in_script(&report_object(report)), 1)
}

/// In a script element only what begins with `<` can end it or change how it is read, and `<` comes
/// in strings alone.
fn in_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn parts(page: &str) -> (&str, &str, &str) {
        let (before, rest) = page.split_once("id=\"report\">").unwrap();
        let (json, after) = rest.split_once("</script>").unwrap();
        (before, json, after)
    }

    #[test]
    fn whatever_tools_say_stays_data() {
        let report = samples::report();
        let page = html(&report);
        let (before, json, after) = parts(&page);
        let (own_before, _, own_after) = parts(PAGE);
        assert_eq!((before, after), (own_before, own_after));
        assert!(!json.contains(['<', '\n']));
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(value, report_object(&report));
        assert!(json.contains("\\u003c/td>\\u003c/script>"));
        // Nothing but text nodes and attributes is made of it.
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ] {
            assert!(!after.contains(markup), "{markup}");
        }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in [
            "src=", "href", "url(", "@import", "http", "fetch(", "import(",
        ] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        assert_eq!(PAGE.matches(PLACE).count(), 1);
    }
}
