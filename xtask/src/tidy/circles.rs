//! Source files of one crate that import each other in a circle: none of them can be read, tried or moved alone.
//!
//! Textual: `use` declarations and paths that begin with `crate`, `super`, `self` or the name of a child, without what
//! is compiled for tests only. A module may use those it lies in, at any depth: a folder is one room, and its first
//! file its face.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::source::split;
use crate::tree::{Tree, is_below};
use crate::workspace::Member;

/// A module by its names from the crate's root, whose own is empty.
type Module = Vec<String>;

pub(super) fn check(tree: &Tree, members: &[Member]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for member in members {
        let circles = circles(&modules(tree, &member.folder));
        if !circles.is_empty() {
            let files: usize = circles.iter().map(Vec::len).sum();
            let names: Vec<String> = circles.iter().map(|circle| list(circle)).collect();
            let what = format!(
                "{files} files import each other in circles: {}; move what two of them need into a module below both",
                names.join("; ")
            );
            violations.push(Violation::new(
                &format!("{}/Cargo.toml", member.folder),
                1,
                "circles",
                what,
            ));
        }
    }
    violations
}

fn list(circle: &[Module]) -> String {
    circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(", ")
}

/// What each module imports of its crate, modules that it lies in left out.
fn modules(tree: &Tree, folder: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let sources = format!("{folder}/src");
    let texts: BTreeMap<Module, &str> = tree
        .texts()
        .filter(|(path, _)| is_below(path, &sources) && path.ends_with(".rs"))
        .map(|(path, text)| (module_of(&path[sources.len() + 1..]), text))
        .filter(|(module, _)| !module.iter().any(|name| name == "tests"))
        .collect();
    let imports = |(module, text): (&Module, &&str)| {
        let mut found = BTreeSet::new();
        for path in paths(&product(text)) {
            if let Some(target) = resolve(module, &path, &texts)
                && !module.starts_with(&target)
            {
                found.insert(target);
            }
        }
        (module.clone(), found)
    };
    texts.iter().map(imports).collect()
}

fn module_of(path: &str) -> Module {
    let names = path.trim_end_matches(".rs").split('/').map(str::to_owned);
    let mut module: Module = names.collect();
    let is_face = match module.last().map(String::as_str) {
        Some("mod") => true,
        Some("lib" | "main") => module.len() == 1,
        _ => false,
    };
    if is_face {
        module.pop();
    }
    module
}

/// The code of a file without comments, texts, and items for tests.
fn product(text: &str) -> String {
    let code: Vec<String> = split(text).into_iter().map(|line| line.code).collect();
    let code = code.join("\n");
    let mut left = String::with_capacity(code.len());
    let mut rest = code.as_str();
    while let Some(at) = rest.find("#[cfg(test)]").or_else(|| rest.find("#[cfg(all(test")) {
        left.push_str(&rest[..at]);
        rest = &rest[at + item_bytes(&rest[at..])..];
    }
    left.push_str(rest);
    left
}

/// Up to the end of the item that begins here: its closing brace, or a semicolon in front of any.
fn item_bytes(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Every path of names in the code; those of a `use` with braces one by one.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    let bytes = code.as_bytes();
    while at < bytes.len() {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !is_name(bytes[at]) {
            at += 1;
            continue;
        }
        let end =
            at + bytes[at..].iter().take_while(|byte| is_name(**byte) || **byte == b':').count();
        let (path, continues) = (&code[at..end], bytes.get(end) == Some(&b'{'));
        let is_behind_path = at > 0 && bytes[at - 1] == b':';
        if path.contains("::") && !is_behind_path {
            let names = |path: &str| -> Vec<String> {
                path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
            };
            if continues && path.ends_with("::") {
                let length = item_bytes(&code[end..]);
                for inner in members(&code[end + 1..end + length - 1]) {
                    found.push([names(path), names(&inner)].concat());
                }
                at = end + length;
                continue;
            }
            found.push(names(path));
        }
        at = end;
    }
    found
}

/// `a, b::{c, d}` as `a`, `b::c`, `b::d`.
fn members(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0usize, 0);
    for (at, character) in list.char_indices().chain([(list.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let member = list[begin..at].trim();
                begin = at + 1;
                match member.split_once('{') {
                    Some((path, inner)) => {
                        let inner = members(inner.trim_end().trim_end_matches('}'));
                        found.extend(inner.iter().map(|inner| format!("{path}{inner}")));
                    }
                    None => found.push(member.split(" as ").next().unwrap_or(member).to_owned()),
                }
            }
            _ => {}
        }
    }
    found
}

/// The module whose item `path` names, seen from `module`; `None` for paths out of the crate.
fn resolve(module: &Module, path: &[String], modules: &BTreeMap<Module, &str>) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut at = module.clone();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop()?;
        }
        name => {
            at.push(name.to_owned());
            modules.get(&at)?;
        }
    }
    while let Some((name, behind)) = rest.split_first() {
        if name == "super" {
            at.pop()?;
        } else {
            at.push(name.clone());
            if !modules.contains_key(&at) {
                at.pop();
                break;
            }
        }
        rest = behind;
    }
    modules.contains_key(&at).then_some(at)
}

/// Groups of modules each of which reaches all others of its group.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reach(module, imports))).collect();
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for module in imports.keys().filter(|module| reached[module].contains(module)) {
        if taken.contains(module) {
            continue;
        }
        let circle: Vec<Module> = reached[module]
            .iter()
            .filter(|other| reached[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        taken.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

fn reach<'a>(
    from: &Module,
    imports: &'a BTreeMap<Module, BTreeSet<Module>>,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(&imports[module]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::member_of;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("lanes/a/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let members = [member_of("a", "lanes/a", &[])];
        check(&Tree::of(&files), &members).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn two_that_import_each_other_are_a_circle_and_a_chain_is_none() {
        let circle = found(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::{self, B};\n"),
            ("b.rs", "use std::fmt;\nfn b() -> crate::a::A {}\n"),
        ]);
        assert!(circle[0].starts_with("2 files") && circle[0].contains(": a, b;"), "{circle:?}");
        let chain = [("lib.rs", "mod a;\nmod b;\n"), ("a.rs", "use crate::b::B;\n"), ("b.rs", "")];
        assert!(found(&chain).is_empty());
    }

    #[test]
    fn a_circle_through_a_list_a_child_and_a_neighbour_is_seen() {
        let circle = found(&[
            ("a.rs", "use crate::{b::{c::C, D}, e as f};\n"),
            ("b.rs", "mod c;\n"),
            ("b/c.rs", "use super::super::e::E;\n"),
            ("e.rs", "use super::a::A;\n"),
        ]);
        assert!(circle[0].contains("a, b::c, e"), "{circle:?}");
    }

    #[test]
    fn a_module_may_use_those_it_lies_in_and_tests_may_use_all() {
        let files = [
            ("lib.rs", "mod a;\npub use a::A;\n"),
            ("a.rs", "mod b;\nuse b::B;\nstruct A;\n"),
            ("a/b.rs", "use super::A;\n"),
            ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::d::D;\n}\n"),
            ("d.rs", "use crate::c::C;\n// use crate::d::D;\n"),
            ("c/tests.rs", "use crate::d::D;\n"),
        ];
        assert!(found(&files).is_empty());
    }
}
