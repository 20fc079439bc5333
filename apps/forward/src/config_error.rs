//! Why a configuration is refused.

/// Why a configuration cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A text is not what it should be.
    #[error("{what} `{found}`: expected {expected}")]
    Word {
        /// `mode`, `route`, `neighbour`.
        what: &'static str,
        /// What was given.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// A number is beyond its limit.
    #[error("{len} {what} are too many; {max} are the most")]
    TooMany {
        /// What of.
        what: &'static str,
        /// How many were asked for.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A number that must be at least 1 is 0.
    #[error("0 {what} cannot be; use at least 1")]
    None {
        /// What of.
        what: &'static str,
    },
    /// A route leaves by a port that is not there.
    #[error("route to {to}: {why}")]
    Route {
        /// The prefix.
        to: String,
        /// What is wrong.
        why: String,
    },
    /// What the kernel half cannot do.
    #[error("the XDP program cannot do this: {what}; use a lane that shows frames to user space")]
    Kernel {
        /// What it cannot do.
        what: String,
    },
}
