// The floor: the least that a single-threaded HTTP/1.1 server on Linux can spend on a request.
//
//     cc -O2 -o floor floor.c && ./floor PORT ANSWER_BYTES
//
// It keeps connections alive, finds the end of the head and Content-Length, reads the whole body,
// and writes a canned 200 of ANSWER_BYTES. It parses nothing else, checks nothing, and is only
// ever asked by well-behaved clients on this machine. Bench figures are ratios to it.

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 16 << 20, MAX_EVENTS = 64 };

typedef struct {
    int fd;
    char *buffer;
    size_t received;    // of the request being read
    size_t expected;    // head + body, 0 until the head is complete
    size_t unsent_from; // where the answer goes on, `answer_bytes` when it is all out
} Connection;

static char *answer;
static size_t answer_bytes;
static int poller;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int fd, unsigned events, void *owner, int operation) {
    struct epoll_event event = {.events = events, .data = {.ptr = owner}};
    if (epoll_ctl(poller, operation, fd, &event)) die("epoll_ctl");
}

static int listen_on(int port) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((unsigned short)port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address)) die("bind");
    if (listen(fd, 128)) die("listen");
    return fd;
}

static void build_answer(size_t body_bytes) {
    answer = malloc(body_bytes + 256);
    if (!answer) die("malloc");
    int head = sprintf(answer,
                       "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                       "content-length: %zu\r\n\r\n",
                       body_bytes);
    memset(answer + head, '1', body_bytes);
    answer_bytes = (size_t)head + body_bytes;
}

static void accept_one(int listener) {
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Connection *connection = calloc(1, sizeof *connection);
    if (!connection || !(connection->buffer = malloc(BUFFER_BYTES))) die("malloc");
    connection->fd = fd;
    connection->unsent_from = answer_bytes;
    watch(fd, EPOLLIN, connection, EPOLL_CTL_ADD);
}

static void drop(Connection *connection) {
    close(connection->fd);
    free(connection->buffer);
    free(connection);
}

// Bytes of head and body together, 0 while the head is incomplete.
static size_t request_bytes(const Connection *connection) {
    char *end = memmem(connection->buffer, connection->received, "\r\n\r\n", 4);
    if (!end) return 0;
    *end = 0; // strcasestr stops here; the head is not needed again
    char *length = strcasestr(connection->buffer, "content-length:");
    return (size_t)(end - connection->buffer) + 4 + (length ? (size_t)atol(length + 15) : 0);
}

static int send_rest(Connection *connection) {
    while (connection->unsent_from < answer_bytes) {
        ssize_t sent = send(connection->fd, answer + connection->unsent_from,
                            answer_bytes - connection->unsent_from, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            watch(connection->fd, EPOLLOUT, connection, EPOLL_CTL_MOD);
            return 0;
        }
        if (sent < 0) return -1;
        connection->unsent_from += (size_t)sent;
    }
    return 1;
}

static int read_some(Connection *connection) {
    ssize_t got = recv(connection->fd, connection->buffer + connection->received,
                       BUFFER_BYTES - connection->received, 0);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) return -1;
    connection->received += (size_t)got;
    if (!connection->expected) connection->expected = request_bytes(connection);
    if (!connection->expected || connection->received < connection->expected) return 0;
    connection->received = connection->expected = connection->unsent_from = 0;
    return send_rest(connection);
}

static void serve(Connection *connection, unsigned events) {
    if (!(events & EPOLLOUT)) {
        if (read_some(connection) < 0) drop(connection);
        return;
    }
    int state = send_rest(connection);
    if (state < 0) drop(connection);
    if (state > 0) watch(connection->fd, EPOLLIN, connection, EPOLL_CTL_MOD);
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: floor PORT ANSWER_BYTES\n");
        return 2;
    }
    build_answer((size_t)atol(words[2]));
    poller = epoll_create1(0);
    int listener = listen_on(atoi(words[1]));
    watch(listener, EPOLLIN, NULL, EPOLL_CTL_ADD);
    for (;;) {
        struct epoll_event events[MAX_EVENTS];
        int ready = epoll_wait(poller, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr)
                serve(events[i].data.ptr, events[i].events);
            else
                accept_one(listener);
        }
    }
}
