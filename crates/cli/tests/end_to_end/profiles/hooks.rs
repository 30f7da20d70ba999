//! Hooks: they get what they are promised, and whatever they do, the run ends.

use super::scene::Scene;
use crate::bench::Ran;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Far below the minutes that hooks of these tests would hang.
const SOON: Duration = Duration::from_secs(50);

fn read(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(scene.bench.path(name)).unwrap_or_default()
}

#[test]
fn hooks_run_in_order_and_get_the_run_as_json() {
    let scene = Scene::with(
        "before = [\"echo before $BALE_STEP >>order\", \"echo second >>order\"]\n\
         after = \"\"\"\ncat >run.json\necho after $BALE_STEP $BALE_EXIT_CODE $BALE_PROFILE >>order\n\
         printf %s \"$BALE_SUMMARY\" >variable.json\"\"\"\non-failure = \"echo never >>order\"\n\
         [profile.home.backup]\nbefore = \"echo before $BALE_STEP >>order\"\n\
         after = \"cat >step.json; echo after $BALE_STEP $BALE_EXIT_CODE >>order\"\n",
    );
    scene.ok(&["run", "home"]);
    assert_eq!(
        read(&scene, "order"),
        "before run\nsecond\nbefore backup\nafter backup 0\nafter run 0 home\n"
    );
    let json = |name: &str| -> Value { serde_json::from_str(&read(&scene, name)).unwrap() };
    assert_eq!(json("run.json")["steps"][0]["summary"]["files"], 1);
    assert_eq!(json("variable.json"), json("run.json"));
    assert_eq!(json("step.json")["step"], "backup");
    assert_eq!(json("step.json")["summary"]["files"], 1);
}

#[test]
fn a_hook_before_that_fails_stops_the_run_and_is_named() {
    let scene = Scene::with(
        "before = [\"echo why; exit 7\", \"touch never\"]\nafter = \"touch after\"\n\
         on-failure = \"echo $BALE_EXIT_CODE >failure\"\n",
    );
    let ran = scene.run(&["run", "home"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("why"), "{ran}");
    assert!(ran.err.contains("bale.toml:5) ended with 7"), "{ran}");
    assert_eq!(read(&scene, "failure"), "1\n");
    assert!(scene.bench.path("after").exists(), "what it began is ended");
    assert!(!scene.bench.path("never").exists());
    assert!(scene.snapshots().is_empty());
}

#[test]
fn a_hook_before_a_step_that_fails_stops_that_step_and_what_deletes() {
    let scene = Scene::with(
        "[profile.home.backup]\nbefore = \"false\"\non-failure = \"echo $BALE_STEP >failure\"\n\
         [profile.home.forget]\nkeep-last = 1\n[profile.home.check]\n",
    );
    let ran = scene.run(&["run", "home", "--json"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(
        Scene::steps(&ran),
        ["backup skipped", "forget skipped", "check 0"]
    );
    assert_eq!(read(&scene, "failure"), "backup\n");
}

#[test]
fn a_hook_behind_that_fails_is_a_problem_and_hides_nothing() {
    let scene = Scene::with("after = [\"exit 9\", \"touch second\"]\n");
    let ran = scene.run(&["run", "home", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(scene.bench.path("second").exists());
    assert_eq!(Scene::steps(&ran), ["backup 0"]);
    let problems = &ran.of_type("run")[0]["problems"];
    assert!(
        problems[0].as_str().unwrap().contains("ended with 9"),
        "{problems}"
    );
    assert_eq!(scene.snapshots().len(), 1);
}

#[test]
fn a_hook_that_hangs_is_ended_with_all_that_it_started() {
    let scene = Scene::with(
        "hook-timeout = \"1s\"\nafter = \"trap '' TERM; echo $$ >pid; sleep 600 & sleep 600; sleep 600\"\n",
    );
    let began = Instant::now();
    let ran = scene.run(&["run", "home"]);
    assert!(began.elapsed() < SOON);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        ran.err.contains("was ended after 1 s (hook-timeout)"),
        "{ran}"
    );
    let pid = read(&scene, "pid");
    scene.bench.sh(&format!(
        "ps -eo pgid=,stat= | awk '$1 == {} && $2 !~ /^Z/ {{ exit 1 }}'",
        pid.trim()
    ));
}

/// Rubbish, endless output, a pipe that somebody else holds, and nobody who reads.
#[test]
fn whatever_a_hook_does_with_its_pipes_the_run_ends() {
    for (hook, expected) in [
        ("echo $$ >pid; sleep 600 &", 0),
        ("echo $$ >pid; (sleep 600; echo late) &", 0),
        ("exec >&- 2>&-; true", 0),
        ("exec <&-; true", 0),
        ("head -c 3000000 /dev/urandom", 0),
        ("yes", 3),
        ("head -c 100000 /dev/zero | tr '\\\\0' x", 0),
        ("printf '\\\\033[2J\\\\377\\\\n'", 0),
        ("kill -9 $$", 3),
        ("no-such-program", 3),
    ] {
        let scene = Scene::with(&format!("hook-timeout = \"2s\"\nafter = \"{hook}\"\n"));
        let began = Instant::now();
        let ran = scene.run(&["run", "home"]);
        assert!(began.elapsed() < SOON, "{hook}");
        assert_eq!(ran.code, expected, "{hook}: {ran}");
        assert!(ran.err.lines().count() < 300, "{hook}: {}", ran.err.len());
        assert!(ran.err.len() < 300_000, "{hook}: {}", ran.err.len());
        assert!(!ran.err.contains('\x1b'), "{hook}");
        scene
            .bench
            .sh("if [ -e pid ]; then kill -9 -- -$(cat pid); fi");
    }
}

/// More than a pipe or a variable holds.
#[test]
fn what_a_hook_is_given_is_whole_on_standard_input_and_bounded_in_the_environment() {
    let scene = Scene::with(
        "after = [\"true\", \"cat >run.json; printf %s \\\"$BALE_SUMMARY\\\" >variable.json\"]\n",
    );
    let long = ["x".repeat(240), "y".repeat(240)].join("/");
    let sources: Vec<_> = (0..400)
        .map(|number| format!("\"/nowhere/{long}/{number}\""))
        .collect();
    let text = std::fs::read_to_string(scene.bench.path("bale.toml")).unwrap();
    let source = format!("{:?}", scene.bench.path("source").display().to_string());
    scene.profiles(&text.replace(&source, &format!("[{source}, {}]", sources.join(", "))));
    let ran = scene.run(&["run", "home"]);
    assert_eq!(ran.code, 3, "{ran}");
    let run: Value = serde_json::from_str(&read(&scene, "run.json")).unwrap();
    assert_eq!(run["steps"][0]["problems"].as_array().unwrap().len(), 100);
    let variable: Value = serde_json::from_str(&read(&scene, "variable.json")).unwrap();
    assert_eq!(
        (&variable["shortened"], &variable["exit_code"]),
        (&true.into(), &3.into())
    );
    assert!(read(&scene, "variable.json").len() < 32 << 10);
}

/// Takes requests until it is dropped; says their paths.
fn pinged(scene: &Scene, words: &[&str], answer: &'static str) -> (Ran, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = std::fs::read_to_string(scene.bench.path("bale.toml")).unwrap();
    scene.profiles(&text.replace("ADDRESS", &format!("http://{address}")));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&bytes).contains("\r\n\r\n") {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    read => bytes.extend_from_slice(&buffer[..read]),
                }
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            sender
                .send(text.lines().next().unwrap_or_default().to_owned())
                .unwrap();
            let answer =
                format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let ran = scene.run(words);
    (ran, receiver.try_iter().collect())
}

#[test]
fn pings_say_that_a_run_began_and_how_it_ended() {
    let scene = Scene::with("ping = \"ADDRESS/uuid?x=1\"\n");
    let (ran, paths) = pinged(&scene, &["run", "home"], "200 OK");
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(
        paths,
        ["POST /uuid/start?x=1 HTTP/1.1", "POST /uuid?x=1 HTTP/1.1"]
    );
    let scene = Scene::with("ping = \"ADDRESS/uuid\"\nbefore = \"false\"\n");
    let (ran, paths) = pinged(&scene, &["run", "home"], "200 OK");
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(paths.last().unwrap(), "POST /uuid/fail HTTP/1.1");
    let scene = Scene::with("ping = \"ADDRESS/secret-uuid\"\n");
    let (ran, _) = pinged(&scene, &["run", "home"], "404 Not Found");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("ping: the server answers 404"), "{ran}");
    assert!(!ran.err.contains("secret-uuid"), "{ran}");
    assert_eq!(scene.snapshots().len(), 1);
}

#[test]
fn a_mail_is_sent_when_a_run_was_not_complete() {
    let scene = Scene::with("mail = [\"a@example.org\", \"root\"]\n");
    scene.bench.sh("mkdir bin; printf '#!/bin/sh\\necho $* >args; cat >mail\\n' >bin/sendmail; chmod +x bin/sendmail");
    let path = format!(
        "{}:{}",
        scene.bench.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let run = || {
        Ran::from(
            scene
                .command(&["run", "home"])
                .env("PATH", &path)
                .output()
                .unwrap(),
        )
    };
    assert_eq!(run().code, 0);
    assert!(!scene.bench.path("mail").exists(), "nothing is the matter");
    std::fs::rename(scene.bench.path("source"), scene.bench.path("away")).unwrap();
    assert_eq!(run().code, 1);
    let mail = read(&scene, "mail");
    assert!(
        mail.starts_with("To: a@example.org, root\nSubject: bale: home on "),
        "{mail}"
    );
    assert!(mail.contains("FAILED (exit 1)"), "{mail}");
    assert!(mail.contains("look up the paths to back up"), "{mail}");
    assert_eq!(read(&scene, "args"), "-t -oi\n");
}
