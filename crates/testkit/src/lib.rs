//! Tree builder, models and checks shared by the tests. Development only: nothing here is linked
//! into `bale`.

pub mod choices;
pub mod dated_store;
pub mod faulty_store;
pub mod hooked_store;
pub mod live_tree;
pub mod needs;
pub mod ran;
pub mod recording_store;
pub mod scene;
pub mod simulated_disk;
pub mod tree;
pub mod turns;

pub use choices::{Choices, Every};
pub use dated_store::DatedStore;
pub use faulty_store::{Effect, FaultyStore, InjectedFault, ListFault};
pub use hooked_store::HookedStore;
pub use live_tree::{LiveTree, Load};
pub use needs::{have, is_root, skipped};
pub use ran::Ran;
pub use recording_store::{Call, RecordingStore, Verb};
pub use scene::Scene;
pub use simulated_disk::SimulatedDisk;
pub use tree::Tree;
pub use turns::{TurnStore, Turns};
