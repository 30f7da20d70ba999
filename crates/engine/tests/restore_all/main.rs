//! Restoring model trees: everything a Linux tree holds, hostile catalogs, races, kills, full
//! disks.

mod damaged;
mod dumped;
mod encoded;
mod faults;
mod hostile;
mod image;
mod model;
mod modes;
mod objects;
