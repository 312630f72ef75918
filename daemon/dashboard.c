/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which files the dashboard has, and where. Main thread; nothing changes. The files hold no data: dashboard.js asks
 * for that in the browser. Next to read: http-answer.c, which sends them, and dashboard.js.
 */
#include <string.h>

#include "dashboard.h"

static const struct dashboard_file files[] = {
	{"/", "text/html; charset=utf-8", dashboard_html, &dashboard_html_bytes},
	{"/dashboard.css", "text/css; charset=utf-8", dashboard_css, &dashboard_css_bytes},
	{"/dashboard.js", "text/javascript; charset=utf-8", dashboard_js, &dashboard_js_bytes},
	{"/dashboard-elements.js", "text/javascript; charset=utf-8", dashboard_elements_js, &dashboard_elements_js_bytes},
	{"/dashboard-latency.js", "text/javascript; charset=utf-8", dashboard_latency_js, &dashboard_latency_js_bytes},
	{"/dashboard-cluster.js", "text/javascript; charset=utf-8", dashboard_cluster_js, &dashboard_cluster_js_bytes},
	{"/dashboard.svg", "image/svg+xml", dashboard_svg, &dashboard_svg_bytes},
};

const struct dashboard_file *dashboard_find(const char *path)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (strcmp(files[i].path, path) == 0)
			return &files[i];
	return NULL;
}
