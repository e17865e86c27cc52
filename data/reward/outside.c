/* Functions in child processes: the user's Python, all of it in one child, and programs, each a child
 * of its own. A child that died or was killed is started again by the next call. In order: the line
 * that a child is sent, a child, functions. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/reward/answer.h"
#include "data/reward/function.h"
#include "data/reward/keeper.h"

extern char **environ;

/* ---- the line that a child is sent for a call ----
 *
 *   {"function": NAME, "prompts": […], "completions": […], "completion_ids": [[…], …],
 *    "columns": {"answer": […], …}}
 *
 * as TRL passes them to functions: prompts as the records have them; completions as strings, or as
 * lists of one message where the prompt is a list of messages; every other column of the records,
 * null where a record lacks it. */

static int append_json(const char *data, size_t n, void *to) {
    return ax_buf_append(to, data, n) == AX_OK ? 0 : -1;
}

/* Appends a JSON value, or a string of any bytes as JSON. */
static enum ax_status put_json(struct ax_buf *out, const json_t *v) {
    if (json_dump_callback(v, append_json, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

static enum ax_status put_string(struct ax_buf *out, const char *s, size_t n) {
    struct ax_buf valid = {0};
    AX_TRY(ax_utf8_repair(&valid, s, n));
    json_t *v = json_stringn(valid.data ? valid.data : "", valid.len);
    ax_buf_free(&valid);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
    const enum ax_status st = put_json(out, v);
    json_decref(v);
    return st;
}

static enum ax_status put_prompt(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *prompt = json_object_get(item->record, "prompt");
    (void)key;
    return prompt ? put_json(out, prompt) : put_string(out, item->prompt, strlen(item->prompt));
}

static enum ax_status put_completion(struct ax_buf *out, const struct ax_reward_item *item,
                                     const char *key) {
    (void)key;
    if (item->chat)
        AX_TRY(ax_buf_puts(out, "[{\"role\":\"assistant\",\"content\":"));
    AX_TRY(put_string(out, item->completion, item->n));
    return item->chat ? ax_buf_puts(out, "}]") : AX_OK;
}

static enum ax_status put_ids(struct ax_buf *out, const struct ax_reward_item *item,
                              const char *key) {
    (void)key;
    AX_TRY(ax_buf_puts(out, "["));
    for (int64_t i = 0; i < item->n_ids; i++)
        AX_TRY(ax_buf_printf(out, i ? ",%d" : "%d", item->ids[i]));
    return ax_buf_puts(out, "]");
}

static enum ax_status put_column(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *v = json_object_get(item->record, key);
    return v ? put_json(out, v) : ax_buf_puts(out, "null");
}

typedef enum ax_status put_one(struct ax_buf *out, const struct ax_reward_item *item,
                               const char *key);

static enum ax_status put_list(struct ax_buf *out, const struct ax_reward_call *call, put_one *put,
                               const char *key) {
    AX_TRY(ax_buf_puts(out, "["));
    for (size_t i = 0; i < call->n; i++) {
        AX_TRY(ax_buf_puts(out, i ? "," : ""));
        AX_TRY(put(out, &call->items[i], key));
    }
    return ax_buf_puts(out, "]");
}

/* TRL passes these in lists of their own. */
static bool is_own(const char *key) {
    return strcmp(key, "prompt") == 0 || strcmp(key, "completion") == 0 ||
           strcmp(key, "completion_ids") == 0;
}

/* An object whose keys are those of all records. */
static enum ax_status collect_keys(json_t **out, const struct ax_reward_call *call) {
    json_t *keys = json_object();
    bool ok = keys != NULL;
    for (size_t i = 0; i < call->n && ok; i++) {
        json_t *record = (json_t *)(uintptr_t)call->items[i].record; /* for the iterator */
        const char *key;
        json_t *v;
        json_object_foreach(record, key, v) {
            if (!is_own(key) && !json_object_get(keys, key))
                ok = ok && json_object_set_new(keys, key, json_null()) == 0;
        }
    }
    if (ok) {
        *out = keys;
        return AX_OK;
    }
    json_decref(keys);
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

static enum ax_status put_columns(struct ax_buf *out, const struct ax_reward_call *call) {
    json_t *keys, *v;
    const char *key, *separator = "";
    enum ax_status st = AX_OK;
    AX_TRY(collect_keys(&keys, call));
    json_object_foreach(keys, key, v) {
        AX_TRY_GOTO(ax_buf_puts(out, separator), st, done);
        AX_TRY_GOTO(put_string(out, key, strlen(key)), st, done);
        AX_TRY_GOTO(ax_buf_puts(out, ":"), st, done);
        AX_TRY_GOTO(put_list(out, call, put_column, key), st, done);
        separator = ",";
    }
done:
    json_decref(keys);
    return st;
}

static enum ax_status build_request(struct ax_buf *out, const struct ax_reward_call *call) {
    AX_TRY(ax_buf_puts(out, ",\"prompts\":"));
    AX_TRY(put_list(out, call, put_prompt, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completions\":"));
    AX_TRY(put_list(out, call, put_completion, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completion_ids\":"));
    AX_TRY(put_list(out, call, put_ids, NULL));
    AX_TRY(ax_buf_puts(out, ",\"columns\":{"));
    AX_TRY(put_columns(out, call));
    return ax_buf_puts(out, "}}\n");
}

/* Appends the line, with its newline, to `out`. */
static enum ax_status put_request(struct ax_buf *out, const char *function,
                                  const struct ax_reward_call *call) {
    struct ax_buf *body = call->request;
    if (body->len == 0)
        AX_TRY(build_request(body, call));
    AX_TRY(ax_buf_puts(out, "{\"function\":"));
    AX_TRY(put_string(out, function, strlen(function)));
    return ax_buf_append(out, body->data, body->len);
}

/* ---- a child ----
 *
 * A process that is asked one line and answers one line, and may die, hang, flood or talk
 * nonsense: nobody waits longer than the given time, and nothing that it writes fills memory.
 *
 * Questions arrive at its standard input, answers are read from its standard output. What it writes
 * to standard error becomes lines of the log, a few per question. It has no other descriptor of
 * ours, a process group of its own, and blocks SIGINT, SIGTERM and SIGUSR1, which are meant for the
 * run. Its parent is a keeper, which ends as it does. At the end of the run, however it comes, its
 * standard input ends, and the keeper kills it with all that it has started. */

#define LOG_LINES 20 /* most lines of the log per question */

struct ax_reward_child {
    pid_t pid;            /* its keeper's; 0: none */
    int to, from, errors; /* its stdin, stdout, stderr; -1: closed */
    int control;          /* the keeper's */
    struct ax_buf line;   /* the answer, without its newline */
    uint64_t starts;      /* how often it was started */
    char said[512];       /* the beginning of a line of stderr */
    size_t n_said, lines; /* lines of stderr since the question */
};

/* One question, complete with its newline. */
struct question {
    const char *who; /* prefix of its lines in the log */
    const char *text;
    size_t n, max_answer; /* bytes */
    double seconds;
    struct ax_watch *watch; /* NULL: none */
};

/* ---- its start ---- */

static void close_end(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* A channel whose ends have numbers that spawn will not overwrite. `ends`: {ours, theirs}. */
static bool make_channel(int ends[2], int number) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(pair[i], F_DUPFD_CLOEXEC, AX_REWARD_KEEPER_CONTROL + 1);
        (void)close(pair[i]);
    }
    if (ends[0] < 0 || ends[1] < 0)
        return false;
    if (number < 3)
        (void)shutdown(ends[0], number == 0 ? SHUT_RD : SHUT_WR);
    return true;
}

enum { N_CHANNELS = 4 }; /* stdin, stdout, stderr, AX_REWARD_KEEPER_CONTROL */

/* The keeper, too, is not meant by signals for the run; it blocks all others itself. */
static int prepare_keeper(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr,
                          const int *theirs) {
    sigset_t all;
    sigfillset(&all);
    int bad = 0;
    for (int fd = 0; fd < N_CHANNELS && !bad; fd++)
        bad = posix_spawn_file_actions_adddup2(files, theirs[fd], fd);
    bad = bad ? bad : posix_spawn_file_actions_addclosefrom_np(files, N_CHANNELS);
    bad = bad ? bad : posix_spawnattr_setsigmask(attr, &all);
    bad = bad ? bad : posix_spawnattr_setpgroup(attr, 0);
    return bad ? bad
               : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

static int spawn(pid_t *pid, const char *program, const char *const *argv, const int *theirs) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int bad = posix_spawn_file_actions_init(&files);
    if (bad)
        return bad;
    bad = posix_spawnattr_init(&attr);
    if (!bad) {
        bad = prepare_keeper(&files, &attr, theirs);
        bad =
            bad ? bad
                : posix_spawn(pid, program, &files, &attr, (char *const *)(uintptr_t)argv, environ);
        (void)posix_spawnattr_destroy(&attr);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return bad;
}

/* What the keeper says of the child's start, an errno. */
static int hear_start(int control) {
    int why;
    ssize_t n;
    do {
        n = recv(control, &why, sizeof why, MSG_WAITALL);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : ECHILD;
}

/* argv[0] is the keeper's, argv[2] is looked up in PATH. AX_ERR_CONFIG if it cannot be run. */
static enum ax_status start_child(struct ax_reward_child *c, const char *program,
                                  const char *const *argv) {
    int ends[N_CHANNELS][2];
    int bad = 0;
    for (int i = 0; i < N_CHANNELS; i++)
        ends[i][0] = ends[i][1] = -1;
    for (int i = 0; i < N_CHANNELS && !bad; i++)
        bad = make_channel(ends[i], i) ? 0 : errno;
    const int theirs[N_CHANNELS] = {ends[0][1], ends[1][1], ends[2][1], ends[3][1]};
    pid_t pid = 0;
    bad = bad ? bad : spawn(&pid, program, argv, theirs);
    const char *which = bad ? program : argv[2];
    for (int i = 0; i < N_CHANNELS; i++)
        close_end(&ends[i][1]);
    bad = bad ? bad : hear_start(ends[3][0]);
    for (int i = 0; i < N_CHANNELS && bad; i++)
        close_end(&ends[i][0]);
    while (bad && pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (bad)
        return ax_error(AX_ERR_CONFIG, "cannot start %s: %s", which, strerror(bad));
    const uint64_t starts = c->starts + 1;
    *c = (struct ax_reward_child){.pid = pid,
                                  .to = ends[0][0],
                                  .from = ends[1][0],
                                  .errors = ends[2][0],
                                  .control = ends[3][0],
                                  .starts = starts};
    return AX_OK;
}

/* ---- what it writes to standard error ---- */

static void end_line(struct ax_reward_child *c, const char *who) {
    if (++c->lines <= LOG_LINES)
        ax_log_info("rewards: %s: %.*s", who, (int)c->n_said, c->said);
    c->n_said = 0;
}

/* One read; false: there is nothing now. */
static bool listen_once(struct ax_reward_child *c, const char *who) {
    char data[8192];
    const ssize_t n = c->errors < 0 ? 0 : recv(c->errors, data, sizeof data, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_end(&c->errors);
    for (ssize_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)data[i];
        if (byte != '\n')
            c->said[c->n_said++] = byte < ' ' || byte == 0x7f ? ' ' : (char)byte;
        if (byte == '\n' || c->n_said == sizeof c->said)
            end_line(c, who);
    }
    return n > 0;
}

/* What it has written so far: no more than fits the socket, or it might never end. */
static void listen_to_end(struct ax_reward_child *c, const char *who) {
    for (int i = 0; i < 64 && listen_once(c, who); i++)
        ;
    if (c->n_said > 0)
        end_line(c, who);
    if (c->lines > LOG_LINES)
        ax_log_info("rewards: %s: … %zu more lines", who, c->lines - LOG_LINES);
    c->lines = 0;
}

/* ---- its end ---- */

/* Waits for its end, and leaves its status to be waited for; false: it is still there. */
static bool wait_end(struct ax_reward_child *c, const char *who, double seconds) {
    const double until = ax_clock_now() + seconds;
    const struct timespec nap = {.tv_nsec = 2000000};
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return true;
        if (ax_clock_now() >= until)
            return false;
        (void)listen_once(c, who);
        nanosleep(&nap, NULL);
    }
}

#define KEEPER_SECONDS 5.0 /* for the keeper to end, which then is ended, too */

/* Has it killed with the processes that it started; returns how it ended. */
static int finish(struct ax_reward_child *c, const char *who) {
    int status = 0;
    close_end(&c->control);
    if (!wait_end(c, who, KEEPER_SECONDS))
        (void)kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    listen_to_end(c, who);
    close_end(&c->to);
    close_end(&c->from);
    close_end(&c->errors);
    ax_buf_free(&c->line);
    *c = (struct ax_reward_child){
        .to = -1, .from = -1, .errors = -1, .control = -1, .starts = c->starts};
    return status;
}

/* Ends it, and frees everything but `starts`: kills it if it is not gone after `seconds`. `who` as
 * above. */
static void end_child(struct ax_reward_child *c, const char *who, double seconds) {
    if (c->pid == 0)
        return;
    close_end(&c->to);
    (void)wait_end(c, who, seconds);
    (void)finish(c, who);
}

/* Its output has ended. */
static void bury(struct ax_reward_child *c, const char *who, struct ax_reward_outcome *outcome) {
    const bool ended = wait_end(c, who, 1);
    const int status = finish(c, who);
    if (!ended)
        ax_reward_fail(outcome, AX_REWARD_DEATH, "it closed its standard output");
    else if (WIFSIGNALED(status))
        ax_reward_fail(outcome, AX_REWARD_DEATH, "signal %d, %s", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        ax_reward_fail(outcome, AX_REWARD_DEATH, "exit code %d", WEXITSTATUS(status));
}

/* ---- a question ---- */

/* A child that does not read may still have answered. */
static void send_more(struct ax_reward_child *c, const struct question *q, size_t *sent) {
    const ssize_t n = send(c->to, q->text + *sent, q->n - *sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        *sent += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        *sent = q->n;
}

static enum ax_status receive(struct ax_reward_child *c, const struct question *q, bool *ended) {
    char data[65536];
    const size_t room = q->max_answer + 1 - c->line.len;
    const ssize_t n = recv(c->from, data, room < sizeof data ? room : sizeof data, MSG_DONTWAIT);
    *ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return n > 0 ? ax_buf_append(&c->line, data, (size_t)n) : AX_OK;
}

/* Waits until `until` for something to happen, and handles it. */
static enum ax_status step(struct ax_reward_child *c, const struct question *q, double until,
                           size_t *sent, bool *ended) {
    struct pollfd fds[3] = {
        {*sent < q->n ? c->to : -1, POLLOUT, 0}, {c->from, POLLIN, 0}, {c->errors, POLLIN, 0}};
    const double left = until - ax_clock_now();
    const int ms = left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
    if (poll(fds, 3, ms) < 0)
        return errno == EINTR ? AX_OK : ax_error(AX_ERR_FAILED, "cannot wait for a child: %m");
    if (fds[2].revents)
        (void)listen_once(c, q->who);
    if (fds[0].revents)
        send_more(c, q, sent);
    return fds[1].revents ? receive(c, q, ended) : AX_OK;
}

/* What has been received is one line, the beginning of one, or neither. */
static bool is_complete(struct ax_reward_child *c, const struct question *q,
                        struct ax_reward_outcome *outcome) {
    const char *newline = c->line.len ? memchr(c->line.data, '\n', c->line.len) : NULL;
    if (newline && newline + 1 == c->line.data + c->line.len) {
        c->line.len--;
        return true;
    }
    if (newline)
        ax_reward_fail(outcome, AX_REWARD_RUBBISH, "more than one line");
    else if (c->line.len > q->max_answer)
        ax_reward_fail(outcome, AX_REWARD_RUBBISH, "a line of more than %zu bytes", q->max_answer);
    return newline || c->line.len > q->max_answer;
}

/* The answer is in c->line, unless the outcome is a failure, or the status an error: then the child is
 * gone. Whoever is asked by the watch may take a while: what has come by then is in time. */
static enum ax_status ask_child(struct ax_reward_child *c, const struct question *q,
                                struct ax_reward_outcome *outcome) {
    const double until = ax_clock_now() + q->seconds;
    enum ax_status st = AX_OK;
    size_t sent = 0;
    bool ended = false, late = false;
    outcome->failure = AX_REWARD_FINE;
    c->line.len = 0;
    while (st == AX_OK && !ended && !is_complete(c, q, outcome)) {
        if (late) {
            ax_reward_fail(outcome, AX_REWARD_TIMEOUT, "no answer within %g s", q->seconds);
            break;
        }
        st = ax_watch_look(q->watch);
        late = ax_clock_now() >= until;
        if (st == AX_OK)
            st = step(c, q, ax_watch_until(q->watch, until), &sent, &ended);
    }
    if (ended)
        bury(c, q->who, outcome);
    else if (st != AX_OK || outcome->failure != AX_REWARD_FINE)
        (void)finish(c, q->who);
    else
        listen_to_end(c, q->who);
    return st;
}

/* ---- functions ---- */

#define END_SECONDS 3.0 /* for what Python does at its exit */

/* The text of python.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_reward_script, ax_reward_script_end\n"
        "ax_reward_script: .incbin \"data/reward/python.py\"\n"
        "ax_reward_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_reward_script[], ax_reward_script_end[];

/* The script comes through standard input, which from then on is a stream that functions cannot
 * reach. `-c` puts the current folder in front of the path: it comes back when ours are imported. */
static const char boot[] =
    "import os, sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "stream = os.fdopen(os.dup(0), 'rb')\n"
    "exec(compile(stream.read(int(stream.readline())), 'axtrain rewards', 'exec'))\n";

struct outside {
    struct ax_reward_child *child; /* of a program: its own */
    uint64_t loaded;        /* of Python: the start of the child that has loaded it; 0: none */
    char *who;              /* in the log: the module or program */
    char *python, *program; /* the second: ours, for keepers */
    double seconds, start_seconds;
};

/* ---- opening and closing ---- */

static enum ax_status make(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct outside *x;
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    f->state = x;
    AX_TRY(ax_strdup(&x->program, o->program ? o->program : "/proc/self/exe"));
    x->seconds = o->timeout > 0 ? o->timeout : AX_REWARDS_TIMEOUT;
    x->start_seconds = o->start_timeout > 0 ? o->start_timeout : AX_REWARDS_START_TIMEOUT;
    return AX_OK;
}

static void free_child(struct ax_reward_child **c, const char *who) {
    if (*c)
        end_child(*c, who, END_SECONDS);
    ax_free(*c);
    *c = NULL;
}

void ax_reward_shared_free(struct ax_reward_shared *s) {
    free_child(&s->python, "python");
}

static void close_outside(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    if (!x)
        return;
    if (f->kind == &ax_reward_program)
        free_child(&x->child, x->who);
    ax_free(x->who);
    ax_free(x->python);
    ax_free(x->program);
    ax_free(x);
}

/* ---- Python ---- */

static enum ax_status start_python(const struct outside *x) {
    const char *const argv[] = {"axtrain", AX_REWARD_KEEPER, x->python, "-c", boot, NULL};
    return start_child(x->child, x->program, argv);
}

/* The question that makes the child load f, behind the script if it has just been started. */
static enum ax_status put_load(struct ax_buf *out, const struct ax_reward_fn *f, bool new) {
    const size_t n = (size_t)(ax_reward_script_end - ax_reward_script);
    if (new) {
        AX_TRY(ax_buf_printf(out, "%zu\n", n));
        AX_TRY(ax_buf_append(out, ax_reward_script, n));
    }
    AX_TRY(ax_buf_puts(out, "{\"load\":"));
    AX_TRY(put_string(out, f->name, strlen(f->name)));
    return ax_buf_puts(out, "}\n");
}

static enum ax_status ask(struct ax_reward_fn *f, const struct ax_buf *question, double seconds,
                          size_t n, double *out, size_t *not_finite,
                          struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    const struct question q = {.who = x->who,
                               .text = question->data,
                               .n = question->len,
                               .max_answer = AX_REWARD_ANSWER_MAX(n),
                               .seconds = seconds,
                               .watch = f->shared->watch};
    AX_TRY(ask_child(x->child, &q, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    AX_TRY(ax_reward_answer_read(x->child->line.data, x->child->line.len, n, out, not_finite,
                                 outcome));
    if (outcome->failure == AX_REWARD_RUBBISH) /* who knows what its next line answers */
        end_child(x->child, x->who, 0);
    return AX_OK;
}

/* Sees to it that there is a child that has loaded f. */
static enum ax_status load(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite;
    const bool new = x->child->pid == 0;
    outcome->failure = AX_REWARD_FINE;
    if (new)
        AX_TRY(start_python(x));
    else if (x->loaded == x->child->starts)
        return AX_OK;
    enum ax_status st = put_load(&question, f, new);
    if (st == AX_OK)
        st = ask(f, &question, x->start_seconds, 0, NULL, &not_finite, outcome);
    if (st == AX_OK && outcome->failure == AX_REWARD_FINE)
        x->loaded = x->child->starts;
    ax_buf_free(&question);
    return st;
}

static enum ax_status open_python(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct ax_reward_outcome outcome;
    const char *set = getenv("AXTRAIN_PYTHON");
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->python, o->python ? o->python : set && *set ? set : "python3"));
    AX_TRY(ax_strndup(&x->who, f->name, (size_t)(strrchr(f->name, '.') - f->name)));
    if (!f->shared->python)
        AX_TRY(ax_alloc(&f->shared->python, 1, sizeof *f->shared->python));
    x->child = f->shared->python;
    const enum ax_status st = load(f, &outcome);
    if (st == AX_ERR_CONFIG)
        return ax_error(st,
                        "reward function \"%s\": %s. Install Python, or name one in AXTRAIN_PYTHON",
                        f->name, ax_error_text());
    AX_TRY(st);
    if (outcome.failure == AX_REWARD_EXCEPTION)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s", f->name, outcome.text);
    if (outcome.failure != AX_REWARD_FINE)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s while it was loaded: %s",
                        f->name, ax_reward_failure_names[outcome.failure], outcome.text);
    return AX_OK;
}

/* ---- programs ---- */

static enum ax_status start_program(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    const char *const argv[] = {"axtrain", AX_REWARD_KEEPER, f->name, NULL};
    return x->child->pid ? AX_OK : start_child(x->child, x->program, argv);
}

static enum ax_status open_program(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->who, strrchr(f->name, '/') + 1));
    AX_TRY(ax_alloc(&x->child, 1, sizeof *x->child));
    const enum ax_status st = start_program(f);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward function \"%s\"", f->name);
}

/* ---- a call ---- */

static enum ax_status prepare(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    const enum ax_status st = f->kind == &ax_reward_python ? load(f, outcome) : start_program(f);
    if (st != AX_ERR_CONFIG)
        return st;
    ax_reward_fail(outcome, AX_REWARD_DEATH, "%s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status score_outside(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                    double *out, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite = 0;
    AX_TRY(prepare(f, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    enum ax_status st = put_request(&question, f->name, call);
    if (st == AX_OK)
        st = ask(f, &question, x->seconds, call->n, out, &not_finite, outcome);
    ax_buf_free(&question);
    if (st == AX_OK && not_finite > 0)
        ax_log_warn(
            "rewards: %s: %zu of %zu rewards are NaN, infinite or beyond 1e30, and count as none",
            f->name, not_finite, call->n);
    return st;
}

const struct ax_reward_kind ax_reward_python = {open_python, score_outside, close_outside};
const struct ax_reward_kind ax_reward_program = {open_program, score_outside, close_outside};
