//! Disks of a machine that runs in QEMU, at one moment, with what changed on them since another.
//!
//! The moment of all disks is one transaction: from then on QEMU copies what the machine
//! overwrites to a scratch image (a backup job that copies nothing else), and keeps account of what
//! is written in a new dirty bitmap. What is exported is the scratch image over the disk.
//!
//! A bitmap that a snapshot is recorded with records on until a later snapshot is committed: what
//! is read of it is a copy. So whatever ends in between, on either side, costs nothing but a bitmap
//! that is removed next time, and nothing has to be given back. Everything that is made in QEMU has
//! a name that begins with `bale-`, and what a killed run left is removed by the next one.

mod leftovers;
mod scratch;

use crate::client::{NbdClient, NbdClientOptions};
use crate::error::NbdError;
use crate::qmp::{QmpClient, QmpError};
use crate::uri::{NbdTransport, NbdUri};
use bale_pipeline::random::{OsRandom, draw};
use scratch::ScratchDirectory;
use serde_json::{Value, json};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Disks of one machine at most.
const DISKS_MAX: usize = 256;

/// For a job of QEMU to end.
const JOB_MAX: Duration = Duration::from_secs(60);

/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(10);

/// Names of everything that is made in a QEMU begin so.
const PREFIX: &str = "bale-";

/// Which disks, and how.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Socket of QEMU's monitor.
    pub monitor: PathBuf,
    /// A directory for this machine alone, in which QEMU can make files: what the machine writes
    /// meanwhile needs as much room there.
    pub scratch: PathBuf,
    /// Socket on which QEMU's server of NBD listens already; else one is started for the run.
    pub server: Option<PathBuf>,
    /// Names of the block nodes that the machine writes to.
    pub nodes: Vec<String>,
    /// Whose bitmaps these are: letters, digits and dashes. Bitmaps of others are left alone.
    pub owner: String,
}

/// Why a moment cannot be had of a machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("{action} {}", .path.display())]
    Local {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} {why}", .path.display())]
    Scratch { path: PathBuf, why: &'static str },
    #[error("QEMU has no node {node}; it has {has}")]
    NoNode { node: String, has: String },
    #[error(
        "its server of NBD runs already, and QEMU has one: name the socket on which it listens \
         (server=SOCKET), or stop it"
    )]
    ServerRuns,
    #[error("QEMU's job {job} does not end")]
    Job { job: String },
    #[error("QEMU's job {job} failed: {why}")]
    JobFailed { job: String, why: String },
    #[error("draw random bytes: {0}")]
    Random(io::Error),
    #[error("{0} disks of one machine are too many")]
    TooMany(usize),
}

type Result<T> = std::result::Result<T, MachineError>;

/// The moment is held until this is dropped.
pub struct QemuMachine {
    qmp: Mutex<QmpClient>,
    scratch: ScratchDirectory,
    server: Option<PathBuf>,
    owner: String,
    /// Of this run.
    run: String,
    nodes: Vec<String>,
    committed: Mutex<Vec<bool>>,
}

/// What is written down of a bitmap.
struct BitmapState {
    is_recording: bool,
    is_inconsistent: bool,
}

impl QemuMachine {
    /// Makes the moment of all disks, and exports of it.
    pub fn open(options: &MachineOptions) -> Result<QemuMachine> {
        if options.nodes.len() > DISKS_MAX {
            return Err(MachineError::TooMany(options.nodes.len()));
        }
        let mut qmp = QmpClient::connect(&options.monitor)?;
        let scratch = ScratchDirectory::open(&options.scratch, &qmp)?;
        leftovers::remove(&mut qmp, &scratch)?;
        let run = draw::<4>(&OsRandom).map_err(MachineError::Random)?;
        let run = run.iter().map(|byte| format!("{byte:02x}")).collect();
        // From here on whatever was made is removed when it is dropped.
        let machine = QemuMachine {
            qmp: Mutex::new(qmp),
            scratch,
            server: options.server.clone(),
            owner: options.owner.clone(),
            run,
            nodes: options.nodes.clone(),
            committed: Mutex::new(vec![false; options.nodes.len()]),
        };
        machine.prepare()?;
        machine.make_moment()?;
        machine.export()?;
        Ok(machine)
    }

    /// Where the moment of a disk is read.
    pub fn uri(&self, disk: usize) -> NbdUri {
        self.export_uri(self.name(disk))
    }

    /// The bitmap that records since this moment.
    pub fn bitmap(&self) -> String {
        format!("{PREFIX}{}-{}", self.owner, self.run)
    }

    /// Hands out the ranges that were written to since the moment of this bitmap, in order; or why
    /// nobody knows.
    pub fn changed_since(
        &self,
        disk: usize,
        bitmap: &str,
        mut take: impl FnMut(Range<u64>),
    ) -> std::result::Result<(), String> {
        let state = self.bitmap_state(disk, bitmap).map_err(in_words)?;
        match state {
            None => return Err(format!("QEMU does not have its bitmap {bitmap} any more")),
            Some(state) if state.is_inconsistent => {
                return Err(format!(
                    "QEMU's bitmap {bitmap} is inconsistent: QEMU was not ended in order"
                ));
            }
            Some(state) if !state.is_recording => {
                return Err(format!("QEMU's bitmap {bitmap} was disabled by somebody"));
            }
            Some(_) => {}
        }
        let client = self.export_bitmap(disk, bitmap).map_err(in_words)?;
        let client = client.map_err(|error| bale_pipeline::error::with_causes(&error))?;
        for extent in client.extents(0..client.len()) {
            let extent = extent.map_err(|error| bale_pipeline::error::with_causes(&error))?;
            if extent.is_dirty != Some(false) {
                take(extent.offset..extent.offset + extent.bytes);
            }
        }
        Ok(())
    }

    /// Why the moment is not held any more.
    pub fn disturbance(&self, disk: usize) -> Option<String> {
        let job = self.name(disk);
        match job_of(&mut self.qmp(), &job) {
            Ok(Some(found)) if found["error"].is_null() => None,
            Ok(Some(found)) => {
                let why = crate::shown::shown(found["error"].as_str().unwrap_or("").as_bytes());
                Some(format!(
                    "QEMU's copy of what the machine overwrites failed: {why}"
                ))
            }
            Ok(None) => Some("QEMU ended the copy of what the machine overwrites".to_owned()),
            Err(error) => Some(format!(
                "QEMU does not say that it held the moment: {error}"
            )),
        }
    }

    /// A snapshot is committed that is recorded with this run's bitmap of this disk: the others of
    /// the same owner are needed no more.
    pub fn committed(&self, disk: usize) {
        self.committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)[disk] = true;
        let node = &self.nodes[disk];
        let Ok(bitmaps) = bitmaps_of(&mut self.qmp(), node) else {
            // They are removed after the next snapshot.
            return;
        };
        let (mine, own) = (format!("{PREFIX}{}-", self.owner), self.bitmap());
        let old = bitmaps.into_iter().filter_map(|bitmap| {
            let name = bitmap["name"].as_str()?.to_owned();
            (name.starts_with(&mine) && name != own).then_some(name)
        });
        for name in old {
            remove_bitmap(&mut self.qmp(), node, &name);
        }
    }

    fn qmp(&self) -> MutexGuard<'_, QmpClient> {
        self.qmp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the scratch node, the job and the export of a disk. Names of nodes have 31 letters at
    /// most.
    fn name(&self, disk: usize) -> String {
        format!("{PREFIX}{}-{disk}", self.run)
    }

    fn export_uri(&self, export: String) -> NbdUri {
        NbdUri {
            transport: NbdTransport::Unix(match &self.server {
                Some(server) => server.clone(),
                None => self.scratch.socket(),
            }),
            is_encrypted: false,
            certificates: None,
            export,
            bitmap: None,
        }
    }

    /// Scratch images over the disks, which nobody uses yet.
    fn prepare(&self) -> Result<()> {
        let mut qmp = self.qmp();
        let found = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
        let found = found.as_array().map_or(&[][..], Vec::as_slice);
        for (disk, node) in self.nodes.iter().enumerate() {
            let is_it = |found: &&Value| found["node-name"].as_str() == Some(node);
            let Some(described) = found.iter().find(is_it) else {
                return Err(no_node(node, found));
            };
            let bytes = described["image"]["virtual-size"].as_u64().unwrap_or(0);
            let name = self.name(disk);
            let (file, job) = (format!("{name}f"), format!("{name}c"));
            let path = self.scratch.create(&name)?;
            qmp.execute(
                "blockdev-add",
                json!({ "driver": "file", "node-name": file, "filename": path }),
            )?;
            let options = json!({ "driver": "qcow2", "file": file, "size": bytes });
            qmp.execute(
                "blockdev-create",
                json!({ "job-id": job, "options": options }),
            )?;
            finish_job(&mut qmp, &job)?;
            let backing = json!({ "driver": "qcow2", "node-name": name, "file": file,
                                  "backing": node });
            qmp.execute("blockdev-add", backing)?;
        }
        Ok(())
    }

    /// From here on it is this moment.
    fn make_moment(&self) -> Result<()> {
        let mut refused = Ok(Value::Null);
        // Bitmaps outlive QEMU in qcow2 alone.
        for is_persistent in [true, false] {
            let actions = self.nodes.iter().enumerate().flat_map(|(disk, node)| {
                let (name, bitmap) = (self.name(disk), self.bitmap());
                let bitmap = json!({ "node": node, "name": bitmap, "persistent": is_persistent });
                let copy = json!({ "job-id": name, "device": node, "target": name,
                                   "sync": "none" });
                [
                    json!({ "type": "block-dirty-bitmap-add", "data": bitmap }),
                    json!({ "type": "blockdev-backup", "data": copy }),
                ]
            });
            let actions: Vec<Value> = actions.collect();
            refused = self
                .qmp()
                .execute("transaction", json!({ "actions": actions }));
            if !matches!(refused, Err(QmpError::Refused { .. })) {
                break;
            }
        }
        refused?;
        Ok(())
    }

    fn export(&self) -> Result<()> {
        let mut qmp = self.qmp();
        if self.server.is_none() {
            let at = json!({ "type": "unix", "data": { "path": self.scratch.socket() } });
            match qmp.execute("nbd-server-start", json!({ "addr": at })) {
                Err(QmpError::Refused { message, .. }) if message.contains("already running") => {
                    return Err(MachineError::ServerRuns);
                }
                started => started?,
            };
        }
        for disk in 0..self.nodes.len() {
            let name = self.name(disk);
            let export = json!({ "type": "nbd", "id": name, "name": name, "node-name": name });
            qmp.execute("block-export-add", export)?;
        }
        Ok(())
    }

    fn bitmap_state(&self, disk: usize, bitmap: &str) -> Result<Option<BitmapState>> {
        let bitmaps = bitmaps_of(&mut self.qmp(), &self.nodes[disk])?;
        let found = bitmaps
            .iter()
            .find(|found| found["name"].as_str() == Some(bitmap));
        Ok(found.map(|found| BitmapState {
            is_recording: found["recording"].as_bool() == Some(true),
            is_inconsistent: found["inconsistent"].as_bool() == Some(true),
        }))
    }

    /// What was written since, also after the moment of this run: more than is needed, never less.
    fn export_bitmap(
        &self,
        disk: usize,
        bitmap: &str,
    ) -> Result<std::result::Result<NbdClient, NbdError>> {
        let (node, copy) = (&self.nodes[disk], format!("{}-read", self.bitmap()));
        let name = format!("{}b", self.name(disk));
        let add = json!({ "node": node, "name": copy, "disabled": true });
        let merge = json!({ "node": node, "target": copy, "bitmaps": [bitmap] });
        let actions = json!([
            { "type": "block-dirty-bitmap-add", "data": add },
            { "type": "block-dirty-bitmap-merge", "data": merge },
        ]);
        let export = json!({ "type": "nbd", "id": name, "name": name, "bitmaps": [copy],
                             "node-name": self.name(disk) });
        {
            let mut qmp = self.qmp();
            qmp.execute("transaction", json!({ "actions": actions }))?;
            qmp.execute("block-export-add", export)?;
        }
        let options = NbdClientOptions {
            wants_allocation: false,
            dirty_bitmap: Some(copy),
            ..NbdClientOptions::default()
        };
        Ok(NbdClient::connect(&self.export_uri(name), &options))
    }
}

impl Drop for QemuMachine {
    /// What cannot be removed now is removed by the next run.
    fn drop(&mut self) {
        let committed = self
            .committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut qmp = self.qmp();
        let _left = leftovers::remove(&mut qmp, &self.scratch);
        for (node, is_committed) in self.nodes.iter().zip(committed.iter()) {
            remove_bitmap(&mut qmp, node, &format!("{}-read", self.bitmap()));
            if !is_committed {
                remove_bitmap(&mut qmp, node, &self.bitmap());
            }
        }
    }
}

fn in_words(error: MachineError) -> String {
    bale_pipeline::error::with_causes(&error)
}

fn no_node(node: &str, found: &[Value]) -> MachineError {
    const NAMED_MAX: usize = 20;
    let names = found.iter().filter_map(|found| found["node-name"].as_str());
    let has: Vec<&str> = names.take(NAMED_MAX).collect();
    MachineError::NoNode {
        node: node.to_owned(),
        has: crate::shown::shown(has.join(", ").as_bytes()),
    }
}

fn bitmaps_of(qmp: &mut QmpClient, node: &str) -> Result<Vec<Value>> {
    let mut nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
    let nodes = nodes.as_array_mut().map(std::mem::take).unwrap_or_default();
    let found = (nodes.into_iter()).find(|found| found["node-name"].as_str() == Some(node));
    let mut found = found.unwrap_or_default();
    Ok(found["dirty-bitmaps"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default())
}

/// It may be gone, or in use by somebody.
fn remove_bitmap(qmp: &mut QmpClient, node: &str, name: &str) {
    let _left = qmp.execute(
        "block-dirty-bitmap-remove",
        json!({ "node": node, "name": name }),
    );
}

/// `None`: there is none of that name.
fn job_of(qmp: &mut QmpClient, job: &str) -> std::result::Result<Option<Value>, QmpError> {
    let jobs = qmp.execute("query-jobs", json!({}))?;
    let mut jobs = jobs.as_array().into_iter().flatten();
    Ok(jobs
        .find(|found| found["id"].as_str() == Some(job))
        .cloned())
}

/// Waits for a job that ends by itself, and takes it away.
fn finish_job(qmp: &mut QmpClient, job: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let found = job_of(qmp, job)?.unwrap_or_default();
        if found["status"].as_str() == Some("concluded") {
            qmp.execute("job-dismiss", json!({ "id": job }))?;
            return match found["error"].as_str() {
                None => Ok(()),
                Some(why) => Err(MachineError::JobFailed {
                    job: job.to_owned(),
                    why: crate::shown::shown(why.as_bytes()),
                }),
            };
        }
        if began.elapsed() > JOB_MAX {
            return Err(MachineError::Job {
                job: job.to_owned(),
            });
        }
        std::thread::sleep(LOOK);
    }
}
