//! Numbers as text, by Redis's rules.

use super::hexadecimal::Hexadecimal;

/// A whole number in its one form: no sign but `-`, no leading zero, nothing around it.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        // Downwards, where there is one number more.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// The text of a whole number, without an allocation.
pub(crate) struct IntegerText {
    digits: [u8; 20],
    from: usize,
}

impl IntegerText {
    pub(crate) fn new(number: i64) -> IntegerText {
        let mut text = IntegerText { digits: [0; 20], from: 20 };
        let mut rest = number.unsigned_abs();
        loop {
            text.push(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            text.push(b'-');
        }
        text
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }

    fn push(&mut self, byte: u8) {
        self.from -= 1;
        self.digits[self.from] = byte;
    }
}

/// A score or a weight: a number or an infinity. `None` for a NaN, for what is too large, and for what is not 0
/// and would become 0.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let number = float(text)?;
    let names_infinity = text.iter().any(|byte| matches!(byte, b'n' | b'N'));
    let has_digit = || match hexadecimal(text) {
        Some((_, hexadecimal)) => hexadecimal.mantissa > 0,
        None => {
            let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
            mantissa.any(|byte| matches!(byte, b'1'..=b'9'))
        }
    };
    match number {
        _ if number.is_infinite() => names_infinity.then_some(number),
        0.0 if has_digit() => None,
        _ => Some(number),
    }
}

/// The bound of a range of scores: nothing is too large, nothing at all is 0, and blanks may come first.
pub(crate) fn bound(text: &[u8]) -> Option<f64> {
    if text.is_empty() { Some(0.0) } else { float(text.trim_ascii_start()) }
}

/// Any number or infinity, as near as 53 bits come.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    if let Some((negative, number)) = hexadecimal(text) {
        return Some(if negative { -number.double() } else { number.double() });
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Such a number, and whether it is negative.
fn hexadecimal(text: &[u8]) -> Option<(bool, Hexadecimal)> {
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        text => (false, text),
    };
    Hexadecimal::read(text).map(|number| (negative, number))
}

/// A number as Redis 7.0 writes scores: `%.17g`.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.abs() < 1e15 && number == number.trunc() {
        let sign = if number == 0.0 && number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", number as i64);
    }
    let text = format!("{number:.16e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(digits), exponent.abs())
}

/// A decimal fraction without the zeros at its end, and without the point if nothing follows it.
pub(crate) fn without_trailing_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_one_form() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text}");
            if let Some(number) = number {
                assert_eq!(IntegerText::new(number).bytes(), text.as_bytes());
            }
        }
    }

    #[test]
    fn doubles_are_written_with_17_digits() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (1e-7, "9.9999999999999995e-08"),
            (3e20, "3e+20"),
            (17.0, "17"),
            (-0.0, "-0"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
            (123.456, "123.456"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }

    #[test]
    fn doubles_that_cannot_be_kept_are_refused() {
        for (text, number) in [
            ("1.5", Some(1.5)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+Infinity", Some(f64::INFINITY)),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1x", None),
            ("-0x1p-2", Some(-0.25)),
            ("0x1p1024", None),
            ("0x1p-1075", None),
            ("0x0p-1075", Some(0.0)),
            (" 0x1", None),
            ("0x", None),
        ] {
            assert_eq!(double(text.as_bytes()), number, "{text}");
        }
        assert_eq!(bound(b"1e400"), Some(f64::INFINITY));
        assert_eq!(bound(b"-0x1p9999"), Some(f64::NEG_INFINITY));
        assert_eq!(bound(b" 0x1p-9999"), Some(0.0));
        assert_eq!(bound(b""), Some(0.0));
    }
}
