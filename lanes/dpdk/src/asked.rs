//! What a driver is asked for when a port of a lane is made: its argument string, and where it cuts frames.
//!
//! Between the knobs and the devices, which do not know each other's users. What must always hold: an argument string
//! that is built here names one device and nothing of it twice. What it does not do: it calls nothing.

use crate::{
    config::Config,
    device::{AF_PACKET_FRAME_BYTES, AF_PACKET_OFFSET_BYTES, Device, af_packet_ring, is_file},
};

impl Device {
    /// Bytes from which on a received frame was cut by the kernel, which net_af_packet does not look at; 0 where none
    /// is cut, or where a user's own `framesz=` decides. No whole frame of the MTU is as long, its tag included.
    pub(crate) fn cut_at(&self, config: &Config, mtu: usize) -> u32 {
        let is_ours = |arguments: &String| !arguments.contains("framesz=");
        match self {
            Device::AfPacket if config.arguments.iter().all(is_ours) => {
                (af_packet_ring(mtu).0 - AF_PACKET_OFFSET_BYTES) as u32
            }
            _ => 0,
        }
    }

    /// The arguments of port `port` on `interface`, whose MTU is known if it exists.
    pub(crate) fn arguments(
        &self,
        config: &Config,
        port: usize,
        interface: &str,
        mtu: usize,
    ) -> String {
        let queues = config.rx_queues;
        let mut list: Vec<String> = Vec::new();
        match self {
            Device::AfPacket => {
                list.push(format!("iface={interface},qpairs={queues}"));
                if let Some(frames) = config.rx_descriptors {
                    list.push(format!("framecnt={frames}"));
                }
                let (frame, block) = af_packet_ring(mtu);
                if frame > AF_PACKET_FRAME_BYTES {
                    list.push(format!("blocksz={block},framesz={frame}"));
                }
            }
            Device::AfXdp { queue } => {
                list.push(format!("iface={interface},start_queue={queue},queue_count={queues}"));
            }
            Device::Tap => list.push(format!("iface={interface}")),
            Device::Memif { server, socket, id } => {
                let role = if *server { "server" } else { "client" };
                let (path, is_abstract) = match socket.strip_prefix('@') {
                    Some(name) => (name, "yes"),
                    None => (socket.as_str(), "no"),
                };
                let id = id + port as u32;
                list.push(format!(
                    "role={role},id={id},socket={path},socket-abstract={is_abstract}"
                ));
                if let Some(entries) = config.rx_descriptors {
                    list.push(format!("rsize={}", entries.max(1).ilog2()));
                }
            }
            Device::Pcap(files) => match (&files.receive, &files.transmit) {
                (None, None) if is_file(interface) => {
                    list.push(format!("rx_pcap={interface}"));
                }
                (None, None) => list.push(format!("iface={interface}")),
                (receive, transmit) => {
                    list.extend(receive.iter().map(|file| format!("rx_pcap={file}")));
                    list.extend(transmit.iter().map(|file| format!("tx_pcap={file}")));
                }
            },
            Device::Ring | Device::Null | Device::Pci(_) => {}
        }
        list.extend(config.arguments.clone());
        list.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(spec: &str, port: usize, interface: &str, mtu: usize) -> String {
        let config = Config::read(&spec.parse().expect("well formed"), 1).expect("valid");
        config.device.arguments(&config, port, interface, mtu)
    }

    #[test]
    fn arguments_come_from_the_interface_and_the_knobs() {
        for (spec, port, interface, want) in [
            ("dpdk:net_af_packet", 0, "eth1", "iface=eth1,qpairs=1"),
            ("dpdk:net_af_packet,rxd=64", 0, "eth1", "iface=eth1,qpairs=1,framecnt=64"),
            ("dpdk:net_af_xdp,queue=2", 0, "v0", "iface=v0,start_queue=2,queue_count=1"),
            ("dpdk:net_tap", 1, "tap7", "iface=tap7"),
            (
                "dpdk:net_memif,role=server,id=4,socket=/run/x",
                1,
                "m",
                "role=server,id=5,socket=/run/x,socket-abstract=no",
            ),
            (
                "dpdk:net_memif,rxd=1024",
                0,
                "m",
                "role=client,id=0,socket=laneway-memif,socket-abstract=yes,rsize=10",
            ),
            ("dpdk:net_pcap", 0, "./a.pcap", "rx_pcap=./a.pcap"),
            ("dpdk:net_pcap", 0, "eth1", "iface=eth1"),
            ("dpdk:net_pcap,rx_pcap=a,tx_pcap=b", 0, "x", "rx_pcap=a,tx_pcap=b"),
            ("dpdk:net_null,args=size=1500;copy=1", 0, "n", "size=1500,copy=1"),
            ("dpdk:net_ring", 0, "r", ""),
        ] {
            assert_eq!(arguments(spec, port, interface, 1500), want, "{spec}");
        }
    }

    #[test]
    fn af_packets_ring_grows_with_the_mtu() {
        let spec = "dpdk:net_af_packet,frame=16k";
        let want = "iface=e,qpairs=1,blocksz=16384,framesz=16384";
        assert_eq!(arguments(spec, 0, "e", 9000), want);
        assert_eq!(af_packet_ring(1500), (2048, 4096));
        assert_eq!(af_packet_ring(2000), (4096, 4096));
        for (spec, mtu, cut_at) in [
            ("dpdk:net_af_packet", 1500, 2048 - 66),
            ("dpdk:net_af_packet", 9000, 16_384 - 66),
            ("dpdk:net_af_packet,args=framesz=8192", 1500, 0),
            ("dpdk:net_af_xdp", 1500, 0),
        ] {
            let config = Config::read(&spec.parse().expect("well formed"), 1).expect("valid");
            assert_eq!(config.device.cut_at(&config, mtu), cut_at, "{spec}");
        }
    }
}
