//! Running an XDP program on given bytes: as a test that returns verdict and bytes
//! ([`prog_run`]), or as a traffic source that sends them for real ([`live_frames`]). A program of section `tc` is run
//! on a socket buffer ([`prog_run_train`]).

use crate::BpfError;
use libbpf_rs::libbpf_sys::{
    BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md,
};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most bytes of metadata in front of a frame; a multiple of four (32 before Linux 6.3).
pub const META_BYTES_MAX: usize = 252;

/// The shortest frame that the kernel runs a program on: an Ethernet header.
const FRAME_BYTES_MIN: usize = 14;
/// The longest, for programs that declare `xdp.frags`; without, about a page less its headroom.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Most frames that the kernel runs between two chances to be interrupted.
const BATCH_FRAMES_MAX: u32 = 256;
/// Room for a program that makes the frame longer (headroom of XDP plus some tail).
const GROWTH_BYTES: usize = 1024;

/// What a program is run on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunInput<'a> {
    /// The frame, from its Ethernet header on.
    pub frame: &'a [u8],
    /// What the program finds between `data_meta` and `data`: a multiple of four bytes, at most
    /// [`META_BYTES_MAX`].
    pub meta: &'a [u8],
    /// How often to run it; 0 counts as 1. The bytes are not restored in between. More than once
    /// costs some 20 ms extra (the kernel patches its XDP dispatcher around the runs) unless the
    /// program is attached somewhere; once costs microseconds.
    pub repeat: u32,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutput {
    /// The program's return value (an XDP action), of the last run.
    pub verdict: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// The metadata as the program left it.
    pub meta: Vec<u8>,
    /// Mean time of a run in nanoseconds, as the kernel measured it.
    pub mean_ns: u32,
}

/// Runs an XDP program on a frame without any device (`BPF_PROG_TEST_RUN`). Maps and rings work as
/// for live traffic, so records that the program emits are in its rings afterwards.
///
/// # Errors
/// [`BpfError::Object`] for lengths that the kernel does not take, else what the kernel answers.
pub fn prog_run(program: BorrowedFd<'_>, input: RunInput<'_>) -> Result<RunOutput, BpfError> {
    let (data, context) = pack(input.frame, input.meta)?;
    let mut out = vec![0u8; data.len() + GROWTH_BYTES];
    let mut context_out = xdp_md::default();
    let mut opts = options(&data, &context);
    opts.data_out = out.as_mut_ptr().cast();
    opts.data_size_out = out.len() as u32;
    opts.ctx_out = (&raw mut context_out).cast();
    opts.ctx_size_out = size_of::<xdp_md>() as u32;
    opts.repeat = i32::try_from(input.repeat.max(1)).unwrap_or(i32::MAX);
    run(program, &mut opts)?;
    out.truncate(opts.data_size_out as usize);
    // The answer's context counts from the start of the metadata.
    let meta_bytes = (context_out.data as usize).min(out.len());
    let frame = out.split_off(meta_bytes);
    Ok(RunOutput { verdict: opts.retval, frame, meta: out, mean_ns: opts.duration })
}

/// What the kernel takes of `struct __sk_buff` (linux/bpf.h), whose other fields must be zero.
#[repr(C)]
#[derive(Default)]
struct SkBuff {
    _before: [[u32; 20]; 2],
    wire_len: u32,
    gso_segs: u32,
    sk: u64,
    gso_size: u32,
    _behind: [u32; 3],
}

/// Runs a program of section `tc` on a socket buffer with these bytes, without any device, and returns its verdict.
/// With a `gso_size` they are a train: payloads of so many bytes behind one header. All lie in one page, with its
/// overhead: some 3,500 bytes.
///
/// # Errors
/// As for [`prog_run`].
pub fn prog_run_train(
    program: BorrowedFd<'_>,
    frame: &[u8],
    gso_size: u16,
) -> Result<u32, BpfError> {
    let (data, _) = pack(frame, &[])?;
    let buffer = SkBuff { gso_size: gso_size.into(), ..SkBuff::default() };
    let mut opts = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: data.as_ptr().cast(),
        data_size_in: data.len() as u32,
        ctx_in: (&raw const buffer).cast(),
        ctx_size_in: size_of::<SkBuff>() as u32,
        repeat: 1,
        ..Default::default()
    };
    run(program, &mut opts)?;
    Ok(opts.retval)
}

/// A burst of real frames.
#[derive(Clone, Copy, Debug)]
pub struct LiveFrames<'a> {
    /// The frame that each starts as. The kernel reuses pages **without restoring them**: a
    /// program that edits must write every byte it depends on.
    pub frame: &'a [u8],
    /// Metadata in front of it, as in [`RunInput`].
    pub meta: &'a [u8],
    /// How many frames.
    pub frames: u32,
    /// Frames per batch, 1 to 256.
    pub batch: u32,
    /// The interface that the frames seem to come from, so that `XDP_TX` goes out there; 0 is the
    /// namespace's `lo`. Must have XDP (or NAPI) active.
    pub ingress_ifindex: u32,
}

/// Runs an XDP program on frames that are then really sent, passed or dropped as it says: the
/// fastest source of frames on a virtual link. Returns the mean nanoseconds per frame. Runs in the
/// thread's network namespace, on the CPU it is called on, until done.
///
/// Attach the same program to the near end of the link first: XDP must be active there anyway, and
/// a call then costs some 40 us of its own instead of 20 ms (see [`RunInput::repeat`]), so that
/// many small calls can follow a schedule.
///
/// # Errors
/// As for [`prog_run`]; [`BpfError::Os`] with `EINTR` when a signal stopped it half-way.
pub fn live_frames(program: BorrowedFd<'_>, live: LiveFrames<'_>) -> Result<u32, BpfError> {
    if !(1..=BATCH_FRAMES_MAX).contains(&live.batch) {
        return Err(unfit(format!(
            "a batch of {} live frames cannot be; use 1 to {BATCH_FRAMES_MAX}",
            live.batch
        )));
    }
    if live.frames == 0 {
        return Ok(0);
    }
    let (data, mut context) = pack(live.frame, live.meta)?;
    context.ingress_ifindex = live.ingress_ifindex;
    let mut opts = options(&data, &context);
    opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
    opts.repeat = i32::try_from(live.frames).map_err(|_| {
        unfit(format!("{} live frames are too many for one call; use 2^31 - 1", live.frames))
    })?;
    opts.batch_size = live.batch;
    run(program, &mut opts)?;
    Ok(opts.duration)
}

/// Metadata and frame in one buffer, and the context that tells the kernel where it is cut.
fn pack(frame: &[u8], meta: &[u8]) -> Result<(Vec<u8>, xdp_md), BpfError> {
    if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&frame.len()) {
        return Err(unfit(format!(
            "a frame of {} bytes cannot be run; use {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}",
            frame.len()
        )));
    }
    if meta.len() > META_BYTES_MAX || !meta.len().is_multiple_of(4) {
        return Err(unfit(format!(
            "{} bytes of metadata cannot be; use a multiple of 4 up to {META_BYTES_MAX}",
            meta.len()
        )));
    }
    let data = [meta, frame].concat();
    let context =
        xdp_md { data: meta.len() as u32, data_end: data.len() as u32, ..xdp_md::default() };
    Ok((data, context))
}

fn options(data: &[u8], context: &xdp_md) -> bpf_test_run_opts {
    bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: data.as_ptr().cast(),
        data_size_in: data.len() as u32,
        ctx_in: (&raw const *context).cast(),
        ctx_size_in: size_of::<xdp_md>() as u32,
        ..Default::default()
    }
}

fn run(program: BorrowedFd<'_>, opts: &mut bpf_test_run_opts) -> Result<(), BpfError> {
    // SAFETY: every pointer of `opts` was set by a caller in this module from a live buffer
    // together with that buffer's length.
    let code = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), opts) };
    BpfError::check(code, || "run a program on given bytes".to_owned()).map(drop)
}

fn unfit(why: String) -> BpfError {
    BpfError::Object { object: "prog_run".to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_lengths_that_the_kernel_does_not_take() {
        for (frame, meta) in [(13, 0), (70_000, 0), (60, 3), (60, 256)] {
            assert!(pack(&vec![0; frame], &vec![0; meta]).is_err(), "{frame} {meta}");
        }
    }

    #[test]
    fn metadata_stands_in_front_and_the_context_cuts_there() {
        let (data, context) = pack(&[7; 14], &[1, 2, 3, 4]).unwrap();
        assert_eq!(data[..5], [1, 2, 3, 4, 7]);
        assert_eq!((context.data_meta, context.data, context.data_end), (0, 4, 18));
    }
}
