//! `bale schedule`: units that systemd takes, lines of cron, and nobody else's files.

use super::scene::Scene;
use crate::bench::{Bench, have, skipped};
use std::path::PathBuf;
use std::process::Command;

const SCHEDULE: &str = "schedule = [\"daily 02:30\", \"mon,thu 14:00\"]\nrandom-delay = \"10m\"\n\
                        [profile.home.check]\nschedule = \"monthly 1 05:00\"\n";

fn unit_dir(scene: &Scene) -> String {
    scene.bench.path("units").display().to_string()
}

fn installed(scene: &Scene, more: &[&str]) -> String {
    let dir = unit_dir(scene);
    let words = [
        &["schedule", "install", "home", "--unit-dir", &dir][..],
        more,
    ]
    .concat();
    scene.ok(&words).to_string()
}

fn text(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(scene.bench.path("units").join(name)).unwrap()
}

/// What systemd says of units: nothing, if they are as they should be.
fn verified(bench: &Bench, units: &[PathBuf]) -> String {
    let mut command = bench.prepared(Command::new("systemd-analyze"));
    let output = command
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(units);
    let output = output.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => text,
        false => format!("{}: {text}", output.status),
    }
}

fn units(scene: &Scene) -> Vec<PathBuf> {
    let dir = scene.bench.path("units");
    ["bale-run-home.service", "bale-run-home.timer"]
        .map(|name| dir.join(name))
        .to_vec()
}

#[test]
fn units_are_as_systemd_wants_them() {
    if !have("systemd-analyze") {
        return skipped("there is no systemd-analyze");
    }
    for more in [
        "",
        "before = \"true\"\n",
        "cache-dir = \"/usr/local/bale cache/100%\"\n",
    ] {
        let scene = Scene::with(&format!("{more}{SCHEDULE}"));
        installed(&scene, &[]);
        assert_eq!(verified(&scene.bench, &units(&scene)), "", "{more}");
    }
    // What it says of units that are not.
    let scene = Scene::with(SCHEDULE);
    installed(&scene, &[]);
    let path = scene.bench.path("units/bale-run-home.service");
    let broken = text(&scene, "bale-run-home.service").replace("NoNewPriv", "NoOldPriv");
    std::fs::write(&path, broken).unwrap();
    assert_ne!(verified(&scene.bench, &units(&scene)), "");
}

/// Times are those of the profile, and a start that was missed is made up for.
#[test]
fn a_timer_has_every_time_of_its_profile_once() {
    let scene = Scene::with(SCHEDULE);
    installed(&scene, &[]);
    let timer = text(&scene, "bale-run-home.timer");
    let times: Vec<_> = timer
        .lines()
        .filter(|line| line.starts_with("OnCalendar="))
        .collect();
    assert_eq!(
        times,
        [
            "OnCalendar=*-*-* 02:30:00",
            "OnCalendar=Mon,Thu *-*-* 14:00:00",
            "OnCalendar=*-*-01 05:00:00",
        ]
    );
    assert!(timer.contains("\nPersistent=true\n"), "{timer}");
    assert!(timer.contains("\nRandomizedDelaySec=600\n"), "{timer}");
    if have("systemd-analyze") {
        for time in times {
            let words = ["calendar", time.strip_prefix("OnCalendar=").unwrap()];
            let output = Command::new("systemd-analyze")
                .args(words)
                .output()
                .unwrap();
            assert!(output.status.success(), "{time}: {output:?}");
        }
    }
}

#[test]
fn a_service_has_the_rights_that_reading_takes_and_with_hooks_those_that_hooks_need() {
    let scene = Scene::with(SCHEDULE);
    installed(&scene, &[]);
    let plain = text(&scene, "bale-run-home.service");
    for line in [
        "NoNewPrivileges=true",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "KillMode=mixed",
    ] {
        assert!(plain.lines().any(|other| other == line), "{line}: {plain}");
    }
    if crate::bench::is_root() {
        let capabilities = "CapabilityBoundingSet=CAP_DAC_READ_SEARCH CAP_SYS_ADMIN CAP_LEASE \
                            CAP_FOWNER CAP_IPC_LOCK CAP_SYS_RESOURCE";
        for line in [capabilities, "ProtectSystem=full"] {
            assert!(plain.lines().any(|other| other == line), "{line}: {plain}");
        }
    }
    scene.profiles(&format!("{}before = \"true\"\n{SCHEDULE}", scene.head()));
    installed(&scene, &[]);
    let with_hook = text(&scene, "bale-run-home.service");
    assert!(
        !with_hook.contains("\nCapabilityBoundingSet="),
        "{with_hook}"
    );
    assert!(
        with_hook.contains("\nNoNewPrivileges=true\n"),
        "{with_hook}"
    );
}

/// A program and files at the oddest of places are started from there.
#[test]
fn odd_names_are_escaped_in_units() {
    if !have("systemd-analyze") {
        return skipped("there is no systemd-analyze");
    }
    let scene = Scene::with(SCHEDULE);
    let odd = "a b/100%/$HOME;x'\"\\";
    let place = scene.bench.path(odd);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(scene.bench.path("bale.toml"), place.join("bale.toml")).unwrap();
    let program = scene.bench.path("a b/100%/bale");
    std::fs::copy(crate::bench::binary(), &program).unwrap();
    let mut command = scene.bench.prepared(Command::new(&program));
    command.env("BALE_STATE_DIR", scene.bench.path("state"));
    command.args([
        "schedule",
        "install",
        "home",
        "--unit-dir",
        &unit_dir(&scene),
    ]);
    command.arg("--profiles").arg(place.join("bale.toml"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(verified(&scene.bench, &units(&scene)), "");
    let service = text(&scene, "bale-run-home.service");
    let start = service
        .lines()
        .find(|line| line.starts_with("ExecStart="))
        .unwrap();
    assert!(start.contains("/a b/100%%/bale\" run"), "{start}");
    assert!(
        start.contains("/a b/100%%/$$HOME;x'\\\"\\\\/bale.toml\""),
        "{start}"
    );
}

#[test]
fn a_dry_run_prints_the_units_and_writes_nothing() {
    let scene = Scene::with(SCHEDULE);
    let said = installed(&scene, &["--dry-run"]);
    assert!(
        said.contains("[Timer]") && said.contains("ExecStart="),
        "{said}"
    );
    assert!(said.contains("units/bale-run-home.timer"), "{said}");
    assert!(!scene.bench.path("units").exists());
}

#[test]
fn what_was_written_by_somebody_else_stays() {
    let scene = Scene::with(SCHEDULE);
    let dir = unit_dir(&scene);
    let path = scene.bench.write("units/bale-run-home.timer", "[Timer]\n");
    for words in [
        ["schedule", "install", "home"],
        ["schedule", "remove", "home"],
    ] {
        let ran = scene.run(&[&words[..], &["--unit-dir", &dir]].concat());
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.err.contains("stays as it is"), "{ran}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[Timer]\n");
    assert!(!scene.bench.path("units/bale-run-home.service").exists());
}

#[test]
fn status_says_what_is_scheduled_and_whether_it_is_as_the_profile_says() {
    let scene = Scene::with(SCHEDULE);
    let dir = unit_dir(&scene);
    let status = || {
        let ran = scene.run(&["schedule", "status", "home", "--unit-dir", &dir, "--json"]);
        (ran.code, ran.of_type("schedule")[0].clone())
    };
    let (code, state) = status();
    assert_eq!(
        (code, state["installed"].as_str()),
        (1, Some("no")),
        "{state}"
    );
    installed(&scene, &[]);
    let (code, state) = status();
    assert_eq!(
        (code, state["installed"].as_str()),
        (0, Some("yes")),
        "{state}"
    );
    assert!(
        state["next"].is_string() && state["steps"][0]["due"] == true,
        "{state}"
    );
    scene.ok(&["run", "home"]);
    assert_eq!(status().1["steps"][0]["last_exit_code"], 0);
    scene.profiles(&format!(
        "{}{}",
        scene.head(),
        SCHEDULE.replace("02:30", "03:30")
    ));
    let (code, state) = status();
    assert_eq!(
        (code, state["installed"].as_str()),
        (1, Some("differs")),
        "{state}"
    );
    scene.ok(&["schedule", "remove", "home", "--unit-dir", &dir]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(status().1["installed"], "no");
}

#[test]
fn cron_gets_lines_that_make_up_for_what_was_missed() {
    let scene = Scene::with(SCHEDULE);
    installed(&scene, &["--cron"]);
    let crontab = text(&scene, "bale-run-home");
    let lines: Vec<_> = crontab
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(lines.len(), 4, "{crontab}");
    assert!(lines[0].starts_with("30 2 * * * root /"), "{crontab}");
    assert!(lines[3].starts_with("@reboot root /"), "{crontab}");
    assert!(lines[0].contains(" run --quiet "), "{crontab}");
    scene.ok(&[
        "schedule",
        "remove",
        "home",
        "--cron",
        "--unit-dir",
        &unit_dir(&scene),
    ]);
    assert!(!scene.bench.path("units/bale-run-home").exists());
}

#[test]
fn what_a_timer_could_not_run_is_not_scheduled() {
    let scene = Scene::with("");
    let dir = unit_dir(&scene);
    let install = |text: &str, name: &str| {
        scene.profiles(text);
        let ran = scene.run(&["schedule", "install", name, "--unit-dir", &dir]);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(!scene.bench.path("units").exists());
        ran.err
    };
    let head = scene.head();
    assert!(install(&head, "home").contains("it has no schedule"));
    let own = "[profile.home]\nsources = \"/home\"\nschedule = \"daily\"\n";
    assert!(install(own, "home").contains("name the repository"));
    let template = format!("{head}schedule = \"daily\"\ntemplate = true\n");
    assert!(install(&template, "home").contains("a template"));
}

/// A slip would be units that nobody reads.
#[test]
fn a_directory_of_units_is_made_only_where_its_parent_is_and_that_is_said() {
    let scene = Scene::with(SCHEDULE);
    let install = |dir: &str| {
        let dir = scene.bench.path(dir).display().to_string();
        scene.run(&["schedule", "install", "home", "--unit-dir", &dir])
    };
    let refused = install("no/such/place");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("mkdir -p"), "{refused}");
    assert!(!scene.bench.path("no").exists());
    let made = install("units");
    assert!(
        made.code == 0 && made.err.contains("made the directory"),
        "{made}"
    );
    let again = install("units");
    assert!(
        again.code == 0 && !again.err.contains("made the directory"),
        "{again}"
    );
}
