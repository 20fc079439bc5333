//! The workspace's crates and which depends on which, read from `cargo metadata`.
//!
//! Only edges between members and the names of outside crates are kept; versions and features are
//! cargo's business. Never resolves or downloads anything (`--no-deps`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Trouble;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Normal,
    Test,
    Build,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Folder relative to the root, for a member of this workspace.
    pub(crate) folder: Option<String>,
    pub(crate) used_in: Use,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Relative to the root, with `/`.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) members: Vec<Member>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self, Trouble> {
        // The one cargo runs for us names itself; outside cargo the path decides. The folder is asked for as late:
        // two checkouts that share a target directory share this program, and each means itself.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(folder)
            .output()
            .map_err(|e| Trouble(format!("cargo metadata did not start: {e}; install Rust")))?;
        if !output.status.success() {
            return Err(Trouble(format!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    fn parse(json: &str) -> Result<Self, Trouble> {
        let value: Value = serde_json::from_str(json)
            .map_err(|e| Trouble(format!("cargo metadata printed no JSON: {e}")))?;
        let root = PathBuf::from(text(&value, "workspace_root")?);
        let target_directory = PathBuf::from(text(&value, "target_directory")?);
        let members = list(&value, "packages")?
            .iter()
            .map(|package| member(package, &root))
            .collect::<Result<_, _>>()?;
        Ok(Self { root, target_directory, members })
    }
}

fn member(package: &Value, root: &Path) -> Result<Member, Trouble> {
    let manifest = text(package, "manifest_path")?;
    let folder = Path::new(manifest).parent().unwrap_or_else(|| Path::new(""));
    let dependencies = list(package, "dependencies")?.iter().map(|dependency| {
        Ok(Dependency {
            name: text(dependency, "name")?.to_owned(),
            folder: dependency["path"].as_str().map(|path| relative(Path::new(path), root)),
            used_in: match dependency["kind"].as_str() {
                Some("dev") => Use::Test,
                Some("build") => Use::Build,
                _ => Use::Normal,
            },
        })
    });
    Ok(Member {
        name: text(package, "name")?.to_owned(),
        folder: relative(folder, root),
        dependencies: dependencies.collect::<Result<_, Trouble>>()?,
    })
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Trouble> {
    value[key].as_str().ok_or_else(|| Trouble(format!("cargo metadata has no text `{key}`")))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, Trouble> {
    value[key].as_array().ok_or_else(|| Trouble(format!("cargo metadata has no list `{key}`")))
}

/// Splits members into (without, with) a path, through any kind of dependency, to one of `needs`.
pub(crate) fn split_by_need<'a>(
    members: &'a [Member],
    needs: &[&str],
) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut needy: BTreeSet<&str> = needs.iter().copied().collect();
    loop {
        let before = needy.len();
        for member in members {
            if member.dependencies.iter().any(|d| needy.contains(d.name.as_str())) {
                needy.insert(&member.name);
            }
        }
        if needy.len() == before {
            break;
        }
    }
    // A member named in `needs` builds by itself; what it is for does not.
    members.iter().map(|member| member.name.as_str()).partition(|name| !needy.contains(name))
}

#[cfg(test)]
pub(crate) fn member_of(name: &str, folder: &str, dependencies: &[(&str, &str, Use)]) -> Member {
    let dependencies = dependencies.iter().map(|(name, folder, used_in)| Dependency {
        name: name.to_string(),
        folder: (!folder.is_empty()).then(|| folder.to_string()),
        used_in: *used_in,
    });
    Member {
        name: name.to_owned(),
        folder: folder.to_owned(),
        dependencies: dependencies.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_members_with_relative_folders() {
        let json = r#"{"workspace_root": "/r", "target_directory": "/t", "packages": [
            {"name": "a", "manifest_path": "/r/lanes/a/Cargo.toml", "dependencies": [
                {"name": "b", "path": "/r/crates/b", "kind": null},
                {"name": "c", "kind": "dev"}]}]}"#;
        let workspace = Workspace::parse(json).expect("the JSON above is well formed");
        let member = &workspace.members[0];
        assert_eq!((member.name.as_str(), member.folder.as_str()), ("a", "lanes/a"));
        assert_eq!(member.dependencies[0].folder.as_deref(), Some("crates/b"));
        assert_eq!(member.dependencies[1].used_in, Use::Test);
        assert_eq!(member.dependencies[1].folder, None);
    }

    #[test]
    fn broken_metadata_is_a_sentence() {
        let trouble = Workspace::parse("{}").expect_err("no root in it");
        assert!(trouble.to_string().contains("workspace_root"));
    }

    #[test]
    fn need_is_inherited_through_members() {
        let members = [
            member_of("wire", "crates/wire", &[]),
            member_of("lane", "lanes/lane", &[("libbpf-rs", "", Use::Normal)]),
            member_of("cli", "cli", &[("lane", "lanes/lane", Use::Normal)]),
        ];
        assert_eq!(split_by_need(&members, &["libbpf-rs"]), (vec!["wire"], vec!["lane", "cli"]));
    }
}
