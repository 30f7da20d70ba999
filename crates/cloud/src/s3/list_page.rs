//! A page of a listing in S3 (`ListObjectsV2`), as a server writes it: untrusted XML.
//!
//! What a hostile server can make this take is bounded: the page by its bytes, elements by their
//! depth. A document type is refused, so no entity is ever expanded but those that XML has and
//! characters by number.

use bale_repository::store::BadAnswer;
use quick_xml::events::{BytesRef, Event};
use quick_xml::{Reader, XmlVersion};
use reqsign_core::time::Timestamp;
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// What stands in each page, also in an empty one.
pub const PAGE_WORDS: [&str; 3] = ["<ListBucketResult", "<IsTruncated>", "</ListBucketResult>"];

/// Elements inside of each other at most.
const DEPTH_MAX: usize = 32;

/// Names, and where the next page is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    pub objects: Vec<ListedObject>,
    /// `None`: this is the last one.
    pub next: Option<String>,
}

/// What is said of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    pub key: String,
    pub len: u64,
    pub modified: Option<SystemTime>,
}

/// Reads a page, all of it.
pub fn list_page(page: &[u8]) -> io::Result<ListPage> {
    let mut reader = Reader::from_reader(page);
    reader.config_mut().expand_empty_elements = true;
    let mut reading = Reading::default();
    loop {
        match reader.read_event().map_err(garbled)? {
            Event::Start(element) => reading.begin(element.local_name().as_ref())?,
            Event::End(_) => reading.end()?,
            Event::Text(text) => reading.add(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::CData(text) => reading.add(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::GeneralRef(reference) => reading.add_reference(&reference)?,
            Event::DocType(_) => return Err(invalid("it has a document type")),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    reading.finish()
}

/// The same for whoever looks for input that makes it fail otherwise than with an error.
pub fn fuzz_list_page(page: &[u8]) {
    if let Ok(page) = list_page(page) {
        assert!(page.next.is_none_or(|token| !token.is_empty()));
        assert!(page.objects.iter().all(|object| !object.key.is_empty()));
    }
}

/// Elements that matter, by where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageElement {
    Result,
    IsTruncated,
    Token,
    Object,
    Key,
    Size,
    Modified,
    Other,
}

fn element_in(parent: Option<PageElement>, name: &str) -> PageElement {
    match (parent, name) {
        (None, "ListBucketResult") => PageElement::Result,
        (Some(PageElement::Result), "IsTruncated") => PageElement::IsTruncated,
        (Some(PageElement::Result), "NextContinuationToken") => PageElement::Token,
        (Some(PageElement::Result), "Contents") => PageElement::Object,
        (Some(PageElement::Object), "Key") => PageElement::Key,
        (Some(PageElement::Object), "Size") => PageElement::Size,
        (Some(PageElement::Object), "LastModified") => PageElement::Modified,
        _ => PageElement::Other,
    }
}

#[derive(Default)]
struct Reading {
    open: Vec<PageElement>,
    /// Text of the element that is read.
    text: String,
    object: ListedObject,
    has_size: bool,
    is_truncated: Option<bool>,
    token: String,
    is_over: bool,
    objects: Vec<ListedObject>,
}

impl Reading {
    fn begin(&mut self, name: &str) -> io::Result<()> {
        if self.open.len() >= DEPTH_MAX {
            return Err(invalid("elements are inside of each other without end"));
        }
        let element = element_in(self.open.last().copied(), name);
        match element {
            _ if self.is_over => return Err(invalid("something follows its end")),
            PageElement::Other if self.open.is_empty() => {
                return Err(invalid("it is no listing of S3"));
            }
            PageElement::Object => {
                self.object = ListedObject::default();
                self.has_size = false;
            }
            _ => {}
        }
        self.text.clear();
        self.open.push(element);
        Ok(())
    }

    fn add(&mut self, text: &str) {
        // Bounded by the bytes of a page.
        if self
            .open
            .last()
            .is_some_and(|element| *element != PageElement::Other)
        {
            self.text.push_str(text);
        }
    }

    fn add_reference(&mut self, reference: &BytesRef<'_>) -> io::Result<()> {
        let letter = match reference.resolve_char_ref().map_err(garbled)? {
            Some(letter) => letter,
            None => match reference.xml_content(XmlVersion::Implicit1_0).as_ref() {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => return Err(invalid("it has an entity that XML does not have")),
            },
        };
        self.add(letter.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        match self.open.pop() {
            Some(PageElement::Key) => self.object.key = text,
            Some(PageElement::Size) => {
                let text = text.trim();
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
                let len = text.parse().ok().filter(|_| is_number);
                self.object.len =
                    len.ok_or_else(|| invalid("it has a length that is no number"))?;
                self.has_size = true;
            }
            Some(PageElement::Modified) => {
                let time: Timestamp = text
                    .trim()
                    .parse()
                    .map_err(|_| invalid("it has a time that is none"))?;
                self.object.modified = Some(time.as_system_time());
            }
            Some(PageElement::Object) => {
                if self.object.key.is_empty() || !self.has_size {
                    return Err(invalid("it has an object without a name or a length"));
                }
                self.objects.push(std::mem::take(&mut self.object));
            }
            Some(PageElement::IsTruncated) => {
                self.is_truncated = Some(match text.trim() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(invalid("it does not say whether it is the last page")),
                });
            }
            Some(PageElement::Token) => self.token = text,
            Some(PageElement::Result) => self.is_over = true,
            Some(PageElement::Other) | None => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<ListPage> {
        let next = match self.is_truncated {
            _ if !self.is_over => return Err(cut()),
            None => return Err(invalid("it does not say whether it is the last page")),
            Some(false) => None,
            Some(true) if self.token.is_empty() => {
                return Err(invalid("it does not say where the next page is"));
            }
            Some(true) => Some(self.token),
        };
        Ok(ListPage {
            objects: self.objects,
            next,
        })
    }
}

fn invalid(why: &str) -> io::Error {
    let text = format!("the server's listing cannot be read: {why}");
    io::Error::new(ErrorKind::InvalidData, BadAnswer(text))
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "a listing is cut short")
}

/// Servers under load send such pages, and others when they are requested again.
fn garbled(_: impl Into<quick_xml::Error>) -> io::Error {
    let text = "a listing is no whole XML";
    io::Error::new(ErrorKind::ConnectionAborted, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn result(inside: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</ListBucketResult>\n"
        )
    }

    #[test]
    fn names_lengths_times_and_the_next_page_are_read() {
        let text = result(
            "<Name>b</Name><IsTruncated>true</IsTruncated><KeyCount>2</KeyCount>\
             <NextContinuationToken>a+/=&amp;</NextContinuationToken>\
             <Contents><Key> a&amp;b&#x20AC;&lt;&#39;</Key><Size>7</Size>\
             <LastModified>1970-01-01T00:00:05.000Z</LastModified><ETag>&quot;x&quot;</ETag>\
             <Owner><Key>not this</Key><Size>x</Size></Owner></Contents>\
             <Contents><Key><![CDATA[<c>]]></Key><Size>0</Size></Contents>\
             <CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>",
        );
        let page = list_page(text.as_bytes()).unwrap();
        assert_eq!(page.next.as_deref(), Some("a+/=&"));
        let first = ListedObject {
            key: " a&b\u{20ac}<'".to_owned(),
            len: 7,
            modified: Some(UNIX_EPOCH + Duration::from_secs(5)),
        };
        let second = ListedObject {
            key: "<c>".to_owned(),
            len: 0,
            modified: None,
        };
        assert_eq!(page.objects, [first, second]);
        let empty = list_page(result("<IsTruncated>false</IsTruncated>").as_bytes());
        assert_eq!(empty.unwrap(), ListPage::default());
    }

    #[test]
    fn what_is_no_whole_listing_is_an_error() {
        let whole = "<IsTruncated>false</IsTruncated>";
        let nested = format!("{}{}", "<a>".repeat(40), "</a>".repeat(40));
        for text in [
            String::new(),
            "<html></html>".to_owned(),
            result(""),
            result("<IsTruncated>perhaps</IsTruncated>"),
            result("<IsTruncated>true</IsTruncated>"),
            result(&format!("{whole}<Contents><Key>a</Key></Contents>")),
            result(&format!("{whole}<Contents><Size>1</Size></Contents>")),
            result(&format!(
                "{whole}<Contents><Key>a</Key><Size>-1</Size></Contents>"
            )),
            result(&format!(
                "{whole}<Contents><Key>&evil;</Key><Size>1</Size></Contents>"
            )),
            result(&format!("{whole}{nested}")),
            format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{}", result(whole)),
            format!("{}{}", result(whole), result(whole)),
            result(whole).replace("</ListBucketResult>", ""),
            result(whole).replace("</IsTruncated>", ""),
        ] {
            assert!(list_page(text.as_bytes()).is_err(), "{text}");
            fuzz_list_page(text.as_bytes());
        }
        fuzz_list_page(b"\xff\xfe<ListBucketResult>");
    }
}
