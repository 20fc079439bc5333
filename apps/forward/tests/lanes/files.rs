//! From capture files to a capture file.

use crate::expected::{MODES, after, config, frames};
use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::{FrameApp, FrameLane, Lane, PortId, Turn};
use laneway_forward::Forward;
use laneway_pcap::PcapLane;
use laneway_spec::LaneSpec;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A folder that is removed when the test ends, however it ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("forward-files-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("cargo made the folder above");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn frames_of_one_file_leave_by_the_interface_of_the_other() {
    let folder = Folder::new();
    let sent = frames(50);
    let inputs: Vec<PathBuf> = (0..2).map(|port| folder.0.join(format!("{port}.pcap"))).collect();
    for (path, sent) in inputs.iter().zip(&sent) {
        let mut writer = Writer::create(path, Layout::Pcap, &[LinkType::Ethernet])
            .unwrap_or_else(|e| panic!("{e}"));
        for (ts_ns, data) in (1_000_000_000u64..).zip(sent) {
            let (link, wire_len) = (LinkType::Ethernet, data.len() as u32);
            let record = Record { ts_ns, interface: 0, link, wire_len, data };
            writer.write(&record).unwrap_or_else(|e| panic!("{e}"));
        }
        writer.commit().unwrap_or_else(|e| panic!("{e}"));
    }
    for mode in MODES {
        let out = folder.0.join(format!("{}.pcapng", mode.word()));
        let spec: LaneSpec = format!("pcap:out={}", out.display()).parse().expect("a spec");
        let mut lane = PcapLane::open(&spec, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let mut app = Forward::new(config(mode)).expect("it can run");
        while !lane.exhausted() {
            for port in [PortId(0), PortId(1)] {
                let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
                app.on_burst(port, burst, Turn::default());
                lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        lane.finish().unwrap_or_else(|e| panic!("{e}"));
        let mut written = [Vec::new(), Vec::new()];
        let mut reader = Reader::open(&out).unwrap_or_else(|e| panic!("{e}"));
        while let Some(record) = reader.next_record().unwrap_or_else(|e| panic!("{e}")) {
            written[record.interface as usize].push(record.data.to_vec());
        }
        for (egress, written) in written.iter().enumerate() {
            let expected: Vec<_> =
                sent[1 - egress].iter().map(|f| after(mode, egress, f)).collect();
            assert!(*written == expected, "{mode:?}, interface {egress}");
        }
    }
}
