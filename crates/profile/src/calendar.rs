//! When something is to happen: moments of a calendar, in words that people write, and as systemd
//! and cron write them.
//!
//! A step is due if one of its moments has come since it last succeeded. So a run that came late,
//! or was spread by minutes, shifts none that follows, and one that was missed is made up for.

use jiff::civil::{Date, Time, Weekday};
use jiff::{ToSpan, Zoned};

/// Days that are looked back, or ahead, for a moment: longer than a month.
const DAYS_MAX: i32 = 63;
/// The last day that every month has.
const DAY_OF_EVERY_MONTH_MAX: i8 = 28;

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// What is understood.
const EXAMPLES: &str = "write for example \"hourly\", \"every 6h\", \"every 15m\", \
     \"daily 02:30\", \
     \"weekdays 22:00\", \"sunday 04:00\", \"mon,thu 04:00\", \"monthly 1 05:00\"";

/// Moments of a calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    days: Days,
    /// Ascending.
    hours: Vec<i8>,
    /// Ascending.
    minutes: Vec<i8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Days {
    All,
    /// In the order of [`WEEKDAYS`].
    Week(Vec<Weekday>),
    Month(i8),
}

impl Times {
    /// Reads `daily 02:30` and its likes.
    pub fn parse(text: &str) -> Result<Times, String> {
        let wrong = || format!("{text:?} is no time: {EXAMPLES}");
        let lower = text.trim().to_ascii_lowercase();
        let mut words = lower.split_whitespace();
        let first = words.next().ok_or_else(wrong)?;
        let rest: Vec<&str> = words.collect();
        let of_days = |days, clock: Option<&&str>| {
            let (hour, minute) = match clock {
                Some(clock) => hour_and_minute(clock)?,
                None => (0, 0),
            };
            Some(Times {
                days,
                hours: vec![hour],
                minutes: vec![minute],
            })
        };
        let found = match (first, &rest[..]) {
            ("hourly", []) => every("1h"),
            ("every", [step]) => every(step),
            ("daily", [] | [_]) => of_days(Days::All, rest.first()),
            ("weekdays", [] | [_]) => of_days(
                Days::Week(WEEKDAYS[..5].iter().map(|day| day.1).collect()),
                rest.first(),
            ),
            ("weekly", []) => of_days(Days::Week(vec![Weekday::Monday]), None),
            ("weekly", [days]) => weekdays(days).and_then(|days| of_days(days, None)),
            ("weekly", [days, clock]) => weekdays(days).and_then(|days| of_days(days, Some(clock))),
            ("monthly", []) => of_days(Days::Month(1), None),
            ("monthly", [day]) => month_day(day).and_then(|days| of_days(days, None)),
            ("monthly", [day, clock]) => month_day(day).and_then(|days| of_days(days, Some(clock))),
            (days, [] | [_]) => weekdays(days).and_then(|days| of_days(days, rest.first())),
            _ => None,
        };
        found.ok_or_else(wrong)
    }

    /// The latest of its moments that is not after `now`.
    pub fn latest(&self, now: &Zoned) -> Option<Zoned> {
        (0..=DAYS_MAX).find_map(|back| {
            let date = now.date().checked_sub(back.days()).ok()?;
            let mut of_day = self.of_day(date, now);
            of_day.retain(|moment| moment <= now);
            of_day.pop()
        })
    }

    /// The first of its moments that is after `now`.
    pub fn next(&self, now: &Zoned) -> Option<Zoned> {
        (0..=DAYS_MAX).find_map(|ahead| {
            let date = now.date().checked_add(ahead.days()).ok()?;
            self.of_day(date, now)
                .into_iter()
                .find(|moment| moment > now)
        })
    }

    /// Its moments on a day, ascending. One that a change of clocks leaves out is that much later.
    fn of_day(&self, date: Date, zone_of: &Zoned) -> Vec<Zoned> {
        let is_day = match &self.days {
            Days::All => true,
            Days::Week(days) => days.contains(&date.weekday()),
            Days::Month(day) => date.day() == *day,
        };
        if !is_day {
            return Vec::new();
        }
        let clocks = (self.hours.iter())
            .flat_map(|hour| self.minutes.iter().map(move |minute| (*hour, *minute)));
        let moment = |(hour, minute)| {
            let time = Time::new(hour, minute, 0, 0).ok()?;
            date.to_datetime(time)
                .to_zoned(zone_of.time_zone().clone())
                .ok()
        };
        let mut moments: Vec<Zoned> = clocks.filter_map(moment).collect();
        moments.sort();
        moments
    }

    /// As systemd writes it in `OnCalendar=`.
    pub fn for_systemd(&self) -> String {
        let (week, month) = match &self.days {
            Days::All => (String::new(), "*".to_owned()),
            Days::Week(days) => {
                let names: Vec<_> = days.iter().map(|day| short(*day, true)).collect();
                (format!("{} ", names.join(",")), "*".to_owned())
            }
            Days::Month(day) => (String::new(), format!("{day:02}")),
        };
        let hours = self.list(&self.hours, 24, |hour| format!("{hour:02}"));
        let minutes = self.list(&self.minutes, 60, |minute| format!("{minute:02}"));
        format!("{week}*-*-{month} {hours}:{minutes}:00")
    }

    /// As cron writes it: minute, hour, day of the month, month, day of the week.
    pub fn for_cron(&self) -> String {
        let (week, month) = match &self.days {
            Days::All => ("*".to_owned(), "*".to_owned()),
            Days::Week(days) => {
                let names: Vec<_> = days.iter().map(|day| short(*day, false)).collect();
                (names.join(","), "*".to_owned())
            }
            Days::Month(day) => ("*".to_owned(), day.to_string()),
        };
        let hours = self.list(&self.hours, 24, |hour| hour.to_string());
        let minutes = self.list(&self.minutes, 60, |minute| minute.to_string());
        format!("{minutes} {hours} {month} * {week}")
    }

    fn list(&self, numbers: &[i8], all: usize, text: impl Fn(i8) -> String) -> String {
        match numbers.len() == all {
            true => "*".to_owned(),
            false => {
                let texts: Vec<_> = numbers.iter().map(|number| text(*number)).collect();
                texts.join(",")
            }
        }
    }
}

/// Parts of a day or of an hour, so that the same moments come every day.
fn every(step: &str) -> Option<Times> {
    let unit = ["h", "m"].into_iter().find(|unit| step.ends_with(unit))?;
    let number = step.strip_suffix(unit).filter(|number| is_number(number))?;
    let number: i8 = number.parse().ok().filter(|number| *number > 0)?;
    let steps = |end: i8| {
        (0..end)
            .step_by(usize::try_from(number).unwrap_or(1))
            .collect()
    };
    let (hours, minutes) = match unit {
        "h" if 24 % number == 0 => (steps(24), vec![0]),
        "m" if 60 % number == 0 => ((0..24).collect(), steps(60)),
        _ => return None,
    };
    Some(Times {
        days: Days::All,
        hours,
        minutes,
    })
}

/// Digits alone: no sign.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn hour_and_minute(text: &str) -> Option<(i8, i8)> {
    let (hour, minute) = text.split_once(':')?;
    if !is_number(hour) || !is_number(minute) || minute.len() != 2 {
        return None;
    }
    let (hour, minute): (i8, i8) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some((hour, minute))
}

/// `sunday`, `mon,thu`; in the order of a week.
fn weekdays(text: &str) -> Option<Days> {
    let named = |word: &str| {
        let is_it = |name: &str| name == word || word.len() == 3 && name.starts_with(word);
        WEEKDAYS
            .iter()
            .find(|(name, _)| is_it(name))
            .map(|(_, day)| *day)
    };
    let given: Option<Vec<Weekday>> = text.split(',').map(named).collect();
    let given = given?;
    let days = WEEKDAYS
        .iter()
        .map(|(_, day)| *day)
        .filter(|day| given.contains(day));
    Some(Days::Week(days.collect()))
}

fn month_day(text: &str) -> Option<Days> {
    let day: i8 = text.parse().ok()?;
    (1..=DAY_OF_EVERY_MONTH_MAX)
        .contains(&day)
        .then_some(Days::Month(day))
}

/// `Mon`, `mon`.
fn short(day: Weekday, is_capital: bool) -> String {
    let name = WEEKDAYS.iter().find(|(_, other)| *other == day);
    let name = &name.map_or("monday", |(name, _)| name)[..3];
    match is_capital {
        true => format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zoned(text: &str) -> Zoned {
        text.parse().unwrap()
    }

    fn times(text: &str) -> Times {
        Times::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn moments_around_now() {
        // A Friday.
        let now = zoned("2026-11-27T03:00:00[UTC]");
        for (text, latest, next) in [
            ("hourly", "2026-11-27T03:00", "2026-11-27T04:00"),
            ("every 15m", "2026-11-27T03:00", "2026-11-27T03:15"),
            ("every 6h", "2026-11-27T00:00", "2026-11-27T06:00"),
            ("daily", "2026-11-27T00:00", "2026-11-28T00:00"),
            ("daily 03:01", "2026-11-26T03:01", "2026-11-27T03:01"),
            ("Daily 3:00", "2026-11-27T03:00", "2026-11-28T03:00"),
            ("weekly", "2026-11-23T00:00", "2026-11-30T00:00"),
            ("sunday 04:00", "2026-11-22T04:00", "2026-11-29T04:00"),
            ("weekly sun 04:00", "2026-11-22T04:00", "2026-11-29T04:00"),
            ("thu,mon 22:00", "2026-11-26T22:00", "2026-11-30T22:00"),
            ("weekdays 22:00", "2026-11-26T22:00", "2026-11-27T22:00"),
            ("monthly", "2026-11-01T00:00", "2026-12-01T00:00"),
            ("monthly 28 05:00", "2026-10-28T05:00", "2026-11-28T05:00"),
        ] {
            let moment =
                |zoned: Option<Zoned>| zoned.unwrap().strftime("%Y-%m-%dT%H:%M").to_string();
            assert_eq!(moment(times(text).latest(&now)), latest, "{text}");
            assert_eq!(moment(times(text).next(&now)), next, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_examples() {
        for wrong in [
            "",
            "x",
            "daily 24:00",
            "daily 2",
            "daily 02:30 x",
            "every 7h",
            "every 0m",
            "every 5",
            "every 25m",
            "every h",
            "monthly 29",
            "monthly 0",
            "sunday,x 02:00",
            "every 99999999h",
            "daily +2:00",
            "every +5m",
            "daily 02:3",
            "every é",
            "weekly 02:00",
        ] {
            let refused = Times::parse(wrong).unwrap_err();
            assert!(refused.contains("daily 02:30"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn systemd_and_cron_get_the_same_moments() {
        for (text, systemd, cron) in [
            ("hourly", "*-*-* *:00:00", "0 * * * *"),
            ("every 30m", "*-*-* *:00,30:00", "0,30 * * * *"),
            ("every 12h", "*-*-* 00,12:00:00", "0 0,12 * * *"),
            ("daily 02:30", "*-*-* 02:30:00", "30 2 * * *"),
            ("mon,thu 04:05", "Mon,Thu *-*-* 04:05:00", "5 4 * * mon,thu"),
            ("monthly 3 04:05", "*-*-03 04:05:00", "5 4 3 * *"),
        ] {
            assert_eq!(times(text).for_systemd(), systemd, "{text}");
            assert_eq!(times(text).for_cron(), cron, "{text}");
        }
    }

    /// Clocks go forward at two: half past two is not there, and comes an hour later.
    #[test]
    fn a_moment_that_clocks_leave_out_still_comes() {
        let after = zoned("2026-03-29T12:00:00[Europe/Berlin]");
        let latest = times("daily 02:30").latest(&after).unwrap();
        assert_eq!(latest.strftime("%d %H:%M").to_string(), "29 03:30");
        let before = zoned("2026-03-29T01:59:00[Europe/Berlin]");
        assert_eq!(times("daily 02:30").next(&before).unwrap(), latest);
    }
}
