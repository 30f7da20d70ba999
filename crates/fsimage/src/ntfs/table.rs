//! The MFT as a table: its records in the order in which they are on the volume.

use super::record::MftRecord;
use super::{Ntfs, NtfsError, PIECE_BYTES};

/// Records of the MFT for one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MftPiece {
    pub first: u64,
    pub count: u64,
    /// Where on the volume they are.
    pub offset: u64,
    /// How many bytes are there; fewer than one record has, if it is torn between two runs:
    /// [`Ntfs::read_record_bytes`] reads it.
    pub bytes: u64,
}

impl Ntfs {
    /// All of the MFT, piece by piece.
    pub fn table(&self) -> impl Iterator<Item = MftPiece> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let piece = self.piece_at(next)?;
            next += piece.count;
            Some(piece)
        })
    }

    fn piece_at(&self, first: u64) -> Option<MftPiece> {
        let left = self.records().checked_sub(first).filter(|left| *left > 0)?;
        let record_bytes = u64::from(self.boot.record_bytes);
        let cluster_bytes = u64::from(self.boot.cluster_bytes);
        let at = first * record_bytes;
        // The MFT was found to have a run for each of its bytes.
        let run = self.mft.run_of(at / cluster_bytes)?;
        let offset = run.cluster? * cluster_bytes + (at - run.first * cluster_bytes);
        let in_run = run.end() * cluster_bytes - at;
        let whole = (in_run.min(PIECE_BYTES) / record_bytes).min(left);
        Some(MftPiece {
            first,
            count: whole.max(1),
            offset,
            bytes: match whole {
                0 => in_run,
                _ => whole * record_bytes,
            },
        })
    }

    /// Reads one record as it is on the volume.
    pub fn read_record_bytes(&self, number: u64, bytes: &mut Vec<u8>) -> Result<(), NtfsError> {
        self.read_records(number, 1, bytes)
    }

    /// The first records of files among whole records, one behind the other, as they were read.
    pub fn records_in(
        &self,
        first: u64,
        bytes: &mut [u8],
        visit: &mut dyn FnMut(u64, Result<MftRecord<'_>, NtfsError>),
    ) {
        let record_bytes = self.boot.record_bytes as usize;
        for (number, record) in (first..).zip(bytes.chunks_exact_mut(record_bytes)) {
            // Never used: nobody wrote a head.
            if record[..4] == [0; 4] || Self::is_internal(number) {
                continue;
            }
            match MftRecord::parse(number, record) {
                Ok(record) if !record.is_in_use() || record.base().is_some() => {}
                Ok(record) => visit(number, Ok(record)),
                Err(fault) => visit(number, Err(NtfsError::record(number)(fault))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NtfsBoot;
    use super::super::record::DATA;
    use super::super::runs::ClusterRun;
    use super::super::stream::MappedStream;
    use super::*;
    use std::sync::Arc;

    const RECORD_BYTES: usize = 1024;

    /// An MFT of `records` in clusters of 512 bytes, whose runs are so many clusters long and lie
    /// apart and backwards.
    fn volume(records: usize, runs: &[u64]) -> Ntfs {
        let clusters = 200;
        let mut bytes = vec![0; clusters as usize * 512];
        let mft: Vec<u8> = (0..records * RECORD_BYTES)
            .map(|at| (at / 7) as u8)
            .collect();
        let (mut first, mut cluster) = (0, clusters - 10);
        let mut placed = Vec::new();
        for count in runs {
            cluster -= count + 3;
            for at in 0..*count {
                let from = (first + at) as usize * 512;
                let to = (cluster + at) as usize * 512;
                bytes[to..to + 512].copy_from_slice(&mft[from..from + 512]);
            }
            placed.push(ClusterRun {
                first,
                cluster: Some(cluster),
                count: *count,
            });
            first += count;
        }
        let size = (records * RECORD_BYTES) as u64;
        Ntfs {
            source: Arc::new(bytes),
            boot: NtfsBoot {
                sector_bytes: 512,
                cluster_bytes: 512,
                clusters,
                sectors: clusters,
                mft_cluster: 1,
                mirror_cluster: 1,
                record_bytes: RECORD_BYTES as u32,
                serial: 0,
            },
            mft: Arc::new(MappedStream {
                kind: DATA,
                flags: 0,
                unit_log: 0,
                size,
                initialized: size,
                runs: placed,
            }),
        }
    }

    #[test]
    fn every_record_is_in_one_piece_and_one_that_is_torn_is_read_whole() {
        for (runs, torn) in [(&[60][..], 0), (&[7, 13, 40], 1), (&[1, 1, 1, 57], 2)] {
            let ntfs = volume(30, runs);
            let (mut next, mut found_torn) = (0, 0);
            for piece in ntfs.table() {
                assert_eq!(piece.first, next);
                next += piece.count;
                let mut bytes = vec![0; piece.bytes as usize];
                ntfs.source.read_exact_at(piece.offset, &mut bytes).unwrap();
                if piece.bytes < RECORD_BYTES as u64 {
                    found_torn += 1;
                    ntfs.read_record_bytes(piece.first, &mut bytes).unwrap();
                }
                let start = piece.first as usize * RECORD_BYTES;
                assert_eq!(bytes.len(), piece.count as usize * RECORD_BYTES);
                let expected = (start..start + bytes.len()).map(|at| (at / 7) as u8);
                assert!(bytes.iter().copied().eq(expected), "{piece:?}");
            }
            assert_eq!((next, found_torn), (30, torn), "{runs:?}");
        }
    }
}
