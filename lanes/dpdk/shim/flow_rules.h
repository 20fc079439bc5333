/* SPDX-License-Identifier: MIT OR BSD-3-Clause */
/*
 * Rules that ports execute: src/flow_rules.rs gives them, with what a header must hold as it stands on the wire. Part
 * of laneway_dpdk.c, which includes it once, behind its own declarations.
 */
#ifndef LANEWAY_DPDK_FLOW_RULES_H
#define LANEWAY_DPDK_FLOW_RULES_H

#define LW_HEADER_BYTES 40
#define LW_HEADERS_MAX	8

/* A header that must be there, byte by byte as on the wire. */
struct lw_flow_item {
	uint32_t header;
	uint8_t spec[LW_HEADER_BYTES];
	uint8_t last[LW_HEADER_BYTES];
	uint8_t mask[LW_HEADER_BYTES];
};

enum {
	LW_DOES_DROP = 1,
	LW_DOES_QUEUE = 2,
	LW_DOES_MARK = 4,
	LW_DOES_COUNT = 8,
};

struct lw_flow_rule {
	uint32_t priority;
	uint32_t items;
	uint32_t actions;
	uint32_t mark;
	uint16_t queue;
	uint16_t zeros[3];
	struct lw_flow_item item[LW_HEADERS_MAX];
};

_Static_assert(sizeof(struct lw_flow_item) == 124, "ShimItem");
_Static_assert(sizeof(struct lw_flow_rule) == 1016, "ShimRule");

/* By lw_flow_item.header: DPDK's type, and how many bytes of the header its item begins with. */
static const struct {
	enum rte_flow_item_type type;
	uint32_t bytes;
} flow_headers[] = {
	{RTE_FLOW_ITEM_TYPE_ETH, 14},  {RTE_FLOW_ITEM_TYPE_VLAN, 4},  {RTE_FLOW_ITEM_TYPE_IPV4, 20},
	{RTE_FLOW_ITEM_TYPE_IPV6, 40}, {RTE_FLOW_ITEM_TYPE_TCP, 20},  {RTE_FLOW_ITEM_TYPE_UDP, 8},
	{RTE_FLOW_ITEM_TYPE_ICMP, 4},  {RTE_FLOW_ITEM_TYPE_ICMP6, 4}, {RTE_FLOW_ITEM_TYPE_VXLAN, 8},
};

/* An item is the header, then what only DPDK knows of it, which stays zero: not asked for. */
_Static_assert(offsetof(struct rte_flow_item_eth, type) == 12, "wire order");
_Static_assert(offsetof(struct rte_flow_item_vlan, inner_type) == 2, "wire order");
_Static_assert(sizeof(struct rte_flow_item_ipv4) == 20, "wire order");
_Static_assert(offsetof(struct rte_flow_item_ipv6, hdr.dst_addr) == 24, "wire order");
_Static_assert(sizeof(struct rte_flow_item_tcp) == 20, "wire order");
_Static_assert(sizeof(struct rte_flow_item_udp) == 8, "wire order");
_Static_assert(offsetof(struct rte_flow_item_icmp, hdr.icmp_cksum) == 2, "wire order");
_Static_assert(offsetof(struct rte_flow_item_icmp6, checksum) == 2, "wire order");
_Static_assert(offsetof(struct rte_flow_item_vxlan, vni) == 4, "wire order");

/* Room for the longest of DPDK's items. */
union flow_room {
	struct rte_flow_item_eth eth;
	struct rte_flow_item_ipv6 ipv6;
	uint8_t bytes[64];
};

struct flow_arrays {
	struct rte_flow_attr attr;
	struct rte_flow_item items[LW_HEADERS_MAX + 1];
	struct rte_flow_action actions[4];
	union flow_room spec[LW_HEADERS_MAX];
	union flow_room last[LW_HEADERS_MAX];
	union flow_room mask[LW_HEADERS_MAX];
	struct rte_flow_action_mark mark;
	struct rte_flow_action_queue queue;
	/* NULL would do by DPDK's book, but drivers refuse it, or read it all the same. */
	struct rte_flow_action_count count;
};

static bool has_bits(const uint8_t *bytes)
{
	uint8_t any = 0;
	unsigned int i;

	for (i = 0; i < LW_HEADER_BYTES; i++)
		any |= bytes[i];
	return any;
}

static int flow_arrays_fill(const struct lw_flow_rule *rule, struct flow_arrays *to)
{
	unsigned int i, n = 0;

	memset(to, 0, sizeof(*to));
	to->attr.ingress = 1;
	to->attr.priority = rule->priority;
	if (rule->items > LW_HEADERS_MAX)
		return -E2BIG;
	for (i = 0; i < rule->items; i++) {
		const struct lw_flow_item *from = &rule->item[i];

		if (from->header >= RTE_DIM(flow_headers))
			return -EINVAL;
		to->items[i].type = flow_headers[from->header].type;
		/* Without a mask the header must be there, whatever it holds. */
		if (!has_bits(from->mask))
			continue;
		memcpy(to->spec[i].bytes, from->spec, flow_headers[from->header].bytes);
		memcpy(to->mask[i].bytes, from->mask, flow_headers[from->header].bytes);
		to->items[i].spec = &to->spec[i];
		to->items[i].mask = &to->mask[i];
		if (has_bits(from->last)) {
			memcpy(to->last[i].bytes, from->last, flow_headers[from->header].bytes);
			to->items[i].last = &to->last[i];
		}
	}
	to->items[i].type = RTE_FLOW_ITEM_TYPE_END;
	to->mark.id = rule->mark;
	to->queue.index = rule->queue;
	if (rule->actions & LW_DOES_MARK)
		to->actions[n++] = (struct rte_flow_action){RTE_FLOW_ACTION_TYPE_MARK, &to->mark};
	if (rule->actions & LW_DOES_COUNT)
		to->actions[n++] = (struct rte_flow_action){RTE_FLOW_ACTION_TYPE_COUNT, &to->count};
	if (rule->actions & LW_DOES_DROP)
		to->actions[n++] = (struct rte_flow_action){RTE_FLOW_ACTION_TYPE_DROP, NULL};
	else if (rule->actions & LW_DOES_QUEUE)
		to->actions[n++] = (struct rte_flow_action){RTE_FLOW_ACTION_TYPE_QUEUE, &to->queue};
	to->actions[n].type = RTE_FLOW_ACTION_TYPE_END;
	return 0;
}

/* The entry of an array that a driver's `cause` points to, or -1: it may point anywhere. */
static int flow_cause(const void *cause, const void *first, size_t bytes, unsigned int count)
{
	uintptr_t away = (uintptr_t)cause - (uintptr_t)first;

	return cause && away < bytes * count && away % bytes == 0 ? (int)(away / bytes) : -1;
}

/* What the driver says of a rule that it refuses, and of which item or action, if it says so. */
static void flow_why(const struct flow_arrays *arrays, const struct rte_flow_error *error,
		     const char *doing, int failed, char *why, size_t room)
{
	struct rte_flow_error nowhere;
	char name[40] = ": ";
	int item = flow_cause(error->cause, arrays->items, sizeof(arrays->items[0]),
			      RTE_DIM(arrays->items));
	int action = flow_cause(error->cause, arrays->actions, sizeof(arrays->actions[0]),
				RTE_DIM(arrays->actions));
	int named = -1;

	if (item >= 0)
		named = rte_flow_conv(RTE_FLOW_CONV_OP_ITEM_NAME, name + 2, sizeof(name) - 2,
				      (const void *)(uintptr_t)arrays->items[item].type, &nowhere);
	else if (action >= 0)
		named = rte_flow_conv(RTE_FLOW_CONV_OP_ACTION_NAME, name + 2, sizeof(name) - 2,
				      (const void *)(uintptr_t)arrays->actions[action].type,
				      &nowhere);
	snprintf(why, room, "%s%s (rte_flow_%s, error %d)",
		 error->message ? error->message : rte_strerror(-failed), named > 0 ? name : "",
		 doing, -failed);
}

/* Gives the rule to the port, if it validates; else says why in `why`. */
LW_EXPORT int lw_flow_create(uint16_t port, const struct lw_flow_rule *rule, struct rte_flow **flow,
			     char *why, size_t room)
{
	struct rte_flow_error error = {0};
	struct flow_arrays arrays;
	const char *doing = "validate";
	int failed;

	LW_QUIETLY;
	*flow = NULL;
	failed = flow_arrays_fill(rule, &arrays);
	if (!failed)
		failed = rte_flow_validate(port, &arrays.attr, arrays.items, arrays.actions, &error);
	if (!failed) {
		doing = "create";
		/* Drivers that refuse do not all set it. */
		rte_errno = 0;
		*flow = rte_flow_create(port, &arrays.attr, arrays.items, arrays.actions, &error);
		failed = *flow ? 0 : -(rte_errno ? rte_errno : EIO);
	}
	if (failed)
		flow_why(&arrays, &error, doing, failed, why, room);
	return failed;
}

LW_EXPORT int lw_flow_destroy(uint16_t port, struct rte_flow *flow)
{
	struct rte_flow_error error = {0};

	LW_QUIETLY;
	return rte_flow_destroy(port, flow, &error);
}

/* Takes every rule out of the port. */
LW_EXPORT int lw_flow_flush(uint16_t port)
{
	struct rte_flow_error error = {0};

	LW_QUIETLY;
	return rte_flow_flush(port, &error);
}

LW_EXPORT int lw_flow_query(uint16_t port, struct rte_flow *flow, uint64_t *frames, uint64_t *bytes)
{
	/* The same conf as when the rule was made: a counter goes by its number. */
	const struct rte_flow_action_count conf = {0};
	const struct rte_flow_action count[] = {
		{RTE_FLOW_ACTION_TYPE_COUNT, &conf},
		{RTE_FLOW_ACTION_TYPE_END, NULL},
	};
	struct rte_flow_query_count found = {0};
	struct rte_flow_error error = {0};
	int failed;

	LW_QUIETLY;
	failed = rte_flow_query(port, flow, count, &found, &error);
	if (failed)
		return failed;
	*frames = found.hits_set ? found.hits : 0;
	*bytes = found.bytes_set ? found.bytes : 0;
	return 0;
}

static void say_bytes(FILE *to, const char *what, const void *bytes, uint32_t count)
{
	if (!bytes)
		return;
	fprintf(to, " %s ", what);
	for (uint32_t i = 0; i < count; i++)
		fprintf(to, "%02x", ((const uint8_t *)bytes)[i]);
}

/* Says in words what DPDK would be given, from copies and by names that DPDK itself makes. */
LW_EXPORT int lw_flow_describe(const struct lw_flow_rule *rule, char *text, size_t room)
{
	struct rte_flow_error error = {0};
	struct flow_arrays arrays;
	union {
		struct rte_flow_item first;
		uint8_t bytes[4096];
	} items;
	union {
		struct rte_flow_action first;
		uint8_t bytes[1024];
	} actions;
	const struct rte_flow_item *item = &items.first;
	const struct rte_flow_action *action = &actions.first;
	char name[32];
	FILE *to;
	int failed = flow_arrays_fill(rule, &arrays);

	if (failed)
		return failed;
	if (rte_flow_conv(RTE_FLOW_CONV_OP_PATTERN, items.bytes, sizeof(items), arrays.items,
			  &error) < 0 ||
	    rte_flow_conv(RTE_FLOW_CONV_OP_ACTIONS, actions.bytes, sizeof(actions), arrays.actions,
			  &error) < 0)
		return -rte_errno;
	to = fmemopen(text, room, "w");
	if (!to)
		return -ENOMEM;
	fprintf(to, "%s priority %u\n", arrays.attr.ingress ? "ingress" : "-", arrays.attr.priority);
	for (uint32_t i = 0;; i++, item++) {
		uint32_t bytes = i < rule->items ? flow_headers[rule->item[i].header].bytes : 0;

		rte_flow_conv(RTE_FLOW_CONV_OP_ITEM_NAME, name, sizeof(name),
			      (const void *)(uintptr_t)item->type, &error);
		fprintf(to, "%s", name);
		say_bytes(to, "spec", item->spec, bytes);
		say_bytes(to, "last", item->last, bytes);
		say_bytes(to, "mask", item->mask, bytes);
		fprintf(to, "\n");
		if (item->type == RTE_FLOW_ITEM_TYPE_END)
			break;
	}
	for (;; action++) {
		rte_flow_conv(RTE_FLOW_CONV_OP_ACTION_NAME, name, sizeof(name),
			      (const void *)(uintptr_t)action->type, &error);
		fprintf(to, "%s", name);
		if (action->type == RTE_FLOW_ACTION_TYPE_MARK)
			fprintf(to, " %u", ((const struct rte_flow_action_mark *)action->conf)->id);
		if (action->type == RTE_FLOW_ACTION_TYPE_COUNT && action->conf)
			fprintf(to, " by counter %u",
				((const struct rte_flow_action_count *)action->conf)->id);
		if (action->type == RTE_FLOW_ACTION_TYPE_QUEUE)
			fprintf(to, " %u",
				((const struct rte_flow_action_queue *)action->conf)->index);
		fprintf(to, "\n");
		if (action->type == RTE_FLOW_ACTION_TYPE_END)
			break;
	}
	fclose(to);
	return 0;
}

#endif
