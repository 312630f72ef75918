/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv.c - a value, there and back
 *
 *	cc kv.c $(pkg-config --cflags --libs libtarn) && ./a.out 'tarn:/run/tarn/tarn.sock?pool=main'
 *
 * or, of a cluster, with some of its members: 'tarn://node1,node2/main'.
 */
#include <err.h>
#include <stdio.h>
#include <tarn/tarn.h>

int main(int argc, char **argv)
{
	struct tarn_session *session;
	struct tarn_item item = TARN_ITEM_INIT;
	char value[64];

	if (argc != 2)
		errx(2, "usage: kv URI");
	if (tarn_session_open(argv[1], NULL, &session) < 0 ||
	    tarn_put(session, "name", 4, "Ada", 3, NULL, NULL) < 0 ||
	    tarn_get(session, "name", 4, value, sizeof(value), &item) < 0)
		errx(1, "%s", tarn_last_error_text());
	printf("%.*s\n", (int)item.value_bytes, value);
	tarn_session_close(session);
	return 0;
}
