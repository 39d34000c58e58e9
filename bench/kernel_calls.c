/*
 * How long a program is in the calls that hand packets to the kernel: TSC cycles, added up in a file that others map.
 *
 * Preloaded into either side of the bench of live ports.  DPDK calls send and sendto; wirespeed's kernels call syscall.
 * Only one thread of a program sends, so there is nothing to lock.  wirespeed takes the time of some rounds only; a
 * packet's calls cost some fifteen times what is left without them, so it has to be those of the same rounds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

static uint64_t nowhere;
static uint64_t *sum = &nowhere;
static volatile uint64_t *rounds = &nowhere;
static uint64_t every = 1;

/* From now on only calls in rounds of a loop whose number, at an address, is a multiple are counted. */
void wirespeed_sample(uint64_t address, uint64_t multiple)
{
    rounds = (volatile uint64_t *)address;
    every = multiple;
    *sum = 0;
}

static uint64_t if_sampled(uint64_t cycles)
{
    return *rounds % every == 0 ? cycles : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WIRESPEED_CALLS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        sum = at;
    close(fd);
}

/* Looked up at the first call: constructors of other libraries, which come before ours, may call. */
#define NEXT(name) ({ static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name); next; })
#define TIMED(call) ({ uint64_t start = __rdtsc(); long got = (call); *sum += if_sampled(__rdtsc() - start); got; })

long syscall(long number, ...)
{
    long a[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(given, long);
    va_end(given);
    if (number == SYS_sendto)
        return TIMED(NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]));
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

ssize_t send(int fd, const void *from, size_t size, int flags)
{
    return TIMED(NEXT(send)(fd, from, size, flags));
}

ssize_t sendto(int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
    return TIMED(NEXT(sendto)(fd, from, size, flags, to, length));
}
