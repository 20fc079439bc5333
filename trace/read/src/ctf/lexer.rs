//! Metadata as text, and TSDL (the language of CTF 1.8 metadata) cut into tokens.
//!
//! Takes the text out of the packets that LTTng writes it in. Assumes nothing about the bytes; every token knows its
//! line and offset, so that whatever cannot be understood later can be shown to a person.

/// Most bytes of metadata that are read.
pub(super) const METADATA_BYTES_MAX: u64 = 64 << 20;

const PACKET_MAGIC: u32 = 0x75d1_1d57;
const PACKET_HEADER_BYTES: usize = 37;

/// Where something stands in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextPosition {
    /// From 1.
    pub(super) line: u32,
    /// Bytes from the start of the text.
    pub(super) offset: u64,
}

/// What cannot be understood, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misread {
    pub(super) place: TextPosition,
    pub(super) what: String,
}

/// Shorthand of this folder's parsers.
pub(super) type Parsed<T> = Result<T, Misread>;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or keyword.
    Word(String),
    /// A number without its sign.
    Number(u64),
    /// Text in quotes, escapes resolved.
    Text(String),
    /// `{ } [ ] ( ) < > ; , : = . * -`
    Sign(char),
    /// `:=`
    Assign,
    /// `...`
    Range,
    /// End of the text.
    End,
}

impl Token {
    /// As a message shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", word.escape_debug()),
            Self::Number(number) => format!("number {number}"),
            Self::Text(text) => format!("text \"{}\"", text.escape_debug()),
            Self::Sign(sign) => format!("`{}`", sign.escape_debug()),
            Self::Assign => "`:=`".into(),
            Self::Range => "`...`".into(),
            Self::End => "the end of the metadata".into(),
        }
    }
}

/// The text of a metadata file.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) plain: String,
    /// Where pieces of it begin, and where these lie in the file.
    pieces: Vec<(u64, u64)>,
}

impl Text {
    /// A place in the text as a place in the file.
    pub(super) fn in_file(&self, place: TextPosition) -> TextPosition {
        let next = self.pieces.partition_point(|&(plain, _)| plain <= place.offset);
        let piece = next.checked_sub(1).and_then(|at| self.pieces.get(at));
        let offset = piece.map_or(place.offset, |&(plain, file)| file + (place.offset - plain));
        TextPosition { offset, ..place }
    }
}

/// The text of a metadata file, out of its packets if it has some.
///
/// # Errors
/// [`Misread`] if a packet is broken, compressed or encrypted, or the text is not UTF-8; its place is one in the file.
pub(super) fn text(bytes: &[u8]) -> Parsed<Text> {
    let magic = bytes.first_chunk().map(|&first| u32::from_le_bytes(first));
    let (plain, pieces) = match magic {
        Some(magic) if magic == PACKET_MAGIC || magic.swap_bytes() == PACKET_MAGIC => {
            unpacked(bytes, magic == PACKET_MAGIC)?
        }
        _ => (bytes.to_vec(), vec![(0, 0)]),
    };
    match String::from_utf8(plain) {
        Ok(plain) => Ok(Text { plain, pieces }),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + newlines(&error.as_bytes()[..valid]);
            let text = Text { plain: String::new(), pieces };
            Err(Misread {
                place: text.in_file(TextPosition { line, offset: valid as u64 }),
                what: "the metadata is neither text nor packets of text".into(),
            })
        }
    }
}

/// Text and [`Text::pieces`].
type Unpacked = (Vec<u8>, Vec<(u64, u64)>);

fn unpacked(bytes: &[u8], little: bool) -> Parsed<Unpacked> {
    let (mut plain, mut pieces) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let line = 1 + newlines(&plain);
        let wrong =
            |what: String| Misread { place: TextPosition { line, offset: at as u64 }, what };
        let Some(header) = bytes[at..].first_chunk::<PACKET_HEADER_BYTES>() else {
            return Err(wrong(format!("metadata packet cut off after {} bytes", bytes.len() - at)));
        };
        let word = |from: usize| {
            let four = [header[from], header[from + 1], header[from + 2], header[from + 3]];
            if little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) }
        };
        if word(0) != PACKET_MAGIC {
            return Err(wrong(format!("no metadata packet: magic is {:#010x}", word(0))));
        }
        let (content, packet) = (word(24) as usize / 8, word(28) as usize / 8);
        if header[32] != 0 || header[33] != 0 {
            return Err(wrong("compressed or encrypted metadata is not supported".into()));
        }
        if content < PACKET_HEADER_BYTES || content > packet || content > bytes.len() - at {
            return Err(wrong(format!(
                "metadata packet of {packet} bytes claims {content} bytes of content, {} are there",
                bytes.len() - at
            )));
        }
        pieces.push((plain.len() as u64, (at + PACKET_HEADER_BYTES) as u64));
        plain.extend_from_slice(&bytes[at + PACKET_HEADER_BYTES..at + content]);
        at += packet;
    }
    Ok((plain, pieces))
}

/// All tokens of `text`; the last one is [`Token::End`].
///
/// # Errors
/// [`Misread`] at a character TSDL does not have, or text or a comment without end.
pub(super) fn tokens(text: &str) -> Parsed<Vec<(Token, TextPosition)>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        let place = TextPosition { line, offset: at as u64 };
        let wrong = |what: String| Misread { place, what };
        let next = bytes.get(at + 1).copied();
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => at += 1,
            b'/' if next == Some(b'*') => {
                let Some(length) = text.get(at + 2..).and_then(|rest| rest.find("*/")) else {
                    return Err(wrong("comment without end".into()));
                };
                let end = at + 2 + length + 2;
                line += newlines(&bytes[at..end]);
                at = end;
            }
            b'/' if next == Some(b'/') => {
                at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
            }
            // A constant of one character is text, too: nothing calculates with it.
            b'"' | b'\'' => {
                let (text, end) =
                    quoted(text, at).ok_or_else(|| wrong("text without end".into()))?;
                line += newlines(&bytes[at..end]);
                found.push((Token::Text(text), place));
                at = end;
            }
            b'0'..=b'9' => {
                let length = word_bytes(&bytes[at..]);
                let digits = &text[at..at + length];
                let number = number(digits)
                    .ok_or_else(|| wrong(format!("`{digits}` is no number of up to 64 bits")))?;
                found.push((Token::Number(number), place));
                at += length;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = word_bytes(&bytes[at..]);
                found.push((Token::Word(text[at..at + length].into()), place));
                at += length;
            }
            b':' if next == Some(b'=') => {
                found.push((Token::Assign, place));
                at += 2;
            }
            b'.' if bytes[at..].starts_with(b"...") => {
                found.push((Token::Range, place));
                at += 3;
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b';' | b',' | b':' | b'='
            | b'.' | b'*' | b'-' | b'+' => {
                found.push((Token::Sign(byte.into()), place));
                at += 1;
            }
            _ => return Err(wrong(format!("unexpected byte {byte:#04x}"))),
        }
    }
    found.push((Token::End, TextPosition { line, offset: at as u64 }));
    Ok(found)
}

fn newlines(bytes: &[u8]) -> u32 {
    let count = bytes.iter().filter(|&&byte| byte == b'\n').count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn word_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
}

fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(octal) = digits.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        u64::from_str_radix(octal, 8).ok()
    } else {
        digits.parse().ok()
    }
}

/// The text between the quotes from `at` on, and the offset behind it.
fn quoted(text: &str, at: usize) -> Option<(String, usize)> {
    let mut plain = String::new();
    let mut chars = text[at..].char_indices();
    let quote = chars.next()?.1;
    while let Some((offset, character)) = chars.next() {
        match character {
            _ if character == quote => return Some((plain, at + offset + 1)),
            '\\' => plain.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            other => plain.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Token> {
        tokens(text).expect("valid text").into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn cuts_what_lttng_writes() {
        assert_eq!(
            kinds("enum : uint5_t { a = 0 ... 0x1E } // end\n/* x */ v;"),
            [
                Token::Word("enum".into()),
                Token::Sign(':'),
                Token::Word("uint5_t".into()),
                Token::Sign('{'),
                Token::Word("a".into()),
                Token::Sign('='),
                Token::Number(0),
                Token::Range,
                Token::Number(30),
                Token::Sign('}'),
                Token::Word("v".into()),
                Token::Sign(';'),
                Token::End,
            ]
        );
    }

    #[test]
    fn names_line_and_offset_of_an_unknown_byte() {
        let error = tokens("a\nb $").expect_err("`$` is no sign of TSDL");
        assert_eq!(error.place, TextPosition { line: 2, offset: 4 });
        assert!(error.what.contains("0x24"), "{}", error.what);
    }

    #[test]
    fn text_and_comments_must_end() {
        assert!(tokens("\"a").is_err());
        assert!(tokens("/* a").is_err());
        assert_eq!(kinds("'a'"), [Token::Text("a".into()), Token::End]);
        assert_eq!(kinds("\"a\\\"b\""), [Token::Text("a\"b".into()), Token::End]);
    }

    #[test]
    fn takes_text_out_of_packets_of_either_byte_order() {
        for little in [true, false] {
            let mut packet = Vec::new();
            let word = |value: u32| {
                if little { value.to_le_bytes() } else { value.to_be_bytes() }
            };
            packet.extend(word(PACKET_MAGIC));
            packet.extend([7; 16]);
            packet.extend(word(0));
            packet.extend(word((37 + 3) * 8));
            packet.extend(word(64 * 8));
            packet.extend([0, 0, 0, 1, 8]);
            packet.extend(b"abc");
            packet.resize(64, 0);
            let twice = [packet.clone(), packet.clone()].concat();
            let found = text(&twice).expect("two packets");
            assert_eq!(found.plain, "abcabc");
            let places =
                [0, 2, 3, 5].map(|offset| found.in_file(TextPosition { line: 1, offset }).offset);
            assert_eq!(places, [37, 39, 64 + 37, 64 + 39]);
            for cut in 1..37 {
                assert!(text(&twice[..64 + cut]).is_err(), "cut after {cut} bytes");
            }
        }
    }
}
