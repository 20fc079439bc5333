//! Where records begin and end (RFC 8446, section 5.1; RFC 5246, section 6.2), before anything else is known of them.

/// Type, version, length.
const HEADER_BYTES: usize = 5;
/// A record's payload, encrypted, in TLS 1.2 (RFC 5246, section 6.2.3); TLS 1.3 allows less.
const PAYLOAD_BYTES_MAX: usize = (1 << 14) + 2048;
/// Plaintext of one record.
pub(crate) const PLAIN_BYTES_MAX: usize = 1 << 14;
/// What a record has beside its plaintext: header, nonce of TLS 1.2, type of TLS 1.3, tag.
pub(crate) const OVERHEAD_BYTES_MAX: usize = 64;

/// Types of records: change_cipher_spec, alert, handshake, application_data.
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;
/// The first record of a client is of this type.
pub(crate) const HANDSHAKE: u8 = 22;

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRecord;

/// Length of the whole records at the start of `bytes`, as many as stay below `bytes_max`, but one at least if it is
/// there.
///
/// # Errors
/// The bytes behind them begin no record, and there are none in front.
pub(crate) fn whole_records(bytes: &[u8], bytes_max: usize) -> Result<usize, NoRecord> {
    let mut end = 0;
    loop {
        let rest = &bytes[end..];
        match rest {
            [] => return Ok(end),
            [kind, ..] if !TYPES.contains(kind) => {}
            [_, major, ..] if *major != 3 => {}
            [_, _, _, high, low, ..] => {
                let payload = usize::from(u16::from_be_bytes([*high, *low]));
                let record = HEADER_BYTES + payload;
                if payload <= PAYLOAD_BYTES_MAX {
                    let is_room = end == 0 || end + record <= bytes_max;
                    if record > rest.len() || !is_room {
                        return Ok(end);
                    }
                    end += record;
                    continue;
                }
            }
            _ => return Ok(end),
        }
        // What comes first is used first; the next call meets this again.
        return if end == 0 { Err(NoRecord) } else { Ok(end) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u16).to_be_bytes();
        [&[kind, 3, 3, length[0], length[1]][..], &vec![7; payload]].concat()
    }

    #[test]
    fn records_are_taken_whole_and_some_at_a_time() {
        let bytes = [record(22, 10), record(23, 0), record(23, 100)].concat();
        assert_eq!(whole_records(&bytes, 1000), Ok(bytes.len()));
        assert_eq!(whole_records(&bytes[..bytes.len() - 1], 1000), Ok(20));
        assert_eq!(whole_records(&bytes, 20), Ok(20));
        assert_eq!(whole_records(&bytes, 1), Ok(15), "one at least");
        for cut in 0..15 {
            assert_eq!(whole_records(&bytes[..cut], 1000), Ok(0));
        }
    }

    #[test]
    fn what_is_no_record_is_known_by_its_first_bytes() {
        for bytes in
            [&b"*1\r\n"[..], b"GET / HTTP", b"\x16\x02\x00", b"\x17\x03\x03\xff\xff", b"\x00"]
        {
            assert_eq!(whole_records(bytes, 1000), Err(NoRecord), "{bytes:?}");
        }
        let behind = [record(23, 5), b"PING\r\n".to_vec()].concat();
        assert_eq!(whole_records(&behind, 1000), Ok(10));
        assert_eq!(whole_records(&behind[10..], 1000), Err(NoRecord));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..100), max in 0usize..200) {
            if let Ok(end) = whole_records(&bytes, max) {
                prop_assert!(end <= bytes.len());
            }
        }
    }
}
