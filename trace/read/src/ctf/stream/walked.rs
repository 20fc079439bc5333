//! The general path: an event is walked field by field, and what its role wants is picked.

use std::collections::HashMap;

use super::super::layout::{Bits, Shape, State, Stop, Value, Visit, Whole, walk};
use super::super::plan::{Kernel, Role, StreamPlan, Tells, WANTED_MAX};
use super::super::render::Render;
use super::super::types::{Duty, Range};
use super::NAME_BYTES_MAX;
use crate::symbols::ProcessFact;

/// Walks one event; returns the index of its kind.
pub(super) fn one(
    class: &StreamPlan,
    bits: &mut Bits<'_>,
    state: &mut State,
    look: &mut Look<'_>,
) -> Result<usize, Stop> {
    look.part = Part::Header;
    if let Some(node) = &class.header {
        walk(node, bits, state, look)?;
    }
    // A class with one kind of event needs no id.
    let id = look.id.unwrap_or(0);
    let unknown = || Stop::Wrong(format!("no kind of event has the id {id}"));
    let index = class.index(id).ok_or_else(unknown)?;
    let kind = class.kinds.get(index).ok_or_else(unknown)?;
    look.kind = Some(kind.name.clone());
    look.wanted = kind.role.wanted();
    look.first = matches!(
        kind.role,
        Role::Point(_)
            | Role::Kernel(Kernel::Point(_) | Kernel::HandlerIn(_) | Kernel::HandlerOut(_))
    );
    look.collect =
        matches!(kind.role, Role::Tells(_) | Role::Kernel(Kernel::Switch | Kernel::Waking));
    look.part = Part::Context;
    if let Some(node) = &class.context {
        look.scope();
        walk(node, bits, state, look)?;
    }
    look.part = Part::Own;
    if let Some(node) = &kind.context {
        look.scope();
        walk(node, bits, state, look)?;
    }
    look.part = Part::Fields;
    if let Some(node) = &kind.fields {
        look.scope();
        walk(node, bits, state, look)?;
    }
    Ok(index)
}

/// Part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Context,
    Own,
    Fields,
}

/// What a walk over an event looks for.
pub(super) struct Look<'r> {
    part: Part,
    id: Option<u64>,
    pub(super) kind: Option<String>,
    wanted: &'static [&'static str],
    /// The first integer of the fields is wanted, whatever its name.
    first: bool,
    /// All fields are wanted.
    collect: bool,
    array: Option<String>,
    depth: u32,
    picked: Picked,
    render: Option<&'r mut Render>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Picked {
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
    pub(super) name: Vec<u8>,
    pub(super) values: [u64; WANTED_MAX],
    pub(super) numbers: HashMap<String, u64>,
    pub(super) texts: HashMap<String, Vec<u8>>,
}

impl Picked {
    pub(super) fn fact(mut self, tells: Tells, pid: u32) -> Option<ProcessFact> {
        let number = |name: &str| self.numbers.get(name).copied();
        match tells {
            Tells::Module => {
                let path = self.texts.remove("path")?;
                Some(ProcessFact::Module {
                    pid,
                    base: self.numbers.get("baddr").copied()?,
                    bytes: self.numbers.get("memsz").copied().unwrap_or(0),
                    path: String::from_utf8_lossy(&path).into_owned().into(),
                    // Libraries reported by `lttng_ust_lib:load` are always relative to where they lie.
                    position_independent: self.numbers.get("is_pic").is_none_or(|&pic| pic != 0),
                })
            }
            Tells::BuildId => {
                let base = number("baddr")?;
                Some(ProcessFact::BuildId { pid, base, id: self.texts.remove("build_id")? })
            }
            Tells::Pool => {
                let address = number("mempool")?;
                let name = self.texts.remove("name")?;
                Some(ProcessFact::Pool {
                    address,
                    name: String::from_utf8_lossy(&name).into_owned(),
                })
            }
            Tells::Nothing => None,
        }
    }
}

impl<'r> Look<'r> {
    pub(super) fn new(render: Option<&'r mut Render>) -> Self {
        Self {
            part: Part::Header,
            id: None,
            kind: None,
            wanted: &[],
            first: false,
            collect: false,
            array: None,
            depth: 0,
            picked: Picked::default(),
            render,
        }
    }

    pub(super) fn picked(self) -> Picked {
        self.picked
    }

    fn scope(&mut self) {
        if let Some(render) = &mut self.render {
            render.scope(false);
        }
    }

    fn drawing(&mut self) -> Option<&mut Render> {
        if self.part == Part::Header { None } else { self.render.as_deref_mut() }
    }
}

impl Visit for Look<'_> {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, labels: &[Range]) {
        if self.part == Part::Header && whole.duty == Some(Duty::EventClass) {
            self.id = Some(value.raw);
        }
        match (self.part, name) {
            (Part::Context, Some("vpid" | "pid")) => self.picked.pid = Some(value.raw as u32),
            (Part::Context, Some("vtid" | "tid")) => self.picked.tid = Some(value.raw as u32),
            (Part::Fields, Some(name)) => {
                if self.first {
                    self.picked.values[0] = value.raw;
                    self.first = false;
                }
                if let Some(index) = self.wanted.iter().position(|wanted| *wanted == name)
                    && self.depth == 1
                {
                    self.picked.values[index] = value.raw;
                }
                if self.collect {
                    self.picked.numbers.insert(name.to_owned(), value.raw);
                }
            }
            (Part::Fields, None) => {
                if let (true, Some(array)) = (self.collect, &self.array) {
                    let bytes = self.picked.texts.entry(array.clone()).or_default();
                    if bytes.len() < 4096 {
                        bytes.push(value.raw as u8);
                    }
                }
            }
            _ => {}
        }
        if let Some(render) = self.drawing() {
            render.whole(name, value, whole, labels);
        }
    }

    fn float(&mut self, name: Option<&str>, value: f64) {
        if let Some(render) = self.drawing() {
            render.float(name, value);
        }
    }

    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        match (self.part, name) {
            (Part::Context, Some("procname")) => {
                self.picked.name = text[..text.len().min(NAME_BYTES_MAX)].to_vec();
            }
            (Part::Fields, Some(name)) if self.collect => {
                self.picked.texts.insert(name.to_owned(), text[..text.len().min(4096)].to_vec());
            }
            _ => {}
        }
        if let Some(render) = self.drawing() {
            render.text(name, text);
        }
    }

    fn open(&mut self, name: Option<&str>, shape: Shape) {
        self.depth += 1;
        if shape == Shape::Array {
            self.array = name.map(str::to_owned);
        }
        if let Some(render) = self.drawing() {
            render.open(name, shape);
        }
    }

    fn close(&mut self, shape: Shape) {
        self.depth = self.depth.saturating_sub(1);
        if shape == Shape::Array {
            self.array = None;
        }
        if let Some(render) = self.drawing() {
            render.close(shape);
        }
    }
}
