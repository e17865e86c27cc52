#include "cmd/tracker/tracker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/text/json.h"
#include "base/log.h"
#include "cmd/tracker/tracker_process.h"

#define RUNS_FILE "trackers.json" /* {"wandb": {"id", "url"}, …}: resumed runs continue these */
#define MAX_RUNS  ((size_t)1 << 20)

const struct ax_tracker_patience ax_tracker_patience = {
    .check = 120, .end = 30, .upload_end = 3600};

/* The text of tracker.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_tracker_script, ax_tracker_script_end\n"
        "ax_tracker_script: .incbin \"cmd/tracker/tracker.py\"\n"
        "ax_tracker_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_tracker_script[], ax_tracker_script_end[];

/* The script is sent through the socket, so that neither it nor a setting appears on a command
 * line. */
static const char boot[] =
    "stream = open(3, 'rb')\n"
    "exec(compile(stream.read(int(stream.readline())), 'axtrain tracker', 'exec'))\n";

struct tracker {
    const char *name; /* key in the settings */
    struct ax_tracker_process process;
    bool off;    /* dead, hung or too slow: there was a warning, and nothing is sent anymore */
    bool losing; /* records were lost, with a warning */
    double end_seconds;
};

struct ax_trackers {
    json_t *settings;
    const json_t *about;
    const char *output_dir;
    int n;
    struct tracker *all; /* [n] */
};

/* ---- messages ---- */

static enum ax_status send_json(struct tracker *t, json_t *message) {
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    enum ax_status st = AX_OK;
    json_decref(message);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a message to %s", t->name);
    if (!ax_tracker_process_send(&t->process, text, strlen(text)) ||
        !ax_tracker_process_send(&t->process, "\n", 1))
        st = ax_error(AX_ERR_FAILED, "%s: the configuration is too long for it", t->name);
    ax_free(text);
    return st;
}

static void give_up(struct tracker *t, const char *why) {
    if (!t->off)
        ax_log_warn("%s: %s; training continues without it", t->name, why);
    t->off = true;
}

/* ---- the tracker's run ---- */

static json_t *read_runs(const char *path) {
    struct ax_json_doc doc = {0};
    json_t *runs = NULL;
    if (ax_path_exists(path) && ax_json_load(&doc, path, MAX_RUNS) == AX_OK) {
        runs = json_is_object(doc.root) ? json_incref(doc.root) : NULL;
        ax_json_free(&doc);
    }
    ax_error_clear();
    return runs ? runs : json_object();
}

static enum ax_status write_runs(const char *path, const json_t *runs) {
    char *text;
    size_t len;
    AX_TRY(ax_json_dump(runs, &text, &len));
    const enum ax_status st = ax_write_file_atomic(path, text, len);
    ax_free(text);
    return st;
}

static void keep_run(const struct ax_trackers *all, const struct tracker *t, json_t *run) {
    const char *url = json_string_value(json_object_get(run, "url"));
    const char *id = json_string_value(json_object_get(run, "id"));
    char *path = NULL;
    enum ax_status st = ax_path_join(&path, all->output_dir, RUNS_FILE);
    if (st == AX_OK) {
        json_t *runs = read_runs(path);
        json_object_set(runs, t->name, run);
        st = write_runs(path, runs);
        json_decref(runs);
    }
    if (st != AX_OK) {
        ax_log_warn("%s: a resumed run will not continue this one: %s", t->name, ax_error_text());
        ax_error_clear();
    }
    ax_free(path);
    ax_log_info("tracker=%s run=%s%s%s", t->name, id ? id : "?", url ? " url=" : "",
                url ? url : "");
}

/* Handles what the tracker sends within `seconds`. False if it will send no more. */
static bool listen(const struct ax_trackers *all, struct tracker *t, double seconds) {
    const double until = ax_clock_now() + seconds;
    bool gone = false;
    const char *line;
    while (!t->off &&
           (line = ax_tracker_process_line(&t->process, until - ax_clock_now(), &gone))) {
        json_t *v = json_loads(line, 0, NULL);
        const char *failed = json_string_value(json_object_get(v, "failed"));
        json_t *run = json_object_get(v, "run");
        if (failed)
            give_up(t, failed);
        else if (json_is_object(run))
            keep_run(all, t, run);
        json_decref(v);
    }
    return !gone;
}

/* ---- before training ---- */

static enum ax_status start(struct tracker *t, const json_t *settings) {
    const char *set = getenv("AXTRAIN_PYTHON"), *python = set && *set ? set : "python3";
    const char *const argv[] = {python, "-c", boot, NULL};
    const size_t n = (size_t)(ax_tracker_script_end - ax_tracker_script);
    char size[32];
    if (ax_tracker_process_start(&t->process, argv) != AX_OK)
        return ax_error(AX_ERR_CONFIG,
                        "%s: cannot start %s; install Python, name one in AXTRAIN_PYTHON, or turn "
                        "the tracker off",
                        t->name, python);
    (void)snprintf(size, sizeof size, "%zu\n", n);
    (void)ax_tracker_process_send(&t->process, size, strlen(size));
    (void)ax_tracker_process_send(&t->process, ax_tracker_script, n);
    return send_json(t, json_pack("{ss sO}", "tracker", t->name, "settings",
                                  (json_t *)(uintptr_t)settings)); /* jansson takes no const */
}

static enum ax_status check(struct tracker *t, double seconds) {
    bool gone;
    const char *line = ax_tracker_process_line(&t->process, seconds, &gone);
    if (!line && gone)
        return ax_error(AX_ERR_CONFIG, "%s: Python ended without an answer", t->name);
    if (!line) {
        give_up(t, "no answer from its Python package");
        return AX_OK;
    }
    json_t *v = json_loads(line, 0, NULL);
    const char *missing = json_string_value(json_object_get(v, "missing"));
    const char *remedy = json_string_value(json_object_get(v, "remedy"));
    enum ax_status st = AX_OK;
    if (missing)
        st = ax_error(AX_ERR_CONFIG, "%s: %s; %s", t->name, missing, remedy ? remedy : "");
    json_decref(v);
    return st;
}

static enum ax_status open_all(struct ax_trackers *t, const struct ax_tracker_patience *patience) {
    const char *name;
    json_t *settings;
    AX_TRY(ax_alloc(&t->all, json_object_size(t->settings), sizeof *t->all));
    json_object_foreach(t->settings, name, settings) {
        struct tracker *one = &t->all[t->n++];
        one->name = name;
        one->end_seconds =
            json_object_get(settings, "log_model") ? patience->upload_end : patience->end;
        AX_TRY(start(one, settings));
    }
    for (int i = 0; i < t->n; i++)
        AX_TRY(check(&t->all[i], patience->check));
    return AX_OK;
}

static void free_all(struct ax_trackers *t) {
    for (int i = 0; i < t->n; i++)
        (void)ax_tracker_process_end(&t->all[i].process, 0);
    json_decref(t->settings);
    ax_free(t->all);
    ax_free(t);
}

enum ax_status ax_tracker_open(struct ax_trackers **out, const struct ax_config *cfg,
                               const struct ax_tracker_patience *patience) {
    struct ax_trackers *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    enum ax_status st = ax_tracker_settings(cfg, &t->settings);
    if (st == AX_OK)
        st = open_all(t, patience);
    *out = st == AX_OK && t->n > 0 ? t : NULL;
    if (!*out)
        free_all(t);
    return st;
}

void ax_tracker_describe(struct ax_trackers *t, const json_t *about, const char *output_dir) {
    if (!t)
        return;
    t->about = about;
    t->output_dir = output_dir;
}

/* ---- during training ---- */

static void begin_one(const struct ax_trackers *all, struct tracker *t, const json_t *runs) {
    char log[4096];
    (void)snprintf(log, sizeof log, "%s/tracker-%s.log", all->output_dir, t->name);
    const json_t *id = json_object_get(json_object_get(runs, t->name), "id");
    size_t n; /* of the folder's name, for trackers that need a name for each run */
    const char *name = ax_path_last(all->output_dir, &n);
    const enum ax_status st =
        send_json(t, json_pack("{s{sO? sO? ss% ss ss}}", "begin", "id", (json_t *)(uintptr_t)id,
                               "config", (json_t *)(uintptr_t)json_object_get(all->about, "config"),
                               "name", name, n, "output_dir", all->output_dir, "log", log));
    if (st != AX_OK) {
        give_up(t, ax_error_text());
        ax_error_clear();
    }
}

static void begin(void *ctx, int64_t resume_step) {
    struct ax_trackers *all = ctx;
    char *path;
    json_t *runs = NULL;
    if (resume_step > 0 && ax_path_join(&path, all->output_dir, RUNS_FILE) == AX_OK) {
        runs = read_runs(path);
        ax_free(path);
    }
    for (int i = 0; i < all->n; i++)
        if (!all->all[i].off)
            begin_one(all, &all->all[i], runs);
    json_decref(runs);
}

static void record(void *ctx, const char *json, size_t n) {
    struct ax_trackers *all = ctx;
    for (int i = 0; i < all->n; i++) {
        struct tracker *t = &all->all[i];
        if (!t->off && !listen(all, t, 0))
            give_up(t, "its process has ended");
        if (t->off || ax_tracker_process_send(&t->process, json, n))
            continue;
        if (!t->losing)
            ax_log_warn(
                "%s: it is too slow, so records were not sent to it; metrics.jsonl contains all",
                t->name);
        t->losing = true;
    }
}

struct ax_metrics_sink ax_tracker_sink(struct ax_trackers *t) {
    return t ? (struct ax_metrics_sink){t, begin, record} : (struct ax_metrics_sink){0};
}

/* Waits for a tracker's end; after two seconds, logs what it is waiting for. */
static void end_one(const struct ax_trackers *all, struct tracker *t) {
    const double until = ax_clock_now() + t->end_seconds;
    const double soon = t->end_seconds < 2 ? t->end_seconds : 2;
    if (listen(all, t, soon) && !t->off && t->end_seconds > soon) {
        ax_log_info("waiting for %s, at most %.0f s", t->name, t->end_seconds);
        (void)listen(all, t, until - ax_clock_now());
    }
    const bool said = t->off || t->losing;
    if (!ax_tracker_process_end(&t->process, t->off ? 0 : until - ax_clock_now()) && !said)
        ax_log_warn("%s: it did not end in time and may lack the last records", t->name);
}

void ax_tracker_close(struct ax_trackers *t, bool finished) {
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        if (!t->all[i].off)
            (void)send_json(&t->all[i], json_pack("{sb}", "end", finished));
    ax_error_clear();
    for (int i = 0; i < t->n; i++)
        end_one(t, &t->all[i]);
    free_all(t);
}
