//! What a server answers, read as whole values: for clients of ours, and for the server where it is one.
//!
//! As commands, replies may be cut anywhere. A reply is handed over when it is whole; what there is of it until then
//! is kept here, its elements as values, the unfinished one as bytes. A length reserves no memory before what it
//! announces has come, and depth, elements and bytes have limits.

use crate::line::{LineEnd, forget};
use crate::number::integer;
use std::fmt;

/// How much of a server is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one element.
    pub bulk_bytes_max: usize,
    /// Bytes of a line.
    pub line_bytes_max: usize,
    /// Elements of one reply, those inside elements included.
    pub elements_max: usize,
    /// Containers inside each other.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes_max: 512 << 20,
            line_bytes_max: 64 << 10,
            elements_max: 64 << 20,
            depth_max: 32,
        }
    }
}

/// A reply, or an element of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A short text: `OK`.
    Simple(Vec<u8>),
    /// An error, its code first.
    Error(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Bytes of any kind.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// Elements in order.
    Array(Vec<Value>),
    /// Keys, each followed by its value.
    Map(Vec<Value>),
    /// Elements, each there once.
    Set(Vec<Value>),
    /// A message that no command asked for.
    Push(Vec<Value>),
    /// A floating-point number, as it was written.
    Double(Vec<u8>),
    /// True or false.
    Boolean(bool),
    /// A whole number of any size, as it was written.
    BigNumber(Vec<u8>),
    /// Text for people, its format (`txt:`) in front.
    Text(Vec<u8>),
}

/// Why bytes are no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// No type begins with this byte.
    Kind(u8),
    /// A length or a number is none, or beyond its limit.
    Number(Vec<u8>),
    /// A line has no end within the limit.
    LongLine,
    /// More elements than the limit.
    Elements,
    /// Deeper than the limit.
    Depth,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Kind(byte) => {
                write!(f, "the reply has a type `{}` that RESP has not", char::from(*byte))
            }
            ValueError::Number(text) => {
                let text = String::from_utf8_lossy(text);
                write!(f, "the reply has `{text}` where a number within the limits belongs")
            }
            ValueError::LongLine => f.write_str("a line of the reply has no end"),
            ValueError::Elements => f.write_str("the reply has more elements than the limit"),
            ValueError::Depth => f.write_str("the reply is nested deeper than the limit"),
        }
    }
}

impl std::error::Error for ValueError {}

/// Reads replies, however they are cut.
#[derive(Debug, Default)]
pub struct Values {
    kept: Vec<u8>,
    line: LineEnd,
    /// A line was read that announces so many bytes: of which type.
    awaited: Option<(u8, usize)>,
    /// Containers that are not full yet, the outermost first.
    open: Vec<Open>,
    elements: usize,
}

#[derive(Debug)]
struct Open {
    kind: u8,
    left: usize,
    elements: Vec<Value>,
}

/// What a line says.
enum Line {
    Value(Value),
    Container(u8, usize),
    Bytes(u8, usize),
}

impl Values {
    /// A reader at the beginning of a stream.
    pub fn new() -> Values {
        Values::default()
    }

    /// Takes bytes of `shown` up to the end of the next whole reply; says how many were taken, and the reply. Without
    /// a reply all were taken.
    ///
    /// # Errors
    /// The bytes are no reply: nothing that follows has a meaning.
    pub fn next(
        &mut self,
        shown: &[u8],
        limits: &Limits,
    ) -> Result<(usize, Option<Value>), ValueError> {
        let mut at = 0;
        while let Some(element) = self.element(shown, &mut at, limits)? {
            let Some(value) = self.close(element, limits)? else { continue };
            self.elements = 0;
            return Ok((at, Some(value)));
        }
        Ok((at, None))
    }

    /// The next line, or the bytes that a line announced. Whatever is left of `shown` is kept if that is unfinished.
    fn element(
        &mut self,
        shown: &[u8],
        at: &mut usize,
        limits: &Limits,
    ) -> Result<Option<Line>, ValueError> {
        loop {
            if self.kept.is_empty() {
                let rest = &shown[*at..];
                let Some((line, taken)) = self.read(rest, limits)? else {
                    self.kept.extend_from_slice(rest);
                    *at = shown.len();
                    return Ok(None);
                };
                *at += taken;
                if let Some(line) = line {
                    return Ok(Some(line));
                }
                continue;
            }
            let rest = &shown[*at..];
            let taken = self.useful(rest);
            self.kept.extend_from_slice(&rest[..taken]);
            *at += taken;
            let kept = std::mem::take(&mut self.kept);
            let read = self.read(&kept, limits)?;
            self.kept = kept;
            match read {
                Some((line, _)) => {
                    forget(&mut self.kept);
                    if let Some(line) = line {
                        return Ok(Some(line));
                    }
                }
                None if *at == shown.len() => return Ok(None),
                None => {}
            }
        }
    }

    /// How many bytes of `rest` belong to what is awaited behind `kept`.
    fn useful(&self, rest: &[u8]) -> usize {
        let useful = match self.awaited {
            Some((_, len)) => Some((len + 2).saturating_sub(self.kept.len())),
            None if self.kept.last() == Some(&b'\r') => Some(1),
            None => rest.iter().position(|&byte| byte == b'\r').map(|found| found + 2),
        };
        useful.unwrap_or(rest.len()).min(rest.len())
    }

    /// Reads one line, or the awaited bytes, at the start of `bytes`: what it says (nothing yet of bytes that are
    /// announced), and its length. None: it has not ended.
    fn read(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<(Option<Line>, usize)>, ValueError> {
        if let Some((kind, len)) = self.awaited {
            if bytes.len() < len + 2 {
                return Ok(None);
            }
            self.awaited = None;
            let text = bytes[..len].to_vec();
            let value = match kind {
                b'=' => Value::Text(text),
                b'!' => Value::Error(text),
                _ => Value::Bulk(text),
            };
            return Ok(Some((Some(Line::Value(value)), len + 2)));
        }
        let Some((line, next)) = self.line.carriage(bytes, 0) else {
            // The last byte may be the carriage return.
            return if bytes.len() > limits.line_bytes_max + 1 {
                Err(ValueError::LongLine)
            } else {
                Ok(None)
            };
        };
        if line.len() > limits.line_bytes_max {
            return Err(ValueError::LongLine);
        }
        match line_of(line, limits)? {
            Line::Bytes(kind, len) => {
                self.awaited = Some((kind, len));
                Ok(Some((None, next)))
            }
            line => Ok(Some((Some(line), next))),
        }
    }

    /// Puts an element where it belongs; gives back the reply that it completes.
    fn close(&mut self, line: Line, limits: &Limits) -> Result<Option<Value>, ValueError> {
        self.elements += 1;
        if self.elements > limits.elements_max {
            return Err(ValueError::Elements);
        }
        let mut value = match line {
            Line::Value(value) => value,
            Line::Container(kind, 0) => container(kind, Vec::new()),
            Line::Container(kind, left) => {
                if self.open.len() >= limits.depth_max {
                    return Err(ValueError::Depth);
                }
                self.open.push(Open { kind, left, elements: Vec::new() });
                return Ok(None);
            }
            Line::Bytes(..) => unreachable!("announced bytes are awaited, not handed over"),
        };
        while let Some(mut open) = self.open.pop() {
            open.elements.push(value);
            open.left -= 1;
            if open.left > 0 {
                self.open.push(open);
                return Ok(None);
            }
            if open.kind == b'|' {
                // What it says of the reply behind it is of no use to us.
                return Ok(None);
            }
            value = container(open.kind, open.elements);
        }
        Ok(Some(value))
    }
}

fn container(kind: u8, elements: Vec<Value>) -> Value {
    match kind {
        b'%' => Value::Map(elements),
        b'~' => Value::Set(elements),
        b'>' => Value::Push(elements),
        _ => Value::Array(elements),
    }
}

fn line_of(line: &[u8], limits: &Limits) -> Result<Line, ValueError> {
    let Some((&kind, text)) = line.split_first() else {
        return Err(ValueError::Kind(b'\r'));
    };
    let number = || integer(text).ok_or_else(|| ValueError::Number(text.to_vec()));
    let length = |max: usize| {
        let len = number()?;
        match usize::try_from(len) {
            Ok(len) if len <= max => Ok(Some(len)),
            // Version 2 says nothing so.
            Err(_) if len == -1 => Ok(None),
            _ => Err(ValueError::Number(text.to_vec())),
        }
    };
    let null = Line::Value(Value::Null);
    Ok(match kind {
        b'+' => Line::Value(Value::Simple(text.to_vec())),
        b'-' => Line::Value(Value::Error(text.to_vec())),
        b':' => Line::Value(Value::Integer(number()?)),
        b'$' | b'=' | b'!' => {
            length(limits.bulk_bytes_max)?.map_or(null, |len| Line::Bytes(kind, len))
        }
        b'*' | b'~' | b'>' => {
            length(limits.elements_max)?.map_or(null, |len| Line::Container(kind, len))
        }
        b'%' | b'|' => {
            length(limits.elements_max / 2)?.map_or(null, |len| Line::Container(kind, len * 2))
        }
        b'_' => null,
        b',' => Line::Value(Value::Double(text.to_vec())),
        b'#' => Line::Value(Value::Boolean(match text {
            b"t" => true,
            b"f" => false,
            _ => return Err(ValueError::Number(text.to_vec())),
        })),
        b'(' => Line::Value(Value::BigNumber(text.to_vec())),
        other => return Err(ValueError::Kind(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<Value>, ValueError> {
        let (mut values, limits) = (Values::new(), Limits::default());
        let mut all = Vec::new();
        for piece in pieces {
            let mut at = 0;
            loop {
                let (taken, value) = values.next(&piece[at..], &limits)?;
                at += taken;
                let Some(value) = value else { break };
                all.push(value);
            }
            assert_eq!(at, piece.len(), "without a reply everything is taken");
        }
        Ok(all)
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn every_type_is_read() {
        let bytes = b"+OK\r\n-ERR no\r\n:-7\r\n$2\r\na\n\r\n$-1\r\n*-1\r\n_\r\n#t\r\n,1.5\r\n(99\r\n\
            =5\r\ntxt:a\r\n!3\r\nERR\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n%1\r\n+a\r\n:1\r\n~1\r\n:1\r\n>1\r\n:1\r\n*0\r\n";
        let values = read(&[bytes]).unwrap();
        assert_eq!(
            values,
            [
                Value::Simple(b"OK".to_vec()),
                Value::Error(b"ERR no".to_vec()),
                Value::Integer(-7),
                bulk("a\n"),
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Boolean(true),
                Value::Double(b"1.5".to_vec()),
                Value::BigNumber(b"99".to_vec()),
                Value::Text(b"txt:a".to_vec()),
                Value::Error(b"ERR".to_vec()),
                Value::Array(vec![Value::Integer(1), Value::Array(vec![bulk("")])]),
                Value::Map(vec![Value::Simple(b"a".to_vec()), Value::Integer(1)]),
                Value::Set(vec![Value::Integer(1)]),
                Value::Push(vec![Value::Integer(1)]),
                Value::Array(Vec::new()),
            ]
        );
    }

    #[test]
    fn what_an_attribute_says_is_left_out() {
        assert_eq!(read(&[b"|1\r\n+a\r\n:1\r\n:2\r\n"]).unwrap(), [Value::Integer(2)]);
    }

    #[test]
    fn hostile_replies_are_refused() {
        for bytes in [
            "?\r\n".to_owned(),
            "\r\n".to_owned(),
            "$-2\r\n".to_owned(),
            "$9223372036854775807\r\n".to_owned(),
            "*99999999999\r\n".to_owned(),
            "%9223372036854775807\r\n".to_owned(),
            "#x\r\n".to_owned(),
            "*1\r\n".repeat(33),
            "+".repeat(70_000),
        ] {
            assert!(read(&[bytes.as_bytes()]).is_err(), "{:?}", &bytes[..bytes.len().min(20)]);
        }
    }

    fn values() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-z]{0,5}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|n| format!(":{n}\r\n").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
                let mut bulk = format!("${}\r\n", bytes.len()).into_bytes();
                bulk.extend(bytes);
                bulk.extend(b"\r\n");
                bulk
            }),
            Just(b"_\r\n".to_vec()),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            proptest::collection::vec(inner, 0..5).prop_map(|elements| {
                let mut array = format!("*{}\r\n", elements.len()).into_bytes();
                array.extend(elements.concat());
                array
            })
        })
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_values(
            all in proptest::collection::vec(values(), 1..6),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8)
        ) {
            let bytes = all.concat();
            let whole = read(&[&bytes]).unwrap();
            prop_assert_eq!(whole.len(), all.len());
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            ends.extend([0, bytes.len()]);
            ends.sort_unstable();
            let pieces: Vec<&[u8]> = ends.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces).unwrap(), whole);
        }
    }
}
