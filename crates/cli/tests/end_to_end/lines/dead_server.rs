//! A server that dies in the middle of a backup, and comes back: what was acknowledged is there, a
//! check finds no damage, and the next backup is whole, without anybody's help.

use super::served::{self, Patience, Served};
use bale_engine::backup::Outcome;
use bale_format::ObjectId;
use bale_pipeline::memory::MemoryPlan;
use bale_remote::Opening;
use bale_repository::error::{Error, Result};
use bale_repository::limits::PACK_BYTES_MIN;
use bale_repository::pack::PackPlan;
use bale_repository::repository::{InitOptions, Repository};
use bale_repository::store::{Area, ObjectInfo, Store};
use bale_repository::stretched::STRETCH_BYTES_MIN;
use bale_testkit::scene::noise;
use bale_testkit::{LineFault, Scene, Toward, Tree};
use std::sync::Arc;

/// Moments of a backup at which its server dies, in each direction: at as many bytes of the way to
/// it, and of the way from it.
const DEATHS: u64 = 4;

/// The same of the making of a repository.
const DEATHS_OF_INIT: u64 = 4;

/// Cuts in the middle of a backup into segments, in each direction.
const CUTS: u64 = 4;

/// A scene whose repository is on a server.
struct Far<'a> {
    scene: Scene,
    served: &'a Served,
    has_segments: bool,
}

impl<'a> Far<'a> {
    /// An empty repository.
    fn new(served: &'a Served, has_segments: bool) -> Far<'a> {
        let scene = Scene::new();
        let far = Far {
            scene,
            served,
            has_segments,
        };
        let options = InitOptions {
            stretch_bytes: has_segments.then_some(STRETCH_BYTES_MIN),
        };
        let made = far.scene.init_on_with(far.store(Opening::Create), options);
        made.expect("an empty place");
        far
    }

    fn store(&self, opening: Opening) -> Arc<dyn Store> {
        let at = self.served.address();
        let opened = self.served.open(at, "r", opening, Patience::Usual);
        opened.expect("a server that lives")
    }

    /// A backup of what is there now over such a line: its snapshot if it was acknowledged, and the
    /// bytes that went to the server and came from it.
    fn backup(&self, fault: LineFault) -> (Option<ObjectId>, (u64, u64)) {
        let (backup, bytes) = self.backup_over(fault, Patience::Brief);
        (backup.ok().and_then(|outcome| outcome.id), bytes)
    }

    fn backup_over(&self, fault: LineFault, patience: Patience) -> (Result<Outcome>, (u64, u64)) {
        let line = self.served.line(fault);
        let opened = (self.served).open(line.address(), "r", Opening::Write, patience);
        let opened = opened.map_err(|error| Error::Other(error.to_string()));
        let backup = opened.and_then(|store| {
            let repository = self.open(store)?;
            self.scene.backup(&repository)
        });
        let (up, down, _) = line.counts();
        (backup, (up, down))
    }

    /// With segments, packs are small, so that there are several.
    fn open(&self, store: Arc<dyn Store>) -> Result<Arc<Repository>> {
        let repository = self.scene.open_on(store)?;
        if !self.has_segments {
            return Ok(repository);
        }
        let mut repository = Arc::into_inner(repository).expect("nobody else has it");
        let memory = MemoryPlan::USUAL;
        let packs = PackPlan::of_size(PACK_BYTES_MIN, repository.store().shape(), &memory);
        repository.set_memory_to_write(memory, packs.expect("small packs fit"));
        Ok(Arc::new(repository))
    }

    fn change(&self, number: u64) {
        match self.has_segments {
            // Always as much, in more than one segment.
            true => (0..3).for_each(|file| {
                let bytes = noise(3 * number + file, PACK_BYTES_MIN as usize * 2 / 3);
                self.scene.write(&format!("new/{file}"), &bytes);
            }),
            false => {
                let name = format!("new/{number}");
                self.scene.write(&name, &noise(number, 30_000));
            }
        }
    }

    /// All that must hold when the server is back.
    fn expect_sound(&self, acknowledged: Option<ObjectId>, story: &str) {
        let near = self.served.near("r").filter(|_| self.has_segments);
        let store = |opening| near.clone().unwrap_or_else(|| self.store(opening));
        let repository = self.open(store(Opening::Write)).expect(story);
        let report = self.scene.check_all(&repository).expect(story);
        assert!(report.is_clean(), "{story}: {report:?}");
        if let Some(acknowledged) = acknowledged {
            let snapshots = repository.snapshots().expect(story);
            let is_there = snapshots.iter().any(|(id, _)| *id == acknowledged);
            assert!(is_there, "{story}: an acknowledged snapshot is gone");
        }
        let next = self
            .scene
            .backup(&repository)
            .expect(story)
            .id
            .expect(story);
        let repository = self.scene.open_on(store(Opening::Read)).expect(story);
        let snapshots = repository.snapshots().expect(story);
        let now = Tree::read(&self.scene.source());
        let made = snapshots.iter().find(|(id, _)| *id == next).expect(story);
        self.scene.assert_restores(&repository, made, &now, story);
    }
}

fn outlives_its_server(served: &Served, has_segments: bool) {
    let far = Far::new(served, has_segments);
    far.scene.write_tree();
    far.backup(LineFault::None).0.expect("a first backup");
    far.change(0);
    let (acknowledged, (up, down)) = far.backup(LineFault::None);
    acknowledged.expect("a backup of a change");
    let (mut died, mut changes) = (0, 0);
    for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
        for number in 0..DEATHS {
            changes += 1;
            far.change(changes);
            let fault = LineFault::DeadAfter(toward, number * bytes / DEATHS);
            let (acknowledged, _) = far.backup(fault);
            died += u64::from(acknowledged.is_none());
            far.expect_sound(acknowledged, &format!("{fault:?}"));
        }
    }
    assert!(died >= DEATHS, "{died} of {} backups died", 2 * DEATHS);
}

/// A segment is sent once. A line that is cut while it is on its way ends the run, in words that
/// pass, and the next one is whole; a cut at any other moment is nothing.
fn goes_on_after_a_cut_in_a_segment(served: &Served) {
    let far = Far::new(served, true);
    far.scene.write_tree();
    far.backup(LineFault::None).0.expect("a first backup");
    far.change(0);
    let (acknowledged, (up, down)) = far.backup(LineFault::None);
    acknowledged.expect("a backup of a change");
    let (mut broke, mut changes) = (0, 0);
    for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
        for number in 0..CUTS {
            changes += 1;
            far.change(changes);
            let fault = LineFault::CutOnce(toward, (2 * number + 1) * bytes / (2 * CUTS));
            let (backup, _) = far.backup_over(fault, Patience::Usual);
            let acknowledged = match backup {
                Ok(outcome) => outcome.id,
                Err(Error::Store(trouble)) => {
                    let is_listing = trouble.action == "list";
                    assert!(trouble.may_pass() || is_listing, "{fault:?}: {trouble}");
                    broke += 1;
                    None
                }
                // Who cannot even connect is not kept waiting.
                Err(Error::Other(_)) => None,
                Err(error) => panic!("{fault:?}: {error}"),
            };
            far.expect_sound(acknowledged, &format!("{fault:?}"));
        }
    }
    assert!(broke > 0, "no backup broke");
}

fn remove_keys(served: &Served, name: &str) {
    let store = served.open(served.address(), name, Opening::Write, Patience::Usual);
    let (store, mut keys) = (store.expect("it lives"), Vec::new());
    let found = &mut |info: ObjectInfo| keys.push(info.name);
    store.list(Area::Keys, found).expect("it lives");
    for key in keys {
        store.delete(&key).expect("it lives");
    }
}

/// Made again, it is a repository.
fn is_made_although_its_server_died(served: &Served) {
    let make = |at, name: &str| {
        let store = served.open(at, name, Opening::Create, Patience::Brief);
        let scene = Scene::new();
        let store = store.map_err(|error| error.to_string())?;
        scene.init_on(store).map_err(|error| error.to_string())?;
        Ok::<_, String>(scene)
    };
    let line = served.line(LineFault::None);
    make(line.address(), "whole").expect("a place for a repository");
    let (up, down, _) = line.counts();
    for (toward, bytes) in [(Toward::Server, up), (Toward::Client, down)] {
        for number in 0..DEATHS_OF_INIT {
            let fault = LineFault::DeadAfter(toward, bytes * (2 * number + 1) / 8);
            let name = format!("{toward:?}{number}");
            let line = served.line(fault);
            let made = make(line.address(), &name);
            drop(line);
            let again = make(served.address(), &name);
            match (made, again) {
                (Ok(_), Ok(_)) => panic!("{fault:?}: it was made twice"),
                (Err(_), Ok(_)) => {}
                // Nobody was told that it is made.
                (_, Err(said)) if said.contains("already") => {}
                // Whether somebody is at it, only a person knows.
                (_, Err(said)) => {
                    assert!(said.contains("remove keys/"), "{fault:?}: {said}");
                    remove_keys(served, &name);
                    make(served.address(), &name).expect("it is made now");
                }
            }
        }
    }
}

#[test]
fn over_rest_a_backup_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::rest(), false);
}

#[test]
fn over_webdav_a_backup_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::webdav(), false);
}

#[test]
fn over_ftp_a_backup_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::ftp(), false);
}

#[test]
fn over_sftp_a_backup_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::sftp(), false);
}

#[test]
fn over_s3_a_backup_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::s3(), false);
}

#[test]
fn over_ftp_a_backup_into_segments_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::ftp(), true);
}

#[test]
fn over_sftp_a_backup_into_segments_whose_server_dies_anywhere_costs_itself_only() {
    outlives_its_server(&served::sftp(), true);
}

#[test]
fn over_ftp_a_cut_in_a_segment_costs_no_more_than_the_run() {
    goes_on_after_a_cut_in_a_segment(&served::ftp());
}

#[test]
fn over_sftp_a_cut_in_a_segment_costs_no_more_than_the_run() {
    goes_on_after_a_cut_in_a_segment(&served::sftp());
}

#[test]
fn a_repository_whose_server_dies_while_it_is_made_is_made_again() {
    for served in served::all() {
        is_made_although_its_server_died(&served);
    }
}
