//! Memory of values: what an allocator takes for them, and how much of it is given back at a time.

/// Gives back a part of its memory at a time.
pub(crate) trait Pieces {
    /// Frees a piece; false if nothing is left.
    fn free_piece(&mut self) -> bool;
}

/// What an allocator takes for `bytes`: a header of 8, rounded up to 16.
pub(crate) fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        _ => (bytes + 8).next_multiple_of(16).max(32),
    }
}
