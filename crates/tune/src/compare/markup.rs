//! A page being written: text is always escaped, and every element that is opened is closed.

/// Markup that cannot be broken from outside: only literals of this program go in unescaped.
#[derive(Default)]
pub(super) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

/// Names and values.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Markup {
    /// Markup of this program itself.
    pub fn literal(&mut self, markup: &'static str) {
        self.out.push_str(markup);
    }

    pub fn text(&mut self, text: &str) {
        escape_into(text, &mut self.out);
    }

    pub fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.begin(name, attributes);
        self.out.push('>');
        self.open.push(name);
    }

    /// Closes what was opened last.
    pub fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.out.push_str("</");
            self.out.push_str(name);
            self.out.push_str(">\n");
        }
    }

    /// An element without content.
    pub fn empty(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.begin(name, attributes);
        self.out.push_str("/>");
    }

    /// An element with text.
    pub fn element(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.open(name, attributes);
        self.text(text);
        self.close();
    }

    /// The page.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }

    /// The beginning of an element that the caller ends.
    pub fn begin(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attributes {
            self.out.push(' ');
            self.out.push_str(key);
            self.out.push_str("=\"");
            escape_into(value, &mut self.out);
            self.out.push('"');
        }
    }
}

/// Also control characters go: a page has no use for them.
fn escape_into(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
}

/// A coordinate, to a tenth.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Checks that markup is a tree of elements; for tests.
#[cfg(test)]
pub(super) fn check_well_formed(page: &str) -> Result<usize, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap_or(page);
    while let Some((before, after)) = rest.split_once('<') {
        if before.contains('>') && open.last() != Some(&"style") {
            return Err(format!("a bare > in {before:?}"));
        }
        let mut in_quotes = false;
        let end = after
            .char_indices()
            .find(|(_, letter)| {
                in_quotes ^= *letter == '"';
                *letter == '>' && !in_quotes
            })
            .map(|(at, _)| at)
            .ok_or("an element without end")?;
        let tag = &after[..end];
        let name = |text: &'static str| text;
        let _ = name;
        if let Some(closed) = tag.strip_prefix('/') {
            if open.pop() != Some(closed) {
                return Err(format!("</{closed}> closes nothing"));
            }
        } else {
            let word = tag.split([' ', '/']).next().unwrap_or_default();
            if word.is_empty() || !word.chars().all(|letter| letter.is_ascii_alphanumeric()) {
                return Err(format!("<{tag}> is no element"));
            }
            if tag.matches('"').count() % 2 != 0 || tag.contains('<') {
                return Err(format!("<{tag}> has broken attributes"));
            }
            elements += 1;
            if !tag.ends_with('/') {
                open.push(word);
            }
        }
        rest = &after[end + 1..];
    }
    if open.is_empty() {
        Ok(elements)
    } else {
        Err(format!("left open: {open:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_tool_says_stays_text() {
        let mut page = Markup::default();
        page.open("p", &[("title", "\"><script>")]);
        page.text("</p><script>alert('x') & more\u{1b}");
        let text = page.finish();
        assert_eq!(
            text,
            "<p title=\"&quot;&gt;&lt;script&gt;\">&lt;/p&gt;&lt;script&gt;alert(&#39;x&#39;) &amp; more\u{fffd}</p>\n"
        );
        assert_eq!(check_well_formed(&text), Ok(1));
    }

    #[test]
    fn the_check_sees_broken_pages() {
        assert_eq!(check_well_formed("<a><b/>x &lt; y</a>"), Ok(2));
        for wrong in [
            "<a>",
            "<a></b>",
            "</a>",
            "<a b=\"<c></a>",
            "<a>x > y</a>",
            "< a></a>",
            "<a",
        ] {
            assert!(check_well_formed(wrong).is_err(), "{wrong}");
        }
    }
}
