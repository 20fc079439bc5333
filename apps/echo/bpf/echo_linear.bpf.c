// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app echo beside a program that takes no frames in fragments: see
 * KernelEcho::before_linear in src/kernel.rs. The same program in another section.
 */
#define LW_ECHO_SECTION "xdp"

#include "echo.bpf.c"
