/* Transcripts: what a person types and what the terminal then shows, compared exactly.
 *
 * A transcript is text. Lines indented by two spaces are of the terminal: "  $ " begins a command for
 * sh, "  > " continues it, and what follows is its output, both streams in the order in which they
 * arrive at a terminal of 80 columns that cannot move its cursor (TERM=dumb). Then "  [exit N]" if N is
 * not 0. Everything else is comment. In output, an empty line is an empty line, and
 *
 *     ␠  ends a line that ends in a space          ␤  is an empty line at the end of the output
 *     ␄  ends output that lacks its newline        ␛  (or another of U+2400…) is a control character
 *     \  precedes a line that looks like a command
 *
 * What varies is masked, by a line of the transcript that precedes the command:
 *
 *     mask: ( +[0-9.]+) GFLOP/s as #
 *
 * The expression's last group (POSIX, extended, matched within lines), or else all of it, becomes the
 * text. If the group begins with a space, the text is padded on the left to the group's width, so that
 * columns stay; if it ends with one, on the right. Keep masks narrow: a masked number is not tested.
 *
 * Include after cmocka.h. */
#ifndef AX_TESTS_CMD_TRANSCRIPTS_H
#define AX_TESTS_CMD_TRANSCRIPTS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/cmd/counting_model.h"

#define MAX_MASKS  28
#define MAX_GROUPS 4
#define MAX_OUTPUT (4U << 20)

struct mask {
    regex_t regex;
    char with[64];
};

struct transcript {
    const char *name, *folder; /* where its commands run */
    struct mask masks[MAX_MASKS];
    int n_masks;
    struct ax_buf said; /* by the command that ran last */
    struct ax_buf out;  /* the transcript with the output of now */
};

static inline void add_text(struct ax_buf *b, const char *text, size_t n) {
    assert_int_equal(ax_buf_append(b, text, n), AX_OK);
}

/* ---- masks ---- */

static inline void add_mask(struct transcript *t, const char *regex, size_t n, const char *with) {
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)n, regex);
    assert_true(t->n_masks < MAX_MASKS);
    struct mask *m = &t->masks[t->n_masks];
    if (regcomp(&m->regex, text, REG_EXTENDED | REG_NEWLINE) != 0 || m->regex.re_nsub >= MAX_GROUPS)
        fail_msg("%s: not a regular expression: %s", t->name, text);
    snprintf(m->with, sizeof m->with, "%s", with);
    t->n_masks++;
}

static inline void put_masked(struct ax_buf *b, const char *was, int n, const char *with) {
    const int width = n * (was[0] == ' ' ? 1 : was[n - 1] == ' ' ? -1 : 0);
    assert_int_equal(ax_buf_printf(b, "%*s", width, with), AX_OK);
}

static inline void apply_mask(const struct mask *m, struct ax_buf *text) {
    struct ax_buf out = {0};
    regmatch_t found[MAX_GROUPS];
    size_t at = 0;
    while (at < text->len &&
           regexec(&m->regex, text->data + at, MAX_GROUPS, found, at > 0 ? REG_NOTBOL : 0) == 0) {
        const regmatch_t *g = &found[m->regex.re_nsub];
        if (g->rm_eo <= g->rm_so)
            break;
        add_text(&out, text->data + at, (size_t)g->rm_so);
        put_masked(&out, text->data + at + g->rm_so, g->rm_eo - g->rm_so, m->with);
        at += (size_t)g->rm_eo;
    }
    if (at < text->len)
        add_text(&out, text->data + at, text->len - at);
    ax_buf_free(text);
    *text = out;
}

/* ---- running ---- */

static inline void become(const char *folder, const char *command, int terminal) {
    const int nothing = open("/dev/null", O_RDONLY);
    if (chdir(folder) != 0 || dup2(nothing, 0) < 0 || dup2(terminal, 1) < 0 ||
        dup2(terminal, 2) < 0)
        _exit(125);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(126);
}

/* What is there to read now. */
static inline void drain(struct transcript *t, int master) {
    char buf[4096];
    for (ssize_t n; (n = read(master, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR);)
        if (n > 0 && t->said.len < MAX_OUTPUT)
            add_text(&t->said, buf, (size_t)n);
}

/* What it prints is in `said`; returns its exit code. The terminal stays open here until the end: the
 * kernel may drop what it has not yet handed over when the last to hold a terminal closes it. */
static inline int run_in_terminal(struct transcript *t, const char *command) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    struct termios mode;
    int status = 0;
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        fail_msg("no pseudo-terminal: %s", strerror(errno));
    const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && tcgetattr(terminal, &mode) == 0);
    mode.c_oflag &= ~(tcflag_t)OPOST;
    assert_int_equal(tcsetattr(terminal, TCSANOW, &mode), 0);
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        become(t->folder, command, terminal);
    struct pollfd wait[] = {{.fd = master, .events = POLLIN},
                            {.fd = pidfd_open(child, 0), .events = POLLIN}};
    assert_true(wait[1].fd >= 0);
    t->said.len = 0;
    add_text(&t->said, "", 0);
    while (!(wait[1].revents & POLLIN) && (poll(wait, 2, -1) > 0 || errno == EINTR))
        drain(t, master);
    assert_int_equal(waitpid(child, &status, 0), child);
    drain(t, master);
    close(wait[1].fd);
    close(terminal);
    close(master);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- writing ---- */

static inline void put_line(struct ax_buf *b, const char *line, size_t n, bool last, bool ended) {
    if (n == 0 && !last) {
        add_text(b, "\n", 1);
        return;
    }
    add_text(b, "  ", 2);
    if (n >= 2 && (memcmp(line, "$ ", 2) == 0 || memcmp(line, "> ", 2) == 0))
        add_text(b, "\\", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)line[i];
        const char control[] = {'\xE2', '\x90', (char)(0x80 + (c == 0x7f ? 0x21 : c))};
        const bool is_control = c < 0x20 || c == 0x7f;
        add_text(b, is_control ? control : &line[i], is_control ? 3 : 1);
    }
    const char *end = !ended ? "␄" : n == 0 ? "␤" : line[n - 1] == ' ' ? "␠" : "";
    assert_int_equal(ax_buf_printf(b, "%s\n", end), AX_OK);
}

static inline void put_output(struct transcript *t, int code) {
    for (int i = 0; i < t->n_masks && t->said.len > 0; i++)
        apply_mask(&t->masks[i], &t->said);
    const char *end = t->said.data + t->said.len;
    for (const char *line = t->said.data, *next; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline ? newline + 1 : end;
        put_line(&t->out, line, (size_t)((newline ? newline : end) - line), next == end,
                 newline != NULL);
    }
    if (code != 0)
        assert_int_equal(ax_buf_printf(&t->out, "  [exit %d]\n", code), AX_OK);
}

/* ---- reading ---- */

static inline const char *after_line(const char *line) {
    const char *newline = strchr(line, '\n');
    return newline ? newline + 1 : line + strlen(line);
}

static inline bool begins(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

/* Behind the output of a command; empty lines belong to it where more output follows. */
static inline const char *after_output(const char *at) {
    for (;;) {
        const char *line = at;
        while (*line == '\n')
            line++;
        if (!begins(line, "  ") || begins(line, "  $ "))
            return at;
        at = after_line(line);
    }
}

static inline const char *run_block(struct transcript *t, const char *at) {
    struct ax_buf command = {0};
    do {
        const char *next = after_line(at);
        add_text(&t->out, at, (size_t)(next - at));
        add_text(&command, at + 4, (size_t)(next - at - 4));
        at = next;
    } while (begins(at, "  > "));
    const int code = run_in_terminal(t, command.data);
    put_output(t, code);
    ax_buf_free(&command);
    return after_output(at);
}

static inline void read_mask(struct transcript *t, const char *line) {
    const char *regex = line + strlen("mask: "), *as = NULL, *end = after_line(line) - 1;
    char with[64];
    for (const char *p = regex; p + 4 <= end; p++)
        as = memcmp(p, " as ", 4) == 0 ? p : as;
    if (!as)
        fail_msg("%s: expected \"mask: EXPRESSION as TEXT\"", t->name);
    snprintf(with, sizeof with, "%.*s", (int)(end - as - 4), as + 4);
    add_mask(t, regex, (size_t)(as - regex), with);
}

/* Runs the commands of `text`; t->out is the text as it would be now. */
static inline void run_transcript(struct transcript *t, const char *text) {
    while (*text) {
        if (begins(text, "  $ ")) {
            text = run_block(t, text);
            continue;
        }
        const char *next = after_line(text);
        if (begins(text, "mask: "))
            read_mask(t, text);
        add_text(&t->out, text, (size_t)(next - text));
        text = next;
    }
}

static inline void free_transcript(struct transcript *t) {
    for (int i = 0; i < t->n_masks; i++)
        regfree(&t->masks[i].regex);
    ax_buf_free(&t->said);
    ax_buf_free(&t->out);
}

/* ---- where they run ---- */

static char dir[64]; /* has a folder for each, model/ and bin/axtrain */

/* Output must depend neither on the machine's processor nor on the caller's environment. */
static inline void set_environment(const char *bin) {
    static const char *const foreign[] = {"NO_COLOR",       "HF_ENDPOINT",   "HF_HUB_CACHE",
                                          "HF_TOKEN",       "LC_ALL",        "AX_LOG",
                                          "AXTRAIN_DUCKDB", "XDG_CACHE_HOME"};
    char path[600];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        unsetenv(foreign[i]);
    snprintf(path, sizeof path, "%s:%s", bin, getenv("PATH"));
    setenv("PATH", path, 1);
    snprintf(path, sizeof path, "%s/hf", dir);
    setenv("HF_HOME", path, 1);
    setenv("AXTRAIN_CPU", "avx2", 1); /* last digits and workspace depend on it */
    setenv("HF_HUB_OFFLINE", "1", 1);
    setenv("HOME", dir, 1);
    setenv("TMPDIR", dir, 1);
    setenv("TERM", "dumb", 1);
    setenv("AXTRAIN_DEVICE", "cpu", 1); /* on any machine */
    setenv("LANG", "C", 1);
    setenv("TZ", "UTC", 1);
    char *harness = realpath("tests/cmd/harness", NULL);
    assert_non_null(harness);
    setenv("PYTHONPATH", harness, 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    free(harness);
}

static inline int set_up_transcripts(void **state) {
    (void)state;
    char path[128];
    const char *bin = getenv("AX_TEST_BIN");
    char *program = realpath(bin ? bin : "build/axtrain", NULL);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir, sizeof dir, "%s/axtrain-transcripts-XXXXXX", base);
    if (!program || !mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/model", dir);
    put_counting_model(path);
    snprintf(path, sizeof path, "%s/bin", dir);
    set_environment(path);
    int failed = ax_mkdir(path) != AX_OK;
    snprintf(path, sizeof path, "%s/bin/axtrain", dir);
    failed = failed || symlink(program, path) != 0;
    free(program);
    return failed ? -1 : 0;
}

static inline int remove_transcripts(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

#endif
