//! What an app asks of a host, and what is found.

use crate::load::{Load, Sizes};
use crate::setting::{Setting, Sysctls};
use rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Of what the kernel counts in a buffer, what is to be asked for is half: it doubles what is asked.
const DOUBLED: u64 = 2;
/// How long one round of the kernel's receive work may take, by itself.
const BUDGET_US: &str = "net.core.netdev_budget_usecs";

/// Something that an app asks of the host: a column of its row says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Slots of a ring of sends in flight.
    RingDepth,
    /// Room for what one output should send during the stall.
    SendBuffer,
    /// Room for what comes in during the stall.
    ReceiveBuffer,
    /// Groups that a socket may be a member of.
    Memberships,
    /// Frames that wait for a CPU during the stall.
    Backlog,
    /// Frames that one round of the kernel's receive work takes.
    Budget,
}

/// What was found about one ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: a setting, or a knob of the app's own.
    pub name: &'static str,
    /// The setting that can be changed, if it is one.
    pub setting: Option<Setting>,
    /// What it is; nothing where it cannot be known.
    pub found: Option<u64>,
    /// What it should be at least, although it may be more than can be had.
    pub needed: u64,
    /// The sum, with its units.
    pub why: String,
    /// What a socket was granted that asked for it: a line, where one was asked.
    pub granted: Option<String>,
}

impl Finding {
    /// True when it is known to be too small.
    pub fn is_short(&self) -> bool {
        self.found.is_some_and(|found| found < self.needed) || self.most_in_vain().is_some()
    }

    /// The most that can be had of the setting, where that is too little as well.
    pub fn most_in_vain(&self) -> Option<u64> {
        self.setting.map(Setting::most).filter(|&most| most < self.needed)
    }

    /// What the setting is to become, where it is too small and can be larger.
    pub(crate) fn change(&self) -> Option<(Setting, u64)> {
        let (setting, found) = (self.setting?, self.found?);
        let wanted = self.needed.min(setting.most());
        (found < wanted).then_some((setting, wanted))
    }
}

/// A host, seen for a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The sums that findings rest on.
    pub sizes: Sizes,
    /// In the order of the asks.
    pub findings: Vec<Finding>,
}

impl Examined {
    /// Settings that are too small and can be larger, with what each should be, or the most that it can be.
    pub fn short(&self) -> Vec<(Setting, u64)> {
        self.findings.iter().filter_map(Finding::change).collect()
    }
}

/// Looks at what `asks` ask of the host behind `sysctls`. Changes nothing.
///
/// # Errors
/// A setting is there and cannot be read; a load cannot be.
pub fn examine(asks: &[Ask], load: &Load, sysctls: &Sysctls) -> io::Result<Examined> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let sizes = load.sizes().map_err(invalid)?;
    let findings = asks.iter().map(|ask| ask.look(load, &sizes, sysctls));
    Ok(Examined { sizes, findings: findings.collect::<io::Result<_>>()? })
}

impl Ask {
    fn look(self, load: &Load, sizes: &Sizes, sysctls: &Sysctls) -> io::Result<Finding> {
        let stall = shown(load.stall_ns);
        let rate = load.rate_per_s;
        let of = |setting: Setting, needed: u64, why: String| -> io::Result<Finding> {
            let found = sysctls.read(setting)?;
            let name = setting.name();
            Ok(Finding { name, setting: Some(setting), found, needed, why, granted: None })
        };
        match self {
            Ask::RingDepth => Ok(Finding {
                name: "ring depth (depth=)",
                setting: None,
                found: None,
                needed: sizes.ring_depth,
                why: format!(
                    "{rate}/s x {stall} x {} outputs = {} datagrams in flight, and the next power of two",
                    load.outputs, sizes.datagrams_out
                ),
                granted: None,
            }),
            Ask::SendBuffer => {
                let why = buffer("an output's send buffer (SO_SNDBUF)", load, sizes);
                let ask = sizes.send_bytes.div_ceil(DOUBLED);
                let finding = of(Setting::WmemMax, ask, why)?;
                Ok(Finding { granted: granted(Buffer::Send, ask), ..finding })
            }
            Ask::ReceiveBuffer => {
                let why = buffer("the receive buffer (SO_RCVBUF)", load, sizes);
                let ask = sizes.receive_bytes.div_ceil(DOUBLED);
                let finding = of(Setting::RmemMax, ask, why)?;
                Ok(Finding { granted: granted(Buffer::Receive, ask), ..finding })
            }
            Ask::Memberships => of(
                Setting::IgmpMaxMemberships,
                load.groups,
                format!("{} groups on one socket; with fewer, more sockets hold them", load.groups),
            ),
            Ask::Backlog => of(
                Setting::NetdevMaxBacklog,
                sizes.datagrams_in,
                format!(
                    "{rate}/s x {stall} = {} frames wait for a CPU behind a veth or RPS; what is beyond is the \
                     second column of /proc/net/softnet_stat",
                    sizes.datagrams_in
                ),
            ),
            Ask::Budget => {
                // The setting is missing where its neighbour is.
                let window_us = sysctls.number(BUDGET_US).unwrap_or(2_000);
                let frames = u128::from(rate) * u128::from(window_us);
                let frames = u64::try_from(frames.div_ceil(1_000_000)).unwrap_or(u64::MAX);
                of(
                    Setting::NetdevBudget,
                    frames,
                    format!(
                        "{rate}/s x {window_us} us (netdev_budget_usecs) = {frames} frames in a round; rounds cut \
                         short are the third column of /proc/net/softnet_stat"
                    ),
                )
            }
        }
    }
}

fn buffer(what: &str, load: &Load, sizes: &Sizes) -> String {
    format!(
        "{what}: {}/s x {} = {} datagrams x {} bytes of truesize ({} bytes of payload, headers, skb_shared_info, \
         rounded up by the allocator, and sk_buff) = {} bytes; the kernel doubles what is asked for",
        load.rate_per_s,
        shown(load.stall_ns),
        sizes.datagrams_in,
        sizes.truesize,
        load.bytes,
        sizes.send_bytes
    )
}

/// A time with a unit that fits it.
pub(crate) fn shown(ns: u64) -> String {
    let (unit, of) = match ns {
        0..1_000 => ("ns", 1),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    format!("{} {unit}", ns as f64 / of as f64)
}

#[derive(Clone, Copy)]
enum Buffer {
    Send,
    Receive,
}

/// What the kernel grants a socket that needs so much and asks for it, or for the most that can be asked for; nothing
/// where no socket can be had.
fn granted(buffer: Buffer, needed: u64) -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let most = match buffer {
        Buffer::Send => Setting::WmemMax.most(),
        Buffer::Receive => Setting::RmemMax.most(),
    };
    let asked = usize::try_from(needed.min(most)).ok()?;
    let granted = match buffer {
        Buffer::Send => sockopt::set_socket_send_buffer_size(&socket, asked)
            .and_then(|()| sockopt::socket_send_buffer_size(&socket)),
        Buffer::Receive => sockopt::set_socket_recv_buffer_size(&socket, asked)
            .and_then(|()| sockopt::socket_recv_buffer_size(&socket)),
    };
    let (granted, wanted) = (granted.ok()?, needed.saturating_mul(DOUBLED));
    let enough = if granted as u64 >= wanted { "" } else { ": too little" };
    Some(format!("asked for {asked}, granted {granted} of {wanted} wanted{enough}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const ALL: [Ask; 6] = [
        Ask::RingDepth,
        Ask::SendBuffer,
        Ask::ReceiveBuffer,
        Ask::Memberships,
        Ask::Backlog,
        Ask::Budget,
    ];
    const LOAD: Load =
        Load { rate_per_s: 307_000, bytes: 1316, stall_ns: 10_000_000, outputs: 8, groups: 50 };

    /// Settings in a folder, removed at the end.
    pub(crate) struct Host(pub(crate) PathBuf);

    impl Host {
        pub(crate) fn new(name: &str, settings: &[(&str, u64)]) -> Host {
            let folder =
                std::env::temp_dir().join(format!("laneway-doctor-{}-{name}", std::process::id()));
            for (name, value) in settings {
                let path = folder.join(name.replace('.', "/"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{value}\n")).unwrap();
            }
            Host(folder)
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_ask_tells_what_is_what_should_be_and_why() {
        let host = Host::new(
            "asks",
            &[
                ("net.core.wmem_max", 212_992),
                ("net.core.rmem_max", 8_388_608),
                ("net.ipv4.igmp_max_memberships", 20),
                ("net.core.netdev_budget", 300),
                ("net.core.netdev_budget_usecs", 8_000),
            ],
        );
        let examined = examine(&ALL, &LOAD, &Sysctls::below(&host.0)).unwrap();
        let shown: Vec<_> = examined
            .findings
            .iter()
            .map(|finding| (finding.name, finding.found, finding.needed, finding.is_short()))
            .collect();
        assert_eq!(
            shown,
            [
                ("ring depth (depth=)", None, 32_768, false),
                ("net.core.wmem_max", Some(212_992), 3070 * 2304 / 2, true),
                ("net.core.rmem_max", Some(8_388_608), 3070 * 2304 / 2, false),
                ("net.ipv4.igmp_max_memberships", Some(20), 50, true),
                ("net.core.netdev_max_backlog", None, 3070, false),
                ("net.core.netdev_budget", Some(300), 2456, true),
            ]
        );
        for finding in &examined.findings[..3] {
            assert!(finding.why.contains("307000/s x 10 ms"), "{}", finding.why);
        }
        let granted = examined.findings[1].granted.as_deref().unwrap();
        assert!(granted.starts_with("asked for 3536640, granted "), "{granted}");
        assert_eq!(examined.short().len(), 3);
        let no_load = Load { bytes: 0, ..LOAD };
        assert!(examine(&ALL, &no_load, &Sysctls::below(&host.0)).is_err());
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let times = [26, 3_260, 9_000_000, 1_500_000_000].map(shown);
        assert_eq!(times, ["26 ns", "3.26 us", "9 ms", "1.5 s"]);
    }
}
