//! A trace as LTTng-UST records it, written here: entries and exits of functions, two levels deep.

use laneway_trace_read::{Consumer, Event, Loss, Thread, ThreadId, Trace};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

const CALLS: u64 = 20_000;
/// What one reading decodes.
pub(crate) const EVENTS: u64 = 2 * CALLS;
const MAGIC: u32 = 0xc1fc_1fc1;
const ENTRY: u16 = 1;
const EXIT: u16 = 2;
/// The name of the traced process, as the kernel keeps it.
const PROGRAM: &[u8; 17] = b"traced\0\0\0\0\0\0\0\0\0\0\0";
/// Addresses of the two functions.
const FUNCTIONS: [u64; 2] = [0x1000, 0x2000];

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 16; align = 8; signed = false; } := u16;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };
env { tracer_name = "lttng-ust"; hostname = "here"; };
clock { name = c; freq = 1000000000; offset = 0; };
typealias integer { size = 32; align = 8; signed = false; map = clock.c.value; } := t32;
typealias integer { size = 64; align = 8; signed = false; map = clock.c.value; } := t64;
stream { id = 0; event.header := struct { enum : u16 { compact = 0 ... 65534, extended = 65535 } id; variant <id> {
    struct { t32 timestamp; } compact;
    struct { u32 id; t64 timestamp; } extended; } v; } align(8);
  packet.context := struct { t64 timestamp_begin; t64 timestamp_end; u64 content_size; u64 packet_size;
    u64 packet_seq_num; u64 events_discarded; u32 cpu_id; };
  event.context := struct { u32 _vpid; u32 _vtid;
    integer { size = 8; align = 8; signed = 1; encoding = UTF8; } _procname[17]; }; };
event { id = 1; name = "lttng_ust_cyg_profile:func_entry"; fields := struct { u64 _addr; u64 _call_site; }; };
event { id = 2; name = "lttng_ust_cyg_profile:func_exit"; fields := struct { u64 _addr; u64 _call_site; }; };
"#;

/// A folder that goes with the process.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What is counted is decoding alone: events are dropped.
struct Nothing {
    events: u64,
}

impl Consumer for Nothing {
    fn thread(&mut self, _: ThreadId, _: &Thread) {}
    fn events(&mut self, _: ThreadId, _: Option<u32>, events: &[Event]) {
        self.events += events.len() as u64;
    }
    fn lost(&mut self, _: &Loss, _: &[ThreadId]) {}
}

fn write(folder: &Path) -> std::io::Result<()> {
    let mut body = Vec::new();
    for n in 0..CALLS {
        // The inner function is called by the outer one: in, in, out, out.
        let inner = n % 2;
        let time = 1_000 + n as u32 * 100;
        for (id, at, function) in match inner {
            0 => [(ENTRY, time, 0), (ENTRY, time + 20, 1)],
            _ => [(EXIT, time, 1), (EXIT, time + 20, 0)],
        } {
            body.extend(id.to_le_bytes());
            body.extend(u32::to_le_bytes(at));
            body.extend(7u32.to_le_bytes());
            body.extend(7u32.to_le_bytes());
            body.extend(PROGRAM);
            body.extend(FUNCTIONS[function].to_le_bytes());
            body.extend(0u64.to_le_bytes());
        }
    }
    let header_bytes = 4 + 6 * 8 + 4;
    let bits = 8 * (header_bytes + body.len()) as u64;
    let mut packet = MAGIC.to_le_bytes().to_vec();
    for value in [1_000, 1_000 + CALLS * 100, bits, bits, 0, 0] {
        packet.extend(value.to_le_bytes());
    }
    packet.extend(0u32.to_le_bytes());
    packet.extend(body);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("metadata"), METADATA)?;
    fs::write(folder.join("channel_0"), packet)
}

/// One reading of the whole trace.
pub(crate) fn decode() -> Box<dyn FnMut()> {
    let folder = Folder(env::temp_dir().join(format!("laneway-bench-{}", process::id())));
    write(&folder.0).expect("the folder for temporary files can be written");
    Box::new(move || {
        let mut trace = Trace::open(&folder.0).expect("a trace");
        let mut nothing = Nothing { events: 0 };
        trace.read(&mut nothing).expect("files that can be read");
        assert_eq!(nothing.events, EVENTS);
    })
}
