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
    /// Waits for the worker's bell.
    Bell = 4,
}

/// The word for request `index` of a kind; `port` is the place of its port, or another small number.
pub(crate) fn token(kind: Kind, port: u16, index: u32) -> u64 {
    u64::from(kind as u8) << 56 | u64::from(port) << 40 | u64::from(index)
}

/// What a word says; nothing for the words of others.
pub(crate) fn read(token: u64) -> Option<(Kind, usize, u32)> {
    let kind = match (token >> 56) as u8 {
        1 => Kind::Receive,
        2 => Kind::Send,
        3 => Kind::Accept,
        4 => Kind::Bell,
        _ => return None,
    };
    Some((kind, usize::from((token >> 40) as u16), token as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_it_was_made_of() {
        for kind in [Kind::Receive, Kind::Send, Kind::Accept, Kind::Bell] {
            assert_eq!(read(token(kind, u16::MAX, u32::MAX)), Some((kind, 65535, u32::MAX)));
        }
        assert_eq!(read(crate::ring::CANCEL_TOKEN), None);
    }
}
