//! Compiles the kernel half, with and without frames in fragments.

fn main() {
    laneway_bpf_build::compile("bpf/echo.bpf.c");
    laneway_bpf_build::compile("bpf/echo_linear.bpf.c");
}
