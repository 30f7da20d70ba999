//! Profiles as their users meet them: shown, run, with hooks, and scheduled. Nothing of the machine
//! that runs the tests is touched.

mod hooks;
mod judged;
mod runs;
mod scene;
mod schedules;
mod shown;
