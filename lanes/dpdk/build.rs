//! Compiles the shim into a shared object where DPDK's development files are, and leaves an empty
//! file where they are not: the crate embeds what is there and says at run time what is missing.
//!
//! The compiler flags come from the pkg-config program itself, not from the crate of that name, which
//! drops `-include` and `-march`: DPDK's inline functions need both.

use std::{env, fs, path::PathBuf, process::Command};

/// The oldest release whose calls the shim uses.
const DPDK_VERSION_MIN: &str = "22.11";
const SOURCE: &str = "shim/laneway_dpdk.c";
/// Where it and what it includes lie.
const SOURCES: &str = "shim";

fn main() {
    println!("cargo:rerun-if-changed={SOURCES}");
    // LANEWAY_DPDK=off builds without the shim although DPDK is there.
    for variable in ["LANEWAY_DPDK", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "CC"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    // An installation of DPDK changes this file, where Debian puts it.
    println!("cargo:rerun-if-changed=/usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc");
    // For the test that runs two libbpf side by side.
    laneway_bpf_build::compile("tests/bpf/count.bpf.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = out.join("laneway_dpdk.so");
    let built = match env::var("LANEWAY_DPDK").as_deref() {
        Ok("off") => Err("LANEWAY_DPDK=off".to_owned()),
        _ => compile(&object),
    };
    if let Err(why) = built {
        if env::var("LANEWAY_DPDK").as_deref() != Ok("off") {
            println!("cargo:warning=lane dpdk is built without its shim: {why}");
        }
        fs::write(&object, []).expect("cargo's folder is writable");
    }
}

fn compile(object: &std::path::Path) -> Result<(), String> {
    pkg_config(&["--exists", &format!("libdpdk >= {DPDK_VERSION_MIN}")])
        .map_err(|_| format!("pkg-config finds no libdpdk {DPDK_VERSION_MIN} or later"))?;
    let flags = pkg_config(&["--cflags", "libdpdk"])?;
    let libraries = pkg_config(&["--libs", "libdpdk"])?;
    let compiler = cc::Build::new().opt_level(2).pic(true).cargo_metadata(false).get_compiler();
    let run = compiler
        .to_command()
        .args(["-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit"])
        .args(flags.split_whitespace())
        .arg("-DALLOW_EXPERIMENTAL_API")
        .arg(SOURCE)
        .arg("-o")
        .arg(object)
        // Without it every library of DPDK would be needed at run time, not the six that are used.
        .arg("-Wl,--as-needed")
        .args(libraries.split_whitespace())
        .output()
        .map_err(|e| format!("the C compiler does not start: {e}"))?;
    if run.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    let first = errors.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
    Err(format!("the C compiler failed: {first}"))
}

fn pkg_config(args: &[&str]) -> Result<String, String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let run = Command::new(program).args(args).output().map_err(|e| format!("pkg-config: {e}"))?;
    if !run.status.success() {
        return Err(format!("pkg-config {} failed", args.join(" ")));
    }
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}
