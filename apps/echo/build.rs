//! Compiles the kernel half.

fn main() {
    laneway_bpf_build::compile("bpf/echo.bpf.c");
}
