//! How many packs are uploaded at a time: found by trying, within a bound.
//!
//! It begins with five, or the bound, takes one more as long as that brings more bytes a second,
//! and goes back where it does not. A store that says it is busy halves it. Only rounds count in
//! which packs were waiting all the time: what is slow then is the store, and not who fills packs.

use std::time::Duration;

/// Uploads at a time, at first.
const UPLOADS_FIRST: usize = 5;
/// One more upload has to bring this much more, in percent.
const GAIN_PERCENT_MIN: u64 = 5;
/// Rounds after which one more is tried again that brought nothing, or was too much.
const ROUNDS_UNTIL_NEXT_TRY: u32 = 16;

/// Decides; whoever uploads tells it what happened.
pub(super) struct Pace {
    limit: usize,
    max: usize,
    /// Counts the times that the store was found busy: uploads of one time say it once.
    wave: u64,
    round: Option<Round>,
    /// Bytes a second of the last round with one upload fewer, if the last step was up.
    before_step: Option<u64>,
    rounds_to_wait: u32,
}

/// Uploads that end while others wait.
struct Round {
    began: Duration,
    bytes: u64,
    /// Until it is over.
    uploads: usize,
}

impl Pace {
    pub(super) fn new(max: usize) -> Pace {
        Pace {
            limit: UPLOADS_FIRST.min(max).max(1),
            max: max.max(1),
            wave: 0,
            round: None,
            before_step: None,
            rounds_to_wait: 0,
        }
    }

    /// Uploads at a time, from now on.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// What an upload that begins now hands back with [`Pace::busy`].
    pub(super) fn wave(&self) -> u64 {
        self.wave
    }

    /// The store was too busy for an upload that began in this wave.
    pub(super) fn busy(&mut self, wave: u64) {
        if wave != self.wave {
            return;
        }
        self.wave += 1;
        self.limit = (self.limit / 2).max(1);
        self.wait_with_further_steps();
    }

    /// An upload ended at this time; do others wait for their turn?
    pub(super) fn ended(&mut self, bytes: u64, now: Duration, others_wait: bool) {
        if !others_wait {
            self.round = None;
            return;
        }
        let Some(round) = &mut self.round else {
            self.round = Some(Round {
                began: now,
                bytes: 0,
                uploads: 2 * self.limit,
            });
            return;
        };
        round.bytes += bytes;
        round.uploads -= 1;
        if round.uploads == 0 {
            let micros = now.saturating_sub(round.began).as_micros().max(1);
            let rate = u128::from(round.bytes) * 1_000_000 / micros;
            self.round = None;
            self.step(u64::try_from(rate).unwrap_or(u64::MAX));
        }
    }

    fn step(&mut self, rate: u64) {
        if let Some(before) = self.before_step.take()
            && rate < before.saturating_add(before / 100 * GAIN_PERCENT_MIN)
        {
            self.limit -= 1;
            self.wait_with_further_steps();
            return;
        }
        self.rounds_to_wait = self.rounds_to_wait.saturating_sub(1);
        if self.limit < self.max && self.rounds_to_wait == 0 {
            self.before_step = Some(rate);
            self.limit += 1;
        }
    }

    fn wait_with_further_steps(&mut self) {
        self.round = None;
        self.before_step = None;
        self.rounds_to_wait = ROUNDS_UNTIL_NEXT_TRY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store and a link: so many bytes a second by the number of uploads.
    fn run(pace: &mut Pace, rounds: usize, rate: impl Fn(usize) -> u64) {
        let mut now = Duration::ZERO;
        for _ in 0..rounds * 8 {
            now += Duration::from_micros(1_000_000 * 1000 / rate(pace.limit()));
            pace.ended(1000, now, true);
        }
    }

    #[test]
    fn it_grows_to_the_bound_while_more_is_faster() {
        let mut pace = Pace::new(7);
        assert_eq!(pace.limit(), 5);
        run(&mut pace, 20, |uploads| 1000 * uploads as u64);
        assert_eq!(pace.limit(), 7);
    }

    #[test]
    fn it_goes_back_where_more_brings_nothing() {
        let mut pace = Pace::new(8);
        run(&mut pace, 10, |uploads| 1000 * uploads.min(6) as u64);
        assert_eq!(pace.limit(), 6);
    }

    #[test]
    fn what_says_nothing_of_the_store_is_not_counted() {
        let mut pace = Pace::new(7);
        for upload in 0..100 {
            pace.ended(1000, Duration::from_millis(upload), false);
        }
        assert_eq!(pace.limit(), 5);
    }

    #[test]
    fn a_busy_store_halves_it_once_a_wave_and_never_below_one() {
        let mut pace = Pace::new(8);
        run(&mut pace, 40, |uploads| 1000 * uploads as u64);
        assert_eq!(pace.limit(), 8);
        let wave = pace.wave();
        for _ in 0..8 {
            pace.busy(wave);
        }
        assert_eq!(pace.limit(), 4);
        for _ in 0..8 {
            pace.busy(pace.wave());
        }
        assert_eq!(pace.limit(), 1);
        run(&mut pace, 200, |uploads| 1000 * uploads as u64);
        assert_eq!(pace.limit(), 8, "and it recovers");
    }

    #[test]
    fn one_upload_at_a_time_stays_one() {
        let mut pace = Pace::new(1);
        run(&mut pace, 20, |uploads| 1000 * uploads as u64);
        assert_eq!(pace.limit(), 1);
    }
}
