//! The sums: rate x stall, in datagrams and in bytes.

/// Datagrams beyond it are fragments, and what each is charged is not known here.
pub const FRAGMENT_BYTES: u64 = 65_507;
/// The shortest stall: a nanosecond.
pub const LATENCY_MIN_NS: u64 = 1;
/// Nanoseconds in a second.
const NS: u128 = 1_000_000_000;

/// `struct sk_buff`, in whole cache lines.
const SK_BUFF_BYTES: u64 = 256;
/// `struct skb_shared_info`, in whole cache lines.
const SHARED_INFO_BYTES: u64 = 320;
/// Headers that the kernel makes room for: Ethernet with its alignment, 16; IPv4, 20; UDP, 8; alignment, 15.
const HEADERS_BYTES: u64 = 16 + 20 + 8 + 15;
/// The smallest head of a frame (since Linux 6.3).
const HEAD_BYTES_MIN: u64 = 576;
const CACHE_LINE: u64 = 64;

/// What arrives, what it becomes, and how long the app stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Datagrams per second that come in.
    pub rate_per_s: u64,
    /// Bytes of UDP payload of each.
    pub bytes: u64,
    /// How long the app, or the interface, may stand still.
    pub stall_ns: u64,
    /// Datagrams that leave for one that comes.
    pub outputs: u64,
    /// Multicast groups that are received.
    pub groups: u64,
}

/// A load that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Nothing comes.
    #[error("a rate of 0 needs nothing; give datagrams per second, such as 307000")]
    NoRate,
    /// No datagram has so many bytes.
    #[error("{0} bytes are no UDP datagram; use 1 to {FRAGMENT_BYTES}")]
    Bytes(u64),
    /// Nothing leaves.
    #[error("with 0 outputs nothing leaves; use 1 or more")]
    NoOutput,
    /// It is more than any machine has.
    #[error(
        "{0} in {1} ns are more than can be counted; use a smaller rate, stall or number of outputs"
    )]
    TooMuch(u64, u64),
}

/// What must have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Datagrams that come during the stall.
    pub datagrams_in: u64,
    /// Datagrams that should leave during the stall, over all outputs.
    pub datagrams_out: u64,
    /// Slots of a ring for them: the next power of two.
    pub ring_depth: u64,
    /// What the kernel charges a socket for one, bytes.
    pub truesize: u64,
    /// Of the receive buffer, as the kernel counts.
    pub receive_bytes: u64,
    /// Of the send buffer of one output, as the kernel counts.
    pub send_bytes: u64,
}

impl Load {
    /// What must have room.
    ///
    /// # Errors
    /// [`LoadError`] with the value and what to try.
    pub fn sizes(&self) -> Result<Sizes, LoadError> {
        match self {
            Load { rate_per_s: 0, .. } => return Err(LoadError::NoRate),
            Load { outputs: 0, .. } => return Err(LoadError::NoOutput),
            Load { bytes, .. } if !(1..=FRAGMENT_BYTES).contains(bytes) => {
                return Err(LoadError::Bytes(*bytes));
            }
            _ => {}
        }
        self.checked().ok_or(LoadError::TooMuch(self.rate_per_s, self.stall_ns))
    }

    fn checked(&self) -> Option<Sizes> {
        let stalled = (u128::from(self.rate_per_s) * u128::from(self.stall_ns)).div_ceil(NS);
        let datagrams_in = u64::try_from(stalled).ok()?;
        let datagrams_out = datagrams_in.checked_mul(self.outputs)?;
        let truesize = truesize(self.bytes);
        Some(Sizes {
            datagrams_in,
            datagrams_out,
            ring_depth: datagrams_out.checked_next_power_of_two()?,
            truesize,
            receive_bytes: datagrams_in.checked_mul(truesize)?,
            send_bytes: datagrams_in.checked_mul(truesize)?,
        })
    }
}

/// Datagrams per second through `depth` places, each taken for `latency_ns` (Little's law): 128 for 3.26 µs are 39
/// million, not 39 thousand.
pub fn carried_per_s(depth: u64, latency_ns: u64) -> u64 {
    let per_s = u128::from(depth) * NS / u128::from(latency_ns.max(LATENCY_MIN_NS));
    u64::try_from(per_s).unwrap_or(u64::MAX)
}

/// Bytes that the kernel charges a socket for a datagram of so many (`skb->truesize`): not what it carries, but what
/// was allocated. Data, headers and `struct skb_shared_info` in one head, which is the smallest there is or a power of
/// two, and `struct sk_buff`.
///
/// So it is where the sending socket allocates one linear head, as UDP does; a driver that receives into pages charges
/// its own. Fragments are not looked at.
pub fn truesize(bytes: u64) -> u64 {
    let data = (bytes + HEADERS_BYTES).next_multiple_of(CACHE_LINE) + SHARED_INFO_BYTES;
    let head = if data <= HEAD_BYTES_MIN { HEAD_BYTES_MIN } else { data.next_power_of_two() };
    head + SK_BUFF_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_testkit::skip;
    use proptest::prelude::*;
    use std::fs;
    use std::net::UdpSocket;

    const REPORT: Load =
        Load { rate_per_s: 307_000, bytes: 1316, stall_ns: 9_000_000, outputs: 1, groups: 1 };

    #[test]
    fn the_founding_reports_figures_are_millions_and_its_buffers_milliseconds() {
        assert_eq!(carried_per_s(128, 3_260), 39_263_803);
        assert_eq!(carried_per_s(1024, 3_260), 314_110_429);
        // How long each of its buffers lasts at its rate: 208 KB less than 0.5 ms, 4 MB about 9.
        let lasts_us = |buffer: u64| buffer / truesize(1400) * 1_000_000 / 307_000;
        assert!(lasts_us(212_992) < 500, "{}", lasts_us(212_992));
        let sizes = REPORT.sizes().unwrap();
        assert_eq!((sizes.datagrams_in, sizes.ring_depth), (2763, 4096));
        assert_eq!(sizes.send_bytes, 2763 * 2304);
    }

    #[test]
    fn the_kernel_charges_the_bytes_that_are_stated_here() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        for bytes in [1u64, 100, 300, 500, 700, 1316, 1472, 4000] {
            socket.send_to(&vec![0; bytes as usize], at).unwrap();
            // Queued by the kernel within the call, on lo; its sixth column is what it is charged.
            let table = fs::read_to_string("/proc/net/udp").unwrap();
            let port = format!(":{:04X}", at.port());
            let line = table.lines().find(|line| {
                line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port))
            });
            let queues = line.and_then(|line| line.split_whitespace().nth(4)).unwrap_or_default();
            let Some((_, charged)) = queues.split_once(':') else {
                return skip("/proc/net/udp has no line of a socket of this process");
            };
            let charged = u64::from_str_radix(charged, 16).unwrap();
            if charged != truesize(bytes) && bytes <= 100 {
                // Linux before 6.3 has no smallest head.
                assert!(charged < truesize(bytes), "{bytes}: {charged}");
            } else {
                assert_eq!(charged, truesize(bytes), "{bytes} bytes");
            }
            socket.recv(&mut [0; 8192]).unwrap();
        }
    }

    #[test]
    fn a_load_that_cannot_be_is_refused_with_its_value() {
        for (load, part) in [
            (Load { rate_per_s: 0, ..REPORT }, "rate of 0"),
            (Load { bytes: 0, ..REPORT }, "0 bytes"),
            (Load { bytes: 65_508, ..REPORT }, "65508"),
            (Load { outputs: 0, ..REPORT }, "0 outputs"),
            (Load { rate_per_s: u64::MAX, stall_ns: u64::MAX, ..REPORT }, "more than can be"),
        ] {
            let why = load.sizes().unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_load_has_sizes_that_hold_it_or_a_reason(rate: u64, bytes: u64, stall: u64, outputs: u64) {
            let load = Load { rate_per_s: rate, bytes, stall_ns: stall, outputs, groups: 1 };
            if let Ok(sizes) = load.sizes() {
                prop_assert!(sizes.ring_depth >= sizes.datagrams_out);
                prop_assert!(sizes.truesize > bytes);
                let held = u128::from(sizes.datagrams_in) * NS;
                prop_assert!(held >= u128::from(rate) * u128::from(stall));
            }
        }

        #[test]
        fn what_a_ring_carries_is_what_it_was_made_for(rate in 1u64..1_000_000_000, stall in 1u64..1_000_000_000) {
            let load = Load { rate_per_s: rate, stall_ns: stall, ..REPORT };
            prop_assert!(carried_per_s(load.sizes().unwrap().ring_depth, stall) >= rate);
        }
    }
}
