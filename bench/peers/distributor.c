/*
 * What DPDK's distributor costs its own core, by the number of workers: TSC cycles per packet, beside ours.
 *
 * One thread is the distributor and, between its calls, every worker. Only rte_distributor_process and
 * rte_distributor_returned_pkts are timed, less what reading the clock costs; all lines stay in this core's caches, so
 * that what is left is the work alone: the match, the backlogs, filling the lines, taking the returns.
 *
 * Each row is a line "workers N mode M traffic T cycles/packet X match Y", X and Y the medians of ROUNDS. A round
 * measures all rows one after the other, so that a core whose sibling is busy for a while slows all of them alike.
 *
 * Y is the match alone, which "burst" does for eight packets at once and against all workers; it stands there only
 * where the library is linked from its archive, as the shared one does not let it be called. "single" matches inside
 * process and has no Y: there the growth of X with the workers shows it.
 *
 * Traffic "seq" is numbered through, as a burst of DPDK's own perf test is, so that no packet finds its flow held and
 * every worker gets its share. (That test sends the same 64 tags again and again; they would stay with eight workers.)
 * "random" draws each packet's flow out of 4096, whose tags differ in the 15 bits that "burst" looks at.
 *
 * rte_distributor_process waits for ever for a worker that does not ask, and here none asks meanwhile. So it never gets
 * more than fits. Before each call all workers have asked, and in it can take:
 * - "single": one packet each. Every packet of the call and every one left in a backlog finds a free worker, whatever
 *   their flows, if they are no more than the workers. A backlog holds eight.
 * - "burst": a line of eight each, and a backlog of eight. One group of eight at most is for a worker in turn, as there
 *   are no more groups than workers; SLACK may be left from before; so there is room for four of other groups whose
 *   flows it holds, where an eighth of one is to be expected. When more than SLACK are left, the next call gets one
 *   group only, so that the other workers' backlogs go out.
 * The traffic is the same in every run; should it not fit all the same, an alarm ends the program.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_distributor.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#define BURST 64u
#define LINE 8u
#define MAX_WORKERS 63 /* rte_distributor_create takes no more. */
#define SLACK 4
#define FLOWS 4096
#define TAGS 65536
#define ROUNDS 9
#define WARM 2048   /* Packets before each share, which bring the lines back into the first cache. */
#define SHARE 16384 /* Packets a round: half a millisecond or some. */
#define SECONDS 5u  /* for a share */

/* The library's own, of no header that is installed; absent when it is linked from the shared library. */
extern void find_match_vec(struct rte_distributor *d, uint16_t *tags, uint16_t *workers) __attribute__((weak));

static const unsigned int worker_counts[] = {1, 4, 8, 12, 16, MAX_WORKERS};
static const unsigned int modes[] = {RTE_DIST_ALG_SINGLE, RTE_DIST_ALG_BURST};
static const char *const mode_names[] = {"single", "burst"};
enum traffic { SEQ, RANDOM, TRAFFICS };
static const char *const traffic_names[] = {"seq", "random"};

static uint16_t tags[TRAFFICS][TAGS];
/* What the library makes of a tag, before it looks for it: its 0 stands for none. */
static uint16_t flows[TRAFFICS][TAGS] __rte_cache_aligned;
static uint64_t clock_cost;

/* Two bursts in turn: the packets of one are sent again when they have been returned. */
static struct rte_mbuf packets[2][BURST];

struct stage {
	struct rte_distributor *distributor;
	unsigned int workers;
	unsigned int mode;
	uint64_t sent, taken, returned; /* packets, all the way through */
	double cycles[TRAFFICS][ROUNDS], match[TRAFFICS][ROUNDS];
};

static struct stage stages[RTE_DIM(worker_counts)][RTE_DIM(modes)];

static void
give_up(const char *what)
{
	fprintf(stderr, "distributor: %s failed: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

static void
on_alarm(int signal_number __rte_unused)
{
	static const char message[] = "distributor: a call waits for a worker that cannot ask\n";

	if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		_exit(3);
	_exit(2);
}

static void
prepare_traffic(void)
{
	uint32_t state = 1;
	unsigned int i;

	for (i = 0; i < TAGS; i++) {
		/* Marsaglia's xorshift. */
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		tags[SEQ][i] = i;
		tags[RANDOM][i] = state % FLOWS * (TAGS / FLOWS);
		flows[SEQ][i] = tags[SEQ][i] | 1;
		flows[RANDOM][i] = tags[RANDOM][i] | 1;
	}
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

/* Every worker asks for the first time; in burst mode it finds an empty line, and only then may one be written. */
static void
start_workers(struct stage *stage)
{
	struct rte_mbuf *got[LINE];
	unsigned int worker;

	for (worker = 0; worker < stage->workers; worker++) {
		rte_distributor_request_pkt(stage->distributor, worker, NULL, 0);
		if (rte_distributor_poll_pkt(stage->distributor, worker, got) > 0)
			give_up("the first poll of a worker");
	}
}

/*
 * Every worker takes what it was sent and gives it back with its next request. That cannot wait: nothing is sent before
 * the request before it has been read.
 */
static void
play_workers(struct stage *stage)
{
	struct rte_mbuf *got[LINE];
	unsigned int worker;
	int count;

	for (worker = 0; worker < stage->workers; worker++) {
		count = rte_distributor_poll_pkt(stage->distributor, worker, got);
		/* Nothing was sent. (An empty line is sent too, and wants the next request; "single" has none.) */
		if (count < (stage->mode == RTE_DIST_ALG_SINGLE ? 1 : 0))
			continue;
		rte_distributor_request_pkt(stage->distributor, worker, got, count);
		stage->taken += count;
	}
}

/* How many packets the next call may get without waiting for a worker. */
static unsigned int
room(const struct stage *stage)
{
	unsigned int left = stage->sent - stage->taken;

	if (stage->mode == RTE_DIST_ALG_SINGLE)
		return RTE_MIN(BURST, stage->workers - left);
	return left > SLACK ? LINE : RTE_MIN(BURST, LINE * stage->workers);
}

/* Cycles a packet of so many packets, or a burst more. */
static double
run_share(struct stage *stage, enum traffic traffic, unsigned int share)
{
	struct rte_mbuf *burst[BURST], *returned[2 * BURST];
	uint64_t start, cycles = 0, before = stage->sent;
	unsigned int i, size, turn;

	for (turn = 0; stage->sent - before < share; turn ^= 1) {
		size = room(stage);
		for (i = 0; i < size; i++) {
			burst[i] = &packets[turn][i];
			burst[i]->hash.usr = tags[traffic][(stage->sent + i) % TAGS];
		}
		start = rte_rdtsc_precise();
		if (rte_distributor_process(stage->distributor, burst, size) != (int)size)
			give_up("rte_distributor_process");
		stage->returned += rte_distributor_returned_pkts(stage->distributor, returned, RTE_DIM(returned));
		cycles += rte_rdtsc_precise() - start - clock_cost;
		stage->sent += size;
		play_workers(stage);
	}
	return (double)cycles / (stage->sent - before);
}

/* Cycles a packet of the match alone, against the flows that are held after the traffic before. */
static double
run_match(struct stage *stage, enum traffic traffic)
{
	static uint16_t found[LINE] __rte_cache_aligned;
	unsigned int i;
	uint64_t start = rte_rdtsc_precise();

	for (i = 0; i < SHARE; i += LINE)
		find_match_vec(stage->distributor, &flows[traffic][i], found);
	return (double)(rte_rdtsc_precise() - start - clock_cost) / SHARE;
}

/* Take everything back; what is not there then was lost. */
static void
finish(struct stage *stage)
{
	struct rte_mbuf *returned[2 * BURST];
	unsigned int i;

	for (i = 0; i < 2 * LINE; i++) {
		rte_distributor_process(stage->distributor, NULL, 0);
		stage->returned += rte_distributor_returned_pkts(stage->distributor, returned, RTE_DIM(returned));
		play_workers(stage);
	}
	if (stage->taken != stage->sent || stage->returned != stage->sent)
		give_up("the count of what came back");
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

static bool
match_alone(const struct stage *stage)
{
	return stage->mode == RTE_DIST_ALG_BURST && find_match_vec != NULL;
}

static void
create(struct stage *stage, unsigned int workers, unsigned int mode)
{
	char name[32];

	snprintf(name, sizeof(name), "%u.%u", mode, workers);
	stage->distributor = rte_distributor_create(name, rte_socket_id(), workers, mode);
	if (stage->distributor == NULL)
		give_up("rte_distributor_create");
	stage->workers = workers;
	stage->mode = mode;
	start_workers(stage);
}

static void
run_round(struct stage *stage, unsigned int round)
{
	enum traffic traffic;

	for (traffic = 0; traffic < TRAFFICS; traffic++) {
		alarm(SECONDS);
		run_share(stage, traffic, WARM);
		stage->cycles[traffic][round] = run_share(stage, traffic, SHARE);
		if (match_alone(stage))
			stage->match[traffic][round] = run_match(stage, traffic);
	}
}

static void
print_rows(struct stage *stage)
{
	enum traffic traffic;

	for (traffic = 0; traffic < TRAFFICS; traffic++) {
		printf("workers %u mode %s traffic %s cycles/packet %.4f", stage->workers,
				mode_names[stage->mode == RTE_DIST_ALG_BURST], traffic_names[traffic],
				median(stage->cycles[traffic]));
		if (match_alone(stage))
			printf(" match %.4f", median(stage->match[traffic]));
		printf("\n");
	}
}

/* Every stage is built before the first round, as DPDK has no call to take a distributor down. */
int
main(int argc, char **argv)
{
	unsigned int i, mode, round;

	if (rte_eal_init(argc, argv) < 0)
		give_up("rte_eal_init");
	signal(SIGALRM, on_alarm);
	prepare_traffic();
	measure_clock();
	for (i = 0; i < RTE_DIM(worker_counts); i++)
		for (mode = 0; mode < RTE_DIM(modes); mode++)
			create(&stages[i][mode], worker_counts[i], modes[mode]);
	for (round = 0; round < ROUNDS; round++)
		for (i = 0; i < RTE_DIM(worker_counts); i++)
			for (mode = 0; mode < RTE_DIM(modes); mode++)
				run_round(&stages[i][mode], round);
	for (i = 0; i < RTE_DIM(worker_counts); i++)
		for (mode = 0; mode < RTE_DIM(modes); mode++) {
			finish(&stages[i][mode]);
			print_rows(&stages[i][mode]);
		}
	rte_eal_cleanup();
	return 0;
}
