//! The binary `laneway`; everything is in the library, so that tests reach it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    laneway_cli::start(std::env::args_os())
}
