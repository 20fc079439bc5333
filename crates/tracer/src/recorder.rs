//! The end that a worker holds.
//!
//! Nothing here waits, allocates or calls the kernel. Times are the caller's: it reads
//! [`Recorder::now`] where one thing ends and the next begins, so that two neighbours share one
//! reading. Events must be recorded in the order in which they ended; a time that lies before the record
//! written last is moved up to it, because a reader must never see time go back.

use crate::{
    PointId, Record, ThreadInfo, Ticks, points,
    record::{Lasted, pair},
    ring::Producer,
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// What function records say of a function; see [`Shape::Function`](crate::Shape::Function).
pub(crate) const ENTERED: u16 = 0;
pub(crate) const LEFT: u16 = 1;
pub(crate) const WHOLE: u8 = 2;

/// Writes one thread's records into its ring.
pub struct Recorder {
    ticks: Ticks,
    ring: Producer,
    /// The number of the thread that records, as the file will tell it.
    tid: Arc<AtomicU32>,
    /// The time of the record written last.
    last: u64,
    /// Refused records that are not yet reported to the reader.
    unreported: u64,
    empty: EmptyRun,
    /// [`RUN_GAP_S`] in ticks.
    gap: u64,
}

/// Receive calls that found nothing, since anything else happened.
#[derive(Clone, Copy, Default)]
struct EmptyRun {
    /// By port; the last place is that of all further ports, and of polls of no port in particular.
    polls: [u32; RUN_PORTS + 1],
    total: u32,
    from: u64,
    /// When the last of them began.
    last: u64,
}

/// Ports whose empty polls are counted apart.
const RUN_PORTS: usize = 8;
/// From one empty poll to the next it takes less; where it takes longer, the worker did not poll, and the run ends, s.
const RUN_GAP_S: f64 = 20e-6;

impl Recorder {
    pub(crate) fn new(ticks: Ticks, ring: Producer, began: u64, tid: Arc<AtomicU32>) -> Recorder {
        let gap = (RUN_GAP_S * ticks.per_second() as f64) as u64;
        Recorder { ticks, ring, tid, last: began, unreported: 0, empty: EmptyRun::default(), gap }
    }

    /// From now on it is the calling thread that records; to be called before the first event, by
    /// any thread that was given a recorder of another.
    pub fn adopt(&mut self) {
        // Relaxed: the ring orders it before the first record.
        self.tid.store(ThreadInfo::current_tid(), Ordering::Relaxed);
    }

    /// The counter, to be given to the calls below.
    #[inline]
    pub fn now(&self) -> u64 {
        self.ticks.now()
    }

    /// A function was called at `from` and returned at `until`.
    #[inline]
    pub fn called(&mut self, function: PointId, from: u64, until: u64, argument: u32) {
        self.end_empty_run(from);
        let (small, value) = self.lasted(from, until, WHOLE, argument);
        self.push(until, function, small, value);
    }

    /// A function was entered; to be used where other events happen inside.
    #[inline]
    pub fn entered(&mut self, function: PointId, at: u64) {
        self.end_empty_run(at);
        self.push(at, function, ENTERED, 0);
    }

    /// The function that was entered last and not left was left.
    #[inline]
    pub fn left(&mut self, function: PointId, at: u64) {
        self.end_empty_run(at);
        self.push(at, function, LEFT, 0);
    }

    /// A receive call on `port` was asked for `asked` frames at `from` and gave `got` at `until`.
    #[inline]
    pub fn received(&mut self, port: u8, asked: u16, got: u16, from: u64, until: u64) {
        self.end_empty_run(from);
        let (small, value) = self.lasted(from, until, port, pair(asked, got));
        self.push(until, points::RECEIVE, small, value);
    }

    /// A receive call on `port` that began at `from` found nothing; `None`: one that asks several ports at once.
    #[inline]
    pub fn received_nothing(&mut self, port: Option<u8>, from: u64) {
        let empty = &mut self.empty;
        if empty.total == 0 {
            empty.from = from;
        } else if from.saturating_sub(empty.last) > self.gap || empty.total == u32::MAX {
            // Between these two it did something else, or did not run.
            let last = empty.last;
            self.write_empty_run(last);
            self.empty.from = from;
        }
        let empty = &mut self.empty;
        empty.last = from;
        empty.total += 1;
        let place = port.map_or(RUN_PORTS, |port| usize::from(port).min(RUN_PORTS));
        empty.polls[place] += 1;
    }

    /// `got` of `asked` frames were received in a call whose length other records give.
    #[inline]
    pub fn received_within(&mut self, port: u8, asked: u16, got: u16, at: u64) {
        self.end_empty_run(at);
        self.push(at, points::RECEIVED_WITHIN, u16::from(port), u64::from(pair(asked, got)));
    }

    /// The lane was given `asked` frames to send on `port` and took `sent`.
    pub fn sent(&mut self, port: u8, asked: u16, sent: u16, at: u64) {
        self.end_empty_run(at);
        self.push(at, points::SEND, u16::from(port), u64::from(pair(asked, sent)));
    }

    /// Something happened.
    #[inline]
    pub fn instant(&mut self, point: PointId, at: u64, value: u64) {
        self.end_empty_run(at);
        self.push(at, point, 0, value);
    }

    /// Records that found no room so far.
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// Packets of `port` were lost since the last time, for the reason that `point` names.
    pub fn dropped(&mut self, port: u8, point: PointId, packets: u64, at: u64) {
        self.end_empty_run(at);
        self.push(at, point, u16::from(port), packets);
    }

    /// The polls that found nothing end where something else begins, but no later than a gap after the last of them.
    #[inline]
    fn end_empty_run(&mut self, at: u64) {
        if self.empty.total > 0 {
            let over = at.saturating_sub(self.empty.last) > self.gap;
            self.write_empty_run(if over { self.empty.last } else { at });
        }
    }

    /// A record per port, one behind the other, as long as its share of the polls.
    fn write_empty_run(&mut self, at: u64) {
        let EmptyRun { polls, total, from, .. } = std::mem::take(&mut self.empty);
        let whole = u128::from(at.saturating_sub(from.max(self.last)));
        let begin = at - whole as u64;
        let (mut done, mut end) = (0_u64, begin);
        for (port, polls) in (1_u8..).zip(polls).filter(|&(_, polls)| polls > 0) {
            done += u64::from(polls);
            let from = end;
            end = begin + (whole * u128::from(done) / u128::from(total.max(1))) as u64;
            let tag = if usize::from(port) > RUN_PORTS { 0 } else { port };
            let (small, value) = self.lasted(from, end, tag, polls);
            self.push(end, points::EMPTY_RUN, small, value);
        }
    }

    /// A length that does not reach back before the record written last.
    #[inline]
    fn lasted(&self, from: u64, until: u64, tag: u8, argument: u32) -> (u16, u64) {
        let ticks = until.saturating_sub(from.max(self.last));
        Lasted { ticks, tag, argument }.pack()
    }

    #[inline]
    fn push(&mut self, at: u64, point: PointId, small: u16, value: u64) {
        let at = at.max(self.last);
        let delta = at - self.last;
        if self.unreported > 0 || delta > u64::from(u32::MAX) {
            self.push_rarely(at, point, small, value);
            return;
        }
        let record = Record { delta: delta as u32, point, small, value };
        if self.ring.push(record.words()) {
            self.last = at;
        } else {
            self.unreported += 1;
        }
    }

    /// After a hole, or after a long silence.
    #[cold]
    #[inline(never)]
    fn push_rarely(&mut self, at: u64, point: PointId, small: u16, value: u64) {
        if at - self.last > u64::from(u32::MAX) {
            let time = Record { point: points::TIME, value: at, ..Record::default() };
            if !self.ring.push(time.words()) {
                self.unreported += 1;
                return;
            }
            self.last = at;
        }
        if self.unreported > 0 {
            let delta = (at - self.last) as u32;
            let hole = Record { delta, point: points::LOST, small: 0, value: self.unreported };
            if !self.ring.push(hole.words()) {
                self.unreported += 1;
                return;
            }
            self.last = at;
            self.unreported = 0;
        }
        let record = Record { delta: (at - self.last) as u32, point, small, value };
        if self.ring.push(record.words()) {
            self.last = at;
        } else {
            self.unreported += 1;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let now = self.now();
        self.end_empty_run(now);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Consumer, ring};

    /// A recorder that began at tick 1000, and the end of its ring.
    fn recorder(slots: usize) -> (Recorder, Consumer) {
        let (producer, consumer) = ring(slots);
        (Recorder::new(Ticks::new(), producer, 1000, Arc::default()), consumer)
    }

    fn taken(consumer: &mut Consumer) -> Vec<Record> {
        let mut records = Vec::new();
        consumer.take(usize::MAX, |words| records.push(Record::from_words(words)));
        records
    }

    #[test]
    fn empty_polls_become_one_record_when_something_happens() {
        let (mut recorder, mut ring) = recorder(16);
        for from in [1010, 1020, 1030] {
            recorder.received_nothing(Some(2), from);
        }
        assert!(taken(&mut ring).is_empty());
        recorder.received(2, 64, 5, 1040, 1050);
        let records = taken(&mut ring);
        assert_eq!(
            records.iter().map(|r| r.point).collect::<Vec<_>>(),
            [points::EMPTY_RUN, points::RECEIVE]
        );
        let run = Lasted::unpack(records[0]);
        assert_eq!((records[0].delta, run.ticks, run.argument, run.tag), (40, 30, 3, 3));
        let receive = Lasted::unpack(records[1]);
        assert_eq!((records[1].delta, receive.ticks, receive.tag), (10, 10, 2));
        assert_eq!(receive.argument, pair(64, 5));
    }

    #[test]
    fn empty_polls_name_their_port_and_share_the_time_of_the_run() {
        let (mut recorder, mut ring) = recorder(16);
        for (port, from) in [(0, 1000), (1, 1010), (0, 1020), (1, 1030), (0, 1040), (0, 1050)] {
            recorder.received_nothing(Some(port), from);
        }
        recorder.instant(points::NAPI_POLL, 1060, 0);
        let records = taken(&mut ring);
        let runs: Vec<_> = records[..2].iter().map(|&record| Lasted::unpack(record)).collect();
        let recorded: Vec<_> = runs.iter().map(|run| (run.tag, run.argument, run.ticks)).collect();
        assert_eq!(recorded, [(1, 4, 40), (2, 2, 20)], "a tag is the port plus one");
    }

    #[test]
    fn a_pause_between_two_empty_polls_belongs_to_no_run() {
        let (mut recorder, mut ring) = recorder(16);
        let gap = recorder.gap;
        for from in [1010, 1020, 1030, 1030 + 2 * gap, 1040 + 2 * gap] {
            recorder.received_nothing(Some(0), from);
        }
        recorder.instant(points::NAPI_POLL, 1050 + 2 * gap, 0);
        let records = taken(&mut ring);
        let runs: Vec<_> = records[..2].iter().map(|&record| Lasted::unpack(record)).collect();
        let recorded: Vec<_> = runs.iter().map(|run| (run.argument, run.ticks)).collect();
        assert_eq!(recorded, [(3, 20), (2, 20)]);
        // What follows a pause does not fill it either.
        recorder.received_nothing(Some(0), 1060 + 2 * gap);
        recorder.instant(points::NAPI_POLL, 1060 + 4 * gap, 0);
        assert_eq!(Lasted::unpack(taken(&mut ring)[0]).ticks, 0);
    }

    #[test]
    fn the_last_empty_run_is_written_when_the_recorder_ends() {
        let (mut recorder, mut ring) = recorder(16);
        recorder.received_nothing(None, 1010);
        drop(recorder);
        assert_eq!(taken(&mut ring).last().unwrap().point, points::EMPTY_RUN);
    }

    #[test]
    fn a_silence_longer_than_a_delta_restarts_the_time() {
        let (mut recorder, mut ring) = recorder(16);
        let at = 1000 + (1 << 33);
        recorder.instant(points::NAPI_POLL, at, 7);
        let records = taken(&mut ring);
        assert_eq!((records[0].point, records[0].value), (points::TIME, at));
        assert_eq!((records[1].delta, records[1].value), (0, 7));
    }

    #[test]
    fn a_hole_is_recorded_at_its_place_with_its_size() {
        let (mut recorder, mut ring) = recorder(4);
        for n in 0..6 {
            recorder.instant(points::NAPI_POLL, 1001 + n, n);
        }
        assert_eq!((taken(&mut ring).len(), recorder.lost()), (4, 2));
        recorder.instant(points::NAPI_POLL, 1100, 9);
        let records = taken(&mut ring);
        assert_eq!((records[0].point, records[0].value), (points::LOST, 2));
        assert_eq!(records[0].delta, 1100 - 1004, "from the last record that was kept");
        assert_eq!((records[1].delta, records[1].value), (0, 9));
    }

    #[test]
    fn time_is_never_recorded_to_go_back() {
        let (mut recorder, mut ring) = recorder(4);
        recorder.instant(points::NAPI_POLL, 1010, 0);
        recorder.called(points::WAIT, 1005, 1008, 0);
        let record = taken(&mut ring)[1];
        assert_eq!((record.delta, Lasted::unpack(record).ticks), (0, 0));
    }
}
