//! The user-space placement: a frame app that answers in the lane's own memory.

use crate::{
    answer::answer,
    config::{Config, ConfigError},
    fate::{Class, Fate, Fates},
    limit::{Limiter, Refused},
    own::AnsweredAddresses,
    sort::{Kind, sort},
};
use laneway_core::{App, Burst, Counters, FrameApp, PortId, Turn};

/// The responder over frames.
pub struct Echo {
    own: AnsweredAddresses,
    ttl: u8,
    limiter: Limiter,
    fates: Fates,
    counters: Counters,
}

impl Echo {
    /// A responder for `config`. Memory for its sources is taken here, none later.
    ///
    /// # Errors
    /// What is wrong with `config`.
    pub fn new(config: &Config) -> Result<Echo, ConfigError> {
        let checked = config.checked()?;
        Ok(Echo {
            own: checked.own,
            ttl: checked.ttl,
            limiter: Limiter::new(checked.per_source, checked.global, checked.sources_max),
            fates: Fates::default(),
            counters: Counters::default(),
        })
    }

    /// How many frames had which fate.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    /// Decides on one frame, turns a question into its answer, and counts the fate. Of a frame in
    /// several buffers `bytes` are the first; `captured_bytes` is the length of all. `now_ns` is
    /// its arrival time: the limits go by it. Bytes change only if the fate is an answer.
    #[inline]
    pub fn answer(&mut self, bytes: &mut [u8], captured_bytes: usize, now_ns: u64) -> Fate {
        let fate = self.decide(bytes, captured_bytes, now_ns);
        self.fates.add(fate);
        fate
    }

    #[inline]
    fn decide(&mut self, bytes: &mut [u8], captured_bytes: usize, now_ns: u64) -> Fate {
        let question = match sort(bytes, captured_bytes, &self.own) {
            Ok(question) => question,
            Err(fate) => return fate,
        };
        // Neighbours are not limited: they are on this link, get one short answer for one question,
        // and must find us while a flood of pings uses up the rest.
        let fate = match question.kind {
            Kind::EchoV4 => Fate::AnsweredEchoV4,
            Kind::EchoV6 => Fate::AnsweredEchoV6,
            Kind::Arp => Fate::AnsweredArp,
            Kind::Nd { .. } => Fate::AnsweredNd,
        };
        if matches!(question.kind, Kind::EchoV4 | Kind::EchoV6) {
            match self.limiter.admit(&question.source, now_ns, 1) {
                Ok(()) => (),
                Err(Refused::Source) => return Fate::DroppedSourceLimit,
                Err(Refused::Global) => return Fate::DroppedGlobalLimit,
            }
        }
        answer(bytes, question, self.own.mac, self.ttl);
        fate
    }
}

impl App for Echo {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Echo {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        for i in 0..burst.len() {
            let frame = burst.frame(i);
            let ts_ns = frame.ts_ns;
            let captured_bytes =
                frame.bytes.len() + burst.tails(i).map(|tail| tail.len()).sum::<usize>();
            let fate = self.answer(burst.frame_mut(i).bytes_mut(), captured_bytes, ts_ns);
            burst.set_verdict(i, fate.verdict());
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += captured_bytes as u64;
            match fate.class() {
                Class::Answered => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += captured_bytes as u64;
                }
                Class::Passed => self.counters.passed += 1,
                Class::Dropped(reason) => self.counters.drop_one(reason),
            }
        }
    }
}
