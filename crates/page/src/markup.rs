//! Writing HTML and SVG by hand: escaping, attributes, and the macro that appends.
//!
//! Must always hold: no string from outside reaches a page but through [`escape`]. File names,
//! titles, facts and the names in a traced program were chosen by others, and a page that runs what they contain is no
//! report.

use std::fmt;

/// Appends formatted text to a `String`.
#[macro_export]
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        std::fmt::Write::write_fmt($out, format_args!($($arg)*))
            .expect("a String takes everything")
    };
}
pub use crate::put;

/// Text that displays with everything special to HTML, in text or in a quoted attribute, escaped.
pub struct Escaped<'a>(&'a str);

/// Makes `text` safe for element text and quoted attributes.
pub fn escape(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&#38;")?,
                '<' => f.write_str("&#60;")?,
                '>' => f.write_str("&#62;")?,
                '"' => f.write_str("&#34;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if is_unprintable(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A path below the page's folder as a reference that is nothing else: whatever has a meaning in a reference is written
/// by its code, the colon of a scheme included.
pub fn file_reference(path: &str) -> String {
    let mut reference = String::new();
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                reference.push(char::from(byte));
            }
            other => put!(&mut reference, "%{other:02X}"),
        }
    }
    reference
}

/// True for characters that change how their neighbours are shown: control codes (terminals obey
/// them) and overrides of the writing direction (a file name could be shown backwards).
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_special_survives() {
        let shown = escape("<a href=\"x\" id='y'>&\u{1b}[31m\u{202e}").to_string();
        assert_eq!(file_reference("/a b/x:y.html"), "a%20b/x%3Ay.html");
        assert_eq!(shown, "&#60;a href=&#34;x&#34; id=&#39;y&#39;&#62;&#38;\u{fffd}[31m\u{fffd}");
    }
}
