//! The arguments of `laneway gen`.

use super::duration;
use clap::{Args, Subcommand};
use laneway_registry::USUAL_LANE;
use laneway_spec::LaneSpec;
use std::net::{SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo laneway gen pcap capture.pcap --on eth1
  laneway gen tcp --to 192.0.2.9:7 --connections 100 --rate 20000
  laneway gen kv --to 192.0.2.9:6379 --connections 100 --pipeline 16 --keys 100000
  sudo laneway gen mcast --on eth1 --to 239.1.1.1:5000 --groups 50 --rate 10000";

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
    /// Ask a TCP server that sends back what it is sent, and check every byte
    #[command(after_help = TCP_EXAMPLES, arg_required_else_help = true)]
    Tcp(TcpArguments),
    /// Set and get values of a store that speaks RESP (Redis's protocol), and check every one
    #[command(after_help = KV_EXAMPLES, arg_required_else_help = true)]
    Kv(KvArguments),
    /// Send numbered datagrams to multicast groups
    #[command(after_help = MCAST_EXAMPLES, arg_required_else_help = true)]
    Mcast(McastArguments),
}

const MCAST_EXAMPLES: &str = "\
Datagrams are due at times of their own (open loop), a burst of them at once and to one group, the
next burst to the next. Each has a number in its payload, with its complement, and is like the others of its
group in all else, with a right checksum, so a receiver may merge them (GRO). It is what `laneway
race fanout` sends. An interface that carries a default route is refused without --force.

Examples:
  sudo laneway gen mcast --on eth1 --to 239.1.1.1:5000 --rate 10000 --bytes 1316
  sudo laneway gen mcast --on eth1 --to 239.1.1.1:5000 --groups 50 --rate 50000 --burst 16 --poisson 7";

#[derive(Args, Debug)]
pub(crate) struct McastArguments {
    /// Interface to send on
    #[arg(long, value_name = "IFACE")]
    pub(crate) on: String,
    /// The first group, and the UDP port of all
    #[arg(long, value_name = "GROUP:PORT")]
    pub(crate) to: SocketAddrV4,
    /// Groups, one address after the other: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) groups: u16,
    /// Where datagrams come from [default: the interface's first address, port 7001]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) from: Option<SocketAddrV4>,
    /// Datagrams per second
    #[arg(long, value_name = "N", default_value = "1000", value_parser = rate)]
    pub(crate) rate: f64,
    /// Payload of each, 18 to 1472
    #[arg(long, value_name = "BYTES", default_value_t = 1_316)]
    pub(crate) bytes: u16,
    /// Datagrams that are due at once: 1 to 256
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) burst: u32,
    /// Bursts come as a Poisson process of this seed, not at a constant rate
    #[arg(long, value_name = "SEED")]
    pub(crate) poisson: Option<u64>,
    /// Time to live
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) ttl: u8,
    /// How long it sends
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Lane and knobs: packet, uring, afxdp or dpdk
    #[arg(long, value_name = "SPEC", default_value = USUAL_LANE)]
    pub(crate) lane: LaneSpec,
    /// Keep the sender on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Use an interface that carries a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}

const TCP_EXAMPLES: &str = "\
With --rate requests are due at times of their own (open loop), request n on connection n modulo the
connections, and latency counts from then, so what waits behind a slow answer is not left out.
Without it each connection has --in-flight requests outstanding and asks the next when one was
answered (closed loop). Every request ends up answered, timed out, refused or lost, and is counted so.
It is the client of `laneway race tcp-echo`.

Examples:
  laneway gen tcp --to 192.0.2.9:7 --connections 100 --rate 20000 --duration 10
  laneway gen tcp --to 127.0.0.1:7007 --connections 10 --in-flight 16 --bytes 512-1024 --duration 5";

#[derive(Args, Debug)]
pub(crate) struct TcpArguments {
    /// The server
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) to: SocketAddr,
    /// Connections, all opened before the first request: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) connections: u32,
    /// Requests per second, over all connections; without it a closed loop
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Requests outstanding on each connection at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) in_flight: u32,
    /// Length of a request, or the shortest and the longest, between which each is drawn
    #[arg(long, value_name = "N|A-B", default_value = "64", value_parser = bytes)]
    pub(crate) bytes: Bytes,
    /// How long it asks
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How long answers are waited for behind the last request
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    pub(crate) timeout_ms: u32,
    /// Of lengths and contents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the client on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
}

const KV_EXAMPLES: &str = "\
Each key is set once before anything is measured; then requests are SETs and GETs of keys drawn anew. A
value says which it is, so a GET is right that finds nothing, or exactly a value that was set for its
key. Latency counts from the time a request was due: with --rate at times of their own (open loop),
without it when one before it on its connection was answered (closed loop). Every request ends up
answered, timed out, refused or lost, and is reported as such. Keys are `key:` and twelve digits; what the
store holds under them is replaced. --udp asks as memcached's protocol has it, in requests as long as the
longest reply; a datagram that is another's reply, comes twice or says anything else is a wrong answer.

Examples:
  laneway gen kv --to 127.0.0.1:6379 --connections 100 --requests 1000000
  laneway gen kv --to 192.0.2.9:6379 --connections 10 --pipeline 16 --keys 1000000 --zipf 0.99 --get-share 0.9
  laneway gen kv --to 192.0.2.9:6379 --connections 1000 --rate 50000 --value-bytes 64-16384 --duration 10
  laneway gen kv --to 192.0.2.9:6379 --udp --connections 10 --keys 1000 --requests 1000000";

#[derive(Args, Debug)]
pub(crate) struct KvArguments {
    /// The store
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) to: SocketAddr,
    /// Connections, all opened before the first request: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) connections: u32,
    /// Requests outstanding on each connection at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) pipeline: u32,
    /// Keys there are: 1 to 10000000
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) keys: u32,
    /// Keys are drawn by Zipf's law with this exponent, not each as often as the others
    #[arg(long, value_name = "S")]
    pub(crate) zipf: Option<f64>,
    /// How many requests are GETs, a share; the others are SETs [default: 0.5, with --udp 1]
    #[arg(long, value_name = "SHARE")]
    pub(crate) get_share: Option<f64>,
    /// GET by datagrams from as many sockets, one in flight on each, at the address of --to or at this one; keys are
    /// set over connections first
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true)]
    pub(crate) udp: Option<Option<SocketAddr>>,
    /// Length of a value, or the shortest and the longest, between which each is drawn: 16 to 1048576
    #[arg(long, value_name = "N|A-B", default_value = "64", value_parser = bytes)]
    pub(crate) value_bytes: Bytes,
    /// Requests per second, over all connections; without it a closed loop
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// End when so many requests were due
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub(crate) requests: Option<NonZeroU32>,
    /// How long it asks
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How long answers are waited for behind the last request
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    pub(crate) timeout_ms: u32,
    /// Of keys, lengths and contents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the client on this CPU
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
}

/// The shortest and the longest request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) [u32; 2]);

/// `64`, `512-1024`.
fn bytes(text: &str) -> Result<Bytes, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if 0 < least && least <= most => Ok(Bytes([least, most])),
        _ => Err("use a length such as 64, or two such as 512-1024, the shorter first".to_owned()),
    }
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
    fn a_length_is_one_number_or_two_in_order() {
        assert_eq!(bytes("64"), Ok(Bytes([64, 64])));
        assert_eq!(bytes("512-1024"), Ok(Bytes([512, 1024])));
        for text in ["", "0", "0-9", "9-8", "-1", "1-", "-", "many", "1-2-3", "4294967296"] {
            assert!(bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_positive_and_finite() {
        assert_eq!((rate("0.5"), rate("1e6")), (Ok(0.5), Ok(1e6)));
        for text in ["0", "-1", "nan", "inf", "1e13", "", "fast"] {
            assert!(rate(text).is_err(), "{text:?}");
        }
    }
}
