//! Which worker has a key: the slots of Redis Cluster.
//!
//! A key's slot is the CRC16 of it, or of what stands between its first `{` and the next `}` if that is something,
//! modulo 16,384 (Redis Cluster specification, "Hash tags"). Slots go to workers in equal ranges, in their order.

/// Slots in all.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS as u16
}

/// The worker that has a slot, of so many.
pub(crate) fn worker_of(slot: u16, workers: usize) -> usize {
    usize::from(slot) * workers / SLOTS
}

/// What of a key decides its slot.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(len) if len > 0 => &rest[..len],
        _ => key,
    }
}

/// CRC16/XMODEM: polynomial 0x1021, from 0, no bit is reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "the check value of CRC16/XMODEM");
        // As CLUSTER KEYSLOT says.
        for (key, slot) in [(&b"foo"[..], 12_182), (b"bar", 5_061), (b"hello", 866), (b"", 0)] {
            assert_eq!(slot_of(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_tag_decides_alone_and_an_empty_one_does_not() {
        for (key, part) in [
            (&b"{user1000}.following"[..], &b"user1000"[..]),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"foo{bar", b"foo{bar"),
            (b"foo}bar{", b"foo}bar{"),
        ] {
            assert_eq!(tag(key), part);
        }
    }

    #[test]
    fn every_worker_has_an_equal_range_of_slots() {
        for workers in 1..=64 {
            let mut counts = vec![0; workers];
            (0..SLOTS as u16).for_each(|slot| counts[worker_of(slot, workers)] += 1);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
        }
    }
}
