//! Random bytes that come back as they went (RFC 862).

use super::conversation::{Conversation, Terms, Wrong};
use super::draws::Draws;
use std::rc::Rc;

/// Random bytes, which come back as they went.
#[derive(Debug)]
pub(crate) struct SameBytes {
    terms: Rc<Terms>,
    /// What will be asked next, and, the same numbers once more, what is to come next.
    asking: Draws,
    hearing: Draws,
    /// Requests that are not wholly answered.
    open: u64,
    /// Of the answer under way: where it lies in the pool, its length, and how much of it was received.
    answer: Option<(usize, usize, usize)>,
}

impl Conversation for SameBytes {
    fn begin(terms: &Rc<Terms>, number: u32, turn: u32) -> SameBytes {
        let draws = terms.draws(number, turn);
        SameBytes {
            terms: terms.clone(),
            asking: draws.clone(),
            hearing: draws,
            open: 0,
            answer: None,
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let (from, length) = self.asking.piece(self.terms.request_bytes());
        out.extend_from_slice(self.terms.piece(from, length));
        self.open += 1;
    }

    fn hear(&mut self, mut bytes: &[u8]) -> (u32, Result<(), Wrong>) {
        let mut whole = 0;
        while !bytes.is_empty() {
            if self.open == 0 {
                return (whole, Err(Wrong::Unasked { bytes: bytes.len() }));
            }
            let (from, length, received) = match self.answer {
                Some(answer) => answer,
                None => {
                    let (from, length) = self.hearing.piece(self.terms.request_bytes());
                    (from, length, 0)
                }
            };
            let (now, rest) = bytes.split_at((length - received).min(bytes.len()));
            let wanted = self.terms.piece(from + received, now.len());
            if now != wanted {
                let at = now.iter().zip(wanted).position(|(now, wanted)| now != wanted);
                let at = at.expect("two slices of one length differ somewhere");
                let (wanted, byte) = (wanted[at], now[at]);
                let wrong = Wrong::Byte { at: received + at, of: length, wanted, received: byte };
                return (whole, Err(wrong));
            }
            let received = received + now.len();
            self.answer = (received < length).then_some((from, length, received));
            if received == length {
                self.open -= 1;
                whole += 1;
            }
            bytes = rest;
        }
        (whole, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientPlan;
    use laneway_kinds::Protocol;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn begin(request_bytes: [u32; 2], seed: u64, number: u32) -> SameBytes {
        SameBytes::begin(&Rc::new(terms(request_bytes, seed)), number, 0)
    }

    fn terms(request_bytes: [u32; 2], seed: u64) -> Terms {
        Terms::new(&ClientPlan {
            to: ([127, 0, 0, 1], 7).into(),
            protocol: Protocol::Echo,
            connections: 1,
            in_flight: 1,
            request_bytes,
            store: None,
            datagrams: None,
            timeout_ms: 1,
            seed,
        })
    }

    fn asked(talk: &mut SameBytes, requests: usize) -> Vec<Vec<u8>> {
        let one = |_| {
            let mut out = Vec::new();
            talk.ask(&mut out);
            out
        };
        (0..requests).map(one).collect()
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut_as_many_answers_are_whole(
            seed: u64,
            least in 1u32..200,
            more in 0u32..200,
            requests in 1usize..20,
            cuts in vec(0.0f64..1.0, 0..40),
        ) {
            let mut talk = begin([least, least + more], seed, 3);
            let all = asked(&mut talk, requests);
            prop_assert!(all.iter().all(|one| (least..=least + more).contains(&(one.len() as u32))));
            let bytes = all.concat();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| (cut * bytes.len() as f64) as usize).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            let (mut from, mut whole) = (0, 0);
            for end in ends {
                let (more, heard) = talk.hear(&bytes[from..end]);
                prop_assert_eq!(heard, Ok(()));
                (from, whole) = (end, whole + more as usize);
                // As many as lie wholly in front of the cut.
                let lengths = all.iter().scan(0, |sum, one| { *sum += one.len(); Some(*sum) });
                prop_assert_eq!(whole, lengths.filter(|&sum| sum <= end).count());
            }
            prop_assert_eq!(talk.hear(b"x"), (0, Err(Wrong::Unasked { bytes: 1 })));
        }

        #[test]
        fn a_byte_that_changed_is_seen_wherever_it_is(
            seed: u64,
            requests in 1usize..8,
            place in 0.0f64..1.0,
            flip in 1u8..=255,
            cut in 0.0f64..1.0,
        ) {
            let mut talk = begin([16, 64], seed, 0);
            let all = asked(&mut talk, requests);
            let mut bytes = all.concat();
            let at = (place * bytes.len() as f64) as usize;
            bytes[at] ^= flip;
            let cut = (cut * bytes.len() as f64) as usize;
            let (mut whole, mut heard) = talk.hear(&bytes[..cut]);
            if heard.is_ok() {
                let more;
                (more, heard) = talk.hear(&bytes[cut..]);
                whole += more;
            }
            let in_front: usize = all[..whole as usize].iter().map(Vec::len).sum();
            let expected = Wrong::Byte {
                at: at - in_front,
                of: all[whole as usize].len(),
                wanted: bytes[at] ^ flip,
                received: bytes[at],
            };
            prop_assert_eq!(heard, Err(expected));
        }
    }

    #[test]
    fn connections_and_turns_say_different_things_and_a_seed_says_the_same_again() {
        let first = |seed, number, turn| {
            let mut out = Vec::new();
            let terms = Rc::new(terms([64, 64], seed));
            SameBytes::begin(&terms, number, turn).ask(&mut out);
            out
        };
        let firsts = [first(1, 0, 0), first(1, 1, 0), first(1, 0, 1), first(2, 0, 0)];
        for (i, one) in firsts.iter().enumerate() {
            assert!(firsts[i + 1..].iter().all(|other| other != one));
        }
        assert_eq!(first(1, 0, 0), firsts[0]);
    }

    #[test]
    fn answers_in_another_order_are_wrong() {
        let mut talk = begin([32, 32], 7, 0);
        let all = asked(&mut talk, 2);
        let (whole, heard) = talk.hear(&[&all[1][..], &all[0][..]].concat());
        assert!(whole == 0 && matches!(heard, Err(Wrong::Byte { .. })), "{heard:?}");
    }
}
