//! Frames made by hand, which reach all that must be reached whatever captures are at hand.

use laneway_testkit::Random;
use laneway_testkit::UdpFrame;

fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), rest].concat()
}

/// An IPv4 packet between these addresses, source first.
fn between4(
    [source, destination]: [[u8; 4]; 2],
    options: &[u8],
    fragment: u16,
    ttl: u8,
    protocol: u8,
    rest: &[u8],
) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let total = (u16::from(words) * 4 + rest.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let head =
        [0x40 | words, 0, total[0], total[1], 0, 7, fragment[0], fragment[1], ttl, protocol, 0, 0];
    let mut ip = [&head[..], &source, &destination, options].concat();
    assert!(laneway_wire::Ipv4::seal(&mut ip));
    [&ip[..], rest].concat()
}

fn four(options: &[u8], fragment: u16, ttl: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
    between4([[10, 0, 0, 1], [10, 0, 0, 2]], options, fragment, ttl, protocol, rest)
}

/// An IPv6 packet between these addresses, source first.
fn between6(addresses: [[u8; 16]; 2], next: u8, hops: u8, rest: &[u8]) -> Vec<u8> {
    let payload = (rest.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, payload[0], payload[1], next, hops];
    [&head[..], addresses.as_flattened(), rest].concat()
}

fn six(next: u8, hops: u8, rest: &[u8]) -> Vec<u8> {
    let host = |last: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    between6([host(1), host(2)], next, hops, rest)
}

/// To 10.0.0.9, by IPv4 and by the same address as IPv6 maps it.
pub(crate) fn mapped() -> [Vec<u8>; 2] {
    let udp = [0, 53, 0, 80, 0, 8, 0, 0];
    let four = between4([[10, 0, 0, 1], [10, 0, 0, 9]], &[], 0, 64, 17, &udp);
    let to = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9];
    let six = between6([[0x20; 16], to], 17, 64, &udp);
    [ethernet(0x0800, &four), ethernet(0x86dd, &six)]
}

/// Of [`networks`], how many there are of each of its kinds.
pub(crate) const FRAMES_PER_KIND: usize = 250;

/// Frames between hosts of many networks, drawn alike on every machine, of eight kinds in turn. The
/// first come from 10.0.0.0/8 and go to port 53; the second go where no route of `config` leads.
pub(crate) fn networks() -> Vec<Vec<u8>> {
    let mut draw = Random::seeded(4);
    let mut frame = |kind: usize| {
        let mut byte = || draw.below(256) as u8;
        let mut some4 = || [1 + byte() % 126, byte(), byte(), byte()];
        let [source4, destination4] = [some4(), some4()];
        let mut some6 = |first: [u8; 2]| {
            let mut address: [u8; 16] = std::array::from_fn(|_| byte());
            address[..2].copy_from_slice(&first);
            address
        };
        let [source6, destination6] = [some6([0x20, 1]), some6([0x20, 3])];
        let (ttl, port) = (1 + byte() % 63, byte());
        let udp = [byte(), byte(), 0, port, 0, 8, 0, 0];
        let tcp = [byte(), byte(), 1, port, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0];
        match kind {
            0 => {
                let (source, to_dns) =
                    ([10, byte(), byte(), byte()], [9, byte(), 0, 53, 0, 8, 0, 0]);
                ethernet(0x0800, &between4([source, destination4], &[], 0, 64, 17, &to_dns))
            }
            1 => {
                let mut nowhere = destination6;
                nowhere[..2].copy_from_slice(&[0xfd, 0]);
                ethernet(0x86dd, &between6([source6, nowhere], 17, 64, &udp))
            }
            2 => ethernet(0x0800, &between4([source4, destination4], &[], 0, ttl, 6, &tcp)),
            3 => ethernet(0x86dd, &between6([source6, destination6], 6, 64, &tcp)),
            4 => {
                let ping = [8, 0, byte(), byte(), 0, 1, 0, 1];
                ethernet(0x0800, &between4([source4, destination4], &[], 0, ttl, 1, &ping))
            }
            5 => {
                let message = [128 + byte() % 10, 0, byte(), byte(), 0, 1, 0, 1];
                ethernet(0x86dd, &between6([source6, destination6], 58, 64, &message))
            }
            6 => {
                let packet = between6([source6, destination6], 17, 64, &udp);
                let tags = [0, 5, 0x81, 0, 0x60, 5, 0x86, 0xdd];
                ethernet(0x88a8, &[&tags[..], &packet].concat())
            }
            _ => ethernet(0x0800, &between4([source4, destination4], &[], 0x2000, ttl, 17, &udp)),
        }
    };
    (0..8 * FRAMES_PER_KIND).map(|i| frame(i % 8)).collect()
}

/// What no capture at hand has enough of: tags, options, extension headers, fragments, used-up times
/// to live, cuts at every byte, lengths that lie.
pub(crate) fn by_hand() -> Vec<Vec<u8>> {
    let udp = [0, 53, 0, 80, 0, 16, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8];
    // Its checksum becomes zero when port 80 becomes 99.
    let to_zero = [0, 53, 0, 80, 0, 16, 0, 0x13, 1, 2, 3, 4, 5, 6, 7, 8];
    let vxlan = [1, 1, 0x12, 0xb5, 0, 24, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let tcp = [0, 80, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 1, 0, 7, 7, 0, 0, 5];
    let icmp = [8, 0, 1, 1, 0, 1, 0, 1, 0xab];
    let extended = |count: usize, length: u8, last: u8, rest: &[u8]| {
        let header =
            |next: u8| [&[next, length][..], &vec![0; 6 + 8 * usize::from(length)]].concat();
        let mut all: Vec<u8> = (1..count).flat_map(|_| header(60)).collect();
        all.extend(header(last));
        all.extend(rest);
        six(60, 9, &all)
    };
    let packets = [
        (0x0800, four(&[], 0, 64, 17, &udp)),
        (0x0800, four(&[], 0, 64, 17, &to_zero)),
        (0x0800, four(&[], 0, 2, 17, &vxlan)),
        (0x0800, four(&[1; 12], 0, 1, 6, &tcp)),
        (0x0800, four(&[1; 40], 0, 0, 1, &icmp)),
        (0x0800, four(&[], 0x2000, 64, 17, &udp)),
        (0x0800, four(&[], 9, 64, 17, &udp)),
        (0x86dd, six(17, 64, &udp)),
        (0x86dd, six(6, 1, &tcp)),
        (0x86dd, six(58, 3, &icmp)),
        (0x86dd, extended(1, 0, 17, &udp)),
        (0x86dd, extended(8, 0, 6, &tcp)),
        (0x86dd, extended(9, 0, 6, &tcp)),
        (0x86dd, extended(1, 60, 17, &udp)),
        (0x86dd, six(44, 9, &[&[17, 0, 0, 1, 0, 0, 0, 1][..], &udp].concat())),
        (0x86dd, six(44, 9, &[&[17, 0, 0, 8, 0, 0, 0, 1][..], &udp].concat())),
        (0x86dd, six(51, 9, &[&[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..], &udp].concat())),
    ];
    let mut frames = Vec::new();
    for (kind, packet) in &packets {
        let plain = ethernet(*kind, packet);
        let tags: [&[u8]; 4] = [
            &[],
            &[0x81, 0, 0x60, 5],
            &[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 9],
            &[0x91, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3],
        ];
        frames.extend(tags.map(|tag| [&plain[..12], tag, &plain[12..]].concat()));
        frames.extend((14..plain.len()).map(|len| plain[..len].to_vec()));
        // Lengths, versions and header lengths that lie; padding behind the packet.
        for (at, value) in [(14, 0x44), (14, 0x4f), (14, 0x55), (16, 0), (17, 21), (18, 0xff)] {
            let mut lies = plain.clone();
            lies[at] = value;
            frames.push(lies);
        }
        frames.push([&plain[..], &[0; 30]].concat());
    }
    // Checksums at the edges of ones' complement.
    for sequence in 0..40u64 {
        let destination_port = if sequence % 2 == 0 { 53 } else { 80 };
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let bytes = 64 + sequence as usize;
        let frame = UdpFrame {
            sequence,
            bytes,
            destination_port,
            source,
            destination,
            ..UdpFrame::default()
        };
        let mut frame = frame.build();
        frames.push(frame.clone());
        frame[24..26].copy_from_slice(&[[0, 0], [0xff, 0xff]][sequence as usize % 2]);
        frame[40..42].copy_from_slice(&[[0xff, 0xff], [0, 1]][sequence as usize % 2]);
        frames.push(frame);
    }
    frames
}
