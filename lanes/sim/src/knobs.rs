//! The knobs of the lane, read and checked in one place. `README.md` explains them to users.

use crate::link::Link;
use laneway_core::CapSet;
use laneway_spec::{Knobs, LaneSpec, SpecError};
use std::ops::RangeInclusive;

/// A minute: longer delays are typing errors.
const DELAY_US_MAX: usize = 60_000_000;
/// Ethernet's smallest and jumbo's usual MTU.
const MTU: RangeInclusive<usize> = 64..=9216;
/// Frames in flight per direction.
const QUEUE: RangeInclusive<usize> = 1..=1 << 20;
/// Buffers per port; each takes the MTU and some room (see `SimLane`).
const FRAMES: RangeInclusive<usize> = 1..=1 << 16;

pub(crate) struct SimKnobs {
    pub(crate) seed: u64,
    pub(crate) link: Link,
    pub(crate) frames: usize,
    pub(crate) burst: usize,
    pub(crate) gathers: bool,
    pub(crate) allowed_missing: CapSet,
}

impl SimKnobs {
    pub(crate) fn read(spec: &LaneSpec) -> Result<SimKnobs, SpecError> {
        let knobs = spec.knobs();
        let seed = match knobs.text("seed")? {
            None => 1,
            Some(text) => text
                .parse()
                .map_err(|_| knobs.bad("seed", text, "use a whole number below 2^64"))?,
        };
        let micros = |name, default| {
            knobs.number(name, default, 0..=DELAY_US_MAX).map(|us| us as u64 * 1000)
        };
        let link = Link {
            loss: probability(&knobs, "loss")?,
            duplicate: probability(&knobs, "dup")?,
            reorder: probability(&knobs, "reorder")?,
            reorder_ns: micros("reorder_us", 100)?,
            delay_ns: micros("delay_us", 0)?,
            jitter_ns: micros("jitter_us", 0)?,
            mtu: knobs.number("mtu", 1500, MTU)?,
            queue_frames: knobs.number("queue", 1024, QUEUE)?,
        };
        let frames = knobs.number("frames", 1024, FRAMES)?;
        let burst = knobs.burst()?;
        let gathers = knobs.flag("gather")?;
        knobs.idle()?;
        let allowed_missing = knobs.allowed_missing()?;
        knobs.finish()?;
        Ok(SimKnobs { seed, link, frames, burst, gathers, allowed_missing })
    }
}

fn probability(knobs: &Knobs<'_>, name: &'static str) -> Result<f64, SpecError> {
    let Some(text) = knobs.text(name)? else { return Ok(0.0) };
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(knobs.bad(name, text, "use a probability from 0 to 1, for example 0.01")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SimKnobs, SpecError> {
        SimKnobs::read(&text.parse().expect("well formed"))
    }

    #[test]
    fn every_knob_of_the_readme_is_read() {
        let knobs = read(
            "sim:seed=7,loss=0.01,dup=0.001,reorder=0.02,reorder_us=9,delay_us=50,jitter_us=10,\
             mtu=1400,queue=8,frames=32,burst=16,gather,idle=spin,allow=zero-copy",
        )
        .unwrap();
        assert_eq!((knobs.seed, knobs.frames, knobs.burst), (7, 32, 16));
        assert!(knobs.gathers && !read("sim").unwrap().gathers);
        let link = knobs.link;
        assert_eq!((link.loss, link.duplicate, link.reorder), (0.01, 0.001, 0.02));
        assert_eq!((link.delay_ns, link.jitter_ns, link.reorder_ns), (50_000, 10_000, 9_000));
        assert_eq!((link.mtu, link.queue_frames), (1400, 8));
    }

    #[test]
    fn what_is_no_probability_is_refused_with_its_value() {
        for bad in ["1.1", "-0.1", "NaN", "often"] {
            let message = read(&format!("sim:loss={bad}")).err().unwrap().to_string();
            assert!(message.contains(&format!("sim:loss={bad}")), "{message}");
        }
    }
}
