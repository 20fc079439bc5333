//! DPDK's own trace: arguments of its environment layer (EAL).

use std::{ffi::OsString, path::Path};

/// Megabytes of trace that a thread may write before it discards; the EAL's own default of 1 is reached within
/// milliseconds of fast-path events.
pub const BUFFER_MEGABYTES: u32 = 64;

/// The command with DPDK configured to trace the points that `pattern` matches, into `folder`.
///
/// EAL arguments stand in front of `--`; a command without it has EAL arguments only. The mode is
/// `discard`: of a full buffer the beginning is kept. The other mode overwrites, and then a trace begins
/// anywhere.
pub fn with_dpdk_trace(command: &[OsString], pattern: &str, folder: &Path) -> Vec<OsString> {
    let mut directory = OsString::from("--trace-dir=");
    directory.push(folder);
    let arguments = [
        OsString::from(format!("--trace={pattern}")),
        directory,
        OsString::from("--trace-mode=discard"),
        OsString::from(format!("--trace-bufsz={BUFFER_MEGABYTES}M")),
    ];
    let end = command.iter().position(|word| word == "--").unwrap_or(command.len());
    [&command[..end], &arguments, &command[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(command: &str) -> String {
        let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let traced = with_dpdk_trace(&command, "lib.ethdev.*", Path::new("/tmp/t"));
        let words: Vec<_> = traced.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn arguments_go_where_the_environment_layer_reads_them() {
        let added =
            "--trace=lib.ethdev.* --trace-dir=/tmp/t --trace-mode=discard --trace-bufsz=64M";
        assert_eq!(
            traced("ip netns exec x dpdk-testpmd -l 0-1 -- --burst=32"),
            format!("ip netns exec x dpdk-testpmd -l 0-1 {added} -- --burst=32")
        );
        assert_eq!(traced("dpdk-helloworld"), format!("dpdk-helloworld {added}"));
    }
}
