//! The captures, as NFStream can read them and as our reader reads them.

use crate::view::{Pair, Rule, Seen, view};
use laneway_capture::{Interface, Reader, Record, ethernet};
use laneway_features::{Stamp, parse};
use laneway_testkit::captures;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// From here on libpcap's seconds of a classic capture are negative.
const SECONDS_MAX: u64 = 1 << 31;

/// A folder for this run alone, removed with what is in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nfstream-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("cargo made the folder above");
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A frame as NFStream sees it.
pub(crate) struct Frame {
    /// Whole milliseconds, never before the frame before it: NFStream's time.
    pub(crate) ts_ns: u64,
    pub(crate) wire_len: u32,
    /// How many bytes longer its own link has it.
    pub(crate) link_extra: i32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Capture {
    pub(crate) name: String,
    /// The uncompressed file.
    pub(crate) path: PathBuf,
    pub(crate) frames: Vec<Frame>,
    /// Records in the file.
    pub(crate) records: usize,
    /// Frames that each rule names.
    pub(crate) by_rule: [usize; Rule::ALL.len()],
    /// Whose flows are not compared.
    pub(crate) garbled: HashMap<Pair, Rule>,
    /// Why none of its flows is compared.
    pub(crate) left_out: Option<String>,
}

impl Capture {
    /// Its flows are not compared. The first reason stays.
    pub(crate) fn leave_out(&mut self, why: String) {
        self.left_out.get_or_insert(why);
    }
}

/// Every capture at hand.
pub(crate) fn all(folder: &Folder) -> Vec<Capture> {
    captures().into_iter().map(|file| read(file.name, plain(file.path, folder))).collect()
}

/// The file itself, or an uncompressed copy: NFStream reads no compressed captures.
fn plain(file: PathBuf, folder: &Folder) -> PathBuf {
    if file.extension().is_none_or(|suffix| suffix != "zst") {
        return file;
    }
    let copy = folder.path(&file.file_stem().expect("a name").to_string_lossy());
    let compressed = fs::File::open(&file).expect("a readable capture");
    let mut out = fs::File::create(&copy).expect("our own folder");
    zstd::stream::copy_decode(compressed, &mut out).expect("a whole zstd file");
    copy
}

fn read(name: String, path: PathBuf) -> Capture {
    let mut capture = Capture {
        name,
        path,
        frames: Vec::new(),
        records: 0,
        by_rule: [0; Rule::ALL.len()],
        garbled: HashMap::new(),
        left_out: None,
    };
    let mut reader = match Reader::open(&capture.path) {
        Ok(reader) => reader,
        Err(why) => {
            capture.leave_out(why.to_string());
            return capture;
        }
    };
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                records.push((record.data.to_vec(), Record { data: &[], ..record }))
            }
            Ok(None) => break,
            Err(why) => {
                capture.leave_out(why.to_string());
                break;
            }
        }
    }
    if let Some(why) = odd(&reader) {
        capture.leave_out(why.to_owned());
    }
    capture.records = records.len();
    let mut clock_ms = 0;
    for (data, record) in &records {
        // 0: the file states none.
        let snaplen = reader.interfaces()[record.interface as usize].snaplen as usize;
        let kept = if snaplen == 0 { data.len() } else { data.len().min(snaplen) };
        if kept < data.len() {
            capture.count(Rule::SnapLength);
        }
        capture.add(&Record { data: &data[..kept], ..*record }, &mut clock_ms);
    }
    capture
}

impl Capture {
    fn count(&mut self, rule: Rule) {
        self.by_rule[rule as usize] += 1;
    }

    fn add(&mut self, record: &Record<'_>, clock_ms: &mut u64) {
        if record.ts_ns >= SECONDS_MAX * S {
            self.leave_out("stamped after January 2038, for libpcap before 1970".to_owned());
        }
        let mut scratch = Vec::new();
        let Ok(frame) = ethernet(record, &mut scratch) else {
            self.count(Rule::LinkLayer);
            return self.leave_out("a link layer that our side does not read".to_owned());
        };
        let mut opened = Vec::new();
        let missing = record.wire_len - record.data.len() as u32;
        let bytes = match view(frame.data, record.data.len(), missing, &mut opened) {
            Seen::Nothing(rule) => return self.count(rule),
            Seen::Garbled(rule, pair) => {
                self.count(rule);
                self.garbled.insert(pair, rule);
                None
            }
            Seen::As(bytes) if !parse(&bytes, Stamp::default()).has_ip() => {
                return self.count(Rule::WithoutIp);
            }
            Seen::As(bytes) => Some(bytes),
        };
        let ts_ms = record.ts_ns / MS;
        if ts_ms < *clock_ms {
            self.count(Rule::Late);
        }
        *clock_ms = ts_ms.max(*clock_ms);
        let Some(bytes) = bytes else { return };
        opened.into_iter().for_each(|rule| self.count(rule));
        let wire_len = record.wire_len & 0xffff;
        if wire_len < record.wire_len {
            self.count(Rule::LongLength);
        }
        // What stands in the frame counts for its fields; its length is the capture's own.
        let ethernet_len = bytes.len() as u32 + missing;
        let link_extra = wire_len as i32 - ethernet_len as i32;
        let wire_len = ethernet_len;
        self.frames.push(Frame { ts_ns: *clock_ms * MS, wire_len, link_extra, bytes });
    }
}

/// Why NFStream, or the libpcap in it, cannot be expected to read a capture as we do.
fn odd(reader: &Reader) -> Option<&'static str> {
    let counts = reader.counts();
    let interface = |i: &Interface| (i.link, i.snaplen);
    if reader.interfaces().windows(2).any(|pair| interface(&pair[0]) != interface(&pair[1])) {
        Some("interfaces of unlike link types or snapshot lengths, which libpcap refuses")
    } else if counts.fractions_carried > 0 {
        Some("a fraction of a second that is a second or more")
    } else if counts.lengths_raised > 0 {
        Some("fewer bytes on the wire than captured")
    } else {
        None
    }
}
