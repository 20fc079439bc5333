//! What a server answers, written as bytes.
//!
//! A command says what it means (a map, a double, nothing), once; what that is in the version its client
//! speaks is decided here. Containers are announced with their length and followed by their elements,
//! as on the wire.
//!
//! A reply may have a most: what does not fit is not written, and neither is anything behind it, so that no command
//! needs to ask how long its reply becomes. The client that it is for can only be cut off then.

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What a client speaks that never sent `HELLO 3`.
    #[default]
    Resp2,
    /// Types of their own for maps, sets, doubles, booleans, nothing and pushed messages.
    Resp3,
}

/// Replies, written behind each other.
#[derive(Clone, Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    protocol: Protocol,
    bytes_max: usize,
    /// Something did not fit.
    is_cut: bool,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply::new(Protocol::default())
    }
}

impl Reply {
    /// An empty reply to a client that speaks `protocol`, of any length.
    pub fn new(protocol: Protocol) -> Reply {
        Reply { bytes: Vec::new(), protocol, bytes_max: usize::MAX, is_cut: false }
    }

    /// It takes no more than so many bytes, those that stand in it among them. What was cut already stays so.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The bytes that it takes at most.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What comes next does not fit: known before it is written.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// True if something did not fit: what stands here ends anywhere, and is no reply.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// It takes more again: what did not fit is not wanted, and what was written of it is forgotten.
    pub fn mend(&mut self) {
        self.is_cut = false;
    }

    /// The version in which it writes.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// From now on it writes in `protocol`.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True before anything is written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was written and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Forgets what was written after the first `len` bytes: a command that fails half way answers with its
    /// error alone.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Forgets the first `len` bytes, which have been sent.
    pub fn drop_front(&mut self, len: usize) {
        self.bytes.drain(..len);
    }

    /// Memory that it holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes that are a reply, or several, already.
    pub fn raw(&mut self, bytes: &[u8]) {
        // It never has more than its most, unless that was lowered.
        if self.is_cut || bytes.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            self.is_cut = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// A short text without line ends: `+OK`.
    pub fn simple(&mut self, text: &str) {
        self.raw(b"+");
        self.line(text.as_bytes());
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// An error, its code first: `ERR value is not an integer or out of range`. Line ends in it become
    /// spaces, so that no text of a client can end it early.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// The same of bytes: an error that repeats what a client sent.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.raw(b"-");
        let from = self.bytes.len();
        self.raw(text);
        for byte in &mut self.bytes[from..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.raw(b"\r\n");
    }

    /// A whole number.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// Bytes of any kind.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.line(bytes);
    }

    /// Nothing, where a value was asked for.
    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"$-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Nothing, where an array was asked for.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"*-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// `len` elements follow.
    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// `len` elements follow, each there once; an array in version 2.
    pub fn set(&mut self, len: usize) {
        self.length(if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, len);
    }

    /// `pairs` of a key and a value follow; an array of twice as many elements in version 2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs * 2),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    /// `len` elements of a message follow that no command asked for; an array in version 2.
    pub fn push(&mut self, len: usize) {
        self.length(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, len);
    }

    /// A floating-point number: its shortest decimal form that reads back as the same; bulk bytes in version 2.
    pub fn double(&mut self, number: f64) {
        let text = double_text(number);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.raw(b",");
                self.line(text.as_bytes());
            }
        }
    }

    /// True or false; 1 or 0 in version 2.
    pub fn boolean(&mut self, is_true: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(is_true)),
            Protocol::Resp3 => self.raw(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Text for people (INFO, CLIENT LIST); bulk bytes in version 2.
    pub fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.raw(b"txt:");
                self.line(text.as_bytes());
            }
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        self.raw(bytes);
        self.raw(b"\r\n");
    }

    fn length(&mut self, kind: u8, len: usize) {
        // No memory holds more than i64::MAX elements.
        self.number(kind, i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// A line that is a number behind one byte, written at once.
    fn number(&mut self, kind: u8, number: i64) {
        let mut line = [0; 23];
        let mut at = line.len() - 2;
        line[at..].copy_from_slice(b"\r\n");
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            line[at] = b'-';
        }
        at -= 1;
        line[at] = kind;
        self.raw(&line[at..]);
    }
}

/// A floating-point number as Redis 7 writes it: `inf`, `-inf`, `nan`, whole numbers without a point, else the
/// shortest decimal form, with an exponent where `%.17g` has one.
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-5..1e17).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written, and what it is in each version.
    type Form<'a> = (&'a dyn Fn(&mut Reply), &'a str, &'a str);

    fn written(protocol: Protocol, write: impl Fn(&mut Reply)) -> String {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        String::from_utf8(reply.bytes().to_vec()).expect("text")
    }

    #[test]
    fn each_meaning_has_its_form_in_both_versions() {
        let forms: [Form<'_>; 11] = [
            (
                &|reply| reply.integer(i64::MIN),
                ":-9223372036854775808\r\n",
                ":-9223372036854775808\r\n",
            ),
            (&|reply| reply.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (&|reply| reply.null(), "$-1\r\n", "_\r\n"),
            (&|reply| reply.null_array(), "*-1\r\n", "_\r\n"),
            (&|reply| reply.map(2), "*4\r\n", "%2\r\n"),
            (&|reply| reply.set(3), "*3\r\n", "~3\r\n"),
            (&|reply| reply.push(3), "*3\r\n", ">3\r\n"),
            (&|reply| reply.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (&|reply| reply.boolean(true), ":1\r\n", "#t\r\n"),
            (&|reply| reply.text("a"), "$1\r\na\r\n", "=5\r\ntxt:a\r\n"),
            (&|reply| reply.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
        ];
        for (write, second, third) in forms {
            assert_eq!(written(Protocol::Resp2, write), second);
            assert_eq!(written(Protocol::Resp3, write), third);
        }
    }

    #[test]
    fn a_reply_takes_no_more_than_its_most_and_nothing_behind_what_did_not_fit() {
        let mut reply = Reply::default();
        reply.set_bytes_max(12);
        reply.bulk(b"abcdef");
        assert_eq!((reply.bytes(), reply.is_cut()), (&b"$6\r\nabcdef\r\n"[..], false));
        reply.truncate(0);
        reply.bulk(b"abcdefg");
        assert!(reply.is_cut());
        let before = reply.len();
        reply.integer(1);
        reply.array(0);
        reply.error("E");
        assert_eq!(reply.len(), before, "what fits behind it is no reply");
        reply.truncate(0);
        reply.ok();
        assert!(reply.is_empty(), "it is cut until it is mended");
        reply.mend();
        reply.ok();
        assert_eq!(reply.bytes(), b"+OK\r\n");
    }

    #[test]
    fn doubles_read_as_redis_writes_them() {
        for (number, text) in [
            (3.0, "3"),
            (-0.5, "-0.5"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-07"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.1, "0.1"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }
}
