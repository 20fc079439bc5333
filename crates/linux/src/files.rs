//! How many files this process may have open.

use laneway_core::LaneError;
use rustix::process::{Resource, getrlimit};

/// Files that a worker has beside its connections: its lane's own, the bell, logs, what is read now and then.
const OWN: usize = 32;

/// How many files the process may have open (RLIMIT_NOFILE).
pub fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Connections of a worker that listens at `listeners` addresses: as many as were asked for, or the `usual`
/// number. Where the process may open fewer files, there are so many, and the sentence says so.
///
/// # Errors
/// More were asked for than there may be files.
pub fn connections_max(
    lane: &str,
    (asked, usual): (Option<usize>, usize),
    listeners: usize,
) -> Result<(usize, Option<String>), LaneError> {
    bounded(lane, (asked, usual), listeners, open_files_max())
}

fn bounded(
    lane: &str,
    (asked, usual): (Option<usize>, usize),
    listeners: usize,
    files: usize,
) -> Result<(usize, Option<String>), LaneError> {
    let most = files.saturating_sub(listeners + OWN).max(1);
    let wanted = asked.unwrap_or(usual);
    if wanted <= most {
        return Ok((wanted, None));
    }
    let why = format!("the process may open {files} files");
    if asked.is_some() {
        return Err(LaneError::Refused {
            lane: lane.to_owned(),
            name: format!("conns={wanted}"),
            why,
            hint: format!("raise `ulimit -n`, or give at most conns={most}"),
        });
    }
    let sentence = format!("{most} connections at a time, not {wanted}: {why}; raise `ulimit -n`");
    Ok((most, Some(sentence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_by_files_and_a_sentence_says_so() {
        let bounded = |asked, files| bounded("socket", (asked, 16_384), 2, files);
        assert_eq!(bounded(None, 1 << 20).unwrap(), (16_384, None));
        assert_eq!(bounded(Some(990), 1024).unwrap(), (990, None));
        let (most, sentence) = bounded(None, 1024).unwrap();
        let sentence = sentence.expect("they are fewer");
        assert_eq!(most, 990);
        assert!(sentence.contains("1024 files") && sentence.contains("ulimit -n"), "{sentence}");
        let refused = bounded(Some(991), 1024).unwrap_err().to_string();
        assert!(refused.contains("conns=991") && refused.contains("conns=990"), "{refused}");
        assert_eq!(bounded(None, 0).unwrap().0, 1);
    }

    #[test]
    fn the_process_has_a_limit() {
        assert!(open_files_max() > 0);
    }
}
