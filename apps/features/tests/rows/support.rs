//! What these tests share: frames with every kind of header, choices that repeat, folders that go
//! away.

use std::path::{Path, PathBuf};

/// A frame as a capture would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) ts_ns: u64,
    pub(crate) wire_len: u32,
    /// How many bytes longer its own link has it.
    pub(crate) link_extra: i32,
    pub(crate) bytes: Vec<u8>,
}

/// An Ethernet frame around `layer3`.
pub(crate) fn ethernet(ether_type: u16, layer3: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(layer3);
    frame
}

/// An IPv4 packet from host to host of 10.0.0.0/24.
pub(crate) fn ipv4(protocol: u8, from: u8, to: u8, layer4: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0x2e, 0, 0, 0, 7, 0x40, 0, 61, protocol, 0, 0];
    ip[2..4].copy_from_slice(&(20 + layer4.len() as u16).to_be_bytes());
    ip.extend([10, 0, 0, from, 10, 0, 0, to]);
    ip.extend(layer4);
    ip
}

/// A TCP segment.
pub(crate) fn tcp(ports: (u16, u16), sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = ports.0.to_be_bytes().to_vec();
    tcp.extend(ports.1.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 4, 0x50, flags, 0xff, 0xf0, 0, 0, 0, 0]);
    if flags & 2 != 0 {
        tcp[12] = 0x70;
        tcp.extend([2, 4, 5, 0xb4, 1, 3, 3, 9]);
    }
    tcp.extend(payload);
    tcp
}

/// A UDP datagram.
pub(crate) fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut udp = ports.0.to_be_bytes().to_vec();
    udp.extend(ports.1.to_be_bytes());
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    udp
}

/// One frame of each kind that parses differently.
pub(crate) fn every_kind() -> Vec<Vec<u8>> {
    let six = |next: u8, payload: &[u8]| {
        let mut ip = vec![0x60, 0x12, 0x34, 0x56, 0, payload.len() as u8, next, 63];
        ip.extend([0x20; 32]);
        ip.extend(payload);
        ethernet(0x86dd, &ip)
    };
    let plain = ipv4(17, 1, 2, &udp((1000, 53), b"query"));
    let mut fragment = plain.clone();
    fragment[6..8].copy_from_slice(&[0x20, 7]);
    let mut tagged = vec![0x20, 5, 0x81, 0, 0, 6, 8, 0];
    tagged.extend(&plain);
    let mut options = ipv4(6, 1, 2, &tcp((1000, 80), 9, 0x18, b"GET"));
    options.splice(20..20, [1, 1, 1, 0]);
    (options[0], options[3]) = (0x46, options[3] + 4);
    vec![
        ethernet(0x0800, &plain),
        ethernet(0x0800, &ipv4(6, 1, 2, &tcp((1000, 80), 7, 0x02, b""))),
        ethernet(0x0800, &options),
        ethernet(0x0800, &ipv4(1, 1, 2, &[8, 0, 0, 0, 0, 1, 0, 2, b'x'])),
        ethernet(0x0800, &ipv4(132, 1, 2, &[0, 5, 0, 6, 0, 0, 0, 1, 0, 0, 0, 2, 1])),
        ethernet(0x0800, &ipv4(50, 1, 2, &[0; 16])),
        ethernet(0x0800, &fragment),
        ethernet(0x88a8, &tagged),
        six(17, &udp((1000, 53), b"query")),
        six(
            0,
            &[&[60, 0, 1, 2, 0, 0, 0, 0, 6, 1][..], &[0; 14], &tcp((7, 8), 1, 0x12, b"")].concat(),
        ),
        six(44, &[&[17, 0, 0, 9, 0, 0, 1, 2][..], b"the rest"].concat()),
        six(58, &[128, 0, 0, 0, 0, 1, 0, 2]),
        ethernet(0x0806, &[0; 28]),
        ethernet(0x0800, &plain)[..30].to_vec(),
        ethernet(0x0800, &plain)[..10].to_vec(),
    ]
}

/// A folder of its own for a test; removed with what is in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("cargo made the folder above");
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<String> = entries
            .map(|e| e.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
