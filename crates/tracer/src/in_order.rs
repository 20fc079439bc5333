//! The threads of a file, merged by time.
//!
//! A file of many threads (the kernel's view) is in order per thread only. Each thread is decoded by a cursor of its
//! own, and the earliest happening of all cursors is the next one: memory is a cursor per thread, however long the file
//! is.

use crate::{Happening, read::Happenings};
use std::{cmp::Reverse, collections::BinaryHeap, io};

/// Everything in a file in the order of time; see [`TraceFile::in_order`](crate::TraceFile::in_order).
///
/// What happened at one moment in several threads has no order between them.
#[derive(Debug)]
pub struct InOrder<'a> {
    threads: Vec<(Happenings<'a>, Option<Happening>)>,
    /// Time of the next happening of each thread that has one.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    failed: Option<io::Error>,
}

impl<'a> InOrder<'a> {
    pub(crate) fn new(threads: impl Iterator<Item = Happenings<'a>>) -> InOrder<'a> {
        let mut all = InOrder { threads: Vec::new(), next: BinaryHeap::new(), failed: None };
        for (number, mut happenings) in threads.enumerate() {
            let first = happenings.next();
            all.failed = all.failed.or_else(|| happenings.failed());
            all.next.extend(first.map(|first| Reverse((first.time_ns, number))));
            all.threads.push((happenings, first));
        }
        all
    }

    /// Why a thread ended before its end in the file, if the file system failed.
    pub fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

impl Iterator for InOrder<'_> {
    type Item = Happening;

    fn next(&mut self) -> Option<Happening> {
        let mut earliest = self.next.peek_mut()?;
        let Reverse((time_ns, number)) = &mut *earliest;
        let (happenings, waiting) = self.threads.get_mut(*number)?;
        let found = std::mem::replace(waiting, happenings.next());
        match waiting {
            Some(following) => *time_ns = following.time_ns,
            None => {
                self.failed = self.failed.take().or_else(|| happenings.failed());
                std::collections::binary_heap::PeekMut::pop(earliest);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::{FileWriter, Header, Record, SyncPoint, ThreadInfo, TraceFile, points};

    #[test]
    fn happenings_of_many_threads_come_in_the_order_of_time() {
        let path =
            std::env::temp_dir().join(format!("laneway-in-order-{}.lwt", std::process::id()));
        let mut file = FileWriter::create(&path, &Header::of_this_program(), 1 << 20).unwrap();
        for at in [0, 1_000_000] {
            file.sync(SyncPoint { ticks: at, monotonic_ns: at, realtime_ns: at }).unwrap();
        }
        let threads: Vec<u16> = (0..5)
            .map(|tid| {
                let name = format!("thread {tid}");
                file.thread(&ThreadInfo { pid: 1, tid, name, cpu: None, queue: 0 }).unwrap()
            })
            .collect();
        // Rounds as the kernel join writes them: a batch per thread, each from the same moment on.
        for round in 0..20_u64 {
            for &thread in &threads {
                let record = |n: u32| Record {
                    delta: 7 + n + u32::from(thread),
                    point: points::SWITCHED_IN,
                    small: 0,
                    value: 0,
                };
                let records: Vec<Record> = (0..30).map(record).collect();
                assert!(file.records(thread, Some(1), round * 1_000, &records).unwrap());
            }
        }
        file.finish(0).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let file = TraceFile::open(&bytes).unwrap();
        let mut expected: Vec<_> = file.happenings().collect();
        let mut found: Vec<_> = file.in_order().collect();
        assert_eq!(found.len(), 20 * 5 * 30);
        assert!(found.is_sorted_by_key(|happening| happening.time_ns));
        let key = |happening: &crate::Happening| (happening.time_ns, happening.thread);
        expected.sort_by_key(key);
        found.sort_by_key(key);
        assert_eq!(found, expected);
    }
}
