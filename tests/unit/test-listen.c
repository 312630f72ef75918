/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an RDMA listener decides without a device: who comes in, waits or is refused (admission.c);
 * whose atomics a pool has, on which NUMA node it lies, and into which pieces its memory is cut
 * (place.c).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "admission.h"
#include "config.h"
#include "err.h"
#include "place.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- admission ---- */

static void address_set(struct admission_entry *entry, uint8_t host)
{
	memset(entry, 0, sizeof(*entry));
	entry->address[10] = entry->address[11] = 0xff;
	entry->address[15] = host;
}

static int arrive(struct admission *admission, struct admission_entry *entry, uint8_t host,
		  struct admission_refusal *ret_refusal)
{
	struct admission_refusal refusal = {0};
	int rc;

	address_set(entry, host);
	rc = admission_arrive(admission, entry, &refusal);
	*ret_refusal = refusal;
	return rc;
}

static void test_order(void **state)
{
	const struct admission_limits limits = {
		.handshakes = 2, .waiting = 3, .connections = 100, .per_address = 100};
	struct admission_entry entries[6];
	struct admission_refusal refusal;
	struct admission admission;

	(void)state;
	admission_init(&admission, &limits);
	for (int i = 0; i < 5; i++)
		assert_int_equal(arrive(&admission, &entries[i], (uint8_t)i, &refusal), i < 2);
	assert_int_equal(arrive(&admission, &entries[5], 5, &refusal), -EBUSY);
	assert_int_equal(refusal.reason, WIRE_REASON_BUSY);
	assert_true(refusal.retry_after_ms > 0);
	assert_int_equal(admission.waiting, 3);
	assert_int_equal(admission.connections, 5);
	assert_null(admission_next(&admission));

	admission_done(&admission, &entries[1]);
	assert_ptr_equal(admission_next(&admission), &entries[2]);
	assert_null(admission_next(&admission));
	admission_leave(&admission, &entries[3]); /* has given up while it waited */
	admission_leave(&admission, &entries[0]); /* and one in its handshake */
	assert_ptr_equal(admission_next(&admission), &entries[4]);
	assert_null(admission_next(&admission));
	assert_int_equal(admission.waiting, 0);
	assert_int_equal(admission.handshakes, 2);
	assert_int_equal(admission.connections, 3);
}

/* Nobody overtakes who waits, also when a handshake would be free. */
static void test_no_overtaking(void **state)
{
	const struct admission_limits limits = {
		.handshakes = 1, .waiting = 9, .connections = 100, .per_address = 100};
	struct admission_entry entries[3];
	struct admission_refusal refusal;
	struct admission admission;

	(void)state;
	admission_init(&admission, &limits);
	assert_int_equal(arrive(&admission, &entries[0], 1, &refusal), 1);
	assert_int_equal(arrive(&admission, &entries[1], 1, &refusal), 0);
	admission_done(&admission, &entries[0]);
	assert_int_equal(arrive(&admission, &entries[2], 1, &refusal), 0);
	assert_ptr_equal(admission_next(&admission), &entries[1]);
}

/* A host whose handshakes never end keeps nobody else out, and not for long its own. */
static void test_share(void **state)
{
	const struct admission_limits limits = {
		.handshakes = 8, .waiting = 10, .connections = 100, .per_address = 100};
	struct admission_entry bad[8], good, more;
	struct admission_refusal refusal;
	struct admission admission;

	(void)state;
	admission_init(&admission, &limits);
	for (int i = 0; i < 7; i++)
		assert_int_equal(arrive(&admission, &bad[i], 1, &refusal), i < 2);
	assert_int_equal(arrive(&admission, &bad[7], 1, &refusal), -EBUSY); /* half of the queue */
	assert_int_equal(refusal.reason, WIRE_REASON_BUSY);
	assert_null(admission_next(&admission));
	assert_int_equal(arrive(&admission, &good, 2, &refusal), 1);
	assert_int_equal(arrive(&admission, &more, 3, &refusal), 1);
	admission_leave(&admission, &bad[0]);
	assert_ptr_equal(admission_next(&admission), &bad[2]);
	assert_null(admission_next(&admission));
}

static void test_storm(void **state)
{
	const struct admission_limits limits = {
		.handshakes = 32, .waiting = 468, .connections = 1000, .per_address = 1000};
	static struct admission_entry entries[500];
	struct admission_refusal refusal;
	struct admission admission;

	(void)state;
	admission_init(&admission, &limits);
	for (unsigned i = 0; i < COUNT(entries); i++)
		assert_true(arrive(&admission, &entries[i], (uint8_t)i, &refusal) >= 0);
	for (unsigned i = 0; i < COUNT(entries); i++) {
		assert_true(admission.handshakes <= limits.handshakes);
		admission_done(&admission, &entries[i]);
		if (i + limits.handshakes < COUNT(entries))
			assert_ptr_equal(admission_next(&admission),
					 &entries[i + limits.handshakes]);
	}
	assert_int_equal(admission.handshakes, 0);
	assert_int_equal(admission.connections, COUNT(entries));
	for (unsigned i = 0; i < COUNT(entries); i++)
		admission_leave(&admission, &entries[i]);
	assert_int_equal(admission.connections, 0);
}

static void test_limits(void **state)
{
	const struct admission_limits limits = {
		.handshakes = 9, .waiting = 9, .connections = 4, .per_address = 2};
	struct admission_entry entries[6];
	struct admission_refusal refusal;
	struct admission admission;

	(void)state;
	admission_init(&admission, &limits);
	assert_int_equal(arrive(&admission, &entries[0], 1, &refusal), 1);
	assert_int_equal(arrive(&admission, &entries[1], 1, &refusal), 1);
	assert_int_equal(arrive(&admission, &entries[2], 1, &refusal), -EBUSY);
	assert_int_equal(refusal.reason, WIRE_REASON_ADDRESS);
	assert_int_equal(refusal.detail, 2);
	assert_true(refusal.retry_after_ms > 0);
	assert_int_equal(arrive(&admission, &entries[2], 2, &refusal), 1);
	assert_int_equal(arrive(&admission, &entries[3], 3, &refusal), 1);
	assert_int_equal(arrive(&admission, &entries[4], 4, &refusal), -EBUSY);
	assert_int_equal(refusal.reason, WIRE_REASON_CLIENTS);
	assert_int_equal(refusal.detail, 4);
	/* who was refused is nobody: to leave changes nothing */
	admission_leave(&admission, &entries[4]);
	assert_int_equal(admission.connections, 4);
	admission_leave(&admission, &entries[0]);
	admission_leave(&admission, &entries[0]);
	assert_int_equal(admission.connections, 3);
	assert_int_equal(arrive(&admission, &entries[4], 1, &refusal), 1);
}

/* ---- the place of a pool ---- */

static struct config *config_of(const char *text)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

#define LISTENERS                                                                           \
	"[listen local]\npath = /l\n[listen a]\naddress = 10.0.0.1\n[listen b]\naddress = " \
	"10.0.0.2\n"
#define POOL "[pool main]\nsize = 8M\nallow_unauthenticated = yes\n"

static const struct verbs_device mlx = {.name = "mlx5_0", .atomics = true, .numa_node = 1},
				 other = {.name = "mlx5_1", .atomics = true, .numa_node = 0},
				 plain = {.name = "efa0", .atomics = false, .numa_node = -1},
				 siw = {.name = "siw0", .iwarp = true, .numa_node = -1};

struct domain_case {
	const char *more; /* of the pool */
	const struct verbs_device *a, *b;
	int atomics; /* -1: refused */
	const char *why;
};

static void test_domain(void **state)
{
	static const struct domain_case cases[] = {
		{"", &mlx, &mlx, LAYOUT_ATOMICS_CPU, "unix socket of [listen local]"},
		{"listen = local\n", &mlx, &mlx, LAYOUT_ATOMICS_CPU, "no RDMA listener"},
		{"listen = a\n", &mlx, &other, LAYOUT_ATOMICS_NIC, "mlx5_0"},
		{"listen = a, b\n", &mlx, &mlx, LAYOUT_ATOMICS_NIC, "mlx5_0"},
		{"listen = a, b\n", &mlx, &other, LAYOUT_ATOMICS_CPU, "mlx5_0 and mlx5_1"},
		{"listen = a\n", &plain, NULL, LAYOUT_ATOMICS_CPU, "efa0 has no atomics"},
		{"listen = a\n", &siw, NULL, LAYOUT_ATOMICS_CPU, "iWARP"},
		{"listen = a\natomics = cpu\n", &mlx, NULL, LAYOUT_ATOMICS_CPU, "is set"},
		{"listen = a\natomics = nic\n", &mlx, NULL, LAYOUT_ATOMICS_NIC, "mlx5_0"},
		{"listen = a, b\natomics = nic\n", &mlx, &other, -1, "mlx5_0 and mlx5_1"},
		{"listen = a\natomics = nic\n", &siw, NULL, -1, "siw0 has no atomics"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct domain_case *c = &cases[i];
		const struct verbs_device *devices[3] = {NULL, c->a, c->b};
		struct place place = {0};
		struct config *config;
		char text[512];
		int rc;

		snprintf(text, sizeof(text), LISTENERS POOL "%s", c->more);
		config = config_of(text);
		rc = place_decide(config, &config->pools[0], devices, &place);
		if ((rc < 0) != (c->atomics < 0) ||
		    (rc == 0 && (int)place.pool.atomics != c->atomics))
			fail_msg("case %zu: rc %d, atomics %d", i, rc, (int)place.pool.atomics);
		if (!strstr(rc < 0 ? err_text() : place.pool.why, c->why))
			fail_msg("case %zu: %s", i, rc < 0 ? err_text() : place.pool.why);
		if (rc < 0)
			assert_non_null(strstr(err_text(), "choose auto or cpu"));
		config_free(config);
	}
}

struct node_case {
	const char *more;
	const struct verbs_device *a, *b;
	int node;
	bool warning;
};

static void test_numa_node(void **state)
{
	static const struct node_case cases[] = {
		{"", &mlx, &mlx, 1, false},
		{"", &mlx, &other, -1, false},
		{"", &siw, &siw, -1, false},
		{"listen = b\n", &mlx, &other, 0, false},
		{"numa_node = 1\n", &mlx, &mlx, 1, false},
		{"numa_node = 0\n", &mlx, &mlx, 0, true},
		{"numa_node = 5\n", &siw, &siw, 5, false},
		{"listen = local\n", &mlx, &mlx, -1, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct node_case *c = &cases[i];
		const struct verbs_device *devices[3] = {NULL, c->a, c->b};
		struct place place = {0};
		struct config *config;
		char text[512];

		snprintf(text, sizeof(text), LISTENERS POOL "%s", c->more);
		config = config_of(text);
		assert_int_equal(place_decide(config, &config->pools[0], devices, &place), 0);
		if (place.pool.numa_node != c->node || !!place.warning[0] != c->warning)
			fail_msg("case %zu: node %d, warning '%s'", i, place.pool.numa_node,
				 place.warning);
		config_free(config);
	}
}

static void test_pieces(void **state)
{
	const uint64_t mib = 1ull << 20;

	(void)state;
	/* no limit at all */
	assert_int_equal(place_piece_bytes(UINT64_MAX, 0), UINT64_MAX / (2 * mib) * (2 * mib));
	assert_int_equal(place_pieces(8 * mib, place_piece_bytes(UINT64_MAX, 0)), 1);
	/* the device's limit, cut to whole steps */
	assert_int_equal(place_piece_bytes(2048 * mib - 1, 0), 2046 * mib);
	assert_int_equal(place_pieces(4096 * mib, 2046 * mib), 3);
	/* the lower one of setting and device */
	assert_int_equal(place_piece_bytes(64 * mib, 16 * mib), 16 * mib);
	assert_int_equal(place_piece_bytes(16 * mib, 64 * mib), 16 * mib);
	assert_int_equal(place_pieces(64 * mib, 16 * mib), 4);
	assert_int_equal(place_pieces(64 * mib + 1, 16 * mib), 5);
	/* less than a step: of the setting it becomes one, of the device it can not be */
	assert_int_equal(place_piece_bytes(UINT64_MAX, 4096), 2 * mib);
	assert_int_equal(place_piece_bytes(mib, 0), 0);
	assert_int_equal(place_piece_bytes(mib, 4096), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),     cmocka_unit_test(test_no_overtaking),
		cmocka_unit_test(test_share),     cmocka_unit_test(test_storm),
		cmocka_unit_test(test_limits),    cmocka_unit_test(test_domain),
		cmocka_unit_test(test_numa_node), cmocka_unit_test(test_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
