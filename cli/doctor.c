/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.c - `tarn doctor`: why does RDMA not work, or not well?
 *
 * Looks at this machine (doctor-device.c and on) and, with --peer, at a connection to a daemon
 * (doctor-peer.c). Changes nothing on the machine. The command's thread. Next to read: doctor.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "doctor.h"
#include "text.h"
#include "uri.h"
#include "verbs.h"

#define ROUNDS_DEFAULT 10000u
#define ROUNDS_MAX     100000000u

enum { DOCTOR_PEER, DOCTOR_ROUNDS };

static const struct option_spec doctor_options[] = {
	[DOCTOR_PEER] = {"peer", 0, "URI", "connect to this pool, too, and test the connection"},
	[DOCTOR_ROUNDS] = {"rounds", 0, "N", "of each test of the connection (10000)"},
	{0},
};

/* Is it shared memory, or a host? 0, or the code of a URI that is wrong. */
static int parse_peer(const char *text, bool *ret_local)
{
	struct uri *uri = malloc(sizeof(*uri));
	int ret = uri != NULL ? uri_parse(text, uri) : -ENOMEM;

	if (ret == 0)
		*ret_local = uri->host[0] == '\0';
	free(uri);
	return ret;
}

static void init(struct doctor *doctor)
{
	const char *root = getenv(DOCTOR_ROOT_VARIABLE);

	if (root == NULL || *root == '\0')
		doctor_init(doctor, "", &doctor_ask_host);
	else
		doctor_init(doctor, root, &doctor_ask_tree);
}

static int run_doctor(struct cli *cli, const struct arguments *args)
{
	const char *peer = args->own.values[DOCTOR_PEER];
	uint64_t rounds = ROUNDS_DEFAULT;
	struct doctor doctor;
	bool local = false;
	int status = 0;

	if (args->own.values[DOCTOR_ROUNDS] != NULL &&
	    (text_parse_u64(args->own.values[DOCTOR_ROUNDS], ROUNDS_MAX, &rounds) < 0 ||
	     rounds == 0))
		return cli_fail_usage(cli, "--rounds '%s' is not a number from 1 to %u",
				      args->own.values[DOCTOR_ROUNDS], ROUNDS_MAX);
	if (peer != NULL)
		status = parse_peer(peer, &local);
	if (status < 0)
		return cli_fail_library(cli, status, peer);

	init(&doctor);
	/* a pool that is reached through shared memory needs no RDMA */
	if (!local)
		doctor_check_local(&doctor);
	if (peer != NULL)
		status = doctor_check_peer(&doctor, cli, peer, (unsigned)rounds);
	doctor_report(&doctor, cli);
	if (status < 0)
		status = cli_fail_library(cli, status, peer);
	else if (doctor.failed)
		status = cli_fail_system(cli, -ENOMEM, NULL);
	else
		status = doctor_count(&doctor, DOCTOR_PROBLEM) > 0 ? CLI_UNHEALTHY : CLI_OK;
	doctor_free(&doctor);
	return status;
}

const struct verb verb_doctor = {
	.name = "doctor",
	.operands = "",
	.help = "find out why RDMA does not work, or not well",
	.details =
		"Looks at devices, ports, addresses, limits and counters of this machine, and says "
		"what is wrong and what helps. With --peer it also connects to a pool, twice, and "
		"tests what clients rely on: READ, WRITE, CAS and FAA, the fence, the order of "
		"requests; and measures them. The pool's keys are not touched. A peer on this "
		"host (tarn:PATH) needs no RDMA: then only the connection is tested. The exit "
		"code is 6 if something would stop RDMA from working.",
	.options = doctor_options,
	.run = run_doctor,
};
