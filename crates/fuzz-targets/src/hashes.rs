//! Own ways of hashing, against the library.

/// Longer contents than are hashed together come in, too.
const BYTES: usize = 10 << 10;

/// Contents that are hashed together, against the library that hashes them one by one.
pub fn lanes(data: &[u8]) {
    let Some((key, data)) = data.split_first_chunk::<32>() else {
        return;
    };
    let Some((count, data)) = data.split_first() else {
        return;
    };
    let (cuts, data) = data.split_at(data.len().min(2 * usize::from(*count)));
    let mut bytes: Vec<u8> = data.iter().copied().cycle().take(BYTES).collect();
    bytes.resize(BYTES, 0);
    // They may overlap, and begin at any address.
    let content = |(at, cut): (usize, &[u8])| {
        let len = usize::from(u16::from_le_bytes([cut[0], cut[1]])) % (BYTES + 1);
        let start = (at * 31) % (BYTES - len + 1);
        &bytes[start..start + len]
    };
    let contents: Vec<&[u8]> = cuts.chunks_exact(2).enumerate().map(content).collect();
    let mut hashes = vec![[7; 32]];
    bale_sys::lanes::keyed_hashes(key, &contents, &mut hashes);
    let one_by_one = contents
        .iter()
        .map(|content| *blake3::keyed_hash(key, content).as_bytes());
    assert!(hashes.into_iter().eq(one_by_one));
}
