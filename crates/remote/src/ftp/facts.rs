//! Lines of an FTP server's listing (MLSD, RFC 3659): `type=file;size=5;modify=20261123181500;
//! NAME`.
//!
//! Pure, so that a fuzzer can try it. What a hostile server can make a listing take is bounded:
//! bytes of a line, and bytes of all of them.

use crate::files::FileInfo;
use bale_repository::store::Area;
use std::io::{self, BufRead, Chain, Cursor, ErrorKind, Read, Take};
use std::time::{Duration, SystemTime};

/// Bytes of one line at most.
pub const LINE_BYTES_MAX: u64 = 8 << 10;

/// Bytes of a listing at most: a hundred million names.
pub const LISTING_BYTES_MAX: u64 = 16 << 30;

/// One name and what is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtpEntry<'a> {
    pub name: &'a str,
    pub info: FileInfo,
}

/// Calls `found` with each name of a listing but those of the directory itself and the one above.
///
/// Where lines end with CR and LF an LF alone is in a name, and such a name is none of ours. What
/// is no line behind a foreign name is the rest of it, unless there is a slash in it; behind a name
/// that may be of ours it is an error.
pub fn read_listing(listing: impl BufRead, found: &mut dyn FnMut(FtpEntry<'_>)) -> io::Result<()> {
    let mut lines = Lines::begin(listing)?;
    let mut last: Option<(String, FileInfo)> = None;
    let (mut count, is_in_doubt) = (0u64, lines.is_in_doubt);
    while let Some(line) = lines.next()? {
        count += 1;
        // A name that is no text is none of ours either way.
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            continue;
        }
        match (read_entry(&line), &mut last) {
            (Ok(entry), last) => {
                let entry = entry.map(|entry| (entry.name.to_owned(), entry.info));
                report(std::mem::replace(last, entry), found);
            }
            (Err(_), Some((name, _))) if !may_be_ours(name) && !line.contains('/') => {
                name.push_str("\r\n");
                name.push_str(&line);
                if name.len() as u64 > LINE_BYTES_MAX {
                    return Err(invalid("a name in it is longer than any can be"));
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
    if is_in_doubt && count == 1 {
        return Err(invalid(
            "a name in it has line feeds, or ends with a return",
        ));
    }
    report(last, found);
    Ok(())
}

fn report(entry: Option<(String, FileInfo)>, found: &mut dyn FnMut(FtpEntry<'_>)) {
    if let Some((name, info)) = entry {
        found(FtpEntry { name: &name, info });
    }
}

/// Digits of the names that have nothing else: of directories of packs, numbers, runs and objects.
const HEX_LENS: [usize; 4] = [2, 8, 32, 64];

/// Could an object, or a directory of objects, have this name?
fn may_be_ours(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let mut areas = Area::ALL.iter().chain(&Area::OF_STRETCHES);
    let is_of_hex = HEX_LENS.contains(&name.len()) && name.bytes().all(is_hex);
    is_of_hex || areas.any(|area| area.text() == name)
}

/// How lines end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing was read.
    NotKnown,
    /// As RFC 3659 says.
    CrLf,
    /// As some servers do it.
    Lf,
}

/// The lines of a listing, without their ends.
struct Lines<R> {
    /// What was read to learn how lines end, and then the rest.
    listing: Chain<Cursor<Vec<u8>>, Take<R>>,
    line: Vec<u8>,
    ends: Ends,
    /// Only the first line ended with CR and LF, and without the CR it would be several with names
    /// that may be of ours.
    is_in_doubt: bool,
}

impl<R: BufRead> Lines<R> {
    /// The first line says how all end: with an LF alone no server ends one and CR and LF another,
    /// so where a CR and LF comes soon, what is before it is one line.
    fn begin(listing: R) -> io::Result<Lines<R>> {
        let mut listing = listing.take(LISTING_BYTES_MAX);
        let mut first = Vec::new();
        let mut ends = Ends::NotKnown;
        while ends == Ends::NotKnown {
            let room = LINE_BYTES_MAX - first.len() as u64;
            let read = (&mut listing).take(room).read_until(b'\n', &mut first)?;
            match first.ends_with(b"\r\n") {
                true => ends = Ends::CrLf,
                false if read == 0 => ends = Ends::Lf,
                false => {}
            }
        }
        let mut pieces: Vec<&[u8]> = first.split(|byte| *byte == b'\n').collect();
        // What is behind the last LF, and what ends with it.
        pieces.truncate(pieces.len().saturating_sub(2));
        let may_be_ours = |piece: &&[u8]| {
            let piece = String::from_utf8_lossy(piece);
            matches!(read_entry(&piece), Ok(Some(entry)) if may_be_ours(entry.name))
        };
        Ok(Lines {
            is_in_doubt: ends == Ends::CrLf && pieces.iter().any(may_be_ours),
            listing: Cursor::new(first).chain(listing),
            line: Vec::new(),
            ends,
        })
    }

    /// `None` at the end.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let end: &[u8] = match self.ends {
            Ends::Lf => b"\n",
            Ends::CrLf | Ends::NotKnown => b"\r\n",
        };
        self.line.clear();
        loop {
            let room = LINE_BYTES_MAX - self.line.len() as u64;
            let read = (&mut self.listing)
                .take(room)
                .read_until(b'\n', &mut self.line)?;
            if self.line.ends_with(end) {
                let len = self.line.len() - end.len();
                return Ok(Some(&self.line[..len]));
            }
            if read == 0 {
                return match (self.line.len() as u64, self.listing.get_ref().1.limit()) {
                    (0, 0) => Err(invalid("it is longer than any can be")),
                    (0, _) => Ok(None),
                    (LINE_BYTES_MAX, _) => Err(invalid("a line of it is longer than any can be")),
                    _ => Err(cut_short()),
                };
            }
        }
    }
}

/// One line; `None` of what is no child.
fn read_entry(line: &str) -> io::Result<Option<FtpEntry<'_>>> {
    let (info, is_self) = read_facts(line)?;
    let name = line.split_once(' ').map_or("", |(_, name)| name);
    let is_child =
        !is_self && !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    Ok(is_child.then_some(FtpEntry { name, info }))
}

/// What is said of a name before the first space, and whether it is the directory that is listed or
/// the one above.
pub fn read_facts(line: &str) -> io::Result<(FileInfo, bool)> {
    let (facts, _) = line
        .split_once(' ')
        .ok_or_else(|| invalid("it has a line that is none of MLSD"))?;
    let mut info = FileInfo {
        len: None,
        modified: None,
    };
    let (mut is_file, mut is_self) = (None, false);
    for fact in facts.split(';').filter(|fact| !fact.is_empty()) {
        let (kind, value) = fact
            .split_once('=')
            .ok_or_else(|| invalid("it has a fact without a value"))?;
        match kind.to_ascii_lowercase().as_str() {
            "type" => match value.to_ascii_lowercase().as_str() {
                "file" => is_file = Some(true),
                kind => {
                    is_file = Some(false);
                    is_self |= kind == "cdir" || kind == "pdir";
                }
            },
            "size" => info.len = Some(read_number(value)?),
            "modify" => info.modified = read_time(value),
            _ => {}
        }
    }
    match is_file {
        None => return Err(invalid("it has a name of which it does not say what it is")),
        Some(true) if info.len.is_none() => {
            return Err(invalid(
                "it has a file of which it does not say how long it is",
            ));
        }
        Some(true) => {}
        Some(false) => info.len = None,
    }
    Ok((info, is_self))
}

fn read_number(text: &str) -> io::Result<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| invalid("it has a length that is no number"))
}

/// `YYYYMMDDHHMMSS`, with a fraction perhaps, in UTC. A time that cannot be read is none: nothing
/// depends on it alone.
fn read_time(text: &str) -> Option<SystemTime> {
    let digits = text.split('.').next()?;
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let field = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
    let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
    let is_time = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !is_time {
        return None;
    }
    // Days since 1970, of years that begin in March, so that leap days come last.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        month => (year, month - 3),
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3_600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn cut_short() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "the listing is cut short")
}

fn invalid(why: &str) -> io::Error {
    let text = format!("the server's listing cannot be read: {why}");
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> io::Result<Vec<(String, Option<u64>)>> {
        let mut entries = Vec::new();
        read_listing(text, &mut |entry| {
            entries.push((entry.name.to_owned(), entry.info.len))
        })?;
        Ok(entries)
    }

    fn seconds(text: &str) -> Option<u64> {
        let time = read_time(text)?.duration_since(SystemTime::UNIX_EPOCH);
        Some(time.unwrap().as_secs())
    }

    #[test]
    fn names_come_with_what_is_said_of_them() {
        let listing = b"type=cdir;modify=20200101000000; .\r\nType=file;Size=12;x=y; a b\r\n\
                        \r\ntype=dir;size=4096; d\r\ntype=OS.unix=slink:/x;size=3; l\r\n\
                        type=file;size=1; \xff\r\n";
        let expected = [
            ("a b", Some(12)),
            ("d", None),
            ("l", None),
            ("\u{fffd}", Some(1)),
        ];
        let expected = expected.map(|(name, len)| (name.to_owned(), len));
        assert_eq!(read(listing).unwrap(), expected);
    }

    /// Whoever may name a file makes no other appear, and stops nobody.
    #[test]
    fn a_line_feed_in_a_name_is_of_the_name() {
        let object = "ab".repeat(32);
        let forged = format!("x\ntype=file;size=5; {object}");
        let listing = format!(
            "type=file;size=1; {forged}\r\ntype=file;size=2; \n\r\ntype=file;size=3; y\r\nz\r\n\
             type=file;size=4; {object}\r\n"
        );
        let expected = [(&*forged, 1), ("\n", 2), ("y\r\nz", 3), (&*object, 4)];
        let expected = expected.map(|(name, len)| (name.to_owned(), Some(len)));
        assert_eq!(read(listing.as_bytes()).unwrap(), expected);
    }

    /// Found by the fuzzer: such a line made a name with a slash.
    #[test]
    fn a_line_with_a_slash_is_the_rest_of_no_name() {
        let slash = b"type=dir; y\r\nz/../x\r\n";
        assert_eq!(read(slash).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_line_feed_in_the_first_name_is_of_the_name() {
        let object = "ab".repeat(32);
        for rest in ["".to_owned(), format!("type=file;size=4; {object}\r\n")] {
            let forged = format!("x\ntype=file;size=5; {object}");
            let listing = format!("type=file;size=1; {forged}\r\n{rest}");
            let entries = read(listing.as_bytes()).unwrap();
            assert_eq!(entries[0], (forged, Some(1)));
            assert_eq!(entries.len(), 1 + usize::from(!rest.is_empty()));
        }
    }

    /// As rclone's.
    #[test]
    fn lines_may_all_end_with_a_line_feed_alone() {
        let object = "ab".repeat(32);
        let many = format!("type=file;size=4; {object}\n").repeat(200);
        assert_eq!(read(many.as_bytes()).unwrap().len(), 200);
        assert_eq!(read(b"type=dir; x\n").unwrap().len(), 1);
        let cut = read(&many.as_bytes()[..many.len() - 1]).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::ConnectionAborted);
    }

    /// A name on such a server that ends with a return must not hide those before it.
    #[test]
    fn a_return_at_the_end_of_a_name_hides_no_object() {
        let object = "ab".repeat(32);
        let listing = format!("type=file;size=4; {object}\ntype=file;size=1; x\r\n");
        let error = read(listing.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }

    /// Then nobody knows whether it is there.
    #[test]
    fn rubbish_behind_the_name_of_an_object_is_an_error() {
        let object = "ab".repeat(32);
        for name in [&*object, "ab", "config"] {
            let listing = format!("type=file;size=1; {name}\r\nrubbish\r\n");
            let error = read(listing.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
    }

    #[test]
    fn times_are_of_utc() {
        for (text, expected) in [
            ("19700101000000", Some(0)),
            ("20000229235959.123", Some(951_868_799)),
            ("20261123181500", Some(1_795_457_700)),
            ("20261323181500", None),
            ("2026112318150", None),
            ("+0261123181500", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn rubbish_is_an_error_by_its_kind() {
        for (text, kind) in [
            (&b"type=file;size=1; cut"[..], ErrorKind::ConnectionAborted),
            (
                b"-rw-r--r-- 1 a b 3 Nov 23 18:15 x\r\n",
                ErrorKind::InvalidData,
            ),
            (b"nothing\r\n", ErrorKind::InvalidData),
            (b"size=1; x\r\n", ErrorKind::InvalidData),
            (b"type=file; x\r\n", ErrorKind::InvalidData),
            (b"type=file;size=-1; x\r\n", ErrorKind::InvalidData),
            (
                b"type=file;size=99999999999999999999; x\r\n",
                ErrorKind::InvalidData,
            ),
        ] {
            let error = read(text).expect_err(&String::from_utf8_lossy(text));
            assert_eq!(error.kind(), kind, "{error}");
        }
        let endless = io::BufReader::new(io::repeat(b'x'));
        let error = read_listing(endless, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}
