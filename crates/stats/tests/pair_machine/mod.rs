//! A machine whose truth is known, to prove the judge before it judges real ones: it measures pairs of segments over
//! generations of fresh processes, as a race does, disturbed as real machines are. It models the numbers of a race, not
//! packets; everything is a function of its seed.
//!
//! Each process has its own factor for as long as it lives (memory layout). The noise of a segment
//! remembers the segment before, whichever arm had that one, and may have heavy tails; the machine drifts;
//! a foreign program comes and goes in bursts that slow the segments they hit, and make some of them
//! unusable, so that what is missing is not missing by chance.

use laneway_random::Random;
use laneway_stats::pairs::Pair;

/// A disturbance that hits some processes and multiplies what they measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Episode {
    /// Probability that a process is hit, independent of the arm.
    pub(crate) share: f64,
    /// What the measured value is multiplied by; above 0.
    pub(crate) factor: f64,
}

impl Episode {
    /// Never happens.
    pub(crate) const NEVER: Self = Self { share: 0.0, factor: 1.0 };
}

/// A foreign program that loads the machine now and then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NoiseBurst {
    /// Probability that one begins at a segment.
    pub(crate) begins: f64,
    /// How many segments it lasts, in the mean; at least 1.
    pub(crate) segments: f64,
    /// What a measured value is multiplied by while it lasts; above 0.
    pub(crate) factor: f64,
    /// Probability that a segment it hits cannot be used.
    pub(crate) loses: f64,
}

impl NoiseBurst {
    /// Never comes.
    pub(crate) const NEVER: Self = Self { begins: 0.0, segments: 1.0, factor: 1.0, loses: 0.0 };
}

/// How a simulated machine disturbs pairs of segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PairMachine {
    /// Standard deviation of a segment's noise, on the log scale.
    pub(crate) noise: f64,
    /// Degrees of freedom of the noise, Student's; 3 or more, or 0 for normal noise. Few make heavy
    /// tails; the standard deviation stays.
    pub(crate) tail: u32,
    /// Correlation of the noise of successive segments, 0 to below 1.
    pub(crate) memory: f64,
    /// Change from segment to segment, on the log scale.
    pub(crate) drift: f64,
    /// Standard deviation of a process's own factor, on the log scale.
    pub(crate) generation: f64,
    /// Processes that happen to be laid out badly, for as long as they live.
    pub(crate) mode: Episode,
    /// Foreign load.
    pub(crate) burst: NoiseBurst,
    /// Probability that a segment cannot be used, burst or not.
    pub(crate) loses: f64,
}

/// How a race is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Sets of fresh processes.
    pub(crate) generations: usize,
    /// Pairs per arm in each.
    pub(crate) pairs: usize,
}

impl PairMachine {
    /// Like the machines the lab was made on: 0.13 per pair with heavy tails, 0.046 between
    /// generations, nothing else.
    pub(crate) const MEASURED: Self = Self {
        noise: 0.13 * std::f64::consts::FRAC_1_SQRT_2,
        tail: 4,
        memory: 0.0,
        drift: 0.0,
        generation: 0.046 * std::f64::consts::FRAC_1_SQRT_2,
        mode: Episode::NEVER,
        burst: NoiseBurst::NEVER,
        loses: 0.0,
    };

    /// Runs a race: the pairs of each arm with the base, in the order of time. The base truly
    /// measures 100 and arm `i` 100 * `truth[i]`. Within a generation the arms take turns in random
    /// order, and so do base and arm within a pair.
    pub(crate) fn race(&self, plan: Plan, truth: &[f64], seed: u64) -> Vec<Vec<Pair>> {
        let mut state = State {
            machine: self,
            random: Random::seeded(seed),
            noise: 0.0,
            drift: 0.0,
            is_loaded: false,
        };
        state.noise = state.innovation();
        let mut pairs = vec![Vec::with_capacity(plan.generations * plan.pairs); truth.len()];
        let mut turns: Vec<usize> = (0..truth.len()).collect();
        for generation in 0..plan.generations {
            let base = 100.0 * state.process();
            let arms: Vec<f64> =
                truth.iter().map(|truth| 100.0 * truth * state.process()).collect();
            for _ in 0..plan.pairs {
                state.random.shuffle(&mut turns);
                for &arm in &turns {
                    let (base, arm_value) = state.pair(base, arms[arm]);
                    pairs[arm].push(Pair { generation, base, arm: arm_value });
                }
            }
        }
        pairs
    }
}

/// A simulated machine at some moment.
struct State<'a> {
    machine: &'a PairMachine,
    random: Random,
    noise: f64,
    drift: f64,
    is_loaded: bool,
}

impl State<'_> {
    /// The factor of a fresh process.
    fn process(&mut self) -> f64 {
        let mode = self.machine.mode;
        let mode = if self.random.unit() < mode.share { mode.factor } else { 1.0 };
        mode * (self.machine.generation * self.random.normal()).exp()
    }

    fn pair(&mut self, base: f64, arm: f64) -> (Option<f64>, Option<f64>) {
        if self.random.below(2) == 0 {
            let base = self.segment(base);
            (base, self.segment(arm))
        } else {
            let arm = self.segment(arm);
            (self.segment(base), arm)
        }
    }

    /// What a segment measures of a process that truly gives `value`.
    fn segment(&mut self, value: f64) -> Option<f64> {
        let PairMachine { burst, memory, .. } = *self.machine;
        let changes = if self.is_loaded { 1.0 / burst.segments } else { burst.begins };
        self.is_loaded ^= self.random.unit() < changes;
        let mut measured = value * (self.machine.noise * self.noise + self.drift).exp();
        let mut loses = self.machine.loses;
        if self.is_loaded {
            measured *= burst.factor;
            loses = loses.max(burst.loses);
        }
        self.noise = memory * self.noise + (1.0 - memory * memory).sqrt() * self.innovation();
        self.drift += self.machine.drift;
        (self.random.unit() >= loses).then_some(measured)
    }

    /// Noise of unit variance.
    fn innovation(&mut self) -> f64 {
        let freedom = self.machine.tail;
        let normal = self.random.normal();
        if freedom < 3 {
            return normal;
        }
        let squares: f64 = (0..freedom).map(|_| self.random.normal().powi(2)).sum();
        normal * (f64::from(freedom - 2) / squares).sqrt()
    }
}

mod tests {
    use super::*;

    const STILL: PairMachine = PairMachine { noise: 0.0, generation: 0.0, ..PairMachine::MEASURED };

    #[test]
    fn an_undisturbed_machine_measures_the_truth() {
        let plan = Plan { generations: 3, pairs: 4 };
        let race = STILL.race(plan, &[1.0, 0.9], 5);
        for (pairs, truth) in race.iter().zip([1.0, 0.9]) {
            assert_eq!(pairs.len(), 12);
            assert_eq!(pairs[11].generation, 2);
            for pair in pairs {
                let ratio = pair.arm.expect("none is lost") / pair.base.expect("none is lost");
                assert!((ratio - truth).abs() < 1e-12, "{pair:?}");
            }
        }
    }

    #[test]
    fn noise_and_generations_have_the_spread_asked_for() {
        let machine = PairMachine { memory: 0.5, ..PairMachine::MEASURED };
        let race = machine.race(Plan { generations: 4_000, pairs: 1 }, &[1.0], 7);
        let logs: Vec<f64> =
            race[0].iter().filter_map(|pair| Some(pair.base?.ln() - 100f64.ln())).collect();
        let variance = logs.iter().map(|log| log * log).sum::<f64>() / logs.len() as f64;
        let expected = machine.noise.powi(2) + machine.generation.powi(2);
        assert!((variance / expected - 1.0).abs() < 0.15, "{variance} {expected}");
    }

    #[test]
    fn bursts_last_as_long_as_configured_and_lose_segments() {
        let burst = NoiseBurst { begins: 0.05, segments: 5.0, factor: 2.0, loses: 0.5 };
        let machine = PairMachine { burst, ..STILL };
        let race = machine.race(Plan { generations: 1, pairs: 20_000 }, &[1.0], 3);
        let halves: Vec<Option<f64>> = race[0].iter().flat_map(|p| [p.base, p.arm]).collect();
        let lost = halves.iter().filter(|half| half.is_none()).count() as f64;
        let hit = halves.iter().flatten().filter(|value| **value > 150.0).count() as f64;
        // Loaded 5 of every 5 + 20 segments, half of them lost.
        assert!((lost / 4_000.0 - 1.0).abs() < 0.1, "{lost}");
        assert!((hit / 4_000.0 - 1.0).abs() < 0.1, "{hit}");
    }

    #[test]
    fn a_seed_gives_a_race_and_another_another() {
        let plan = Plan { generations: 2, pairs: 3 };
        let race = |seed| PairMachine::MEASURED.race(plan, &[1.0], seed);
        assert_eq!(race(1), race(1));
        assert_ne!(race(1), race(2));
    }
}
