//! What a source's last snapshot is beside those before it.

use bale_repository::repository::Named;

/// Snapshots before the last one that a trend is made of.
pub const TREND_SNAPSHOTS_MAX: usize = 10;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// The last snapshot against the median of those before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// How many were before, of those that count.
    pub snapshots: usize,
    /// Files and bytes of the last one beyond the medians.
    pub files: i64,
    pub bytes: i64,
    /// Stored by these snapshots but the first, over the time between the first and the last.
    pub stored_per_day: Option<f64>,
}

/// Of snapshots of one source, newest first; `None` with one alone.
pub fn trend(snapshots: &[&Named]) -> Option<Trend> {
    let (last, before) = snapshots.split_first()?;
    let before = &before[..before.len().min(TREND_SNAPSHOTS_MAX)];
    let (_, oldest) = before.last()?;
    let last = &last.1;
    let median_of = |number: fn(&Named) -> u64| {
        let mut numbers: Vec<u64> = before.iter().map(|named| number(named)).collect();
        numbers.sort_unstable();
        numbers[numbers.len() / 2]
    };
    let later = snapshots[..before.len()].iter();
    let stored = later.map(|(_, snapshot)| snapshot.counts.bytes_stored as f64);
    let seconds = last.time.seconds.saturating_sub(oldest.time.seconds);
    let days = seconds as f64 / SECONDS_PER_DAY;
    Some(Trend {
        snapshots: before.len(),
        files: difference(last.totals.files, median_of(|named| named.1.totals.files)),
        bytes: difference(last.totals.bytes, median_of(|named| named.1.totals.bytes)),
        stored_per_day: (seconds > 0).then(|| stored.sum::<f64>() / days),
    })
}

fn difference(now: u64, before: u64) -> i64 {
    let difference = i128::from(now) - i128::from(before);
    i64::try_from(difference).unwrap_or(if difference > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{ObjectId, Snapshot, Time};

    fn series(sizes: &[u64]) -> Vec<Named> {
        let all = sizes.iter().enumerate().map(|(number, size)| {
            let seconds = number as i64 * 43_200;
            let mut snapshot = Snapshot::begun([0; 16], Time { seconds, nanos: 0 });
            snapshot.totals.files = *size;
            snapshot.totals.bytes = size * 1000;
            snapshot.counts.bytes_stored = 500;
            (ObjectId([number as u8; 32]), snapshot)
        });
        let mut all: Vec<Named> = all.collect();
        all.reverse();
        all
    }

    #[test]
    fn growth_is_against_the_median_and_new_data_over_the_days_between() {
        let all = series(&[10, 10, 90, 10, 30]);
        let trend = trend(&all.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((trend.snapshots, trend.files, trend.bytes), (4, 20, 20_000));
        // Four snapshots after the first, in two days.
        assert_eq!(trend.stored_per_day, Some(1000.0));
    }

    #[test]
    fn one_snapshot_has_no_trend_and_sizes_beyond_all_measure_do_not_overflow() {
        let all = series(&[10]);
        assert_eq!(trend(&all.iter().collect::<Vec<_>>()), None);
        let mut all = series(&[0, 0]);
        all[0].1.totals.bytes = u64::MAX;
        all[0].1.time = Time::default();
        let trend = trend(&all.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((trend.bytes, trend.stored_per_day), (i64::MAX, None));
    }
}
