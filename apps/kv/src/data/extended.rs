//! Numbers with 64 binary digits, as INCRBYFLOAT and HINCRBYFLOAT compute: Redis does so in the x87's long double, and
//! its replies show it. A number is `±mantissa * 2^exponent`, the mantissa's highest bit set; 0 has none.

use super::hexadecimal::{Hexadecimal, power};
use std::cmp::Ordering;

/// Longer texts are no numbers to Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// The greatest and least exponents of a long double, for a mantissa that is a whole number; of the smallest numbers
/// less than 64 bits count, behind all decimals that are written.
const EXPONENT_MAX: i64 = 16_383 - 63;
const EXPONENT_MIN: i64 = -16_382 - 63 - 63;
/// Powers of ten from well below the least long double to above the greatest.
const POWERS: std::ops::RangeInclusive<i64> = -5_000..=4_933;
/// The greatest power of ten in a word, and its digits.
const WORD_TEN: u32 = 1_000_000_000;
const WORD_DIGITS: u64 = 9;
/// Decimals that are written.
const DECIMALS: usize = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i64,
}

/// What a text reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Finite(Extended),
    Infinite,
}

impl Extended {
    /// Reads a number; `None` if it is none, too large, or so small that it would become 0.
    pub(crate) fn read(text: &[u8]) -> Option<Reading> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if let Some(number) = Hexadecimal::read(text) {
            return Extended::of_hexadecimal(negative, number).map(Reading::Finite);
        }
        let lower = text.to_ascii_lowercase();
        if lower == b"inf" || lower == b"infinity" {
            return Some(Reading::Infinite);
        }
        let (digits, exponent) = match lower.iter().position(|byte| *byte == b'e') {
            Some(at) => (&lower[..at], power(&lower[at + 1..])?),
            None => (&lower[..], 0),
        };
        let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut number = Natural::default();
        let (mut group, mut factor) = (0, 1);
        for digit in whole.iter().chain(fraction) {
            let digit = u32::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
            (group, factor) = (group * 10 + digit, factor * 10);
            if factor == WORD_TEN {
                number.multiply_and_add(factor, group);
                (group, factor) = (0, 1);
            }
        }
        number.multiply_and_add(factor, group);
        if number.is_zero() {
            return Some(Reading::Finite(Extended { negative, mantissa: 0, exponent: 0 }));
        }
        let power = exponent - fraction.len() as i64;
        // A bit is 0.3 of a digit, and a little more. What is far off is not computed.
        let highest = power + number.bits() as i64 * 3 / 10;
        if !POWERS.contains(&highest) {
            return None;
        }
        let mut extended = if power >= 0 {
            number.multiply_by_ten_to(power.unsigned_abs());
            Extended::rounded(negative, &number, 0, false)
        } else {
            let mut divisor = Natural::from(1);
            divisor.multiply_by_ten_to(power.unsigned_abs());
            // A quotient of at least 66 bits rounds to 64 as the exact one would, if it is known whether more follows.
            let shift = 66 + divisor.bits() as i64 - number.bits() as i64;
            let cut = usize::try_from(-shift).unwrap_or(0);
            let is_cut = number.has_below(cut);
            number.shift_right(cut);
            number.shift_left(usize::try_from(shift).unwrap_or(0));
            let (quotient, has_rest) = number.divide(&divisor);
            Extended::rounded(negative, &quotient, -shift, has_rest || is_cut)
        };
        if extended.exponent > EXPONENT_MAX || extended.exponent < EXPONENT_MIN {
            return None;
        }
        extended.negative = negative;
        Some(Reading::Finite(extended))
    }

    fn of_hexadecimal(negative: bool, number: Hexadecimal) -> Option<Extended> {
        let Hexadecimal { mantissa, exponent, has_more } = number;
        if mantissa == 0 {
            return Some(Extended { negative, mantissa: 0, exponent: 0 });
        }
        let mut natural = Natural::from((mantissa >> 64) as u64);
        natural.shift_left(64);
        natural.add(&Natural::from(mantissa as u64));
        let extended = Extended::rounded(negative, &natural, exponent, has_more);
        (EXPONENT_MIN..=EXPONENT_MAX).contains(&extended.exponent).then_some(extended)
    }

    /// The sum, rounded; `None` if it is too large.
    pub(crate) fn add(self, other: Extended) -> Option<Extended> {
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let exponent = self.exponent.min(other.exponent);
        let aligned = |number: Extended| {
            let mut natural = Natural::from(number.mantissa);
            natural.shift_left((number.exponent - exponent) as usize);
            natural
        };
        let (mut one, mut two) = (aligned(self), aligned(other));
        let (negative, sum) = if self.negative == other.negative {
            one.add(&two);
            (self.negative, one)
        } else {
            match one.order(&two) {
                Ordering::Equal => {
                    return Some(Extended { negative: false, mantissa: 0, exponent: 0 });
                }
                Ordering::Greater => {
                    one.subtract(&two);
                    (self.negative, one)
                }
                Ordering::Less => {
                    two.subtract(&one);
                    (other.negative, two)
                }
            }
        };
        let sum = Extended::rounded(negative, &sum, exponent, false);
        (sum.exponent <= EXPONENT_MAX).then_some(sum)
    }

    /// A thousand of it, rounded as a product is and then up to a whole number; `None` if that is none of 64 bits.
    pub(crate) fn thousandfold(self) -> Option<i64> {
        if self.mantissa == 0 {
            return Some(0);
        }
        let mut product = Natural::from(self.mantissa);
        product.multiply_and_add(1000, 0);
        let product = Extended::rounded(self.negative, &product, self.exponent, false);
        // The mantissa has 64 bits: without a fraction it is too large.
        let fraction_bits = u32::try_from(-product.exponent).ok().filter(|bits| *bits > 0)?;
        let whole = product.mantissa.checked_shr(fraction_bits).unwrap_or(0);
        let is_whole = product.mantissa.trailing_zeros() >= fraction_bits;
        let whole = i128::from(whole);
        let up = if self.negative { -whole } else { whole + i128::from(!is_whole) };
        i64::try_from(up).ok()
    }

    /// As `%.17Lf` without the zeros at the end.
    pub(crate) fn text(self) -> String {
        if self.mantissa == 0 {
            return "0".to_owned();
        }
        let mut scaled = Natural::from(self.mantissa);
        (0..DECIMALS).for_each(|_| scaled.multiply_and_add(10, 0));
        if self.exponent >= 0 {
            scaled.shift_left(self.exponent as usize);
        } else {
            scaled.shift_right_rounding(self.exponent.unsigned_abs() as usize);
        }
        let digits = scaled.decimal();
        let digits = format!("{digits:0>width$}", width = DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS);
        let text = format!("{whole}.{fraction}");
        let text = super::numbers::without_trailing_zeros(&text);
        // A long double keeps the sign of a 0, and the reply has it only if something else follows.
        if self.negative && text != "0" { format!("-{text}") } else { text.to_owned() }
    }

    /// `number * 2^exponent` and perhaps a little more, to the nearest of 64 bits, to even between two.
    fn rounded(negative: bool, number: &Natural, exponent: i64, has_more: bool) -> Extended {
        let bits = number.bits() as i64;
        let excess = bits - 64;
        if excess <= 0 {
            let mantissa = number.low_64() << -excess;
            return Extended { negative, mantissa, exponent: exponent + excess };
        }
        let mut kept = number.clone();
        let halves = kept.shift_right(excess as usize);
        let mantissa = kept.low_64();
        let rounds_up = match halves {
            Ordering::Greater => true,
            Ordering::Equal => has_more || mantissa & 1 == 1,
            Ordering::Less => false,
        };
        match mantissa.checked_add(u64::from(rounds_up)) {
            Some(mantissa) => Extended { negative, mantissa, exponent: exponent + excess },
            None => Extended { negative, mantissa: 1 << 63, exponent: exponent + excess + 1 },
        }
    }
}

/// A whole number of any size, 32 bits each, the low ones first; the last is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl From<u64> for Natural {
    fn from(number: u64) -> Natural {
        let mut natural = Natural(vec![number as u32, (number >> 32) as u32]);
        natural.trim();
        natural
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |last| self.0.len() * 32 - last.leading_zeros() as usize)
    }

    fn low_64(&self) -> u64 {
        let word = |at: usize| u64::from(self.0.get(at).copied().unwrap_or(0));
        word(0) | word(1) << 32
    }

    fn multiply_and_add(&mut self, factor: u32, added: u32) {
        let mut carry = u64::from(added);
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_by_ten_to(&mut self, power: u64) {
        (0..power / WORD_DIGITS).for_each(|_| self.multiply_and_add(WORD_TEN, 0));
        (0..power % WORD_DIGITS).for_each(|_| self.multiply_and_add(10, 0));
    }

    /// True if any of its lowest bits is set.
    fn has_below(&self, bits: usize) -> bool {
        let lowest = self.0.iter().position(|word| *word != 0);
        lowest.is_some_and(|at| at * 32 + (self.0[at].trailing_zeros() as usize) < bits)
    }

    fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        let (words, bits) = (bits / 32, bits % 32);
        let mut carry = 0;
        for word in &mut self.0 {
            let shifted = u64::from(*word) << bits | carry;
            *word = shifted as u32;
            carry = shifted >> 32;
        }
        self.0.push(carry as u32);
        self.0.splice(0..0, std::iter::repeat_n(0, words));
        self.trim();
    }

    /// Shifts right; what fell off against one half of what is now the lowest bit.
    fn shift_right(&mut self, bits: usize) -> Ordering {
        if bits == 0 {
            return Ordering::Less;
        }
        let bit = |at: usize| self.0.get(at / 32).is_some_and(|word| word >> (at % 32) & 1 == 1);
        let halves = match (bit(bits - 1), self.has_below(bits - 1)) {
            (true, true) => Ordering::Greater,
            (true, false) => Ordering::Equal,
            (false, _) => Ordering::Less,
        };
        self.0.drain(..(bits / 32).min(self.0.len()));
        let (bits, mut carry) = (bits % 32, 0);
        for word in self.0.iter_mut().rev() {
            let both = carry << 32 | u64::from(*word);
            carry = u64::from(*word);
            *word = (both >> bits) as u32;
        }
        self.trim();
        halves
    }

    fn shift_right_rounding(&mut self, bits: usize) {
        let halves = self.shift_right(bits);
        let is_odd = self.low_64() & 1 == 1;
        if halves.is_gt() || (halves.is_eq() && is_odd) {
            self.add(&Natural::from(1));
        }
    }

    fn order(&self, other: &Natural) -> Ordering {
        let by_len = self.0.len().cmp(&other.0.len());
        by_len.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn add(&mut self, other: &Natural) {
        let len = self.0.len().max(other.0.len());
        self.0.resize(len + 1, 0);
        let mut carry = 0;
        for (at, word) in self.0.iter_mut().enumerate() {
            carry += u64::from(*word) + u64::from(other.0.get(at).copied().unwrap_or(0));
            *word = carry as u32;
            carry >>= 32;
        }
        self.trim();
    }

    /// Takes away a number that is no greater.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        for (at, word) in self.0.iter_mut().enumerate() {
            let (less, first) = word.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            (*word, borrow) = (less, first || second);
        }
        self.trim();
    }

    /// The quotient, bit by bit, and whether there is a rest. The quotients here are short.
    fn divide(mut self, divisor: &Natural) -> (Natural, bool) {
        let mut quotient = Natural::default();
        let steps = self.bits().saturating_sub(divisor.bits());
        let mut shifted = divisor.clone();
        shifted.shift_left(steps);
        for _ in 0..=steps {
            quotient.shift_left(1);
            if !self.order(&shifted).is_lt() {
                self.subtract(&shifted);
                quotient.add(&Natural::from(1));
            }
            shifted.shift_right(1);
        }
        (quotient, !self.is_zero())
    }

    fn decimal(mut self) -> String {
        const BASE: u64 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for word in self.0.iter_mut().rev() {
                let both = rest << 32 | u64::from(*word);
                *word = (both / BASE) as u32;
                rest = both % BASE;
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> String {
        let read = |text: &str| match Extended::read(text.as_bytes()) {
            Some(Reading::Finite(number)) => number,
            other => panic!("{text} reads as {other:?}"),
        };
        read(one).add(read(other)).expect("not too large").text()
    }

    #[test]
    fn sums_are_those_of_a_long_double() {
        for (one, other, text) in [
            ("0", "1000.1", "1000.09999999999999998"),
            ("0.1", "0.2", "0.3"),
            ("1.5", "9223372036854775807", "9223372036854775808"),
            ("2.5", "9223372036854775807", "9223372036854775810"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-1.5", "0.25", "-1.25"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("1e-20", "0", "0"),
            ("0", "0x10", "16"),
            ("0x1.8p1", "-0X1", "2"),
            ("0x1p-16400", "29.5", "29.5"),
            ("1e-4940", "29.5", "29.5"),
            ("29.5", "0x1.23456789abcdef0123456789p0", "30.63777777777777776"),
            ("0x1.0000000000000001p60", "0", "1152921504606846976"),
            ("0x1.00000000000000011p60", "0", "1152921504606846976.125"),
            ("123456789012345678901234567890", "0", "123456789012345678899921813504"),
        ] {
            assert_eq!(sum(one, other), text, "{one} + {other}");
        }
    }

    #[test]
    fn long_numbers_are_as_exact_as_short_ones() {
        let zeros = "0".repeat(4_000);
        for (text, short) in [
            (format!("1{zeros}e-4000"), "1"),
            (format!("0.{zeros}1e4001"), "1"),
            (format!("1152921504606846976.0625{zeros}"), "1152921504606846976"),
            (format!("1152921504606846976.0625{zeros}1"), "1152921504606846976.125"),
            (format!("1180591620717411303488.{zeros}"), "1180591620717411303424"),
            (format!("1180591620717411303488.{zeros}1"), "1180591620717411303552"),
            (format!("1180591620717411303488{zeros}e-4000"), "1180591620717411303424"),
            (format!("1180591620717411303488{zeros}1e-4001"), "1180591620717411303552"),
        ] {
            assert_eq!(sum(&text, "0"), short, "{text}");
        }
        let finite =
            |text: &str| matches!(Extended::read(text.as_bytes()), Some(Reading::Finite(_)));
        for text in
            ["1.18e4932", "4e-4951", &format!("0.{zeros}118e8933"), &format!("4{zeros}e-8951")]
        {
            assert!(finite(text), "{text}");
        }
        for text in
            ["1.19e4932", "1e-4952", &format!("0.{zeros}119e8933"), &format!("1{zeros}e-8952")]
        {
            assert_eq!(Extended::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", " 1", "1 ", "abc", "1e", "e5", ".", "1e99999", "1e-99999", "--1", "nan"] {
            assert_eq!(Extended::read(text.as_bytes()), None, "{text}");
        }
        for text in ["0x", "0xg", "0x.", "0x1p", "0x1p99999", "0x1p-99999", "--0x1", " 0x1"] {
            assert_eq!(Extended::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Extended::read(b"-inf"), Some(Reading::Infinite));
        assert!(Extended::read(b".5").is_some() && Extended::read(b"5.").is_some());
    }
}
