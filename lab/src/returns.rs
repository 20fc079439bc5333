//! The far end of a bounce: `bpf/returns.bpf.c` on the generator's interface, which counts what comes
//! back by segment and drops it.
//!
//! Its work is done in the softirq of whoever sends, so on the arm's CPU, and is in every arm's
//! figure alike. It detaches when this value drops or the process ends.

use crate::race::RaceError;
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/returns.bpf.o"));

/// Frames that came back, by segment; entry 0 counts what carries no number, [`CHANGED`] what is UDP but not as it was
/// sent.
pub(crate) type Returned = Vec<u64>;

/// As in the program.
pub(crate) const CHANGED: usize = 256;

/// The attached counter.
pub(crate) struct Returns {
    /// Declared first: detach before the program goes.
    _attached: XdpLink,
    loaded: Loaded,
}

impl Returns {
    /// Attaches it to `interface` of `namespace`, where payloads of `payload_bytes` are to come back.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(
        namespace: &Namespace,
        interface: &str,
        payload_bytes: u16,
    ) -> Result<Returns, RaceError> {
        let loaded = load(payload_bytes)?;
        let program = loaded.program();
        let attached =
            namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
        Ok(Returns { _attached: attached, loaded })
    }

    /// What came back so far.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Returned, LaneError> {
        counts(&self.loaded)
    }
}

fn load(payload_bytes: u16) -> Result<Loaded, BpfError> {
    let bytes = u32::from(payload_bytes).to_ne_bytes().to_vec();
    Loaded::load(&KernelHalf {
        name: "returns",
        object: OBJECT,
        program: "returns",
        config: vec![ConfigValue { name: "lw_payload_bytes", bytes }],
        entries: Vec::new(),
        map_sizes: Vec::new(),
        records: None,
        drops_map: None,
        seen_map: None,
    })
}

fn counts(loaded: &Loaded) -> Result<Returned, LaneError> {
    let mut returned = Vec::with_capacity(CHANGED + 1);
    // In the order of the map's index.
    loaded.maps().visit("returned", &mut |_, value| {
        returned.push(value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)));
    })?;
    Ok(returned)
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
mod tests {
    use super::*;
    use crate::traffic::{Replayable, TrafficPlan};
    use laneway_bpf::{RunInput, prog_run};
    use std::net::SocketAddrV4;

    #[test]
    fn what_comes_back_is_counted_by_segment_whoever_rewrote_its_macs() {
        let loaded = match load(64) {
            Ok(loaded) => loaded,
            Err(why) => return println!("skipped: {why}"),
        };
        let end = |last, port| SocketAddrV4::new([10, 77, 0, last].into(), port);
        let (source, destination) = (end(1, 7001), end(2, 7000));
        let plan = TrafficPlan::Udp { payload_bytes: 64, source, destination };
        let traffic = Replayable::prepare(&plan).expect("frames made here need no file");
        let mut frame = [0; 106];
        for (segment, number) in [(7, 0), (7, 1), (9, 0)] {
            traffic.templates[0].write(&mut frame, [2, 0, 0, 0, 0, 9], segment, number, 0);
            frame[..12].rotate_left(6);
            let input = RunInput { frame: &frame, ..RunInput::default() };
            let output = prog_run(loaded.program(), input).expect("it runs");
            assert_eq!(output.verdict, 1, "dropped");
        }
        // Its number, its end, its length; and a frame of ours too short for a payload.
        let spoilt: [fn(&mut Vec<u8>); 4] =
            [|f| f[42] = 1, |f| f[59] = 1, |f| f[39] -= 1, |f| f.truncate(50)];
        for spoil in spoilt {
            let mut frame = frame.to_vec();
            spoil(&mut frame);
            let input = RunInput { frame: &frame, ..RunInput::default() };
            prog_run(loaded.program(), input).expect("it runs");
        }
        let stranger = RunInput { frame: &[0; 60], ..RunInput::default() };
        prog_run(loaded.program(), stranger).expect("it runs");
        let returned = counts(&loaded).expect("it is read");
        assert_eq!((returned[7], returned[9], returned[0], returned[CHANGED]), (2, 1, 1, 4));
    }
}
