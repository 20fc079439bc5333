//! The apps of this build, one row each.

use laneway_core::KernelHalf;
use laneway_echo::EchoKind;
use laneway_features::RowsKind;
use laneway_forward::ForwardKind;
use laneway_kinds::AppKind;

/// The table of apps: a list of types, because each app is compiled for each lane.
#[rustfmt::skip] // a table
pub type Apps =
    (RowsKind,
    (EchoKind,
    (ForwardKind,
    ())));

/// A list of apps: `()`, or an app in front of a list.
pub trait AppTable: 'static {
    /// The kernel half of the first app that has one, for asking a machine whether it loads.
    fn sample_half() -> Option<KernelHalf>;
}

impl AppTable for () {
    fn sample_half() -> Option<KernelHalf> {
        None
    }
}

impl<A: AppKind + 'static, Rest: AppTable> AppTable for (A, Rest) {
    fn sample_half() -> Option<KernelHalf> {
        A::sample_half().or_else(Rest::sample_half)
    }
}
