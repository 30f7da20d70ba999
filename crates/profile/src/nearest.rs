//! The known word that is nearest to one that nobody knows.

/// Less alike than this is another word, and no slip of a finger (clap's bound).
const LIKENESS_MIN: f64 = 0.7;

/// The most alike of `known`, if any is.
pub fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let likeness = |known: &&str| strsim::jaro_winkler(word, known);
    let alike = known.filter(|known| likeness(known) > LIKENESS_MIN);
    alike.max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
}

/// `: did you mean "exclude"?`, or nothing.
pub fn advice<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> String {
    match nearest(word, known) {
        Some(known) => format!(": did you mean {known:?}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_a_finger_are_guessed_and_other_words_are_not() {
        let known = ["exclude", "exclude-file", "exclude-caches", "keep-daily"];
        let guess = |word| nearest(word, known.into_iter());
        assert_eq!(guess("exlude"), Some("exclude"));
        assert_eq!(guess("exclude-cache"), Some("exclude-caches"));
        assert_eq!(guess("keep-dayly"), Some("keep-daily"));
        assert_eq!(guess("zzz"), None);
        assert_eq!(guess(""), None);
    }
}
