/*
 * DPDK's mempool and mbuf library on one core: TSC cycles per object, beside ours in bench/pool.py.
 *
 * Every figure is a line "ROW name value unit", the median of ROUNDS equal shares after one that only warms up. A share
 * is one batch after the other, taken and given back. No more than a batch is ever out, so that all comes from the
 * worker's cache where there is one; the data of the packets is never touched. Rows that end in ".free" time only
 * the second half of each batch, less what reading the clock costs.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#define OBJECTS 16383
#define CACHE 512
#define BURST 32
#define SEGMENTS 4
#define KEPT 512
#define ROUNDS 9
#define SHARE 320000 /* Objects a round, a multiple of every batch: some milliseconds. */

static struct rte_mempool *objects_pool, *packets_pool, *clones_pool;
static uint64_t clock_cost;

static void
give_up(const char *what)
{
	fprintf(stderr, "pool: %s failed: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

static __rte_always_inline double
get_put(unsigned int size)
{
	void *objects[BURST];
	unsigned int i, calls = SHARE / size;
	uint64_t start = rte_rdtsc();

	for (i = 0; i < calls; i++) {
		if (rte_mempool_get_bulk(objects_pool, objects, size) != 0)
			give_up("rte_mempool_get_bulk");
		rte_mempool_put_bulk(objects_pool, objects, size);
	}
	return (double)(rte_rdtsc() - start) / calls / size;
}

/* The size as a program has it that is handed its bursts, unknown to the compiler; and as a constant. */
static volatile unsigned int size_1 = 1, size_8 = 8, size_32 = BURST;

static double get_put_1(double *freed __rte_unused) { return get_put(size_1); }
static double get_put_8(double *freed __rte_unused) { return get_put(size_8); }
static double get_put_32(double *freed __rte_unused) { return get_put(size_32); }
static double get_put_constant_32(double *freed __rte_unused) { return get_put(BURST); }

static double
single(double *freed __rte_unused)
{
	unsigned int i;
	uint64_t start = rte_rdtsc();

	for (i = 0; i < SHARE; i++) {
		struct rte_mbuf *packet = rte_pktmbuf_alloc(packets_pool);

		if (packet == NULL)
			give_up("rte_pktmbuf_alloc");
		/* As if it were used: nothing about it may be remembered in registers. */
		asm volatile("" : "+r"(packet) : : "memory");
		rte_pktmbuf_free(packet);
	}
	return (double)(rte_rdtsc() - start) / SHARE;
}

static double
bulk(double *freed __rte_unused)
{
	struct rte_mbuf *packets[BURST];
	unsigned int i;
	uint64_t start = rte_rdtsc();

	for (i = 0; i < SHARE / BURST; i++) {
		if (rte_pktmbuf_alloc_bulk(packets_pool, packets, BURST) != 0)
			give_up("rte_pktmbuf_alloc_bulk");
		asm volatile("" : : "r"(packets) : "memory");
		rte_pktmbuf_free_bulk(packets, BURST);
	}
	return (double)(rte_rdtsc() - start) / SHARE;
}

/* 512 packets out at once: their headers, two cache lines each, are more than a first-level cache holds. */
static double
bulk_keep(double *freed __rte_unused)
{
	static struct rte_mbuf *packets[KEPT];
	unsigned int i, at, batches = SHARE / KEPT;
	uint64_t start = rte_rdtsc();

	for (i = 0; i < batches; i++) {
		for (at = 0; at < KEPT; at += BURST)
			if (rte_pktmbuf_alloc_bulk(packets_pool, packets + at, BURST) != 0)
				give_up("rte_pktmbuf_alloc_bulk");
		asm volatile("" : : "r"(packets) : "memory");
		for (at = 0; at < KEPT; at += BURST)
			rte_pktmbuf_free_bulk(packets + at, BURST);
	}
	return (double)(rte_rdtsc() - start) / batches / KEPT;
}

/* What is done with a batch of 32 allocated segments: link them before, free them after. */
enum way { IN_BULK, ONE_BY_ONE, BY_SEGMENT, IN_CHAINS };

static __rte_always_inline void
link_chains(struct rte_mbuf **segments)
{
	unsigned int chain, i;

	for (chain = 0; chain < BURST; chain += SEGMENTS) {
		struct rte_mbuf *head = segments[chain];

		for (i = 1; i < SEGMENTS; i++)
			segments[chain + i - 1]->next = segments[chain + i];
		head->nb_segs = SEGMENTS;
	}
}

static __rte_always_inline void
free_batch(struct rte_mbuf **segments, enum way way)
{
	unsigned int i;

	switch (way) {
	case IN_BULK:
		rte_pktmbuf_free_bulk(segments, BURST);
		break;
	case ONE_BY_ONE:
		for (i = 0; i < BURST; i++)
			rte_pktmbuf_free(segments[i]);
		break;
	case BY_SEGMENT:
		for (i = 0; i < BURST; i++)
			rte_pktmbuf_free_seg(segments[i]);
		break;
	case IN_CHAINS:
		for (i = 0; i < BURST; i += SEGMENTS)
			rte_pktmbuf_free(segments[i]);
		break;
	}
}

/* The cycles of the whole, and of the frees alone into freed, each per segment. */
static __rte_always_inline double
batch(enum way way, double *freed)
{
	struct rte_mbuf *segments[BURST];
	uint64_t start, middle, frees = 0;
	unsigned int i;

	start = rte_rdtsc();
	for (i = 0; i < SHARE / BURST; i++) {
		if (rte_pktmbuf_alloc_bulk(packets_pool, segments, BURST) != 0)
			give_up("rte_pktmbuf_alloc_bulk");
		if (way == IN_CHAINS)
			link_chains(segments);
		asm volatile("" : : "r"(segments) : "memory");
		free_batch(segments, way);
	}
	start = rte_rdtsc() - start;
	for (i = 0; i < SHARE / BURST; i++) {
		if (rte_pktmbuf_alloc_bulk(packets_pool, segments, BURST) != 0)
			give_up("rte_pktmbuf_alloc_bulk");
		if (way == IN_CHAINS)
			link_chains(segments);
		asm volatile("" : : "r"(segments) : "memory");
		middle = rte_rdtsc_precise();
		free_batch(segments, way);
		frees += rte_rdtsc_precise() - middle - clock_cost;
	}
	*freed = (double)frees / SHARE;
	return (double)start / SHARE;
}

static double batch_bulk(double *freed) { return batch(IN_BULK, freed); }
static double batch_single(double *freed) { return batch(ONE_BY_ONE, freed); }
static double batch_segment(double *freed) { return batch(BY_SEGMENT, freed); }
static double batch_chain(double *freed) { return batch(IN_CHAINS, freed); }

/* A packet of one segment, cloned and the clone freed; the clones are of a pool without data of its own. */
static double
clone(double *freed __rte_unused)
{
	struct rte_mbuf *packet = rte_pktmbuf_alloc(packets_pool), *copy;
	unsigned int i;
	uint64_t start;

	if (packet == NULL)
		give_up("rte_pktmbuf_alloc");
	start = rte_rdtsc();
	for (i = 0; i < SHARE; i++) {
		copy = rte_pktmbuf_clone(packet, clones_pool);
		if (copy == NULL)
			give_up("rte_pktmbuf_clone");
		asm volatile("" : "+r"(copy) : : "memory");
		rte_pktmbuf_free(copy);
	}
	start = rte_rdtsc() - start;
	rte_pktmbuf_free(packet);
	return (double)start / SHARE;
}

static void
measure_clock(void)
{
	uint64_t start, cost;
	int i;

	clock_cost = UINT64_MAX;
	for (i = 0; i < 1000; i++) {
		start = rte_rdtsc_precise();
		cost = rte_rdtsc_precise() - start;
		clock_cost = RTE_MIN(clock_cost, cost);
	}
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double
median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

/* A job gives the cycles of the whole, and where it times them apart, those of the frees. */
static void
run_job(const char *prefix, const char *name, double (*job)(double *))
{
	double whole[ROUNDS], frees[ROUNDS], freed = -1;
	int i;

	job(&freed);
	for (i = 0; i < ROUNDS; i++) {
		whole[i] = job(&freed);
		frees[i] = freed;
	}
	printf("ROW %s%s %.4f cycles/object\n", prefix, name, median(whole));
	if (freed >= 0)
		printf("ROW %s%s.free %.4f cycles/object\n", prefix, name, median(frees));
}

static void
mempool_rows(const char *prefix, unsigned int cache)
{
	objects_pool = rte_mempool_create(prefix, OBJECTS, 64, cache, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	if (objects_pool == NULL)
		give_up("rte_mempool_create");
	run_job(prefix, "bulk1", get_put_1);
	run_job(prefix, "bulk8", get_put_8);
	run_job(prefix, "bulk32", get_put_32);
	run_job(prefix, "bulk32.constant", get_put_constant_32);
	rte_mempool_free(objects_pool);
}

static void
mbuf_rows(const char *prefix)
{
	packets_pool = rte_pktmbuf_pool_create("packets", OBJECTS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	clones_pool = rte_pktmbuf_pool_create("clones", OBJECTS, CACHE, 0, 0, SOCKET_ID_ANY);
	if (packets_pool == NULL || clones_pool == NULL)
		give_up("rte_pktmbuf_pool_create");
	run_job(prefix, "single", single);
	run_job(prefix, "bulk32", bulk);
	run_job(prefix, "bulk32.keep512", bulk_keep);
	run_job(prefix, "batch32.bulk", batch_bulk);
	run_job(prefix, "batch32.single", batch_single);
	run_job(prefix, "batch32.segment", batch_segment);
	run_job(prefix, "batch32.chain4", batch_chain);
	run_job(prefix, "clone", clone);
	if (rte_mempool_avail_count(packets_pool) != OBJECTS || rte_mempool_avail_count(clones_pool) != OBJECTS)
		give_up("the count of what came back");
}

int
main(int argc, char **argv)
{
	if (rte_eal_init(argc, argv) < 0)
		give_up("rte_eal_init");
	measure_clock();
	mempool_rows("mempool.cache512.", CACHE);
	mempool_rows("mempool.nocache.", 0);
	mbuf_rows("mbuf.");
	rte_eal_cleanup();
	return 0;
}
