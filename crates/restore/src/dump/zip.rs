//! Headers of a zip archive that is written from front to back (PKWARE's APPNOTE 6.3, with the
//! extra fields of Info-ZIP for times and owners).
//!
//! Numbers that do not fit into 32 bits are in zip64 fields. Names are any bytes; those that are
//! UTF-8 are marked as such.

use bale_format::Time;

/// Longest name: its length has 16 bits.
pub const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// Content of an unknown packed length: with more bytes than this, the lengths behind it have 64
/// bits. What does not compress grows a little.
pub const ZIP32_CONTENT_MAX: u64 = 4_000_000_000;

/// Zip's own, and that of Unix in the upper byte, which makes modes and names what they are there.
const MADE_BY_UNIX: u16 = 3 << 8 | VERSION_ZIP64;
const VERSION: u16 = 20;
const VERSION_ZIP64: u16 = 45;

const FLAG_LENGTHS_BEHIND: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;

const IN_ZIP64: u32 = u32::MAX;
const ENTRIES_IN_ZIP64: u16 = u16::MAX;

/// How content is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Stored = 0,
    Deflated = 8,
}

/// One member, apart from its content.
pub struct ZipMember<'m> {
    pub name: &'m [u8],
    /// With the bits of its kind.
    pub mode: u32,
    pub mtime: Time,
    pub owner: (u32, u32),
    pub method: Method,
    /// Do its lengths stand behind its content, and are they of 64 bits?
    pub lengths: Lengths,
}

/// Where the lengths of content stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    InFront,
    Behind,
    /// With 64 bits.
    LongBehind,
}

/// Content, once it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    pub crc: u32,
    pub packed_bytes: u64,
    pub bytes: u64,
}

impl ZipMember<'_> {
    fn flags(&self) -> u16 {
        let behind = match self.lengths {
            Lengths::InFront => 0,
            Lengths::Behind | Lengths::LongBehind => FLAG_LENGTHS_BEHIND,
        };
        match std::str::from_utf8(self.name) {
            Ok(_) => behind | FLAG_UTF8,
            Err(_) => behind,
        }
    }

    /// Version, flags, method, time: the same in both headers.
    fn begin(&self, out: &mut Vec<u8>, is_long: bool) {
        let version = if is_long { VERSION_ZIP64 } else { VERSION };
        let (date, time) = dos_time(self.mtime.seconds);
        for field in [version, self.flags(), self.method as u16, time, date] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }

    /// What stands in front of the content.
    pub fn local_header(&self, packed: &Packed) -> Vec<u8> {
        let is_long = self.lengths == Lengths::LongBehind;
        let mut extra = self.extra();
        let (crc, lengths) = match self.lengths {
            Lengths::InFront => (
                packed.crc,
                [packed.packed_bytes as u32, packed.bytes as u32],
            ),
            Lengths::Behind => (0, [0; 2]),
            Lengths::LongBehind => {
                extra.extend_from_slice(&zip64(&[0, 0]));
                (0, [IN_ZIP64; 2])
            }
        };
        let mut out = b"PK\x03\x04".to_vec();
        self.begin(&mut out, is_long);
        for number in [crc, lengths[0], lengths[1]] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for length in [self.name.len(), extra.len()] {
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(&extra);
        out
    }

    /// What stands behind content whose lengths were not known in front of it.
    pub fn descriptor(&self, packed: &Packed) -> Vec<u8> {
        let mut out = b"PK\x07\x08".to_vec();
        out.extend_from_slice(&packed.crc.to_le_bytes());
        for length in [packed.packed_bytes, packed.bytes] {
            match self.lengths {
                Lengths::LongBehind => out.extend_from_slice(&length.to_le_bytes()),
                _ => out.extend_from_slice(&(length as u32).to_le_bytes()),
            }
        }
        out
    }

    /// Its record in the directory at the end.
    pub fn central_header(&self, packed: &Packed, offset: u64) -> Vec<u8> {
        let mut long = Vec::new();
        let mut short = |number: u64, must: bool| match u32::try_from(number) {
            Ok(short) if short != IN_ZIP64 && !must => short,
            _ => {
                long.push(number);
                IN_ZIP64
            }
        };
        // Whoever reads the lengths behind the content must know how wide they are.
        let is_long = self.lengths == Lengths::LongBehind;
        // In the order of the zip64 field.
        let bytes = short(packed.bytes, is_long);
        let packed_bytes = short(packed.packed_bytes, is_long);
        let offset = short(offset, false);
        let mut extra = self.extra();
        if !long.is_empty() {
            extra.extend_from_slice(&zip64(&long));
        }
        let mut out = b"PK\x01\x02".to_vec();
        out.extend_from_slice(&MADE_BY_UNIX.to_le_bytes());
        self.begin(&mut out, !long.is_empty());
        for number in [packed.crc, packed_bytes, bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        // No comment, the first disk, no text.
        for number in [self.name.len(), extra.len(), 0, 0, 0] {
            out.extend_from_slice(&(number as u16).to_le_bytes());
        }
        let is_directory = u32::from(self.name.ends_with(b"/")) << 4;
        out.extend_from_slice(&(self.mode << 16 | is_directory).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(self.name);
        out.extend_from_slice(&extra);
        out
    }

    /// Time to the second, where it fits, and owner.
    fn extra(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        if let Ok(seconds) = i32::try_from(self.mtime.seconds) {
            out.extend_from_slice(b"UT\x05\x00\x01");
            out.extend_from_slice(&seconds.to_le_bytes());
        }
        out.extend_from_slice(b"ux\x0b\x00\x01");
        for id in [self.owner.0, self.owner.1] {
            out.push(4);
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }
}

fn zip64(numbers: &[u64]) -> Vec<u8> {
    let mut out = vec![1, 0];
    out.extend_from_slice(&(numbers.len() as u16 * 8).to_le_bytes());
    numbers
        .iter()
        .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out
}

/// The end of an archive: where its directory is.
pub fn end(entries: u64, central_offset: u64, central_bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let fits = |number: u64| {
        u32::try_from(number)
            .ok()
            .filter(|number| *number != IN_ZIP64)
    };
    let short_entries = u16::try_from(entries).ok();
    let short_entries = short_entries.filter(|entries| *entries != ENTRIES_IN_ZIP64);
    let is_long = [central_offset, central_bytes]
        .iter()
        .any(|one| fits(*one).is_none());
    if is_long || short_entries.is_none() {
        out.extend_from_slice(b"PK\x06\x06");
        // What follows of this record.
        out.extend_from_slice(&44u64.to_le_bytes());
        out.extend_from_slice(&MADE_BY_UNIX.to_le_bytes());
        out.extend_from_slice(&VERSION_ZIP64.to_le_bytes());
        // The first of one disk.
        out.extend_from_slice(&[0; 8]);
        for number in [entries, entries, central_bytes, central_offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        out.extend_from_slice(&(central_offset + central_bytes).to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
    }
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    let entries = short_entries.unwrap_or(ENTRIES_IN_ZIP64).to_le_bytes();
    out.extend_from_slice(&entries);
    out.extend_from_slice(&entries);
    for number in [central_bytes, central_offset] {
        out.extend_from_slice(&fits(number).unwrap_or(IN_ZIP64).to_le_bytes());
    }
    // No comment.
    out.extend_from_slice(&[0; 2]);
    out
}

/// Date and time as MS-DOS has them, of UTC, between 1980 and 2107. Programs of Unix take the exact
/// time of the extra field.
fn dos_time(seconds: i64) -> (u16, u16) {
    const FIRST: i64 = 315_532_800; // 1980-01-01
    const LAST: i64 = 4_354_819_198; // 2107-12-31 23:59:58
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March 2000 BCE's era, in years that end with February.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let time = hour << 11 | minute << 5 | (second / 2);
    (date as u16, time as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_ms_dos_are_those_of_the_calendar() {
        let text = |seconds| {
            let (date, time) = dos_time(seconds);
            let (year, month, day) = (1980 + (date >> 9), date >> 5 & 15, date & 31);
            let (hour, minute, second) = (time >> 11, time >> 5 & 63, (time & 31) * 2);
            format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
        };
        assert_eq!(text(0), "1980-01-01 00:00:00");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(text(1_795_253_263), "2026-11-21 09:27:42");
        assert_eq!(text(4_107_542_399), "2100-02-28 23:59:58");
        assert_eq!(text(4_107_542_400), "2100-03-01 00:00:00");
        assert_eq!(text(i64::MAX), "2107-12-31 23:59:58");
    }

    #[test]
    fn numbers_that_do_not_fit_are_in_zip64_fields() {
        let count = |bytes: &[u8], part: &[u8]| {
            bytes
                .windows(part.len())
                .filter(|window| *window == part)
                .count()
        };
        for (entries, offset, is_long) in [
            (65_534, 10, false),
            (65_535, 10, true),
            (1, u64::from(u32::MAX) - 1, false),
            (1, u64::from(u32::MAX), true),
        ] {
            let end = end(entries, offset, 7);
            assert_eq!(
                count(&end, b"PK\x06\x06"),
                usize::from(is_long),
                "{entries} {offset}"
            );
            assert_eq!(count(&end, b"PK\x05\x06"), 1);
        }
        let member = |lengths| ZipMember {
            name: b"n",
            mode: 0o100644,
            mtime: Time::default(),
            owner: (0, 0),
            method: Method::Deflated,
            lengths,
        };
        let packed = |bytes| Packed {
            crc: 1,
            packed_bytes: 5,
            bytes,
        };
        let long = [1, 0, 16, 0];
        let header =
            |lengths, bytes, offset| member(lengths).central_header(&packed(bytes), offset);
        assert_eq!(count(&header(Lengths::Behind, 9, 0), &[1, 0, 8, 0]), 0);
        assert_eq!(
            count(&header(Lengths::Behind, 9, 1 << 32), &[1, 0, 8, 0]),
            1
        );
        assert_eq!(count(&header(Lengths::LongBehind, 9, 0), &long), 1);
        assert_eq!(member(Lengths::LongBehind).descriptor(&packed(9)).len(), 24);
        assert_eq!(member(Lengths::Behind).descriptor(&packed(9)).len(), 16);
    }
}
