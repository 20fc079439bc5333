//! What a client sends, read as commands: arrays of bulk bytes, and inline commands.
//!
//! A command that lies whole in the bytes shown is borrowed from them. Of one that does not, the parser takes every
//! byte it is shown into memory of its own, as much as that command needs and no more, and goes on there: no byte is
//! looked at twice, and the caller that shows them keeps nothing. Lengths are believed only up to the limits, and
//! reserve no memory before their bytes come. Errors are Redis's own sentences; behind one the stream has no meaning
//! any more.

use crate::line::{LineEnd, forget};
use crate::number::integer;
use std::fmt;

/// How much of a client is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of one command, its name among them.
    pub args_max: usize,
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Bytes of an inline command, and of any line.
    pub line_bytes_max: usize,
    /// Bytes of one command with its lengths (`client-query-buffer-limit`).
    pub query_bytes_max: usize,
    /// Redis's limits before AUTH hold as well: [`Limits::STRANGER_ARGS_MAX`] and [`Limits::STRANGER_BULK_BYTES_MAX`].
    pub is_stranger: bool,
}

impl Limits {
    /// Arguments before AUTH.
    pub const STRANGER_ARGS_MAX: usize = 10;
    /// Bytes of an argument before AUTH.
    pub const STRANGER_BULK_BYTES_MAX: usize = 16_384;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            args_max: 1 << 20,
            bulk_bytes_max: 512 << 20,
            line_bytes_max: 64 << 10,
            query_bytes_max: 1 << 30,
            is_stranger: false,
        }
    }
}

/// Why bytes are no command. Its text is Redis's, without the code `ERR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The line of an array's length has no end.
    LongArrayLine,
    /// An array's length is none.
    ArrayLength,
    /// More arguments than a client may send before AUTH.
    StrangerArrayLength,
    /// The line of an argument's length has no end.
    LongBulkLine,
    /// Something else where an argument begins.
    NoBulk(u8),
    /// An argument's length is none.
    BulkLength,
    /// A longer argument than a client may send before AUTH.
    StrangerBulkLength,
    /// An inline command has no end.
    LongInline,
    /// An inline command opens a quote and does not close it.
    Quotes,
    /// The command is longer than any may be; Redis closes such a connection without a word.
    LongQuery,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProtocolError::LongArrayLine => "too big mbulk count string",
            ProtocolError::ArrayLength => "invalid multibulk length",
            ProtocolError::StrangerArrayLength => "unauthenticated multibulk length",
            ProtocolError::LongBulkLine => "too big bulk count string",
            ProtocolError::NoBulk(byte) => {
                return write!(f, "Protocol error: expected '$', got '{}'", char::from(*byte));
            }
            ProtocolError::BulkLength => "invalid bulk length",
            ProtocolError::StrangerBulkLength => "unauthenticated bulk length",
            ProtocolError::LongInline => "too big inline request",
            ProtocolError::Quotes => "unbalanced quotes in request",
            ProtocolError::LongQuery => "query too long",
        };
        write!(f, "Protocol error: {text}")
    }
}

/// What became of the bytes that were shown.
#[derive(Debug)]
pub struct Step<'a> {
    /// How many of them are taken; the rest is to be shown again, first.
    pub consumed: usize,
    /// The next command; nothing if it has not arrived whole. All that was shown is taken then.
    pub command: Option<Args<'a>>,
}

/// The arguments of one command, its name first; at least one.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [ArgumentSpan],
}

impl<'a> Args<'a> {
    /// Each argument.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let Args { bytes, places } = self;
        places.iter().map(move |place| &bytes[place.from..place.from + place.len])
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.places.len()
    }
}

/// Where an argument lies.
#[derive(Clone, Copy, Debug)]
struct ArgumentSpan {
    from: usize,
    len: usize,
}

/// Reads commands, however they are cut.
#[derive(Debug, Default)]
pub struct Parser {
    /// What there is of a command that was not shown whole.
    kept: Vec<u8>,
    state: State,
    /// The last command was handed out: its memory is free.
    is_done: bool,
}

/// How far a command is read.
#[derive(Debug, Default)]
struct State {
    awaited: Awaited,
    /// Bytes that are read, from where the command's bytes begin.
    at: usize,
    line: LineEnd,
    /// Arguments that are still to come, beside the awaited one.
    left: usize,
    places: Vec<ArgumentSpan>,
    /// The arguments of an inline command, without their quotes.
    inline: Vec<u8>,
    is_inline: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Awaited {
    /// The first byte of a command.
    #[default]
    Start,
    /// An inline command's line.
    Inline,
    /// The line of an array's length.
    ArrayLength,
    /// The line of an argument's length.
    BulkLength,
    /// An argument and its line end.
    Bulk(usize),
}

impl Parser {
    /// A parser at the beginning of a stream.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// The next command of `shown`: what was not taken before, new bytes behind it.
    ///
    /// # Errors
    /// The bytes are no command: nothing that follows has a meaning.
    pub fn next<'a>(
        &'a mut self,
        shown: &'a [u8],
        limits: &Limits,
    ) -> Result<Step<'a>, ProtocolError> {
        if self.is_done {
            self.is_done = false;
            forget(&mut self.kept);
            self.state.begin();
        }
        if !self.kept.is_empty() || self.state.awaited != Awaited::Start {
            return self.next_of_kept(shown, limits);
        }
        if self.state.read(shown, limits)? {
            self.is_done = true;
            return Ok(Step { consumed: self.state.at, command: Some(self.state.args(shown)) });
        }
        let begun = self.state.begun();
        self.kept.extend_from_slice(&shown[begun..]);
        Ok(Step { consumed: shown.len(), command: None })
    }

    /// True if the next byte is the first of a command.
    pub fn is_at_start(&self) -> bool {
        self.is_done || self.kept.is_empty() && self.state.awaited == Awaited::Start
    }

    /// Bytes of an unfinished command that are kept.
    pub fn kept_bytes(&self) -> usize {
        if self.is_done { 0 } else { self.kept.len() }
    }

    /// Memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.kept.capacity()
            + self.state.places.capacity() * size_of::<ArgumentSpan>()
            + self.state.inline.capacity()
    }

    fn next_of_kept<'a>(
        &'a mut self,
        shown: &'a [u8],
        limits: &Limits,
    ) -> Result<Step<'a>, ProtocolError> {
        let mut consumed = 0;
        loop {
            let rest = &shown[consumed..];
            let taken = self.state.useful(&self.kept, rest);
            if self.kept.len() + taken > limits.query_bytes_max {
                return Err(ProtocolError::LongQuery);
            }
            self.kept.extend_from_slice(&rest[..taken]);
            consumed += taken;
            if self.state.read(&self.kept, limits)? {
                self.is_done = true;
                return Ok(Step { consumed, command: Some(self.state.args(&self.kept)) });
            }
            if self.state.awaited == Awaited::Start {
                // Empty commands lie behind: what is kept begins with the next.
                self.kept.drain(..self.state.at);
                self.state.begin();
            }
            if consumed == shown.len() {
                return Ok(Step { consumed, command: None });
            }
        }
    }
}

impl State {
    fn begin(&mut self) {
        // Arguments by the hundred thousand are rare, and their places are not kept for the next.
        if self.places.capacity() > PLACES_KEPT_MAX {
            self.places = Vec::new();
        }
        self.places.clear();
        forget(&mut self.inline);
        (self.awaited, self.at, self.line, self.left) = (Awaited::Start, 0, LineEnd::default(), 0);
        self.is_inline = false;
    }

    /// Bytes in front of the command; they are forgotten.
    fn begun(&mut self) -> usize {
        // Nothing else is empty and lies in front of a command.
        if self.awaited == Awaited::Start { std::mem::take(&mut self.at) } else { 0 }
    }

    fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        let bytes = if self.is_inline { &self.inline } else { bytes };
        Args { bytes, places: &self.places }
    }

    /// How many bytes of `rest`, behind `kept`, belong to what is awaited: so that nothing of the next command is
    /// taken with it.
    fn useful(&self, kept: &[u8], rest: &[u8]) -> usize {
        let find = |end| rest.iter().position(|&byte| byte == end);
        let useful = match self.awaited {
            Awaited::Bulk(len) => Some((self.at + len + 2).saturating_sub(kept.len())),
            Awaited::Start => Some(1),
            Awaited::Inline => find(b'\n').map(|at| at + 1),
            // The carriage return may be there, without the byte behind it.
            Awaited::ArrayLength | Awaited::BulkLength => match kept.last() {
                Some(b'\r') if kept.len() > self.at => Some(1),
                _ => find(b'\r').map(|at| at + 2),
            },
        };
        useful.unwrap_or(rest.len()).min(rest.len())
    }

    /// Reads on in `bytes`, which begin with the command. True: it is whole.
    fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        loop {
            match self.awaited {
                Awaited::Start => match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'*') => self.awaited = Awaited::ArrayLength,
                    Some(_) => self.awaited = Awaited::Inline,
                },
                Awaited::Inline => {
                    let line = self.line.feed(bytes, self.at);
                    // The last byte of an unfinished line may be its carriage return.
                    let line_bytes = line.map_or_else(
                        || (bytes.len() - self.at).saturating_sub(1),
                        |(line, _)| line.len(),
                    );
                    if line_bytes > limits.line_bytes_max {
                        return Err(ProtocolError::LongInline);
                    }
                    let Some((line, next)) = line else { return Ok(false) };
                    self.at = next;
                    self.split(line)?;
                    if !self.places.is_empty() {
                        self.is_inline = true;
                        return Ok(true);
                    }
                    self.awaited = Awaited::Start;
                }
                Awaited::ArrayLength => {
                    let Some(line) = self.length(bytes, limits, ProtocolError::LongArrayLine)?
                    else {
                        return Ok(false);
                    };
                    // Its first byte was seen.
                    self.left = args_of(&line[1..], limits)?;
                    self.awaited =
                        if self.left == 0 { Awaited::Start } else { Awaited::BulkLength };
                }
                Awaited::BulkLength => {
                    let from = self.at;
                    let Some(line) = self.length(bytes, limits, ProtocolError::LongBulkLine)?
                    else {
                        return Ok(false);
                    };
                    let Some((b'$', line)) = line.split_first() else {
                        return Err(ProtocolError::NoBulk(bytes[from]));
                    };
                    let len = bulk_of(line, limits)?;
                    if self.at.saturating_add(len) > limits.query_bytes_max {
                        return Err(ProtocolError::LongQuery);
                    }
                    self.awaited = Awaited::Bulk(len);
                }
                Awaited::Bulk(len) => {
                    // The two bytes of its end are not looked at, as Redis does not.
                    if bytes.len() - self.at < len + 2 {
                        return Ok(false);
                    }
                    self.places.push(ArgumentSpan { from: self.at, len });
                    self.at += len + 2;
                    self.left -= 1;
                    if self.left == 0 {
                        return Ok(true);
                    }
                    self.awaited = Awaited::BulkLength;
                }
            }
        }
    }

    /// A line of a type's byte and a length.
    fn length<'a>(
        &mut self,
        bytes: &'a [u8],
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        match self.line.carriage(bytes, self.at) {
            Some((line, _)) if line.len() > limits.line_bytes_max => Err(too_long),
            Some((line, next)) => {
                self.at = next;
                Ok(Some(line))
            }
            // The last byte may be the carriage return.
            None if bytes.len() - self.at > limits.line_bytes_max + 1 => Err(too_long),
            None => Ok(None),
        }
    }

    fn split(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        for word in words(line) {
            let word = word.map_err(|Unbalanced| ProtocolError::Quotes)?;
            self.places.push(ArgumentSpan { from: self.inline.len(), len: word.len() });
            self.inline.extend_from_slice(&word);
        }
        Ok(())
    }
}

/// Places of arguments that are kept from command to command.
const PLACES_KEPT_MAX: usize = 64;

fn args_of(line: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
    let count = integer(line).ok_or(ProtocolError::ArrayLength)?;
    // Redis takes any negative length for an empty array.
    let count = usize::try_from(count.max(0)).map_err(|_| ProtocolError::ArrayLength)?;
    if count > limits.args_max {
        return Err(ProtocolError::ArrayLength);
    }
    if limits.is_stranger && count > Limits::STRANGER_ARGS_MAX {
        return Err(ProtocolError::StrangerArrayLength);
    }
    Ok(count)
}

fn bulk_of(line: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
    let len = integer(line).and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|&len| len <= limits.bulk_bytes_max).ok_or(ProtocolError::BulkLength)?;
    if limits.is_stranger && len > Limits::STRANGER_BULK_BYTES_MAX {
        return Err(ProtocolError::StrangerBulkLength);
    }
    Ok(len)
}

/// A quote that is open at the end, or closed in front of something other than a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbalanced;

/// The words of a line as Redis splits them: at spaces, with `"..."` (escapes `\n \r \t \b \a \xHH`) and `'...'`
/// (escape `\'`).
pub fn words(line: &[u8]) -> impl Iterator<Item = Result<Vec<u8>, Unbalanced>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        while let [0x0b, more @ ..] = rest {
            // Vertical tab: a space to C, not to Rust.
            rest = more.trim_ascii_start();
        }
        if rest.is_empty() {
            return None;
        }
        let (word, behind) = match word(rest) {
            Ok(found) => found,
            Err(unbalanced) => {
                rest = &[];
                return Some(Err(unbalanced));
            }
        };
        rest = behind;
        Some(Ok(word))
    })
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The word at the start of `line`, and what is behind it.
fn word(line: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at += 1;
        match byte {
            b'"' => at = double_quoted(line, at, &mut word)?,
            b'\'' => at = single_quoted(line, at, &mut word)?,
            space if is_space(space) => return Ok((word, &line[at..])),
            other => {
                word.push(other);
                continue;
            }
        }
        // A quote was closed: the word ends there.
        return match line.get(at) {
            Some(&next) if !is_space(next) => Err(Unbalanced),
            _ => Ok((word, &line[at..])),
        };
    }
    Ok((word, &[]))
}

fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        match &line[at..] {
            [] => return Err(Unbalanced),
            [b'"', ..] => return Ok(at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            [other, ..] => {
                word.push(*other);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        match &line[at..] {
            [] => return Err(Unbalanced),
            [b'\'', ..] => return Ok(at + 1),
            [b'\\', b'\'', ..] => {
                word.push(b'\'');
                at += 2;
            }
            [other, ..] => {
                word.push(*other);
                at += 1;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
