/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dmabuf.c - a client whose values are in memory of a device, for run-inside.py
 *
 *	dmabuf URI
 *
 * The device is the kernel's udmabuf: a dma-buf of pages of this process, which this program also sees by themselves, as
 * the device would. Prints one JSON object: what tarn_buffer_register_dmabuf() said, and, if it said yes, how
 * many bytes of values were copied here. Exit code 1 with a line on standard error when a value was wrong, 77 when
 * there is no udmabuf.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tarn/tarn.h>

#define DEVICE_BYTES (4u << 20)
#define AT           4999u /* of no round place */
#define BYTES        1000003u

static void quit(int code, const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(code);
}

/* Its bytes are *ret_device; the descriptor is the dma-buf. */
static int device_create(uint8_t **ret_device)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = DEVICE_BYTES};
	int control = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;
	int memory = memfd_create("device", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	if (control < 0)
		quit(77, "/dev/udmabuf", strerror(errno));
	if (memory < 0 || ftruncate(memory, DEVICE_BYTES) < 0 ||
	    fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		quit(1, "memfd", strerror(errno));
	create.memfd = (uint32_t)memory;
	fd = ioctl(control, UDMABUF_CREATE, &create);
	if (fd < 0)
		quit(1, "UDMABUF_CREATE", strerror(errno));
	*ret_device = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (*ret_device == MAP_FAILED)
		quit(1, "mmap of the memfd", strerror(errno));
	close(control);
	close(memory);
	return fd;
}

static void must(int ret, const char *what)
{
	if (ret < 0)
		quit(1, what, tarn_last_error_text());
}

/* From the device, and to another place in it. */
static void use(struct tarn_session *s, uint8_t *device, uint8_t *memory)
{
	struct tarn_item item = TARN_ITEM_INIT;

	for (uint32_t i = 0; i < BYTES; i++)
		device[AT + i] = (uint8_t)(i * 7 + i / 251);
	must(tarn_put(s, "device", 6, memory, BYTES, NULL, NULL), "put");
	must(tarn_get(s, "device", 6, memory + BYTES, BYTES, &item), "get");
	if (item.value_bytes != BYTES || memcmp(device + AT, device + AT + BYTES, BYTES) != 0)
		quit(1, "get", "other bytes than those that were put");
}

int main(int argc, char **argv)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_buffer *buffer = NULL;
	struct tarn_session *s;
	void *memory = NULL;
	uint8_t *device;
	json_t *report;
	int fd, ret;

	if (argc != 2)
		quit(2, "usage", "dmabuf URI");
	fd = device_create(&device);
	must(tarn_session_open(argv[1], NULL, &s), "open");
	ret = tarn_buffer_register_dmabuf(s, fd, AT, 2 * BYTES, 0, &memory, &buffer);
	report = json_pack("{s:s, s:s}", "status", ret < 0 ? tarn_error_name(ret) : "0", "text",
			   ret < 0 ? tarn_last_error_text() : "");
	close(fd);
	if (ret == 0)
		use(s, device, memory);
	must(tarn_session_get_stats(s, &stats), "stats");
	json_object_set_new(report, "copied", json_integer((json_int_t)stats.bytes_copied));
	must(tarn_buffer_deregister(buffer), "deregister");
	tarn_session_close(s);
	json_dumpf(report, stdout, JSON_COMPACT);
	json_decref(report);
	munmap(device, DEVICE_BYTES);
	return 0;
}
