//! `bale profile`, and what is refused before anything is done.

use super::scene::Scene;
use crate::bench::is_root;
use std::os::unix::fs::{PermissionsExt, chown};

const BASE: &str = "[profile.base]\ntemplate = true\nhost = \"web1\"\n[profile.base.backup]\n\
                    exclude = [\"*.tmp\"]\n";

#[test]
fn show_prints_what_counts_and_where_it_comes_from() {
    let scene = Scene::new();
    let file = scene.profiles(&format!(
        "{BASE}{}inherit = \"base\"\n[profile.home.backup]\nexclude = [\"...\", \"*.o\"]\n",
        scene.head()
    ));
    let ran = scene.ok(&["profile", "show", "home", "--json"]);
    let values = ran.of_type("value");
    let of = |word: &str| -> Vec<String> {
        let of_word = values.iter().filter(|value| value["word"] == word);
        let text = |value: &serde_json::Value| {
            assert_eq!(value["file"], file.display().to_string());
            format!("{} {} {}", value["value"], value["from"], value["line"])
        };
        of_word.map(text).collect()
    };
    assert_eq!(of("host"), ["\"web1\" \"base\" 3"]);
    assert_eq!(
        of("exclude"),
        ["\"*.tmp\" \"base\" 5", "\"*.o\" \"home\" 12"]
    );
    assert!(of("template").is_empty());
    let lines = scene.ok(&["profile", "show", "home"]);
    assert!(lines.text().contains("host = \"web1\""), "{lines}");
    assert!(
        lines.text().contains("bale.toml:3, profile base"),
        "{lines}"
    );
    assert!(lines.text().contains("[profile.home.backup]"), "{lines}");
}

#[test]
fn list_names_profiles_templates_and_those_that_are_refused() {
    let scene = Scene::new();
    scene.profiles(&format!("{BASE}{}inherit = \"base\"\n", scene.head()));
    let listed = scene.ok(&["profile", "list", "--json"]).of_type("profile");
    let names: Vec<_> = listed.iter().map(|profile| &profile["profile"]).collect();
    assert_eq!(names, ["base", "home"]);
    assert_eq!(listed[0]["template"], true);
    assert_eq!(listed[1]["steps"][0], "backup");
    scene.profiles(&format!(
        "{}[profile.odd]\ninherit = \"odd\"\n",
        scene.head()
    ));
    let ran = scene.run(&["profile", "list"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.text().contains("home: backup"), "{ran}");
    assert!(ran.err.contains("a circle"), "{ran}");
}

#[test]
fn what_is_wrong_in_a_file_is_a_usage_error_with_its_line_and_nothing_runs() {
    for (text, why) in [
        (
            "[profile.home.backup]\nexlude = \"x\"\n",
            "did you mean \"exclude\"?",
        ),
        ("[profile.home.forget]\nkeep-daily = \"many\"\n", ""),
        ("[profile.home.backup]\nscan = \"fast\"\n", "'fast'"),
        ("[profile.home.backup]\nretain = 0\n", "retain"),
        ("password = \"secret\"\n", "password-file = "),
    ] {
        let scene = Scene::with(text);
        let ran = scene.run(&["run", "home", "--json"]);
        if !why.is_empty() {
            assert_eq!(ran.code, 2, "{text}: {ran}");
            assert!(
                ran.err.contains(why) && ran.err.contains("bale.toml:"),
                "{text}: {ran}"
            );
            assert!(scene.snapshots().is_empty(), "{text}");
        }
    }
}

#[test]
fn a_profile_that_is_not_there_is_refused_with_the_nearest() {
    let scene = Scene::with("");
    for words in [
        &["run", "hoem"][..],
        &["profile", "show", "hoem"],
        &["schedule", "install", "hoem"],
    ] {
        let ran = scene.run(words);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.err.contains("did you mean \"home\"?"), "{ran}");
    }
    let ran = scene
        .bench
        .run(&["profile", "list", "--profiles", "nowhere.toml"]);
    assert_ne!(ran.code, 0, "{ran}");
    assert!(
        ran.err.contains("nowhere.toml") && ran.err.contains("--profiles"),
        "{ran}"
    );
}

#[test]
fn a_file_that_others_can_write_is_not_taken_as_it_names_commands() {
    let scene = Scene::with("");
    let path = scene.bench.path("bale.toml");
    let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o646);
    let ran = scene.run(&["profile", "list"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.err.contains("can be written by others"), "{ran}");
    mode(0o644);
    scene.ok(&["profile", "list"]);
    if is_root() {
        chown(&path, Some(65534), None).unwrap();
        let ran = scene.run(&["profile", "list"]);
        assert!(ran.err.contains("belongs to user 65534"), "{ran}");
        chown(&path, Some(0), None).unwrap();
    }
    let dir = scene.bench.path("");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let ran = scene.run(&["profile", "list"]);
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(
        ran.code == 2 && ran.err.contains("changed by everybody"),
        "{ran}"
    );
}

/// The file of the packages is one that the program takes.
#[test]
fn the_example_in_contrib_is_understood() {
    let text = include_str!("../../../../../contrib/bale.toml");
    let scene = Scene::new();
    scene.profiles(text);
    let listed = scene.ok(&["profile", "list", "--json"]).of_type("profile");
    assert!(listed.len() >= 3, "{listed:?}");
    scene.ok(&["run", "--all", "--dry-run"]);
    let unit_dir = scene.bench.path("units").display().to_string();
    let words = [
        "schedule",
        "install",
        "--all",
        "--dry-run",
        "--unit-dir",
        &unit_dir,
    ];
    assert!(scene.ok(&words).text().contains("OnCalendar="));
}
