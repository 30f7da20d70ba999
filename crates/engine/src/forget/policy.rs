//! Keep rules and their application to one group of snapshots.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

/// What to keep. Counts of 0 are off; [`Keep::UNLIMITED`] keeps one for every period there is.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The newest so many.
    pub last: u32,
    /// One for each of the newest so many hours that have one.
    pub hourly: u32,
    /// One for each of so many days.
    pub daily: u32,
    /// One for each of so many ISO weeks.
    pub weekly: u32,
    /// One for each of so many months.
    pub monthly: u32,
    /// One for each of so many years.
    pub yearly: u32,
    /// All that are at most so much older than the newest, which so stays whatever any clock says.
    pub within: Option<Span>,
    /// One for each period, as above, of those that are at most so much older than the newest.
    pub within_each: Within,
    /// All that have all tags of one of these lists.
    pub tags: Vec<Vec<String>>,
}

/// For how long one of each period is kept.
#[derive(Clone, Debug, Default)]
pub struct Within {
    pub hourly: Option<Span>,
    pub daily: Option<Span>,
    pub weekly: Option<Span>,
    pub monthly: Option<Span>,
    pub yearly: Option<Span>,
}

/// Names the counts of a policy.
pub struct Keep;

impl Keep {
    /// As a count: no limit.
    pub const UNLIMITED: u32 = u32::MAX;
}

/// What the rules need to know of a snapshot.
pub struct Candidate<'a> {
    /// When it was made.
    pub time: Timestamp,
    pub tags: &'a [String],
}

impl Policy {
    /// Is there any rule?
    pub fn is_empty(&self) -> bool {
        let counts = self.buckets().map(|bucket| bucket.is_off());
        counts.iter().all(|is_off| *is_off)
            && self.last == 0
            && self.within.is_none()
            && self.tags.is_empty()
    }

    /// For each candidate (newest first) the reasons that keep it; none means it goes.
    pub fn reasons(&self, candidates: &[Candidate<'_>], zone: &TimeZone) -> Vec<Vec<String>> {
        let mut reasons: Vec<Vec<String>> = candidates.iter().map(|_| Vec::new()).collect();
        for (number, reason) in reasons.iter_mut().enumerate().take(self.last as usize) {
            reason.push(format!("last snapshot {}", number + 1));
        }
        for bucket in self.buckets() {
            bucket.apply(candidates, zone, &mut reasons);
        }
        self.apply_within(candidates, zone, &mut reasons);
        self.apply_tags(candidates, &mut reasons);
        reasons
    }

    fn buckets(&self) -> [KeepBucket; 5] {
        let each = &self.within_each;
        [
            KeepBucket {
                name: "hourly",
                count: self.hourly,
                within: each.hourly,
                period: |t| (t.year().into(), t.day_of_year().into(), t.hour().into()),
            },
            KeepBucket {
                name: "daily",
                count: self.daily,
                within: each.daily,
                period: |t| (t.year().into(), t.day_of_year().into(), 0),
            },
            KeepBucket {
                name: "weekly",
                count: self.weekly,
                within: each.weekly,
                period: |t| iso_week(t),
            },
            KeepBucket {
                name: "monthly",
                count: self.monthly,
                within: each.monthly,
                period: |t| (t.year().into(), t.month().into(), 0),
            },
            KeepBucket {
                name: "yearly",
                count: self.yearly,
                within: each.yearly,
                period: |t| (t.year().into(), 0, 0),
            },
        ]
    }

    fn apply_within(
        &self,
        candidates: &[Candidate<'_>],
        zone: &TimeZone,
        reasons: &mut [Vec<String>],
    ) {
        let Some(within) = &self.within else {
            return;
        };
        let is_within = is_within(candidates, *within, zone);
        for (candidate, reason) in candidates.iter().zip(reasons) {
            if is_within(candidate) {
                reason.push(format!("within {within:#}"));
            }
        }
    }

    fn apply_tags(&self, candidates: &[Candidate<'_>], reasons: &mut [Vec<String>]) {
        for (candidate, reason) in candidates.iter().zip(reasons) {
            for wanted in &self.tags {
                if wanted.iter().all(|tag| candidate.tags.contains(tag)) {
                    reason.push(format!("tag {}", wanted.join(",")));
                }
            }
        }
    }
}

/// Which are at most so much older than the newest?
fn is_within(
    candidates: &[Candidate<'_>],
    within: Span,
    zone: &TimeZone,
) -> impl Fn(&Candidate<'_>) -> bool + use<> {
    let newest = candidates.first().map(|newest| newest.time);
    // Longer than there is time: all are within.
    let oldest = newest.and_then(|newest| newest.to_zoned(zone.clone()).checked_sub(within).ok());
    move |candidate| (oldest.as_ref()).is_none_or(|oldest| candidate.time >= oldest.timestamp())
}

type Period = (i32, i32, i32);

struct KeepBucket {
    name: &'static str,
    count: u32,
    within: Option<Span>,
    period: fn(&Zoned) -> Period,
}

impl KeepBucket {
    fn is_off(&self) -> bool {
        self.count == 0 && self.within.is_none()
    }

    /// By the count, and by the time.
    fn apply(&self, candidates: &[Candidate<'_>], zone: &TimeZone, reasons: &mut [Vec<String>]) {
        self.apply_count(candidates, zone, reasons);
        if let Some(within) = self.within {
            self.apply_within(candidates, within, zone, reasons);
        }
    }

    fn apply_within(
        &self,
        candidates: &[Candidate<'_>],
        within: Span,
        zone: &TimeZone,
        reasons: &mut [Vec<String>],
    ) {
        let is_within = is_within(candidates, within, zone);
        let mut seen = None;
        for (candidate, reason) in candidates.iter().zip(reasons) {
            let period = (self.period)(&candidate.time.to_zoned(zone.clone()));
            if is_within(candidate) && seen != Some(period) {
                reason.push(format!("{} within {within:#}", self.name));
            }
            seen = Some(period);
        }
    }

    /// Keeps the newest snapshot of each period, and the oldest of all while periods are still
    /// owed, so that a young series is not thinned to nothing.
    fn apply_count(
        &self,
        candidates: &[Candidate<'_>],
        zone: &TimeZone,
        reasons: &mut [Vec<String>],
    ) {
        let mut left = self.count;
        let mut seen = None;
        for (number, candidate) in candidates.iter().enumerate() {
            if left == 0 {
                return;
            }
            let period = (self.period)(&candidate.time.to_zoned(zone.clone()));
            if seen == Some(period) {
                if number + 1 == candidates.len() && self.count != Keep::UNLIMITED {
                    reasons[number].push(format!("oldest {} snapshot", self.name));
                }
                continue;
            }
            seen = Some(period);
            reasons[number].push(format!("{} snapshot", self.name));
            if left != Keep::UNLIMITED {
                left -= 1;
            }
        }
    }
}

fn iso_week(time: &Zoned) -> Period {
    let week = time.date().iso_week_date();
    (week.year().into(), week.week().into(), 0)
}
