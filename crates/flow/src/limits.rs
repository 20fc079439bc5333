//! When a flow ends: three limits on packet time.

use crate::layout::{CField, c_struct};

/// A timeout that never ends a flow.
pub const NEVER_NS: u64 = u64::MAX;

/// Mirror of `struct lw_flow_limits`. Made by [`FlowLimits::new`], so its order always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    idle_ns: u64,
    active_ns: u64,
    end_ns: u64,
}

c_struct!(FlowLimits, "lw_flow_limits", 24, {
    idle_ns @ 0,
    active_ns @ 8,
    end_ns @ 16,
});

/// What is wrong with limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A timeout of zero would end each flow before its second frame.
    #[error("the {which} timeout is 0, which would make every frame a flow; use 1 ms or more")]
    Zero {
        /// `idle` or `active`.
        which: &'static str,
    },
    /// The linger time exceeds the idle timeout, which makes the end reason a matter of chance.
    #[error(
        "a flow whose end was seen would linger {end_ns} ns, longer than the idle timeout of \
         {idle_ns} ns; use at most that, or none at all"
    )]
    EndBeyondIdle {
        /// What was asked for.
        end_ns: u64,
        /// The idle timeout.
        idle_ns: u64,
    },
}

impl Default for FlowLimits {
    /// NFStream's timeouts, 120 s idle and 1800 s active, and 5 s for the tail of a closed
    /// connection.
    fn default() -> Self {
        FlowLimits { idle_ns: 120_000_000_000, active_ns: 1_800_000_000_000, end_ns: 5_000_000_000 }
    }
}

impl FlowLimits {
    /// A flow ends when a frame comes `idle_ns` after its last or `active_ns` after its first, or
    /// `end_ns` after its last once RST or both FINs were seen (0: they are not looked at). The other
    /// two may be [`NEVER_NS`].
    ///
    /// # Errors
    /// Zero timeouts, `end_ns` above `idle_ns`.
    pub fn new(idle_ns: u64, active_ns: u64, end_ns: u64) -> Result<FlowLimits, LimitsError> {
        if idle_ns == 0 {
            return Err(LimitsError::Zero { which: "idle" });
        }
        if active_ns == 0 {
            return Err(LimitsError::Zero { which: "active" });
        }
        if end_ns > idle_ns {
            return Err(LimitsError::EndBeyondIdle { end_ns, idle_ns });
        }
        Ok(FlowLimits { idle_ns, active_ns, end_ns })
    }

    /// Idle timeout in ns.
    #[inline]
    pub fn idle_ns(&self) -> u64 {
        self.idle_ns
    }

    /// Active timeout in ns.
    #[inline]
    pub fn active_ns(&self) -> u64 {
        self.active_ns
    }

    /// How long a flow whose end was seen lingers, in ns; 0: ends are not looked at.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Writes `struct lw_flow_limits`, the kernel half's constant.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        self.write(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_limits_that_make_no_sense() {
        assert_eq!(FlowLimits::new(0, 1, 0), Err(LimitsError::Zero { which: "idle" }));
        assert_eq!(FlowLimits::new(1, 0, 0), Err(LimitsError::Zero { which: "active" }));
        assert!(FlowLimits::new(NEVER_NS, NEVER_NS, 0).is_ok());
        assert!(matches!(FlowLimits::new(5, 9, 6), Err(LimitsError::EndBeyondIdle { .. })));
        let d = FlowLimits::default();
        assert_eq!(FlowLimits::new(d.idle_ns(), d.active_ns(), d.end_ns()), Ok(d));
    }
}
