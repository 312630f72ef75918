/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's configuration in its answers: what runs, where that comes from, what a reload has
 * changed or would change. Main thread. Reading files at somebody's wish, as changing something, is
 * for root and the daemon's own user. control.c puts the parts together; reload.c does the work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control-config.h"
#include "daemon.h"
#include "reload.h"

static bool allowed(uint32_t uid)
{
	return uid == 0 || uid == geteuid();
}

static void set_u64(json_t *object, const char *name, uint64_t number)
{
	json_object_set_new(object, name, json_integer((json_int_t)number)); /* none is so large */
}

/* What is no UTF-8 in a file is told without what is not. */
static json_t *text(const char *string)
{
	json_t *value = json_string(string);

	return value ? value : json_string("(not UTF-8)");
}

/* ---- reload and diff ---- */

static json_t *change_json(const struct config_change *change)
{
	json_t *object = json_object();
	char line[1024];

	json_object_set_new(object, "section", json_string(config_section_name(change->section)));
	json_object_set_new(object, "name",
			    *change->name ? json_string(change->name) : json_null());
	json_object_set_new(object, "key",
			    change->key ? json_string(change->key->name) : json_null());
	json_object_set_new(object, "action", json_string(config_action_name(change->action)));
	json_object_set_new(object, "from", text(change->from));
	json_object_set_new(object, "to", text(change->to));
	json_object_set_new(object, "line",
			    change->line ? json_integer(change->line) : json_null());
	json_object_set_new(object, "restart", json_boolean(change->restart));
	json_object_set_new(object, "text", text(config_change_text(change, line, sizeof(line))));
	return object;
}

static json_t *keys_json(const struct daemon *daemon, const struct reload_report *report)
{
	json_t *array = json_array();

	for (size_t i = 0; i < report->pool_count; i++) {
		const struct reload_keys *keys = &report->keys[i];
		json_t *object;

		if (!keys->text[0])
			continue;
		object = json_object();
		json_object_set_new(object, "pool", json_string(daemon->pools[i]->name));
		set_u64(object, "added", keys->added);
		set_u64(object, "removed", keys->removed);
		set_u64(object, "changed", keys->changed);
		json_object_set_new(object, "text", json_string(keys->text));
		json_array_append_new(array, object);
	}
	return array;
}

static json_t *texts_json(const struct config_errors *texts)
{
	json_t *array = json_array();

	for (size_t i = 0; i < texts->count; i++)
		json_array_append_new(array, text(texts->texts[i]));
	return array;
}

static json_t *report_json(const struct daemon *daemon, int rc, const struct reload_report *report)
{
	static const struct config_errors none;
	json_t *object = json_object(), *changes = json_array();

	for (size_t i = 0; rc == 0 && i < report->changes.count; i++)
		json_array_append_new(changes, change_json(&report->changes.list[i]));
	json_object_set_new(object, "file", text(daemon->config->file));
	json_object_set_new(object, "result",
			    json_string(rc < 0                   ? "refused"
					: reload_nothing(report) ? "unchanged"
								 : "changed"));
	json_object_set_new(object, "errors", texts_json(&report->errors));
	json_object_set_new(object, "notices", texts_json(rc == 0 ? &report->notices : &none));
	json_object_set_new(object, "changes", changes);
	json_object_set_new(object, "access_keys",
			    rc == 0 ? keys_json(daemon, report) : json_array());
	json_object_set_new(object, "http_secrets_changed",
			    json_boolean(rc == 0 && report->http_changed));
	set_u64(object, "restarts_needed", rc == 0 ? reload_restarts(report) : 0);
	return object;
}

const char *control_reload(struct daemon *daemon, uint32_t uid, json_t *answer,
			   const char **ret_name)
{
	struct reload_report report;
	json_t *object;
	int rc;

	*ret_name = "EPERM";
	if (!allowed(uid))
		return "only root and the daemon's own user may reload the configuration: use sudo";
	log_notice(daemon->log, "uid %u has asked for a reload of %s", uid, daemon->config->file);
	rc = reload(daemon, &report);
	object = report_json(daemon, rc, &report);
	set_u64(object, "clients_cut", report.clients_cut);
	set_u64(object, "main_loop_ns", report.ns);
	set_u64(object, "cpu_ns", report.cpu_ns);
	json_object_set_new(answer, "reload", object);
	reload_report_free(&report);
	return NULL;
}

const char *control_config_diff(struct daemon *daemon, uint32_t uid, json_t *answer,
				const char **ret_name)
{
	struct reload_report report;
	int rc;

	*ret_name = "EPERM";
	if (!allowed(uid))
		return "only root and the daemon's own user may have files compared: use sudo";
	rc = reload_preview(daemon, &report);
	json_object_set_new(answer, "diff", report_json(daemon, rc, &report));
	reload_report_free(&report);
	return NULL;
}

/* ---- show ---- */

/* Where the value comes from. */
static json_t *source(const struct daemon *daemon, const struct config_value *value,
		      enum config_section section)
{
	if (section == CONFIG_SECTION_DAEMON && daemon->log_level_fixed)
		return json_string("command line");
	if (value->kept)
		return json_string("kept until a restart");
	if (!value->line)
		return json_string("default");
	return json_sprintf("%s:%u", daemon->config->file, value->line);
}

static json_t *setting(const struct daemon *daemon, enum config_section section, const char *name,
		       const struct config_key *key, const struct config_value *value)
{
	json_t *object = json_object();
	char *shown = config_value_text(key, value);

	if (section == CONFIG_SECTION_DAEMON && daemon->log_level_fixed) {
		free(shown);
		shown = strdup(log_level_name((enum log_level)daemon->log->level));
	}
	json_object_set_new(object, "section", json_string(config_section_name(section)));
	json_object_set_new(object, "name", *name ? json_string(name) : json_null());
	json_object_set_new(object, "key", json_string(key->name));
	json_object_set_new(object, "value", shown ? text(shown) : NULL);
	json_object_set_new(object, "default",
			    key->preset ? json_string(key->preset) : json_null());
	json_object_set_new(object, "source", source(daemon, value, section));
	json_object_set_new(object, "line", value->line ? json_integer(value->line) : json_null());
	json_object_set_new(object, "reloadable", json_boolean(key->reloadable));
	json_object_set_new(object, "restart_pending", json_boolean(value->kept));
	free(shown);
	return object;
}

static void section_show(const struct daemon *daemon, enum config_section section, const char *name,
			 const void *values, json_t *settings)
{
	size_t count;
	const struct config_key *keys = config_keys(section, &count);

	for (size_t i = 0; i < count; i++)
		if (section != CONFIG_SECTION_LISTEN ||
		    config_key_for(&keys[i], config_listen_rdma(values)))
			json_array_append_new(settings, setting(daemon, section, name, &keys[i],
								config_value_of(values, &keys[i])));
}

void control_config_show(const struct daemon *daemon, json_t *answer)
{
	const struct config *config = daemon->config;
	json_t *settings = json_array();

	section_show(daemon, CONFIG_SECTION_DAEMON, "", &config->daemon, settings);
	for (size_t i = 0; i < config->listen_count; i++)
		section_show(daemon, CONFIG_SECTION_LISTEN, config->listens[i].name,
			     &config->listens[i], settings);
	if (config->http.line)
		section_show(daemon, CONFIG_SECTION_HTTP, "", &config->http, settings);
	if (config->cluster.line)
		section_show(daemon, CONFIG_SECTION_CLUSTER, "", &config->cluster, settings);
	for (size_t i = 0; i < config->pool_count; i++)
		section_show(daemon, CONFIG_SECTION_POOL, config->pools[i].name, &config->pools[i],
			     settings);
	json_object_set_new(answer, "file", text(config->file));
	json_object_set_new(answer, "settings", settings);
}
