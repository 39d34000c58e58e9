/* For any program of DPDK (by LD_PRELOAD): null ports that give the frames of a file, over and over.
 *
 * A port net_nullN gives those of $WIRESPEED_REPLAY/N.frames: frames of 64 bytes, one behind the other, and nothing
 * else.  The null driver takes its buffers from the pool and fills in their records; a receive callback copies one frame
 * into each.  That is all there is to do, and the same as our side does.  net_pcap with infinite_rx would need a buffer
 * for each frame of the file, which Open vSwitch has no pool for beyond 262,144 of them, and copies through a ring.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define FRAME 64
#define LOOK_US 20000

struct source {
	const char *begin, *end, *at;
};

static uint16_t
give(uint16_t port, uint16_t queue, struct rte_mbuf *packets[], uint16_t n, uint16_t room, void *user)
{
	struct source *source = user;
	const char *at = source->at, *begin = source->begin, *end = source->end;

	(void)port, (void)queue, (void)room;
	for (uint16_t i = 0; i < n; i++) {
		memcpy(rte_pktmbuf_mtod(packets[i], char *), at, FRAME);
		at += FRAME;
		if (at == end)
			at = begin;
	}
	source->at = at;
	return n;
}

static struct source *
mapped(const char *path)
{
	struct source *source = NULL;
	struct stat status;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) == 0 && status.st_size >= FRAME) {
		char *begin = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);

		if (begin != MAP_FAILED && (source = malloc(sizeof(*source))) != NULL) {
			source->begin = source->at = begin;
			source->end = begin + status.st_size / FRAME * FRAME;
		}
	}
	close(fd);
	return source;
}

/* Find null ports that were started, and have each replay its file; "NAME.on" says that it does. */
static void *
look(void *folder)
{
	static char done[RTE_MAX_ETHPORTS];

	for (;; usleep(LOOK_US)) {
		uint16_t port;

		RTE_ETH_FOREACH_DEV(port) {
			char name[RTE_ETH_NAME_MAX_LEN], path[4096];
			struct source *source;
			FILE *on;

			if (done[port] || rte_eth_fp_ops[port].rxq.data == NULL || rte_eth_fp_ops[port].rxq.data[0] == NULL)
				continue;
			if (rte_eth_dev_get_name_by_port(port, name) != 0 || strncmp(name, "net_null", 8) != 0)
				continue;
			done[port] = 1;
			snprintf(path, sizeof(path), "%s/%s.frames", (char *)folder, name + 8);
			source = mapped(path);
			if (source == NULL || rte_eth_add_rx_callback(port, 0, give, source) == NULL)
				continue;
			snprintf(path, sizeof(path), "%s/%s.on", (char *)folder, name + 8);
			on = fopen(path, "w");
			if (on != NULL)
				fclose(on);
		}
	}
	return NULL;
}

__attribute__((constructor)) static void
start(void)
{
	char *folder = getenv("WIRESPEED_REPLAY");
	pthread_t thread;

	if (folder != NULL)
		pthread_create(&thread, NULL, look, folder);
}
