//! Frames that ask, made field by field and drawn at random; and what an answer must be. Shares no code with the app.

use laneway_testkit::Random;
use std::net::{IpAddr, SocketAddr};

pub(crate) const LISTEN: [&str; 2] = ["10.77.0.9:6379", "[fd00:77::9]:6379"];
pub(crate) const ALLOWED: [&str; 2] = ["10.77.0.0/24", "fd00:77::/64"];

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame that asks, and what a socket would show of it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) frame: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// A header is another than these three say.
    pub(crate) is_mangled: bool,
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Sum over pseudo-header and UDP datagram: 0xffff when its checksum is right.
fn udp_sum(source: &[u8], destination: &[u8], udp: &[u8]) -> u16 {
    sum(&[source, destination, &[0, 17], &(udp.len() as u16).to_be_bytes(), udp])
}

impl Question {
    pub(crate) fn new(payload: Vec<u8>, source: SocketAddr, destination: SocketAddr) -> Question {
        let (from, to) = (octets(source.ip()), octets(destination.ip()));
        let bytes = 8 + payload.len() as u16;
        let mut udp = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        udp.extend(bytes.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(&payload);
        let checksum = !udp_sum(&from, &to, &udp);
        udp[6..8].copy_from_slice(&if checksum == 0 { 0xffff } else { checksum }.to_be_bytes());
        let mut frame = [OURS, ASKER].concat();
        if source.is_ipv4() {
            frame.extend([8, 0]);
            let mut ip = vec![0x45, 0];
            ip.extend((20 + bytes).to_be_bytes());
            ip.extend([0xbe, 0xef, 0x40, 0, 61, 17, 0, 0]);
            ip.extend([from, to].concat());
            let checksum = !sum(&[&ip]);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend(ip);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 1, 2, 3]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([17, 61]);
            frame.extend([from, to].concat());
        }
        frame.extend(udp);
        frame.resize(frame.len().max(60), 0);
        Question { frame, payload, source, destination, is_mangled: false }
    }

    /// A GET of a key over IPv4, with so many bytes of padding.
    pub(crate) fn get(key: &[u8], padding: usize) -> Question {
        let source = "10.77.0.1:40000".parse().expect("an address");
        Question::new(get(b"GET", key, padding), source, LISTEN[0].parse().expect("an address"))
    }
}

fn get(name: &[u8], key: &[u8], padding: usize) -> Vec<u8> {
    let mut payload = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0];
    laneway_resp::command(&[name, key], &mut payload);
    payload.resize(payload.len() + padding, 0);
    payload
}

/// The payload of a frame that answers a question, its headers checked.
pub(crate) fn answer(question: &Question, frame: &[u8]) -> Vec<u8> {
    assert_eq!(frame[..12], [ASKER, OURS].concat(), "turned round");
    let (from, to) = (octets(question.source.ip()), octets(question.destination.ip()));
    let ip = &frame[14..];
    let (at, bytes) = if question.source.is_ipv4() {
        assert_eq!((sum(&[&ip[..20]]), ip[0], ip[9]), (0xffff, 0x45, 17));
        assert_eq!((&ip[12..16], &ip[16..20]), (&to[..], &from[..]));
        (20, usize::from(u16::from_be_bytes([ip[2], ip[3]])) - 20)
    } else {
        assert_eq!((ip[0] >> 4, ip[6]), (6, 17));
        assert_eq!((&ip[8..24], &ip[24..40]), (&to[..], &from[..]));
        (40, usize::from(u16::from_be_bytes([ip[4], ip[5]])))
    };
    let udp = &ip[at..at + bytes];
    assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), bytes);
    assert_eq!(udp[..2], question.destination.port().to_be_bytes());
    assert_eq!(udp[2..4], question.source.port().to_be_bytes());
    assert!(udp[6..8] != [0, 0] && udp_sum(&from, &to, udp) == 0xffff, "the checksum is right");
    assert!(
        frame.len() == (14 + at + bytes).max(60).min(question.frame.len()),
        "and nothing behind"
    );
    udp[8..].to_vec()
}

/// Draws keys and questions.
pub(crate) struct Draw(Random);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(Random::seeded(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    /// One of a few, of lengths at every border.
    pub(crate) fn key(&mut self) -> String {
        let bytes = [1, 3, 7, 8, 9, 10, 63, 99, 100, 127, 128, 129, 300][self.below(13)];
        "k".repeat(bytes)
    }

    fn address(&mut self, is_v4: bool) -> IpAddr {
        let usual = self.below(12) > 0;
        let text = match (is_v4, usual) {
            (true, true) => "10.77.0.1",
            (false, true) => "fd00:77::1",
            (true, false) => ["10.78.0.1", "0.0.0.0", "224.0.0.1", "10.77.0.9"][self.below(4)],
            (false, false) => ["fd00:78::1", "ff02::1", "fd01:77::1"][self.below(3)],
        };
        text.parse().expect("an address")
    }

    /// Mostly a GET that the program may answer; else something like it.
    pub(crate) fn question(&mut self) -> Question {
        let is_v4 = self.below(2) == 0;
        let destination: SocketAddr = LISTEN[usize::from(!is_v4)].parse().expect("an address");
        let mut destination = destination;
        if self.below(24) == 0 {
            destination.set_port(6380);
        }
        let port = if self.below(16) == 0 { [53, 6379, 1023][self.below(3)] } else { 40_000 };
        let source = SocketAddr::new(self.address(is_v4), port);
        let name: &[u8] =
            [&b"GET"[..], b"get", b"gEt", b"SET", b"GETS"][self.below(12).saturating_sub(7)];
        let padding = [0, 1, 5, 100, 1000][self.below(5)];
        let mut payload = get(name, self.key().as_bytes(), padding);
        match self.below(10) {
            0 => payload.truncate(self.below(payload.len())),
            1 => {
                let at = self.below(payload.len().min(60));
                payload[at] ^= 1 << self.below(8);
            }
            _ => {}
        }
        let mut question = Question::new(payload, source, destination);
        if self.below(12) == 0 {
            let at = [0, 12, 13, 14, 20, 23][self.below(6)];
            question.frame[at] ^= 1 << self.below(8);
            question.is_mangled = true;
        }
        question
    }
}
