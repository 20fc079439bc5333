//! What is asked of a store of keys and values: which keys, how often each, and what was set of them so far.
//!
//! Keys are `key:` and twelve digits. A value says by its first bytes which of all that were set it is, and for which
//! key, so whatever a store gives back is known to have been set for that key, or not, without keeping any of it; see
//! [`Values`](super::Values).

use super::draws::Draws;
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// Most keys: each is set once before anything is measured.
pub const KEYS_MAX: u32 = 10_000_000;
/// Largest exponent: beyond it nearly all requests are for one key.
const ZIPF_MAX: f64 = 5.0;
/// Bytes of a value that say which it is: its number, and a mix of that with its key.
pub(super) const STAMP_BYTES: usize = 16;

/// What is set and got.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// How many keys there are. Each is set once before anything is measured.
    pub keys: u32,
    /// How many of the requests get a value, a share; the others set one.
    pub get_share: f64,
    /// Keys are drawn by Zipf's law with this exponent: the second is asked for 2^-s times as often as the first, and
    /// so on. None: each as often as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zipf: Option<f64>,
    /// It may forget what was set, be it that it has no room or that it was started again: a GET is right that finds
    /// nothing. Of any other that is a wrong answer, since every key was set.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub forgets: bool,
}

impl Store {
    /// What is wrong with it, as of a [`ClientPlan`](super::ClientPlan).
    pub(super) fn check(&self) -> Result<(), (&'static str, String, String)> {
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(("store.keys", self.keys.to_string(), format!("1 to {KEYS_MAX}")));
        }
        if !(0.0..=1.0).contains(&self.get_share) {
            let hint = "0 to 1, a share: 0.5 gets as often as it sets";
            return Err(("store.get_share", self.get_share.to_string(), hint.to_owned()));
        }
        match self.zipf {
            Some(s) if !(s > 0.0 && s <= ZIPF_MAX) => {
                let hint = format!("above 0 and at most {ZIPF_MAX}; without it all keys are alike");
                Err(("store.zipf", s.to_string(), hint))
            }
            _ => Ok(()),
        }
    }

    /// What is asked, in a few words.
    pub(super) fn sentence(&self) -> String {
        let keys = match self.keys {
            1 => "one key".to_owned(),
            n => format!("{n} keys"),
        };
        let drawn = match self.zipf {
            Some(s) => format!("by Zipf's law ({s})"),
            None => "uniformly".to_owned(),
        };
        format!("{:.0} % GET of {keys}, {drawn}", self.get_share * 100.0)
    }
}

/// What the connections of a client know of a store together.
#[derive(Debug)]
pub(super) struct Shelf {
    store: Store,
    law: Option<Zipf>,
    /// Keys that were set in the beginning.
    opened: Cell<u32>,
    /// Values that were set, or are about to be: each has its number.
    stamped: Cell<u64>,
    /// Answers by kind: set, found, not found.
    answers: [Cell<u64>; 3],
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Set = 0,
    Found = 1,
    Nothing = 2,
}

impl Kind {
    const ALL: [(Kind, &'static str); 3] =
        [(Kind::Set, "SET"), (Kind::Found, "GET, a value"), (Kind::Nothing, "GET, nothing")];
}

impl Shelf {
    pub(super) fn new(store: Store) -> Shelf {
        let law = store.zipf.map(|s| Zipf::new(store.keys, s));
        let answers = Default::default();
        Shelf { store, law, opened: Cell::new(0), stamped: Cell::new(0), answers }
    }

    /// Keys there are.
    pub(super) fn keys(&self) -> u32 {
        self.store.keys
    }

    /// Whether a GET may find nothing.
    pub(super) fn forgets(&self) -> bool {
        self.store.forgets
    }

    /// The next key that was never set, while there is one.
    pub(super) fn open(&self) -> Option<u32> {
        let key = self.opened.get();
        (key < self.store.keys).then(|| {
            self.opened.set(key + 1);
            key
        })
    }

    /// Leaves out that each key is set once.
    #[cfg(test)]
    pub(super) fn skip_opening(&self) {
        self.opened.set(self.store.keys);
    }

    /// What is asked next: of which key, and whether it is set.
    pub(super) fn draw(&self, draws: &mut Draws) -> (u32, bool) {
        let is_set = draws.share() >= self.store.get_share;
        let key = match &self.law {
            Some(law) => law.draw(draws),
            None => (((draws.next() >> 32) * u64::from(self.store.keys)) >> 32) as u32,
        };
        (key, is_set)
    }

    /// The number of the value that is set next.
    pub(super) fn stamp(&self) -> u64 {
        let stamp = self.stamped.get();
        self.stamped.set(stamp + 1);
        stamp
    }

    /// Whether a value has this number by now.
    pub(super) fn was_set(&self, stamp: u64) -> bool {
        stamp < self.stamped.get()
    }

    /// An answer of this kind was received.
    pub(super) fn answered(&self, kind: Kind) {
        let answers = &self.answers[kind as usize];
        answers.set(answers.get() + 1);
    }

    /// How many of each were received.
    pub(super) fn kinds(&self) -> Vec<(&'static str, u64)> {
        Kind::ALL.map(|(kind, name)| (name, self.answers[kind as usize].get())).to_vec()
    }
}

/// Writes the name of a key.
pub(super) fn write_key(key: u32, out: &mut Vec<u8>) {
    let mut text = [b'0'; 12];
    let mut rest = key;
    for digit in text.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(b"key:");
    out.extend_from_slice(&text);
}

/// The name of a key, for a reader.
pub(super) fn key_name(key: u32) -> String {
    format!("key:{key:012}")
}

/// Ranks by Zipf's law without a table (rejection-inversion: Hörmann and Derflinger, 1996).
#[derive(Debug)]
struct Zipf {
    n: f64,
    s: f64,
    /// The integral of the hat from the first rank, and to the last.
    first: f64,
    last: f64,
    /// Nearer than this to its rank a draw is taken without another look.
    near: f64,
}

impl Zipf {
    fn new(keys: u32, s: f64) -> Zipf {
        let mut law = Zipf { n: keys.into(), s, first: 0.0, last: 0.0, near: 0.0 };
        law.first = law.integral(1.5) - 1.0;
        law.last = law.integral(law.n + 0.5);
        law.near = 2.0 - law.inverse(law.integral(2.5) - law.hat(2.0));
        law
    }

    /// x^-s.
    fn hat(&self, x: f64) -> f64 {
        (-self.s * x.ln()).exp()
    }

    /// The integral of the hat from 1 to `x`: (x^(1-s) - 1) / (1-s), and ln x where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.s) * log;
        // exp_m1(y) / y has the limit 1, and loses its digits near it.
        let slope = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
        slope * log
    }

    /// Where the integral has this value.
    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.s)).max(-1.0);
        let slope = if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
        (slope * area).exp()
    }

    /// A rank, from 0.
    fn draw(&self, draws: &mut Draws) -> u32 {
        loop {
            let area = self.last + draws.share() * (self.first - self.last);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.near || area >= self.integral(rank + 0.5) - self.hat(rank) {
                return rank as u32 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(store: Store, n: u32) -> Vec<u32> {
        let (shelf, mut draws) = (Shelf::new(store), Draws::seeded(7));
        let mut counts = vec![0; store.keys as usize];
        (0..n).for_each(|_| counts[shelf.draw(&mut draws).0 as usize] += 1);
        counts
    }

    #[test]
    fn keys_are_asked_for_as_often_as_their_law_says() {
        const N: u32 = 200_000;
        for zipf in [None, Some(0.5), Some(0.99), Some(1.0), Some(1.4), Some(3.0)] {
            for keys in [1, 2, 3, 50] {
                let weight = |key: u32| f64::from(key + 1).powf(-zipf.unwrap_or(0.0));
                let all: f64 = (0..keys).map(weight).sum();
                let counts = drawn(Store { keys, get_share: 0.5, zipf, forgets: false }, N);
                for (key, &n) in (0..keys).zip(&counts) {
                    let expected = f64::from(N) * weight(key) / all;
                    // Five standard deviations, and the draws are always the same.
                    let spread = 5.0 * expected.sqrt() + 5.0;
                    let off = f64::from(n) - expected;
                    assert!(
                        off.abs() <= spread,
                        "{zipf:?}, key {key} of {keys}: {n} for {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn as_many_requests_get_a_value_as_their_share_says() {
        for (get_share, sets) in [(0.0, 1_000), (1.0, 0)] {
            let shelf = Shelf::new(Store { keys: 9, get_share, zipf: None, forgets: false });
            let mut draws = Draws::seeded(1);
            let n = (0..1_000).filter(|_| shelf.draw(&mut draws).1).count();
            assert_eq!(n, sets);
        }
        let shelf = Shelf::new(Store { keys: 9, get_share: 0.8, zipf: None, forgets: false });
        let mut draws = Draws::seeded(1);
        let n = (0..10_000).filter(|_| shelf.draw(&mut draws).1).count();
        assert!((1_800..2_200).contains(&n), "{n}");
    }

    #[test]
    fn every_key_is_opened_once_and_named_in_full() {
        let shelf = Shelf::new(Store { keys: 3, get_share: 1.0, zipf: None, forgets: false });
        let opened: Vec<u32> = std::iter::from_fn(|| shelf.open()).collect();
        assert_eq!((opened, shelf.open()), (vec![0, 1, 2], None));
        for key in [0, 42, KEYS_MAX - 1, u32::MAX] {
            let mut name = Vec::new();
            write_key(key, &mut name);
            assert_eq!(String::from_utf8(name).unwrap(), key_name(key));
        }
        assert_eq!(key_name(42), "key:000000000042");
    }

    #[test]
    fn a_store_that_cannot_be_is_refused_by_name() {
        let good = Store { keys: KEYS_MAX, get_share: 1.0, zipf: Some(0.99), forgets: false };
        assert_eq!(good.check(), Ok(()));
        for (bad, what) in [
            (Store { keys: 0, ..good }, "store.keys"),
            (Store { keys: KEYS_MAX + 1, ..good }, "store.keys"),
            (Store { get_share: 1.01, ..good }, "store.get_share"),
            (Store { get_share: f64::NAN, ..good }, "store.get_share"),
            (Store { zipf: Some(0.0), ..good }, "store.zipf"),
            (Store { zipf: Some(f64::NAN), ..good }, "store.zipf"),
            (Store { zipf: Some(5.1), ..good }, "store.zipf"),
        ] {
            assert_eq!(bad.check().unwrap_err().0, what, "{bad:?}");
        }
    }
}
