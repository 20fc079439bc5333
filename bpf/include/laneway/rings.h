/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The rings by which a program hands records to user space, and the word that states when to wake
 * the consumer: the maps that crates/bpf/src/rings.rs finds by these names and sizes at load.
 */
#ifndef LANEWAY_RINGS_H
#define LANEWAY_RINGS_H

#include <laneway/wake.h>

/* One ring per CPU: with two producers on one ring, reserve costs several times as much. */
struct lw_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct lw_ring);
} rings SEC(".maps");

/* 0 while the consumer is awake, else how many bytes must be pending for it to be woken. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} wanted SEC(".maps");

#endif
