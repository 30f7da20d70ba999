//! Which of two exit codes is the worse one.

use crate::exit;

/// From nothing to everything. A code that is none of ours is a failure.
const ORDER: [i32; 9] = [
    exit::COMPLETE,
    exit::INCOMPLETE,
    exit::LOCKED,
    exit::FAILED,
    exit::USAGE,
    exit::NO_REPOSITORY,
    exit::WRONG_KEY,
    exit::DAMAGE,
    exit::INTERRUPTED,
];

/// The worse of two.
pub fn worse(one: i32, other: i32) -> i32 {
    ORDER[place(one).max(place(other))]
}

fn place(code: i32) -> usize {
    let of_failed = ORDER.iter().position(|other| *other == exit::FAILED);
    let found = ORDER.iter().position(|other| *other == code);
    found.or(of_failed).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_what_is_unknown_is_a_failure() {
        assert_eq!(worse(0, 3), 3);
        assert_eq!(worse(1, 3), 1);
        assert_eq!(worse(4, 1), 4);
        assert_eq!(worse(143, 0), 1);
        assert_eq!(worse(143, 4), 4);
        assert_eq!(worse(0, 0), 0);
    }
}
