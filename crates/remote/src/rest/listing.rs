//! The listing of a REST server, `[{"name":"...","size":1},...]`, read while it comes.
//!
//! Nothing of it is kept: each entry goes to the caller. What a hostile server can make this take
//! is bounded: bytes between two entries, and bytes of a whole listing.

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

/// Bytes of one entry at most, with what stands around it.
pub const ENTRY_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a listing at most: a hundred million objects.
pub const LISTING_BYTES_MAX: u64 = 16 << 30;

/// Bytes asked of the connection at once.
const BUFFER_BYTES: usize = 32 << 10;

/// One object in a listing.
#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    size: u64,
}

/// Calls `found` with name and size of each entry, until the listing is over.
pub fn read_listing(listing: impl Read, found: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
    let left_of_entry = Rc::new(Cell::new(ENTRY_BYTES_MAX));
    let reader = BoundedReader {
        inner: BufReader::with_capacity(BUFFER_BYTES, listing),
        left_of_entry: left_of_entry.clone(),
        left: LISTING_BYTES_MAX,
    };
    let mut json = serde_json::Deserializer::from_reader(reader);
    let entries = Entries {
        left_of_entry,
        found,
    };
    json.deserialize_seq(entries)
        .and_then(|()| json.end())
        .map_err(listing_error)
}

fn listing_error(error: serde_json::Error) -> io::Error {
    match error.classify() {
        serde_json::error::Category::Io => error.into(),
        serde_json::error::Category::Eof => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "the listing is cut short")
        }
        _ => io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the listing is not one of names and sizes: {error}"),
        ),
    }
}

/// Ends with an error where a server sends more than any listing has.
struct BoundedReader<R> {
    inner: BufReader<R>,
    /// Set anew by each entry.
    left_of_entry: Rc<Cell<u64>>,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.left_of_entry.get().min(self.left);
        if left == 0 {
            let why = "the listing is longer than any listing can be";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buf[..len])? as u64;
        self.left_of_entry.set(self.left_of_entry.get() - read);
        self.left -= read;
        Ok(read as usize)
    }
}

struct Entries<'a> {
    left_of_entry: Rc<Cell<u64>>,
    found: &'a mut dyn FnMut(&str, u64),
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects with a name and a size")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(entry) = seq.next_element::<Entry>()? {
            self.left_of_entry.set(ENTRY_BYTES_MAX);
            (self.found)(&entry.name, entry.size);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> io::Result<Vec<(String, u64)>> {
        let mut entries = Vec::new();
        read_listing(text, &mut |name, size| {
            entries.push((name.to_owned(), size))
        })?;
        Ok(entries)
    }

    #[test]
    fn entries_come_in_their_order_and_unknown_fields_do_not_matter() {
        assert_eq!(read(b"[]").unwrap(), []);
        let text = br#" [ {"name":"a","size":1}, {"x":[{"y":null}],"size":0,"name":"b/c"} ] "#;
        let expected = [("a".to_owned(), 1), ("b/c".to_owned(), 0)];
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn rubbish_is_an_error_by_its_kind() {
        for (text, kind) in [
            (&b""[..], io::ErrorKind::ConnectionAborted),
            (
                b"[{\"name\":\"a\",\"size\":1}",
                io::ErrorKind::ConnectionAborted,
            ),
            (b"[{\"name\":\"a\"", io::ErrorKind::ConnectionAborted),
            (b"<html>", io::ErrorKind::InvalidData),
            (b"null", io::ErrorKind::InvalidData),
            (b"[\"a\",\"b\"]", io::ErrorKind::InvalidData),
            (b"[{\"name\":\"a\"}]", io::ErrorKind::InvalidData),
            (
                b"[{\"name\":\"a\",\"size\":-1}]",
                io::ErrorKind::InvalidData,
            ),
            (
                b"[{\"name\":\"a\",\"size\":1e99}]",
                io::ErrorKind::InvalidData,
            ),
            (
                b"[{\"name\":\"\xff\",\"size\":1}]",
                io::ErrorKind::InvalidData,
            ),
            (b"[] []", io::ErrorKind::InvalidData),
        ] {
            let error = read(text).expect_err(&String::from_utf8_lossy(text));
            assert_eq!(
                error.kind(),
                kind,
                "{}: {error}",
                String::from_utf8_lossy(text)
            );
        }
        let deep = format!("[{{\"x\":{}", "[".repeat(100_000));
        assert_eq!(
            read(deep.as_bytes()).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    /// An endless name, and endless space: neither ends by itself.
    #[test]
    fn an_entry_without_end_ends_with_an_error() {
        for (start, filler) in [("[{\"name\":\"", b'x'), ("[", b' '), ("[]", b' ')] {
            let endless = start.as_bytes().chain(io::repeat(filler));
            let error = read_listing(endless, &mut |_, _| {}).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{start}: {error}");
        }
    }

    #[test]
    fn many_entries_are_more_than_the_bound_of_one() {
        let entry = format!("{{\"name\":\"{}\",\"size\":7}}", "ab".repeat(32));
        let text = format!("[{}]", vec![entry; 5_000].join(","));
        assert!(text.len() as u64 > 2 * ENTRY_BYTES_MAX);
        assert_eq!(read(text.as_bytes()).unwrap().len(), 5_000);
    }
}
