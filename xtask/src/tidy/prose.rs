//! Markdown, line by line: which lines are prose and which stand in a fenced block of code.

use super::numbered;

pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) text: &'a str,
    /// The language of the fence around this line (empty where none is named); `None` in prose.
    pub(super) fence: Option<&'a str>,
}

/// Every line but the fences themselves.
pub(super) fn lines(markdown: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut open: Option<(&str, &str)> = None;
    for (number, text) in numbered(markdown.lines()) {
        let trimmed = text.trim_start();
        match (open, fence(trimmed)) {
            (None, Some(marker)) => open = Some((marker, trimmed[marker.len()..].trim())),
            (Some((marker, _)), Some(closing)) if closing.starts_with(marker) => open = None,
            _ => lines.push(Line { number, text, fence: open.map(|(_, language)| language) }),
        }
    }
    lines
}

/// The run of three or more backticks or tildes that opens or closes a fence.
fn fence(line: &str) -> Option<&str> {
    let marker = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.chars().take_while(|&c| c == marker).count();
    (length >= 3).then(|| &line[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_knows_its_language_and_its_end() {
        let found = lines("a\n```sh\nb\n```\nc\n~~~\n```\n~~~\n");
        let found: Vec<_> = found.iter().map(|l| (l.number, l.text, l.fence)).collect();
        assert_eq!(
            found,
            [(1, "a", None), (3, "b", Some("sh")), (5, "c", None), (7, "```", Some(""))]
        );
    }
}
