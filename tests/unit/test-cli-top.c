/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli/top.h: rates between two answers are right or unknown, and never below 0; what is drawn is as
 * wide and as high as the screen, and has no control character that tarn has not made itself.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/top.h"

#define SECOND 1000000000ull

/* ' stands for ", so that it can be read. */
static json_t *parse(const char *text)
{
	char *copy = strdup(text);
	json_error_t error;
	json_t *value;

	assert_non_null(copy);
	for (char *s = copy; *s != '\0'; s++)
		if (*s == '\'')
			*s = '"';
	value = json_loads(copy, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (value == NULL)
		print_error("%s: %s\n", text, error.text);
	assert_non_null(value);
	free(copy);
	return value;
}

static struct top_answers answers(uint64_t seconds, const char *stats, const char *clients)
{
	return (struct top_answers){
		.stats = parse(stats),
		.clients = parse(clients),
		.events = parse("{'events':[]}"),
		.time_ns = seconds * SECOND,
		.time_ms = seconds * 1000,
	};
}

/* One daemon, one pool; the rest of its members as they come. */
static struct top_answers pool_answers(uint64_t seconds, int pid, const char *pool)
{
	char stats[4096];

	snprintf(stats, sizeof(stats),
		 "{'daemon':{'pid':%d,'started_ms':5,'ready':true,'version':'1','uptime_seconds':90061},"
		 "'process':{'cpu_seconds':%d},'devices':[],'pools':[%s]}",
		 pid, (int)seconds / 2, pool);
	return answers(seconds, stats, "{'clients':[]}");
}

static json_t *at(json_t *value, const char *path)
{
	char name[64];

	while (*path != '\0') {
		size_t n = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		value = json_is_array(value) ? json_array_get(value, (size_t)atoi(name))
					     : json_object_get(value, name);
		assert_non_null(value);
		path += n + (path[n] == '.');
	}
	return value;
}

static void assert_real(json_t *look, const char *path, double expected)
{
	json_t *value = at(look, path);

	if (!json_is_number(value))
		print_error("%s is no number\n", path);
	assert_true(json_is_number(value));
	assert_true(json_number_value(value) > expected - 1e-6);
	assert_true(json_number_value(value) < expected + 1e-6);
}

static void assert_unknown(json_t *look, const char *path)
{
	if (!json_is_null(at(look, path)))
		print_error("%s is not null\n", path);
	assert_true(json_is_null(at(look, path)));
}

static json_t *look_at(struct top_answers *before, struct top_answers *now)
{
	json_t *look = top_look(before, now, TOP_OPERATIONS, 100, 5);

	assert_non_null(look);
	if (before != NULL)
		top_answers_free(before);
	top_answers_free(now);
	return look;
}

/* ---- rates ---- */

#define POOL(gets, hits, epoch)                                                                       \
	"{'name':'main','bytes':1000,'epoch':" #epoch ",'epoch_ms':250,'memory':{'used_bytes':500},"  \
	"'operations':{'gets':" #gets ",'hits':" #hits ",'puts':40,'deletes':0,'adds':0,'errors':7,"  \
	"'get_latency_below_ns':{'p50':1024,'p99':4096}},'recycling':{'passes':3,'damaged':1},"       \
	"'index':{'damaged':2},'eviction':null}"

static void test_rates(void **state)
{
	struct top_answers before = pool_answers(10, 1, POOL(100, 90, 8)),
			   now = pool_answers(14, 1, POOL(500, 290, 24));
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_int_equal(json_integer_value(at(look, "interval_ms")), 4000);
	assert_true(json_is_false(at(look, "restarted")));
	assert_real(look, "pools.0.gets_per_second", 100);
	assert_real(look, "pools.0.puts_per_second", 0);
	assert_real(look, "pools.0.errors_per_second", 0);
	assert_real(look, "pools.0.hit_percent", 50);
	assert_real(look, "pools.0.used_bytes", 500);
	assert_real(look, "pools.0.get_latency_below_ns.p99", 4096);
	assert_real(look, "pools.0.keeper.epoch_per_second", 4);
	assert_real(look, "pools.0.keeper.damaged", 3);
	assert_true(json_is_false(at(look, "pools.0.keeper.stands")));
	assert_real(look, "daemon.cpu_percent", 50);
	/* of a pool that does not evict */
	assert_unknown(look, "pools.0.keeper.evicted_per_second");
	json_decref(look);
}

static void test_first_look(void **state)
{
	struct top_answers now = pool_answers(14, 1, POOL(500, 290, 24));
	json_t *look = look_at(NULL, &now);

	(void)state;
	assert_unknown(look, "interval_ms");
	assert_unknown(look, "pools.0.gets_per_second");
	assert_unknown(look, "pools.0.hit_percent");
	assert_unknown(look, "pools.0.keeper.stands");
	assert_unknown(look, "daemon.cpu_percent");
	json_decref(look);
}

/* Counters of the next daemon begin anew: that is no negative rate, and no large one. */
static void test_restart(void **state)
{
	struct top_answers before = pool_answers(10, 1, POOL(100, 90, 8)),
			   now = pool_answers(14, 2, POOL(500, 290, 24));
	json_t *look;

	(void)state;
	assert_true(top_restarted(&before, &now));
	assert_false(top_restarted(&now, &now));
	look = look_at(&before, &now);
	assert_true(json_is_true(at(look, "restarted")));
	assert_unknown(look, "interval_ms");
	assert_unknown(look, "pools.0.gets_per_second");
	assert_unknown(look, "daemon.cpu_percent");
	json_decref(look);
}

/* A pool whose file was replaced, a counter that was damaged: known to nobody, but never below 0. */
static void test_counter_goes_back(void **state)
{
	struct top_answers before = pool_answers(10, 1, POOL(100, 90, 8)),
			   now = pool_answers(12, 1, POOL(90, 95, 8));
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_unknown(look, "pools.0.gets_per_second");
	assert_unknown(look, "pools.0.hit_percent");
	assert_real(look, "pools.0.puts_per_second", 0);
	/* and the epoch has not moved for 8 of its times */
	assert_true(json_is_true(at(look, "pools.0.keeper.stands")));
	json_decref(look);
}

/* A report may come between the reads of hits and gets. */
static void test_more_hits_than_gets(void **state)
{
	struct top_answers before = pool_answers(10, 1, POOL(100, 90, 8)),
			   now = pool_answers(12, 1, POOL(110, 120, 16));
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_real(look, "pools.0.hit_percent", 100);
	json_decref(look);
}

static void test_no_time_between(void **state)
{
	struct top_answers before = pool_answers(10, 1, POOL(100, 90, 8)),
			   now = pool_answers(10, 1, POOL(110, 100, 8));
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_unknown(look, "pools.0.gets_per_second");
	assert_unknown(look, "pools.0.keeper.stands");
	json_decref(look);
}

static void test_new_pool(void **state)
{
	struct top_answers before = pool_answers(10, 1, "{'name':'other','operations':{'gets':1}}"),
			   now = pool_answers(12, 1, POOL(110, 100, 8));
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_unknown(look, "pools.0.gets_per_second");
	json_decref(look);
}

/* An answer of another version may lack anything. */
static void test_empty_answers(void **state)
{
	struct top_answers before = answers(1, "{}", "{}"), now = answers(2, "{}", "{}");
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_int_equal(json_array_size(at(look, "pools")), 0);
	assert_int_equal(json_array_size(at(look, "clients")), 0);
	json_decref(look);
}

/* ---- clients, devices, events ---- */

#define STATS "{'daemon':{'pid':1,'started_ms':5}}"
#define CLIENT(id, name, since, gets, puts)                                                       \
	"{'pool':'main','client_id':" #id ",'name':'" name "','connected_ms':" #since             \
	",'reporting':true,'operations':{'gets':" #gets ",'puts':" #puts ",'deletes':0,'adds':0}}"

static const char clients_before[] =
	"{'clients':[" CLIENT(1, "a", 5, 10, 0) "," CLIENT(2, "b", 5, 10, 5) "," CLIENT(
		3, "c", 5, 1000, 0) ",{'pool':'main','client_id':4,'name':'d','connected_ms':5,'operations':null}]}";
static const char clients_now[] =
	"{'clients':[" CLIENT(1, "a", 5, 20, 0) "," CLIENT(2, "b", 5, 10, 55) "," CLIENT(
		3, "c", 6, 9000, 0) "," CLIENT(4, "d", 5, 7000, 0) "]}";

static json_t *clients_look(enum top_sort sort, size_t max)
{
	struct top_answers before = answers(1, STATS, clients_before),
			   now = answers(3, STATS, clients_now);
	json_t *look = top_look(&before, &now, sort, max, 5);

	top_answers_free(&before);
	top_answers_free(&now);
	return look;
}

static void test_clients(void **state)
{
	json_t *look = clients_look(TOP_OPERATIONS, 100);

	(void)state;
	assert_int_equal(json_integer_value(at(look, "clients_connected")), 4);
	assert_string_equal(json_string_value(at(look, "sort")), "operations");
	assert_string_equal(json_string_value(at(look, "clients.0.name")), "b");
	assert_real(look, "clients.0.operations_per_second", 25);
	assert_real(look, "clients.0.puts_per_second", 25);
	assert_string_equal(json_string_value(at(look, "clients.1.name")), "a");
	/* c is another client with an old number; d has not reported before */
	assert_string_equal(json_string_value(at(look, "clients.2.name")), "c");
	assert_unknown(look, "clients.2.gets_per_second");
	assert_unknown(look, "clients.3.operations_per_second");
	json_decref(look);

	look = clients_look(TOP_GETS, 1);
	assert_int_equal(json_array_size(at(look, "clients")), 1);
	assert_int_equal(json_integer_value(at(look, "clients_connected")), 4);
	assert_string_equal(json_string_value(at(look, "clients.0.name")), "a");
	json_decref(look);
}

static void test_devices(void **state)
{
	struct top_answers before = answers(1, "{'daemon':{'pid':1,'started_ms':5},'devices':[{'name':'rxe0',"
					       "'messages':10,'counters':[{'name':'x','count':5},{'name':'y','count':5}]}]}",
					    "{}"),
			   now = answers(3, "{'daemon':{'pid':1,'started_ms':5},'devices':[{'name':'rxe0',"
					    "'messages':30,'counters':[{'name':'x','count':5},{'name':'y','count':11},"
					    "{'name':'new','count':9}]}]}",
					 "{}");
	json_t *look = look_at(&before, &now);

	(void)state;
	assert_real(look, "devices.0.messages_per_second", 10);
	assert_int_equal(json_array_size(at(look, "devices.0.counters_growing")), 1);
	assert_string_equal(json_string_value(at(look, "devices.0.counters_growing.0.name")), "y");
	assert_real(look, "devices.0.counters_growing.0.per_second", 3);
	json_decref(look);
}

static void test_events(void **state)
{
	struct top_answers now = answers(3, STATS, "{}");
	json_t *look;

	(void)state;
	json_decref(now.events);
	now.events = parse("{'events':[{'number':1},{'number':2},{'number':3}]}");
	look = top_look(NULL, &now, TOP_NAME, 5, 2);
	assert_int_equal(json_array_size(at(look, "events")), 2);
	assert_int_equal(json_integer_value(at(look, "events.0.number")), 3);
	json_decref(look);
	top_answers_free(&now);
}

/* ---- what is drawn ---- */

static const char hostile_stats[] =
	"{'daemon':{'pid':1,'started_ms':5,'ready':true,'version':'\\u001b[2J','uptime_seconds':5},"
	"'devices':[{'name':'\\u001b]0;x\\u0007','port_state':'PORT_ACTIVE','counters':[]}],"
	"'pools':[{'name':'\\u001b[31mred\\nline','mode':'store\\u009b1m','bytes':1000,"
	"'memory':{'used_bytes':999},'sweep':{'state':'\\u202ereversed'}}]}";
static json_t *hostile_look(void)
{
	struct top_answers now = answers(3, hostile_stats, "{}");
	json_t *look;

	json_decref(now.clients);
	now.clients = json_pack("{s:[{s:s, s:i, s:s, s:s}]}", "clients", "pool", "\033c", "client_id", 1,
				"name", "\r\t\x7f\xc2\x85x", "transport", "\033");
	assert_non_null(now.clients);
	json_decref(now.events);
	now.events = parse("{'events':[{'number':1,'time_ms':5,'kind':'\\u001b','subject':'\\u0008','text':'\\u001b[H'}]}");
	look = top_look(NULL, &now, TOP_OPERATIONS, 5, 5);
	top_answers_free(&now);
	return look;
}

static void draw(json_t *look, struct top_screen *screen, bool keys)
{
	struct top_view view = {.keys = keys, .notice = "\033[5mblink", .interval = 2};

	top_view_draw(&view, look, screen);
	assert_false(screen->failed);
}

static void test_hostile_names(void **state)
{
	struct top_screen screen = {.width = 300};
	json_t *look = hostile_look();

	(void)state;
	draw(look, &screen, false);
	for (size_t i = 0; i < screen.n; i++) {
		unsigned char c = (unsigned char)screen.text[i];

		assert_true(c == '\n' || (c >= 0x20 && c != 0x7f));
		/* no C1 control: those are c2 80 to c2 9f in UTF-8 */
		assert_false(c == 0xc2 && (unsigned char)screen.text[i + 1] < 0xa0);
	}
	assert_non_null(strstr(screen.text, "red\\nline"));
	assert_ptr_equal(strstr(screen.text, "\u202e"), NULL);
	json_decref(look);
	top_screen_free(&screen);
}

/* Every size of the screen: no line is too wide, none too many. */
static void test_sizes(void **state)
{
	json_t *look = hostile_look();

	(void)state;
	for (size_t width = 1; width < 200; width += 7)
		for (size_t height = 1; height < 30; height++) {
			struct top_screen screen = {.width = width, .height = height, .escapes = true};
			size_t lines = 1, column = 0;

			draw(look, &screen, true);
			for (const char *s = screen.text; *s != '\0'; s++) {
				if (strncmp(s, "\033[K", 3) == 0) {
					s += 2;
				} else if (strncmp(s, "\r\n", 2) == 0) {
					s++;
					lines++;
					column = 0;
				} else {
					assert_true((unsigned char)*s >= 0x20);
					column++;
					assert_true(column <= width);
				}
			}
			assert_true(lines <= height);
			/* what can be pressed is always at the bottom */
			assert_true(height < 12 || lines == height);
			top_screen_free(&screen);
		}
	json_decref(look);
}

static void test_columns(void **state)
{
	static const struct top_column columns[] = {
		{"name", true, 0}, {"rare", false, 2}, {"often", false, 1}, {NULL, false, 0}};
	static const char *const cells[] = {"ab", "1", "22"};
	static const struct {
		size_t width;
		const char *text;
	} cases[] = {
		{80, "name rare often\nab      1    22\n"},
		{15, "name rare often\nab      1    22\n"},
		{14, "name often\nab      22\n"},
		{9, "name\nab\n"},
		{3, "nam\nab\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct top_table table = {.columns = columns};
		struct top_screen screen = {.width = cases[i].width};

		top_table_row(&table, TOP_BAD, cells);
		top_table_draw(&table, &screen, 10);
		assert_string_equal(screen.text, cases[i].text);
		top_screen_free(&screen);
	}
}

static void test_colour(void **state)
{
	struct top_screen screen = {.width = 80, .escapes = true, .colour = true};

	(void)state;
	top_screen_line(&screen, TOP_BAD, "x");
	assert_string_equal(screen.text, "\033[K\033[1;31mx\033[0m");
	top_screen_clear(&screen);
	screen.colour = false;
	top_screen_line(&screen, TOP_BAD, "x");
	assert_string_equal(screen.text, "\033[Kx");
	top_screen_free(&screen);
}

/* Characters that are two columns wide, and bytes that are none in this locale. */
static void test_wide(void **state)
{
	struct top_screen screen = {.width = 5};

	(void)state;
	if (setlocale(LC_CTYPE, "C.UTF-8") != NULL) {
		assert_int_equal(top_columns("a\u4e2d\u4e2d"), 5);
		top_screen_line(&screen, TOP_PLAIN, "a\u4e2d\u4e2d\u4e2d");
		assert_string_equal(screen.text, "a\u4e2d\u4e2d\n");
	}
	setlocale(LC_CTYPE, "C");
	top_screen_clear(&screen);
	top_screen_line(&screen, TOP_PLAIN, "\u00e9\x80\033");
	assert_string_equal(screen.text, "????\n");
	top_screen_free(&screen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_first_look),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_counter_goes_back),
		cmocka_unit_test(test_more_hits_than_gets),
		cmocka_unit_test(test_no_time_between),
		cmocka_unit_test(test_new_pool),
		cmocka_unit_test(test_empty_answers),
		cmocka_unit_test(test_clients),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_colour),
		cmocka_unit_test(test_wide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
