//! Recovery keys: 32 random bytes that people write on paper and type back. docs/FORMAT.md,
//! section 3.

use crate::error::{Fault, FormatError};
use std::fmt;
use zeroize::Zeroizing;

const WHAT: &str = "recovery key";
/// Without I, L, O and U, which are read as something else.
const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CHECK_BYTES: usize = 3;
const ALL_BYTES: usize = 32 + CHECK_BYTES;
const TEXT_LETTERS: usize = ALL_BYTES * 8 / 5;
const GROUP_LETTERS: usize = 7;
const BITS_PER_LETTER: usize = 5;

/// The bytes of a recovery key. Wiped when dropped.
#[derive(Clone)]
pub struct RecoveryKey(Zeroizing<[u8; 32]>);

impl RecoveryKey {
    /// From 32 random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> RecoveryKey {
        RecoveryKey(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 56 letters in eight groups of seven, with dashes between.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut all = Zeroizing::new([0; ALL_BYTES]);
        all[..32].copy_from_slice(&self.0[..]);
        all[32..].copy_from_slice(&check(&self.0));
        let mut text = String::with_capacity(TEXT_LETTERS + TEXT_LETTERS / GROUP_LETTERS);
        for letter in 0..TEXT_LETTERS {
            if letter > 0 && letter % GROUP_LETTERS == 0 {
                text.push('-');
            }
            let value = (0..BITS_PER_LETTER).fold(0, |value, bit| {
                let at = letter * BITS_PER_LETTER + bit;
                value << 1 | usize::from(all[at / 8] >> (7 - at % 8) & 1)
            });
            text.push(char::from(LETTERS[value]));
        }
        Zeroizing::new(text)
    }

    /// As typed: any case, spaces and dashes anywhere, O for 0, I and L for 1.
    pub fn from_text(text: &str) -> Result<RecoveryKey, FormatError> {
        let refused = |reason: String| {
            FormatError::damaged(
                WHAT,
                Fault::Text {
                    field: "text",
                    reason,
                },
            )
        };
        let mut all = Zeroizing::new([0; ALL_BYTES]);
        let mut letters = 0;
        for typed in text.chars().filter(|c| !c.is_whitespace() && *c != '-') {
            let value = letter_value(typed)
                .ok_or_else(|| refused(format!("letter {} is not one", letters + 1)))?;
            letters += 1;
            if letters > TEXT_LETTERS {
                return Err(refused(format!("more than {TEXT_LETTERS} letters")));
            }
            for bit in 0..BITS_PER_LETTER {
                let at = (letters - 1) * BITS_PER_LETTER + bit;
                all[at / 8] |= (value >> (BITS_PER_LETTER - 1 - bit) & 1) << (7 - at % 8);
            }
        }
        if letters != TEXT_LETTERS {
            return Err(refused(format!(
                "{letters} letters instead of {TEXT_LETTERS}"
            )));
        }
        let mut key = RecoveryKey::from_bytes([0; 32]);
        key.0.copy_from_slice(&all[..32]);
        if check(&key.0) != all[32..] {
            return Err(refused("a letter is wrong".to_owned()));
        }
        Ok(key)
    }
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryKey(..)")
    }
}

fn check(secret: &[u8; 32]) -> [u8; CHECK_BYTES] {
    let hash = blake3::hash(secret);
    hash.as_bytes()[..CHECK_BYTES]
        .try_into()
        .expect("a hash is longer than its first three bytes")
}

fn letter_value(typed: char) -> Option<u8> {
    let letter = match typed.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    LETTERS
        .iter()
        .position(|known| char::from(*known) == letter)
        .map(|value| value as u8)
}
