//! What became of connections with TLS, beside what the app counts of them.

use std::cell::Cell;

/// Why TLS ended a connection, or what was wrong with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first bytes are no TLS record.
    NotTls,
    /// As many handshakes as may be were under way.
    TooMany,
    /// The handshake was not done in its time.
    Slow,
    /// The peer went away during the handshake.
    BrokenOff,
    /// The peer's certificate is missing, or its issuer is not one of ours.
    Certificate,
    /// The peer sent an alert: mostly it does not trust our certificate.
    Alert,
    /// The handshake failed otherwise: no common version or suite, or bytes that no handshake has.
    Handshake,
    /// A record behind the handshake that cannot be decrypted or has no place there.
    Record,
    /// The peer's TCP stream ended without `close_notify`: something may be missing at its end.
    Truncated,
    /// The app left more than may be kept for it.
    Unread,
    /// The peer took nothing of what was left to send when the app closed.
    Unsent,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 11] = [
        Reason::NotTls,
        Reason::TooMany,
        Reason::Slow,
        Reason::BrokenOff,
        Reason::Certificate,
        Reason::Alert,
        Reason::Handshake,
        Reason::Record,
        Reason::Truncated,
        Reason::Unread,
        Reason::Unsent,
    ];

    /// Its name in accounts and figures.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::NotTls => "tls_not_spoken",
            Reason::TooMany => "tls_too_many_handshakes",
            Reason::Slow => "tls_handshake_timed_out",
            Reason::BrokenOff => "tls_handshake_broken_off",
            Reason::Certificate => "tls_client_certificate_refused",
            Reason::Alert => "tls_refused_by_client",
            Reason::Handshake => "tls_handshake_failed",
            Reason::Record => "tls_bad_record",
            Reason::Truncated => "tls_truncated",
            Reason::Unread => "tls_unread_full",
            Reason::Unsent => "tls_close_timed_out",
        }
    }

    /// True if the app never heard of such a connection.
    pub const fn is_before_open(self) -> bool {
        !matches!(self, Reason::Record | Reason::Truncated | Reason::Unread | Reason::Unsent)
    }
}

/// The figures of one worker; the app that wants to show them has the same ones.
#[derive(Debug, Default)]
pub struct Counts {
    handshakes: Cell<u64>,
    of_reasons: [Cell<u64>; Reason::ALL.len()],
}

impl Counts {
    /// Handshakes that were done.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.get()
    }

    /// How often that was so.
    pub fn of(&self, reason: Reason) -> u64 {
        self.of_reasons[reason as usize].get()
    }

    pub(crate) fn note_handshake(&self) {
        self.handshakes.set(self.handshakes.get() + 1);
    }

    pub(crate) fn note(&self, reason: Reason) {
        let count = &self.of_reasons[reason as usize];
        count.set(count.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_and_a_name_of_its_own() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            let same = Reason::ALL.iter().filter(|other| other.name() == reason.name()).count();
            assert_eq!(same, 1, "{}", reason.name());
        }
    }
}
