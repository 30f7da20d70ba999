//! The commands of the guide and of the README, run as they stand there, page by page, each in a
//! small machine of its own (`guide/world.sh`). Needs root.
//!
//! A page whose commands fail, or print something else than it says, fails. What cannot be run is
//! marked in the source of the page, with a reason, and counted here.
//!
//! A program of its own: its mount namespaces begin with a copy of every mount, which would hold
//! the file systems of tests beside it after they unmounted them.

#[path = "guide/page.rs"]
mod page;

use bale_testkit::{have, is_root, skipped};
use page::{Commands, REASONS};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Blocks of commands on all pages that are not run, and why. One more is a promise less: say in
/// the commit why it cannot be tried.
const NOT_RUN: [(&str, usize); 9] = [
    ("build", 1),
    ("cloud", 4),
    ("device", 4),
    ("hypervisor", 3),
    ("package", 2),
    ("profile", 1),
    ("program", 2),
    ("server", 4),
    ("systemd", 2),
];

/// A page must end; what hangs is killed with all it started.
const PAGE_SECONDS_MAX: u32 = 120;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn guide(name: &str) -> PathBuf {
    repository().join("docs/guide").join(name)
}

/// A test for each page, so that they run beside each other, and the list of them.
macro_rules! pages {
    ($($test:ident: $file:literal, $world:literal;)*) => {
        $(#[test]
        fn $test() {
            run(&guide($file), $world);
        })*
        const PAGES: &[&str] = &[$($file),*];
    };
}

pages! {
    index: "README.md", "repository";
    install: "install.md", "empty";
    first_backup: "first-backup.md", "empty";
    every_day: "every-day.md", "repository";
    patterns: "patterns.md", "repository";
    restoring: "restoring.md", "repository";
    looking: "looking.md", "repository";
    profiles: "profiles.md", "repository";
    retention: "retention.md", "repository";
    rewriting: "rewriting.md", "repository";
    checking: "checking.md", "repository";
    keys: "keys.md", "repository";
    second_place: "second-place.md", "repository";
    several_hosts: "several-hosts.md", "empty";
    server: "server.md", "empty";
    far_away: "far-away.md", "repository";
    cold: "cold.md", "repository";
    freezing: "freezing.md", "repository";
    images: "images.md", "repository";
    tracking: "tracking.md", "repository";
    export: "export.md", "repository";
    containers_and_vms: "containers-and-vms.md", "repository";
    monitoring: "monitoring.md", "repository";
    from_restic: "from-restic.md", "repository";
    from_borg: "from-borg.md", "repository";
    limits: "limits.md", "repository";
    measuring: "measuring.md", "empty";
}

#[test]
fn readme() {
    run(&repository().join("README.md"), "checkout");
}

/// Both begin with nothing but a toolchain: `.ci/doors` and `.ci/run` run them literally.
#[test]
fn the_readme_begins_with_its_two_commands_and_nothing_before_them() {
    let page = read(&repository().join("README.md"));
    let first = ["cargo run --release -- backup --init docs", "./test"];
    for (commands, expected) in page.iter().zip(first) {
        assert_eq!(commands.text.trim(), expected);
        assert!(commands.beforehand.is_empty() && commands.not_run.is_none());
    }
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(!text.contains("<!-- beforehand"), "hidden commands");
}

fn read(page: &Path) -> Vec<Commands> {
    page::read(page).unwrap_or_else(|what| panic!("{what}"))
}

#[test]
fn every_page_of_the_guide_is_tried_and_on_its_index() {
    let index = std::fs::read_to_string(guide("README.md")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(guide("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(PAGES.contains(&name.as_str()), "add {name} to `pages!`");
        let is_linked = index.contains(&format!("]({name})"));
        assert!(is_linked || name == "README.md", "no link to {name}");
        seen += 1;
    }
    assert_eq!(seen, PAGES.len(), "a page of `pages!` is gone");
}

#[test]
fn what_is_not_run_is_marked_with_a_reason_and_counted() {
    let mut counts: BTreeMap<String, usize> = REASONS.map(|it| (it.to_owned(), 0)).into();
    let mut run = 0;
    let pages = PAGES.iter().map(|name| guide(name));
    for page in pages.chain([repository().join("README.md")]) {
        for commands in read(&page) {
            match commands.not_run {
                Some(reason) => *counts.get_mut(&reason).expect("read checks it") += 1,
                None => run += 1,
            }
        }
    }
    let expected = NOT_RUN.map(|(reason, count)| (reason.to_owned(), count));
    assert_eq!(
        counts,
        expected.into(),
        "blocks that are not run; {run} are"
    );
    let not_run: usize = counts.values().sum();
    assert!(run > 2 * not_run, "{run} blocks are run, {not_run} are not");
}

/// The commands of a page as one script, so that variables and directories last from one fence to
/// the next. What each prints goes to a file of its own.
fn script(page: &[Commands]) -> String {
    let mut script = "set -uo pipefail\n".to_owned();
    for (at, commands) in page.iter().enumerate() {
        if commands.not_run.is_some() {
            continue;
        }
        let Commands {
            text,
            beforehand,
            exit,
            ..
        } = commands;
        // What fails before && is no failure for `set -e`.
        let is_plain = !text.contains("&& ") && !text.contains("|| ");
        assert!(
            is_plain,
            "a line for each command, without && and ||: {text}"
        );
        let _ = writeln!(
            script,
            "echo {at} >/run/at; exec >/run/out.{at} 2>&1; set -e"
        );
        script.push_str(beforehand);
        match exit {
            0 => _ = writeln!(script, "{text}"),
            // Ends as the page says, in a shell of its own.
            code => {
                _ = write!(
                    script,
                    "set +e; (set -e\n{text}\n); code=$?; set -e\n\
                     [ $code = {code} ] || {{ echo \"exit code $code and not {code}\"; exit 1; }}\n"
                );
            }
        }
    }
    script
}

fn run(page: &Path, world: &str) {
    let commands = read(page);
    if !is_root() || !["unshare", "chroot", "ip"].into_iter().all(have) {
        return skipped("the guide is tried in a machine of its own, which needs root");
    }
    let root = tempfile::Builder::new().prefix("bale-guide-").tempdir();
    let root = root.unwrap();
    std::fs::create_dir_all(root.path().join("run")).unwrap();
    std::fs::create_dir_all(root.path().join("tmp")).unwrap();
    std::fs::write(root.path().join("run/script"), script(&commands)).unwrap();
    let output = Command::new("timeout")
        .args(["--signal=KILL", &PAGE_SECONDS_MAX.to_string()])
        .args(["unshare", "--mount", "--uts", "--pid", "--net"])
        .args(["--fork", "--kill-child", "bash"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guide/world.sh"))
        .arg(root.path())
        .arg(env!("CARGO_BIN_EXE_bale"))
        .args([world, "bash", "/run/script"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let file = |name: &str| {
        let bytes = std::fs::read(root.path().join("run").join(name));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    let at = file("at").trim().parse::<usize>().ok();
    if !output.status.success() {
        let line = at.map_or(0, |at| commands[at].line);
        let printed = at.map_or_else(String::new, |at| file(&format!("out.{at}")));
        let world = String::from_utf8_lossy(&output.stderr);
        panic!(
            "{}:{line}: these commands failed:\n{printed}{world}",
            page.display()
        );
    }
    let last = commands.iter().rposition(|it| it.not_run.is_none());
    assert_eq!(at, last, "{}: ended early", page.display());
    for (at, commands) in commands.iter().enumerate() {
        let printed = file(&format!("out.{at}"));
        if let Some(page_says) = &commands.output {
            assert!(
                page::is_printed(page_says, &printed),
                "{}:{}: printed:\n{printed}\nand not:\n{page_says}",
                page.display(),
                commands.line
            );
        }
    }
}
