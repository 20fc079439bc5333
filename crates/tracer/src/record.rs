//! One record: two words.
//!
//! ```text
//!  bits   0..32  ticks since the record before it        bits 64..128  argument
//!        32..48  point
//!        48..64  small argument
//! ```
//!
//! A record of something that lasted is written when it ends and carries its length; its time is its end.
//! That halves what a call costs, in records and in nanoseconds. What the two arguments mean is
//! decided by the [`Shape`](crate::Shape) of the point, here and nowhere else.

use crate::PointId;

/// The longest that one record can say something lasted, ticks: over six minutes at 2.6 GHz. Longer
/// things saturate.
pub const LASTED_TICKS_MAX: u64 = (1 << 40) - 1;

/// One record, as it lies in a ring and, little-endian, in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Ticks since the record before it.
    pub delta: u32,
    /// What is recorded.
    pub point: PointId,
    /// See [`Shape`](crate::Shape).
    pub small: u16,
    /// See [`Shape`](crate::Shape).
    pub value: u64,
}

/// Bytes of a record in a file.
pub(crate) const RECORD_BYTES: usize = 16;

impl Record {
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        let low =
            u64::from(self.delta) | u64::from(self.point.0) << 32 | u64::from(self.small) << 48;
        [low, self.value]
    }

    #[inline]
    pub(crate) fn from_words([low, value]: [u64; 2]) -> Record {
        Record {
            delta: low as u32,
            point: PointId((low >> 32) as u16),
            small: (low >> 48) as u16,
            value,
        }
    }

    pub(crate) fn bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Record {
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("half of 16 bytes"));
        Record::from_words([word(low), word(high)])
    }
}

/// The arguments of something that lasted: 40 bits of ticks, 8 bits of one thing, 32 of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lasted {
    pub(crate) ticks: u64,
    pub(crate) tag: u8,
    pub(crate) argument: u32,
}

impl Lasted {
    #[inline]
    pub(crate) fn pack(self) -> (u16, u64) {
        let ticks = self.ticks.min(LASTED_TICKS_MAX);
        let small = u16::from(self.tag) | ((ticks >> 32) as u16) << 8;
        (small, u64::from(ticks as u32) | u64::from(self.argument) << 32)
    }

    #[inline]
    pub(crate) fn unpack(record: Record) -> Lasted {
        Lasted {
            ticks: u64::from(record.value as u32) | u64::from(record.small >> 8) << 32,
            tag: record.small as u8,
            argument: (record.value >> 32) as u32,
        }
    }
}

/// Two numbers of 16 bits in one of 32.
#[inline]
pub(crate) fn pair(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// ... and back.
#[inline]
pub(crate) fn unpair(both: u32) -> (u16, u16) {
    (both as u16, (both >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            delta: u32, point: u16, small: u16, value: u64,
        ) {
            let record = Record { delta, point: PointId(point), small, value };
            prop_assert_eq!(Record::from_words(record.words()), record);
            prop_assert_eq!(Record::from_bytes(&record.bytes()), record);
        }

        #[test]
        fn what_lasted_keeps_its_length_up_to_the_limit(ticks: u64, tag: u8, argument: u32) {
            let (small, value) = Lasted { ticks, tag, argument }.pack();
            let record = Record { small, value, ..Record::default() };
            let ticks = ticks.min(LASTED_TICKS_MAX);
            prop_assert_eq!(Lasted::unpack(record), Lasted { ticks, tag, argument });
        }
    }
}
