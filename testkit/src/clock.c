// Preloaded into a server: its wall clock is ahead by as many seconds as the file CLOCK_AHEAD says, which a test
// writes while the server runs. Clocks that count from the boot are left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void) {
    static volatile const int64_t *seconds;
    static const int64_t none;
    if (!seconds) {
        const char *path = getenv("CLOCK_AHEAD");
        int file = path ? open(path, O_RDONLY) : -1;
        void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, file, 0);
        seconds = map == MAP_FAILED ? &none : map;
    }
    return *seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec ts;
    int failed = clock_gettime(CLOCK_REALTIME, &ts);
    (void)zone;
    if (!failed && now) now->tv_sec = ts.tv_sec, now->tv_usec = ts.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (now) *now = ts.tv_sec;
    return ts.tv_sec;
}
