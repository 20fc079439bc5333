//! What a request is called: the lane's word for it, which its completions bring back.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Receives datagrams or frames of a port, or bytes of a connection.
    Receive = 1,
    /// Sends a slot, a frame, or a queue of a connection.
    Send = 2,
    /// Accepts connections of a port.
    Accept = 3,
}

/// The word for request `index` of a kind; `port` is its port, or another small number.
pub(crate) fn token(kind: Kind, port: u8, index: u32) -> u64 {
    u64::from(kind as u8) << 56 | u64::from(port) << 48 | u64::from(index)
}

/// What a word says; nothing for the words of others.
pub(crate) fn read(token: u64) -> Option<(Kind, usize, u32)> {
    let kind = match (token >> 56) as u8 {
        1 => Kind::Receive,
        2 => Kind::Send,
        3 => Kind::Accept,
        _ => return None,
    };
    Some((kind, usize::from((token >> 48) as u8), token as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_it_was_made_of() {
        for kind in [Kind::Receive, Kind::Send, Kind::Accept] {
            assert_eq!(read(token(kind, 255, u32::MAX)), Some((kind, 255, u32::MAX)));
        }
        assert_eq!(read(crate::ring::CANCEL_TOKEN), None);
    }
}
