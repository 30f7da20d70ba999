//! Many who write one repository at once, and one who reads what is taken away meanwhile (CON-01,
//! CON-02, CON-07).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bale_engine::backup::{BackupOptions, backup};
use bale_engine::verify::{Subset, check};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_repository::repository::{Environment, Named, Repository};
use bale_repository::store::{Area, Store};
use bale_source::scan::{ScanOptions, Sources};
use bale_testkit::scene::noise;
use bale_testkit::{Call, HookedStore, Scene, Tree, Turns};

/// A computer with a directory and a cache of its own. All of them have the same secret.
struct Host {
    name: String,
    source: PathBuf,
    environment: Environment,
}

/// Hosts whose trees have something in common, with every other host and with all, and something of
/// their own.
fn hosts(scene: &Scene, count: u64) -> Vec<Host> {
    let host = |number| {
        let name = format!("host{number:02}");
        scene.write(&format!("{name}/everybody's"), &noise(1, 5_000));
        scene.write(
            &format!("{name}/of half of them"),
            &noise(2 + number % 2, 300_000),
        );
        scene.write(&format!("{name}/own/large"), &noise(100 + number, 280_000));
        scene.write(&format!("{name}/own/small"), name.as_bytes());
        Host {
            source: scene.source().join(&name),
            environment: Environment {
                cache_dir: scene.cache().join(&name),
                ..scene.environment()
            },
            name,
        }
    };
    (0..count).map(host).collect()
}

/// A backup as a process of its own would make it. Nothing may hinder it.
fn backed_up(host: &Host, store: impl Store + 'static) -> ObjectId {
    let environment = host.environment.clone();
    let spill_directory = environment.cache_dir.clone();
    std::fs::create_dir_all(&spill_directory).unwrap();
    let opened = Repository::open(Arc::new(store), &Scene::secret(), environment);
    let (sources, _) = Sources::resolve(&[&host.source]).unwrap();
    let scan = ScanOptions {
        threads: Some(1),
        spill_directory,
        ..ScanOptions::default()
    };
    let options = BackupOptions {
        host: host.name.clone(),
        ..BackupOptions::default()
    };
    let repository = Arc::new(opened.unwrap());
    let outcome = backup(&repository, &sources, scan, &options, &Recorder::default());
    outcome.unwrap().id.unwrap()
}

/// All of them at once, each with the store that `view` gives it.
fn all_at_once<S: Store + 'static>(hosts: &[Host], view: impl Fn() -> S) -> Vec<ObjectId> {
    let views: Vec<S> = hosts.iter().map(|_| view()).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = (hosts.iter().zip(views))
            .map(|(host, view)| scope.spawn(move || backed_up(host, view)))
            .collect();
        running.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

/// Each of these snapshots is listed, is of that host, and holds what its source holds now; nothing
/// in the repository is damaged.
fn assert_all_count(scene: &Scene, hosts: &[Host], committed: &[ObjectId], story: &str) {
    let repository = scene.repository();
    let snapshots = repository.snapshots().unwrap();
    let now = Tree::read(&scene.source());
    for (host, id) in hosts.iter().zip(committed) {
        let named = snapshots.iter().find(|(other, _)| other == id);
        let named =
            named.unwrap_or_else(|| panic!("{story}: the snapshot of {} is gone", host.name));
        assert_eq!(named.1.host, host.name, "{story}");
        let monitor = Recorder::default();
        let (tree, report) = scene.restore(&repository, named, &monitor);
        assert!(report.is_ok(), "{story}: {report:?}");
        let problems = monitor.problems.lock().unwrap();
        assert!(problems.is_empty(), "{story}: {problems:?}");
        let inside = format!("{}/", host.name);
        let mut differing = tree.differences(&now);
        differing.retain(|path| path.starts_with(inside.as_bytes()));
        assert!(
            differing.is_empty(),
            "{story}: {}: {differing:?}",
            host.name
        );
        assert!(tree.0.len() > 4, "{story}: {tree:?}");
    }
    let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
    assert!(report.is_clean(), "{story}: {report:?}");
}

/// CON-02: nobody waits for anybody, and what one of them writes is lost to none.
#[test]
fn fifty_hosts_at_once_twice_over_all_count() {
    let scene = Scene::new();
    let hosts = hosts(&scene, 50);
    let first = all_at_once(&hosts, || scene.store.clone());
    assert_all_count(&scene, &hosts, &first, "first backups");
    scene.clock.advance(Duration::from_secs(3_600));
    for (number, host) in hosts.iter().enumerate() {
        scene.write(
            &format!("{}/own/new", host.name),
            &noise(number as u64, 700),
        );
        scene.write(&format!("{}/everybody's", host.name), &noise(7, 5_100));
    }
    let second = all_at_once(&hosts, || scene.store.clone());
    assert_all_count(&scene, &hosts, &second, "second backups");
    let snapshots = scene.store.names(Area::Snapshots);
    assert_eq!(snapshots.len(), 2 * hosts.len());
    for id in first {
        assert!(snapshots.iter().any(|name| name.id() == Some(id)));
    }
}

/// CON-01: eight of them, call by call in an order drawn from a seed.
#[test]
fn eight_writers_in_any_order_of_calls_all_count() {
    for seed in 0..8 {
        let scene = Scene::new();
        let hosts = hosts(&scene, 8);
        let turns = Turns::new(seed, |_| {});
        let committed = all_at_once(&hosts, || turns.actor(scene.store.clone()));
        assert_all_count(&scene, &hosts, &committed, &format!("seed {seed}"));
        assert!(turns.taken() > 100, "{}", turns.taken());
    }
}

/// CON-07: before one of its calls, the snapshot that is being restored is forgotten, and pruned
/// without any grace. What came back is exact, or what is missing is named; it is the same bytes or
/// none.
#[test]
fn a_restore_of_what_is_forgotten_and_pruned_meanwhile_is_exact_or_names_what_is_missing() {
    let mut scene = Scene::new();
    scene.write_tree();
    for number in 0..4 {
        scene.write(&format!("noise {number}"), &noise(number, 300_000));
    }
    let doomed = scene.keep();
    let mut with_losses = 0;
    for at in 0.. {
        let (struck, told) = restore_pruned_before_call(&scene, doomed, at, Duration::ZERO);
        if !struck {
            break;
        }
        with_losses += usize::from(told > 0);
    }
    assert!(with_losses > 5, "{with_losses}");
    // Within the grace period nothing is taken away from anybody.
    for at in [0, 3, 10] {
        let day = Duration::from_secs(24 * 3_600);
        assert_eq!(restore_pruned_before_call(&scene, doomed, at, day).1, 0);
    }
}

/// Whether the call came, and how many problems were told.
fn restore_pruned_before_call(
    scene: &Scene,
    doomed: ObjectId,
    at: u64,
    grace: Duration,
) -> (bool, usize) {
    let store = scene.store.fork();
    let elsewhere = scene.open(store.clone()).unwrap();
    let (armed, struck) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (gun, strikes, calls) = (armed.clone(), struck.clone(), AtomicU64::new(0));
    let hooked = HookedStore::over(store, move |_: &Call| {
        if gun.load(Ordering::SeqCst) && calls.fetch_add(1, Ordering::SeqCst) == at {
            strikes.store(true, Ordering::SeqCst);
            elsewhere.forget_snapshot(doomed).unwrap();
            prune_twice(&elsewhere, grace);
        }
    });
    let repository = scene.open(hooked).unwrap();
    let snapshots = repository.snapshots().unwrap();
    let named: &Named = snapshots.iter().find(|(id, _)| *id == doomed).unwrap();
    armed.store(true, Ordering::SeqCst);
    let monitor = Recorder::default();
    let (tree, report) = scene.restore(&repository, named, &monitor);
    let problems = monitor.problems.lock().unwrap();
    let told = problems.len() + usize::from(report.is_err());
    let (_, expected) = scene.kept.iter().find(|(id, _)| *id == doomed).unwrap();
    for path in tree.differences(expected) {
        let should = &expected.0[&path];
        let is_of = |lost: &[u8], path: &[u8]| {
            let rest = path.strip_prefix(lost);
            rest.is_some_and(|rest| lost.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
        };
        // A hard link of a file that was lost stands under its first name; what is lost with its
        // directory or with the catalog, under these.
        let is_named = problems
            .iter()
            .any(|lost| is_of(&lost.path, &path) || is_of(&lost.path, &should.first_name));
        let is_same = tree
            .0
            .get(&path)
            .is_some_and(|is| is.content == should.content);
        assert!(
            report.is_err() || is_named || is_same && told > 0,
            "call {at}: {} differs and nobody says so: {problems:?}",
            String::from_utf8_lossy(&path)
        );
    }
    (struck.load(Ordering::SeqCst), told)
}

fn prune_twice(repository: &Arc<Repository>, grace: Duration) {
    use bale_engine::prune::{PruneOptions, apply, plan};
    let options = PruneOptions {
        grace,
        repack_below_percent: 60,
    };
    for _ in 0..2 {
        let monitor = Recorder::default();
        let planned = plan(repository, &options, &monitor).unwrap();
        apply(repository, &planned, &options, &monitor).unwrap();
    }
}
