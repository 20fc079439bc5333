//! What may be said to `laneway gen`.

use super::duration;
use clap::{Args, Subcommand};
use laneway_registry::USUAL_LANE;
use laneway_spec::LaneSpec;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Example:
  sudo laneway gen pcap capture.pcap --on eth1";

const PCAP_EXAMPLES: &str = "\
Without a rate the capture's own times are kept. Frames go out as they are, addresses included; what
was captured as plain IP gets an Ethernet header. When it is late it catches up: no frame is left
out, and one that a full queue refuses is offered again. The achieved rate, how late frames were
given to the lane, and what the lane refused are reported at the end: after the last pass, --count
or --duration, or at Ctrl-C. An interface that carries a default route is refused without --force.

On lane pcap it writes a capture instead, with the times at which the frames were due.

Examples:
  sudo laneway gen pcap capture.pcap --on eth1
  sudo laneway gen pcap capture.pcap --on eth1 --lane afxdp --pps 100000 --loop 0 --duration 10
  sudo laneway gen pcap a.pcap b.pcapng.zst --on eth1 --mbps 50 --preload --loop 10 --unique-ip
  laneway gen pcap a.pcap --lane pcap --on fast.pcapng --multiplier 10";

#[derive(Debug, Subcommand)]
pub(crate) enum Generator {
    /// Replay capture files
    #[command(after_help = PCAP_EXAMPLES, arg_required_else_help = true)]
    Pcap(Box<ReplayArguments>),
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    /// Capture files, sent one after the other; `-` is standard input
    #[arg(required = true, value_name = "PCAP")]
    pub(crate) captures: Vec<PathBuf>,
    /// Interface to send on, or the capture to write on lane pcap
    #[arg(long, value_name = "IFACE")]
    pub(crate) on: String,
    /// Lane and knobs: packet, uring, afxdp, dpdk, or pcap to write a capture
    #[arg(long, value_name = "SPEC", default_value = USUAL_LANE)]
    pub(crate) lane: LaneSpec,
    /// Passes over the captures; 0 goes on until something else ends it
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    pub(crate) passes: u64,
    /// Frames per second
    #[arg(long, value_name = "N", group = "timing", value_parser = rate)]
    pub(crate) pps: Option<f64>,
    /// Million bits per second, of frames from the Ethernet header on
    #[arg(long, value_name = "N", group = "timing", value_parser = rate)]
    pub(crate) mbps: Option<f64>,
    /// The capture's times, so many times as fast [default: 1]
    #[arg(long, value_name = "X", group = "timing", value_parser = rate)]
    pub(crate) multiplier: Option<f64>,
    /// As fast as the lane takes them
    #[arg(long, group = "timing")]
    pub(crate) topspeed: bool,
    /// Read everything into memory first, at most 1 GiB
    #[arg(long)]
    pub(crate) preload: bool,
    /// Other IP addresses in every further pass; checksums stay right
    #[arg(long)]
    pub(crate) unique_ip: bool,
    /// End after N frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Keep the worker on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Use an interface that carries a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}

/// Beyond it a rate is a typing error: a frame per picosecond.
const RATE_MAX: f64 = 1e12;

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err(format!("use a number above 0 and at most {RATE_MAX:e}, such as 1000 or 0.5")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_positive_and_finite() {
        assert_eq!((rate("0.5"), rate("1e6")), (Ok(0.5), Ok(1e6)));
        for text in ["0", "-1", "nan", "inf", "1e13", "", "fast"] {
            assert!(rate(text).is_err(), "{text:?}");
        }
    }
}
