//! What is asked of which node: the map of slots, redirections, failover, beats. No I/O and no clock.
//!
//! ```text
//!   ask ─▶ owner of the slot ─▶ link (connects when needed) ─▶ reply ─┬─ answer
//!                 ▲                                                   ├─ MOVED: a new owner  ─┐
//!                 ╰────────── parked for a while ◀────────────────────┴─ ASK, TRYAGAIN, ...  ─╯
//! ```
//!
//! A link is one connection; its replies are those of what was sent, in order, beside pushed messages. A link whose
//! oldest question is too old is closed. What must always hold: each request gets one answer, at the latest when its
//! time is up and its link is closed; a write that was sent whole on a link that is lost is never sent again; reports
//! are in the order of rule 1 of [`super`].

use super::map::{Address, Redirect, UpstreamSettings, ranges, redirect};
use super::{Answer, Report, Request, Way};
use laneway_resp::{Protocol, Value, command};
use std::collections::VecDeque;

/// A connection of a node.
pub(super) type LinkId = (u16, usize);

/// Links of a node: the tracked one, and one per version of the protocol.
pub(super) const LINKS: usize = 3;
const TRACKED: usize = 0;

/// Nodes that are known, those that have left included.
const NODES_MAX: usize = 1024;
/// Nodes that one command may be sent to before it waits.
const HOPS_MAX: u32 = 8;
/// How long a command waits that is to be asked again.
const AGAIN_US: u64 = 20_000;
/// How long a node is left alone whose connection was lost.
const BACKOFF_US: u64 = 50_000;
/// How long a connection may take to begin.
const CONNECT_US: u64 = 1_000_000;
/// How often the map is read anyway, how often at most, and how long it is waited for.
const REFRESH_US: u64 = 1_000_000;
const REFRESH_WANTED_US: u64 = 50_000;
const REFRESH_PATIENCE_US: u64 = 500_000;

const NO_OWNER: u16 = u16::MAX;

/// What the sockets are to do.
#[derive(Debug)]
pub(super) enum Action {
    Connect(LinkId, Address),
    Send(LinkId, Vec<u8>),
    Close(LinkId),
}

/// A request on its way.
#[derive(Debug)]
struct Asked {
    request: Request,
    due_us: u64,
    hops: u32,
    /// ASKING stands before each of its commands.
    is_asking: bool,
    /// The replies to what was sent, as far as they are there, and the last one's bytes.
    replies: Vec<Value>,
    raw: Vec<u8>,
    /// The last error of a node, or why there is none.
    why: Vec<u8>,
}

#[derive(Debug)]
enum Sent {
    /// What makes the connection ours; anything but an error is well.
    Greeting,
    Beat,
    Slots,
    Asked(Box<Asked>),
}

#[derive(Debug, Default, PartialEq, Eq)]
enum LinkState {
    #[default]
    Down,
    Connecting {
        since_us: u64,
    },
    Up,
}

#[derive(Debug, Default)]
struct NodeLink {
    state: LinkState,
    /// Until when it is not connected again.
    again_us: u64,
    sent: VecDeque<(u64, Sent)>,
    /// What waits for the connection.
    queued: Vec<Asked>,
}

#[derive(Debug)]
struct ClusterNode {
    address: Address,
    links: [NodeLink; LINKS],
    /// A key of its first slot.
    probe: Option<(u16, Vec<u8>)>,
    beat_us: u64,
    is_beating: bool,
}

/// The cluster, as far as it is known.
#[derive(Debug)]
pub(super) struct Pilot {
    settings: UpstreamSettings,
    slot_of: fn(&[u8]) -> u16,
    nodes: Vec<ClusterNode>,
    owners: Vec<u16>,
    /// By node: its first slot, as of the map that it was looked for in.
    firsts: Vec<Option<u16>>,
    is_map_new: bool,
    parked: Vec<(u64, Asked)>,
    refreshed_us: Option<u64>,
    /// The node that was asked for the map, and when.
    refreshing: Option<(u16, u64)>,
    is_refresh_wanted: bool,
    refresh_next: usize,
    now_us: u64,
    pub(super) actions: Vec<Action>,
    pub(super) reports: Vec<Report>,
}

impl Pilot {
    pub(super) fn new(settings: UpstreamSettings, slot_of: fn(&[u8]) -> u16) -> Pilot {
        let mut pilot = Pilot {
            slot_of,
            nodes: Vec::new(),
            owners: vec![NO_OWNER; 16_384],
            firsts: Vec::new(),
            is_map_new: true,
            parked: Vec::new(),
            refreshed_us: None,
            refreshing: None,
            is_refresh_wanted: true,
            refresh_next: 0,
            now_us: 0,
            actions: Vec::new(),
            reports: Vec::new(),
            settings,
        };
        for seed in pilot.settings.seeds.clone() {
            pilot.node(&seed);
        }
        pilot
    }

    /// The number of the node at an address; it is new if it is not known. Nothing beyond the limit.
    fn node(&mut self, address: &Address) -> Option<u16> {
        let known = self.nodes.iter().position(|node| node.address == *address);
        if known.is_none() && self.nodes.len() >= NODES_MAX {
            return None;
        }
        let at = known.unwrap_or_else(|| {
            let links = std::array::from_fn(|_| NodeLink::default());
            let address = address.clone();
            self.nodes.push(ClusterNode {
                address,
                links,
                probe: None,
                beat_us: 0,
                is_beating: false,
            });
            self.nodes.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// Time passes: what waits is asked again, what has waited too long is given up, nodes are looked after.
    pub(super) fn tick(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        let now_us = self.now_us;
        let (ready, parked) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(at_us, asked)| *at_us <= now_us || asked.due_us <= now_us);
        self.parked = parked;
        for (_, asked) in ready {
            self.send(asked);
        }
        for number in 0..self.nodes.len() {
            for link in 0..LINKS {
                let of = &self.nodes[number].links[link];
                let bound_us = |sent: &Sent| match sent {
                    Sent::Beat => self.settings.bound_us,
                    _ => self.settings.patience_us,
                };
                let is_late = |(at_us, sent): &(u64, Sent)| now_us - at_us > bound_us(sent);
                let is_stuck = match of.state {
                    LinkState::Connecting { since_us } => now_us - since_us > CONNECT_US,
                    LinkState::Up => of.sent.iter().any(is_late),
                    LinkState::Down => false,
                };
                if is_stuck {
                    self.close((number as u16, link), b"no answer in time");
                }
            }
        }
        self.refresh();
        self.beat();
    }

    /// A request of the worker.
    pub(super) fn ask(&mut self, request: Request) {
        let due_us = self.now_us + self.settings.patience_us;
        let why = b"no node of the cluster was reached".to_vec();
        let (replies, raw) = (Vec::new(), Vec::new());
        self.send(Asked { request, due_us, hops: 0, is_asking: false, replies, raw, why });
    }

    /// Sends a request to the owner of its slot.
    fn send(&mut self, asked: Asked) {
        if asked.due_us <= self.now_us {
            return self.fail(asked);
        }
        match self.owners[usize::from(asked.request.slot)] {
            NO_OWNER => {
                self.is_refresh_wanted = true;
                self.park(asked, AGAIN_US);
            }
            node => self.send_to(node, asked),
        }
    }

    fn send_to(&mut self, node: u16, mut asked: Asked) {
        let number = match asked.request.way {
            Way::Fill => TRACKED,
            Way::Through(Protocol::Resp2) => 1,
            Way::Through(Protocol::Resp3) => 2,
        };
        let link = &mut self.nodes[usize::from(node)].links[number];
        match link.state {
            LinkState::Up => {
                asked.replies.clear();
                let mut bytes = Vec::new();
                for one in &asked.request.commands {
                    if asked.is_asking {
                        command(&[b"ASKING"], &mut bytes);
                    }
                    bytes.extend_from_slice(one);
                }
                link.sent.push_back((self.now_us, Sent::Asked(Box::new(asked))));
                self.actions.push(Action::Send((node, number), bytes));
            }
            LinkState::Connecting { .. } => link.queued.push(asked),
            LinkState::Down if link.again_us > self.now_us => self.park(asked, BACKOFF_US),
            LinkState::Down => {
                link.queued.push(asked);
                self.connect((node, number));
            }
        }
    }

    /// Asks a request again after a while.
    fn park(&mut self, mut asked: Asked, after_us: u64) {
        (asked.is_asking, asked.hops) = (false, 0);
        self.parked.push((self.now_us + after_us, asked));
    }

    fn fail(&mut self, asked: Asked) {
        let why = String::from_utf8_lossy(&asked.why).into_owned();
        // A node's own error begins with its code; a redirection is no client's business.
        let is_code = |code: &str| {
            code.len() > 3 && code.bytes().all(|byte| byte.is_ascii_uppercase()) && code != "MOVED"
        };
        let text = match why.split(' ').next().is_some_and(is_code) {
            true => why,
            false => format!("CLUSTERDOWN no node does the command: {why}"),
        };
        self.answer(&asked, Answer::Failed(text));
    }

    fn answer(&mut self, asked: &Asked, answer: Answer) {
        self.reports.push(Report::Answer { id: asked.request.id, answer });
    }

    fn link(&mut self, (node, link): LinkId) -> &mut NodeLink {
        &mut self.nodes[usize::from(node)].links[link]
    }

    fn connect(&mut self, id: LinkId) {
        self.link(id).state = LinkState::Connecting { since_us: self.now_us };
        let address = self.nodes[usize::from(id.0)].address.clone();
        self.actions.push(Action::Connect(id, address));
    }

    /// A connection has begun.
    pub(super) fn connected(&mut self, id: LinkId) {
        let version: &[u8] = if id.1 == 1 { b"2" } else { b"3" };
        let mut greeting = vec![b"HELLO", version];
        if let Some((user, password)) = &self.settings.login {
            greeting.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        let mut bytes = Vec::new();
        command(&greeting, &mut bytes);
        let mut sent = VecDeque::from([(self.now_us, Sent::Greeting)]);
        if id.1 == TRACKED {
            command(&[b"CLIENT", b"TRACKING", b"ON"], &mut bytes);
            sent.push_back((self.now_us, Sent::Greeting));
        }
        let link = self.link(id);
        (link.state, link.sent) = (LinkState::Up, sent);
        let queued = std::mem::take(&mut link.queued);
        self.actions.push(Action::Send(id, bytes));
        for asked in queued {
            self.send_to(id.0, asked);
        }
    }

    /// Closes a connection that is there, or about to be.
    fn close(&mut self, id: LinkId, why: &[u8]) {
        self.actions.push(Action::Close(id));
        self.lost(id, why);
    }

    /// A connection has ended, or could not begin.
    pub(super) fn lost(&mut self, id: LinkId, why: &[u8]) {
        self.is_refresh_wanted = true;
        let again_us = self.now_us + BACKOFF_US;
        let link = self.link(id);
        let was_up = link.state == LinkState::Up;
        let NodeLink { sent, queued, .. } =
            std::mem::replace(link, NodeLink { again_us, ..NodeLink::default() });
        if id.1 == TRACKED {
            self.nodes[usize::from(id.0)].is_beating = false;
            if self.refreshing.is_some_and(|(node, _)| node == id.0) {
                self.refreshing = None;
            }
            if was_up {
                self.reports.push(Report::Lost { node: id.0 });
            }
        }
        let address = self.nodes[usize::from(id.0)].address.to_string();
        let why = [b"node ", address.as_bytes(), b": ", why].concat();
        for (_, sent) in sent {
            let Sent::Asked(mut asked) = sent else { continue };
            if asked.request.is_write {
                let why = String::from_utf8_lossy(&why);
                let text = format!("IOERR {why}; the command may have been done");
                self.answer(&asked, Answer::Failed(text));
            } else {
                asked.why.clone_from(&why);
                self.park(*asked, BACKOFF_US);
            }
        }
        for mut asked in queued {
            asked.why.clone_from(&why);
            self.park(asked, BACKOFF_US);
        }
    }

    /// A whole reply, or a pushed message, has arrived; `raw` is its bytes.
    pub(super) fn received(&mut self, id: LinkId, value: Value, raw: &[u8]) {
        if let Value::Push(message) = &value {
            return self.pushed(id, message);
        }
        let Some((sent_us, sent)) = self.link(id).sent.pop_front() else {
            return self.close(id, b"it answers what was not asked");
        };
        match sent {
            Sent::Greeting => {
                if let Value::Error(text) = value {
                    self.close(id, &text);
                }
            }
            Sent::Beat => self.heard(id.0, &value, sent_us),
            Sent::Slots => {
                self.refreshing = None;
                let from = self.nodes[usize::from(id.0)].address.clone();
                for range in ranges(&value, &from).unwrap_or_default() {
                    let nodes: Vec<Option<u16>> =
                        range.nodes.iter().map(|address| self.node(address)).collect();
                    if let Some(Some(owner)) = nodes.first() {
                        self.own(range.first, range.last, *owner);
                    }
                }
            }
            Sent::Asked(mut asked) => {
                asked.replies.push(value);
                let each = 1 + usize::from(asked.is_asking);
                if asked.replies.len() < asked.request.commands.len() * each {
                    self.link(id).sent.push_front((sent_us, Sent::Asked(asked)));
                } else {
                    asked.raw = raw.to_vec();
                    self.answered(id.0, *asked);
                }
            }
        }
    }

    fn pushed(&mut self, id: LinkId, message: &[Value]) {
        let [Value::Bulk(kind), what] = message else { return };
        if kind != b"invalidate" || id.1 != TRACKED {
            return;
        }
        match what {
            Value::Array(keys) => {
                let key = |value: &Value| match value {
                    Value::Bulk(key) => Some(key.as_slice().into()),
                    _ => None,
                };
                self.reports.push(Report::Invalid(keys.iter().filter_map(key).collect()));
            }
            // Everything: the node was flushed. What is on its way is as good as lost, and its beats go on.
            _ => self.reports.push(Report::Lost { node: id.0 }),
        }
    }

    /// All replies to a request are there.
    fn answered(&mut self, node: u16, mut asked: Asked) {
        let each = 1 + usize::from(asked.is_asking);
        let was_asking = asked.is_asking;
        let replies = std::mem::take(&mut asked.replies);
        let replies: Vec<Value> = replies.into_iter().skip(each - 1).step_by(each).collect();
        let from = self.nodes[usize::from(node)].address.clone();
        let turned = replies.iter().find_map(|reply| match reply {
            Value::Error(text) => redirect(text, &from).map(|to| (to, text.clone())),
            _ => None,
        });
        let Some((to, why)) = turned else {
            let is_owner = self.owners[usize::from(asked.request.slot)] == node;
            let answer = answer_of(&asked, replies, is_owner && !was_asking);
            return self.answer(&asked, answer);
        };
        asked.why = why;
        asked.hops += 1;
        asked.is_asking = false;
        let is_tired = asked.hops > HOPS_MAX || asked.due_us <= self.now_us;
        match to {
            Redirect::Moved(slot, address) => {
                self.is_refresh_wanted = true;
                if let Some(owner) = self.node(&address) {
                    self.own(slot, slot, owner);
                }
                if is_tired { self.park(asked, AGAIN_US) } else { self.send(asked) }
            }
            Redirect::Ask(address) => match self.node(&address) {
                Some(node) if !is_tired => {
                    asked.is_asking = true;
                    self.send_to(node, asked);
                }
                _ => self.park(asked, AGAIN_US),
            },
            Redirect::Later => {
                self.is_refresh_wanted = true;
                self.park(asked, AGAIN_US);
            }
        }
    }

    /// Slots belong to a node, as another one says.
    fn own(&mut self, first: u16, last: u16, node: u16) {
        let mut changed: Option<(u16, u16)> = None;
        for slot in first..=last {
            let owner = &mut self.owners[usize::from(slot)];
            if std::mem::replace(owner, node) != node {
                self.is_map_new = true;
                match &mut changed {
                    Some((_, end)) if *end + 1 == slot => *end = slot,
                    _ => {
                        if let Some((first, last)) = changed.replace((slot, slot)) {
                            self.reports.push(Report::Owner { first, last, node });
                        }
                    }
                }
            }
        }
        if let Some((first, last)) = changed {
            self.reports.push(Report::Owner { first, last, node });
        }
    }

    /// Asks some node for the map, now and then.
    fn refresh(&mut self) {
        let now_us = self.now_us;
        if self.refreshing.is_some_and(|(_, at_us)| now_us - at_us < REFRESH_PATIENCE_US) {
            return;
        }
        let pause_us = if self.is_refresh_wanted { REFRESH_WANTED_US } else { REFRESH_US };
        if self.refreshed_us.is_some_and(|at_us| now_us - at_us < pause_us) {
            return;
        }
        for _ in 0..self.nodes.len() {
            let node = (self.refresh_next % self.nodes.len()) as u16;
            self.refresh_next = self.refresh_next.wrapping_add(1);
            if !self.is_tracked(node) {
                continue;
            }
            let mut bytes = Vec::new();
            command(&[b"CLUSTER", b"SLOTS"], &mut bytes);
            self.link((node, TRACKED)).sent.push_back((now_us, Sent::Slots));
            self.actions.push(Action::Send((node, TRACKED), bytes));
            (self.refreshing, self.refreshed_us) = (Some((node, now_us)), Some(now_us));
            self.is_refresh_wanted = false;
            return;
        }
    }

    /// True if a node's tracked connection is there; it is begun if it may be.
    fn is_tracked(&mut self, node: u16) -> bool {
        let now_us = self.now_us;
        let link = self.link((node, TRACKED));
        if link.state == LinkState::Down && link.again_us <= now_us {
            self.connect((node, TRACKED));
        }
        self.link((node, TRACKED)).state == LinkState::Up
    }

    /// Has every node that owns slots say that it still does.
    fn beat(&mut self) {
        if std::mem::take(&mut self.is_map_new) {
            self.firsts = vec![None; self.nodes.len()];
            for (slot, &owner) in (0u16..).zip(&self.owners) {
                if let Some(first) = self.firsts.get_mut(usize::from(owner)) {
                    first.get_or_insert(slot);
                }
            }
        }
        for number in 0..self.firsts.len() as u16 {
            let Some(slot) = self.firsts[usize::from(number)] else { continue };
            let node = &self.nodes[usize::from(number)];
            let is_due = self.now_us >= node.beat_us && !node.is_beating;
            if !is_due || !self.is_tracked(number) {
                continue;
            }
            let (now_us, slot_of) = (self.now_us, self.slot_of);
            let node = &mut self.nodes[usize::from(number)];
            if node.probe.as_ref().is_none_or(|(of, _)| *of != slot) {
                node.probe = key_of(slot, slot_of).map(|key| (slot, key));
            }
            let Some((_, key)) = &node.probe else { continue };
            let mut bytes = Vec::new();
            command(&[b"EXISTS", key], &mut bytes);
            (node.is_beating, node.beat_us) = (true, now_us + self.settings.bound_us / 4);
            node.links[TRACKED].sent.push_back((now_us, Sent::Beat));
            self.actions.push(Action::Send((number, TRACKED), bytes));
        }
    }

    /// A beat was answered.
    fn heard(&mut self, number: u16, value: &Value, sent_us: u64) {
        let node = &mut self.nodes[usize::from(number)];
        node.is_beating = false;
        let from = node.address.clone();
        let is_owner = match value {
            Value::Integer(_) => true,
            Value::Error(text) => match redirect(text, &from) {
                // Only the owner of a slot says either.
                Some(Redirect::Ask(_)) => true,
                Some(Redirect::Later) => text.starts_with(b"TRYAGAIN"),
                Some(Redirect::Moved(slot, address)) => {
                    if let Some(owner) = self.node(&address) {
                        self.own(slot, slot, owner);
                    }
                    false
                }
                None => false,
            },
            _ => false,
        };
        if is_owner {
            self.reports.push(Report::Confirmed { node: number, sent_us });
        } else {
            self.is_refresh_wanted = true;
        }
    }
}

/// What the worker hears of replies that redirect to nowhere else.
fn answer_of(asked: &Asked, replies: Vec<Value>, is_owner: bool) -> Answer {
    let mut replies = replies.into_iter();
    match (asked.request.way, replies.next(), replies.next()) {
        (Way::Fill, Some(Value::Error(text)), _) | (Way::Fill, _, Some(Value::Error(text))) => {
            Answer::Raw([b"-", &text[..], b"\r\n"].concat())
        }
        (Way::Fill, Some(value), Some(Value::Integer(left_ms))) => {
            Answer::Filled { value, left_ms, is_covered: is_owner }
        }
        (Way::Fill, ..) => Answer::Failed("ERR a node's reply to PTTL is no number".to_owned()),
        (Way::Through(_), ..) => Answer::Raw(asked.raw.clone()),
    }
}

/// A key of a slot.
fn key_of(slot: u16, slot_of: fn(&[u8]) -> u16) -> Option<Vec<u8>> {
    // Each has one chance in 16,384; that none of so many is of the slot does not happen.
    let names = (0..1_000_000).map(|n: u32| format!("laneway:{n}").into_bytes());
    names.into_iter().find(|name| slot_of(name) == slot)
}
