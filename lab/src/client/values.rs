//! Values that are set for keys and got back (RESP2).
//!
//! ```text
//!   a value:  number of the SET (8 bytes) │ mix of seed, key and number (8 bytes) │ random bytes, by the same mix
//! ```
//!
//! A GET is answered rightly by exactly a value that was set for its key: its number is one that a SET has had, its
//! mix is that of the key and the number, and every byte behind them is what they make it. Which of the values it is
//! says nothing: a SET of another connection may come before it. Nothing at all is right of a store that [may
//! forget](super::Store::forgets) alone: every key is set before a GET is asked, and an answer of nothing is cheap. A
//! SET is answered rightly by `OK`.

use super::conversation::{Conversation, Terms, Wrong};
use super::draws::Draws;
use super::keys::{Kind, STAMP_BYTES, key_name, write_key};
use super::resp::{Replies, Reply, Resp, quoted};
use std::collections::VecDeque;
use std::rc::Rc;

/// SETs and GETs over one connection.
#[derive(Debug)]
pub(crate) struct Values {
    terms: Rc<Terms>,
    draws: Draws,
    /// What was asked and is not answered, oldest first.
    open: VecDeque<Question>,
    /// The beginning of a reply that is not whole.
    held: Vec<u8>,
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Set(u32),
    Get(u32),
}

impl Question {
    /// For a reader.
    pub(super) fn text(self) -> String {
        match self {
            Question::Set(key) => format!("SET {}", key_name(key)),
            Question::Get(key) => format!("GET {}", key_name(key)),
        }
    }
}

impl Conversation for Values {
    fn begin(terms: &Rc<Terms>, number: u32, turn: u32) -> Values {
        let draws = terms.draws(number, turn);
        Values { terms: terms.clone(), draws, open: VecDeque::new(), held: Vec::new() }
    }

    fn opening(terms: &Terms) -> u32 {
        terms.shelf().keys()
    }

    fn kinds(terms: &Terms) -> Vec<(&'static str, u64)> {
        terms.shelf().kinds()
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let shelf = self.terms.shelf();
        let (key, is_set) = match shelf.open() {
            Some(key) => (key, true),
            None => shelf.draw(&mut self.draws),
        };
        if is_set {
            out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
            write_key(key, out);
            let content = Content::of(&self.terms, key, shelf.stamp());
            out.extend_from_slice(format!("\r\n${}\r\n", content.bytes).as_bytes());
            content.write(&self.terms, out);
            self.open.push_back(Question::Set(key));
        } else {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
            write_key(key, out);
            self.open.push_back(Question::Get(key));
        }
        out.extend_from_slice(b"\r\n");
    }

    fn hear(&mut self, bytes: &[u8]) -> (u32, Result<(), Wrong>) {
        // Most of what is read ends with a whole reply, and then nothing is copied.
        let mut held = std::mem::take(&mut self.held);
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(bytes);
        }
        let all = if is_held { &held[..] } else { bytes };
        let (mut whole, mut at) = (0, 0);
        let heard = loop {
            if at == all.len() {
                break Ok(());
            }
            let Some(&question) = self.open.front() else {
                break Err(Wrong::Unasked { bytes: all.len() - at });
            };
            let value_bytes_max = self.terms.request_bytes()[1] as usize;
            match Resp::first(&all[at..], value_bytes_max) {
                Ok(None) => break Ok(()),
                Ok(Some((reply, bytes))) => match right(&self.terms, question, reply) {
                    Ok(kind) => {
                        self.terms.shelf().answered(kind);
                        self.open.pop_front();
                        (whole, at) = (whole + 1, at + bytes);
                    }
                    Err(received) => break Err(Wrong::Reply { to: question.text(), received }),
                },
                Err(received) => break Err(Wrong::Reply { to: question.text(), received }),
            }
        };
        if at == 0 && is_held {
            self.held = held;
        } else {
            self.held.extend_from_slice(&all[at..]);
        }
        (whole, heard)
    }
}

/// What kind of answer `reply` is.
///
/// # Errors
/// What was received, if it is none to this question.
pub(super) fn right(terms: &Terms, question: Question, reply: Reply<'_>) -> Result<Kind, String> {
    match (question, reply) {
        (Question::Set(_), Reply::Status(b"OK")) => Ok(Kind::Set),
        (Question::Get(_), Reply::Nothing) if terms.shelf().forgets() => Ok(Kind::Nothing),
        (Question::Get(key), Reply::Value(value)) => check(terms, key, value).map(|()| Kind::Found),
        (_, Reply::Status(text)) => Err(format!("the status {}", quoted(text))),
        (_, Reply::Error(text)) => Err(format!("the error {}", quoted(text))),
        (_, Reply::Value(value)) => Err(format!("a value of {} bytes", value.len())),
        (_, Reply::Nothing) => Err("nothing".to_owned()),
    }
}

/// Whether `value` was set for `key`.
fn check(terms: &Terms, key: u32, value: &[u8]) -> Result<(), String> {
    let never = || format!("{} bytes that were never set for it", value.len());
    let (stamp, body) = value.split_first_chunk::<STAMP_BYTES>().ok_or_else(never)?;
    let [number, mix] = [&stamp[..8], &stamp[8..]]
        .map(|half| u64::from_le_bytes(half.try_into().expect("a half has 8 bytes")));
    let content = Content::of(terms, key, number);
    if !terms.shelf().was_set(number) || content.mix != mix {
        return Err(never());
    }
    if content.bytes != value.len() {
        return Err(format!("{} bytes of a value of {}", value.len(), content.bytes));
    }
    let wanted = content.body(terms);
    if body == wanted {
        return Ok(());
    }
    let at = body.iter().zip(wanted).position(|(received, wanted)| received != wanted);
    let at = at.expect("two slices of one length differ somewhere");
    Err(format!(
        "a value of {} bytes whose byte {} is {:#04x}, not {:#04x}",
        value.len(),
        STAMP_BYTES + at,
        body[at],
        wanted[at]
    ))
}

/// What a value is, by its key and its number.
struct Content {
    number: u64,
    mix: u64,
    /// Where its random bytes lie.
    at: usize,
    /// Its whole length.
    bytes: usize,
}

impl Content {
    fn of(terms: &Terms, key: u32, number: u64) -> Content {
        // Each of the three is mixed in by a draw, so that none takes another's place.
        let mut draws = Draws::seeded(terms.seed() ^ u64::from(key));
        let mut draws = Draws::seeded(draws.next() ^ number);
        let mix = draws.next();
        let (at, bytes) = draws.piece(terms.request_bytes());
        Content { number, mix, at, bytes }
    }

    fn body<'a>(&self, terms: &'a Terms) -> &'a [u8] {
        terms.piece(self.at, self.bytes - STAMP_BYTES)
    }

    fn write(&self, terms: &Terms, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.mix.to_le_bytes());
        out.extend_from_slice(self.body(terms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::honest::{Honest, bulk};
    use crate::client::{ClientPlan, Store};
    use laneway_kinds::Protocol;
    use proptest::prelude::*;

    fn plan() -> ClientPlan {
        ClientPlan {
            to: ([127, 0, 0, 1], 6379).into(),
            protocol: Protocol::Resp,
            connections: 2,
            in_flight: 16,
            request_bytes: [16, 16],
            store: None,
            datagrams: None,
            timeout_ms: 1,
            seed: 42,
        }
    }

    fn terms(keys: u32, request_bytes: [u32; 2], get_share: f64) -> Rc<Terms> {
        let store = Some(Store { keys, get_share, zipf: None, forgets: false });
        Rc::new(Terms::new(&ClientPlan { store, request_bytes, ..plan() }))
    }

    fn ask(talk: &mut Values, n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        (0..n).for_each(|_| talk.ask(&mut out));
        out
    }

    proptest! {
        #[test]
        fn however_right_answers_are_cut_all_are_taken(
            keys in 1u32..20,
            least in 16u32..100,
            more in 0u32..300,
            asked in 1usize..60,
            piece in 1usize..200,
        ) {
            let terms = terms(keys, [least, least + more], 0.5);
            let mut store = Honest::default();
            for number in 0..2 {
                let mut talk = Values::begin(&terms, number, 0);
                let answers = store.answer(&mut ask(&mut talk, asked)).concat();
                let mut whole = 0;
                for piece in answers.chunks(piece) {
                    let (more, heard) = talk.hear(piece);
                    prop_assert_eq!(heard, Ok(()));
                    whole += more as usize;
                }
                prop_assert_eq!(whole, asked);
                prop_assert!(talk.held.is_empty());
                prop_assert_eq!(talk.hear(b"+"), (0, Err(Wrong::Unasked { bytes: 1 })));
            }
            let kinds: u64 = Values::kinds(&terms).iter().map(|(_, n)| n).sum();
            prop_assert_eq!(kinds as usize, 2 * asked);
        }

        #[test]
        fn a_value_with_any_bit_changed_or_any_byte_gone_was_never_set(
            bytes in 16u32..80,
            place in 0.0f64..1.0,
            bit in 0u32..8,
        ) {
            let terms = terms(1, [bytes, bytes], 1.0);
            let mut talk = Values::begin(&terms, 0, 0);
            let mut store = Honest::default();
            let set = store.answer(&mut ask(&mut talk, 1)).concat();
            prop_assert_eq!(talk.hear(&set), (1, Ok(())));
            let value = store.values.values().next().unwrap().clone();
            let at = (place * value.len() as f64) as usize;
            let mut spoilt = value.clone();
            spoilt[at] ^= 1 << bit;
            for wrong in [&spoilt[..], &value[..at]] {
                let mut talk = Values::begin(&terms, 0, 1);
                ask(&mut talk, 1);
                let (whole, heard) = talk.hear(&bulk(wrong));
                prop_assert!(whole == 0 && matches!(heard, Err(Wrong::Reply { .. })), "{:?}", heard);
            }
        }
    }

    #[test]
    fn the_first_requests_set_every_key_once_whatever_the_mix() {
        let terms = terms(5, [16, 16], 1.0);
        let (mut one, mut other) = (Values::begin(&terms, 0, 0), Values::begin(&terms, 1, 0));
        let mut store = Honest::default();
        assert_eq!(Values::opening(&terms), 5);
        let mut asked = [ask(&mut one, 3), ask(&mut other, 2)].concat();
        store.answer(&mut asked);
        assert_eq!(store.values.len(), 5);
        assert!(ask(&mut one, 9).starts_with(b"*2\r\n$3\r\nGET"));
    }

    #[test]
    fn a_value_of_another_key_or_of_a_set_that_was_never_asked_is_wrong() {
        let terms = terms(2, [40, 40], 1.0);
        let mut talk = Values::begin(&terms, 0, 0);
        let mut store = Honest::default();
        let set = store.answer(&mut ask(&mut talk, 2)).concat();
        assert_eq!(talk.hear(&set), (2, Ok(())));
        let value_of = |key, number| {
            let (mut value, content) = (Vec::new(), Content::of(&terms, key, number));
            content.write(&terms, &mut value);
            value
        };
        for (key, value, is_right) in [
            (0, value_of(0, 0), true),
            (0, value_of(0, 1), true),
            (0, value_of(1, 1), false),
            (0, value_of(0, 2), false),
            (1, value_of(1, 0), true),
            (1, Vec::new(), false),
        ] {
            assert_eq!(check(&terms, key, &value).is_ok(), is_right, "{key} {value:?}");
        }
    }

    #[test]
    fn nothing_is_an_answer_of_a_store_that_may_forget_alone() {
        for forgets in [true, false] {
            let store = Some(Store { keys: 1, get_share: 1.0, zipf: None, forgets });
            let terms = Rc::new(Terms::new(&ClientPlan { store, ..plan() }));
            terms.shelf().skip_opening();
            let mut talk = Values::begin(&terms, 0, 0);
            ask(&mut talk, 1);
            let (whole, heard) = talk.hear(b"$-1\r\n");
            assert_eq!((whole, heard.is_ok()), (u32::from(forgets), forgets));
            let nothing =
                Values::kinds(&terms).iter().find(|it| it.0 == "GET, nothing").map(|it| it.1);
            assert_eq!(nothing, Some(u64::from(forgets)));
        }
    }

    #[test]
    fn what_is_no_answer_is_reported_with_what_was_asked() {
        let refused = |get_share, received: &[u8]| {
            let terms = terms(1, [16, 16], get_share);
            terms.shelf().skip_opening();
            let mut talk = Values::begin(&terms, 0, 0);
            ask(&mut talk, 1);
            let (whole, heard) = talk.hear(received);
            (whole, heard.unwrap_err().to_string())
        };
        for (get_share, received, part) in [
            (
                0.0,
                &b"-OOM command not allowed\r\n"[..],
                "SET key:000000000000 was answered with the error `OOM",
            ),
            (0.0, b"+QUEUED\r\n", "with the status `QUEUED`"),
            (0.0, b"$-1\r\n", "with nothing"),
            (0.0, b"$2\r\nOK\r\n", "with a value of 2 bytes"),
            (1.0, b"+OK\r\n", "GET key:000000000000 was answered with the status `OK`"),
            (1.0, b"$3\r\nfoo\r\n", "with 3 bytes that were never set for it"),
            (1.0, b"$17\r\n", "with `$17`"),
            (1.0, b":0\r\n", "with `:0`"),
            (1.0, b"*0\r\n", "with `*0`"),
            (1.0, b"$-1\r\n", "GET key:000000000000 was answered with nothing"),
        ] {
            let (whole, why) = refused(get_share, received);
            assert!(whole == 0 && why.contains(part), "{why}");
        }
    }
}
