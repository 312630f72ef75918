/* SPDX-License-Identifier: BSD-2-Clause */
/* Hands each listener to the functions of its kind; see listen.h. Main thread. */
#include "listen.h"

static const struct listener_kind *kind_of(const struct config_listen *config)
{
	return config_listen_rdma(config) ? &listener_verbs_kind : &listener_shm_kind;
}

int listener_check(const struct log *log, const struct config_listen *config)
{
	return kind_of(config)->check(log, config);
}

int listener_bind(struct daemon *daemon, const struct config_listen *config,
		  struct listener **ret_listener)
{
	return kind_of(config)->bind(daemon, config, ret_listener);
}

int listener_open(struct listener *listener)
{
	return listener->kind->open(listener);
}

void listener_close(struct listener *listener)
{
	if (listener)
		listener->kind->close(listener);
}

void listener_pause(struct listener *listener)
{
	if (listener->kind->pause)
		listener->kind->pause(listener, true);
}

void listener_resume(struct listener *listener)
{
	if (listener->kind->pause)
		listener->kind->pause(listener, false);
}

const struct verbs_device *listener_device(const struct listener *listener)
{
	return listener->kind->device ? listener->kind->device(listener) : NULL;
}

int listener_adjust(struct listener *listener, const struct config_listen *config)
{
	return listener->kind->adjust ? listener->kind->adjust(listener, config) : 0;
}

void listener_update(struct listener *listener, const struct config_listen *config)
{
	listener->config = config;
	if (listener->kind->update)
		listener->kind->update(listener);
}

bool listener_busy(const struct listener *listener)
{
	return listener->kind->busy && listener->kind->busy(listener);
}

void listener_remove(struct listener *listener)
{
	listener->kind->remove(listener);
}
