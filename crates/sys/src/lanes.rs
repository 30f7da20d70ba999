//! BLAKE3 of many small contents at once: eight blocks of different contents go through one set of
//! vector registers.
//!
//! The algorithm has eight or sixteen lanes for the kibibytes of one long input; a content of one
//! or two kibibytes leaves all but one of them empty, and takes several times as long a byte. Here
//! each lane has a kibibyte of whatever content is next, and takes another when it is done. Results
//! are those of `blake3::keyed_hash`, which is used where a processor has no such registers, and
//! for contents that fill them alone.

#[cfg(target_arch = "x86_64")]
mod chunks;
#[cfg(target_arch = "x86_64")]
mod registers;

/// The keyed BLAKE3 hash of each of `contents`, in their order. `hashes` is replaced.
pub fn keyed_hashes(key: &[u8; 32], contents: &[&[u8]], hashes: &mut Vec<[u8; 32]>) {
    hashes.clear();
    #[cfg(target_arch = "x86_64")]
    if let Some(registers) = registers::Registers::of_this_processor() {
        return chunks::keyed_hashes(registers, key, contents, hashes);
    }
    hashes.extend(contents.iter().map(|content| alone(key, content)));
}

fn alone(key: &[u8; 32], content: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, content).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_come_in_the_order_of_the_contents() {
        let key = [7; 32];
        let long = vec![1; 10_000];
        let contents: [&[u8]; 4] = [b"first", &long, b"", b"last"];
        let mut hashes = vec![[9; 32]];
        keyed_hashes(&key, &contents, &mut hashes);
        assert_eq!(hashes, contents.map(|content| alone(&key, content)));
    }
}
