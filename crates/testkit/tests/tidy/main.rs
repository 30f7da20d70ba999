//! House style that a machine can check, each rule with a message that says what to do instead.
//!
//! Sources are read as text, in the shape rustfmt gives them: good enough to find what slips in,
//! simple enough to trust. An exception stands in the list of its rule, with its reason.

mod budget;
mod dependencies;
mod modules;
mod packages;
mod pages;
mod programs;
mod sources;
mod stores;
mod structure;

use sources::{files_below, is_comment, must_be_empty, repository, sources};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Modules that start threads; everything else is handed what it needs.
const THREADS: [&str; 35] = [
    "cli/src/",
    "pipeline/src/ahead.rs",
    "pipeline/src/beside.rs",
    "engine/src/heartbeat.rs",
    "mount/src/pusher.rs",
    "engine/src/backup/pass.rs",
    "repository/src/catalog/loader.rs",
    "repository/src/pack.rs",
    "repository/src/repository/flights.rs",
    "source/src/read/arranged/window.rs",
    "source/src/read/large.rs",
    "source/src/read/small.rs",
    "restore/src/ext4/chunks_ahead.rs",
    "restore/src/ext4/image.rs",
    "restore/src/image_reader/chunks.rs",
    "restore/src/kernel/queue.rs",
    "source/src/scan/inode/append.rs",
    "source/src/scan/inode/directory_lister.rs",
    "pipeline/src/ordered.rs",
    "source/src/scan/walk.rs",
    "pipeline/src/spill.rs",
    "repository/src/store/disk/direct.rs",
    // The suite that stores must pass; it uses a store from many threads at once.
    "repository/src/store/conformance.rs",
    // Writers of which everybody else is to be unaware.
    "testkit/src/fault_proxy.rs",
    "testkit/src/http_gate.rs",
    "testkit/src/http_proxy.rs",
    "testkit/src/live_tree.rs",
    "testkit/src/servers/sftp.rs",
    // What a server says is read while others wait for answers.
    "remote/src/sftp/connection.rs",
    "remote/src/process.rs",
    "remote/src/files/listing.rs",
    // What a server says is read while others write; each client of ours has a thread.
    "nbd/src/client/connection.rs",
    "nbd/src/server.rs",
    "tune/src/generate/image.rs",
    "tune/src/generate/workers.rs",
];

/// Where the terminal, the environment and the exit code are.
const TERMINAL: [&str; 5] = [
    "cli/src/",
    "compare/src/main.rs",
    "compare/src/words.rs",
    // Says loudly which tests did not run, and asks whether that is a failure (`CI`).
    "testkit/src/needs.rs",
    // Says which promise a store broke before the assertion that ends the test.
    "repository/src/store/conformance.rs",
];

const CLOCK: [&str; 2] = ["pipeline/src/clock.rs", "compare/src/words.rs"];

/// Lines of code with one of `words`, outside of the files that begin with one of `allowed`.
fn found(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources() {
        if allowed
            .iter()
            .any(|allowed| source.name.starts_with(allowed))
        {
            continue;
        }
        for (number, line) in source.lines.iter().enumerate() {
            if !is_comment(line) && words.iter().any(|word| line.contains(word)) {
                findings.push(format!("{}:{}: {}", source.name, number + 1, line.trim()));
            }
        }
    }
    findings
}

#[test]
fn every_file_opens_with_its_promise() {
    let findings: Vec<_> = sources()
        .into_iter()
        .filter(|source| {
            !source
                .lines
                .first()
                .is_some_and(|line| line.starts_with("//!"))
        })
        .map(|source| source.name)
        .collect();
    must_be_empty(
        &findings,
        "begin the file with a `//!` line that says what it promises:",
    );
}

#[test]
fn a_file_holds_one_noun() {
    let findings: Vec<_> = sources()
        .into_iter()
        .filter(|source| source.lines.len() > FILE_LINES_MAX)
        .map(|source| format!("{}: {} lines", source.name, source.lines.len()))
        .collect();
    must_be_empty(
        &findings,
        "split the file; 500 lines before its tests are plenty:",
    );
}

/// Name and length of each function: from its `fn` to the brace in the same column.
fn functions(lines: &[String]) -> Vec<(String, usize)> {
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some((before, after)) = code.split_once("fn ") else {
            continue;
        };
        let words = ["pub", "pub(crate)", "pub(super)", "const", "unsafe"];
        if is_comment(line) || !before.split_whitespace().all(|word| words.contains(&word)) {
            continue;
        }
        let name: String = after
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect();
        let end = lines[start..].iter().position(|line| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest == "}" || (rest.ends_with(';') && !rest.starts_with(' ')))
        });
        functions.push((name, end.map_or(1, |lines| lines + 1)));
    }
    functions
}

#[test]
fn a_function_fits_a_screen() {
    let mut seen = 0;
    let mut findings = Vec::new();
    for source in sources() {
        for (name, lines) in functions(&source.lines) {
            seen += 1;
            if lines > FUNCTION_LINES_MAX {
                findings.push(format!("{}: {name}: {lines} lines", source.name));
            }
        }
    }
    assert!(seen > 1000, "tidy sees only {seen} functions");
    must_be_empty(&findings, "split the function; 70 lines are plenty:");
}

#[test]
fn a_line_fits_beside_another_window() {
    let mut findings = Vec::new();
    for source in sources() {
        for (number, line) in source.lines.iter().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                findings.push(format!("{}:{}: {columns} columns", source.name, number + 1));
            }
        }
    }
    must_be_empty(
        &findings,
        "break the line; 100 columns of code and comment are plenty:",
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let words = ["todo!(", "unimplemented!(", "dbg!(", "FIXME"];
    must_be_empty(&found(&words, &[]), "finish it or open an issue:");
}

#[test]
fn unsafe_code_has_one_crate() {
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
    must_be_empty(&found(&words, &["sys/"]), "move it to crates/sys:");
}

#[test]
fn unwrap_is_for_tests() {
    must_be_empty(
        &found(&[".unwrap()"], &[]),
        "return the error, or `expect` with why it cannot happen:",
    );
}

#[test]
fn the_terminal_and_the_environment_belong_to_the_command_line() {
    let words = [
        "std::env",
        "env::var",
        "process::exit",
        "println!(",
        "print!(",
    ];
    must_be_empty(
        &found(&words, &TERMINAL),
        "pass it in, or report it through the monitor:",
    );
}

/// `eprintln` panics when nobody reads stderr any more: a backup would end because a terminal was
/// closed.
#[test]
fn nothing_panics_for_want_of_a_listener() {
    let words = ["eprintln!(", "eprint!("];
    let conformance = "repository/src/store/conformance.rs";
    must_be_empty(&found(&words, &[conformance]), "say it with `tell!`:");
}

#[test]
fn threads_start_in_few_places() {
    let words = [
        "thread::spawn",
        "thread::scope",
        "thread::Builder",
        "scope.spawn",
    ];
    must_be_empty(
        &found(&words, &THREADS),
        "let a module that has threads call this one:",
    );
}

#[test]
fn the_time_is_told_by_the_clock() {
    let words = ["SystemTime::now", "Timestamp::now", "Zoned::now"];
    must_be_empty(
        &found(&words, &CLOCK),
        "take a time, or ask engine's clock:",
    );
}

/// Tests of one program run beside each other. A mount namespace begins with a copy of all mounts:
/// what another test unmounts meanwhile stays in use by the copy, its image is still written to,
/// and its next mount finds the old state.
#[test]
fn tests_that_mount_in_a_namespace_have_a_program_of_their_own() {
    let alone = [
        "cli/tests/guide.rs",
        "cli/tests/mount_by_user.rs",
        "cli/tests/root_without_home.rs",
        "engine/tests/no_device_nodes.rs",
        "testkit/tests/tidy/main.rs",
    ];
    let root = repository().join("crates");
    let mut files = Vec::new();
    files_below(&root, &mut files);
    let findings: Vec<_> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| (path.strip_prefix(&root).unwrap().to_str().unwrap(), path))
        .filter(|(name, _)| !alone.contains(name))
        .filter(|(_, path)| {
            let text = std::fs::read_to_string(path).unwrap();
            text.contains("unshare -m") || text.contains("\"unshare\"")
        })
        .map(|(name, _)| name.to_owned())
        .collect();
    must_be_empty(&findings, "mount in the open, or in a test program alone:");
}

#[test]
fn modules_are_named_after_what_they_hold() {
    let hubs = [
        "util", "utils", "misc", "common", "manager", "helper", "helpers",
    ];
    let findings: Vec<_> = sources()
        .into_iter()
        .map(|source| source.name)
        .filter(|name| {
            name.trim_end_matches(".rs")
                .split('/')
                .any(|part| hubs.contains(&part))
        })
        .collect();
    must_be_empty(&findings, "name the module after its noun:");
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/.")];
    let mut files = Vec::new();
    files_below(&repository(), &mut files);
    let findings: Vec<_> = files
        .into_iter()
        .filter(|path| {
            let bytes = std::fs::read(path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            places.iter().any(|place| text.contains(place))
        })
        .map(|path| path.display().to_string())
        .collect();
    must_be_empty(
        &findings,
        "the repository is read elsewhere; say it without the place:",
    );
}

#[test]
fn the_architecture_tells_of_every_crate() {
    let text = std::fs::read_to_string(repository().join("docs/ARCHITECTURE.md")).unwrap();
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let spellings = [
            format!("crates/{name}"),
            format!("bale-{name}"),
            format!("`{name}`"),
        ];
        if !spellings.iter().any(|spelling| text.contains(spelling)) {
            findings.push(name);
        }
    }
    must_be_empty(
        &findings,
        "say in docs/ARCHITECTURE.md what this crate is for:",
    );
}

/// What docs/PROOF.md must speak of: a kind and its numbers.
const PROOF_IDS: [(&str, &[u32]); 8] = [
    ("SRC", &[1, 2, 3, 4, 5, 6, 7, 8, 11, 12]),
    ("OBJ", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ("REP", &[1, 2, 3, 4, 6, 8, 9, 10]),
    ("CRA", &[1, 2, 3, 5, 6]),
    ("CON", &[1, 2, 3, 4, 5, 7]),
    ("RST", &[1, 2, 3, 4, 5, 6, 7, 8]),
    ("RES", &[1, 2, 3]),
    ("FMT", &[1, 2, 3, 4]),
];

/// Is there a test of this name in the text of a file?
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let start = format!("fn {name}(");
    let found = lines.iter().position(|line| line.starts_with(&start));
    let above = found.map(|at| lines[..at].iter().rev());
    above.is_some_and(|mut above| {
        let mut attributes = above.by_ref().take_while(|line| line.starts_with("#["));
        attributes.any(|line| *line == "#[test]")
    })
}

#[test]
fn every_test_that_the_proof_and_the_beliefs_name_exists() {
    let page = |name: &str| std::fs::read_to_string(repository().join("docs").join(name)).unwrap();
    let (proof, beliefs) = (page("PROOF.md"), page("BELIEFS.md"));
    let tests_of = |page: &'_ str| page.split('`').filter(|word| word.contains("::")).count();
    assert!(
        tests_of(&proof) > 100,
        "the proof names {} tests",
        tests_of(&proof)
    );
    let rows = beliefs
        .lines()
        .filter(|line| line.starts_with("| "))
        .count();
    // The head of the table is a row, too.
    assert_eq!(tests_of(&beliefs), rows - 1, "a belief has one test");
    let named: Vec<_> = (proof.split('`').chain(beliefs.split('`')))
        .filter_map(|word| word.split_once("::"))
        .collect();
    let findings: Vec<_> = named
        .iter()
        .filter(|(file, test)| {
            let text = std::fs::read_to_string(repository().join("crates").join(file));
            !text.is_ok_and(|text| has_test(&text, test))
        })
        .map(|(file, test)| format!("{file}::{test}"))
        .collect();
    must_be_empty(
        &findings,
        "say in docs/PROOF.md or docs/BELIEFS.md where it is shown now:",
    );
}

#[test]
fn the_proof_speaks_of_everything_that_must_hold() {
    let proof = std::fs::read_to_string(repository().join("docs/PROOF.md")).unwrap();
    let ids = PROOF_IDS.iter().flat_map(|(kind, numbers)| {
        let id = move |number: &u32| format!("{kind}-{number:02}");
        numbers.iter().map(id)
    });
    let findings: Vec<_> = ids
        .filter(|id| {
            let row = format!("| {id} | ");
            proof.lines().filter(|line| line.starts_with(&row)).count() != 1
        })
        .collect();
    must_be_empty(&findings, "give it one line of docs/PROOF.md:");
}

#[test]
fn tidy_measures_functions_right() {
    let lines: Vec<_> = "fn a() {\n    b();\n}\n\nimpl X {\n    pub fn c(\n        d: u8,\n    \
        ) {\n        e();\n    }\n}"
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(
        functions(&lines),
        [("a".to_owned(), 3), ("c".to_owned(), 5)]
    );
}
