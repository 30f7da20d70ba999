//! Which kernel runs.

use std::sync::OnceLock;

/// Whether its release is this one or a later one. One that says nothing of the kind counts as old.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    static RELEASE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let release = RELEASE.get_or_init(|| {
        let name = rustix::system::uname();
        parse(&name.release().to_string_lossy())
    });
    release.is_some_and(|release| release >= (major, minor))
}

/// `6.1.0-56-amd64`: 6 and 1.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        assert_eq!(parse("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(parse("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(parse("6.18.44+"), Some((6, 18)));
        assert_eq!(parse("next"), None);
        assert!(is_at_least(2, 6) && !is_at_least(1000, 0));
    }
}
