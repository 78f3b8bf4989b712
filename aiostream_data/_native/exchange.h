/* GET requests over keep-alive sockets, on worker threads without the GIL.

   Requests wait in queues. Each connection belongs to a queue, and sends the next request of its queue when it has
   received a response. One worker serves each connection. Other threads may call every function except
   `exchange_run`.

   The worker owns a connection while `is_busy` is set, so it calls send() and recv() without the lock. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "wake_pipe.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SO_NOSIGPIPE is set on the sockets of asyncio */
#endif

enum { HEAD_NBYTES = 8 << 10, BODY_STEP = 1 << 20, MOST_FIELDS = 256 };
enum { MOST_CONNECTIONS = 1024 };
enum { WAITING, RUNNING, ENDED }; /* states of a request */
enum { CLOSED = -1, SILENT = -2, UNUSUAL = -3 }; /* problems; others are values of errno */

typedef struct Request {
    struct Request *next;
    int number, queue, state, problem, connection;
    const char *text;
    size_t text_nbytes, sent;
    char *into;
    size_t nbytes, filled;
    char *head;
    size_t head_nbytes;
    double sent_s, first_s, heard_s;
} Request;

typedef struct {
    int number, file, queue, worker, is_busy, is_cancelled, in_body, closes, is_usable;
    Request *request; /* NULL after the connection has left */
    size_t head_filled;
    char head[HEAD_NBYTES];
} Connection;

typedef struct {
    Request *first, *last;
    int waiting, retiring, is_open;
} Queue;

/* One thread. `was_woken`: a byte is in the pipe. */
typedef struct {
    int wake[2], was_woken;
    struct pollfd files[MOST_CONNECTIONS + 1];
    int numbers[MOST_CONNECTIONS];
} Worker;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t was_busy;
    int is_stopped, done[2], has_told; /* `has_told`: a byte is in the pipe */
    Worker *workers;
    int worker_count;
    double first_byte_s, idle_s, total_s;
    Request **requests; /* by number */
    int request_count, first_free; /* numbers below `first_free` are in use */
    Queue *queues;
    int queue_count;
    Request *first_ended, *last_ended;
    Connection *connections[MOST_CONNECTIONS];
    int connection_count; /* numbers from here on are free */
} Exchange;

/* Write to a pipe, unless its reader has yet to read an earlier byte. */
static void exchange_ring(const int *ends, int *is_full) {
    if (!*is_full) ring_wake_pipe(ends);
    *is_full = 1;
}

/* -- response heads */

static int is_token(unsigned char each) {
    if ((each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9')) return 1;
    return each != 0 && strchr("!#$%&'*+-.^_`|~", each) != NULL;
}

static int is_value(unsigned char each) { return each == '\t' || (each >= 0x20 && each != 0x7f); }

static int is_name(const char *name, size_t nbytes, const char *wanted) {
    return nbytes == strlen(wanted) && strncasecmp(name, wanted, nbytes) == 0;
}

/* Return the body length of a complete head, or -1 if Python must judge the head.

   This function accepts only what the strict parser in `wire/answer_head.py` accepts, too: a response with status 200
   or 206, one Content-Length, and no transfer or content coding. `closes`: the server closes the connection after it. */
static long long head_length(const char *head, size_t nbytes, int *closes) {
    const char *at = head, *end = head + nbytes - 2; /* the empty line */
    long long length = -1;
    int fields = 0, options = 0;
    if (nbytes < 17 || memcmp(end, "\r\n", 2) != 0 || memcmp(at, "HTTP/1.", 7) != 0) return -1;
    if ((at[7] != '0' && at[7] != '1') || memcmp(at + 8, " 20", 3) != 0 || (at[11] != '0' && at[11] != '6')) return -1;
    *closes = at[7] == '0';
    at += 12;
    if (*at != ' ' && *at != '\r') return -1;
    while (at < end && is_value((unsigned char)*at)) at++;
    if (at + 2 > end || at[0] != '\r' || at[1] != '\n') return -1;
    at += 2;
    while (at < end) {
        const char *name = at;
        while (at < end && is_token((unsigned char)*at)) at++;
        size_t name_nbytes = (size_t)(at - name);
        if (name_nbytes == 0 || at == end || *at != ':' || ++fields > MOST_FIELDS) return -1;
        at++;
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        const char *value = at;
        while (at < end && is_value((unsigned char)*at)) at++;
        size_t value_nbytes = (size_t)(at - value);
        if (at + 2 > end || at[0] != '\r' || at[1] != '\n') return -1;
        at += 2;
        if (is_name(name, name_nbytes, "content-length")) {
            if (length >= 0 || value_nbytes < 1 || value_nbytes > 18) return -1;
            length = 0;
            for (size_t place = 0; place < value_nbytes; place++) {
                if (value[place] < '0' || value[place] > '9') return -1;
                length = 10 * length + (value[place] - '0');
            }
        } else if (is_name(name, name_nbytes, "transfer-encoding") || is_name(name, name_nbytes, "content-encoding")) {
            return -1;
        } else if (is_name(name, name_nbytes, "connection")) {
            int asks_to_close = is_name(value, value_nbytes, "close");
            if (options++ > 0 || (!asks_to_close && !is_name(value, value_nbytes, "keep-alive"))) return -1;
            *closes |= asks_to_close;
        }
    }
    return length;
}

/* Return the number of bytes of a complete head at the beginning of `bytes`, or 0. */
static size_t head_end(const char *bytes, size_t nbytes, size_t searched) {
    for (size_t at = searched > 3 ? searched - 3 : 0; at + 4 <= nbytes; at++) {
        const char *found = memchr(bytes + at, '\r', nbytes - at - 3);
        if (found == NULL) return 0;
        at = (size_t)(found - bytes);
        if (memcmp(found, "\r\n\r\n", 4) == 0) return at + 4;
    }
    return 0;
}

/* -- one connection. These functions hold the lock unless their name says otherwise. */

static void queue_push(Queue *queue, Request *request) {
    request->next = NULL;
    if (queue->last != NULL) queue->last->next = request;
    else queue->first = request;
    queue->last = request;
    queue->waiting++;
}

/* Remove and return the first request of a queue, or NULL. */
static Request *queue_pop(Queue *queue) {
    Request *request = queue->first;
    if (request == NULL) return NULL;
    queue->first = request->next;
    if (queue->first == NULL) queue->last = NULL;
    queue->waiting--;
    request->next = NULL;
    return request;
}

static void queue_remove(Queue *queue, Request *removed) {
    Request *before = NULL;
    for (Request *each = queue->first; each != NULL; before = each, each = each->next) {
        if (each != removed) continue;
        if (before != NULL) before->next = each->next;
        else queue->first = each->next;
        if (queue->last == each) queue->last = before;
        queue->waiting--;
        return;
    }
}

static void connection_assign(Connection *connection, Request *request) {
    request->state = RUNNING;
    request->connection = connection->number;
    request->sent_s = monotonic_s();
    request->first_s = request->heard_s = 0;
    connection->request = request;
    connection->head_filled = 0;
    connection->in_body = connection->closes = 0;
}

static void request_ends(Exchange *all, Request *request, int problem) {
    request->state = ENDED;
    request->problem = problem;
    request->next = NULL;
    if (all->last_ended != NULL) all->last_ended->next = request;
    else all->first_ended = request;
    all->last_ended = request;
}

/* Send and receive as much as possible without waiting and without the lock.

   Return 0 if the response is complete, EAGAIN if it is not, or the problem that ended the connection. */
static int connection_moves_unlocked(Connection *connection, Request *request) {
    while (request->sent < request->text_nbytes) {
        ssize_t sent = send(connection->file, request->text + request->sent, request->text_nbytes - request->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) request->sent += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) return EAGAIN;
        else if (errno != EINTR) return errno;
    }
    for (;;) {
        char *at = connection->in_body ? request->into + request->filled : connection->head + connection->head_filled;
        size_t room = connection->in_body ? request->nbytes - request->filled : HEAD_NBYTES - connection->head_filled;
        if (connection->in_body && room == 0) return 0;
        ssize_t got = recv(connection->file, at, room < BODY_STEP ? room : BODY_STEP, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
        if (got == 0) return CLOSED;
        request->heard_s = monotonic_s();
        if (connection->in_body) {
            request->filled += (size_t)got;
            if (request->filled < request->nbytes && (size_t)got < room && got < BODY_STEP) return EAGAIN;
            continue;
        }
        if (request->first_s == 0) request->first_s = request->heard_s;
        size_t searched = connection->head_filled, end;
        connection->head_filled += (size_t)got;
        end = head_end(connection->head, connection->head_filled, searched);
        if (end == 0) {
            if (connection->head_filled == HEAD_NBYTES) return UNUSUAL;
            continue;
        }
        size_t rest = connection->head_filled - end;
        request->head = malloc(end);
        if (request->head == NULL) return ENOMEM;
        memcpy(request->head, connection->head, end);
        request->head_nbytes = end;
        if (head_length(connection->head, end, &connection->closes) != (long long)request->nbytes || rest > request->nbytes) return UNUSUAL;
        memcpy(request->into, connection->head + end, rest);
        request->filled = rest;
        connection->in_body = 1;
    }
}

/* Return 1 if the server keeps the connection and sent nothing after the response, so another request may follow. */
static int connection_stays_unlocked(const Connection *connection) {
    char byte;
    if (connection->closes) return 0;
    ssize_t got = recv(connection->file, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Let a connection make progress. Return 1 if a request has ended. */
static int connection_step(Exchange *all, Connection *connection) {
    int has_ended = 0;
    while (connection->request != NULL && !connection->is_cancelled) {
        Request *request = connection->request;
        connection->is_busy = 1;
        pthread_mutex_unlock(&all->lock);
        int problem = connection_moves_unlocked(connection, request);
        int stays = problem == 0 && connection_stays_unlocked(connection);
        pthread_mutex_lock(&all->lock);
        connection->is_busy = 0;
        if (connection->is_cancelled) pthread_cond_broadcast(&all->was_busy);
        if (problem == EAGAIN || connection->is_cancelled) break;
        has_ended = 1;
        request_ends(all, request, problem);
        Queue *queue = &all->queues[connection->queue];
        Request *next = NULL;
        connection->is_usable = stays;
        if (stays && queue->retiring > 0) queue->retiring--;
        else if (stays) next = queue_pop(queue);
        connection->request = NULL;
        if (next != NULL) connection_assign(connection, next);
    }
    return has_ended;
}

/* -- the thread */

/* Return the time at which a request times out. */
static double deadline_of(const Exchange *all, const Request *request) {
    double heard_s = request->heard_s > 0 ? request->heard_s + all->idle_s : request->sent_s + all->first_byte_s;
    double total_s = request->sent_s + all->total_s;
    return heard_s < total_s ? heard_s : total_s;
}

static int is_served(const Connection *connection, int worker) {
    return connection != NULL && connection->worker == worker && connection->request != NULL &&
           !connection->is_cancelled;
}

/* Fill the list of files that a worker waits for. Return their number, and set the time of the first timeout. */
static int exchange_collect(Exchange *all, int worker, double *first_deadline_s) {
    Worker *own = &all->workers[worker];
    int count = 0;
    *first_deadline_s = -1;
    for (int number = 0; number < all->connection_count; number++) {
        Connection *connection = all->connections[number];
        if (!is_served(connection, worker)) continue;
        Request *request = connection->request;
        double deadline_s = deadline_of(all, request);
        if (*first_deadline_s < 0 || deadline_s < *first_deadline_s) *first_deadline_s = deadline_s;
        own->numbers[count] = number;
        own->files[count].fd = connection->file;
        own->files[count].events = request->sent < request->text_nbytes ? POLLOUT : POLLIN;
        own->files[count++].revents = 0;
    }
    own->files[count].fd = own->wake[0];
    own->files[count].events = POLLIN;
    own->files[count].revents = 0;
    return count;
}

/* Fail the requests of a worker that have timed out. Return 1 if there were any. */
static int exchange_expire(Exchange *all, int worker, double now) {
    int has_ended = 0;
    for (int number = 0; number < all->connection_count; number++) {
        Connection *connection = all->connections[number];
        if (!is_served(connection, worker)) continue;
        if (deadline_of(all, connection->request) > now) continue;
        request_ends(all, connection->request, SILENT);
        connection->request = NULL;
        connection->is_usable = 0;
        has_ended = 1;
    }
    return has_ended;
}

static int wait_ms_until(double deadline_s) {
    double wait_s = deadline_s - monotonic_s();
    if (deadline_s < 0) return -1;
    return wait_s <= 0 ? 0 : wait_s > 3600 ? 3600000 : (int)(wait_s * 1e3) + 1;
}

static void exchange_run(Exchange *all, int worker) {
    Worker *own = &all->workers[worker];
    pthread_mutex_lock(&all->lock);
    while (!all->is_stopped) {
        double deadline_s;
        int count = exchange_collect(all, worker, &deadline_s), has_ended = 0;
        pthread_mutex_unlock(&all->lock);
        int ready = poll(own->files, (nfds_t)(count + 1), wait_ms_until(deadline_s));
        pthread_mutex_lock(&all->lock);
        if (ready > 0 && own->files[count].revents) {
            drain_wake_pipe(own->wake);
            own->was_woken = 0;
        }
        for (int place = 0; ready > 0 && place < count; place++) {
            if (!own->files[place].revents) continue;
            /* The number may belong to a newer connection by now. A step that comes too early does no harm. */
            Connection *connection = all->connections[own->numbers[place]];
            if (is_served(connection, worker)) has_ended |= connection_step(all, connection);
        }
        double now = monotonic_s();
        if (deadline_s >= 0 && deadline_s <= now) has_ended |= exchange_expire(all, worker, now);
        if (has_ended) exchange_ring(all->done, &all->has_told);
    }
    pthread_mutex_unlock(&all->lock);
}

/* -- called by other threads */

static void request_free(Request *request) {
    if (request != NULL) free(request->head);
    free(request);
}

static void exchange_free(Exchange *all) {
    for (int number = 0; number < all->request_count; number++) request_free(all->requests[number]);
    for (int number = 0; number < all->connection_count; number++) free(all->connections[number]);
    close_wake_pipe(all->done);
    for (int worker = 0; worker < all->worker_count; worker++) close_wake_pipe(all->workers[worker].wake);
    free(all->workers);
    pthread_cond_destroy(&all->was_busy);
    pthread_mutex_destroy(&all->lock);
    free(all->requests);
    free(all->queues);
    free(all);
}

/* Return a new exchange, or NULL and set errno. Call `exchange_run` once on a thread for each worker. */
static Exchange *exchange_new(int workers, double first_byte_s, double idle_s, double total_s) {
    Exchange *all = calloc(1, sizeof *all);
    if (all == NULL) return NULL;
    all->first_byte_s = first_byte_s;
    all->idle_s = idle_s;
    all->total_s = total_s;
    all->done[0] = all->done[1] = -1;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->was_busy, NULL);
    all->workers = calloc((size_t)workers, sizeof *all->workers);
    int is_open = all->workers != NULL && open_wake_pipe(all->done) == 0;
    while (is_open && all->worker_count < workers) {
        is_open = open_wake_pipe(all->workers[all->worker_count].wake) == 0;
        all->worker_count += is_open;
    }
    if (is_open) return all;
    int problem = errno;
    exchange_free(all);
    errno = problem;
    return NULL;
}

static void exchange_stop(Exchange *all) {
    pthread_mutex_lock(&all->lock);
    all->is_stopped = 1;
    for (int worker = 0; worker < all->worker_count; worker++)
        exchange_ring(all->workers[worker].wake, &all->workers[worker].was_woken);
    pthread_mutex_unlock(&all->lock);
}

static int exchange_done_file(const Exchange *all) { return all->done[0]; }

/* Return the number of a new queue, or -1 without memory. */
static int exchange_open_queue(Exchange *all) {
    int number = 0;
    pthread_mutex_lock(&all->lock);
    while (number < all->queue_count && all->queues[number].is_open) number++;
    if (number == all->queue_count) {
        int count = 2 * all->queue_count + 8;
        Queue *queues = realloc(all->queues, (size_t)count * sizeof *queues);
        if (queues == NULL) number = -1;
        else {
            memset(queues + all->queue_count, 0, (size_t)(count - all->queue_count) * sizeof *queues);
            all->queues = queues;
            all->queue_count = count;
        }
    }
    if (number >= 0) {
        memset(&all->queues[number], 0, sizeof *all->queues);
        all->queues[number].is_open = 1;
    }
    pthread_mutex_unlock(&all->lock);
    return number;
}

/* Close a queue without requests and connections. */
static void exchange_close_queue(Exchange *all, int queue) {
    pthread_mutex_lock(&all->lock);
    all->queues[queue].is_open = 0;
    pthread_mutex_unlock(&all->lock);
}

/* Give a request a number. Return 0 without memory. */
static int exchange_number(Exchange *all, Request *request) {
    int number = all->first_free;
    while (number < all->request_count && all->requests[number] != NULL) number++;
    if (number == all->request_count) {
        int count = 2 * all->request_count + 64;
        Request **requests = realloc(all->requests, (size_t)count * sizeof *requests);
        if (requests == NULL) return 0;
        memset(requests + all->request_count, 0, (size_t)(count - all->request_count) * sizeof *requests);
        all->requests = requests;
        all->request_count = count;
    }
    all->requests[number] = request;
    all->first_free = number + 1;
    request->number = number;
    return 1;
}

static void exchange_forget(Exchange *all, const Request *request) {
    all->requests[request->number] = NULL;
    if (request->number < all->first_free) all->first_free = request->number;
}

/* Append a request to a queue. Return its number, or -1 without memory. */
static int exchange_put(Exchange *all, int queue, const char *text, size_t text_nbytes, char *into, size_t nbytes) {
    Request *request = calloc(1, sizeof *request);
    if (request == NULL) return -1;
    request->queue = queue;
    request->text = text;
    request->text_nbytes = text_nbytes;
    request->into = into;
    request->nbytes = nbytes;
    pthread_mutex_lock(&all->lock);
    int has_number = exchange_number(all, request);
    if (has_number) queue_push(&all->queues[queue], request);
    pthread_mutex_unlock(&all->lock);
    if (has_number) return request->number;
    free(request);
    return -1;
}

static int exchange_waiting(Exchange *all, int queue) {
    pthread_mutex_lock(&all->lock);
    int waiting = all->queues[queue].waiting;
    pthread_mutex_unlock(&all->lock);
    return waiting;
}

/* Let up to `count` connections of a queue leave after their current request, instead of those of earlier calls. */
static void exchange_retire(Exchange *all, int queue, int count) {
    pthread_mutex_lock(&all->lock);
    all->queues[queue].retiring = count;
    pthread_mutex_unlock(&all->lock);
}

/* Send the next request of a queue over a connection. Return the number of the connection.

   Return -1 if no request waits, or if there are too many connections. */
static int exchange_add(Exchange *all, int queue, int file) {
    int number = 0;
    Connection *connection = malloc(sizeof *connection);
    if (connection == NULL) return -1;
    memset(connection, 0, offsetof(Connection, head));
    pthread_mutex_lock(&all->lock);
    while (number < all->connection_count && all->connections[number] != NULL) number++;
    Request *request = number < MOST_CONNECTIONS ? queue_pop(&all->queues[queue]) : NULL;
    if (request != NULL) {
        if (number == all->connection_count) all->connection_count++;
        all->connections[number] = connection;
        connection->number = number;
        connection->file = file;
        connection->queue = queue;
        connection->worker = number % all->worker_count;
        connection_assign(connection, request);
        Worker *worker = &all->workers[connection->worker];
        exchange_ring(worker->wake, &worker->was_woken);
    }
    pthread_mutex_unlock(&all->lock);
    if (request != NULL) return number;
    free(connection);
    return -1;
}

static void exchange_remove_connection(Exchange *all, int number) {
    free(all->connections[number]);
    all->connections[number] = NULL;
    while (all->connection_count > 0 && all->connections[all->connection_count - 1] == NULL) all->connection_count--;
}

static void exchange_remove_ended(Exchange *all, Request *removed) {
    Request *before = NULL;
    for (Request *each = all->first_ended; each != removed; each = each->next) before = each;
    if (before != NULL) before->next = removed->next;
    else all->first_ended = removed->next;
    if (all->last_ended == removed) all->last_ended = before;
}

/* Remove a request. Afterwards, nothing writes to its buffer.

   If a connection had sent the request, remove the connection, and return its number. Otherwise, return -1. */
static int exchange_cancel(Exchange *all, int number) {
    int removed = -1;
    pthread_mutex_lock(&all->lock);
    Request *request = all->requests[number];
    if (request->state == RUNNING) {
        Connection *connection = all->connections[request->connection];
        connection->is_cancelled = 1;
        while (connection->is_busy) pthread_cond_wait(&all->was_busy, &all->lock);
        removed = connection->number;
        exchange_remove_connection(all, removed);
    } else if (request->state == WAITING) {
        queue_remove(&all->queues[request->queue], request);
    } else {
        exchange_remove_ended(all, request);
    }
    exchange_forget(all, request);
    pthread_mutex_unlock(&all->lock);
    request_free(request);
    return removed;
}

/* Remove all requests that have ended, and the connections that have left. Return the list of requests.

   Args:
       left, is_usable: arrays of MOST_CONNECTIONS places for the numbers of the connections
       left_count: number of these connections */
static Request *exchange_take(Exchange *all, int *left, int *is_usable, int *left_count) {
    pthread_mutex_lock(&all->lock);
    drain_wake_pipe(all->done);
    all->has_told = 0;
    Request *ended = all->first_ended;
    all->first_ended = all->last_ended = NULL;
    for (Request *each = ended; each != NULL; each = each->next) exchange_forget(all, each);
    *left_count = 0;
    for (int number = 0; number < all->connection_count; number++) {
        Connection *connection = all->connections[number];
        if (connection == NULL || connection->request != NULL) continue;
        left[*left_count] = number;
        is_usable[(*left_count)++] = connection->is_usable;
        free(connection);
        all->connections[number] = NULL;
    }
    while (all->connection_count > 0 && all->connections[all->connection_count - 1] == NULL) all->connection_count--;
    pthread_mutex_unlock(&all->lock);
    return ended;
}
