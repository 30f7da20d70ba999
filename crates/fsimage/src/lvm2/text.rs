//! The text that LVM2 keeps its metadata in: sections with values and further sections.

use std::collections::BTreeMap;

/// Sections in each other at most; four are usual.
const DEPTH_MAX: usize = 16;
/// Values and sections at most.
const NODES_MAX: usize = 1 << 20;

/// A section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LvmText {
    nodes: BTreeMap<String, Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Section(LvmText),
    Value(LvmValue),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LvmValue {
    Number(u64),
    Text(String),
    List(Vec<LvmValue>),
}

/// Why a text is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LvmTextError {
    #[error("at byte {at}: {why}")]
    At { at: usize, why: &'static str },
    #[error("it is not UTF-8")]
    Utf8,
}

impl LvmText {
    /// Reads a text up to its first zero.
    pub fn parse(bytes: &[u8]) -> Result<LvmText, LvmTextError> {
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| LvmTextError::Utf8)?;
        let mut parser = Parser {
            text: text.as_bytes(),
            at: 0,
            nodes: 0,
        };
        parser.section(0)
    }

    pub fn sections(&self) -> impl Iterator<Item = (&str, &LvmText)> {
        self.nodes.iter().filter_map(|(name, node)| match node {
            Node::Section(section) => Some((name.as_str(), section)),
            Node::Value(_) => None,
        })
    }

    pub fn section(&self, name: &str) -> Option<&LvmText> {
        match self.nodes.get(name)? {
            Node::Section(section) => Some(section),
            Node::Value(_) => None,
        }
    }

    pub fn value(&self, name: &str) -> Option<&LvmValue> {
        match self.nodes.get(name)? {
            Node::Value(value) => Some(value),
            Node::Section(_) => None,
        }
    }

    pub fn number_of(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            LvmValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn text_of(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            LvmValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Is a word in a list of them?
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        let is_word = |value: &LvmValue| matches!(value, LvmValue::Text(text) if text == word);
        match self.value(name) {
            Some(LvmValue::List(words)) => words.iter().any(is_word),
            Some(value) => is_word(value),
            None => false,
        }
    }

    /// How often its group was changed: of two copies the higher one is newer.
    pub fn number(&self) -> Option<u64> {
        let mut groups = self.sections();
        groups.find_map(|(_, group)| group.number_of("seqno"))
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    nodes: usize,
}

impl Parser<'_> {
    fn bad<T>(&self, why: &'static str) -> Result<T, LvmTextError> {
        let at = self.at;
        Err(LvmTextError::At { at, why })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Over spaces, and comments to the end of their lines.
    fn skip(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .unwrap_or(rest.len());
                }
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Up to its brace, or the end of the text if it is the outermost.
    fn section(&mut self, depth: usize) -> Result<LvmText, LvmTextError> {
        if depth > DEPTH_MAX {
            return self.bad("sections in sections without end");
        }
        let mut section = LvmText::default();
        loop {
            self.skip();
            if self.peek().is_none() {
                return match depth {
                    0 => Ok(section),
                    _ => self.bad("a section without an end"),
                };
            }
            if depth > 0 && self.take(b'}') {
                return Ok(section);
            }
            self.nodes += 1;
            if self.nodes > NODES_MAX {
                return self.bad("more values than can be");
            }
            let name = self.name()?;
            let node = if self.take(b'{') {
                Node::Section(self.section(depth + 1)?)
            } else if self.take(b'=') {
                Node::Value(self.value(true)?)
            } else {
                return self.bad("a name that nothing follows");
            };
            if section.nodes.insert(name, node).is_some() {
                return self.bad("a name that is there twice");
            }
        }
    }

    fn name(&mut self) -> Result<String, LvmTextError> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+/".contains(byte);
        let len = rest
            .iter()
            .position(|byte| !is_part(byte))
            .unwrap_or(rest.len());
        if len == 0 {
            return self.bad("no name");
        }
        self.at += len;
        // What it is made of is ASCII.
        Ok(rest[..len].iter().map(|byte| char::from(*byte)).collect())
    }

    fn value(&mut self, may_be_list: bool) -> Result<LvmValue, LvmTextError> {
        self.skip();
        match self.peek() {
            Some(b'[') if may_be_list => {
                self.at += 1;
                let mut list = Vec::new();
                while !self.take(b']') {
                    self.nodes += 1;
                    if self.nodes > NODES_MAX {
                        return self.bad("more values than can be");
                    }
                    list.push(self.value(false)?);
                    if !self.take(b',') && self.peek() != Some(b']') {
                        return self.bad("a list that is none");
                    }
                }
                Ok(LvmValue::List(list))
            }
            Some(b'"') => self.text().map(LvmValue::Text),
            Some(byte) if byte.is_ascii_digit() => {
                let rest = &self.text[self.at..];
                let len = rest.iter().position(|byte| !byte.is_ascii_digit());
                let digits = &rest[..len.unwrap_or(rest.len())];
                let digits = std::str::from_utf8(digits).ok();
                let Some(number) = digits.and_then(|digits| digits.parse().ok()) else {
                    return self.bad("a number that is too large");
                };
                self.at += len.unwrap_or(rest.len());
                Ok(LvmValue::Number(number))
            }
            _ => self.bad("no value"),
        }
    }

    /// In quotes, where a backslash takes the next letter as it is.
    fn text(&mut self) -> Result<String, LvmTextError> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let Some(byte) = self.peek() else {
                return self.bad("a text without an end");
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let Some(next) = self.peek() else {
                        return self.bad("a text without an end");
                    };
                    self.at += 1;
                    bytes.push(next);
                }
                byte => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).map_err(|_| LvmTextError::Utf8)
    }
}
