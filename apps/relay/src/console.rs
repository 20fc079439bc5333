//! The conversation over the control socket: one JSON object per line, one per answer.
//!
//! ```text
//!   {"command":"list"}                          {"rules":[{"id":"...","input":{...},"outputs":[...]}],
//!                                                "allow":["192.0.2.0/24"],"local_groups":false}
//!   {"command":"add","rule":[{...}]}            {"added":["..."],"removed":[],"kept":0}
//!   {"command":"remove","id":["..."]}           {"added":[],"removed":["..."],"kept":0}
//!   {"command":"replace","rule":[{...}]}        {"added":[...],"removed":[...],"kept":12}
//!   {"command":"status"}                        {"rules":[{"id":"...","datagrams":7,...}],"datagrams":7,...}
//!   {"command":"handover",...}                  for a successor alone: see `handover`
//!   anything else                               {"error":"line 1, column 12: ..."}
//! ```
//!
//! With `"wait":true` a rule is taken whose interface is not there; it begins when the interface appears. Rules are
//! those of the file. What a relay may send to at all is not to be changed here.

use crate::{
    book::{Book, Changed},
    check::Policy,
    file::in_words,
    handover::asked::Asked,
    rule::{Rule, RuleId},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The rules in force, and what is permitted beside them.
    List {},
    /// Adds rules, in place of those with the same input.
    Add {
        /// The rules.
        rule: Vec<Rule>,
        /// They may wait for interfaces.
        #[serde(default)]
        wait: bool,
    },
    /// Removes rules.
    Remove {
        /// Their ids.
        id: Vec<RuleId>,
    },
    /// Puts these rules in the place of all.
    Replace {
        /// The rules.
        rule: Vec<Rule>,
        /// They may wait for interfaces.
        #[serde(default)]
        wait: bool,
    },
    /// What every rule has done.
    Status {},
    /// The same again and again, until the client has heard enough; answered by the socket, not here.
    Watch {},
    /// What this relay has, for a successor that is to go on with it; answered by the socket, not here.
    Handover(Asked),
    /// The successor is ready: this relay is to receive no more; answered by the socket, not here.
    Take {
        /// Which offer it has.
        offer: u64,
    },
    /// The successor receives.
    Taken {},
}

/// Answers a line with a line. An answer with the member `error` says that nothing was done.
pub fn answer(book: &Book, line: &str) -> String {
    let answer = match serde_json::from_str(line) {
        Ok(request) => carry_out(book, request),
        // It says line and column itself, where it knows them.
        Err(error) => Err(in_words(&error.to_string())),
    };
    answer.unwrap_or_else(|why| json!({ "error": why })).to_string()
}

fn carry_out(book: &Book, request: Request) -> Result<Value, String> {
    let changed = |changed: Changed| json!({ "added": changed.added, "removed": changed.removed, "kept": changed.kept });
    match request {
        Request::List {} => {
            let rules: Vec<Value> =
                book.rules().iter().map(|(id, rule)| with_id(*id, rule)).collect();
            let Policy { allow, local_groups, .. } = book.policy();
            Ok(json!({ "rules": rules, "allow": allow, "local_groups": local_groups }))
        }
        Request::Add { rule, wait } => book.add(rule, wait).map(changed),
        Request::Remove { id } => book.remove(&id).map(changed),
        Request::Replace { rule, wait } => book.replace(rule, wait).map(changed),
        Request::Handover(_) | Request::Take { .. } => {
            Err("only a running relay's control socket hands over".to_owned())
        }
        Request::Taken {} => Ok(json!({})),
        Request::Status {} | Request::Watch {} => {
            let state = book.state()?;
            serde_json::to_value(state).map_err(|error| error.to_string())
        }
    }
}

fn with_id(id: RuleId, rule: &Rule) -> Value {
    let mut object = Map::from_iter([("id".to_owned(), json!(id))]);
    if let Ok(Value::Object(members)) = serde_json::to_value(rule) {
        object.extend(members);
    }
    Value::Object(object)
}
