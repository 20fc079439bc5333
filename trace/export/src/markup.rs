//! Names as pages show them, and JSON inside HTML.
//!
//! Must always hold: no name from a trace reaches a page but through [`escape`](laneway_page::markup::escape) or
//! [`json_in_script`]. The builder of the traced program chose them.

use laneway_page::markup::is_unprintable;
use serde::Serialize;

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
    use laneway_page::markup::escape;

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
