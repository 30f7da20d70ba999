//! Tree builder, models and checks shared by the tests. Development only: nothing here is linked into `bale`.

pub mod choices;
pub mod faulty_store;
pub mod recording_store;
pub mod simulated_disk;

pub use choices::{Choices, Every};
pub use faulty_store::{Effect, Fault, FaultyStore, ListFault};
pub use recording_store::{Call, RecordingStore, Verb};
pub use simulated_disk::SimulatedDisk;
