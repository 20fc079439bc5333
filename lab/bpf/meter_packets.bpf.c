// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The CPU meter where softirqs work for others than whom they interrupt: packets are received from the backlog of a
 * CPU that another one chose (RPS); TCP sends on by a tasklet when the far end took a packet (small queues), or by a
 * timer (pacing), and a queue that was stopped goes on. So each packet's interface is looked at.
 * That costs something for every packet, which is why it is an object of its own.
 */
#define LW_METER_PACKETS
#include "meter.bpf.c"
