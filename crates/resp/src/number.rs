//! Whole numbers as text, by Redis's rules.

/// A whole number as Redis reads it: digits with a minus at most; no plus, no space, no leading zero.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // The longest has 19 digits; a zero stands alone and has no sign.
    match digits {
        [b'0'] => return (!is_negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits are less than 2^64.
        number = number * 10 + u64::from(digit - b'0');
    }
    if is_negative { 0i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// A type's byte, a length, the end of the line.
pub(crate) fn header(kind: u8, len: usize, into: &mut Vec<u8>) {
    into.push(kind);
    // 20 digits hold 2^64.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = len;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
    into.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strict() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("1a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text:?}");
        }
    }
}
