//! Whether a test may load programs into this kernel: what else keeps one from being loaded is for the test to find.

use crate::error::RaceError;
use laneway_bpf::BpfError;
use laneway_testkit::skip;

/// What was loaded or attached; `None`, with the reason reported, where this process may not, or this kernel publishes
/// no types. Any other refusal fails the test.
pub(crate) fn permitted<T>(loaded: Result<T, impl Into<RaceError>>) -> Option<T> {
    match loaded.map_err(Into::into) {
        Ok(loaded) => Some(loaded),
        Err(RaceError::Meter(why @ (BpfError::NotPermitted { .. } | BpfError::NoBtf { .. }))) => {
            skip(why);
            None
        }
        Err(why) => panic!("{why:?}"),
    }
}

#[test]
#[should_panic(expected = "R1 invalid mem access")]
fn a_test_whose_program_is_refused_fails() {
    let (object, log) = ("arrivals".to_owned(), "R1 invalid mem access".to_owned());
    permitted::<()>(Err(BpfError::Verifier { object, log }));
}
