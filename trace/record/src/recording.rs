//! One recording, from the command as it was given to the folder that is left.
//!
//! The order matters: LTTng's daemon and commands are started before the kernel join follows children, so that they are
//! not followed; the join is detached before LTTng is asked to write its buffers.

use crate::{
    Ended, Follow, KernelJoin, KernelSummary, LttngOptions, LttngSession, LttngSummary,
    RecordError, Urgency, command, dpdk::with_dpdk_trace,
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

/// What traces the command.
#[derive(Clone, Debug)]
pub enum With {
    /// It is `laneway run ...` and traces itself.
    Itself,
    /// It is instrumented; LTTng records its calls.
    Lttng(LttngOptions),
    /// It is a program on DPDK; these points of DPDK's own trace.
    Dpdk(String),
    /// Nothing; the kernel join alone.
    Nothing,
}

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command, the program first.
    pub command: Vec<OsString>,
    /// Where the trace goes: a folder that is empty or not there.
    pub folder: PathBuf,
    /// What traces the command.
    pub with: With,
    /// Join what the kernel does to it.
    pub kernel: bool,
}

/// What a recording left behind.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How the command ended.
    pub ended: Ended,
    /// The kernel join, if there was one.
    pub kernel: Option<KernelSummary>,
    /// LTTng's session, if there was one.
    pub lttng: Option<LttngSummary>,
}

/// Runs the plan's command to its end, recording.
///
/// # Errors
/// [`RecordError`], when it could not be set up (nothing is left behind then but the folder), or when what was
/// recorded could not be written.
pub fn record(plan: &Plan, urgency: &Urgency) -> Result<Recorded, RecordError> {
    if plan.command.is_empty() {
        return Err(RecordError::NoCommand);
    }
    let with_itself = match &plan.with {
        With::Itself => Some(with_laneway_trace(&plan.command, &plan.folder)?),
        With::Lttng(_) | With::Dpdk(_) | With::Nothing => None,
    };
    let folder = make_folder(&plan.folder)?;
    let command = match (&plan.with, with_itself) {
        (_, Some(command)) => command,
        (With::Dpdk(pattern), None) => with_dpdk_trace(&plan.command, pattern, &folder),
        (_, None) => plan.command.clone(),
    };
    let session = match &plan.with {
        With::Lttng(options) => Some(LttngSession::start(&folder.join("lttng"), *options)?),
        With::Itself | With::Dpdk(_) | With::Nothing => None,
    };
    let environment = session.as_ref().map(LttngSession::environment).unwrap_or_default();
    let join = match plan.kernel {
        true => Some(KernelJoin::attach(&folder.join("kernel.lwt"), &Follow::Children)?),
        false => None,
    };
    let ended = command::run(&command, &environment, urgency);
    let kernel = join.map(KernelJoin::finish).transpose();
    let lttng = session.map(LttngSession::finish).transpose();
    // The command's own failure explains the others.
    Ok(Recorded { ended: ended?, kernel: kernel?, lttng: lttng? })
}

/// The command with `--trace FOLDER`, if it is `laneway run ...`.
///
/// # Errors
/// [`RecordError::NotOurs`] if it is something else.
pub fn with_laneway_trace(
    command: &[OsString],
    folder: &Path,
) -> Result<Vec<OsString>, RecordError> {
    let is_ours = |word: &OsString| Path::new(word).file_name() == Some(OsStr::new("laneway"));
    let runs = command.windows(2).any(|pair| is_ours(&pair[0]) && pair[1] == "run");
    if !runs {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        return Err(RecordError::NotOurs { command: words.join(" ") });
    }
    let mut traced = command.to_vec();
    traced.push("--trace".into());
    traced.push(folder.into());
    Ok(traced)
}

/// Makes the folder, or takes it if it is empty; gives its path from the root, because commands may run
/// elsewhere.
fn make_folder(folder: &Path) -> Result<PathBuf, RecordError> {
    let failed = |doing: &'static str| {
        move |source: io::Error| RecordError::File { doing, path: folder.to_owned(), source }
    };
    fs::create_dir_all(folder).map_err(failed("make the folder"))?;
    let mut entries = fs::read_dir(folder).map_err(failed("read the folder"))?;
    if entries.next().is_some() {
        return Err(RecordError::Taken { path: folder.to_owned() });
    }
    folder.canonicalize().map_err(failed("find the folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn our_own_program_is_asked_to_trace_itself() {
        let folder = Path::new("out/t");
        for command in ["laneway run echo", "ip netns exec a ./target/release/laneway run echo"] {
            let traced = with_laneway_trace(&words(command), folder).unwrap();
            assert_eq!(traced, words(&format!("{command} --trace out/t")));
        }
        let error = with_laneway_trace(&words("sleep 1"), folder).unwrap_err().to_string();
        assert!(error.contains("sleep 1") && error.contains("--lttng"), "{error}");
    }
}
