//! A reservation of huge pages that goes back, however the process ends.
//!
//! Pages are reserved by adding to the kernel's count and given back by subtracting again; other
//! programs may do the same meanwhile. A [`Guard`] does the giving back: when the [`Reservation`] is dropped,
//! or when the process is killed. Pages that are in use at that moment become surplus and vanish when they
//! are freed. Should the guard be killed as well, the record that it was given
//! ([`HostSettings`]) is still there, and the next run gives them back.
//!
//! What it does not do: it chooses no NUMA node, and does not ask for pages of other sizes.

use crate::{config::NAME, guard::Guard};
use laneway_core::LaneError;
use laneway_linux::{Change, HostSettings};
use std::{ffi::CStr, fs, io, os::unix::ffi::OsStrExt, path::Path};

const TOTAL: &CStr = c"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Bytes of one page.
pub(crate) const PAGE_BYTES: usize = 2 << 20;
/// What the guard is given once the kernel has granted all pages.
const IN_FULL: u8 = b'+';
/// Longest text of a count: 20 digits and a line end.
const COUNT_BYTES_MAX: usize = 24;

/// Free huge pages of 2 MiB now; 0 on a kernel without.
pub(crate) fn free_pages() -> usize {
    fs::read_to_string(FREE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Pages reserved by this process, until dropped.
pub(crate) struct Reservation(#[expect(dead_code, reason = "held, not read")] Guard);

impl Reservation {
    /// Reserves `pages` more pages of 2 MiB than there are.
    ///
    /// # Errors
    /// No privilege, or not enough memory in one piece.
    pub(crate) fn take(pages: usize) -> Result<Reservation, LaneError> {
        let path = TOTAL.to_str().expect("ASCII");
        let doing = || format!("reserve {pages} huge pages of 2 MiB");
        let failed = |e: io::Error| {
            let hint =
                "this needs root, a kernel with hugetlbfs, and a /run that can be written to";
            LaneError::os(NAME, doing(), e, hint)
        };
        // The child stands by before anything is taken, and has no duty until it is notified of a record.
        // SAFETY: `give_back` makes system calls only.
        let guard = unsafe { Guard::start(|message| give_back(message, pages)) }.map_err(failed)?;
        let record = |change: &Change| guard.record(&duty(change));
        let change = HostSettings::of_this_host()
            .add(Path::new(path), pages as u64, record)
            .map_err(failed)?;
        let (before, after) = (change.before() as usize, change.after() as usize);
        let granted = after.saturating_sub(before);
        if granted < pages {
            guard.dismiss();
            subtract(granted, 0);
            change.forget();
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: format!("hugepages={pages}"),
                why: format!("the kernel could reserve {granted} pages of 2 MiB only"),
                hint: "lower it, free memory, try `echo 1 > /proc/sys/vm/compact_memory`, or use \
                       no-huge"
                    .to_owned(),
            });
        }
        guard.record(&[IN_FULL]).map_err(failed)?;
        Ok(Reservation(guard))
    }
}

/// What the guard is given: the lock, the record and how many pages there were, each terminated.
fn duty(change: &Change) -> Vec<u8> {
    let [lock, record] =
        [change.lock_path(), change.record_path()].map(|path| path.as_os_str().as_bytes());
    let before = change.before().to_string();
    [lock, record, before.as_bytes()].into_iter().flat_map(|word| [word, &[0]].concat()).collect()
}

/// The guard's duty: gives `pages` back and removes the record, unless it is gone. System calls only.
///
/// What was there before is a floor only until the kernel has granted all pages: it counts pages of runs beside this
/// one, too, which may have gone back since.
fn give_back(message: &[u8], pages: usize) {
    let Ok(lock) = CStr::from_bytes_until_nul(message) else { return };
    let message = &message[lock.count_bytes() + 1..];
    let Ok(record) = CStr::from_bytes_until_nul(message) else { return };
    let Ok(before) = CStr::from_bytes_until_nul(&message[record.count_bytes() + 1..]) else {
        return;
    };
    let is_granted = message.get(record.count_bytes() + before.count_bytes() + 2) == Some(&IN_FULL);
    let least = if is_granted { 0 } else { parse_count(before.to_bytes()) };
    // Without the lock the record may be undone by another run at this very moment; with it, closed with the
    // process, one of the two finds the record gone.
    // SAFETY: a terminated string.
    let fd = unsafe { libc::open(lock.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    // SAFETY: plain integers.
    if fd < 0 || unsafe { libc::flock(fd, libc::LOCK_EX) } < 0 {
        return;
    }
    // SAFETY: a terminated string.
    if unsafe { libc::access(record.as_ptr(), libc::F_OK) } == 0 {
        subtract(pages, least);
        // SAFETY: a terminated string.
        unsafe { libc::unlink(record.as_ptr()) };
    }
    // SAFETY: our own descriptor, which takes the lock along.
    unsafe { libc::close(fd) };
}

/// Lowers the kernel's count by `pages`, and no further than to `least`: a process that was killed while the kernel
/// took the pages was granted fewer, and the rest would be another program's. System calls only; no process is left
/// that could learn of a failure.
fn subtract(pages: usize, least: usize) {
    // SAFETY: a terminated string.
    let fd = unsafe { libc::open(TOTAL.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return;
    }
    let mut text = [0u8; COUNT_BYTES_MAX];
    // SAFETY: room for that many bytes.
    let got = unsafe { libc::pread(fd, text.as_mut_ptr().cast(), text.len(), 0) };
    let got = usize::try_from(got).unwrap_or(0);
    let (text, bytes) = print_count(less(parse_count(&text[..got]), pages, least));
    // SAFETY: that many bytes of ours. A failure leaves the pages reserved; no process could learn of it.
    unsafe { libc::pwrite(fd, text.as_ptr().cast(), bytes, 0) };
    // SAFETY: our own descriptor.
    unsafe { libc::close(fd) };
}

/// `now` less `pages`, but not below `least` if it is not there already.
fn less(now: usize, pages: usize, least: usize) -> usize {
    now.saturating_sub(pages).max(least.min(now))
}

/// The number at the start of `text`, without allocating.
fn parse_count(text: &[u8]) -> usize {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    digits.fold(0usize, |n, b| n.saturating_mul(10).saturating_add(usize::from(b - b'0')))
}

/// `count` in decimal and how many bytes that is, without allocating.
fn print_count(mut count: usize) -> ([u8; COUNT_BYTES_MAX], usize) {
    let mut text = [0u8; COUNT_BYTES_MAX];
    let mut bytes = 0;
    loop {
        text[bytes] = b'0' + (count % 10) as u8;
        bytes += 1;
        count /= 10;
        if count == 0 {
            break;
        }
    }
    text[..bytes].reverse();
    (text, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_print_as_they_parse() {
        for count in [0, 7, 10, 4096, usize::MAX] {
            let (text, bytes) = print_count(count);
            assert_eq!(std::str::from_utf8(&text[..bytes]).unwrap(), count.to_string());
            assert_eq!(parse_count(&text[..bytes]), count);
        }
        assert_eq!(parse_count(b"12\n"), 12);
        assert_eq!(parse_count(b"12\0"), 12);
        assert_eq!(parse_count(b""), 0);
    }

    #[test]
    fn pages_that_were_there_before_stay() {
        for (now, pages, before, expected) in [
            (2100, 2000, 100, 100), // granted in full
            (400, 2000, 100, 100),  // killed when 300 of 2,000 were granted
            (100, 2000, 100, 100),  // killed before the first
            (2400, 2000, 100, 400), // others reserved more meanwhile
            (50, 2000, 100, 50),    // others gave back what was theirs
            (32, 32, 0, 0),         // granted in full beside a run that gave its pages back since
        ] {
            assert_eq!(less(now, pages, before), expected, "{now} {pages} {before}");
        }
    }
}
