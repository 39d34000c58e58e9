/*
 * libpcap's bpf_filter over frames in memory: TSC cycles for all of them, beside ours in bench/filter.py.
 *
 * Loaded into the bench's process, which gives the address of libpcap's function, so that both sides see the same
 * frames at the same places on the same core, and no call from Python is counted.
 */
#include <stdint.h>
#include <x86intrin.h>

typedef unsigned (*filter_function)(const void *program, const uint8_t *frame, unsigned wire, unsigned captured);

struct place {
    int64_t address;
    int64_t size;
};

int64_t bpf_loop(filter_function filter, const void *program, const struct place *places, int64_t n, int64_t *matches)
{
    int64_t found = 0;
    uint64_t start = __rdtsc();
    for (int64_t i = 0; i < n; i++)
        found += filter(program, (const uint8_t *)places[i].address, places[i].size, places[i].size) != 0;
    uint64_t end = __rdtsc();
    *matches = found;
    return (int64_t)(end - start);
}
