// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The CPU meter where packets are received from the backlog of a CPU that another one chose (RPS): whom a softirq
 * works for does not follow from the task that it interrupts, so each packet's interface is looked at.
 * That costs something for every packet, which is why it is an object of its own.
 */
#define LW_METER_BACKLOG
#include "meter.bpf.c"
