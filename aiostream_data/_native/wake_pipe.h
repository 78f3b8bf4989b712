/* Pipes that wake a thread or an event loop, and the clock of timeouts. */

#ifndef WAKE_PIPE_H
#define WAKE_PIPE_H

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Open a pipe whose ends never block. Return 0, or -1 and set errno. */
static int open_wake_pipe(int *ends) {
    if (pipe(ends) != 0) return -1;
    for (int end = 0; end < 2; end++) {
        fcntl(ends[end], F_SETFL, fcntl(ends[end], F_GETFL) | O_NONBLOCK);
        fcntl(ends[end], F_SETFD, FD_CLOEXEC);
    }
    return 0;
}

static void close_wake_pipe(const int *ends) {
    for (int end = 0; end < 2; end++)
        if (ends[end] >= 0) close(ends[end]);
}

/* A full pipe already wakes its reader, so errors do not matter. */
static void ring_wake_pipe(const int *ends) {
    ssize_t ignored = write(ends[1], "", 1);
    (void)ignored;
}

static void drain_wake_pipe(const int *ends) {
    char bytes[512];
    while (read(ends[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes) {}
}

#endif
