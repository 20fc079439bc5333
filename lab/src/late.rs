//! How late a generator was: a histogram of 4 bins per power of two, so within 19 %.
//! `bpf/generate.bpf.c` keeps the same bins.

/// Bins; the last covers everything above 2^63 ns.
pub(crate) const BINS: usize = 256;

/// Lateness of frames against their due time, ns.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    bins: [u64; BINS],
    max_ns: u64,
}

impl Default for Late {
    fn default() -> Self {
        Late { bins: [0; BINS], max_ns: 0 }
    }
}

impl Late {
    /// From the kernel's bins.
    pub(crate) fn from_bins(bins: [u64; BINS], max_ns: u64) -> Late {
        Late { bins, max_ns }
    }

    /// Records `n` frames that were `late_ns` late.
    pub(crate) fn record(&mut self, late_ns: u64, n: u64) {
        self.bins[bin(late_ns)] += n;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// The longest.
    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The lateness that a share `q` of the frames did not exceed: the upper end of its bin.
    pub(crate) fn quantile_ns(&self, q: f64) -> u64 {
        let total: u64 = self.bins.iter().sum();
        let rank = (total as f64 * q).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (i, n) in self.bins.iter().enumerate() {
            sum += n;
            if sum >= rank && total > 0 {
                return upper_ns(i).min(self.max_ns);
            }
        }
        0
    }
}

fn bin(ns: u64) -> usize {
    let power = ns.max(1).ilog2() as usize;
    let quarter = if power >= 2 { (ns >> (power - 2)) as usize & 3 } else { 0 };
    power * 4 + quarter
}

fn upper_ns(bin: usize) -> u64 {
    let (power, quarter) = (bin / 4, bin % 4);
    if power < 2 {
        return (2 << power) - 1;
    }
    let width = 1u64 << (power - 2);
    ((1u64 << power) - 1).saturating_add(width.saturating_mul(quarter as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_its_bin() {
        let mut late = Late::default();
        late.record(1000, 99);
        late.record(50_000, 1);
        let p50 = late.quantile_ns(0.5);
        assert!((1000..1280).contains(&p50), "{p50}");
        assert_eq!((late.quantile_ns(1.0), late.max_ns()), (50_000, 50_000));
        assert_eq!(Late::default().quantile_ns(0.99), 0);
    }

    #[test]
    fn every_value_lies_below_the_upper_end_of_its_bin() {
        for ns in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 1 << 40, u64::MAX / 2, u64::MAX] {
            assert!(upper_ns(bin(ns)) >= ns, "{ns}");
        }
    }
}
