//! Running `ip` and `ethtool`.
//!
//! A child inherits the network namespace of the thread that starts it, so a tool run inside `Namespace::enter` acts
//! there. Output is text and is bounded by what these two programs print for one interface.

use std::io;
use std::process::{Command, Stdio};

use crate::Error;

/// A program this crate runs, with the package to name when it is missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
}

pub(crate) const IP: Tool = Tool { program: "ip", package: "iproute2" };
pub(crate) const ETHTOOL: Tool = Tool { program: "ethtool", package: "ethtool" };

impl Tool {
    /// Runs the tool and returns its standard output. Blocks until it ends.
    pub(crate) fn run<S: AsRef<str>>(self, arguments: &[S]) -> Result<String, Error> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let output = Command::new(self.program)
            .args(&arguments)
            // Their messages are parsed, so they must not be translated.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => {
                    Error::ToolMissing { program: self.program, package: self.package }
                }
                _ => Error::Path { action: "run", path: self.program.into(), source },
            })?;
        if !output.status.success() {
            return Err(Error::Tool {
                command: format!("{} {}", self.program, arguments.join(" ")),
                status: output.status.to_string(),
                stderr: String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_package_of_a_missing_program() {
        let missing = Tool { program: "laneway-no-such-program", package: "nowhere" };
        let error = missing.run(&["x"]).expect_err("no such program");
        assert_eq!(
            error.to_string(),
            "cannot run `laneway-no-such-program`: not found in PATH; install the package nowhere"
        );
    }

    #[test]
    fn failure_carries_the_command_and_its_own_words() {
        let shell = Tool { program: "sh", package: "dash" };
        let error = shell.run(&["-c", "echo no good >&2; exit 3"]).expect_err("exits with 3");
        let sentence = error.to_string();
        assert!(sentence.contains("sh -c echo no good"), "{sentence}");
        assert!(sentence.contains("exit status: 3"), "{sentence}");
        assert!(sentence.ends_with("no good"), "{sentence}");
    }
}
