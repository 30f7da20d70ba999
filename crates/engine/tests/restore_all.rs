//! Restoring model trees: everything a Linux tree holds, hostile catalogs, races, kills, full
//! disks.

#[path = "restore_all/damaged.rs"]
mod damaged;
#[path = "restore_all/dumped.rs"]
mod dumped;
#[path = "restore_all/encoded.rs"]
mod encoded;
#[path = "restore_all/faults.rs"]
mod faults;
#[path = "restore_all/hostile.rs"]
mod hostile;
#[path = "restore_all/image.rs"]
mod image;
#[path = "restore_all/model.rs"]
mod model;
#[path = "restore_all/modes.rs"]
mod modes;
#[path = "restore_all/objects.rs"]
mod objects;
