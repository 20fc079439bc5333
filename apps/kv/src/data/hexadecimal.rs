//! Hexadecimal floating-point numbers, as the C library reads them for Redis: `0x10`, `0X1.8p-3`. No sign stands here.

/// `mantissa * 2^exponent`, and a little more if digits were left out that are not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hexadecimal {
    pub(super) mantissa: u128,
    pub(super) exponent: i64,
    pub(super) has_more: bool,
}

/// A mantissa below this has room for another digit.
const MANTISSA_MAX: u128 = 1 << 124;

/// Bits of a double, and the exponents of its highest one.
const DOUBLE_BITS: i64 = 53;
const DOUBLE_EXPONENTS: std::ops::RangeInclusive<i64> = -1022..=1023;

impl Hexadecimal {
    /// Reads a text as a whole; `None` if it is no such number.
    pub(super) fn read(text: &[u8]) -> Option<Hexadecimal> {
        let [b'0', b'x' | b'X', rest @ ..] = text else { return None };
        let (digits, power) = match rest.iter().position(|byte| matches!(byte, b'p' | b'P')) {
            Some(at) => (&rest[..at], power(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let mut number = Hexadecimal { mantissa: 0, exponent: power, has_more: false };
        let (mut is_fraction, mut is_any) = (false, false);
        for &byte in digits {
            if byte == b'.' && !std::mem::replace(&mut is_fraction, true) {
                continue;
            }
            let digit = char::from(byte).to_digit(16)?;
            is_any = true;
            if number.mantissa < MANTISSA_MAX {
                number.mantissa = number.mantissa << 4 | u128::from(digit);
                number.exponent -= if is_fraction { 4 } else { 0 };
            } else {
                number.has_more |= digit != 0;
                number.exponent += if is_fraction { 0 } else { 4 };
            }
        }
        is_any.then_some(number)
    }

    /// To the nearest double, to even between two; an infinity if it is too large, 0 if it is too small.
    pub(super) fn double(self) -> f64 {
        let Hexadecimal { mantissa, exponent, has_more } = self;
        if mantissa == 0 {
            return 0.0;
        }
        let bits = i64::from(u128::BITS - mantissa.leading_zeros());
        let highest = exponent + bits - 1;
        if highest > *DOUBLE_EXPONENTS.end() {
            return f64::INFINITY;
        }
        // A number that is small has fewer bits.
        let kept_bits = DOUBLE_BITS.min(DOUBLE_BITS + highest - DOUBLE_EXPONENTS.start());
        if kept_bits < 0 {
            return 0.0;
        }
        let dropped = (bits - kept_bits).max(0) as u32;
        let mut kept = mantissa.checked_shr(dropped).unwrap_or(0);
        if dropped > 0 {
            let half = 1 << (dropped - 1);
            let rest = mantissa & (half | (half - 1));
            let is_above = rest > half || rest == half && (has_more || kept & 1 == 1);
            kept += u128::from(is_above);
        }
        kept as f64 * power_of_two(exponent + i64::from(dropped))
    }
}

/// `2^power`, which a double can be.
fn power_of_two(power: i64) -> f64 {
    let (least, bits) = (*DOUBLE_EXPONENTS.start(), DOUBLE_BITS - 1);
    f64::from_bits(match power < least {
        true => 1 << (power - least + bits).max(0),
        false => ((power - least + 1) as u64) << bits,
    })
}

/// The power behind an `e` or a `p`.
pub(super) fn power(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut power: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?);
        power = (power * 10 + digit).min(1_000_000);
    }
    Some(if negative { -power } else { power })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The doubles are those of glibc's strtod.
    #[test]
    fn hexadecimal_numbers_are_the_nearest_doubles() {
        for (text, double) in [
            ("0x10", 16.0),
            ("0X1P+3", 8.0),
            ("0x.8", 0.5),
            ("0x1.", 1.0),
            ("0xfF", 255.0),
            ("0x0p-99999", 0.0),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.00000000000018p0", 1.000_000_000_000_000_4),
            ("0x1.000000000000080001p0", 1.000_000_000_000_000_2),
            ("0x1.0000000000000800000000000000000000000001p0", 1.000_000_000_000_000_2),
            ("0x10000000000000000000000000000000000000000p-160", 1.0),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.8p-1074", 1e-323),
            ("0x1p-1076", 0.0),
            ("0x1p-9999", 0.0),
            ("0x1.fffffffffffff7p1023", f64::MAX),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("0x1p1024", f64::INFINITY),
        ] {
            let number = Hexadecimal::read(text.as_bytes()).map(Hexadecimal::double);
            assert_eq!(number, Some(double), "{text}");
        }
        for text in ["", "0", "0x", "0x.", "0xg", "0xp1", "0x1p", "0x1p+", "0x1..", "x1", "0x1 "] {
            assert_eq!(Hexadecimal::read(text.as_bytes()), None, "{text}");
        }
    }
}
