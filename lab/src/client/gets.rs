//! Values that are got by datagrams: memcached's frame in front of one GET of RESP, and of its reply.
//!
//! ```text
//!   request:  number │ sequence 0 │ total 1 │ reserved 0 │ *2 $3 GET $16 KEY │ zeros    16 bits each, big-endian
//!   reply:    number │ sequence 0 │ total 1 │ reserved 0 │ reply
//! ```
//!
//! (memcached's doc/protocol.txt, section "UDP protocol".) A request is padded to the longest reply that it may have,
//! since a server answers with no more bytes than it was asked by. The datagram that comes must be the reply to the one
//! request that is in flight, by its number and by its whole content: one of another number, a second copy, one byte
//! too many are wrong.

use super::conversation::{Conversation, Terms, Wrong};
use super::draws::Draws;
use super::keys::write_key;
use super::resp::{Replies, Resp};
use super::values::{Question, right};
use std::rc::Rc;

/// Bytes of the frame.
const FRAME_BYTES: usize = 8;
/// What stands around a value in a reply, beside the digits of its length.
const AROUND_BYTES: usize = b"$\r\n\r\n".len();

/// GETs over one socket.
#[derive(Debug)]
pub(crate) struct Gets {
    terms: Rc<Terms>,
    draws: Draws,
    /// That of the last request.
    number: u16,
    /// The key that was asked for and is not answered, and how long the request was.
    open: Option<(u32, usize)>,
}

impl Gets {
    fn frame(&self) -> [u8; FRAME_BYTES] {
        let [high, low] = self.number.to_be_bytes();
        [high, low, 0, 0, 0, 1, 0, 0]
    }

    /// What kind of answer a datagram is.
    fn judge(&self, key: u32, asked_bytes: usize, datagram: &[u8]) -> Result<(), String> {
        let Some((frame, reply)) = datagram.split_first_chunk::<FRAME_BYTES>() else {
            return Err(format!("{} bytes, fewer than a frame has", datagram.len()));
        };
        if frame[..2] != self.number.to_be_bytes() {
            let [high, low] = [frame[0], frame[1]];
            let received = u16::from_be_bytes([high, low]);
            return Err(format!("number {received}, and {} was asked", self.number));
        }
        if *frame != self.frame() {
            return Err(format!("the frame {frame:02x?}, which is no reply in one datagram"));
        }
        match Resp::first(reply, self.terms.request_bytes()[1] as usize)? {
            Some((first, bytes)) if bytes == reply.len() => {
                let kind = right(&self.terms, Question::Get(key), first)?;
                if datagram.len() > asked_bytes {
                    let received = datagram.len();
                    return Err(format!("{received} bytes, more than the {asked_bytes} asked by"));
                }
                self.terms.shelf().answered(kind);
                Ok(())
            }
            Some((_, bytes)) => Err(format!("{} bytes behind its reply", reply.len() - bytes)),
            None => Err(format!("{} bytes, which are no whole reply", reply.len())),
        }
    }
}

impl Conversation for Gets {
    const IS_BY_DATAGRAMS: bool = true;

    fn begin(terms: &Rc<Terms>, number: u32, turn: u32) -> Gets {
        let mut draws = terms.draws(number, turn);
        // Where the numbers begin is drawn, so that a reply to an earlier socket of this port is not taken for one.
        let number = draws.next() as u16;
        Gets { terms: Rc::clone(terms), draws, number, open: None }
    }

    fn kinds(terms: &Terms) -> Vec<(&'static str, u64)> {
        terms.shelf().kinds()
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let (key, _) = self.terms.shelf().draw(&mut self.draws);
        self.number = self.number.wrapping_add(1);
        let begin = out.len();
        out.extend_from_slice(&self.frame());
        out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
        write_key(key, out);
        out.extend_from_slice(b"\r\n");
        let longest = self.terms.request_bytes()[1] as usize;
        let digits = longest.to_string().len();
        let padded = begin + FRAME_BYTES + AROUND_BYTES + digits + longest;
        out.resize(out.len().max(padded), 0);
        self.open = Some((key, out.len() - begin));
    }

    fn hear(&mut self, bytes: &[u8]) -> (u32, Result<(), Wrong>) {
        let Some((key, asked_bytes)) = self.open else {
            return (0, Err(Wrong::Unasked { bytes: bytes.len() }));
        };
        match self.judge(key, asked_bytes, bytes) {
            Ok(()) => {
                self.open = None;
                (1, Ok(()))
            }
            Err(received) => (0, Err(Wrong::Reply { to: Question::Get(key).text(), received })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::honest::Honest;
    use crate::client::{ClientPlan, Store, Values};
    use laneway_kinds::Protocol;
    use proptest::prelude::*;

    /// A socket that has asked, and the right reply.
    fn asked(value_bytes: u32, seed: u64) -> (Gets, Vec<u8>) {
        let terms = Rc::new(Terms::new(&ClientPlan {
            to: ([127, 0, 0, 1], 6379).into(),
            protocol: Protocol::Resp,
            connections: 1,
            in_flight: 1,
            request_bytes: [value_bytes; 2],
            store: Some(Store { keys: 3, get_share: 1.0, zipf: None, forgets: false }),
            datagrams: Some(([127, 0, 0, 1], 6379).into()),
            timeout_ms: 1,
            seed,
        }));
        let (mut values, mut sets) = (Values::begin(&terms, 0, 0), Vec::new());
        (0..3).for_each(|_| values.ask(&mut sets));
        let mut store = Honest::default();
        store.answer(&mut sets);
        let (mut gets, mut out) = (Gets::begin(&terms, 0, 0), Vec::new());
        gets.ask(&mut out);
        let mut command = out[FRAME_BYTES..].to_vec();
        command.truncate(command.iter().rposition(|&byte| byte == b'\n').unwrap() + 1);
        let reply = [&out[..FRAME_BYTES], &store.answer(&mut command).concat()].concat();
        assert!(reply.len() <= out.len());
        (gets, reply)
    }

    proptest! {
        #[test]
        fn a_reply_with_any_bit_changed_or_cut_anywhere_is_wrong(
            value_bytes in 16u32..200,
            seed in any::<u64>(),
            place in 0.0f64..1.0,
            bit in 0u32..8,
        ) {
            let (mut gets, reply) = asked(value_bytes, seed);
            let at = (place * reply.len() as f64) as usize;
            let mut spoilt = reply.clone();
            spoilt[at] ^= 1 << bit;
            for wrong in [&spoilt[..], &reply[..at]] {
                let (whole, heard) = gets.hear(wrong);
                prop_assert!(whole == 0 && matches!(heard, Err(Wrong::Reply { .. })), "{:?}", heard);
            }
            prop_assert_eq!(gets.hear(&reply), (1, Ok(())));
            prop_assert_eq!(gets.hear(&reply), (0, Err(Wrong::Unasked { bytes: reply.len() })));
        }
    }
}
