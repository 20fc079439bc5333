//! The apps of this build, one row each.

use laneway_core::KernelHalf;
use laneway_echo::EchoKind;
use laneway_features::RowsKind;
use laneway_forward::ForwardKind;
use laneway_kinds::{AppCommand, AppFacts};
use laneway_kv::KvKind;
use laneway_relay::RelayKind;

/// The table of apps: a list of types, because each app is compiled for each lane.
#[rustfmt::skip] // a table
pub type Apps =
    (RowsKind,
    (EchoKind,
    (ForwardKind,
    (RelayKind,
    (KvKind,
    ())))));

/// What is done with an app that a name finds; compiled once per app.
pub trait AppVisitor {
    /// What comes of it.
    type Out;

    /// Does it.
    fn visit<A: AppCommand<Report: Clone> + 'static>(self) -> Self::Out;
}

/// What is done with every app of a table, in its order.
pub trait AppWalker {
    /// Does it for one.
    fn meet<A: AppCommand<Report: Clone> + 'static>(&mut self);
}

/// A list of apps: `()`, or an app in front of a list.
pub trait AppTable: 'static {
    /// The kernel half of the first app that has one, for asking a machine whether it loads.
    fn sample_half() -> Option<KernelHalf>;

    /// Meets every app.
    fn walk(walker: &mut impl AppWalker);

    /// Visits the app of this name; gives the visitor back where there is none.
    ///
    /// # Errors
    /// The visitor, where no app has this name.
    fn visit<V: AppVisitor>(name: &str, visitor: V) -> Result<V::Out, V>;
}

impl AppTable for () {
    fn sample_half() -> Option<KernelHalf> {
        None
    }

    fn walk(_walker: &mut impl AppWalker) {}

    fn visit<V: AppVisitor>(_name: &str, visitor: V) -> Result<V::Out, V> {
        Err(visitor)
    }
}

impl<A: AppCommand<Report: Clone> + 'static, Rest: AppTable> AppTable for (A, Rest) {
    fn sample_half() -> Option<KernelHalf> {
        A::sample_half().or_else(Rest::sample_half)
    }

    fn walk(walker: &mut impl AppWalker) {
        walker.meet::<A>();
        Rest::walk(walker);
    }

    fn visit<V: AppVisitor>(name: &str, visitor: V) -> Result<V::Out, V> {
        if A::FACTS.name == name { Ok(visitor.visit::<A>()) } else { Rest::visit(name, visitor) }
    }
}

/// The facts of every app of a table, in its order.
pub fn apps<T: AppTable>() -> Vec<&'static AppFacts> {
    struct List(Vec<&'static AppFacts>);

    impl AppWalker for List {
        fn meet<A: AppCommand<Report: Clone> + 'static>(&mut self) {
            self.0.push(&A::FACTS);
        }
    }

    let mut list = List(Vec::new());
    T::walk(&mut list);
    list.0
}
