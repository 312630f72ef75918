/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.h - what the parts of `tarn doctor` share: findings, the tree that they look at, the checks
 *
 * A check looks at one thing and says what it has found as findings: an id that stays the same for
 * programs, a level, the subject (a device and its port, a network device, "host"), a sentence with
 * numbers, and a remedy. Checks read the kernel's files through doctor_read() and its like, beneath
 * a root of their own: a test gives them a tree that it has made. What is in no file comes through
 * the functions of struct doctor_ask, which a test replaces. Nothing here changes anything.
 */
#pragma once

#include <infiniband/verbs.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cli.h"

/* A directory that stands for / : for tests. Not in the help text. */
#define DOCTOR_ROOT_VARIABLE "TARN_DOCTOR_ROOT"

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_NOTE,
	DOCTOR_WARNING,
	/* stops this port: a warning if another port can be used, else a problem */
	DOCTOR_BLOCKED,
	DOCTOR_PROBLEM, /* would stop RDMA from working */
};

struct doctor_finding {
	STAILQ_ENTRY(doctor_finding) next;
	const char *id;
	enum doctor_level level;
	char subject[64];
	char *text, *remedy; /* remedy: NULL when nothing is to be done */
	json_t *values;      /* the numbers of the text */
};

/* What a device can do; of libibverbs. */
struct doctor_caps {
	int atomic_cap; /* enum ibv_atomic_cap */
	int max_qp_rd_atom, max_qp_init_rd_atom;
	int max_qp, max_cq, max_mr, max_srq, max_qp_wr;
	uint64_t max_mr_size;
	int active_mtu, max_mtu; /* of the port, in bytes; 0: unknown */
	char firmware[64];
};

#define DOCTOR_NETDEV_BYTES 16

struct doctor_address {
	char netdev[DOCTOR_NETDEV_BYTES];
	struct in6_addr ip; /* IPv4 as ::ffff:a.b.c.d */
};

/* A counter of a network device, as ethtool -S shows it. */
struct doctor_stat {
	char name[36];
	uint64_t count;
};

#define DOCTOR_STATS 4096

struct doctor;

/* Each returns 0 or -errno. */
struct doctor_ask {
	/* Can this user open a device file for reading and writing? */
	int (*open)(struct doctor *doctor, const char *path);
	/* NULL: not asked */
	int (*caps)(struct doctor *doctor, const char *device, unsigned port,
		    struct doctor_caps *ret_caps);
	/* The addresses of this host; ret_addresses has room for max. A count. */
	int (*addresses)(struct doctor *doctor, struct doctor_address *ret_addresses, int max);
	/* The counters of a network device; ret_stats has room for max. A count. */
	int (*stats)(struct doctor *doctor, const char *netdev, struct doctor_stat *ret_stats,
		     int max);
	/* enum ibv_fork_status; NULL: not asked */
	int (*fork)(struct doctor *doctor);
};

#define DOCTOR_ADDRESSES 256

struct doctor {
	const char *root; /* "" or a directory that stands for / */
	const struct doctor_ask *ask;
	STAILQ_HEAD(, doctor_finding) findings;
	struct doctor_address addresses[DOCTOR_ADDRESSES];
	int naddresses;
	unsigned devices, ports, usable; /* found; usable: ports that nothing stops */
	bool failed;                     /* no memory: a finding is missing */
};

/* A port, and what the checks have learned of it so far. */
struct doctor_port {
	const char *device;
	unsigned number;
	char subject[64];                 /* "mlx5_0/1" */
	char directory[300];              /* /sys/class/infiniband/mlx5_0/ports/1 */
	char netdev[DOCTOR_NETDEV_BYTES]; /* "": unknown */
	bool iwarp, ethernet, software;   /* software: no hardware behind it (rxe, siw) */
	bool blocked;
	bool have_caps;
	struct doctor_caps caps;
};

/* ---- findings, doctor-report.c --------------------------------------------------------------- */

void doctor_init(struct doctor *doctor, const char *root, const struct doctor_ask *ask);
void doctor_free(struct doctor *doctor);

/*
 * Adds a finding. Never NULL: without memory it is one that doctor->failed tells of and that is
 * thrown away.
 */
struct doctor_finding *doctor_say(struct doctor *doctor, const char *id, enum doctor_level level,
				  const char *subject, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
void doctor_remedy(struct doctor_finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes value over. */
void doctor_value(struct doctor_finding *finding, const char *name, json_t *value);
/* As doctor_say() with DOCTOR_BLOCKED; the port is not usable. */
struct doctor_finding *doctor_block(struct doctor *doctor, const char *id, struct doctor_port *port,
				    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* How many findings have this level. DOCTOR_BLOCKED counts as what it stands for. */
unsigned doctor_count(const struct doctor *doctor, enum doctor_level level);
enum doctor_level doctor_level(const struct doctor *doctor, const struct doctor_finding *finding);
const char *doctor_level_name(enum doctor_level level);
const struct doctor_finding *doctor_find(const struct doctor *doctor, const char *id,
					 const char *subject);
/* Writes all: a list by subject, or JSON. */
void doctor_report(struct doctor *doctor, struct cli *cli);

/* ---- the kernel's files, doctor-read.c ------------------------------------------------------- */

#define DOCTOR_LINE 4096

/*
 * A file's first bytes, cut at DOCTOR_LINE, without the white space at its end. The length, or
 * -errno.
 */
int doctor_read(const struct doctor *doctor, char ret_text[DOCTOR_LINE], const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A file that is one number. 0 or -errno. */
int doctor_number(const struct doctor *doctor, uint64_t *ret_number, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool doctor_exists(const struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

struct doctor_names {
	char **names;
	size_t count;
};
/* What is in a directory, sorted, without hidden files; empty if there is none. */
struct doctor_names doctor_list(struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_names_free(struct doctor_names *names);

/* The real machine. */
extern const struct doctor_ask doctor_ask_host;
/*
 * A tree alone: no device is opened; addresses are in the file /addresses ("NETDEV ADDRESS"), the
 * network device's counters in /ethtool/NETDEV ("NAME: COUNT").
 */
extern const struct doctor_ask doctor_ask_tree;

/* ---- checks ---------------------------------------------------------------------------------- */

/* Everything of this machine. */
void doctor_check_local(struct doctor *doctor);

void doctor_check_devices(struct doctor *doctor);                            /* doctor-device.c */
void doctor_check_gids(struct doctor *doctor, struct doctor_port *port);     /* doctor-gid.c */
void doctor_check_link(struct doctor *doctor, struct doctor_port *port);     /* doctor-link.c */
void doctor_check_caps(struct doctor *doctor, struct doctor_port *port);     /* doctor-caps.c */
void doctor_check_counters(struct doctor *doctor, struct doctor_port *port); /* doctor-counters.c */
void doctor_check_host(struct doctor *doctor);                               /* doctor-host.c */

/*
 * Connects twice and tests. 0; or the code of a URI that is wrong: the caller complains. What else
 * goes wrong is a finding.
 */
int doctor_check_peer(struct doctor *doctor, struct cli *cli, const char *uri, unsigned rounds);
