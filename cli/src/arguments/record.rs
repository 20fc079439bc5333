//! The arguments of `laneway trace record`.

use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Runs the command and leaves a folder for `laneway trace analyze`. `laneway run ...` traces itself; a
program built with -finstrument-functions is traced by LTTng, in a session of its own; a program on
DPDK by DPDK's own trace. --kernel adds what the kernel did to the command's threads (switches,
interrupts, system calls, NAPI), on the same clock; it needs root.

The first Ctrl-C interrupts the command (terminates it if it ignores interrupts, as in the background
of a script), the second terminates it, the third kills it; its trace is finished in any case, and
nothing else is left. docs/instrumented-dpdk.md tells how to build an instrumented DPDK.

Examples:
  sudo laneway trace record --out out/t --kernel -- laneway run forward --lane afxdp --on eth1,eth2
  sudo laneway trace record --out out/t --lttng -- dpdk-testpmd --no-pci --vdev net_tap0
  sudo laneway trace record --out out/t --dpdk 'lib.ethdev.*' -- dpdk-testpmd --no-pci
  sudo laneway trace record --out out/t --kernel-only -- ping -c 3 192.0.2.1";

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("way").args(["lttng", "lttng_fast", "dpdk", "kernel_only"]))]
#[command(group = ArgGroup::new("by_lttng").args(["lttng", "lttng_fast"]))]
pub(crate) struct RecordArguments {
    /// Where the trace goes: a folder that is empty or not there
    #[arg(long, value_name = "DIR", default_value = "out/trace")]
    pub(crate) out: PathBuf,
    /// Join what the kernel did to the command's threads
    #[arg(long)]
    pub(crate) kernel: bool,
    /// That alone
    #[arg(long)]
    pub(crate) kernel_only: bool,
    /// Record the calls of an instrumented program by LTTng
    #[arg(long)]
    pub(crate) lttng: bool,
    /// Likewise, with exits that do not name their function: half the data, sound only without loss
    #[arg(long)]
    pub(crate) lttng_fast: bool,
    /// Record DPDK's trace points that this pattern matches, such as 'lib.ethdev.*'
    #[arg(long, value_name = "PATTERN")]
    pub(crate) dpdk: Option<String>,
    /// Size of an LTTng sub-buffer, MiB
    #[arg(long, value_name = "MIB", default_value_t = 4, requires = "by_lttng",
        value_parser = power_of_two)]
    pub(crate) sub_buffer: u32,
    /// LTTng sub-buffers per CPU
    #[arg(long, value_name = "N", default_value_t = 16, requires = "by_lttng",
        value_parser = power_of_two)]
    pub(crate) sub_buffers: u32,
    /// Let the program wait when all LTTng sub-buffers are full: nothing is lost, and times are distorted
    #[arg(long, requires = "by_lttng")]
    pub(crate) block: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The most MiB of a sub-buffer, and the most sub-buffers: beyond it, a typing error.
const POWER_MAX: u32 = 1024;

fn power_of_two(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(n) if n.is_power_of_two() && (2..=POWER_MAX).contains(&n) => Ok(n),
        _ => Err(format!("use a power of two from 2 to {POWER_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    #[test]
    fn what_is_for_lttng_alone_needs_it() {
        let fits = |line: &str| {
            let command = RecordArguments::augment_args(Command::new("record"));
            let words = ["record"].into_iter().chain(line.split(' ')).chain(["--", "true"]);
            command.try_get_matches_from(words).is_ok()
        };
        for option in ["--block", "--sub-buffer 8", "--sub-buffers 8"] {
            for way in ["--lttng", "--lttng-fast", "--lttng --kernel"] {
                assert!(fits(way) && fits(&format!("{way} {option}")), "{way} {option}");
            }
            for way in ["--kernel", "--kernel-only", "--dpdk lib.*"] {
                assert!(fits(way) && !fits(&format!("{way} {option}")), "{way} {option}");
            }
        }
    }
}
