//! How INFO is written.

/// A line of INFO. Writing to a String cannot fail.
macro_rules! line {
    ($text:expr, $name:literal, $value:expr) => {
        let _ = write!($text, concat!($name, ":{}\r\n"), $value);
    };
}
pub(crate) use line;
