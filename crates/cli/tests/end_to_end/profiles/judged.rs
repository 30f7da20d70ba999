//! `bale status` by profiles: what they expect of the repository, and how their runs went.

use super::scene::Scene;
use crate::bench::Ran;
use serde_json::Value;

const HOURLY: &str = "schedule = \"hourly\"\nrandom-delay = \"0s\"\n";

fn kinds(objects: &[Value]) -> Vec<String> {
    let findings = objects
        .iter()
        .flat_map(|one| one["findings"].as_array().unwrap());
    findings
        .map(|one| one["kind"].as_str().unwrap().to_owned())
        .collect()
}

fn judged(ran: &Ran) -> (Vec<String>, Vec<String>) {
    (
        kinds(&ran.of_type("source")),
        kinds(&ran.of_type("profile")),
    )
}

/// Without any option: the repository, its secret and what is expected are the profile's.
#[test]
fn status_judges_each_source_by_what_its_profile_expects() {
    let scene = Scene::with(HOURLY);
    let never = scene.run(&["status", "--json"]);
    assert_eq!(never.code, 3, "{never}");
    let (sources, profiles) = judged(&never);
    assert_eq!(
        (&sources[..], &profiles[..]),
        (
            &["never-backed-up".to_owned()][..],
            &["never-run".to_owned()][..]
        )
    );
    assert_eq!(never.of_type("source")[0]["last"], Value::Null);
    assert_eq!(never.summary()["well"], false);

    scene
        .bench
        .ok(&["backup", "-r", "repo", "-p", "pw", "source", "--time", "3d"]);
    let late = scene.run(&["status", "--json"]);
    assert_eq!(
        (late.code, judged(&late).0),
        (3, vec!["late".to_owned()]),
        "{late}"
    );
    let text = scene.run(&["status"]);
    assert!(
        text.text().contains("and the profile home had one due "),
        "{text}"
    );
    let nagios = scene.run(&["status", "--nagios"]);
    assert_eq!(nagios.code, 2, "{nagios}");

    scene.ok(&["run", "home"]);
    let well = scene.ok(&["status", "--json"]);
    let source = &well.of_type("source")[0];
    assert_eq!(source["profiles"], serde_json::json!(["home"]));
    assert!(
        source["due"].as_str() > source["last"]["time"].as_str(),
        "{well}"
    );
    let profile = &well.of_type("profile")[0];
    assert_eq!(profile["last_run"]["exit_code"], 0);
    assert!(profile["next"].as_str() >= source["due"].as_str(), "{well}");
    assert_eq!(profile["steps"][0]["step"], "backup");
    let text = scene.ok(&["status"]);
    assert!(text.text().contains("Profile home: last run "), "{text}");
    assert!(text.text().contains("exit code 0, next due "), "{text}");
    assert_eq!(
        scene
            .ok(&["status", "--nagios"])
            .text()
            .matches('\n')
            .count(),
        1
    );
}

#[test]
fn what_a_program_writes_and_images_are_known_as_what_their_profile_backs_up() {
    let scene = Scene::new();
    scene.bench.sh("truncate -s 1M disk");
    let image = scene.bench.path("disk").display().to_string();
    let of = |name: &str, sources: &str| {
        let head = scene
            .head()
            .replace("profile.home", &format!("profile.{name}"));
        let head = head.lines().filter(|line| !line.starts_with("sources"));
        format!(
            "{}\n[profile.{name}.backup]\n{sources}\n",
            head.collect::<Vec<_>>().join("\n")
        )
    };
    let text = [
        of(
            "stream",
            "stdin-from-command = [\"echo\", \"x\"]\nstdin-filename = \"db.sql\"\n",
        ),
        of(
            "disk",
            &format!("image = {image:?}\nno-file-catalog = true\n"),
        ),
        of(
            "list",
            &format!(
                "files-from = {:?}\n",
                scene.bench.path("list").display().to_string()
            ),
        ),
    ];
    scene.bench.write(
        "list",
        format!("{}\n", scene.bench.path("source").display()),
    );
    scene.profiles(&text.concat());
    scene.ok(&["run", "--all"]);
    let ran = scene.ok(&["status", "--json"]);
    let expected = ran
        .of_type("source")
        .iter()
        .map(|one| one["profiles"].to_string())
        .collect::<Vec<_>>();
    assert_eq!(expected.len(), 3, "{ran}");
    for profile in ["[\"stream\"]", "[\"disk\"]", "[]"] {
        assert!(expected.contains(&profile.to_owned()), "{profile}: {ran}");
    }
    let one = scene.ok(&["status", "--json", "--profile", "disk"]);
    assert_eq!(
        (one.of_type("source").len(), one.of_type("profile").len()),
        (1, 1),
        "{one}"
    );
}

#[test]
fn a_profile_of_another_repository_is_named_and_not_judged() {
    let scene = Scene::new();
    scene.bench.ok(&["init", "-r", "other", "-p", "pw"]);
    let other = scene.head().replace("profile.home", "profile.away");
    let other = other.replace("/repo\"", "/other\"");
    scene.profiles(&format!("{}{HOURLY}{other}", scene.head()));
    let ambiguous = scene.run(&["status"]);
    assert_eq!(ambiguous.code, 2, "{ambiguous}");
    assert!(
        ambiguous.err.contains("several repositories"),
        "{ambiguous}"
    );
    scene.ok(&["run", "home"]);
    let ran = scene.ok(&["status", "-r", "repo", "-p", "pw", "--json"]);
    assert_eq!(ran.of_type("profile").len(), 1, "{ran}");
    let notes = ran.of_type("note");
    assert!(
        notes[0]["message"].as_str().unwrap().contains("away ("),
        "{ran}"
    );
    let away = scene.run(&["status", "--profile", "away", "--json"]);
    assert_eq!(
        (away.code, judged(&away).0),
        (3, vec!["never-backed-up".to_owned()]),
        "{away}"
    );
    let contradiction = scene.run(&["status", "-r", "repo", "--profile", "away"]);
    assert_eq!(contradiction.code, 2, "{contradiction}");
    let unknown = scene.run(&["status", "--profile", "hone"]);
    assert_eq!(unknown.code, 2, "{unknown}");
    assert!(unknown.err.contains("home"), "{unknown}");
}

#[test]
fn a_broken_profile_file_is_named_and_what_can_be_judged_is() {
    let scene = Scene::with(HOURLY);
    scene.ok(&["run", "home"]);
    scene
        .bench
        .write("broken.toml", "[profile.p]\nsauces = \"/\"\n");
    let files = [
        "status",
        "--profiles",
        "bale.toml",
        "--profiles",
        "broken.toml",
    ];
    let ran = scene.run(&[&files[..], &["--json"]].concat());
    assert_eq!(ran.code, 3, "{ran}");
    let problem = &ran.of_type("problem")[0];
    assert!(
        problem["message"]
            .as_str()
            .unwrap()
            .contains("broken.toml:2"),
        "{ran}"
    );
    assert_eq!(ran.of_type("profile").len(), 1, "{ran}");
    assert_eq!(ran.of_type("source")[0]["well"], true, "{ran}");
    let nagios = scene.run(&[&files[..], &["--nagios"]].concat());
    assert_eq!(nagios.code, 1, "{nagios}");
    // A profile that contradicts itself hides no other.
    let text = format!("{}{HOURLY}[profile.empty]\n", scene.head());
    scene.profiles(&text);
    let ran = scene.run(&["status", "--json"]);
    assert_eq!((ran.code, ran.of_type("profile").len()), (3, 1), "{ran}");
    assert!(
        ran.of_type("problem")[0]["message"]
            .to_string()
            .contains("nothing to do"),
        "{ran}"
    );
}

#[test]
fn runs_that_failed_and_steps_that_are_late_are_found() {
    let scene = Scene::with(&format!("{HOURLY}[profile.home.check]\n"));
    scene.ok(&["run", "home"]);
    let text = format!(
        "{}{HOURLY}before = \"exit 9\"\n[profile.home.check]\n",
        scene.head()
    );
    scene.profiles(&text);
    scene.age(5);
    assert_eq!(scene.run(&["run", "home"]).code, 1);
    let ran = scene.run(&["status", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(judged(&ran).1, ["run-failed", "late-step"], "{ran}");
    let message = ran.of_type("profile")[0]["findings"][0]["message"].clone();
    assert!(message.as_str().unwrap().contains("ended with 9"), "{ran}");
    let nagios = scene.run(&["status", "--nagios"]);
    assert_eq!(nagios.code, 2, "{nagios}");
    // A repository that is refused.
    let text = text.replace("before = \"exit 9\"\n", "");
    scene.profiles(&text);
    let (repo, gone) = (scene.bench.path("repo"), scene.bench.path("gone"));
    std::fs::rename(&repo, &gone).unwrap();
    assert_eq!(scene.run(&["run", "home"]).code, 10);
    std::fs::rename(&gone, &repo).unwrap();
    let ran = scene.run(&["status", "--json"]);
    assert_eq!(
        ran.of_type("profile")[0]["last_run"]["exit_code"],
        10,
        "{ran}"
    );
    scene.ok(&["run", "home"]);
    scene.ok(&["status"]);
}

/// Moments of its schedule before there was a profile are nobody's.
#[test]
fn a_step_that_never_succeeded_is_late_once_a_moment_came_since_the_first_run() {
    let scene = Scene::with(&format!(
        "{HOURLY}before = \"exit 9\"\n[profile.home.check]\n"
    ));
    assert_eq!(scene.run(&["run", "home"]).code, 1);
    let ran = scene.run(&["status", "--json"]);
    assert_eq!(judged(&ran).1, ["run-failed"], "{ran}");
    scene.age(5);
    let ran = scene.run(&["status", "--json"]);
    assert_eq!(judged(&ran).1, ["run-failed", "late-step"], "{ran}");
    let findings = ran.of_type("profile")[0]["findings"].to_string();
    assert!(findings.contains("succeeded last never"), "{ran}");
}

#[test]
fn a_damaged_record_is_named_as_damaged_and_not_as_no_success() {
    let scene = Scene::with(HOURLY);
    scene.ok(&["run", "home"]);
    scene.bench.write("state/runs/home.json", "{");
    let dry = scene.run(&["run", "home", "--dry-run"]);
    let schedule = scene.run(&["schedule", "status", "--unit-dir", "."]);
    for ran in [&dry, &schedule] {
        assert!(
            ran.err.contains("is damaged (") && ran.err.contains("bale run home"),
            "{ran}"
        );
        assert!(
            ran.text()
                .contains("the record of past runs does not count"),
            "{ran}"
        );
        assert!(!ran.text().contains("has not succeeded before"), "{ran}");
    }
    let ran = scene.run(&["status", "--json"]);
    assert_eq!(
        (ran.code, judged(&ran).1),
        (3, vec!["void-record".to_owned()]),
        "{ran}"
    );
    scene.ok(&["run", "home"]);
    scene.ok(&["status"]);
}

/// A backup that found nothing new makes no snapshot, and is none that is missing.
#[test]
fn a_source_that_did_not_change_is_not_late() {
    let scene = Scene::with(&format!(
        "{HOURLY}[profile.home.backup]\nskip-if-unchanged = true\n"
    ));
    scene
        .bench
        .ok(&["backup", "-r", "repo", "-p", "pw", "source", "--time", "3d"]);
    scene.ok(&["run", "home"]);
    assert_eq!(scene.snapshots().len(), 1);
    scene.ok(&["status"]);
    scene.age(48);
    assert_eq!(scene.run(&["status"]).code, 3);
}

#[test]
fn profiles_have_numbers_for_prometheus() {
    let scene = Scene::with(HOURLY);
    scene.ok(&["run", "home"]);
    std::fs::create_dir(scene.bench.path("metrics")).unwrap();
    scene.ok(&["status", "--metrics-dir", "metrics"]);
    let file = std::fs::read_dir(scene.bench.path("metrics"))
        .unwrap()
        .next()
        .unwrap();
    let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
    for name in [
        "well",
        "last_run_exit_code",
        "last_run_timestamp_seconds",
        "next_due_timestamp_seconds",
    ] {
        let line = format!("bale_profile_{name}{{");
        assert!(
            text.contains(&line) && text.contains("status_profile=\"home\""),
            "{text}"
        );
    }
}
