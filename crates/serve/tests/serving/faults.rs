//! A bad line between the store of `bale-remote` and `bale serve`: cut at any byte of any request
//! and answer, answers that are replaced, come twice, come slowly, or never.
//!
//! What was acknowledged is there, nothing half is visible, and errors come within the time-out.

use crate::client::{Running, hashed, options};
use bale_format::ObjectId;
use bale_remote::{HttpOptions, HttpUrl, RestStore, Retried, RetryRules, Waiting};
use bale_repository::store::{Area, LocalStore, Result, Store, StoreError};
use bale_testkit::{FaultProxy, LineFault, Toward};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LEN_MAX: u64 = 1 << 20;

/// Time passes by waiting only.
#[derive(Default)]
struct Told(AtomicU64);

impl Waiting for Told {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn wait(&self, pause: Duration) -> bool {
        self.0.fetch_add(pause.as_millis() as u64, Ordering::SeqCst);
        true
    }
    fn lot(&self) -> u64 {
        0
    }
    fn again(&self, _: &StoreError, _: Duration) {}
}

fn through(proxy: &FaultProxy, name: &str, options: &HttpOptions) -> Retried {
    let url = format!("http://{}/{name}", proxy.address());
    let store = RestStore::open(HttpUrl::parse(&url).unwrap(), options).unwrap();
    let told = Arc::<Told>::default();
    Retried::new(Arc::new(store), RetryRules::default(), told)
}

const WRITTEN: [(Area, usize); 4] = [
    (Area::Packs, 3000),
    (Area::Index, 100),
    (Area::Runs, 200),
    (Area::Snapshots, 50),
];

/// What a run asks of its store; every answer is compared.
fn a_run(store: &dyn Store) -> Result<()> {
    for (area, len) in WRITTEN {
        let (name, bytes) = hashed(area, len);
        assert_eq!(store.stat(&name)?, None, "not there yet");
        store.put(&name, &bytes)?;
        assert!(store.get(&name, LEN_MAX)? == bytes, "{name}");
    }
    let (pack, bytes) = hashed(Area::Packs, 3000);
    let mut part = [0; 500];
    store.read_at(&pack, 1234, &mut part)?;
    assert!(part == bytes[1234..1734]);
    let mut found = Vec::new();
    store.list(Area::Packs, &mut |info| found.push(info.name))?;
    assert_eq!(found, [pack]);
    store.delete(&hashed(Area::Runs, 200).0)?;
    Ok(())
}

/// All objects that are visible are whole.
fn expect_whole(local: &LocalStore) {
    for area in Area::ALL {
        let mut names = Vec::new();
        local.list(area, &mut |info| names.push(info.name)).unwrap();
        for name in names {
            let bytes = local.get(&name, LEN_MAX).unwrap();
            let id = ObjectId(*blake3::hash(&bytes).as_bytes());
            assert!(name.to_string().contains(&id.to_string()), "{name} is half");
        }
    }
}

/// A server with a repository, and a line to it for each try.
struct Trial {
    running: Running,
}

impl Trial {
    fn new() -> Trial {
        let running = Running::new();
        drop(running.create("r"));
        Trial { running }
    }

    fn with<T>(
        &self,
        fault: LineFault,
        options: &HttpOptions,
        run: impl FnOnce(&FaultProxy, &Retried, &LocalStore) -> T,
    ) -> T {
        let local = LocalStore::open(&self.running.dir().join("r")).unwrap();
        for (area, len) in WRITTEN {
            local.delete(&hashed(area, len).0).unwrap();
        }
        let proxy = FaultProxy::new(self.running.address(), fault);
        let store = through(&proxy, "r", options);
        run(&proxy, &store, &local)
    }
}

#[test]
fn a_line_cut_once_at_any_byte_changes_nothing() {
    let trial = Trial::new();
    let (up, down, _) = trial.with(LineFault::None, &options(), |proxy, store, _| {
        a_run(store).unwrap();
        proxy.counts()
    });
    for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
        // Strides that no length divides.
        let positions = (0..300).step_by(7).chain((300..bytes).step_by(97));
        for position in positions {
            let fault = LineFault::CutOnce(toward, position);
            trial.with(fault, &options(), |proxy, store, local| {
                let ran = a_run(store);
                assert!(proxy.has_struck(), "{fault:?}");
                assert!(ran.is_ok(), "{fault:?}: {ran:?}");
                expect_whole(local);
            });
        }
    }
}

#[test]
fn a_line_that_always_breaks_leaves_nothing_half_and_an_error_that_says_so() {
    let trial = Trial::new();
    for toward in [Toward::Server, Toward::Client] {
        for position in (0..3400).step_by(173) {
            let fault = LineFault::CutEach(toward, position);
            trial.with(fault, &options(), |_, store, local| {
                let (name, bytes) = hashed(Area::Packs, 3000);
                let put = store.put(&name, &bytes);
                expect_whole(local);
                match put {
                    Ok(()) => assert!(local.get(&name, LEN_MAX).unwrap() == bytes),
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("given up after"), "{fault:?}: {text}");
                    }
                }
                // A line that works finds a server that works.
                local.delete(&name).unwrap();
            });
        }
    }
}

#[test]
fn an_answer_that_was_replaced_is_no_acknowledgement_and_no_loss() {
    let trial = Trial::new();
    let (_, _, answers) = trial.with(LineFault::None, &options(), |proxy, store, _| {
        a_run(store).unwrap();
        proxy.counts()
    });
    for status in [409, 412, 429, 500, 503, 504] {
        for number in 0..answers {
            let fault = LineFault::Replaced(number, status);
            trial.with(fault, &options(), |proxy, store, local| {
                let ran = a_run(store);
                assert!(proxy.has_struck(), "{fault:?}");
                // 412 is refused for good, but where it says that the object is there.
                if status != 412 {
                    assert!(ran.is_ok(), "{fault:?}: {ran:?}");
                }
                expect_whole(local);
            });
        }
    }
}

#[test]
fn an_answer_that_comes_twice_answers_nothing_else() {
    let trial = Trial::new();
    let (_, _, answers) = trial.with(LineFault::None, &options(), |proxy, store, _| {
        a_run(store).unwrap();
        proxy.counts()
    });
    for number in 0..answers {
        let fault = LineFault::Twice(number);
        trial.with(fault, &options(), |proxy, store, local| {
            let ran = a_run(store);
            assert!(proxy.has_struck(), "{fault:?}");
            // Of an answer in several pieces only one came twice: that is no HTTP any more.
            let is_refused = |error: &StoreError| error.kind() == ErrorKind::InvalidData;
            assert!(
                !ran.as_ref().is_err_and(|e| !is_refused(e)),
                "{fault:?}: {ran:?}"
            );
            expect_whole(local);
            if ran.is_err() {
                return;
            }
            for (area, len) in WRITTEN {
                let (name, bytes) = hashed(area, len);
                if area != Area::Runs {
                    assert!(local.get(&name, LEN_MAX).unwrap() == bytes, "{name}");
                }
            }
        });
    }
}

#[test]
fn a_slow_server_is_waited_for_and_a_silent_one_is_not() {
    let trial = Trial::new();
    trial.with(LineFault::Slow, &options(), |_, store, _| {
        a_run(store).unwrap();
    });
    let impatient = HttpOptions {
        idle_timeout: Duration::from_millis(300),
        ..options()
    };
    trial.with(LineFault::Silent(3), &impatient, |proxy, _, local| {
        let url = format!("http://{}/r", proxy.address());
        let store = RestStore::open(HttpUrl::parse(&url).unwrap(), &impatient).unwrap();
        let error = a_run(&store).expect_err("it is silent");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        expect_whole(local);
    });
}
