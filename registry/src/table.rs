//! A table of lanes: a list of types that is walked by name, once per run.

use crate::apps::{AppTable, Apps};
use laneway_core::{CapsReport, LaneError};
use laneway_kinds::{LaneFacts, LaneKind, Mode, Shape};
use laneway_spec::{LaneSpec, SpecError};

/// What is done with the lane that a name finds; compiled once per lane.
pub trait LaneVisitor {
    /// What comes of it.
    type Out;

    /// Does it.
    fn visit<K: LaneKind>(self) -> Self::Out;
}

/// A list of lanes: `()`, or a lane in front of a list.
pub trait LaneTable: 'static {
    /// Adds the facts of every lane, in the order of the table.
    fn list(facts: &mut Vec<&'static LaneFacts>);

    /// Visits the lane of this name; gives the visitor back where there is none.
    ///
    /// # Errors
    /// The visitor, where no lane has this name.
    fn visit<V: LaneVisitor>(name: &str, visitor: V) -> Result<V::Out, V>;
}

impl LaneTable for () {
    fn list(_facts: &mut Vec<&'static LaneFacts>) {}

    fn visit<V: LaneVisitor>(_name: &str, visitor: V) -> Result<V::Out, V> {
        Err(visitor)
    }
}

impl<K: LaneKind, Rest: LaneTable> LaneTable for (K, Rest) {
    fn list(facts: &mut Vec<&'static LaneFacts>) {
        facts.push(&K::FACTS);
        Rest::list(facts);
    }

    fn visit<V: LaneVisitor>(name: &str, visitor: V) -> Result<V::Out, V> {
        if K::FACTS.name == name { Ok(visitor.visit::<K>()) } else { Rest::visit(name, visitor) }
    }
}

/// The facts of every lane of a table, in its order.
pub fn lanes<T: LaneTable>() -> Vec<&'static LaneFacts> {
    let mut facts = Vec::new();
    T::list(&mut facts);
    facts
}

/// The facts of the lane that a spec names.
///
/// # Errors
/// [`SpecError::UnknownLane`] with the nearest name.
pub fn facts_of<T: LaneTable>(spec: &LaneSpec) -> Result<&'static LaneFacts, SpecError> {
    lanes::<T>().into_iter().find(|facts| facts.name == spec.lane()).ok_or_else(|| {
        let names: Vec<&str> = lanes::<T>().iter().map(|facts| facts.name).collect();
        spec.unknown_lane(&names)
    })
}

/// The name of the lane that is the kernel's sockets and nothing else.
pub(crate) fn sockets<T: LaneTable>() -> Option<&'static str> {
    lanes::<T>().iter().find(|lane| lane.is_sockets_alone()).map(|lane| lane.name)
}

/// The lane of `spec`, visited.
pub(crate) fn visit<T: LaneTable, V: LaneVisitor>(
    spec: &LaneSpec,
    visitor: V,
) -> Result<V::Out, LaneError> {
    let name = facts_of::<T>(spec)?.name;
    match T::visit(name, visitor) {
        Ok(out) => Ok(out),
        Err(_) => unreachable!("the table has just named lane {name}"),
    }
}

/// The names of the lanes on which an app of this shape runs, for the hint of a refusal.
pub(crate) fn lanes_that_run<T: LaneTable>(shape: Shape) -> String {
    let names: Vec<&str> =
        lanes::<T>().iter().filter(|lane| lane.runs(shape)).map(|lane| lane.name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "a lane that carries them".to_owned(),
    }
}

/// Opens a mode as an app would, on `interface` where it needs one, closes it, and gives what its port asked for
/// and obtained. A lane that runs kernel halves is asked with that of the first app that has one.
///
/// # Errors
/// Why the mode cannot be had.
pub fn probe<T: LaneTable>(mode: &Mode, interface: &str) -> Result<CapsReport, LaneError> {
    struct Probe<'a>(&'a Mode, &'a str);

    impl LaneVisitor for Probe<'_> {
        type Out = Result<CapsReport, LaneError>;

        fn visit<K: LaneKind>(self) -> Self::Out {
            K::probe(self.0, self.1, Apps::sample_half)
        }
    }

    visit::<T, _>(&mode.spec.parse()?, Probe(mode, interface))?
}
