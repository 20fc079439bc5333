//! Figures on a terminal: numbers in groups of three digits, columns right-aligned.

use std::fmt::Write;

/// Lines of a name, a figure and a note, right-aligned.
pub fn aligned(lines: &[(&str, u64, &str)]) -> String {
    let name_chars = lines.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, n, note) in lines {
        let line = format!("{name:<name_chars$}  {:>15}  {note}", grouped(*n));
        // A String takes whatever it is given.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A number in groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_grouped() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
