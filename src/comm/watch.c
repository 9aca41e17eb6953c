/* Heartbeats of our own, since MPI does not say that a rank is gone: it waits for it.
 *
 * Every rank has one TCP connection to rank 0 and a thread that sends a frame each BEAT and
 * listens. A connection that closes (the process was killed, or crashed) or is silent for
 * SILENCE (it was stopped, or its network is down) means that the rank is gone. Rank 0 tells all
 * others which one and why; when it is rank 0, all notice by themselves. The thread only notes
 * it: whoever waits for the others (join.c) sees the note and fails; what waits on a device is
 * ended (device.c).
 *
 * Ranks leave together: when all have done their work, each goes through the engine's close, which
 * cannot be interrupted, so the thread itself ends the process when a rank is gone; then all wait
 * until all have arrived, and rank 0 until the others have left. If after that the last process is
 * stopped before it ends, there is no rank to notice it.
 *
 * Frames are of one size. A token, known to the ranks alone, begins each connection. */
#define _GNU_SOURCE
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_MS = 500, SILENCE_MS = 4000, LINGER_MS = 2500, FIRST_MS = 2000 };
enum { CONNECT_MS = 3000, PLACES = 16, ATTEMPTS = 4 };

enum { FRAME_BEAT = 1, FRAME_END, FRAME_QUIT };

typedef struct frame {
    uint32_t kind;
    int32_t rank;
    char text[DRO__ERROR_SIZE - 8];
} frame;

typedef struct peer {
    int fd; /* -1: none, or it has left */
    int rank;
    int64_t seen; /* ms */
    frame in;
    size_t have; /* bytes of it */
    bool quit;   /* it has arrived at the end */
} peer;

/* Where rank 0 listens. */
typedef struct listening {
    uint8_t token[16];
    uint16_t port; /* network order */
    uint16_t count;
    uint32_t places[PLACES]; /* IPv4 addresses, network order */
} listening;

struct dro__watch {
    dro_comm *comm;
    peer *peers; /* rank 0: all others; else: rank 0 */
    int peer_count;
    struct pollfd *polled;
    pthread_t thread;
    bool running, slept;
    pid_t parent; /* mpirun, or its daemon */
    int wake[2];  /* a pipe: something to send, or to leave */
    pthread_mutex_t lock;
    frame out;         /* to send; kind 0 */
    int64_t failed_at; /* ms */
    atomic_bool failed, leaving, silent, ending;
    atomic_int quits, left; /* peers that have arrived at the end; that have left */
    atomic_bool first_left; /* rank 0 has closed its connection, or is gone */
    atomic_bool reports;    /* rank 0 is gone and cannot report what happened */
    atomic_bool given_up;   /* rank 0, which was suspended: another rank reports it */
    char text[DRO__ERROR_SIZE];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- while it goes on ---- */

static void note(dro__watch *w, const char *text)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->failed))
        snprintf(w->text, sizeof w->text, "%s", text), w->failed_at = now_ms();
    atomic_store(&w->failed, true);
    pthread_mutex_unlock(&w->lock);
    dro__comm_abort_device(w->comm);
}

/* A frame goes into the socket's buffer at once; if it does not fit, the other rank no longer
 * reads. */
static void send_frame(const peer *p, const frame *f)
{
    if (p->fd >= 0)
        (void)!send(p->fd, f, sizeof *f, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_all(const dro__watch *w, const frame *f)
{
    for (int k = 0; k < w->peer_count; k++)
        send_frame(&w->peers[k], f);
}

static void leave(dro__watch *w, peer *p)
{
    close(p->fd);
    p->fd = -1;
    atomic_fetch_add(&w->left, 1);
    if (p->rank == 0)
        atomic_store(&w->first_left, true);
}

static void lost(dro__watch *w, peer *p, const char *why)
{
    frame end = {.kind = FRAME_END, .rank = p->rank};
    if (atomic_load(&w->failed) || atomic_load(&w->leaving)) {
        leave(w, p);
        return;
    }
    snprintf(end.text, sizeof end.text, "rank %d on %s: %s", p->rank, w->comm->hosts[p->rank], why);
    if (p->rank == 0 && !w->slept && w->comm->rank == 1)
        atomic_store(&w->reports, true);
    note(w, end.text);
    send_all(w, &end); /* to that rank too: it may wake up, and then knows why it is alone */
    leave(w, p);
}

static void take_frame(dro__watch *w, peer *p)
{
    frame *f = &p->in;
    f->text[sizeof f->text - 1] = '\0';
    if (f->kind == FRAME_QUIT && !p->quit) {
        p->quit = true;
        atomic_fetch_add(&w->quits, 1);
    } else if (f->kind == FRAME_END && !atomic_load(&w->failed)) {
        atomic_store(&w->given_up, w->comm->rank == 0 && f->rank == 0);
        note(w, f->text);
        if (w->comm->rank == 0)
            send_all(w, f);
    }
}

static void receive(dro__watch *w, peer *p)
{
    for (;;) {
        ssize_t got = recv(p->fd, (char *)&p->in + p->have, sizeof p->in - p->have, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (got <= 0 && p->quit) {
            leave(w, p);
            return;
        }
        if (got <= 0) {
            lost(w, p, "its connection closed: it was killed, or it crashed");
            return;
        }
        p->seen = now_ms();
        p->have += (size_t)got;
        if (p->have < sizeof p->in)
            continue;
        p->have = 0;
        take_frame(w, p);
        if (p->fd < 0)
            return;
    }
}

/* Everything available was read. */
static void check_silence(dro__watch *w, int64_t now)
{
    char why[80];
    snprintf(why, sizeof why, "no sign of life for %d s: it was stopped, or its network is down",
             SILENCE_MS / 1000);
    for (int k = 0; k < w->peer_count; k++)
        if (w->peers[k].fd >= 0 && now - w->peers[k].seen > SILENCE_MS) {
            atomic_store(&w->silent, true);
            lost(w, &w->peers[k], why);
        }
}

static void wait_for_frames(dro__watch *w)
{
    char nothing[16];
    for (int k = 0; k < w->peer_count; k++)
        w->polled[k] = (struct pollfd){.fd = w->peers[k].fd, .events = POLLIN};
    w->polled[w->peer_count] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
    poll(w->polled, (nfds_t)w->peer_count + 1, BEAT_MS);
    (void)!read(w->wake[0], nothing, sizeof nothing);
}

/* This process itself was suspended. Perhaps all were: then they get their time again. Otherwise
 * the others have declared it gone, and it must not report them. */
static void wake_up(dro__watch *w, int64_t now, int64_t slept)
{
    if (slept < SILENCE_MS / 2)
        return;
    w->slept = slept >= SILENCE_MS;
    for (int k = 0; k < w->peer_count; k++)
        w->peers[k].seen = now;
}

static void send_frames(dro__watch *w, int64_t *sent)
{
    frame beat = {.kind = FRAME_BEAT, .rank = w->comm->rank};
    pthread_mutex_lock(&w->lock);
    if (w->out.kind)
        send_all(w, &w->out);
    w->out.kind = 0;
    pthread_mutex_unlock(&w->lock);
    if (now_ms() - *sent < BEAT_MS / 2)
        return;
    send_all(w, &beat);
    *sent = now_ms();
}

/* If a machine cannot be reached, mpirun should notice it itself (TCP keepalive) before it has to
 * tell that machine to end its ranks, because then it would wait. */
static void linger(const dro__watch *w)
{
    if (atomic_load(&w->silent))
        nanosleep(
            &(struct timespec){.tv_sec = LINGER_MS / 1000, .tv_nsec = LINGER_MS % 1000 * 1000000},
            NULL);
}

/* A rank is gone while this process is in a call that cannot be interrupted. When a rank ends,
 * mpirun ends the others, so the one that prints is first. */
static void end_process(const dro__watch *w)
{
    bool first = w->comm->rank == 0 || atomic_load(&w->reports);
    if (!first && !atomic_load(&w->first_left) && now_ms() - w->failed_at < FIRST_MS)
        return;
    if (dro_comm_prints(w->comm))
        fprintf(stderr, "dro: %s; all ranks had finished their work\n", w->text);
    linger(w);
    _exit(1);
}

static void *run(void *arg)
{
    dro__watch *w = arg;
    int64_t last = now_ms(), sent = 0;
    while (!atomic_load(&w->leaving)) {
        send_frames(w, &sent);
        wait_for_frames(w);
        int64_t now = now_ms();
        wake_up(w, now, now - last);
        last = now;
        for (int k = 0; k < w->peer_count; k++)
            if (w->peers[k].fd >= 0 && w->polled[k].revents)
                receive(w, &w->peers[k]);
        check_silence(w, now);
        if (getppid() != w->parent)
            note(w, "mpirun, or whatever has started the ranks, is gone");
        if (atomic_load(&w->ending) && atomic_load(&w->failed))
            end_process(w);
    }
    return NULL;
}

static void wake(dro__watch *w)
{
    (void)!write(w->wake[1], "x", 1);
}

/* ---- listening ---- */

static dro_status open_listener(dro_comm *c, listening *m, int *fd)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof here;
    struct ifaddrs *all = NULL;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&here, size) != 0 || listen(*fd, c->size) != 0 ||
        getsockname(*fd, (struct sockaddr *)&here, &size) != 0 || getifaddrs(&all) != 0 ||
        getrandom(m->token, sizeof m->token, 0) != sizeof m->token)
        return dro__fail(c->ctx, DRO_ERR_STATE, "no socket for the ranks' heartbeats: %s",
                         strerror(errno));
    m->port = here.sin_port;
    for (int loop = 0; loop < 2; loop++) /* last: the loopback of other machines is the same */
        for (const struct ifaddrs *i = all; i && m->count < PLACES; i = i->ifa_next)
            if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK) == !loop)
                m->places[m->count++] =
                    ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
    return DRO_OK;
}

static void set_options(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Reads everything within the time limit, or returns false. */
static bool transfer(int fd, void *bytes, size_t size, bool out, int64_t until)
{
    for (size_t done = 0; done < size;) {
        struct pollfd p = {.fd = fd, .events = out ? POLLOUT : POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            return false;
        ssize_t some = out ? send(fd, (char *)bytes + done, size - done, MSG_NOSIGNAL)
                           : recv(fd, (char *)bytes + done, size - done, 0);
        if (some < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (some <= 0)
            return false;
        done += (size_t)some;
    }
    return true;
}

typedef struct hello {
    uint8_t token[16];
    int32_t rank;
} hello;

/* Rank 0: accepts the connections of all others. */
static dro_status accept_all(dro__watch *w, const listening *m, int listener)
{
    dro_comm *c = w->comm;
    int64_t until = now_ms() + 1000 * dro__join_seconds();
    for (int found = 0; found < c->size - 1;) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int64_t left = until - now_ms();
        if (left <= 0) {
            int missing = 0;
            while (missing < w->peer_count && w->peers[missing].fd >= 0)
                missing++;
            return dro__fail(c->ctx, DRO_ERR_STATE,
                             "rank %d on %s did not connect to rank 0 on %s for heartbeats: is "
                             "there a firewall between them?",
                             missing + 1, c->hosts[missing + 1], c->hosts[0]);
        }
        poll(&p, 1, (int)left);
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        hello g = {.rank = -1}, again;
        if (fd < 0)
            continue;
        bool known = transfer(fd, &g, sizeof g, false, now_ms() + CONNECT_MS) &&
                     memcmp(g.token, m->token, sizeof g.token) == 0 && g.rank > 0 &&
                     g.rank < c->size && w->peers[g.rank - 1].fd < 0;
        if (!known || !transfer(fd, &g, sizeof g, true, now_ms() + CONNECT_MS) ||
            !transfer(fd, &again, sizeof again, false, now_ms() + CONNECT_MS)) {
            close(fd);
            continue;
        }
        w->peers[g.rank - 1].fd = fd;
        found++;
    }
    return DRO_OK;
}

static int connect_to(uint32_t place, uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = place};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if ((connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS) &&
        poll(&p, 1, CONNECT_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
        error == 0)
        return fd;
    close(fd);
    return -1;
}

/* Another rank: connects to rank 0 at the first of its addresses that answers with the token. More
 * than one attempt, as strangers who connect and send nothing keep rank 0 busy. Its own second
 * hello tells rank 0 that it has not given this attempt up. */
static dro_status find_first(dro__watch *w, const listening *m)
{
    dro_comm *c = w->comm;
    int64_t until = now_ms() + 1000 * dro__join_seconds();
    for (int k = 0; k < ATTEMPTS * m->count && now_ms() < until; k++) {
        hello g = {.rank = c->rank}, answer = {.rank = -1};
        int fd = connect_to(m->places[k % m->count], m->port);
        if (fd < 0)
            continue;
        memcpy(g.token, m->token, sizeof g.token);
        if (transfer(fd, &g, sizeof g, true, now_ms() + CONNECT_MS) &&
            transfer(fd, &answer, sizeof answer, false, now_ms() + CONNECT_MS) &&
            memcmp(&g, &answer, sizeof g) == 0 &&
            transfer(fd, &g, sizeof g, true, now_ms() + CONNECT_MS)) {
            w->peers[0].fd = fd;
            return DRO_OK;
        }
        close(fd);
    }
    return dro__fail(c->ctx, DRO_ERR_STATE,
                     "rank %d on %s cannot connect to rank 0 on %s for heartbeats: is there a "
                     "firewall between them?",
                     c->rank, c->hosts[c->rank], c->hosts[0]);
}

static dro_status connect_ranks(dro__watch *w)
{
    dro_comm *c = w->comm;
    listening m = {.count = 0};
    int listener = -1;
    dro_status status = c->rank == 0 ? open_listener(c, &m, &listener) : DRO_OK;
    dro_status shared = dro__comm_share(c, &m, sizeof m, 0);
    if (status == DRO_OK)
        status = shared;
    if (status == DRO_OK)
        status = c->rank == 0 ? accept_all(w, &m, listener) : find_first(w, &m);
    if (listener >= 0)
        close(listener);
    for (int k = 0; k < w->peer_count && status == DRO_OK; k++) {
        set_options(w->peers[k].fd);
        w->peers[k].seen = now_ms();
    }
    return status;
}

/* ---- life ---- */

/* After a failure rank 0 reports it and closes its connection. If another rank ended before that,
 * mpirun would end rank 0 too early. */
static bool wait_for_first(dro__watch *w)
{
    int64_t until = now_ms() + FIRST_MS;
    while (w->comm->rank > 0 && now_ms() < until && !atomic_load(&w->first_left))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return w->comm->rank == 0 || atomic_load(&w->first_left);
}

dro_status dro__watch_open(dro_comm *c, dro__watch **watch)
{
    dro__watch *w = dro__alloc(1, sizeof *w);
    int count = c->rank == 0 ? c->size - 1 : 1;
    *watch = w;
    if (!w)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for heartbeats");
    w->comm = c;
    w->parent = getppid();
    w->wake[0] = w->wake[1] = -1;
    pthread_mutex_init(&w->lock, NULL);
    w->peers = dro__alloc((size_t)count, sizeof *w->peers);
    w->polled = dro__alloc((size_t)count + 1, sizeof *w->polled);
    if (!w->peers || !w->polled || pipe2(w->wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for heartbeats");
    w->peer_count = count;
    for (int k = 0; k < count; k++)
        w->peers[k] = (peer){.fd = -1, .rank = c->rank == 0 ? k + 1 : 0};
    DRO_TRY(connect_ranks(w));
    w->running = pthread_create(&w->thread, NULL, run, w) == 0;
    return w->running ? DRO_OK : dro__fail(c->ctx, DRO_ERR_MEMORY, "no thread for the heartbeats");
}

/* Sends a frame to all peers; returns when it is sent, as this process may end at once. */
static void post(dro__watch *w, uint32_t kind, const char *text)
{
    pthread_mutex_lock(&w->lock);
    w->out = (frame){.kind = kind, .rank = w->comm->rank};
    snprintf(w->out.text, sizeof w->out.text, "%s", text);
    pthread_mutex_unlock(&w->lock);
    wake(w);
    for (int k = 0; k < 100; k++) {
        pthread_mutex_lock(&w->lock);
        bool sent = w->out.kind == 0;
        pthread_mutex_unlock(&w->lock);
        if (sent)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

void dro__watch_ending(dro__watch *w)
{
    if (w)
        atomic_store(&w->ending, true);
}

static void wait_for(const atomic_int *counter, int count)
{
    while (atomic_load(counter) < count)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* All tell rank 0 that they are here, then rank 0 tells all, and they leave. */
static void leave_together(dro__watch *w)
{
    if (w->comm->rank > 0)
        post(w, FRAME_QUIT, "");
    wait_for(&w->quits, w->peer_count);
    if (w->comm->rank > 0)
        return;
    post(w, FRAME_QUIT, "");
    wait_for(&w->left, w->peer_count);
}

void dro__watch_close(dro__watch *w, bool clean)
{
    if (!w)
        return;
    if (!clean)
        linger(w);
    if (!clean && w->running && !atomic_load(&w->reports))
        wait_for_first(w);
    if (clean)
        leave_together(w);
    atomic_store(&w->leaving, true);
    if (w->running) {
        wake(w);
        pthread_join(w->thread, NULL);
    }
    for (int k = 0; w->peers && k < w->peer_count; k++)
        if (w->peers[k].fd >= 0)
            close(w->peers[k].fd);
    for (int k = 0; k < 2; k++)
        if (w->wake[k] >= 0)
            close(w->wake[k]);
    pthread_mutex_destroy(&w->lock);
    dro__free(w->peers);
    dro__free(w->polled);
    dro__free(w);
}

bool dro__watch_failed(dro__watch *w, char text[DRO__ERROR_SIZE])
{
    if (!w || !atomic_load(&w->failed))
        return false;
    pthread_mutex_lock(&w->lock);
    if (text)
        memcpy(text, w->text, sizeof w->text);
    pthread_mutex_unlock(&w->lock);
    return true;
}

bool dro__watch_speaks(dro__watch *w)
{
    return w && atomic_load(&w->reports);
}

bool dro__watch_given_up(dro__watch *w)
{
    return w && atomic_load(&w->given_up);
}

void dro__watch_announce(dro__watch *w, const char *text)
{
    post(w, FRAME_END, text);
    /* and rank 0 has reported it; otherwise this rank must */
    if (!wait_for_first(w))
        atomic_store(&w->reports, true);
}
