#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "cmd/chat/chat.h"

#define MAX_SAVED       ((size_t)1 << 30)
#define MAX_TEMPERATURE 1e6

/* What is in the file: conversations, one per line, or nothing. */
static enum ax_status read_saved(const char *path, struct ax_buf *out) {
    char *text = NULL;
    size_t len = 0;
    if (!ax_path_exists(path))
        return AX_OK;
    AX_TRY(ax_read_file(path, MAX_SAVED, &text, &len));
    size_t at = 0;
    enum ax_status st = AX_OK;
    while (st == AX_OK && at < len) {
        const char *newline = memchr(text + at, '\n', len - at);
        const size_t n = newline ? (size_t)(newline - text) - at : len - at;
        json_t *row = json_loadb(text + at, n, 0, NULL);
        if (n > 0 && !json_is_array(json_object_get(row, "messages")))
            st = ax_error(
                AX_ERR_CONFIG,
                "%s: is there already and is no file of conversations; choose another name", path);
        json_decref(row);
        at += n + 1;
    }
    if (st == AX_OK)
        st = ax_buf_append(out, text, len);
    if (st == AX_OK && len > 0 && text[len - 1] != '\n')
        st = ax_buf_puts(out, "\n");
    ax_free(text);
    return st;
}

static enum ax_status save(struct ax_chat *c, const char *path) {
    json_t *row = json_pack("{sO sO*}", "messages", c->messages, "tools", ax_chat_tools(c));
    char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    struct ax_buf line = {0};
    enum ax_status st = read_saved(path, &line);
    if (st == AX_OK)
        st = ax_buf_puts(&line, text);
    if (st == AX_OK)
        st = ax_buf_puts(&line, "\n");
    if (st == AX_OK)
        st = ax_write_file_atomic(path, line.data, line.len);
    if (st == AX_OK)
        printf("saved to %s\n", path);
    ax_buf_free(&line);
    ax_free_hook(text);
    return st;
}

static enum ax_status on_save(struct ax_chat *c, const char *arg) {
    if (!*arg)
        puts("/save needs a file name");
    else if (ax_ranks_lead(&c->ranks) && save(c, arg) != AX_OK)
        ax_chat_tell_error(c);
    return AX_OK;
}

static enum ax_status show_adapters(const struct ax_chat *c) {
    struct ax_buf text = {0};
    AX_TRY(ax_adapters_list(&c->model.adapters, &text));
    printf("%s; in use: %s\n", text.data, ax_adapters_name(&c->model.adapters, c->adapter));
    ax_buf_free(&text);
    return AX_OK;
}

/* An endpoint has adapters as models. */
static enum ax_status on_remote_model(struct ax_chat *c, const char *arg) {
    if (*arg) {
        ax_free(c->remote.name);
        AX_TRY(ax_strdup(&c->remote.name, arg));
    }
    printf("model %s\n", c->remote.name);
    return AX_OK;
}

/* Keeps the conversation; the next reply comes from this adapter. */
static enum ax_status on_adapter(struct ax_chat *c, const char *arg) {
    int which;
    if (c->remote.url)
        return on_remote_model(c, arg);
    if (*arg && ax_adapters_find(&c->model.adapters, arg, &which) != AX_OK) {
        ax_chat_tell_error(c);
        return AX_OK;
    }
    if (*arg) {
        AX_TRY(ax_text_model_use(&c->model, c->generator, which));
        c->adapter = which;
    }
    return show_adapters(c);
}

static enum ax_status on_reset(struct ax_chat *c, const char *arg) {
    (void)arg;
    puts("a new conversation");
    return ax_chat_reset(c);
}

/* Starts a new conversation, because the system message is its first one. */
static enum ax_status on_system(struct ax_chat *c, const char *arg) {
    c->system_text.len = 0;
    AX_TRY(ax_buf_puts(&c->system_text, arg));
    return on_reset(c, "");
}

static enum ax_status on_retry(struct ax_chat *c, const char *arg) {
    (void)arg;
    return ax_chat_retry(c);
}

static enum ax_status on_undo(struct ax_chat *c, const char *arg) {
    (void)arg;
    return ax_chat_undo(c);
}

static enum ax_status on_temperature(struct ax_chat *c, const char *arg) {
    if (*arg) {
        char *end;
        const double t = strtod(arg, &end);
        if (*end || !(t >= 0 && t <= MAX_TEMPERATURE)) {
            printf("/temperature: expected 0 (greedy) to %g, got %s\n", MAX_TEMPERATURE, arg);
            return AX_OK;
        }
        c->temperature = t;
        if (c->generator)
            c->generator->sampler.o.temperature = t;
    }
    if (isnan(c->temperature))
        puts("temperature: the server's");
    else
        printf("temperature %g%s\n", c->temperature, c->temperature == 0 ? " (greedy)" : "");
    return AX_OK;
}

static enum ax_status on_help(struct ax_chat *c, const char *arg);

static const struct {
    const char *name, *what;
    enum ax_status (*run)(struct ax_chat *c, const char *arg);
} commands[] = {
    {"/reset", "start a new conversation", on_reset},
    {"/system TEXT", "set the system message (no TEXT: remove it) and start a new conversation",
     on_system},
    {"/retry", "replace the last reply by another", on_retry},
    {"/undo", "take back the last message and its reply", on_undo},
    {"/temperature X", "sample at X from now on, 0 = greedy; without X, say it", on_temperature},
    {"/adapter NAME", "switch to an adapter or to base; without NAME, list them", on_adapter},
    {"/save FILE", "add the conversation to a file of JSON training data, as a line", on_save},
    {"/help", "show this list", on_help},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static enum ax_status on_help(struct ax_chat *c, const char *arg) {
    (void)arg;
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-14s %s\n", commands[i].name, commands[i].what);
    if (c->edits)
        puts("  \\ at the end   continue the message on another line\n"
             "  \"\"\"            begin and end a message of several lines, or one that starts "
             "with /\n"
             "  Up, Down       earlier messages");
    puts("  Ctrl-C         stop the reply\n  Ctrl-D         quit");
    return AX_OK;
}

static void unknown(const struct ax_chat *c, const char *name) {
    struct ax_nearest nearest = {.given = name, .within = 3};
    char known[N_COMMANDS][16];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        snprintf(known[i], sizeof known[i], "%.*s", (int)strcspn(commands[i].name, " "),
                 commands[i].name);
        ax_nearest_try(&nearest, known[i]);
    }
    fflush(stdout);
    if (!ax_ranks_lead(&c->ranks))
        return;
    if (nearest.name)
        ax_log_error("unknown command %s; did you mean %s?", name, nearest.name);
    else
        ax_log_error("unknown command %s; /help lists the commands", name);
}

enum ax_status ax_chat_command(struct ax_chat *c) {
    char *line = c->line.data;
    while (c->line.len > 1 && strchr(" \t\r\n", line[c->line.len - 1])) /* the editor leaves them */
        line[--c->line.len] = '\0';
    const size_t n = strcspn(line, " \n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcspn(commands[i].name, " ") == n && strncmp(commands[i].name, line, n) == 0)
            return commands[i].run(c, line + n + strspn(line + n, " \n"));
    line[n] = '\0';
    unknown(c, line);
    return AX_OK;
}
