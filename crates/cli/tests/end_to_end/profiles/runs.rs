//! `bale run`: what is due, in order, recorded; and what a failure stops.

use super::scene::Scene;
use crate::bench::Ran;
use std::process::Stdio;
use std::time::Duration;

const STEPS: &str = "schedule = \"daily\"\n[profile.home.forget]\nkeep-last = 1\n\
                     [profile.home.prune]\ngrace = \"0\"\n[profile.home.check]\n";

#[test]
fn a_run_does_what_is_due_once_and_says_what_is_not() {
    let scene = Scene::with(STEPS);
    let ran = scene.ok(&["run", "home", "--json"]);
    assert_eq!(
        Scene::steps(&ran),
        ["backup 0", "forget 0", "prune 0", "check 0"]
    );
    assert_eq!(scene.snapshots().len(), 1);
    assert_eq!(scene.snapshots()[0]["problems"], 0);
    let run = &ran.of_type("run")[0];
    assert_eq!(run["steps"][0]["summary"]["files"], 1, "{run}");
    assert_eq!(ran.summary()["exit_code"], 0);
    let record = scene.record();
    assert_eq!(
        record["steps"]["backup"]["last_success"]["summary"]["files"],
        1
    );
    let again = scene.ok(&["run", "home"]);
    assert_eq!(again.err.matches("not due: next").count(), 4, "{again}");
    assert_eq!(scene.snapshots().len(), 1);
    scene.age(48);
    let ran = scene.ok(&["run", "home", "--json"]);
    assert_eq!(Scene::steps(&ran).len(), 4, "{ran}");
    let steps = ran.of_type("step");
    assert!(
        steps[0]["why"].as_str().unwrap().contains("due since"),
        "{ran}"
    );
    assert_eq!(scene.snapshots().len(), 1, "keep-last = 1");
}

#[test]
fn each_step_has_a_schedule_of_its_own() {
    let scene = Scene::with(
        "schedule = \"daily\"\n[profile.home.check]\nschedule = \"monthly\"\n\
         [profile.home.prune]\nenabled = false\n",
    );
    scene.ok(&["run", "home"]);
    scene.age(25);
    let ran = scene.ok(&["run", "home", "--dry-run", "--json"]);
    let due: Vec<_> = ran
        .of_type("plan")
        .iter()
        .map(|plan| format!("{} {}", plan["step"].as_str().unwrap(), plan["due"]))
        .collect();
    // Of a month's first two days the check is due, too.
    assert_eq!(due[0], "backup true", "{ran}");
    assert!(due.len() == 2 && due[1].starts_with("check "), "{ran}");
    scene.age(24 * 40);
    let ran = scene.ok(&["run", "home", "--json"]);
    assert_eq!(Scene::steps(&ran), ["backup 0", "check 0"]);
}

#[test]
fn a_dry_run_says_what_is_due_and_the_commands_and_does_nothing() {
    let scene = Scene::with(&format!(
        "{STEPS}read-data-subset = \"next/7\"\n[profile.home.backup]\nexclude = \"*.o\"\n"
    ));
    let ran = scene.ok(&["run", "home", "--dry-run"]);
    assert!(
        ran.text()
            .contains("home: backup: due: it has not succeeded before"),
        "{ran}"
    );
    assert!(
        ran.text().contains("bale backup --exclude=*.o -- "),
        "{ran}"
    );
    assert!(ran.text().contains("BALE_PASSWORD_FILE="), "{ran}");
    assert!(
        ran.text().contains("bale check --read-data-subset=1/7"),
        "{ran}"
    );
    assert!(!scene.bench.path("state").exists(), "nothing is made");
    assert!(scene.snapshots().is_empty());
}

#[test]
fn parts_of_a_check_come_in_turn_and_a_failed_one_comes_again() {
    let scene = Scene::with("[profile.home.check]\nread-data-subset = \"next/3\"\n");
    let part = |ran: &Ran| {
        let part = scene.record()["steps"]["check"]["part"].clone();
        (Scene::steps(ran)[1].clone(), part.to_string())
    };
    for expected in ["[1,3]", "[2,3]", "[3,3]", "[1,3]"] {
        let ran = scene.ok(&["run", "home", "--json"]);
        assert_eq!(part(&ran), ("check 0".to_owned(), expected.to_owned()));
    }
    scene.bench.sh(
        "for f in repo/packs/*/*; do printf damaged! | dd of=$f bs=1 seek=60 conv=notrunc; done",
    );
    let ran = scene.run(&["run", "home", "--json"]);
    assert_ne!(ran.code, 0, "{ran}");
    assert_eq!(
        scene.record()["steps"]["check"]["part"].to_string(),
        "[1,3]",
        "{ran}"
    );
}

/// Nothing is forgotten, and nothing deleted, after a backup that failed; a check goes on.
#[test]
fn after_a_failed_backup_nothing_is_deleted_and_the_check_still_runs() {
    let scene = Scene::with(&STEPS.replace("schedule = \"daily\"\n", ""));
    for _ in 0..2 {
        scene
            .bench
            .ok(&["backup", "-r", "repo", "-p", "pw", "source"]);
    }
    std::fs::rename(scene.bench.path("source"), scene.bench.path("away")).unwrap();
    let ran = scene.run(&["run", "home", "--json"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(
        Scene::steps(&ran),
        ["backup 1", "forget skipped", "prune skipped", "check 0"]
    );
    assert_eq!(scene.snapshots().len(), 2);
    let record = scene.record();
    assert_eq!(record["steps"]["backup"]["last"]["exit_code"], 1);
    assert!(record["steps"]["backup"]["last_success"].is_null());
    assert!(record["steps"]["forget"].is_null());
    assert!(ran.err.contains("look up the paths to back up"), "{ran}");
}

#[test]
fn a_step_that_fails_hides_no_other_and_the_worst_code_counts() {
    let scene = Scene::with("[profile.home.check]\n");
    let text = format!(
        "{}[profile.home.check]\n[profile.broken]\nsources = \"/\"\nrepository = {:?}\n\
         password-file = {:?}\n",
        scene.head(),
        scene.bench.path("nowhere").display().to_string(),
        scene.bench.path("pw").display().to_string()
    );
    scene.profiles(&text);
    let ran = scene.run(&["run", "--all", "--json"]);
    assert_eq!(ran.code, 10, "{ran}");
    let runs = ran.of_type("run");
    let codes: Vec<_> = runs
        .iter()
        .map(|run| (&run["profile"], &run["exit_code"]))
        .collect();
    assert_eq!(codes.len(), 2);
    assert_eq!(
        (codes[0].1.as_i64(), codes[1].1.as_i64()),
        (Some(10), Some(0)),
        "{ran}"
    );
    assert_eq!(scene.snapshots().len(), 1);
}

/// What cannot be read is named, exit 3, and it is a backup: the rest goes on.
#[test]
fn a_backup_with_problems_counts_and_is_said() {
    let scene = Scene::with("[profile.home.forget]\nkeep-last = 1\n");
    let head = scene
        .head()
        .replace("source\"", "source\", \"/nowhere/at/all\"");
    let head = head
        .replace("sources = ", "sources = [")
        .replacen("all\"\n", "all\"]\n", 1);
    scene.profiles(&format!("{head}[profile.home.forget]\nkeep-last = 1\n"));
    let ran = scene.run(&["run", "home"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("/nowhere/at/all"), "{ran}");
    assert!(ran.err.contains("with problems (exit 3)"), "{ran}");
    let record = scene.record();
    assert_eq!(record["steps"]["backup"]["last_success"]["exit_code"], 3);
    assert_eq!(record["steps"]["forget"]["last_success"]["exit_code"], 0);
}

#[test]
fn a_record_that_is_damaged_of_another_repository_or_from_the_future_is_not_believed() {
    let scene = Scene::with("schedule = \"daily\"\n");
    scene.ok(&["run", "home"]);
    let path = scene.bench.path("state/runs/home.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let other = good.replace("/repo\"", "/other\"");
    assert_ne!(good, other);
    for (text, why) in [
        ("{", "is damaged"),
        ("", "is damaged"),
        (&good[..good.len() / 2], "is damaged"),
        (&other, "is of another repository"),
    ] {
        std::fs::write(&path, text).unwrap();
        let ran = scene.ok(&["run", "home"]);
        assert!(
            ran.err.contains(why) && ran.err.contains("saved"),
            "{why}: {ran}"
        );
        assert!(
            scene.ok(&["run", "home"]).err.contains("not due"),
            "it is written anew"
        );
    }
    scene.age(-48);
    let ran = scene.ok(&["run", "home"]);
    assert!(
        ran.err.contains("dated in the future") && ran.err.contains("saved"),
        "{ran}"
    );
    assert_eq!(scene.snapshots().len(), 6);
}

#[test]
fn a_second_run_of_a_profile_or_of_its_source_is_refused_with_exit_code_11() {
    let scene = Scene::with("before = \"touch begun; sleep 60\"\n");
    let twin = scene.head().replace("profile.home", "profile.twin");
    let both = format!(
        "{}before = \"touch begun; exec sleep 60\"\n{twin}",
        scene.head()
    );
    scene.profiles(&both);
    let mut command = scene.command(&["run", "home"]);
    let mut first = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !scene.bench.path("begun").exists() {
        assert!(first.try_wait().unwrap().is_none(), "the first run ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ran = scene.run(&["run", "home", "--json"]);
    assert_eq!(ran.code, 11, "{ran}");
    assert!(
        ran.err
            .contains("another run of the profile home is under way"),
        "{ran}"
    );
    let ran = scene.run(&["run", "twin"]);
    assert_eq!(ran.code, 11, "{ran}");
    assert!(ran.err.contains("backs up the same sources"), "{ran}");
    scene.bench.sh(&format!("kill -TERM {}", first.id()));
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert!(
        scene.snapshots().is_empty(),
        "an interrupted hook stops the run"
    );
    scene.profiles(&twin);
    scene.ok(&["run", "twin"]);
}

/// Of the environment and of command lines of steps: secrets of the profile come by the former.
#[test]
fn secrets_are_on_no_command_line_and_in_no_hooks_environment() {
    let scene = Scene::with("");
    let head = scene.head();
    let head = head
        .lines()
        .filter(|line| !line.starts_with("password-file"));
    let head: Vec<_> = head.collect();
    scene.profiles(&format!(
        "{}\npassword-command = \"cat /proc/$PPID/cmdline >cmdline; cat pw\"\n\
         after = [\"env >env\", \"cat /proc/$PPID/cmdline >>env\"]\n",
        head.join("\n")
    ));
    let mut command = scene.command(&["run", "home"]);
    let ran = Ran::from(command.env("BALE_PASSWORD", "wrong").output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let read = |name: &str| {
        String::from_utf8_lossy(&std::fs::read(scene.bench.path(name)).unwrap()).into_owned()
    };
    assert!(read("cmdline").contains("backup"), "{}", read("cmdline"));
    for text in [read("cmdline"), read("env")] {
        assert!(
            !text.contains("cat pw") && !text.contains("BALE_PASSWORD"),
            "{text}"
        );
    }
}

/// Issue 17: a unit of systemd has no HOME.
#[test]
fn a_run_without_a_home_directory_works() {
    let scene = Scene::with("schedule = \"daily\"\n");
    let cache = scene.bench.path("cache");
    let mut command = scene.command(&["run", "home"]);
    command
        .env_remove("HOME")
        .env("BALE_CACHE_DIR", cache)
        .current_dir("/");
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(scene.snapshots().len(), 1);
}

#[test]
fn an_interrupted_run_ends_its_step_well_and_goes_on_with_nothing() {
    let scene = Scene::new();
    scene.bench.sh("mkfifo gate");
    // The backup waits for its command until it is interrupted.
    scene.profiles(
        &scene
            .head()
            .replace(
                &format!(
                    "sources = {:?}\n",
                    scene.bench.path("source").display().to_string()
                ),
                "after = \"echo $BALE_EXIT_CODE >code\"\n",
            )
            .replace(
                "[profile.home]",
                "[profile.home.backup]\nstdin-from-command = [\"sh\", \"-c\", \
             \"touch begun; exec sleep 60\"]\n[profile.home.check]\n[profile.home]",
            ),
    );
    let mut command = scene.command(&["run", "home", "--json"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !scene.bench.path("begun").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    scene.bench.sh(&format!("kill -TERM {}", child.id()));
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert_eq!(Scene::steps(&ran), ["backup 130"], "{ran}");
    let code = std::fs::read_to_string(scene.bench.path("code")).unwrap();
    assert_eq!(code.trim(), "130", "the hook behind runs all the same");
    assert!(scene.snapshots().is_empty());
}
