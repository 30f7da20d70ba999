//! Lines of an FTP server's listing (MLSD, RFC 3659): `type=file;size=5;modify=20261123181500;
//! NAME`.
//!
//! Pure, so that a fuzzer can try it. What a hostile server can make a listing take is bounded:
//! bytes of a line, and bytes of all of them.

use crate::files::FileInfo;
use std::io::{self, BufRead, ErrorKind, Read};
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
pub fn read_listing(listing: impl BufRead, found: &mut dyn FnMut(FtpEntry<'_>)) -> io::Result<()> {
    let mut listing = listing.take(LISTING_BYTES_MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut listing)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return match listing.limit() {
                0 => Err(invalid("it is longer than any can be")),
                _ => Ok(()),
            };
        }
        if line.pop_if(|last| *last == b'\n').is_none() {
            let why = match read as u64 {
                LINE_BYTES_MAX => invalid("a line of it is longer than any can be"),
                _ => io::Error::new(ErrorKind::ConnectionAborted, "the listing is cut short"),
            };
            return Err(why);
        }
        line.pop_if(|last| *last == b'\r');
        if line.is_empty() {
            continue;
        }
        // A name that is no text is none of ours.
        let Ok(text) = str::from_utf8(&line) else {
            continue;
        };
        if let Some(entry) = read_entry(text)? {
            found(entry);
        }
    }
}

/// One line; `None` of what is no child.
fn read_entry(line: &str) -> io::Result<Option<FtpEntry<'_>>> {
    let (info, is_self, name) = read_facts(line).map(|(info, is_self)| {
        (
            info,
            is_self,
            line.split_once(' ').map_or("", |(_, name)| name),
        )
    })?;
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
        let expected = [("a b", Some(12)), ("d", None), ("l", None)];
        let expected = expected.map(|(name, len)| (name.to_owned(), len));
        assert_eq!(read(listing).unwrap(), expected);
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
