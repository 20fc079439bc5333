//! How far a Brownian motion may stray at each look before the error rate is spent.
//!
//! The recursion of Armitage, McPherson and Rowe ("Repeated Significance Tests on Accumulating
//! Data", JRSS A 132, 1969): the density of the motion that has not yet crossed is carried from
//! look to look by numerical integration, on the grid of Jennison and Turnbull ("Group Sequential
//! Methods with Applications to Clinical Trials", 2000, section 19.2), dense in the middle, sparse
//! far out, with Simpson's rule. Both sides are symmetric.
//!
//! The density of a look is worked out when the next look is known: the closer the next look, the
//! narrower the step between them, and the grid must be finer than the step.

use crate::normal;

/// Beyond this a normal tail does not matter here: P(Z > 9) is 1e-19.
const FAR: f64 = 9.0;
/// Coarsest grid: 16 is Jennison and Turnbull's, good to 1e-6 for looks that are apart.
const FINENESS_MIN: f64 = 16.0;

/// A motion that has been looked at, and has not crossed.
#[derive(Debug, Clone)]
pub(super) struct Boundary {
    /// The motion before the latest look: standardised position and probability, per grid point.
    before: Vec<(f64, f64)>,
    information_before: f64,
    information: f64,
    /// Where the latest look had its boundary; infinite before the first.
    latest: f64,
}

impl Boundary {
    /// No look has been taken yet.
    pub(super) fn new() -> Self {
        let start = vec![(0.0, 1.0)];
        Self { before: start, information_before: 0.0, information: 0.0, latest: f64::INFINITY }
    }

    /// The boundary of a look at `information`, above that of the look before, such that the chance
    /// to cross it, and none before, is `spend`.
    pub(super) fn look(&mut self, information: f64, spend: f64) -> f64 {
        if self.information > 0.0 {
            self.before = self.inside((1.0 - self.information / information).sqrt());
            self.information_before = self.information;
        }
        self.information = information;
        self.latest = self.solve(spend);
        self.latest
    }

    /// Newton on the logarithm of the chance, kept inside a bracket.
    fn solve(&self, spend: f64) -> f64 {
        let Some(alone) = normal::quantile(1.0 - 0.5 * spend) else { return f64::INFINITY };
        // Having had chances before, the motion crosses a given line first here less often than
        // if this look were the only one.
        let (mut low, mut high) = (0.0, alone);
        let mut boundary = alone;
        for _ in 0..60 {
            let chance = self.crossing(boundary);
            if chance > spend {
                low = boundary
            } else {
                high = boundary
            }
            let slope = 2.0 * self.density(boundary) / chance;
            let next = boundary + (chance / spend).ln() / slope;
            let inside = next > low && next < high;
            let next = if inside { next } else { 0.5 * (low + high) };
            if (next - boundary).abs() < 1e-9 {
                return next;
            }
            boundary = next;
        }
        boundary
    }

    /// Position at the latest look, in steps since the look before, seen from grid point `from`.
    fn steps(&self, position: f64, from: f64) -> f64 {
        let step = (self.information - self.information_before).sqrt();
        (position * self.information.sqrt() - from * self.information_before.sqrt()) / step
    }

    /// The chance that the latest look is the first beyond `boundary`, on either side.
    fn crossing(&self, boundary: f64) -> f64 {
        let beyond = |&(from, mass): &(f64, f64)| match self.steps(boundary, from) {
            steps if steps > FAR => 0.0,
            steps => mass * normal::upper_tail(steps),
        };
        2.0 * self.before.iter().map(beyond).sum::<f64>()
    }

    /// The density of the motion at the latest look, of those that crossed at none before.
    fn density(&self, position: f64) -> f64 {
        let scale = (self.information / (self.information - self.information_before)).sqrt();
        let normal = |&(from, mass): &(f64, f64)| match self.steps(position, from) {
            steps if steps.abs() > FAR => 0.0,
            steps => mass * (-0.5 * steps * steps).exp(),
        };
        scale / std::f64::consts::TAU.sqrt() * self.before.iter().map(normal).sum::<f64>()
    }

    /// The motion after the latest look, on a grid for a next step of `step` (standardised).
    fn inside(&self, step: f64) -> Vec<(f64, f64)> {
        let own = (1.0 - self.information_before / self.information).sqrt();
        let fineness = FINENESS_MIN.max(2.0 / step.min(own)).ceil();
        let ends = grid(fineness, self.latest);
        let mut points = Vec::with_capacity(2 * ends.len());
        for pair in ends.windows(2) {
            let width = (pair[1] - pair[0]) / 6.0;
            for (at, weight) in
                [(pair[0], width), (0.5 * (pair[0] + pair[1]), 4.0 * width), (pair[1], width)]
            {
                points.push((at, weight * self.density(at)));
            }
        }
        points
    }
}

/// Ends of the intervals of integration, cut at the boundary.
fn grid(fineness: f64, boundary: f64) -> Vec<f64> {
    let r = fineness as usize;
    let far = |i: usize| 3.0 + 4.0 * (fineness / i as f64).ln();
    let left = (1..r).map(|i| -far(i));
    let middle = (r..=5 * r).map(|i| 3.0 * (i - r) as f64 / (2.0 * fineness) - 3.0);
    let right = (1..r).rev().map(far);
    let within = left.chain(middle).chain(right).filter(|at| at.abs() < boundary);
    let mut ends: Vec<f64> = within.collect();
    if boundary < far(1) {
        ends.insert(0, -boundary);
        ends.push(boundary);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_motion_is_somewhere() {
        let mut motion = Boundary::new();
        let mut spent = 0.0;
        for information in [1.0, 1.5, 1.51, 4.0, 9.0] {
            motion.look(information, 0.01);
            spent += 0.01;
            let inside: f64 = motion.inside(0.1).iter().map(|&(_, mass)| mass).sum();
            assert!((inside + spent - 1.0).abs() < 1e-6, "{information}: {inside}");
        }
    }
}
