//! Axes of plots: from numbers to places, and the ticks between.

/// A logarithmic axis shows 2,444 minutes beside 2; a linear one is for what must begin at nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Log,
    Linear,
}

/// What round numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// 1, 2, 5, 10: seconds, counts.
    Decimal,
    /// Powers of two: bytes in KiB, MiB and so on.
    Binary,
}

/// A stretch of numbers, its ends at ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    pub from: f64,
    pub to: f64,
    pub ticks: Vec<f64>,
}

/// More would not be read.
const TICKS_MAX: usize = 9;
/// Smaller numbers are as good as nothing on a logarithmic axis.
const LEAST: f64 = 1e-9;

impl Axis {
    /// An axis that holds all of `numbers`.
    pub fn around(scale: Scale, round: Round, numbers: &[f64]) -> Axis {
        let usable = numbers
            .iter()
            .copied()
            .filter(|number| number.is_finite() && *number > 0.0);
        match scale {
            Scale::Linear => linear(usable.fold(0.0, f64::max), round),
            Scale::Log => {
                let usable = usable.map(|number| number.max(LEAST));
                let (low, high) = usable
                    .fold((f64::MAX, 0.0), |(low, high): (f64, f64), number| {
                        (low.min(number), high.max(number))
                    });
                if high == 0.0 {
                    log(1.0, 10.0, round)
                } else {
                    log(low, high, round)
                }
            }
        }
    }

    /// Where a number lies, from 0 to 1.
    pub fn place(&self, number: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (number - self.from) / (self.to - self.from),
            Scale::Log => (number.max(LEAST) / self.from).ln() / (self.to / self.from).ln(),
        };
        place.clamp(0.0, 1.0)
    }
}

/// As many ticks as can be read.
fn log(low: f64, high: f64, round: Round) -> Axis {
    let ladders: Vec<Vec<f64>> = match round {
        Round::Decimal => [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
            .into_iter()
            .map(|steps| ladder(10.0, steps, low, high))
            .collect(),
        Round::Binary => [2.0, 4.0, 32.0, 1024.0]
            .into_iter()
            .map(|base| ladder(base, &[1.0], low, high))
            .collect(),
    };
    let few = |axis: &Axis| axis.ticks.len() <= TICKS_MAX;
    let fitting = ladders
        .iter()
        .map(|all| between(all, low, high, 1))
        .find(few);
    fitting.unwrap_or_else(|| {
        let coarsest = ladders.last().expect("there are several");
        let span = between(coarsest, low, high, 1).ticks.len();
        between(coarsest, low, high, span.div_ceil(TICKS_MAX - 1))
    })
}

/// Each of `steps` times each power of `base`, from below `low` to above `high`.
fn ladder(base: f64, steps: &[f64], low: f64, high: f64) -> Vec<f64> {
    let power = |number: f64| (number.ln() / base.ln()).floor() as i32;
    (power(low) - 1..=power(high) + 2)
        .flat_map(|power| steps.iter().map(move |step| step * base.powi(power)))
        .collect()
}

/// From the last tick not above `low` to the first not below `high`, every `step`th of them.
fn between(all: &[f64], low: f64, high: f64, step: usize) -> Axis {
    // A number at a tick may have been rounded past it.
    let (low, high) = (low * (1.0 + 1e-9), high * (1.0 - 1e-9));
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let mut last = all
        .iter()
        .position(|tick| *tick >= high)
        .unwrap_or(all.len() - 1);
    if last <= first {
        last = (first + 1).min(all.len() - 1);
    }
    let mut ticks: Vec<f64> = all[first..=last].iter().copied().step_by(step).collect();
    if step > 1 && ticks.last() != Some(&all[last]) {
        ticks.push(all[last]);
    }
    Axis {
        scale: Scale::Log,
        from: all[first],
        to: all[last],
        ticks,
    }
}

/// From nothing to a round number not below `high`, in at most five steps.
fn linear(high: f64, round: Round) -> Axis {
    let unit = match round {
        Round::Decimal => 1.0,
        Round::Binary if high >= 1.0 => 1024f64.powi((high.ln() / 1024f64.ln()).floor() as i32),
        Round::Binary => 1.0,
    };
    let high = if high > 0.0 { high / unit } else { 1.0 };
    let decade = 10f64.powi((high / 4.0).log10().floor() as i32);
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * decade);
    let step = steps
        .into_iter()
        .find(|step| high / step <= 5.0 + 1e-9)
        .unwrap_or(steps[4]);
    let count = (high / step - 1e-9).ceil();
    let ticks: Vec<f64> = (0..=count as usize)
        .map(|tick| tick as f64 * step * unit)
        .collect();
    Axis {
        scale: Scale::Linear,
        from: 0.0,
        to: step * count * unit,
        ticks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(Scale, Round); 4] = [
        (Scale::Log, Round::Decimal),
        (Scale::Log, Round::Binary),
        (Scale::Linear, Round::Decimal),
        (Scale::Linear, Round::Binary),
    ];

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
        }
    }

    #[test]
    fn a_log_axis_has_round_ticks_around_all_numbers() {
        assert_near(
            &Axis::around(Scale::Log, Round::Decimal, &[0.3, 7.0]).ticks,
            &[0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
        );
        assert_near(
            &Axis::around(Scale::Log, Round::Decimal, &[2.0, 146_640.0]).ticks,
            &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6],
        );
        assert_near(
            &Axis::around(Scale::Log, Round::Decimal, &[1.0, 10.0]).ticks,
            &[1.0, 2.0, 5.0, 10.0],
        );
        assert_near(
            &Axis::around(Scale::Log, Round::Decimal, &[5.0]).ticks,
            &[5.0, 10.0],
        );
    }

    #[test]
    fn every_number_lies_on_its_axis_and_ticks_are_few() {
        let mut low = 1e-4;
        while low < 1e5 {
            let mut high = low;
            while high < 1e15 {
                for (scale, round) in ALL {
                    let axis = Axis::around(scale, round, &[low, high]);
                    let context = format!("{low} {high} {axis:?}");
                    assert!(
                        axis.ticks.len() <= TICKS_MAX + 2 && axis.ticks.len() >= 2,
                        "{context}"
                    );
                    assert!(
                        axis.ticks.windows(2).all(|pair| pair[0] < pair[1]),
                        "{context}"
                    );
                    assert!(
                        axis.from <= low * 1.001 && axis.to >= high * 0.999,
                        "{context}"
                    );
                    let (a, b) = (axis.place(low), axis.place(high));
                    assert!(
                        (0.0..=1.0).contains(&a) && (a..=1.0).contains(&b),
                        "{context}"
                    );
                }
                high *= 7.3;
            }
            low *= 3.7;
        }
    }

    #[test]
    fn equal_ratios_are_equal_distances() {
        let axis = Axis::around(Scale::Log, Round::Decimal, &[1.0, 1000.0]);
        let (a, b, c) = (axis.place(1.0), axis.place(10.0), axis.place(100.0));
        assert!((b - a - (c - b)).abs() < 1e-12);
    }

    #[test]
    fn nothing_and_nonsense_have_an_axis_too() {
        for (scale, round) in ALL {
            for numbers in [&[][..], &[0.0], &[f64::NAN], &[f64::INFINITY]] {
                let axis = Axis::around(scale, round, numbers);
                assert!(axis.to > axis.from && axis.ticks.len() >= 2, "{numbers:?}");
            }
        }
    }

    #[test]
    fn axes_of_bytes_have_ticks_that_are_round_in_their_units() {
        let axis = Axis::around(Scale::Log, Round::Binary, &[76e3, 2e6]);
        assert_near(
            &axis.ticks,
            &[64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0].map(|kib| kib * 1024.0),
        );
        let axis = Axis::around(Scale::Linear, Round::Binary, &[13e6]);
        assert_eq!(axis.ticks[1], 2.5 * 1048576.0);
    }
}
