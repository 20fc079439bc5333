//! Patterns as KEYS, SCAN and PSUBSCRIBE read them: `*`, `?`, `[a-z]`, `[^a]`, `\` before a byte that is meant as it
//! stands. As in Redis 7.0, no pattern but the empty one fits the empty text; a command that shows all for `*` asks
//! [`fits_or_all`].

/// The same as [`matches`], but `*` fits the empty text, too: where elements are listed.
pub(crate) fn fits_or_all(pattern: &[u8], text: &[u8]) -> bool {
    pattern == b"*" || matches(pattern, text)
}

/// True if `pattern` fits the whole of `text`. Takes at most one step per pair of their bytes: only the last star that
/// was passed is ever tried again, since what an earlier one could take, the last can take too.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, here));
            continue;
        }
        let step = match text.get(here) {
            None if at >= pattern.len() => return true,
            None => return false,
            Some(byte) => one(&pattern[at.min(pattern.len())..], *byte),
        };
        if let Some(taken) = step {
            at += taken;
            here += 1;
        } else if let Some((behind, from)) = star {
            at = behind;
            here = from + 1;
            star = Some((behind, here));
        } else {
            return false;
        }
    }
}

/// How many bytes of the pattern stand for this byte; `None` if it does not fit.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (fits, len) = in_class(class, byte);
            fits.then_some(1 + len)
        }
        [b'\\', meant, ..] => (*meant == byte).then_some(2),
        [meant, ..] => (*meant == byte).then_some(1),
    }
}

/// Whether a class has a byte, and how long it is with its bracket. One that never ends reaches to the pattern's end.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at.min(class.len())..] {
            [] => break,
            [b'\\', meant, ..] => {
                found |= *meant == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [meant, ..] => {
                found |= *meant == byte;
                at += 1;
            }
        }
    }
    (found != negated, at.min(class.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, text, fits) in [
            ("*", "", false),
            ("**", "", false),
            ("[", "", false),
            ("", "", true),
            ("", "a", false),
            ("**a**", "a", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("[", "a", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("a*", "a", true),
            ("a", "ab", false),
            ("\\", "\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = [b"a*".repeat(2_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(20_000)));
    }
}
