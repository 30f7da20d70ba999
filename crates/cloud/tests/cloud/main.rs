//! Stores in clouds, beside servers that play them: one program.

mod certificates;
mod conformance;
mod hostile;
