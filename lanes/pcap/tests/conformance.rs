//! The lane keeps the contract: reading only, and with a capture to write, of the longest frames and of short buffers.

use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::{LaneError, PortId};
use laneway_pcap::PcapLane;
use laneway_spec::LaneSpec;
use laneway_testkit::{Properties, Rig};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

const BURST_FRAMES_SMALL: usize = 8;

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// Captures in a folder of its own, one to read per port, and perhaps one to write.
struct FileRig {
    spec: &'static str,
    frame_bytes_max: usize,
    writes: bool,
    folder: PathBuf,
    /// Records of the written capture that were collected, per port.
    collected: Vec<usize>,
}

impl FileRig {
    fn new(
        spec: &'static str,
        frame_bytes_max: usize,
        writes: bool,
    ) -> Result<FileRig, Infallible> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder =
            env::temp_dir().join(format!("laneway-pcap-conformance-{}-{number}", process::id()));
        fs::create_dir(&folder).expect("the temporary directory is writable");
        Ok(FileRig { spec, frame_bytes_max, writes, folder, collected: Vec::new() })
    }

    fn out(&self) -> PathBuf {
        self.folder.join("out.pcapng")
    }
}

impl Drop for FileRig {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Rig for FileRig {
    type Lane = PcapLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: self.writes,
            ports_max: 4,
            live: false,
            inject_frames_max: usize::MAX,
            frame_bytes_max: self.frame_bytes_max,
            small_pool: ("burst=8", BURST_FRAMES_SMALL),
            overload: None,
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<PcapLane, LaneError> {
        self.open_with(spec, ports, &[])
    }

    fn inject(&mut self, _port: PortId, _frames: &[Vec<u8>]) {
        panic!("a capture is not live");
    }

    /// Reads the capture anew each time, and passes over what was collected: the lane is open, so it is still partial.
    fn collect(&mut self, port: PortId, _expected: usize) -> Vec<Vec<u8>> {
        let partial = self.folder.join("out.pcapng.partial");
        if !fs::metadata(&partial).is_ok_and(|file| file.len() > 0) {
            return Vec::new(); // nothing was sent yet, not even the headers
        }
        let mut reader = Reader::open(&partial).expect("written by the lane");
        let mut frames = Vec::new();
        while let Some(record) = reader.next_record().expect("settled records are whole") {
            if record.interface == port.0 {
                assert_eq!(record.wire_len as usize, record.data.len());
                frames.push(record.data.to_vec());
            }
        }
        let seen = std::mem::replace(&mut self.collected[port.index()], frames.len());
        frames.split_off(seen)
    }

    fn open_with(
        &mut self,
        spec: &LaneSpec,
        ports: usize,
        frames: &[Vec<u8>],
    ) -> Result<PcapLane, LaneError> {
        self.collected = vec![0; ports];
        let captures: Vec<PathBuf> =
            (0..ports).map(|port| self.folder.join(format!("in{port}.pcap"))).collect();
        for (port, path) in captures.iter().enumerate() {
            let mut writer = Writer::create(path, Layout::Pcap, &[LinkType::Ethernet])
                .expect("the folder is writable");
            let frames = if port == 0 { frames } else { &[] };
            for (i, data) in frames.iter().enumerate() {
                let (ts_ns, wire_len) = (i as u64, data.len() as u32);
                writer
                    .write(&Record {
                        ts_ns,
                        interface: 0,
                        link: LinkType::Ethernet,
                        wire_len,
                        data,
                    })
                    .expect("a valid record");
            }
            writer.commit().expect("the folder is writable");
        }
        if !self.writes {
            return PcapLane::open(spec, &captures);
        }
        let joint = if spec.to_string().contains(':') { "," } else { ":" };
        let spec = format!("{spec}{joint}out={}", self.out().display()).parse()?;
        PcapLane::open(&spec, &captures)
    }
}

mod reading {
    laneway_testkit::conformance!(|| super::FileRig::new("pcap", 9014, false));
}

mod writing {
    laneway_testkit::conformance!(|| super::FileRig::new("pcap:frame=9014", 9014, true));
}

mod short_buffers {
    laneway_testkit::conformance!(|| super::FileRig::new("pcap:frame=1514", 1514, true));
}
