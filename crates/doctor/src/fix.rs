//! Settings changed, and put back from a file.
//!
//! ```text
//!   fix: read ─▶ write the undo file, whole ─▶ write settings ─▶ read back        undo: read the file ─▶ every setting
//!                     └── one fails: those written go back, the file goes             that is what was left goes back
//! ```
//! The file is one that `sysctl -p` reads as well, but that would not look whether a setting was changed since.

use crate::ask::Examined;
use crate::setting::{Setting, Sysctls, at};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file that undoes: some lines.
const UNDO_BYTES_MAX: u64 = 16 << 10;
/// What such a file begins with.
const HEADING: &str =
    "# laneway doctor: settings as they were; `laneway doctor --undo FILE` puts them back";
/// In front of what a setting was changed to, which stands above what it was.
const LEFT: &str = "# left at ";

/// Why settings were not changed, or not put back.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    /// What undoes an earlier change must not be lost.
    #[error("{} is there already; undo it first, or name another file", .0.display())]
    UndoIsThere(PathBuf),
    /// The file cannot be written or read.
    #[error("{0}; nothing was changed")]
    File(io::Error),
    /// The file is none of ours.
    #[error("{}, line {line}: {why}; nothing was changed", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A setting cannot be written.
    #[error("{0}; what was changed before it is as it was: be root, outside a container")]
    Setting(io::Error),
    /// Settings cannot be put back.
    #[error("{0}; the file stays: be root, in the network namespace where it was written")]
    NotBack(io::Error),
}

/// A setting that was to go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// Which.
    pub setting: Setting,
    /// What it was before it was changed.
    pub before: u64,
    /// What it was changed to.
    pub left: u64,
    /// What was found.
    pub found: u64,
    /// What it is now: as before, unless it was changed since.
    pub now: u64,
}

/// What is too small, as a file for `/etc/sysctl.d`.
pub fn sysctl_file(examined: &Examined, heading: &str) -> String {
    let mut text = format!("# {heading}\n");
    for finding in &examined.findings {
        let Some((setting, value)) = finding.change() else { continue };
        let _ = writeln!(text, "# {}", finding.why);
        if finding.most_in_vain().is_some() {
            let needed = finding.needed;
            let _ = writeln!(text, "# {needed} are needed, and this is the most that can be had");
        }
        let _ = writeln!(text, "{} = {value}", setting.name());
    }
    text
}

/// Changes settings, and says what each was; `undo_path` has it first.
///
/// # Errors
/// Then everything is as it was.
pub fn fix(
    wanted: &[(Setting, u64)],
    sysctls: &Sysctls,
    undo_path: &Path,
) -> Result<Vec<PutBack>, FixError> {
    let mut changes = Vec::new();
    for &(setting, left) in wanted {
        let before = sysctls.number(setting.name()).map_err(FixError::File)?;
        changes.push(PutBack { setting, before, left, found: before, now: left });
    }
    let mut text = format!("{HEADING}\n");
    for PutBack { setting, before, left, .. } in &changes {
        let _ = writeln!(text, "{LEFT}{left}\n{} = {before}", setting.name());
    }
    write_new(undo_path, &text)?;
    for (i, change) in changes.iter().enumerate() {
        let written = sysctls.write(change.setting, change.left).and_then(|()| {
            let now = sysctls.number(change.setting.name())?;
            let differs = || io::Error::other(format!("{} became {now}", change.setting.name()));
            if now == change.left { Ok(()) } else { Err(differs()) }
        });
        if let Err(error) = written {
            // A setting that could be written a moment ago can be again.
            for back in &changes[..=i] {
                let _ = sysctls.write(back.setting, back.before);
            }
            let _ = fs::remove_file(undo_path);
            return Err(FixError::Setting(error));
        }
    }
    Ok(changes)
}

/// Puts back what [`fix`] changed, and removes its file when everything is as it was.
///
/// # Errors
/// The file is none that `fix` wrote, and nothing was changed; or a setting cannot be written.
pub fn undo(undo_path: &Path, sysctls: &Sysctls) -> Result<Vec<PutBack>, FixError> {
    let mut all = parse(undo_path, &read(undo_path)?)?;
    for back in &mut all {
        back.found = sysctls.number(back.setting.name()).map_err(FixError::NotBack)?;
        back.now = back.found;
    }
    for back in all.iter_mut().filter(|back| back.found == back.left) {
        sysctls.write(back.setting, back.before).map_err(FixError::NotBack)?;
        back.now = back.before;
    }
    if all.iter().all(|back| back.now == back.before) {
        fs::remove_file(undo_path).map_err(|error| FixError::NotBack(at(undo_path)(error)))?;
    }
    Ok(all)
}

fn write_new(path: &Path, text: &str) -> Result<(), FixError> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(FixError::UndoIsThere(path.to_owned()));
        }
        file => file.map_err(|error| FixError::File(at(path)(error)))?,
    };
    // On the disk: a machine that goes down meanwhile may come up with settings of its own, but not without the file.
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(path);
        FixError::File(at(path)(error))
    })
}

fn read(path: &Path) -> Result<String, FixError> {
    let os = |error| FixError::File(at(path)(error));
    let mut text = String::new();
    let file = File::open(path).map_err(os)?;
    file.take(UNDO_BYTES_MAX).read_to_string(&mut text).map_err(os)?;
    Ok(text)
}

/// The changes of a file; any text.
fn parse(path: &Path, text: &str) -> Result<Vec<PutBack>, FixError> {
    let wrong = |line: usize, why: &str| {
        let why = why.to_owned();
        Err(FixError::NotOurs { path: path.to_owned(), line, why })
    };
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    if lines.next().map(|(_, line)| line) != Some(HEADING) {
        return wrong(1, "it is no file that `laneway doctor --fix` wrote");
    }
    let mut all: Vec<PutBack> = Vec::new();
    while let Some((number, line)) = lines.next() {
        let left = line.strip_prefix(LEFT).and_then(|left| left.parse().ok());
        let Some(left) = left else { return wrong(number, "it does not say what was left") };
        let Some((number, line)) = lines.next() else { return wrong(number, "it is cut") };
        let pair = line.split_once(" = ");
        let pair = pair
            .and_then(|(name, before)| Some((Setting::named(name)?, before.parse::<u64>().ok()?)));
        let Some((setting, before)) = pair else {
            return wrong(number, "it names no setting of the doctor's with a number");
        };
        if all.iter().any(|known| known.setting == setting) {
            return wrong(number, "the setting stands there twice");
        }
        all.push(PutBack { setting, before, left, found: left, now: left });
    }
    if !text.ends_with('\n') || all.is_empty() {
        return wrong(text.lines().count(), "it is cut");
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::tests::Host;
    use crate::ask::{Ask, examine};
    use crate::load::Load;
    use laneway_netns::{Namespace, can_create};
    use laneway_testkit::skip;
    use proptest::prelude::*;

    const WANTED: [(Setting, u64); 2] =
        [(Setting::WmemMax, 4_194_304), (Setting::IgmpMaxMemberships, 1000)];

    fn host(name: &str) -> (Host, Sysctls, PathBuf) {
        let settings = [("net.core.wmem_max", 212_992), ("net.ipv4.igmp_max_memberships", 20)];
        let host = Host::new(name, &settings);
        let (sysctls, undo) = (Sysctls::below(&host.0), host.0.join("undo.conf"));
        (host, sysctls, undo)
    }

    fn values(sysctls: &Sysctls) -> [Option<u64>; 2] {
        WANTED.map(|(setting, _)| sysctls.read(setting).unwrap())
    }

    #[test]
    fn what_is_fixed_goes_back_exactly_and_its_file_with_it() {
        let (_host, sysctls, path) = host("back");
        let before = values(&sysctls);
        let changes = fix(&WANTED, &sysctls, &path).unwrap();
        assert_eq!(changes.iter().map(|it| it.before).collect::<Vec<_>>(), [212_992, 20]);
        assert_eq!(values(&sysctls), [Some(4_194_304), Some(1000)]);
        // The first file is the one that knows how it was.
        let again = fix(&WANTED, &sysctls, &path).unwrap_err().to_string();
        assert!(again.contains("is there already"), "{again}");
        let back = undo(&path, &sysctls).unwrap();
        assert!(back.iter().all(|it| it.now == it.before));
        assert_eq!((values(&sysctls), path.exists()), (before, false));
        assert!(undo(&path, &sysctls).is_err());
    }

    #[test]
    fn what_somebody_changed_since_stays_and_so_does_the_file() {
        let (_host, sysctls, path) = host("since");
        fix(&WANTED, &sysctls, &path).unwrap();
        sysctls.write(Setting::WmemMax, 7).unwrap();
        let back = undo(&path, &sysctls).unwrap();
        assert_eq!((back[0].found, back[0].now, back[1].now), (7, 7, 20));
        assert_eq!((values(&sysctls), path.exists()), ([Some(7), Some(20)], true));
    }

    #[test]
    fn a_fix_that_fails_changes_nothing_and_leaves_no_file() {
        let (host, sysctls, path) = host("fails");
        let before = values(&sysctls);
        let missing = [WANTED[0], (Setting::NetdevBudget, 600)];
        assert!(matches!(fix(&missing, &sysctls, &path), Err(FixError::File(_))));
        // One that can be read and not be written: what is written elsewhere is not read back.
        let full = host.0.join("net/core/netdev_budget");
        std::os::unix::fs::symlink("/proc/sys/kernel/osrelease_of_nobody", &full).unwrap();
        assert!(fix(&missing, &sysctls, &path).is_err());
        assert_eq!((values(&sysctls), path.exists()), (before, false));
        let nowhere = Path::new("/nowhere/undo.conf");
        assert!(fix(&WANTED, &sysctls, nowhere).unwrap_err().to_string().contains("/nowhere"));
        assert_eq!(values(&sysctls), before);
    }

    #[test]
    fn a_real_setting_of_a_namespace_goes_up_and_back() {
        if let Err(why) = can_create() {
            return skip(why);
        }
        let namespace = Namespace::create("doctor").unwrap();
        let path = std::env::temp_dir().join(format!("laneway-doctor-{}.conf", std::process::id()));
        let (before, during, after) = namespace
            .enter(|| {
                let sysctls = Sysctls::of_this_host();
                let now = || sysctls.read(Setting::IgmpMaxMemberships).unwrap().unwrap();
                let before = now();
                fix(&[(Setting::IgmpMaxMemberships, before + 30)], &sysctls, &path).unwrap();
                let during = now();
                undo(&path, &sysctls).unwrap();
                (before, during, now())
            })
            .unwrap();
        assert_eq!((during, after, path.exists()), (before + 30, before, false));
    }

    #[test]
    fn a_file_that_is_none_of_ours_changes_nothing() {
        let (host, sysctls, path) = host("foreign");
        fix(&WANTED, &sysctls, &path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let during = values(&sysctls);
        for text in [
            "",
            "net.core.wmem_max = 1\n",
            &whole[..whole.len() - 1],
            &whole.replace("net.core.wmem_max", "kernel.core_pattern"),
            &whole.replace("net.core.wmem_max", "../../etc/passwd"),
            &whole.replace("212992", "-1"),
            &format!("{whole}{}", &whole[HEADING.len() + 1..]),
        ] {
            fs::write(&path, text).unwrap();
            let why = undo(&path, &sysctls).unwrap_err().to_string();
            assert!(why.contains("line ") && why.contains("nothing was changed"), "{why}");
            assert_eq!(values(&sysctls), during, "{text}");
        }
        assert!(host.0.exists());
    }

    #[test]
    fn a_load_that_no_setting_can_hold_is_short_of_what_it_needs() {
        let (most, most_of_a_buffer) = (i32::MAX as u64, i32::MAX as u64 / 2);
        let asks = [Ask::ReceiveBuffer, Ask::Memberships];
        let seconds = Load {
            rate_per_s: 10_000_000,
            bytes: 1316,
            stall_ns: 1_000_000_000,
            outputs: 1,
            groups: 50,
        };
        let look = |name: &str, rmem_max: u64, load: &Load| {
            let settings = [("net.core.rmem_max", rmem_max), ("net.ipv4.igmp_max_memberships", 50)];
            let host = Host::new(name, &settings);
            examine(&asks, load, &Sysctls::below(&host.0)).unwrap()
        };

        let examined = look("vast", most, &seconds);
        let buffer = &examined.findings[0];
        assert_eq!((buffer.found, buffer.needed), (Some(most), 10_000_000 * 2304 / 2));
        assert!(buffer.is_short() && !examined.findings[1].is_short(), "{examined:?}");
        assert_eq!(buffer.most_in_vain(), Some(most_of_a_buffer));
        let granted = buffer.granted.as_deref().unwrap();
        assert!(granted.ends_with(" of 23040000000 wanted: too little"), "{granted}");
        // There is nothing to change.
        assert_eq!((examined.short(), sysctl_file(&examined, "x")), (vec![], "# x\n".to_owned()));

        // What can be done is done.
        let examined = look("small", 212_992, &seconds);
        assert_eq!(examined.short(), [(Setting::RmemMax, most_of_a_buffer)]);
        let file = sysctl_file(&examined, "x");
        assert!(file.contains("\nnet.core.rmem_max = 1073741823\n"), "{file}");

        // One datagram beyond what a socket can be granted, which the setting alone does not say.
        let exact = Load { rate_per_s: most_of_a_buffer * 2 / 2304, ..seconds };
        assert!(!look("exact", most, &exact).findings[0].is_short());
        let beyond = Load { rate_per_s: exact.rate_per_s + 1, ..exact };
        assert!(look("beyond", most, &beyond).findings[0].is_short());
    }

    proptest! {
        #[test]
        fn any_text_is_a_file_of_ours_or_none(text: String, from in 0usize..80) {
            let _ = parse(Path::new("x"), &text);
            let whole = format!("{HEADING}\n{LEFT}5\nnet.core.wmem_max = 3\n");
            let cut: String = whole.chars().take(whole.len() - from.min(whole.len())).collect();
            let read = parse(Path::new("x"), &cut);
            prop_assert_eq!(read.is_ok(), cut == whole);
        }
    }
}
