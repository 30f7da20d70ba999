//! Runs: where on the volume the clusters of an attribute are.

use super::error::NtfsFault;
use std::ops::Range;

/// Runs of one attribute at most, 24 bytes each: 96 MiB.
pub(super) const RUNS_MAX: usize = 4 << 20;

/// Clusters that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRun {
    /// First cluster, counted in the attribute.
    pub first: u64,
    /// First cluster on the volume; `None`: a hole.
    pub cluster: Option<u64>,
    pub count: u64,
}

impl ClusterRun {
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    /// On the volume.
    pub fn clusters(&self) -> Option<Range<u64>> {
        self.cluster.map(|start| start..start + self.count)
    }
}

/// Decodes the runs of one piece of attribute `kind`, which holds `clusters` of it, and adds them
/// to those of the pieces before.
pub(super) fn decode_runs(
    bytes: &[u8],
    kind: u32,
    clusters: Range<u64>,
    volume_clusters: u64,
    runs: &mut Vec<ClusterRun>,
) -> Result<(), NtfsFault> {
    let damaged = NtfsFault::Runs(kind);
    let mut rest = bytes;
    let mut next = clusters.start;
    let mut place = 0i64;
    while let Some((&head, after)) = rest.split_first() {
        if head == 0 {
            break;
        }
        let (count_bytes, place_bytes) = (usize::from(head & 0xf), usize::from(head >> 4));
        let (count, after) = after.split_at_checked(count_bytes).ok_or(damaged)?;
        let (delta, after) = after.split_at_checked(place_bytes).ok_or(damaged)?;
        rest = after;
        let count = signed(count).and_then(|count| u64::try_from(count).ok());
        let count = count.filter(|count| *count > 0).ok_or(damaged)?;
        let cluster = match place_bytes {
            0 => None,
            _ => {
                let delta = signed(delta).ok_or(damaged)?;
                place = place.checked_add(delta).ok_or(damaged)?;
                let start = u64::try_from(place).map_err(|_| damaged)?;
                let end = start.checked_add(count).ok_or(damaged)?;
                if end > volume_clusters {
                    return Err(damaged);
                }
                Some(start)
            }
        };
        let end = next.checked_add(count).filter(|end| *end <= clusters.end);
        let end = end.ok_or(damaged)?;
        if runs.len() >= RUNS_MAX {
            return Err(NtfsFault::TooLong);
        }
        runs.push(ClusterRun {
            first: next,
            cluster,
            count,
        });
        next = end;
    }
    match next == clusters.end {
        true => Ok(()),
        false => Err(damaged),
    }
}

/// Little-endian, its sign in the highest bit; 0 of no bytes.
fn signed(bytes: &[u8]) -> Option<i64> {
    if bytes.len() > 8 {
        return None;
    }
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], clusters: u64) -> Result<Vec<ClusterRun>, NtfsFault> {
        let mut runs = Vec::new();
        decode_runs(bytes, 0x80, 0..clusters, 1000, &mut runs).map(|()| runs)
    }

    #[test]
    fn runs_go_forward_and_back_and_have_holes() {
        // 24 clusters at 308, a hole of 8, 5 clusters 256 before the first.
        let bytes = [
            0x21, 0x18, 0x34, 0x01, 0x01, 0x08, 0x21, 0x05, 0x00, 0xff, 0x00,
        ];
        let run = |first, cluster, count| ClusterRun {
            first,
            cluster,
            count,
        };
        let expected = vec![
            run(0, Some(308), 24),
            run(24, None, 8),
            run(32, Some(52), 5),
        ];
        assert_eq!(decode(&bytes, 37), Ok(expected));
    }

    #[test]
    fn runs_that_lead_out_of_the_volume_or_do_not_add_up_are_damage() {
        let damaged = Err(NtfsFault::Runs(0x80));
        for bytes in [
            &[0x21, 0x18, 0x34][..],
            &[0x21, 0x18, 0xe0, 0x03, 0],
            &[0x11, 0x18, 0x80, 0],
            &[0x11, 0x17, 0x10, 0],
            &[0x11, 0x19, 0x10, 0],
            &[0x11, 0x00, 0x10, 0],
            &[0x10, 0x10, 0],
            &[0x9f; 40],
            &[],
        ] {
            assert_eq!(decode(bytes, 0x18), damaged, "{bytes:x?}");
        }
    }
}
