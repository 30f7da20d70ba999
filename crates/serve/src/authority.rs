//! Is a certificate that of an authority? Clients refuse one in a server's place, and say so to
//! whoever uses them: the server says it before, to whoever can make another.

/// `id-ce-basicConstraints`, as it stands in a certificate.
const BASIC_CONSTRAINTS: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x13];

/// The value TRUE.
const TRUE: [u8; 3] = [0x01, 0x01, 0xff];

/// Looks for the extension and its `CA:TRUE`. What is no certificate says neither.
pub(crate) fn is_authoritys(certificate: &[u8]) -> bool {
    let mut windows = certificate.windows(BASIC_CONSTRAINTS.len());
    let Some(at) = windows.position(|window| window == BASIC_CONSTRAINTS) else {
        return false;
    };
    let after = &certificate[at + BASIC_CONSTRAINTS.len()..];
    let value = after.strip_prefix(&TRUE).unwrap_or(after);
    // A string of bytes with a sequence in it, of a few bytes each.
    matches!(value, [0x04, _, 0x30, _, rest @ ..] if rest.starts_with(&TRUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_known_by_its_extension() {
        let with = |value: &[u8]| [&[0x30, 0x13], &BASIC_CONSTRAINTS[..], value].concat();
        let critical_authority = [0x01, 0x01, 0xff, 0x04, 0x05, 0x30, 0x03, 0x01, 0x01, 0xff];
        assert!(is_authoritys(&with(&critical_authority)));
        assert!(is_authoritys(&with(&critical_authority[3..])));
        let with_length_of_path = [0x04, 0x08, 0x30, 0x06, 0x01, 0x01, 0xff, 0x02, 0x01, 0x00];
        assert!(is_authoritys(&with(&with_length_of_path)));
        for no_authority in [
            &[0x01, 0x01, 0xff, 0x04, 0x02, 0x30, 0x00][..],
            &[0x04],
            &[],
        ] {
            assert!(!is_authoritys(&with(no_authority)), "{no_authority:?}");
        }
        assert!(!is_authoritys(b"no certificate"));
    }
}
