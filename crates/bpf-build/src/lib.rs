//! Compiles a crate's eBPF C in its build script: one compiler, one set of flags, for all.
//!
//! Assumes clang (Debian's clang-19) and libbpf's headers; says which package is missing when they
//! are not there. The object lands in `OUT_DIR` under the source's stem, to be embedded with
//! `include_bytes!(concat!(env!("OUT_DIR"), "/name.bpf.o"))`. Objects are built, never committed.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "cargo reads a build script's directives from stdout")]

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// The compilers tried, best first. clang 14 (Debian's default) lacks what newer programs use.
const CLANGS: [&str; 3] = ["clang-19", "clang-18", "clang"];

/// Compiles `source` (relative to the crate, `bpf/name.bpf.c`) to `OUT_DIR/name.bpf.o`.
///
/// # Panics
/// With the compiler's messages, or the name of the missing package: a build script's way to fail.
pub fn compile(source: &str) {
    let crate_dir = PathBuf::from(cargo_env("CARGO_MANIFEST_DIR"));
    let shared = shared_include(&crate_dir);
    let source = crate_dir.join(source);
    let stem = source.file_name().and_then(|n| n.to_str()).expect("a source has a UTF-8 name");
    let object = PathBuf::from(cargo_env("OUT_DIR")).join(stem.replace(".bpf.c", ".bpf.o"));

    let clang = clang();
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
        // The target has no multiarch directory of its own; <asm/types.h> is the build machine's.
        .arg(format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH))
        .arg("-I")
        .arg(&shared)
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap_or_else(|e| panic!("cannot run {}: {e}", clang.to_string_lossy()));
    assert!(
        output.status.success(),
        "{} does not compile (missing headers? `apt-get install libbpf-dev linux-libc-dev`):\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );

    let source_dir = source.parent().expect("a file has a folder");
    println!("cargo::rerun-if-changed={}", source_dir.display());
    println!("cargo::rerun-if-changed={}", shared.display());
}

/// The kernel-side headers that all programs share: `bpf/include` at the root of the tree.
fn shared_include(crate_dir: &Path) -> PathBuf {
    crate_dir
        .ancestors()
        .map(|dir| dir.join("bpf/include"))
        .find(|dir| dir.join("laneway").is_dir())
        .expect("bpf/include/laneway is at the root of the tree")
}

fn clang() -> OsString {
    println!("cargo::rerun-if-env-changed=LANEWAY_CLANG");
    if let Some(clang) = env::var_os("LANEWAY_CLANG") {
        return clang;
    }
    let runs =
        |c: &str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    match CLANGS.into_iter().find(|c| runs(c)) {
        Some(clang) => clang.into(),
        None => panic!(
            "no clang found (tried {}): eBPF programs are compiled at build time; \
             `apt-get install clang-19`, or set LANEWAY_CLANG",
            CLANGS.join(", ")
        ),
    }
}

fn cargo_env(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: call this from a build script"))
}
