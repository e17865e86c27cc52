#include "parallel/fabric/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct entry {
    enum ax_role role;
    int group, member, size; /* the group's first world rank, this rank's place, how many */
    uint64_t ticket, number;
    enum ax_collective_kind kind;
    enum ax_reduction reduction;
    enum ax_dtype dtype;
    int64_t count;
    int root, send, recv;
    atomic_bool done;
};

struct ax_flight {
    int rank, world;
    _Atomic uint64_t n; /* so far; number i is entry i % KEPT */
    _Atomic uint64_t done_to[AX_ROLE_COUNT];
    struct entry kept[AX_FLIGHT_KEPT];
};

/* Records of this process, for the signal's handler. */
enum { RECORDS = 128 };
static struct ax_flight *_Atomic records[RECORDS];
static const char *_Atomic folder;

/* ---- writing: only async-signal-safe calls ---- */

struct out {
    int fd;
    size_t n;
    char text[1024];
};

static void flush(struct out *o) {
    const char *at = o->text;
    while (o->n > 0) {
        const ssize_t done = write(o->fd, at, o->n);
        if (done <= 0)
            break; /* nobody is there to be told */
        at += done;
        o->n -= (size_t)done;
    }
    o->n = 0;
}

static void put(struct out *o, const char *text) {
    for (; *text; text++) {
        if (o->n == sizeof o->text)
            flush(o);
        o->text[o->n++] = *text;
    }
}

static void put_number(struct out *o, int64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0)
        digits[--at] = '-';
    put(o, digits + at);
}

static void put_entry(struct out *o, const struct entry *e, bool done) {
    const int64_t numbers[] = {e->group, e->member, e->size, (int64_t)e->number};
    const int64_t more[] = {e->count, e->root, e->send, e->recv};
    put(o, ax_role_name(e->role));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put(o, "\t");
        put_number(o, numbers[i]);
    }
    put(o, "\t");
    put(o, ax_collective_name(e->kind));
    put(o, e->reduction == AX_MAX ? "\tmax\t" : "\tsum\t");
    put(o, ax_dtype_info(e->dtype)->name);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        put(o, "\t");
        put_number(o, more[i]);
    }
    put(o, done ? "\tdone\n" : "\tstarted\n");
}

/* DIR/rank-N.tsv */
static int open_file(const char *dir, int rank) {
    char path[PATH_MAX];
    struct out o = {.fd = -1};
    if (strlen(dir) + 32 > sizeof path)
        return -1;
    put(&o, "/rank-");
    put_number(&o, rank);
    put(&o, ".tsv");
    memcpy(path, dir, strlen(dir));
    memcpy(path + strlen(dir), o.text, o.n);
    path[strlen(dir) + o.n] = '\0';
    (void)mkdir(dir, 0777); /* it may be there, but as a link it may lead anywhere */
    const int at = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return -1;
    const int fd = openat(at, path + strlen(dir) + 1,
                          O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    (void)close(at);
    return fd;
}

void ax_flight_write(const struct ax_flight *f) {
    const char *dir = folder;
    if (!f || !dir)
        return;
    struct out o = {.fd = open_file(dir, f->rank)};
    const uint64_t n = f->n;
    if (o.fd < 0)
        return;
    put(&o, "flight\t");
    put_number(&o, AX_FLIGHT_VERSION);
    put(&o, "\t");
    put_number(&o, f->rank);
    put(&o, "\t");
    put_number(&o, f->world);
    put(&o, "\t");
    put_number(&o, (int64_t)n);
    put(&o, "\nrole\tgroup\tmember\tsize\tnumber\tkind\treduction\tdtype\tcount\troot\tsend\trecv\t"
            "state\n");
    for (uint64_t i = n > AX_FLIGHT_KEPT ? n - AX_FLIGHT_KEPT : 0; i < n; i++) {
        const struct entry *e = &f->kept[i % AX_FLIGHT_KEPT];
        put_entry(&o, e, e->done || e->ticket <= f->done_to[e->role]);
    }
    flush(&o);
    (void)close(o.fd);
}

static void on_signal(int sig) {
    const int saved = errno;
    (void)sig;
    for (int i = 0; i < RECORDS; i++)
        ax_flight_write(records[i]);
    errno = saved;
}

/* Ranks that are threads of this process may say the same. The handler may be reading the last one. */
static void set_folder(const char *dir) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char names[2][PATH_MAX];
    static int last;
    pthread_mutex_lock(&lock);
    const char *now = folder;
    if (!dir) {
        folder = NULL;
    } else if (!now || strcmp(now, dir) != 0) {
        last = 1 - last;
        snprintf(names[last], sizeof names[last], "%s", dir);
        folder = names[last];
    }
    pthread_mutex_unlock(&lock);
}

void ax_flight_to(const char *dir) {
    static atomic_bool handled;
    set_folder(dir);
    if (!dir || atomic_exchange(&handled, true))
        return;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGUSR2, &action, NULL);
}

/* ---- recording ---- */

enum ax_status ax_flight_create(struct ax_flight **f, int rank, int world) {
    *f = NULL;
    if (!folder || world < 2)
        return AX_OK;
    AX_TRY(ax_alloc(f, 1, sizeof **f));
    (*f)->rank = rank;
    (*f)->world = world;
    for (int i = 0; i < RECORDS; i++) {
        struct ax_flight *none = NULL;
        if (atomic_compare_exchange_strong(&records[i], &none, *f))
            break;
    }
    return AX_OK;
}

void ax_flight_free(struct ax_flight *f) {
    for (int i = 0; f && i < RECORDS; i++) {
        struct ax_flight *own = f;
        atomic_compare_exchange_strong(&records[i], &own, NULL);
    }
    ax_free(f);
}

void ax_flight_note(struct ax_flight *f, const struct ax_comm *c,
                    const struct ax_collective *what) {
    const bool message = what->kind == AX_SEND_RECV;
    const uint64_t messages = c->calls[AX_SEND_RECV];
    if (!f || c->size < 2)
        return;
    struct entry *e = &f->kept[f->n % AX_FLIGHT_KEPT];
    *e = (struct entry){.role = c->role,
                        .group = c->group,
                        .member = c->rank,
                        .size = c->size,
                        .ticket = c->sequence,
                        .number = message ? messages : c->sequence - messages,
                        .kind = what->kind,
                        .reduction = what->reduction,
                        .dtype = what->dtype,
                        .count = what->kind == AX_ALL_TO_ALL_V ? 0 : what->count,
                        .root = what->kind == AX_BROADCAST ? what->root : -1,
                        .send = message ? what->send_peer : -1,
                        .recv = message ? what->recv_peer : -1};
    f->n++;
}

void ax_flight_done(struct ax_flight *f, const struct ax_comm *c, struct ax_ticket ticket) {
    if (!f)
        return;
    const uint64_t n = f->n;
    for (uint64_t i = n; i > 0 && n - i < AX_FLIGHT_KEPT; i--) {
        struct entry *e = &f->kept[(i - 1) % AX_FLIGHT_KEPT];
        if (e->role == c->role && e->ticket == ticket.id) {
            e->done = true;
            return;
        }
    }
}

void ax_flight_done_to(struct ax_flight *f, enum ax_role role, uint64_t ticket) {
    if (f)
        f->done_to[role] = ticket;
}
