//! Headers of a pax archive (POSIX.1-2001), with the extensions that GNU tar reads: attributes and
//! files with holes.
//!
//! Names and link targets are any bytes. What fits the old header stands there, raw; the rest
//! stands in records.

use bale_format::{Entry, Kind, Time, Xattr};

/// Unit of everything in an archive.
pub const BLOCK_BYTES: usize = 512;

/// Archives end at a multiple of this, for old readers.
pub const RECORD_BYTES: u64 = 10240;

/// A name or a link target that fits the header.
const NAME_BYTES_MAX: usize = 100;

/// The largest number in a field of so many octal digits.
const fn octal_max(digits: u32) -> u64 {
    (1 << (3 * digits)) - 1
}

/// One member, apart from its content.
pub struct Member<'e> {
    pub entry: &'e Entry,
    /// Name in the archive.
    pub path: &'e [u8],
    /// The earlier name that this is a link to.
    pub link: Option<&'e [u8]>,
    /// Bytes that follow.
    pub size: u64,
    /// Is the content a map and stretches, and how long is the file then?
    pub sparse: Option<u64>,
    pub xattrs: &'e [Xattr],
}

/// All headers of a member.
pub fn headers(member: &Member) -> Vec<u8> {
    let mut records = Vec::new();
    let mut path = member.path.to_vec();
    if let Some(size) = member.sparse {
        record(&mut records, b"GNU.sparse.major", b"1");
        record(&mut records, b"GNU.sparse.minor", b"0");
        record(&mut records, b"GNU.sparse.name", member.path);
        record(
            &mut records,
            b"GNU.sparse.realsize",
            size.to_string().as_bytes(),
        );
        path = b"GNUSparseFile.0/file".to_vec();
    }
    let entry = member.entry;
    let target = member.link.unwrap_or(match entry.kind {
        Kind::Symlink => &entry.target,
        _ => &[],
    });
    if path.len() > NAME_BYTES_MAX {
        record(&mut records, b"path", &path);
    }
    if target.len() > NAME_BYTES_MAX {
        record(&mut records, b"linkpath", target);
    }
    for (key, value, max) in [
        (&b"uid"[..], u64::from(entry.uid), octal_max(7)),
        (b"gid", u64::from(entry.gid), octal_max(7)),
        (b"size", member.size, octal_max(11)),
    ] {
        if value > max {
            record(&mut records, key, value.to_string().as_bytes());
        }
    }
    if entry.mtime.nanos != 0 || !(0..=octal_max(11) as i64).contains(&entry.mtime.seconds) {
        record(&mut records, b"mtime", time(entry.mtime).as_bytes());
    }
    if let Some(atime) = entry.atime.get() {
        record(&mut records, b"atime", time(atime).as_bytes());
    }
    if member.link.is_none() {
        for xattr in member.xattrs {
            let key = [b"SCHILY.xattr.".as_slice(), &escaped(&xattr.name)].concat();
            record(&mut records, &key, &xattr.value);
        }
    }
    let mut out = Vec::with_capacity(3 * BLOCK_BYTES + records.len());
    if !records.is_empty() {
        let size = records.len() as u64;
        out.extend_from_slice(&block(b"PaxHeaders/file", b"", b'x', size, &pax_entry()));
        out.extend_from_slice(&records);
        pad(&mut out);
    }
    out.extend_from_slice(&block(&path, target, type_of(member), member.size, entry));
    out
}

/// A record: its own length in decimal, a space, key, equals sign, value, newline.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut digits = 1;
    while (rest + digits).to_string().len() > digits {
        digits += 1;
    }
    records.extend_from_slice((rest + digits).to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// An equals sign would end the key.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => escaped.extend_from_slice(b"%3D"),
            b'%' => escaped.extend_from_slice(b"%25"),
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Seconds with nine decimals, exact on both sides of 1970.
fn time(time: Time) -> String {
    if time.seconds >= 0 {
        return format!("{}.{:09}", time.seconds, time.nanos);
    }
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let before = nanos.unsigned_abs();
    format!("-{}.{:09}", before / 1_000_000_000, before % 1_000_000_000)
}

fn pax_entry() -> Entry {
    let mut entry = Entry::new(Default::default(), Default::default(), Kind::File);
    entry.mode = 0o644;
    entry
}

fn type_of(member: &Member) -> u8 {
    if member.link.is_some() {
        return b'1';
    }
    match member.entry.kind {
        Kind::File | Kind::Socket | Kind::Extent => b'0',
        Kind::Symlink => b'2',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

/// The 512 bytes of a header. Numbers that do not fit are in records; here they are cut.
fn block(path: &[u8], target: &[u8], kind: u8, size: u64, entry: &Entry) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &path[..path.len().min(NAME_BYTES_MAX)]);
    put(100, &octal(7, u64::from(entry.mode & 0o7777)));
    put(108, &octal(7, u64::from(entry.uid)));
    put(116, &octal(7, u64::from(entry.gid)));
    put(124, &octal(11, size));
    put(
        136,
        &octal(11, u64::try_from(entry.mtime.seconds).unwrap_or(0)),
    );
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &target[..target.len().min(NAME_BYTES_MAX)]);
    put(257, b"ustar\x0000");
    put(329, &octal(7, entry.rdev >> 32));
    put(337, &octal(7, entry.rdev & 0xffff_ffff));
    let sum = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..154].copy_from_slice(&octal(6, sum));
    block[154] = 0;
    block
}

fn octal(digits: usize, value: u64) -> Vec<u8> {
    let value = value.min(octal_max(digits as u32));
    format!("{value:0digits$o}").into_bytes()
}

/// Fills up to the next block.
pub fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
}

/// The map that begins the content of a file with holes: number of stretches, then offset and
/// length of each.
pub fn sparse_map(ranges: &[(u64, u64)], size: u64) -> Vec<u8> {
    let mut map = format!("{}\n", ranges.len() + 1).into_bytes();
    for (offset, length) in ranges.iter().chain([&(size, 0)]) {
        map.extend_from_slice(format!("{offset}\n{length}\n").as_bytes());
    }
    pad(&mut map);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for len in [1, 80, 90, 91, 92, 93, 94, 95, 980, 990, 991, 992, 993, 9990] {
            let mut records = Vec::new();
            record(&mut records, b"path", &vec![b'x'; len]);
            let space = records.iter().position(|byte| *byte == b' ').unwrap();
            let said: usize = std::str::from_utf8(&records[..space])
                .unwrap()
                .parse()
                .unwrap();
            assert_eq!(said, records.len());
        }
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let text = |seconds, nanos| time(Time { seconds, nanos });
        assert_eq!(text(1, 5), "1.000000005");
        assert_eq!(text(-1, 999_999_999), "-0.000000001");
        assert_eq!(text(-2, 0), "-2.000000000");
        assert_eq!(text(i64::MIN, 0), "-9223372036854775808.000000000");
    }
}
