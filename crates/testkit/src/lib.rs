//! Tree builder, models and checks shared by the tests. Development only: nothing here is linked
//! into `bale`.

pub mod bucket_policy;
pub mod choices;
pub mod dated_store;
pub mod fault_proxy;
pub mod faulty_store;
pub mod hooked_store;
pub mod http_gate;
pub mod killed;
pub mod live_tree;
pub mod needs;
pub mod open_lines;
pub mod ran;
pub mod recording_store;
pub mod rounds_store;
pub mod scene;
pub mod servers;
pub mod simulated_disk;
pub mod stale_store;
pub mod tape_store;
pub mod tree;
pub mod turns;
pub mod whole_store;

pub use bucket_policy::BucketPolicy;
pub use choices::{Choices, Every};
pub use dated_store::DatedStore;
pub use fault_proxy::{FaultProxy, LineFault, Spoken, Toward};
pub use faulty_store::{Effect, FaultyStore, InjectedFault, ListFault};
pub use hooked_store::HookedStore;
pub use http_gate::{GateAnswer, GateRequest, HttpGate, Passage};
pub use killed::at_every_call;
pub use live_tree::{LiveTree, Load};
pub use needs::{have, is_root, skipped};
pub use open_lines::OpenLines;
pub use ran::Ran;
pub use recording_store::{Call, RecordingStore, Verb};
pub use rounds_store::{RoundsStore, Trips};
pub use scene::Scene;
pub use servers::{TestCertificate, TestServer};
pub use simulated_disk::SimulatedDisk;
pub use stale_store::StaleStore;
pub use tape_store::{TapeRead, TapeReads, TapeStore};
pub use tree::Tree;
pub use turns::{TurnStore, Turns};
pub use whole_store::{GateKeeper, WholeStore};
