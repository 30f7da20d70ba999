//! Files of options and of runs, and words of the command line.

use crate::input::text;
use bale_pipeline::filter::{Filter, FilterOptions, Mark, parse_exclude_file};
use bale_profile::calendar::Times;
use bale_profile::cron::{crontab, is_writable};
use bale_profile::due::{due, next_part};
use bale_profile::file::parse;
use bale_profile::inherit::Profiles;
use bale_profile::record::RunRecord;
use bale_profile::steps::{StepFacts, command};
use bale_profile::units::{SchedulePlan, service, timer};
use bale_repository::snapshots::Address;
use bale_source::scan::parse_list;
use std::path::Path;

/// An exclude file and the patterns in it, asked about paths.
pub fn exclude_patterns(data: &[u8]) {
    let text = text(data);
    let options = FilterOptions {
        patterns: parse_exclude_file(text, text.len().is_multiple_of(2)),
        ..FilterOptions::default()
    };
    if let Ok(filter) = Filter::new(&options) {
        for path in [text, "home/user/.cache/x", "a"] {
            let _ = filter.excludes(path.as_bytes());
        }
    }
}

/// Lists of sources, marks of directories and addresses of snapshots, as users write them.
pub fn sources(data: &[u8]) {
    for zeros in [false, true] {
        let sources = parse_list(data, zeros);
        assert!(sources.iter().all(|path| !path.as_os_str().is_empty()));
    }
    let _ = Mark::parse(data);
    let address = Address::parse(data);
    assert!(!address.path.starts_with(b"/") && !address.path.ends_with(b"/"));
}

/// A profile file, of whoever can write one: an error with a place, or profiles that resolve to
/// values, command lines and units, or to an error. What is written into a unit is one line.
pub fn profile_file(bytes: &[u8]) {
    let file = match parse(Path::new("f"), bytes) {
        Ok(file) => file,
        Err(error) => return assert!(error.to_string().starts_with('f')),
    };
    let profiles = Profiles::of(vec![file]);
    for name in profiles.names().take(8) {
        let Ok(profile) = profiles.resolve(name) else {
            continue;
        };
        for step in profile.steps() {
            let words = command(&profile, step, &StepFacts::default()).words;
            assert!(words.iter().all(|word| !word.contains('\0')));
        }
        let plan = SchedulePlan {
            profile: name.to_owned(),
            program: "/usr/bin/bale".into(),
            words: (profile.values())
                .flat_map(|(_, texts)| texts)
                .map(|text| text.text.clone().into_bytes())
                .collect(),
            times: profile.times(),
            random_delay: profile.random_delay(),
            is_of_system: true,
            is_remote: true,
            starts_programs: profile.starts_programs(),
            writes: vec!["/etc/%".into()],
            reads: Vec::new(),
            reads_anything: false,
            has_own_state: true,
        };
        let starts = |text: &str| text.lines().filter(|line| line.starts_with("Exec")).count();
        assert_eq!(starts(&service(&plan)), 1);
        let _ = timer(&plan);
        if is_writable(&plan) {
            let lines = crontab(&plan, None).lines().count();
            assert_eq!(lines, plan.times.len() + 4);
        }
    }
}

/// A record of runs, damaged or of somebody else: refused, or one whose steps are due or not at any
/// moment.
pub fn run_record(bytes: &[u8]) {
    let Ok(record) = RunRecord::parse(bytes, "home", "/r") else {
        return;
    };
    let times = [Times::parse("daily 02:30").expect("it is a time")];
    let now = "2026-11-27T03:00:00[UTC]".parse().expect("it is a moment");
    for step in record.steps.values() {
        let _ = due(&times, Some(step), &now).to_string();
        assert!((1..=7).contains(&next_part(Some(step), 7)));
    }
}
