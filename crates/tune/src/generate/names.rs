//! Names of files and directories.

use super::dice::Dice;
use super::options::GenerateOptions;

const LETTERS: &[u8; 66] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@=+";
/// The same, ascending.
const LETTERS_IN_ORDER: &[u8; 66] =
    b"+0123456789=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
/// Beginnings of two letters.
pub(crate) const STRATA: u64 = (LETTERS_IN_ORDER.len() * LETTERS_IN_ORDER.len()) as u64;

/// The beginning of that number; they ascend.
pub(crate) fn stratum_prefix(stratum: u64) -> [u8; 2] {
    let letters = LETTERS_IN_ORDER.len() as u64;
    [stratum / letters, stratum % letters].map(|letter| LETTERS_IN_ORDER[letter as usize])
}

/// Five of six files have one.
const EXTENSIONS: [&[u8]; 32] = [
    b"txt", b"log", b"xml", b"dat", b"doc", b"htm", b"json", b"csv", b"c", b"h", b"py", b"rs",
    b"jpg", b"png", b"pdf", b"eml", b"cfg", b"sql", b"tmp", b"bak", b"md", b"js", b"css", b"gz",
    b"zip", b"mp3", b"wav", b"tex", b"sh", b"bin", b"idx", b"db",
];
const WORDS: [&[u8]; 64] = [
    b"annual", b"archive", b"audit", b"autumn", b"backup", b"balance", b"branch", b"budget",
    b"cabin", b"candle", b"chapter", b"client", b"copper", b"corner", b"daily", b"delta",
    b"design", b"draft", b"engine", b"fabric", b"figure", b"final", b"forest", b"garden",
    b"granite", b"harbor", b"index", b"invoice", b"island", b"journal", b"kernel", b"ladder",
    b"ledger", b"letter", b"market", b"meadow", b"meeting", b"memo", b"mirror", b"model",
    b"monthly", b"north", b"notes", b"office", b"orchard", b"order", b"paper", b"photo", b"plan",
    b"project", b"quarter", b"record", b"report", b"river", b"sample", b"season", b"signal",
    b"silver", b"sketch", b"station", b"summary", b"timber", b"travel", b"winter",
];

const FOR_LENGTH: u64 = 101;
const FOR_LETTERS: u64 = 102;
const FOR_EXTENSION: u64 = 103;
const FOR_WORDS: u64 = 104;
const FOR_NUMBER: u64 = 105;
const FOR_ODDITY: u64 = 106;
const FOR_ODD_KIND: u64 = 107;

/// Appends the name that `dice` gives a file or directory. It may not be unique.
pub(crate) fn push_name(
    out: &mut Vec<u8>,
    dice: Dice,
    is_directory: bool,
    options: &GenerateOptions,
) {
    if dice.happens(FOR_ODDITY, options.odd_name_share) {
        push_odd(out, dice);
    } else if options.realistic_names {
        push_words(out, dice, is_directory);
    } else {
        push_letters(out, dice, options.name_bytes);
        if !is_directory {
            push_extension(out, dice);
        }
    }
}

fn push_letters(out: &mut Vec<u8>, dice: Dice, (low, high): (u64, u64)) {
    let len = dice.within(FOR_LENGTH, low, high);
    let mut bits = 0u128;
    for position in 0..len {
        // Ten letters from one draw.
        if position.is_multiple_of(10) {
            bits = u128::from(dice.part(FOR_LETTERS, position).0);
        }
        bits = (bits & u128::from(u64::MAX)) * LETTERS.len() as u128;
        out.push(LETTERS[(bits >> 64) as usize]);
    }
}

fn push_extension(out: &mut Vec<u8>, dice: Dice) {
    let choice = dice.within(FOR_EXTENSION, 0, EXTENSIONS.len() as u64 * 6 - 1);
    if !choice.is_multiple_of(6) {
        out.push(b'.');
        out.extend_from_slice(EXTENSIONS[(choice / 6) as usize]);
    }
}

/// Files: one to four words, a number, an extension. Directories: one or two words and a number.
fn push_words(out: &mut Vec<u8>, dice: Dice, is_directory: bool) {
    let count = dice.within(FOR_LENGTH, 1, if is_directory { 2 } else { 4 });
    for word in 0..count {
        if word > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(
            WORDS[dice
                .part(FOR_WORDS, word)
                .within(0, 0, WORDS.len() as u64 - 1) as usize],
        );
    }
    let number = dice.within(FOR_NUMBER, 0, if is_directory { 99 } else { 999 });
    out.extend_from_slice(format!("-{number:02}").as_bytes());
    if !is_directory {
        push_extension(out, dice);
    }
}

/// Names that break scripts and careless programs.
fn push_odd(out: &mut Vec<u8>, dice: Dice) {
    let number = dice.within(FOR_NUMBER, 0, 0xffff_ffff);
    let start = out.len();
    let core = format!("{number:08x}");
    let core = core.as_bytes();
    let parts: [&[u8]; 2] = match dice.within(FOR_ODD_KIND, 0, 9) {
        0 => [b" leading and trailing space ", b" "],
        1 => [b"line\nend\r\t", b"\n"],
        2 => [b"\xff\xfe\x80 no UTF-8 ", b"\xc3"],
        3 => [b"-rf --", b""],
        4 => [b"quote'\"`$(", b")\\"],
        5 => [
            "gr\u{fc}\u{df}e \u{1f980} ".as_bytes(),
            "\u{301}".as_bytes(),
        ],
        6 => [b"~#%&*?[]{}|;<>", b"..."],
        7 => [b"...", b"."],
        8 => [b"\x01\x1b[31m\x7f", b""],
        _ => [b"", b""],
    };
    out.extend_from_slice(parts[0]);
    out.extend_from_slice(core);
    out.extend_from_slice(parts[1]);
    if out.len() - start == core.len() {
        // The longest name that can still be made unique.
        out.resize(start + 240, b'x');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_ascend_and_are_of_the_same_letters() {
        assert!(LETTERS_IN_ORDER.is_sorted());
        assert!(
            LETTERS
                .iter()
                .all(|letter| LETTERS_IN_ORDER.contains(letter))
        );
        let all: Vec<_> = (0..STRATA).map(stratum_prefix).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
