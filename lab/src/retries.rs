//! How often a load may be offered again because something disturbed it.
//!
//! On a shared host most segments may be disturbed for a while, and then none for long. So every load brings a few
//! retries, and those that are not needed are kept for the ones that need more: a race takes no longer than if
//! each had used its own, and a block is lost less often. An accepted segment has kept every limit.
//! Whether one is accepted is asked of the generator and of other programs, the same for all arms, and not of what
//! the arm did. An arm that works on the generator's CPU can make it late all the same; the notes count the retries.

/// The most that one load may use, in shares of the race's average: with three at an average and two thirds of the
/// segments disturbed, one load in 30,000 fails.
const LOAD_MAX: usize = 8;

/// Retries of a race that are left.
#[derive(Debug)]
pub(crate) struct Retries {
    each: usize,
    saved: usize,
}

/// Those that one load may use.
#[derive(Debug)]
pub(crate) struct OfLoad<'a> {
    race: &'a mut Retries,
    left: usize,
}

impl Retries {
    /// `each`: what a load brings.
    pub(crate) fn new(each: usize) -> Self {
        Self { each, saved: 0 }
    }

    /// True if none is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.saved == 0
    }

    /// For the next load.
    pub(crate) fn next(&mut self) -> OfLoad<'_> {
        self.saved += self.each;
        OfLoad { left: self.saved.min(LOAD_MAX * self.each), race: self }
    }
}

impl OfLoad<'_> {
    /// True if the load may be offered once more; that is then one less.
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        if is_left {
            self.left -= 1;
            self.race.saved -= 1;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `wanted` a load gets.
    fn used(retries: &mut Retries, wanted: usize) -> usize {
        let mut load = retries.next();
        (0..wanted).take_while(|_| load.take()).count()
    }

    #[test]
    fn a_load_has_its_own_and_what_others_left() {
        let mut retries = Retries::new(3);
        assert_eq!(used(&mut retries, 9), 3, "the first has nobody's");
        assert!(retries.is_used_up());
        assert_eq!(used(&mut retries, 1), 1);
        assert_eq!(used(&mut retries, 0), 0);
        assert_eq!(used(&mut retries, 9), 8, "its own and those of the two before");
        assert_eq!(used(&mut retries, 9), 3);
    }

    #[test]
    fn no_load_takes_all_that_was_saved() {
        let mut retries = Retries::new(3);
        (0..100).for_each(|_| assert_eq!(used(&mut retries, 0), 0));
        assert_eq!(used(&mut retries, 1_000), 24);
        assert_eq!(used(&mut retries, 1_000), 24);
    }
}
