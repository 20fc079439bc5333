//! The knobs of the lane, read and checked in one place. `README.md` explains them to users.

use laneway_capture::ETHERNET_BYTES;
use laneway_capture::format::FRAME_BYTES_MAX;
use laneway_core::CapSet;
use laneway_spec::{LaneSpec, SpecError};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Ethernet's shortest frame, and the longest a capture can hold behind a made-up header.
const FRAME_BYTES: RangeInclusive<usize> = 60..=FRAME_BYTES_MAX as usize + ETHERNET_BYTES;
/// Passes over a capture: at a microsecond each, a quarter of an hour of nothing but opening it.
const PASSES: RangeInclusive<usize> = 1..=1_000_000_000;

pub(crate) struct PcapKnobs {
    pub(crate) out: Option<PathBuf>,
    pub(crate) passes: usize,
    pub(crate) frame_bytes: usize,
    pub(crate) burst: usize,
    pub(crate) allowed_missing: CapSet,
}

impl PcapKnobs {
    pub(crate) fn read(spec: &LaneSpec) -> Result<PcapKnobs, SpecError> {
        let knobs = spec.knobs();
        let out = knobs.text("out")?;
        if out == Some("-") {
            return Err(knobs.bad(
                "out",
                "-",
                "name a file; standard output is for the app's rows",
            ));
        }
        let passes = knobs.number("loop", 1, PASSES)?;
        let frame_bytes = knobs.number("frame", *FRAME_BYTES.end(), FRAME_BYTES)?;
        let burst = knobs.burst()?;
        knobs.idle()?;
        let allowed_missing = knobs.allowed_missing()?;
        let read =
            PcapKnobs { out: out.map(PathBuf::from), passes, frame_bytes, burst, allowed_missing };
        knobs.finish()?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PcapKnobs, SpecError> {
        PcapKnobs::read(&text.parse().expect("well formed"))
    }

    fn refused(text: &str) -> String {
        read(text).err().expect("refused").to_string()
    }

    #[test]
    fn every_knob_of_the_readme_is_read() {
        let knobs =
            read("pcap:out=/tmp/a=b.pcapng,loop=3,frame=2k,burst=16,idle=spin,allow=transmit")
                .unwrap();
        assert_eq!(knobs.out, Some(PathBuf::from("/tmp/a=b.pcapng")));
        assert_eq!((knobs.passes, knobs.frame_bytes, knobs.burst), (3, 2048, 16));
    }

    #[test]
    fn by_default_the_longest_frame_of_any_capture_fits() {
        let knobs = read("pcap").unwrap();
        assert_eq!(knobs.frame_bytes, 262_144 + 14);
        assert_eq!((knobs.passes, knobs.out), (1, None));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_to_try() {
        assert!(refused("pcap:out=-").contains("name a file"));
        assert!(refused("pcap:loop=0").contains("from 1 to"));
        assert!(refused("pcap:frame=59").contains("from 60 to"));
    }
}
