/* SPDX-License-Identifier: BSD-2-Clause */
/* dashboard.h - the files of the page at /, which tarnd has in itself */
#ifndef TARN_DAEMON_DASHBOARD_H
#define TARN_DAEMON_DASHBOARD_H

#include <stddef.h>

struct dashboard_file {
	const char *path, *type;
	const unsigned char *bytes;
	const size_t *length;
};

/* Lines of the head that each of them is sent with: what a browser may do with the page. */
#define DASHBOARD_HEADERS                                                                                    \
	"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
	"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "                          \
	"require-trusted-types-for 'script'; trusted-types 'none'\r\n"                                           \
	"Cross-Origin-Opener-Policy: same-origin\r\n"                                                            \
	"Cross-Origin-Resource-Policy: same-origin\r\n"                                                          \
	"Referrer-Policy: no-referrer\r\n"                                                                       \
	"X-Frame-Options: DENY\r\n"

/* The file at this path, which stays for ever; NULL: there is none. Any thread. */
const struct dashboard_file *dashboard_find(const char *path);

/* Made by embed.sh of the files of the same names. */
extern const unsigned char dashboard_html[], dashboard_css[], dashboard_js[], dashboard_elements_js[],
	dashboard_latency_js[], dashboard_cluster_js[], dashboard_svg[];
extern const size_t dashboard_html_bytes, dashboard_css_bytes, dashboard_js_bytes, dashboard_elements_js_bytes,
	dashboard_latency_js_bytes, dashboard_cluster_js_bytes, dashboard_svg_bytes;

#endif
