//! A page as one HTML file: its head, its end, and the parts that any page has.
//!
//! Must always hold: the file asks the network for nothing (a content policy in its head forbids it), and it prints.
//! What needs no script works without one.

use crate::markup::{escape, put};
use crate::number::ABSENT;
use crate::script;

/// The style that all pages share: colours for light, dark and paper, text, tables, lists.
const STYLE: &str = include_str!("../assets/page.css");

/// The begin of a page, up to and including `<body>`. `style` is the page's own, and may override what is shared.
pub fn begin(title: &str, style: &str) -> String {
    let mut out = String::with_capacity(1 << 18);
    put!(
        &mut out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n\
         <title>{}</title>\n<style>\n{STYLE}{style}{}</style>\n</head>\n<body>\n",
        escape(title),
        script::STYLE
    );
    out
}

/// The end of a page: the scripts in their order, as one strict script, and the closing tags.
pub fn end(out: &mut String, scripts: &[&str]) {
    out.push_str("<script>\n\"use strict\";\n");
    scripts.iter().for_each(|script| out.push_str(script));
    out.push_str("</script>\n</body>\n</html>\n");
}

/// A list of sentences; nothing if there are none.
pub fn list(out: &mut String, class: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    put!(out, "<ul class=\"{class}\">\n");
    for line in lines {
        put!(out, "<li>{}</li>\n", escape(line));
    }
    out.push_str("</ul>\n");
}

/// Names and their values; a dash if there are none.
pub fn facts(out: &mut String, pairs: impl IntoIterator<Item = (String, String)>) {
    let mut pairs = pairs.into_iter().peekable();
    if pairs.peek().is_none() {
        out.push_str(ABSENT);
        return;
    }
    out.push_str("<dl>\n");
    for (name, value) in pairs {
        put!(out, "<dt>{}</dt><dd>{}</dd>\n", escape(&name), escape(&value));
    }
    out.push_str("</dl>\n");
}

/// A sentence in place of a figure or a picture that is not there.
pub fn gap(out: &mut String, sentence: &str) {
    put!(out, "<p class=\"gap\">{}</p>\n", escape(sentence));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_asks_the_network_for_nothing_and_its_title_stays_text() {
        let mut page = begin("a </title><script>", "");
        facts(&mut page, [("<b>".to_owned(), "&".to_owned())]);
        list(&mut page, "x", &["<i>".to_owned()]);
        gap(&mut page, "<u>");
        end(&mut page, &[script::TABLES]);
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("<script>").count(), 1, "a title became a script");
        assert!(!["<b>", "<i>", "<u>", "url(", "@import"].iter().any(|word| page.contains(word)));
        assert!(page.ends_with("</script>\n</body>\n</html>\n"));
    }

    #[test]
    fn what_is_empty_shows_a_dash_or_nothing() {
        let mut page = String::new();
        list(&mut page, "x", &[]);
        facts(&mut page, []);
        assert_eq!(page, ABSENT);
    }
}
