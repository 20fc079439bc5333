//! A figure that a sentence rests on, calculated again: `128 / 3.26e-6`.
//!
//! Numbers as Rust writes them (`119_937`, `3.26e-6`), `+ - * /` and parentheses, and nothing else. What is too long,
//! too deep or comes to no number is refused, so that an expression of a checked scenario always has a value.

use serde::{Deserialize, Serialize};

/// Longest expression, bytes.
const EXPRESSION_BYTES_MAX: usize = 200;
/// Deepest nesting of parentheses and signs.
const DEPTH_MAX: usize = 16;
/// How far a figure may be off what was given, unless stated otherwise: a share.
const WITHIN: f64 = 0.01;

/// A figure, and the value that is claimed for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arithmetic {
    /// An expression of figures that the sentence's author gives.
    pub figure: String,
    /// The value that is claimed for it.
    pub is: f64,
    /// How far off that may be, a share.
    #[serde(default = "within")]
    pub within: f64,
}

fn within() -> f64 {
    WITHIN
}

impl Arithmetic {
    /// What the expression comes to.
    ///
    /// # Errors
    /// A sentence on why it comes to nothing.
    pub(crate) fn value(&self) -> Result<f64, String> {
        if self.figure.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("use at most {EXPRESSION_BYTES_MAX} bytes"));
        }
        let mut reader = Reader { rest: self.figure.trim(), depth: 0 };
        let value = reader.sum()?;
        match (reader.rest, value.is_finite()) {
            ("", true) => Ok(value),
            ("", false) => Err("it divides by zero, or is beyond every number".to_owned()),
            (rest, _) => Err(format!("`{rest}` cannot follow what stands before it")),
        }
    }

    /// Whether it comes to the claimed value, and what it comes to.
    pub(crate) fn holds(&self) -> (bool, f64) {
        let value = self.value().expect("the scenario was checked");
        ((value / self.is - 1.0).abs() <= self.within, value)
    }

    /// For a reader.
    pub(crate) fn sentence(&self) -> String {
        format!("{} comes to {}, within {} %", self.figure, self.is, self.within * 100.0)
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.factor()?;
        loop {
            if self.takes('*') {
                value *= self.factor()?;
            } else if self.takes('/') {
                value /= self.factor()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}"));
        }
        let value = if self.takes('-') {
            -self.factor()?
        } else if self.takes('(') {
            let value = self.sum()?;
            if !self.takes(')') {
                return Err("a parenthesis is left open".to_owned());
            }
            value
        } else {
            self.number()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64, String> {
        let is_sign = |c: char, before: u8| "+-".contains(c) && before.eq_ignore_ascii_case(&b'e');
        let bytes = self.rest.as_bytes();
        let ends = |&(at, c): &(usize, char)| {
            let is_of_exponent = at > 0 && is_sign(c, bytes[at - 1]);
            !(c.is_ascii_alphanumeric() || "._".contains(c) || is_of_exponent)
        };
        let end = self.rest.char_indices().find(ends).map_or(self.rest.len(), |(at, _)| at);
        let (number, rest) = self.rest.split_at(end);
        let starts = number.starts_with(|c: char| c.is_ascii_digit());
        let value = number.replace('_', "").parse().ok().filter(|_| starts);
        self.rest = rest.trim_start();
        value.ok_or_else(|| match number {
            "" => "a number is missing".to_owned(),
            _ => format!("`{number}` is no number; use digits, + - * / and parentheses"),
        })
    }

    fn takes(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(text: &str) -> Arithmetic {
        Arithmetic { figure: text.to_owned(), is: 1.0, within: WITHIN }
    }

    #[test]
    fn figures_are_calculated_as_they_are_written() {
        for (text, value) in [
            ("119_937 / 59_944", 119_937.0 / 59_944.0),
            ("128 / 3.26e-6", 128.0 / 3.26e-6),
            ("(1.599 - 1.457) / 1.599", (1.599 - 1.457) / 1.599),
            (" 2+3*4 - 8/2/2 ", 12.0),
            ("-(2 - 5) * 1E+3", 3_000.0),
        ] {
            assert_eq!(figure(text).value(), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_formula_without_a_value_is_reported() {
        let (long, deep) = ("1".repeat(201), "(".repeat(17));
        for (text, part) in [
            ("", "a number is missing"),
            ("1 +", "a number is missing"),
            ("1 / 0", "divides by zero"),
            ("(1 + 2", "left open"),
            ("1 2", "`2` cannot follow"),
            ("1 % 2", "`% 2` cannot follow"),
            ("2x", "`2x` is no number"),
            ("nan", "`nan` is no number"),
            (&long, "at most 200 bytes"),
            (&deep, "deeper than 16"),
        ] {
            let why = figure(text).value().expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn a_figure_holds_as_far_as_it_may_be_off() {
        let stated = Arithmetic { is: 822.0, ..figure("8.22 / 0.01") };
        assert!(stated.holds().0);
        let wrong = Arithmetic { is: 39_000.0, ..figure("128 / 3.26e-6") };
        assert!(!wrong.holds().0);
        assert_eq!(wrong.sentence(), "128 / 3.26e-6 comes to 39000, within 1 %");
    }

    proptest! {
        #[test]
        fn any_text_has_a_value_or_a_sentence(text in "[-0-9e+*/()._ a]{0,40}") {
            match figure(&text).value() {
                Ok(value) => prop_assert!(value.is_finite()),
                Err(why) => prop_assert!(why.contains(' ')),
            }
        }
    }
}
