/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * zero-copy.c - a large value from and into memory that the adapter reaches by itself
 *
 *	cc zero-copy.c $(pkg-config --cflags --libs libtarn) && ./a.out tarn://10.77.0.1/main
 */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tarn/tarn.h>

#define BYTES (1u << 20)

int main(int argc, char **argv)
{
	static char source[BYTES];
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_session *session;
	struct tarn_buffer *buffer;
	void *target;

	if (argc != 2)
		errx(2, "usage: zero-copy URI");
	/* memory of the program's own, and memory that the library gives */
	if (tarn_session_open(argv[1], NULL, &session) < 0 ||
	    tarn_buffer_register(session, source, BYTES, TARN_BUFFER_SOURCE, &buffer) < 0 ||
	    tarn_alloc(session, BYTES, &target) < 0)
		errx(1, "%s", tarn_last_error_text());
	memset(source, 'x', BYTES);
	if (tarn_put(session, "large", 5, source, BYTES, NULL, NULL) < 0 ||
	    tarn_get(session, "large", 5, target, BYTES, NULL) < 0)
		errx(1, "%s", tarn_last_error_text());
	tarn_session_get_stats(session, &stats);
	printf("%s, %" PRIu64 " bytes copied\n",
	       memcmp(source, target, BYTES) ? "not the same" : "the same", stats.bytes_copied);
	tarn_free(session, target);
	tarn_buffer_deregister(buffer);
	tarn_session_close(session);
	return 0;
}
