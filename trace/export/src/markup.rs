//! Writing HTML, SVG and JSON inside HTML: escaping, and the macro that appends.
//!
//! Must always hold: no name from a trace reaches a page but through [`escape`] or [`json_in_script`]. Whoever built the traced
//! program chose them.

use serde::Serialize;
use std::fmt;

/// Appends formatted text to a `String`.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        std::fmt::Write::write_fmt($out, format_args!($($arg)*))
            .expect("a String takes everything")
    };
}
pub(crate) use put;

/// Text that displays with everything special to HTML, in text or in a quoted attribute, escaped.
pub(crate) struct Escaped<'a>(&'a str);

/// Makes `text` safe for element text and quoted attributes.
pub(crate) fn escape(text: &str) -> Escaped<'_> {
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

/// True for characters that change how their neighbours are shown: control codes and overrides of the writing direction.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name as pages, tables and pictures show it: one line, nothing unprintable.
pub(crate) fn shown(name: &str) -> String {
    name.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// JSON that ends no script element and opens no comment in it, whatever its strings hold.
pub(crate) fn json_in_script(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("plain data with string keys");
    // `<`, `>` and `&` occur in JSON only inside strings, where their escapes mean the same.
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place() {
        let name = "</script><!--\"'&\u{202e}";
        let html = escape(name).to_string();
        assert!(!html.contains(['<', '>', '"', '\'', '\u{202e}']), "{html}");
        let json = json_in_script(&[name]);
        assert!(!json.contains(['<', '>', '&']), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [name]);
    }
}
