//! The `bale` command: words become options, options become one call of the engine, its answer
//! becomes lines.
//!
//! The only crate that knows the environment, the terminal and exit codes.

/// Says a line on stderr; what begins with `bale: ` is a warning, and in the log, too.
macro_rules! report {
    () => {
        $crate::log::report(format_args!(""))
    };
    ($($text:tt)*) => {
        $crate::log::report(format_args!($($text)*))
    };
}

mod args;
mod commands;
mod escape;
mod exit;
mod interrupt;
mod log;
mod metrics;
mod named_paths;
mod output;
mod patterns;
mod place;
mod process_group;
mod profile_files;
mod progress;
mod run_record;
mod run_state;
mod secrets;
mod sizes;
mod temporary_cache;
mod times;
mod variables;

use bale_sys::memory::LargeInHugePages;
use clap::Parser;

#[global_allocator]
static ALLOCATOR: LargeInHugePages<mimalloc::MiMalloc> = LargeInHugePages(mimalloc::MiMalloc);

fn main() {
    bale_sys::memory::spare_address_space();
    bale_sys::memory::return_freed_pages_at_once();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if words == [commands::FREEZER] {
        let code = commands::serve_as_freezer();
        std::process::exit(code.unwrap_or_else(|error| output::failure(&error, false)));
    }
    let code = match args::Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => usage(&error),
    };
    std::process::exit(output::end(code));
}

fn usage(error: &clap::Error) -> i32 {
    let is_given = |option: &str| std::env::args_os().any(|word| word == option);
    match is_given("--nagios") && error.use_stderr() {
        // To a monitoring system the code of usage errors says that things are critical.
        true => commands::unknown_state(&error.to_string()),
        false => output::usage(error, is_given("--json")),
    }
}

fn run(cli: args::Cli) -> i32 {
    interrupt::listen();
    let json = cli.global.json;
    let is_talking = !json && !cli.global.quiet;
    if let Err(error) = log::begin(&cli.global, cli.command.name()) {
        report_problem("open the log", &error, json);
    }
    let measured = metrics::MeasuredRun::begin(&cli.global, cli.measured());
    let code = match commands::run(cli) {
        Ok(code) => exit::with_what_is_missing(code),
        Err(error) => output::failure(&error, json),
    };
    let code = match measured {
        Some(measured) => {
            measured.end(code);
            exit::with_what_is_missing(code)
        }
        None => code,
    };
    log::end(code);
    let code = exit::with_what_is_missing(code);
    if is_talking {
        output::report_repeated();
    }
    temporary_cache::remove();
    code
}

/// Something beside the work itself does not do what was asked of it.
fn report_problem(action: &'static str, error: &anyhow::Error, json: bool) {
    exit::something_is_missing();
    let problem = bale_pipeline::monitor::Problem {
        path: Vec::new(),
        action,
        text: output::chain(error),
    };
    output::problem(&problem, json);
}
