//! Files that were listed and are not found when they are read: gone is a note, moved is a problem
//! (issue 13, 7).

use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_engine::limits::ITEMS_BATCH_MAX;
use bale_format::EntryFlags;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::catalog::CatalogReader;
use bale_source::scan::{DIRECTORY_FDS_MAX, LeftOut, ScanOptions, Sources};
use bale_testkit::Scene;
use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex};

const LARGE_BYTES: usize = 700 << 10;

/// How far the backup is.
#[derive(PartialEq, PartialOrd)]
enum At {
    Begin,
    FirstStored,
    Scanned,
}

/// Holds the scan until the first file is stored, lets it go to its end, and then changes the
/// source before the second file is read.
struct Changing<'c> {
    change: Mutex<Option<Box<dyn FnOnce() + Send + 'c>>>,
    at: Mutex<At>,
    moved_on: Condvar,
    problems: Mutex<Vec<Problem>>,
}

impl Changing<'_> {
    fn go_on_to(&self, at: At) {
        *self.at.lock().unwrap() = at;
        self.moved_on.notify_all();
    }

    fn wait_for(&self, wanted: At) {
        let at = self.at.lock().unwrap();
        drop(self.moved_on.wait_while(at, |at| *at < wanted).unwrap());
    }
}

impl Monitor for Changing<'_> {
    fn current(&self, path: &[u8], _: Option<&[&'static str]>) {
        if !path.ends_with(b"/a/1") {
            return;
        }
        self.go_on_to(At::FirstStored);
        self.wait_for(At::Scanned);
        if let Some(change) = self.change.lock().unwrap().take() {
            change();
        }
    }

    fn note(&self, text: &str) {
        if text.contains("ab/first") {
            self.wait_for(At::FirstStored);
        } else if text.contains("zz/last") {
            self.go_on_to(At::Scanned);
        }
    }

    fn problem(&self, problem: &Problem) {
        self.problems.lock().unwrap().push(Problem {
            path: problem.path.clone(),
            action: problem.action,
            text: problem.text.clone(),
        });
    }
}

/// So many files after the large ones that these are handed over before the scan is held, and so
/// many directories then that theirs is closed again.
fn backed_up(scene: &Scene, change: impl FnOnce(&Path) + Send) -> (Outcome, Vec<Problem>) {
    for name in ["a/1", "a/2", "a/3"] {
        scene.write(name, &vec![b'x'; LARGE_BYTES]);
    }
    let source = scene.source();
    for number in 0..2 * ITEMS_BATCH_MAX {
        scene.write(&format!("aa/{number}"), b"");
    }
    for number in 0..4 * DIRECTORY_FDS_MAX {
        fs::create_dir_all(source.join(format!("b{number}"))).unwrap();
    }
    scene.write("ab/first", b"x");
    scene.write("zz/last", b"x");
    let monitor = Changing {
        change: Mutex::new(Some(Box::new(|| change(&source)))),
        at: Mutex::new(At::Begin),
        moved_on: Condvar::new(),
        problems: Mutex::default(),
    };
    let (sources, _) = Sources::resolve(&[&source]).unwrap();
    let scan = ScanOptions {
        // Nothing is looked at before it is asked for.
        threads: Some(0),
        spill_directory: scene.cache(),
        // Notes of them say how far the scan is.
        left_out: LeftOut::default()
            .and_in_use(&source.join("ab/first"))
            .and_in_use(&source.join("zz/last")),
        ..ScanOptions::default()
    };
    let options = BackupOptions {
        host: "host".to_owned(),
        ..BackupOptions::default()
    };
    let outcome = backup(&scene.repository(), &sources, scan, &options, &monitor).unwrap();
    assert!(monitor.change.lock().unwrap().is_none(), "nothing changed");
    let problems = monitor.problems.into_inner().unwrap();
    assert_eq!(outcome.snapshot.counts.problems, problems.len() as u64);
    (outcome, problems)
}

/// Is there a row of a file of the source, and does it say that it could not be read?
fn row(scene: &Scene, outcome: &Outcome, name: &str) -> Option<bool> {
    let repository = scene.repository();
    let layers = outcome.snapshot.layers.clone();
    let catalog = CatalogReader::open(repository.segment_source(), layers).unwrap();
    let path = scene.source().join(name);
    let path = path.to_str().unwrap().trim_start_matches('/');
    let found = catalog.lookup(path.as_bytes()).unwrap();
    found.map(|entry| entry.flags.has(EntryFlags::UNREADABLE))
}

#[test]
fn files_of_a_directory_that_is_renamed_before_they_are_read_are_problems() {
    let scene = Scene::new();
    let (outcome, problems) = backed_up(&scene, |source| {
        fs::rename(source.join("a"), source.join("moved")).unwrap();
    });
    let paths: Vec<_> = problems.iter().map(|problem| &problem.path).collect();
    let expected = ["a/2", "a/3"].map(|name| scene.source().join(name).display().to_string());
    assert_eq!(paths, expected.each_ref().map(String::as_bytes));
    assert!(problems[0].text.contains("moved"), "{}", problems[0].text);
    assert_eq!(outcome.noted.vanished, 0);
    let rows = ["a/1", "a/2", "a/3"].map(|name| row(&scene, &outcome, name));
    assert_eq!(rows, [Some(false), Some(true), Some(true)]);
}

#[test]
fn files_that_are_removed_before_they_are_read_are_named_and_no_problems() {
    for whole in [false, true] {
        let scene = Scene::new();
        let (outcome, problems) = backed_up(&scene, |source| {
            fs::remove_file(source.join("a/3")).unwrap();
            if whole {
                fs::remove_dir_all(source.join("a")).unwrap();
            }
        });
        let gone = 1 + u64::from(whole);
        let texts: Vec<_> = problems.iter().map(|problem| &problem.text).collect();
        assert_eq!(
            (outcome.noted.vanished, texts.len()),
            (gone, 0),
            "{texts:?}"
        );
        let kept = if whole { None } else { Some(false) };
        let rows = ["a/1", "a/2", "a/3"].map(|name| row(&scene, &outcome, name));
        assert_eq!(rows, [Some(false), kept, None]);
    }
}
