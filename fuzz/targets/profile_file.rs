//! A profile file, of whoever can write one: an error with a place, or profiles that resolve to
//! values, command lines and units, or to an error. What is written into a unit is one line.

#![no_main]

use bale_profile::cron::{crontab, is_writable};
use bale_profile::file::parse;
use bale_profile::inherit::Profiles;
use bale_profile::steps::{StepFacts, command};
use bale_profile::units::{SchedulePlan, service, timer};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
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
});
