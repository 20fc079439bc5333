//! A descriptor kept for the moment when there is no other.

use std::fs::File;
use std::io;

/// The file that is opened for the sake of its descriptor.
const PATH: &str = "/dev/null";

/// A descriptor to give up when there is no other. Without one nothing can be accepted, not even to be refused, and the
/// peer would hang.
#[derive(Debug)]
pub struct Reserve(Option<File>);

impl Reserve {
    /// Takes the descriptor.
    ///
    /// # Errors
    /// There is none left already.
    pub fn open() -> io::Result<Reserve> {
        File::open(PATH).map(|file| Reserve(Some(file)))
    }

    /// Gives the descriptor up for as long as `accept` takes, and closes what that accepted.
    ///
    /// # Errors
    /// Those of `accept`: the kernel looks for a descriptor in front of a connection, so perhaps nothing waits; or
    /// another thread took the descriptor, and there is none to refuse by until [`renew`](Self::renew) finds one.
    pub fn refuse<T>(&mut self, accept: impl FnOnce() -> io::Result<T>) -> io::Result<()> {
        self.0 = None;
        let refused = accept().map(drop);
        self.renew();
        refused
    }

    /// Takes a descriptor again, if the one in reserve was lost and there is one now.
    pub fn renew(&mut self) {
        if self.0.is_none() {
            self.0 = File::open(PATH).ok();
        }
    }
}
