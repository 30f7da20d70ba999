//! An entry in the manner of `find -printf`: a format is taken apart once and then written for
//! every entry.
//!
//! Numbers are written without the machinery of `format!`: a list has a line for each of very many
//! files.

use super::listing;
use crate::exit::Usage;
use crate::output;
use bale_format::{Entry, Kind, Time};
use bale_source::scan::report::ReportedEntry;

/// A parsed format.
pub struct Format(Vec<Part>);

enum Part {
    Text(Vec<u8>),
    Path,
    PathBelow,
    Name,
    Directory,
    Depth,
    Type,
    Size,
    Mode,
    ModeText,
    Links,
    User,
    Group,
    Inode,
    Mtime,
    Ctime,
    Target,
    Filesystem,
}

impl Format {
    /// Takes a format apart; a directive that is not known is a mistake.
    pub fn parse(format: &[u8]) -> Result<Format, Usage> {
        let mut parts = Vec::new();
        let mut text = Vec::new();
        let mut rest = format.iter().copied();
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => text.push(escaped(rest.next())?),
                b'%' => match directive(&mut rest)? {
                    Part::Text(more) => text.extend(more),
                    part => {
                        if !text.is_empty() {
                            parts.push(Part::Text(std::mem::take(&mut text)));
                        }
                        parts.push(part);
                    }
                },
                byte => text.push(byte),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Format(parts))
    }

    /// Is the target of a link asked for, which takes another look?
    pub fn needs_target(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Target))
    }

    /// Appends an entry, names with `escape` so that none can forge a line. `target`: of a link, if
    /// it is needed.
    pub fn write(&self, seen: &ReportedEntry<'_>, target: &[u8], escape: bool, out: &mut Vec<u8>) {
        let entry = seen.entry;
        for part in &self.0 {
            let start = out.len();
            match part {
                Part::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Part::Path => path(entry, out),
                Part::PathBelow => below(entry, seen.source, out),
                Part::Name => name(entry, out),
                Part::Directory => {
                    out.push(b'/');
                    out.extend_from_slice(&entry.parent);
                }
                Part::Depth => number(depth(entry, seen.source), out),
                Part::Type => out.push(type_letter(entry.kind)),
                Part::Size => number(entry.size, out),
                Part::Mode => octal(entry.mode, out),
                Part::ModeText => out.extend_from_slice(listing::mode_text(entry).as_bytes()),
                Part::Links => number(entry.nlink.into(), out),
                Part::User => number(entry.uid.into(), out),
                Part::Group => number(entry.gid.into(), out),
                Part::Inode => number(entry.inode, out),
                Part::Mtime => time(entry.mtime, out),
                Part::Ctime => time(entry.ctime, out),
                Part::Target => out.extend_from_slice(target),
                Part::Filesystem => out.extend_from_slice(seen.filesystem.kind.as_bytes()),
            }
            if escape && !out[start..].iter().all(|byte| (b' '..=b'~').contains(byte)) {
                let escaped = output::escape(&out[start..]);
                out.truncate(start);
                out.extend_from_slice(escaped.as_bytes());
            }
        }
    }
}

fn escaped(letter: Option<u8>) -> Result<u8, Usage> {
    Ok(match letter {
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(b'\\') => b'\\',
        Some(other) => {
            let other = char::from(other);
            return Err(Usage(format!("unknown escape \\{other} in the format")));
        }
        None => return Err(Usage("a format ends with a lone \\".to_owned())),
    })
}

fn directive(rest: &mut impl Iterator<Item = u8>) -> Result<Part, Usage> {
    let unknown = |text: String| Usage(format!("unknown directive %{text} in the format"));
    Ok(match rest.next() {
        Some(b'%') => Part::Text(b"%".to_vec()),
        Some(b'p') => Part::Path,
        Some(b'P') => Part::PathBelow,
        Some(b'f') => Part::Name,
        Some(b'h') => Part::Directory,
        Some(b'd') => Part::Depth,
        Some(b'y') => Part::Type,
        Some(b's') => Part::Size,
        Some(b'm') => Part::Mode,
        Some(b'M') => Part::ModeText,
        Some(b'n') => Part::Links,
        Some(b'u' | b'U') => Part::User,
        Some(b'g' | b'G') => Part::Group,
        Some(b'i') => Part::Inode,
        Some(b'l') => Part::Target,
        Some(b'F') => Part::Filesystem,
        Some(which @ (b'T' | b'C')) => match (which, rest.next()) {
            (b'T', Some(b'@')) => Part::Mtime,
            (b'C', Some(b'@')) => Part::Ctime,
            (which, letter) => {
                let letters = [Some(which), letter].into_iter().flatten();
                return Err(unknown(letters.map(char::from).collect()));
            }
        },
        Some(other) => return Err(unknown(char::from(other).to_string())),
        None => return Err(Usage("a format ends with a lone %".to_owned())),
    })
}

fn path(entry: &Entry, out: &mut Vec<u8>) {
    out.push(b'/');
    out.extend_from_slice(&entry.parent);
    if !entry.parent.is_empty() {
        out.push(b'/');
    }
    out.extend_from_slice(&entry.name);
}

fn below(entry: &Entry, source: &[u8], out: &mut Vec<u8>) {
    let skipped = match source.len() {
        0 => 0,
        len => len + 1,
    };
    // The parent of the source itself is shorter than the source.
    match entry.parent.get(skipped..) {
        Some(parent) if !parent.is_empty() => {
            out.extend_from_slice(parent);
            out.push(b'/');
            out.extend_from_slice(&entry.name);
        }
        _ if entry.parent.len() >= source.len() => out.extend_from_slice(&entry.name),
        _ => {}
    }
}

fn name(entry: &Entry, out: &mut Vec<u8>) {
    match entry.name.is_empty() {
        true => out.push(b'/'),
        false => out.extend_from_slice(&entry.name),
    }
}

fn depth(entry: &Entry, source: &[u8]) -> u64 {
    let components = |path: &[u8]| match path.is_empty() {
        true => 0,
        false => 1 + path.iter().filter(|byte| **byte == b'/').count() as u64,
    };
    let own = components(&entry.parent) + u64::from(!entry.name.is_empty());
    own.saturating_sub(components(source))
}

fn type_letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'f',
        Kind::Directory => b'd',
        Kind::Symlink => b'l',
        Kind::BlockDevice => b'b',
        Kind::CharDevice => b'c',
        Kind::Fifo => b'p',
        Kind::Socket => b's',
        Kind::Extent => b'e',
    }
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn octal(mode: u32, out: &mut Vec<u8>) {
    let digits = (1..5).rev().skip_while(|digit| mode >> (3 * digit) == 0);
    out.extend(
        digits
            .chain([0])
            .map(|digit| b'0' + (mode >> (3 * digit) & 7) as u8),
    );
}

/// Seconds and ten digits of a fraction, as find writes them.
fn time(time: Time, out: &mut Vec<u8>) {
    if time.seconds < 0 {
        out.push(b'-');
    }
    number(time.seconds.unsigned_abs(), out);
    out.push(b'.');
    let mut divisor = 100_000_000;
    for _ in 0..9 {
        out.push(b'0' + (time.nanos / divisor % 10) as u8);
        divisor = (divisor / 10).max(1);
    }
    out.push(b'0');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn entry(parent: &'static str, name: &'static str) -> Entry {
        Entry::new(parent.as_bytes().into(), name.as_bytes().into(), Kind::File)
    }

    #[test]
    fn numbers_and_times_are_written_as_find_writes_them() {
        assert_eq!(text(|out| number(0, out)), "0");
        assert_eq!(text(|out| number(u64::MAX, out)), u64::MAX.to_string());
        assert_eq!(text(|out| octal(0o4755, out)), "4755");
        assert_eq!(text(|out| octal(0o44, out)), "44");
        assert_eq!(text(|out| octal(0, out)), "0");
        let at = |seconds, nanos| text(|out| time(Time { seconds, nanos }, out));
        assert_eq!(at(-2, 500_000_000), "-2.5000000000");
        assert_eq!(at(1_795_253_263, 1), "1795253263.0000000010");
    }

    #[test]
    fn paths_below_the_source_and_depths_begin_at_the_source() {
        let case = |entry: &Entry, source: &[u8]| {
            (text(|out| below(entry, source, out)), depth(entry, source))
        };
        assert_eq!(case(&entry("a", "b"), b"a/b"), (String::new(), 0));
        assert_eq!(case(&entry("a/b", "c"), b"a/b"), ("c".to_owned(), 1));
        assert_eq!(case(&entry("a/b/c", "d"), b"a/b"), ("c/d".to_owned(), 2));
        assert_eq!(case(&entry("", "a"), b"a"), (String::new(), 0));
        assert_eq!(case(&entry("", "a"), b""), ("a".to_owned(), 1));
        assert_eq!(case(&entry("a", "b"), b""), ("a/b".to_owned(), 2));
        assert_eq!(case(&entry("", ""), b""), (String::new(), 0));
    }

    #[test]
    fn a_format_with_something_unknown_is_a_mistake() {
        for wrong in ["%", "%q", "%T", "%TY", "\\", "\\q"] {
            assert!(Format::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let format = Format::parse(b"%% %p\\n%l").unwrap();
        assert!(format.needs_target());
        assert_eq!(format.0.len(), 4);
    }
}
