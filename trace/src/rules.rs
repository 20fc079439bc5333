//! What names mean: layers, polls, packets, signal handlers. Data, in tables; the code only matches.
//!
//! A pattern is a name in which `*` stands for any text. The first rule that matches wins. A name
//! without a rule belongs to the layer of its caller, because what a driver calls of its own is the driver's
//! work; a root without a rule is the application's. Names of generic helpers (`rte_memcpy`) have no
//! rule for that reason.

use crate::result::Layer;

/// Name pattern and layer.
type LayerRule = (&'static str, Layer);

/// Layers by function name: DPDK and what it is linked with, our own tracer, the kernel.
const LAYERS: &[LayerRule] = &[
    // Our own points.
    ("app.*", Layer::Application),
    // It gives the CPU away until something comes: no poll, however little came.
    ("lane.wait", Layer::OffCpu),
    ("lane.lend", Layer::Mempool),
    ("lane.*", Layer::Driver),
    ("(empty polls)", Layer::Idle),
    ("(until a receive returned)", Layer::Driver),
    ("(until a send returned)", Layer::Driver),
    ("(until a pool was used)", Layer::Mempool),
    ("(preempted)", Layer::OffCpu),
    ("(waiting)", Layer::OffCpu),
    ("(interrupt)", Layer::OffCpu),
    ("(system call)", Layer::Kernel),
    ("(page fault)", Layer::Kernel),
    ("(until another point)", Layer::Other),
    ("(other functions)", Layer::Other),
    // The tracer. Before all of DPDK, whose trace helpers carry the names of what they trace.
    ("rte_*_trace_*", Layer::Tracer),
    ("rte_*trace*", Layer::Tracer),
    ("__rte_trace*", Layer::Tracer),
    ("__cyg_profile*", Layer::Tracer),
    ("lttng_*", Layer::Tracer),
    ("lttng-ust*", Layer::Tracer),
    ("liblttng*", Layer::Tracer),
    ("mcount", Layer::Tracer),
    ("__fentry__", Layer::Tracer),
    // Buffers.
    ("rte_mempool_*", Layer::Mempool),
    ("rte_pktmbuf_*", Layer::Mempool),
    ("rte_mbuf_*", Layer::Mempool),
    ("__rte_mbuf_*", Layer::Mempool),
    ("__rte_pktmbuf_*", Layer::Mempool),
    ("__mempool_*", Layer::Mempool),
    ("common_ring_*", Layer::Mempool),
    ("rte_ring_*", Layer::Mempool),
    ("__rte_ring_*", Layer::Mempool),
    ("rte_stack_*", Layer::Mempool),
    ("__rte_stack_*", Layer::Mempool),
    // The device API.
    ("rte_eth_*", Layer::Ethdev),
    ("_rte_eth_*", Layer::Ethdev),
    ("rte_ethdev_*", Layer::Ethdev),
    // Kernel crossings: wrappers of system calls, and the kernel's own names.
    ("readv", Layer::Kernel),
    ("writev", Layer::Kernel),
    ("preadv*", Layer::Kernel),
    ("pwritev*", Layer::Kernel),
    ("read", Layer::Kernel),
    ("write", Layer::Kernel),
    ("recv", Layer::Kernel),
    ("recvfrom", Layer::Kernel),
    ("recvmsg", Layer::Kernel),
    ("recvmmsg", Layer::Kernel),
    ("send", Layer::Kernel),
    ("sendto", Layer::Kernel),
    ("sendmsg", Layer::Kernel),
    ("sendmmsg", Layer::Kernel),
    ("poll", Layer::Kernel),
    ("ppoll", Layer::Kernel),
    ("select", Layer::Kernel),
    ("epoll_wait", Layer::Kernel),
    ("epoll_pwait*", Layer::Kernel),
    ("ioctl", Layer::Kernel),
    ("futex*", Layer::Kernel),
    ("syscall", Layer::Kernel),
    ("io_uring_enter*", Layer::Kernel),
    ("__io_uring_*", Layer::Kernel),
    ("sys_*", Layer::Kernel),
    ("__x64_sys_*", Layer::Kernel),
    ("__arm64_sys_*", Layer::Kernel),
    ("do_syscall_64", Layer::Kernel),
    ("entry_SYSCALL*", Layer::Kernel),
    ("linux:*", Layer::Kernel),
    // Drivers.
    ("pmd_rx_burst*", Layer::Driver),
    ("pmd_tx_burst*", Layer::Driver),
    ("tap_*", Layer::Driver),
    ("tun_*", Layer::Driver),
    ("eth_af_packet_*", Layer::Driver),
    ("eth_af_xdp_*", Layer::Driver),
    ("af_xdp_*", Layer::Driver),
    ("xsk_*", Layer::Driver),
    ("eth_memif_*", Layer::Driver),
    ("memif_*", Layer::Driver),
    ("eth_null_*", Layer::Driver),
    ("eth_pcap_*", Layer::Driver),
    ("eth_ring_*", Layer::Driver),
    ("*_recv_pkts*", Layer::Driver),
    ("*_xmit_pkts*", Layer::Driver),
    ("*_rx_burst*", Layer::Driver),
    ("*_tx_burst*", Layer::Driver),
    ("virtio_*", Layer::Driver),
    ("virtqueue_*", Layer::Driver),
    ("vmxnet3_*", Layer::Driver),
    ("ixgbe_*", Layer::Driver),
    ("i40e_*", Layer::Driver),
    ("iavf_*", Layer::Driver),
    ("ice_*", Layer::Driver),
    ("mlx4_*", Layer::Driver),
    ("mlx5_*", Layer::Driver),
    ("ena_*", Layer::Driver),
    ("bnxt_*", Layer::Driver),
    // Applications shipped with DPDK.
    ("pkt_burst_*", Layer::Application),
    ("inc_rx_burst_stats", Layer::Application),
    ("inc_tx_burst_stats", Layer::Application),
    ("get_start_cycles", Layer::Application),
    ("get_end_cycles", Layer::Application),
    ("common_fwd_stream_*", Layer::Application),
    ("run_pkt_fwd_on_lcore", Layer::Application),
    ("start_pkt_forward_on_core", Layer::Application),
    ("eal_thread_loop", Layer::Application),
    ("eal_worker_thread_loop", Layer::Application),
    ("l2fwd_*", Layer::Application),
    ("l3fwd_*", Layer::Application),
    ("main", Layer::Application),
];

/// Calls that look for packets. Of one path only the outermost that matches counts.
struct PollRule {
    poll: &'static str,
    /// It found something if it called one of these.
    productive: &'static [&'static str],
    /// It found nothing if it called one of these.
    empty: &'static [&'static str],
}

const POLLS: &[PollRule] = &[
    PollRule {
        poll: "pkt_burst_*",
        productive: &["rte_eth_tx_burst", "common_fwd_stream_transmit", "rte_pktmbuf_free*"],
        empty: &[],
    },
    PollRule {
        poll: "rte_eth_rx_burst",
        productive: &["*trace_rx_burst_nonempty"],
        empty: &["*trace_rx_burst_empty"],
    },
    PollRule {
        poll: "*_rx_burst*",
        productive: &["rte_pktmbuf_alloc*", "rte_mbuf_raw_alloc*", "rte_mempool_get*"],
        empty: &[],
    },
    PollRule { poll: "eth_af_packet_rx*", productive: &["rte_pktmbuf_alloc*"], empty: &[] },
    PollRule {
        poll: "*_recv_pkts*",
        productive: &["rte_pktmbuf_alloc*", "rte_mbuf_raw_alloc*", "rte_mempool_get*"],
        empty: &[],
    },
];

/// One call per packet: [caller, callee].
const RECEIVED: &[[&str; 2]] = &[
    ["pmd_rx_burst", "rte_pktmbuf_alloc"],
    ["*_recv_pkts*", "rte_mbuf_raw_alloc"],
    ["eth_af_packet_rx*", "rte_pktmbuf_alloc"],
];
const SENT: &[[&str; 2]] = &[
    ["pmd_tx_burst", "tap_write_mbufs"],
    ["eth_af_packet_tx*", "rte_pktmbuf_free"],
    ["*_xmit_pkts*", "rte_pktmbuf_free_seg"],
];

/// Where receiving and sending begin, outermost first.
const RECEIVE_ROOTS: &[&str] = &[
    "rte_eth_rx_burst",
    "pmd_rx_burst*",
    "*_recv_pkts*",
    "lane.receive*",
    "(until a receive returned)",
];
const SEND_ROOTS: &[&str] = &[
    "rte_eth_tx_burst",
    "pmd_tx_burst*",
    "*_xmit_pkts*",
    "lane.settle",
    "(until a send returned)",
];

/// Fills of a cache of buffers from the backend.
const REFILLS: &[&str] = &[
    "rte_mempool_ops_dequeue_bulk",
    "common_ring_mc_dequeue",
    "common_ring_sc_dequeue",
    "rte_mempool_ops_dequeue_contig_blocks",
];

/// Handlers that run inside arbitrary functions.
const HANDLERS: &[&str] =
    &["tap_trigger_cb", "*signal_handler*", "*sighandler*", "*sig_handler*", "__restore_rt"];

/// Names of functions that take and give back memory.
const MEMORY: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "operator new*",
    "operator delete*",
    "*alloc",
    "*alloc_*",
    "*_alloc*",
    "*allocate*",
    "*_free",
    "*_free_*",
];

/// Does it take or give back memory?
pub(crate) fn takes_memory(name: &str) -> bool {
    any(MEMORY, name) || layer(name) == Some(Layer::Mempool)
}

/// Does `name` have the form of `pattern`?
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(mut part) = parts.next() else { return rest.is_empty() };
    // Each part at its first place leaves most to those behind it; the last one ends the name.
    for next in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        (rest, part) = (behind, next);
    }
    rest.ends_with(part)
}

fn any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// The layer a name belongs to by itself.
pub(crate) fn layer(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(pattern, _)| matches(pattern, name)).map(|&(_, layer)| layer)
}

/// What a child says about the poll that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The poll found packets.
    Productive,
    /// The poll found nothing.
    Empty,
}

/// Is this a poll, by one of its children?
pub(crate) fn poll_child(poll: &str, child: &str) -> Option<Told> {
    let rule = POLLS.iter().find(|rule| matches(rule.poll, poll))?;
    if any(rule.productive, child) {
        Some(Told::Productive)
    } else if any(rule.empty, child) {
        Some(Told::Empty)
    } else {
        None
    }
}

pub(crate) fn is_received(caller: &str, callee: &str) -> bool {
    RECEIVED.iter().any(|[from, to]| matches(from, caller) && matches(to, callee))
}

pub(crate) fn is_sent(caller: &str, callee: &str) -> bool {
    SENT.iter().any(|[from, to]| matches(from, caller) && matches(to, callee))
}

pub(crate) fn is_receive_root(name: &str) -> bool {
    any(RECEIVE_ROOTS, name)
}

pub(crate) fn is_send_root(name: &str) -> bool {
    any(SEND_ROOTS, name)
}

pub(crate) fn is_refill(name: &str) -> bool {
    any(REFILLS, name)
}

pub(crate) fn is_handler(name: &str) -> bool {
    any(HANDLERS, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("read", "read", true),
            ("read", "readv", false),
            ("rte_eth_*", "rte_eth_rx_burst", true),
            ("*_rx_burst*", "pmd_rx_burst", true),
            ("*_rx_burst*", "pmd_tx_burst", false),
            ("rte_*_trace_*", "rte_mempool_trace_get_bulk", true),
            ("a*", "a", true),
            ("*", "", true),
            ("*b", "äb", true),
            ("ab*ba", "abba", true),
            ("ab*ba", "aba", false),
            ("*ab*ab", "xabab", true),
            ("*ab*ab", "xab", false),
            ("a*b*c", "abbc", true),
            ("a**c", "ac", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_tracer_of_a_thing_is_not_the_thing() {
        assert_eq!(layer("rte_ethdev_trace_rx_burst"), Some(Layer::Tracer));
        assert_eq!(layer("rte_mempool_trace_get_bulk"), Some(Layer::Tracer));
        assert_eq!(layer("__rte_trace_point_fp_is_enabled"), Some(Layer::Tracer));
        assert_eq!(layer("rte_ethdev_get_name"), Some(Layer::Ethdev));
    }

    #[test]
    fn what_testpmd_calls_per_packet_falls_into_its_layer() {
        for (name, expected) in [
            ("pkt_burst_io_forward", Some(Layer::Application)),
            ("rte_eth_rx_burst", Some(Layer::Ethdev)),
            ("pmd_rx_burst", Some(Layer::Driver)),
            ("tap_write_mbufs", Some(Layer::Driver)),
            ("rte_pktmbuf_alloc", Some(Layer::Mempool)),
            ("rte_mempool_do_generic_get", Some(Layer::Mempool)),
            ("rte_memcpy", None),
            ("ptype_l3_ip", None),
        ] {
            assert_eq!(layer(name), expected, "{name}");
        }
    }
}
