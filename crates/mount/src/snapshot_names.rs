//! Names of snapshots and hosts, as one component of a path.

use bale_format::Time;
use std::collections::HashMap;

/// Bytes of a host's name that are shown.
const HOST_BYTES_MAX: usize = 200;

/// The time of a snapshot, in UTC to the second.
fn of_time(time: Time) -> String {
    match jiff::Timestamp::new(time.seconds, 0) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("@{}", time.seconds),
    }
}

/// Names that were given; of two snapshots of one second the second one is `TIME-2`.
#[derive(Default)]
pub struct TimeNames {
    given: HashMap<String, u32>,
}

impl TimeNames {
    /// A name that no other snapshot of this mount has, or had.
    pub fn give(&mut self, time: Time) -> String {
        let name = of_time(time);
        let given = self.given.entry(name.clone()).or_insert(0);
        *given += 1;
        match *given {
            1 => name,
            number => format!("{name}-{number}"),
        }
    }
}

/// A host as a directory.
pub fn of_host(host: &str) -> String {
    let mut name: String = host
        .chars()
        .map(|letter| match letter {
            '/' | '\0' => '_',
            other => other,
        })
        .collect();
    if name.len() > HOST_BYTES_MAX {
        let end = (0..=HOST_BYTES_MAX)
            .rev()
            .find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
    }
    match name.as_str() {
        "" => "unnamed".to_owned(),
        "." | ".." => "_".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_snapshot_has_a_name_of_its_own() {
        let mut names = TimeNames::default();
        let time = |seconds, nanos| Time { seconds, nanos };
        assert_eq!(names.give(time(0, 5)), "1970-01-01T00:00:00Z");
        assert_eq!(names.give(time(0, 7)), "1970-01-01T00:00:00Z-2");
        assert_eq!(names.give(time(1, 0)), "1970-01-01T00:00:01Z");
        assert_eq!(names.give(time(i64::MAX, 0)), "@9223372036854775807");
    }

    #[test]
    fn a_host_of_any_name_is_one_directory() {
        for (host, name) in [
            ("web1", "web1"),
            ("a/b", "a_b"),
            ("..", "_"),
            ("", "unnamed"),
            ("köln", "köln"),
        ] {
            assert_eq!(of_host(host), name);
        }
        assert_eq!(of_host(&"ö".repeat(500)).len(), HOST_BYTES_MAX);
    }
}
