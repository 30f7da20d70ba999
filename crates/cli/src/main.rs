//! The `bale` command: words become options, options become one call of the engine, its answer becomes lines.
//!
//! The only crate that knows the environment, the terminal and exit codes.

mod args;
mod commands;
mod exit;
mod interrupt;
mod output;
mod place;
mod progress;
mod secrets;
mod sizes;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    bale_sys::memory::return_freed_pages_at_once();
    let cli = args::Cli::parse();
    interrupt::listen();
    let json = cli.global.json;
    let code = match commands::run(cli) {
        Ok(code) => code,
        Err(error) => output::failure(&error, json),
    };
    std::process::exit(code);
}
