# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Receive response bodies from sockets on a thread without the GIL.

The pure-Python twin is in ``storage/wire``: it needs threads, which nothing else in this folder does.
"""

from libc.errno cimport errno

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include "wake_pipe.h"

    enum { BODIES = 256, BODY_STEP = 1 << 20 };
    enum { BODY_FREE, BODY_RUNNING, BODY_ENDED };
    enum { BODY_CLOSED = -1 };

    typedef struct {
        int state, is_busy, file, problem;
        char *start;
        size_t nbytes, filled;
        double heard_s;
    } Body;

    typedef struct {
        pthread_mutex_t lock;
        pthread_cond_t was_busy;
        int is_stopped, wake[2], done[2];
        Body bodies[BODIES];
    } Receiver;

    /* Receive what has arrived for one body. Return 1 if the body has ended. */
    static int body_receive(Receiver *all, Body *body, int file) {
        char *at;
        size_t room;
        ssize_t got;
        int problem = 0;
        pthread_mutex_lock(&all->lock);
        if (body->state != BODY_RUNNING || body->file != file) {
            pthread_mutex_unlock(&all->lock);
            return 0;
        }
        at = body->start + body->filled;
        room = body->nbytes - body->filled;
        body->is_busy = 1;
        pthread_mutex_unlock(&all->lock);
        do got = recv(file, at, room < BODY_STEP ? room : BODY_STEP, MSG_DONTWAIT); while (got < 0 && errno == EINTR);
        if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) problem = errno;
        pthread_mutex_lock(&all->lock);
        body->is_busy = 0;
        if (got > 0) {
            body->filled += (size_t)got;
            body->heard_s = monotonic_s();
        }
        if (got == 0) problem = BODY_CLOSED;
        if (problem != 0 || body->filled == body->nbytes) {
            body->problem = problem;
            if (body->state == BODY_RUNNING) body->state = BODY_ENDED;
        }
        problem = body->state == BODY_ENDED;
        pthread_cond_broadcast(&all->was_busy);
        pthread_mutex_unlock(&all->lock);
        return problem;
    }

    static void body_run(Receiver *all) {
        struct pollfd files[BODIES + 1];
        int numbers[BODIES];
        for (;;) {
            int count = 0, has_ended = 0, is_stopped;
            pthread_mutex_lock(&all->lock);
            is_stopped = all->is_stopped;
            for (int number = 0; number < BODIES; number++) {
                Body *body = &all->bodies[number];
                if (body->state != BODY_RUNNING) continue;
                numbers[count] = number;
                files[count].fd = body->file;
                files[count].events = POLLIN;
                files[count++].revents = 0;
            }
            pthread_mutex_unlock(&all->lock);
            if (is_stopped) return;
            files[count].fd = all->wake[0];
            files[count].events = POLLIN;
            files[count].revents = 0;
            if (poll(files, (nfds_t)(count + 1), -1) < 0) continue;
            if (files[count].revents) drain_wake_pipe(all->wake);
            for (int place = 0; place < count; place++)
                if (files[place].revents)
                    has_ended |= body_receive(all, &all->bodies[numbers[place]], files[place].fd);
            if (has_ended) ring_wake_pipe(all->done);
        }
    }

    static int body_begin(Receiver *all, int file, char *start, size_t nbytes) {
        int found = -1;
        pthread_mutex_lock(&all->lock);
        for (int number = 0; number < BODIES && found < 0; number++)
            if (all->bodies[number].state == BODY_FREE) found = number;
        if (found >= 0) {
            Body *body = &all->bodies[found];
            body->file = file;
            body->start = start;
            body->nbytes = nbytes;
            body->filled = 0;
            body->problem = 0;
            body->heard_s = monotonic_s();
            body->state = BODY_RUNNING;
        }
        pthread_mutex_unlock(&all->lock);
        if (found >= 0) ring_wake_pipe(all->wake);
        return found;
    }

    static void body_cancel(Receiver *all, int number) {
        Body *body = &all->bodies[number];
        pthread_mutex_lock(&all->lock);
        while (body->is_busy) pthread_cond_wait(&all->was_busy, &all->lock);
        body->state = BODY_FREE;
        pthread_mutex_unlock(&all->lock);
    }

    static void body_free(Receiver *all) {
        close_wake_pipe(all->wake);
        close_wake_pipe(all->done);
        pthread_cond_destroy(&all->was_busy);
        pthread_mutex_destroy(&all->lock);
        free(all);
    }

    /* Return a new receiver, or NULL and set errno. */
    static Receiver *body_new(void) {
        Receiver *all = calloc(1, sizeof(Receiver));
        if (all == NULL) return NULL;
        all->wake[0] = all->wake[1] = all->done[0] = all->done[1] = -1;
        pthread_mutex_init(&all->lock, NULL);
        pthread_cond_init(&all->was_busy, NULL);
        if (open_wake_pipe(all->wake) == 0 && open_wake_pipe(all->done) == 0) return all;
        int problem = errno;
        body_free(all);
        errno = problem;
        return NULL;
    }

    static void body_stop(Receiver *all) {
        pthread_mutex_lock(&all->lock);
        all->is_stopped = 1;
        pthread_mutex_unlock(&all->lock);
        ring_wake_pipe(all->wake);
    }

    static void body_progress(Receiver *all, int number, size_t *filled, double *heard_s) {
        pthread_mutex_lock(&all->lock);
        *filled = all->bodies[number].filled;
        *heard_s = all->bodies[number].heard_s;
        pthread_mutex_unlock(&all->lock);
    }

    /* Free the place of an ended body from number `from` on. Return its number, or -1 if there is none. */
    static int body_take(Receiver *all, int from, size_t *filled, int *problem) {
        int found = -1;
        pthread_mutex_lock(&all->lock);
        for (int number = from; number < BODIES && found < 0; number++) {
            Body *body = &all->bodies[number];
            if (body->state != BODY_ENDED) continue;
            found = number;
            *filled = body->filled;
            *problem = body->problem;
            body->state = BODY_FREE;
        }
        pthread_mutex_unlock(&all->lock);
        return found;
    }

    static int body_done_file(Receiver *all) { return all->done[0]; }
    static void body_drain(Receiver *all) { drain_wake_pipe(all->done); }
    """
    ctypedef struct Receiver:
        pass

    Receiver *body_new()
    void body_free(Receiver *all)
    void body_run(Receiver *all) nogil
    void body_stop(Receiver *all) nogil
    int body_begin(Receiver *all, int file, char *start, size_t nbytes) nogil
    void body_cancel(Receiver *all, int number) nogil
    void body_progress(Receiver *all, int number, size_t *filled, double *heard_s) nogil
    int body_take(Receiver *all, int first, size_t *filled, int *problem) nogil
    int body_done_file(Receiver *all)
    void body_drain(Receiver *all) nogil


cdef class NativeBodyReceiver:
    """Receiver of response bodies; see :class:`.wire.body_receiver.BodyReceiver`."""

    cdef Receiver *_all
    cdef dict _buffers

    def __cinit__(self):
        self._all = body_new()
        if self._all == NULL:
            raise OSError(errno, "cannot open pipes")
        self._buffers = {}

    def __dealloc__(self):
        if self._all != NULL:
            body_free(self._all)

    @property
    def done_file(self):
        return body_done_file(self._all)

    def run(self):
        with nogil:
            body_run(self._all)

    def begin(self, int file, char[::1] into):
        cdef int number
        cdef size_t nbytes = into.shape[0]
        cdef char *start = &into[0]
        with nogil:
            number = body_begin(self._all, file, start, nbytes)
        if number >= 0:
            self._buffers[number] = into
        return number

    def progress(self, int number):
        cdef size_t filled = 0
        cdef double heard_s = 0
        body_progress(self._all, number, &filled, &heard_s)
        return filled, heard_s

    def take_ended(self):
        cdef size_t filled = 0
        cdef int problem = 0
        cdef int number = 0
        body_drain(self._all)
        ended = []
        while True:
            number = body_take(self._all, number, &filled, &problem)
            if number < 0:
                return ended
            del self._buffers[number]
            ended.append((number, filled, problem))

    def cancel(self, int number):
        with nogil:
            body_cancel(self._all, number)
        self._buffers.pop(number, None)

    def stop(self):
        body_stop(self._all)
