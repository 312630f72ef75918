/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plot-file.c - --plot=FILE: latency over percentile as SVG, or as a script of gnuplot with its data
 *
 * After the run, in main(). Both axes are logarithmic: x is 1/(1-percentile), so that 99, 99.9 and
 * 99.99 percent stand at equal distances. A line's last point is the largest latency, where 1 in
 * all of them is left. Next: report-hist.c, where the numbers come from.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "err.h"

/* Of the picture; the legend stands to the right of the frame. */
#define WIDTH  820.0
#define HEIGHT 460.0
#define LEFT   80.0
#define RIGHT  640.0
#define TOP    40.0
#define BOTTOM 410.0

/* Powers of ten that the axes reach over. */
struct axes {
	double x_to, y_from, y_to;
};

/* Okabe and Ito's colours, which colour-blind people can tell apart. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
				      "#e69f00", "#56b4e9", "#000000", "#999999"};
#define COLOURS (sizeof(colours) / sizeof(colours[0]))

/* Of how many values one is larger; never more than there are. */
static double inverse(const struct hist *hist, const struct hist_line *line)
{
	double all = (double)hist_count(hist), left = 100 - line->percent;

	return left * all > 100 ? 100 / left : all;
}

static struct axes axes_make(const struct bench *bench)
{
	struct axes axes = {.x_to = 1, .y_from = 18, .y_to = 1};
	struct hist hist;

	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist) == 0)
			continue;
		axes.x_to = fmax(axes.x_to, ceil(log10((double)hist_count(&hist))));
		axes.y_to = fmax(axes.y_to, ceil(log10((double)hist_max(&hist) + 1)));
		axes.y_from =
			fmin(axes.y_from, floor(log10((double)hist_percentile(&hist, 0) + 1)));
	}
	axes.y_from = fmin(axes.y_from, axes.y_to - 1);
	return axes;
}

static double x_of(const struct axes *axes, double power)
{
	return LEFT + (RIGHT - LEFT) * power / axes->x_to;
}

static double y_of(const struct axes *axes, double power)
{
	return BOTTOM - (BOTTOM - TOP) * (power - axes->y_from) / (axes->y_to - axes->y_from);
}

/* ---- SVG ------------------------------------------------------------------------------------- */

static void svg_grid(FILE *file, const struct axes *axes)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};

	for (int i = 0; i <= (int)axes->x_to; i++) {
		double x = x_of(axes, i);

		fprintf(file,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*f%%</text>\n",
			x, TOP, x, BOTTOM, x, BOTTOM + 18, i > 2 ? i - 2 : 0,
			100 - 100 * pow(10, -i));
	}
	for (int i = (int)axes->y_from; i <= (int)axes->y_to; i++) {
		int unit = i / 3 < 3 ? i / 3 : 3;
		double y = y_of(axes, i);

		fprintf(file,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.0f %s</text>\n",
			LEFT, y, RIGHT, y, LEFT - 8, y + 4, pow(10, i - 3 * unit), units[unit]);
	}
}

static void svg_line(FILE *file, const struct axes *axes, const char *name, const struct hist *hist,
		     unsigned int index)
{
	const char *colour = colours[index % COLOURS];
	struct hist_line line = {.percent = -1};
	double y = TOP + 10 + 18 * index;

	fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
		colour);
	while (hist_next_line(hist, &line))
		fprintf(file, "%.1f,%.1f ", x_of(axes, log10(inverse(hist, &line))),
			y_of(axes, log10(fmax((double)line.value_ns, 1))));
	fprintf(file,
		"\"/>\n<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
		"stroke-width=\"3\"/>\n<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
		RIGHT + 12, y, RIGHT + 32, y, colour, RIGHT + 38, y + 4, name);
}

static void svg_head(FILE *file, const struct axes *axes)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"%.1f\" y=\"24\" font-size=\"15\">tarn-bench: latency by "
		"percentile</text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	svg_grid(file, axes);
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

static void gp_data(FILE *file, const struct hist *hist, unsigned int index)
{
	struct hist_line line = {.percent = -1};

	fprintf(file, "$data%u << END\n", index);
	while (hist_next_line(hist, &line))
		fprintf(file, "%.2f %llu\n", inverse(hist, &line),
			(unsigned long long)line.value_ns);
	fprintf(file, "END\n");
}

static void gp_head(FILE *file)
{
	fprintf(file, "# tarn-bench: latency by percentile; show it with gnuplot -p\n"
		      "set logscale xy\n"
		      "set xlabel '1/(1-percentile)'\n"
		      "set ylabel 'latency, ns'\n"
		      "set key left top\n"
		      "set grid\n");
}

/* Once all data stands above it. */
static void gp_line(FILE *file, const char *name, unsigned int index)
{
	fprintf(file, "%s $data%u using 1:2 with lines title '%s'", index ? ", \\\n" : "plot",
		index, name);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void draw_svg(FILE *file, const struct bench *bench)
{
	struct axes axes = axes_make(bench);
	char name[BENCH_NAME_MAX];
	unsigned int index = 0;
	struct hist hist;

	svg_head(file, &axes);
	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			svg_line(file, &axes, report_name(bench, kind, name), &hist, index++);
	}
	fprintf(file, "</svg>\n");
}

static void draw_gp(FILE *file, const struct bench *bench)
{
	unsigned int index = 0, titles = 0;
	char name[BENCH_NAME_MAX];
	struct hist hist;

	gp_head(file);
	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			gp_data(file, &hist, index++);
	}
	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			gp_line(file, report_name(bench, kind, name), titles++);
	}
	fputc('\n', file);
}

int plot_write(const struct bench *bench)
{
	const char *path = bench->arguments->plot_file;
	FILE *file = fopen(path, "we");
	bool bad;

	if (!file)
		return err_set(-errno, "--plot=%s: cannot be written: %s", path, strerror(errno));
	if (strcmp(path + strlen(path) - 3, ".gp") == 0)
		draw_gp(file, bench);
	else
		draw_svg(file, bench);
	bad = ferror(file) != 0;
	if (fclose(file) != 0 || bad)
		return err_set(-EIO, "--plot=%s: cannot be written: %s", path, strerror(errno));
	return 0;
}
