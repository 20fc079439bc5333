//! Which Linux this is.

use std::fs;

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The running kernel's release, as `uname -r` prints it: `6.1.0-56-amd64`. Empty without /proc.
pub fn release() -> String {
    fs::read_to_string(RELEASE).unwrap_or_default().trim().to_owned()
}

/// True if the running kernel is of a series before `major`.`minor`; false where that cannot be read.
pub fn is_older_than(major: u32, minor: u32) -> bool {
    series(&release()).is_some_and(|series| series < (major, minor))
}

/// The first two numbers of a release.
fn series(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_its_series() {
        assert_eq!(series("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(series("6.12.117+deb12-amd64"), Some((6, 12)));
        assert_eq!(series("6.6"), Some((6, 6)));
        for text in ["", "6", "linux 6.1", "x.1"] {
            assert_eq!(series(text), None, "{text}");
        }
        assert!(series("6.1.0") < series("6.6-rc1"));
    }

    #[test]
    fn this_kernel_is_newer_than_the_first_and_older_than_the_last() {
        assert!(!is_older_than(3, 0) && is_older_than(1000, 0), "{}", release());
    }
}
