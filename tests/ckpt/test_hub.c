/* Downloads from a hub: what comes, what is cut, what is wrong, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/threads.h"
#include "ckpt/hub/hub.h"
#include "tests/ckpt/folder.h"
#include "tests/hub_server.h"
#include "tests/terminal_text.h"

#define BIG   (3 << 19) /* more than one read of a partial file takes */
#define MODEL "cache/models--org--My.Model-1B"
#define SNAP  MODEL "/snapshots/" HUB_COMMIT

static char big[BIG], second[300000];
static struct hub_server s;
static struct ax_hub hub;
static struct ax_hub_report report;

static void add_model(void) {
    hub_add(&s, "config.json", "{}", 2, false);
    hub_add(&s, "tokenizer.json", "{\"t\": 1}", 8, false);
    hub_add(&s, "README.md", "# hello", 7, false);
    hub_add(&s, "pytorch_model.bin", "pickle", 6, true);
    hub_add(&s, "model.safetensors", big, sizeof big, true);
}

static int start(void **state) {
    (void)state;
    if (make_dir(state) != 0)
        return -1;
    s = (struct hub_server){.id = "org/My.Model-1B", .kind = "models"};
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)made_up("big", (int64_t)i);
    for (size_t i = 0; i < sizeof second; i++)
        second[i] = (char)made_up("second", (int64_t)i);
    hub_start(&s);
    static const char *const others[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE",
                                         "http_proxy", "HTTP_PROXY"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    setenv("HOME", dir, 1);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    setenv("HF_HUB_CACHE", in_dir("cache"), 1);
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    hub.retry_seconds = 0.001;
    hub.quiet = true;
    return 0;
}

static int stop(void **state) {
    ax_hub_close(&hub);
    hub_stop(&s);
    return remove_dir(state);
}

static enum ax_status fetch(const char *revision, char **folder) {
    *folder = NULL;
    return ax_hub_model(folder, &hub, s.id, revision, AX_HUB_WHOLE, &report);
}

static void fetches(const char *revision) {
    char *folder;
    if (fetch(revision, &folder) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(folder, in_dir(SNAP));
    ax_free(folder);
}

static void fetches_not(enum ax_status expected, const char *part) {
    char *folder;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(fetch(NULL, &folder), expected);
    assert_null(folder);
    assert_mentions(part);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void assert_file(const char *name, const void *data, size_t len) {
    char *text;
    size_t n;
    if (ax_read_file(in_dir(name), 8 << 20, &text, &n) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(n, len);
    assert_memory_equal(text, data, len);
    ax_free(text);
}

static void assert_no_file(const char *name) {
    assert_false(ax_path_exists(in_dir(name)));
}

/* "MODEL/blobs/ID" of a served file. */
static const char *blob_of(const char *path, const char *ending) {
    static char name[160];
    for (size_t i = 0; i < s.n; i++)
        if (strcmp(s.files[i].path, path) == 0)
            snprintf(name, sizeof name, MODEL "/blobs/%s%s", s.files[i].blob, ending);
    return name;
}

/* ---- what comes ---- */

static void a_model_comes_once_in_the_layout_of_the_cache(void **state) {
    (void)state;
    add_model();
    fetches(NULL);
    assert_int_equal(report.files, 3);
    assert_int_equal(report.downloaded, 2 + 8 + sizeof big);
    assert_file(SNAP "/config.json", "{}", 2);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    assert_file(blob_of("model.safetensors", ""), big, sizeof big);
    assert_file(MODEL "/refs/main", HUB_COMMIT, 40);
    assert_no_file(SNAP "/pytorch_model.bin");
    assert_no_file(SNAP "/README.md");
    assert_no_file(blob_of("model.safetensors", ".incomplete"));
    char link[256];
    const ssize_t n = readlink(in_dir(SNAP "/model.safetensors"), link, sizeof link);
    assert_true(n > 12 && strncmp(link, "../../blobs/", 12) == 0);
    const int before = s.connections;
    fetches(NULL);
    fetches("main");
    fetches(HUB_COMMIT);
    assert_int_equal(s.connections, before);
    assert_false(report.asked);
    hub.refresh = true; /* asks, and has all of it */
    fetches("main");
    assert_int_equal(report.present, 3);
    assert_int_equal(report.downloaded, 0);
    assert_int_equal(s.connections, before + 1);
}

/* Only what a response says of a file can disagree with the list. */
static void a_size_need_not_be_said(void **state) {
    (void)state;
    add_model();
    s.says_no_size = true;
    fetches(NULL);
    assert_file(SNAP "/config.json", "{}", 2);
}

static void revisions_have_refs(void **state) {
    (void)state;
    add_model();
    fetches("v1");
    fetches("refs/pr/1");
    assert_file(MODEL "/refs/v1", HUB_COMMIT, 40);
    assert_file(MODEL "/refs/refs/pr/1", HUB_COMMIT, 40);
    char *folder;
    assert_int_equal(fetch("v9", &folder), AX_ERR_CONFIG);
    assert_mentions("no branch, tag or commit \"v9\"");
    assert_int_equal(fetch("../v1", &folder), AX_ERR_CONFIG);
    assert_mentions("is not a branch, tag or commit");
}

static void a_moved_branch_is_followed_when_news_are_wanted(void **state) {
    (void)state;
    add_model();
    fetches(NULL);
    s.commit = "fedcba9876543210fedcba9876543210fedcba98";
    fetches(NULL);
    hub.refresh = true;
    char *folder;
    assert_int_equal(fetch(NULL, &folder), AX_OK);
    assert_string_equal(folder,
                        in_dir(MODEL "/snapshots/fedcba9876543210fedcba9876543210fedcba98"));
    ax_free(folder);
    assert_int_equal(report.downloaded, 0); /* the blobs are the same ones */
    assert_file(MODEL "/refs/main", s.commit, 40);
}

static void an_index_names_its_shards(void **state) {
    (void)state;
    static const char index[] =
        "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\"}}";
    hub_add(&s, "config.json", "{}", 2, false);
    hub_add(&s, "model.safetensors.index.json", index, sizeof index - 1, false);
    hub_add(&s, "model-1.safetensors", big, sizeof big, true);
    hub_add(&s, "model-2.safetensors", second, sizeof second, true);
    hub_add(&s, "consolidated.safetensors", big, 100, true);
    fetches(NULL);
    assert_file(SNAP "/model-2.safetensors", second, sizeof second);
    assert_no_file(SNAP "/consolidated.safetensors");
    fetches(NULL);
    assert_false(report.asked);
    assert_int_equal(ax_unlink(in_dir(SNAP "/model-2.safetensors")), AX_OK);
    fetches(NULL); /* the blob is still there */
    assert_true(report.asked);
    assert_int_equal(report.downloaded, 0);
}

/* What Mistral publishes without Hugging Face's files: its tokenizer comes, its weights do not. */
static void weights_of_another_form_are_refused(void **state) {
    (void)state;
    char *folder;
    hub_add(&s, "params.json", "{}", 2, false);
    hub_add(&s, "tokenizer.model.v3", "t", 1, false);
    hub_add(&s, "consolidated-1.safetensors", big, sizeof big, true);
    assert_int_equal(ax_hub_model(&folder, &hub, s.id, NULL, AX_HUB_TOKENIZER, &report), AX_OK);
    ax_free(folder);
    assert_file(SNAP "/tokenizer.model.v3", "t", 1);
    assert_int_equal(fetch(NULL, &folder), AX_ERR_UNSUPPORTED);
    assert_mentions("org/My.Model-1B: consolidated-1.safetensors is a file of Mistral's own form");
    assert_mentions("convert_mistral_weights_to_hf.py");
    assert_no_file(SNAP "/consolidated-1.safetensors");
}

static void a_tokenizer_comes_without_weights(void **state) {
    (void)state;
    add_model();
    char *folder;
    assert_int_equal(ax_hub_model(&folder, &hub, s.id, NULL, AX_HUB_TOKENIZER, &report), AX_OK);
    ax_free(folder);
    assert_file(SNAP "/tokenizer.json", "{\"t\": 1}", 8);
    assert_no_file(SNAP "/model.safetensors");
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    assert_int_equal(report.present, 2);
}

static void pages_of_a_long_list_are_put_together(void **state) {
    (void)state;
    add_model();
    s.page = 2;
    s.next = "https://elsewhere.invalid/artifactory/api/huggingfaceml/hub/api"; /* a mirror's */
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    ax_remove_tree(in_dir("cache"));
    s.next = "https://elsewhere.invalid/pages";
    fetches_not(AX_ERR_DATA, "as the next page of its list of files");
}

/* What a download writes to standard error, a terminal of 60 columns. */
static const char *fetched_on_a_terminal(bool quiet) {
    static char text[1 << 16];
    const struct winsize size = {.ws_row = 20, .ws_col = 60};
    const int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int end = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(end >= 0 && ioctl(end, TIOCSWINSZ, &size) == 0);
    char *path;
    hub.quiet = quiet;
    ax_log_set_level(AX_LOG_ERROR);
    assert_true(dup2(end, STDERR_FILENO) >= 0);
    const enum ax_status st = fetch(NULL, &path);
    dup2(saved, STDERR_FILENO);
    ax_log_set_level(AX_LOG_INFO);
    hub.quiet = true;
    ax_free(path);
    terminal_text(master, end, text, sizeof text);
    close(saved);
    close(end);
    close(master);
    assert_int_equal(st, AX_OK);
    return text;
}

/* While it takes long one line says how far it is, and is gone at the end. */
static void a_terminal_shows_how_far_it_is(void **state) {
    (void)state;
    static const char start_of_line[] = "\r\x1b[K", about[] = "fetching org/My.Model-1B  ";
    add_model();
    setenv("TERM", "xterm", 1);
    s.cut_every = BIG / 4;
    hub.retry_seconds = 0.2;
    const char *text = fetched_on_a_terminal(false);
    int lines = 0;
    for (const char *next; (next = strstr(text + 1, start_of_line)); text = next, lines++) {
        const char *line = text + strlen(start_of_line);
        const size_t n = (size_t)(next - line);
        assert_in_range(n, strlen(about) + 1, 59); /* the last column would wrap */
        assert_memory_equal(text, start_of_line, strlen(start_of_line));
        assert_memory_equal(line, about, strlen(about));
        assert_true(strstr(line, " of 1.50 MiB  ") && strstr(line, " of ") < next);
    }
    assert_string_equal(text, start_of_line);
    assert_in_range(lines, 1, 100);
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
    put_file(blob_of("model.safetensors", ".incomplete"), big, BIG - 65536);
    s.cut_every = 16384;
    /* counts what was there, as soon as it has been looked at */
    assert_non_null(strstr(fetched_on_a_terminal(false), "fetching org/My.Model-1B  1.4"));
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    s.cut_every = BIG / 4;
    assert_string_equal(fetched_on_a_terminal(true), "");
}

/* ---- what is cut ---- */

static void cut_every_64_kib_the_bytes_are_the_same(void **state) {
    (void)state;
    add_model();
    s.cut_every = 65536;
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    assert_int_equal(s.cdn_requests, BIG / 65536);
    assert_int_equal(s.ranges, BIG / 65536 - 1);
    assert_int_equal(s.sent, BIG + 10); /* nothing came twice */
    assert_int_equal(report.downloaded, BIG + 10);
}

/* A process that ends at any 64 KiB, and another one that goes on. */
static void what_an_earlier_process_left_is_continued(void **state) {
    (void)state;
    add_model();
    for (size_t cut = 0; cut <= sizeof big; cut += 65536) {
        assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
        assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
        put_file(blob_of("model.safetensors", ".incomplete"), big, cut);
        s.sent = 0;
        fetches(NULL);
        assert_file(SNAP "/model.safetensors", big, sizeof big);
        assert_int_equal(s.sent, sizeof big - cut + 10);
    }
}

static void wrong_leftovers_cost_one_more_try(void **state) {
    (void)state;
    add_model();
    assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
    put_file(blob_of("model.safetensors", ".incomplete"), second, sizeof second);
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    char *longer = calloc(1, BIG + 5);
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
    put_file(blob_of("model.safetensors", ".incomplete"), longer, BIG + 5);
    free(longer);
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
}

static void servers_without_ranges_end(void **state) {
    (void)state;
    add_model();
    s.no_ranges = true;
    assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
    put_file(blob_of("model.safetensors", ".incomplete"), big, 65536);
    fetches(NULL);
    assert_file(SNAP "/model.safetensors", big, sizeof big);
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    s.cut_every = 65536; /* never gets further than this */
    fetches_not(AX_ERR_IO, "org/My.Model-1B");
    assert_no_file(SNAP "/model.safetensors");
}

/* Each answer is complete by its own length; all end before the file does. */
static void servers_that_keep_bytes_back_end(void **state) {
    (void)state;
    add_model();
    s.keep_back = 1;
    s.no_ranges = true;
    fetches_not(AX_ERR_IO, "model.safetensors: the server sent only ");
    assert_no_file(SNAP "/model.safetensors");
    s.keep_back = 0;
    fetches(NULL);
}

/* ---- what is wrong ---- */

static void a_wrong_checksum_is_refused_and_removed(void **state) {
    (void)state;
    add_model();
    s.wrong_bytes = true;
    fetches_not(AX_ERR_DATA, "does not match the checksum");
    assert_no_file(SNAP "/model.safetensors");
    assert_no_file(blob_of("model.safetensors", ""));
    assert_no_file(blob_of("model.safetensors", ".incomplete"));
    s.wrong_bytes = false;
    fetches(NULL);
    s.files[0].data = "[]"; /* small files are checked as git does */
    s.files[0].len = 2;
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    fetches_not(AX_ERR_DATA, "config.json does not match the checksum");
    s.files[0].data = "{}";
    s.linked_etag = "00000000000000000000000000000000000000000000000000000000000000ff";
    fetches_not(AX_ERR_DATA, "disagree about the checksum");
    s.linked_etag = NULL;
    s.linked_more = 1;
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    fetches_not(AX_ERR_DATA, "disagree about the size");
    s.linked_more = 0;
    s.says_commit = "00000000000000000000000000000000000000ff";
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    fetches_not(AX_ERR_DATA, "returned commit 00000000000000000000000000000000000000ff instead");
}

static void refused(const char *list, const char *part) {
    s.list = list;
    fetches_not(AX_ERR_DATA, part);
    assert_no_file("cache/models--org--My.Model-1B/snapshots");
    assert_no_file("evil");
}

#define LISTED(path)                                                                               \
    "[{\"path\": \"" path "\", \"size\": 2, \"oid\": "                                             \
    "\"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]"

static void paths_that_lead_elsewhere_are_refused(void **state) {
    (void)state;
    static char longer[3000] = "[{\"path\": \"", many[9000] = "[{\"path\": \"a";
    static const char tail[] =
        "\", \"size\": 2, \"oid\": \"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]";
    memset(longer + strlen(longer), 'a', 2000);
    strcat(longer, tail);
    for (int i = 0; i < 1000; i++)
        strcat(many, "/a");
    strcat(many, tail);
    refused(LISTED("../evil"), "leads out of the repository");
    refused(LISTED("a/../../evil"), "leads out of the repository");
    refused(LISTED("/tmp/evil"), "leads out of the repository");
    refused(LISTED("a//evil"), "leads out of the repository");
    refused(LISTED("./evil"), "leads out of the repository");
    refused(LISTED("a/"), "leads out of the repository");
    refused(LISTED(""), "leads out of the repository");
    refused(LISTED("a\\\\..\\\\evil"), "leads out of the repository");
    refused(LISTED("evil\\u0000.json"), "\\u0000");
    refused(LISTED("evil\\n.json"), "leads out of the repository");
    refused(longer, "leads out of the repository");
    refused(many, "leads out of the repository");
    refused("[{\"path\": \"a\", \"size\": 2, \"oid\": \"../../evil\"}]", "is not a checksum");
    refused("[{\"path\": \"a\", \"size\": -2, \"oid\": \"0\"}]", "size");
    refused("[{\"path\": \"a\", \"size\": 2}]", "oid");
    refused("{\"error\": 1}", "expected a list of files");
    refused("[", "']' expected near end of file");
    refused("7", "expected");
    refused("", "the response is empty");
}

static void links_in_the_way_are_not_followed(void **state) {
    (void)state;
    struct ax_hub_snapshot snapshot;
    const struct ax_hub_repo r = {AX_HUB_MODEL, s.id, NULL};
    const char *paths[] = {"some/config.json", "some"};
    add_model();
    hub_add(&s, paths[0], "{}", 2, false);
    assert_int_equal(ax_mkdir_parents(in_dir(SNAP)), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("outside")), AX_OK);
    assert_int_equal(symlink(in_dir("outside"), in_dir(SNAP "/some")), 0);
    assert_int_equal(ax_hub_snapshot_find(&snapshot, hub.cache, &r), AX_OK);
    assert_int_equal(ax_hub_ask(&snapshot, &hub, &r), AX_OK);
    assert_int_equal(ax_hub_pull(&snapshot, &hub, &r, paths, 1, &report), AX_ERR_DATA);
    assert_mentions("not a folder");
    assert_no_file("outside/config.json");
    /* a file and a folder of one name */
    assert_int_equal(ax_unlink(in_dir(SNAP "/some")), AX_OK);
    hub_add(&s, paths[1], "x", 1, false);
    snapshot.listed = false;
    assert_int_equal(ax_hub_ask(&snapshot, &hub, &r), AX_OK);
    hub.workers = 1;
    assert_int_equal(ax_hub_pull(&snapshot, &hub, &r, paths, 2, &report), AX_ERR_DATA);
    assert_mentions("a folder exists where a file is needed");
    ax_hub_snapshot_free(&snapshot);
}

static void lists_that_contradict_themselves(void **state) {
    (void)state;
    static const char twice[] =
        "[{\"path\": \"a\", \"size\": 2, \"oid\": \"9e26dfeeb6e641a33dae4961196235bdb965b21b\"},"
        " {\"path\": \"a\", \"size\": 2, \"oid\": \"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]";
    refused(twice, "the file a is listed twice");
    s.list = "[{\"path\": \"model.safetensors\", \"size\": 9007199254740993, \"oid\": "
             "\"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]";
    fetches_not(AX_ERR_DATA, "size");
    s.list = "[{\"path\": \"model.safetensors\", \"size\": 562949953421312, \"oid\": "
             "\"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]";
    fetches_not(AX_ERR_STORAGE, "512 TiB still have to be downloaded, but the disk of");
    assert_mentions("set HF_HUB_CACHE to a folder on another disk");
    /* what an earlier process left is not needed again: 4 TiB, none of them on the disk */
    const char *left = in_dir(MODEL "/blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b.incomplete");
    assert_int_equal(ax_mkdir_parents(in_dir(MODEL "/blobs")), AX_OK);
    put_text(MODEL "/blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b.incomplete", "");
    if (truncate(left, (off_t)1 << 42) != 0)
        return; /* a file system without such files */
    fetches_not(AX_ERR_STORAGE, "508 TiB still have to be downloaded, but the disk of");
}

/* ---- what is refused ---- */

static void trouble_that_passes_is_waited_for(void **state) {
    (void)state;
    static const int passing[] = {408, 429, 500, 502, 503, 504};
    add_model();
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
        s.fail_status = passing[i];
        s.fail_times = 3;
        s.retry_after = passing[i] == 429 ? 0 : -1;
        fetches(NULL);
        assert_file(SNAP "/model.safetensors", big, sizeof big);
    }
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    s.fail_times = 1000;
    fetches_not(AX_ERR_IO, "the hub responded with status 504");
    assert_int_equal(s.fail_times, 995);
    s.fail_status = 429;
    fetches_not(AX_ERR_IO, "rate limit");
    s.fail_times = 1000;
    s.retry_after = 100000;
    fetches_not(AX_ERR_IO, "rate limit"); /* nobody waits for a day */
    assert_int_equal(s.fail_times, 999);
}

static void other_trouble_is_not_waited_for(void **state) {
    (void)state;
    static const int lasting[] = {400, 407, 409, 428, 430, 499, 501, 505};
    add_model();
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) {
        char status[40];
        snprintf(status, sizeof status, "the hub responded with status %d", lasting[i]);
        s.fail_status = lasting[i];
        s.fail_times = 1000;
        fetches_not(AX_ERR_IO, status);
        assert_int_equal(s.fail_times, 999);
    }
}

/* Without a header every pause is twice as long as the one before. */
static void pauses_grow(void **state) {
    (void)state;
    struct timespec a, b;
    add_model();
    hub.retry_seconds = 0.1;
    s.fail_status = 503;
    s.fail_times = 2;
    s.retry_after = -1;
    clock_gettime(CLOCK_MONOTONIC, &a);
    fetches(NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    assert_true(seconds >= 0.3);
    assert_int_equal(s.fail_times, 0);
}

static void retry_after_is_kept(void **state) {
    (void)state;
    struct timespec a, b;
    add_model();
    s.fail_status = 429;
    s.fail_times = 1;
    s.retry_after = 1;
    clock_gettime(CLOCK_MONOTONIC, &a);
    fetches(NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec >= 1);
}

static void refusals_say_what_to_do(void **state) {
    (void)state;
    add_model();
    s.token = "hf_right";
    fetches_not(AX_ERR_CONFIG, "has no such model, or it is private. Check the spelling");
    assert_mentions("set HF_TOKEN or run `hf auth login`");
    s.gated = true;
    fetches_not(AX_ERR_CONFIG, "accept the conditions at http://127.0.0.1:");
    assert_mentions("/org/My.Model-1B, then set HF_TOKEN");
    assert_int_equal(ax_strdup(&hub.token, "hf_wrong"), AX_OK);
    fetches_not(AX_ERR_CONFIG, "rejected your token (Invalid credentials");
    ax_free(hub.token);
    assert_int_equal(ax_strdup(&hub.token, "hf_right"), AX_OK);
    fetches_not(AX_ERR_CONFIG, "with the account of your token");
    s.gated = false;
    fetches(NULL);
    s.id = "org/My.Model-2B";
    char *folder;
    assert_int_equal(ax_hub_model(&folder, &hub, "org/My.Modle", NULL, AX_HUB_WHOLE, &report),
                     AX_ERR_CONFIG);
    assert_mentions("org/My.Modle: http://127.0.0.1:");
    assert_mentions("has no such model, or your token may not see it");
}

static void opens_with_token(const char *token) {
    ax_hub_close(&hub);
    assert_true(ax_hub_open(&hub) == AX_OK && strcmp(hub.token, token) == 0);
}

static void the_token_stays_at_the_hub(void **state) {
    (void)state;
    add_model();
    s.token = "hf_right";
    setenv("HF_TOKEN", " hf_right\n", 1);
    opens_with_token("hf_right");
    fetches(NULL);
    assert_true(s.hub_tokens > 0 && s.cdn_requests == 1 && s.cdn_tokens == 0);
}

static void the_stored_token_is_found(void **state) {
    (void)state;
    setenv("HF_HOME", in_dir("hf"), 1);
    assert_int_equal(ax_mkdir(in_dir("hf")), AX_OK);
    put_text("hf/token", "hf_stored\n");
    setenv("HF_TOKEN", " \n", 1);
    opens_with_token("hf_stored");
    setenv("HF_TOKEN_PATH", in_dir("other"), 1);
    put_text("other", "hf_other");
    opens_with_token("hf_other");
    unsetenv("HF_TOKEN");
    setenv("HUGGING_FACE_HUB_TOKEN", "hf_former", 1);
    opens_with_token("hf_former");
    unsetenv("HUGGING_FACE_HUB_TOKEN");
    ax_hub_close(&hub);
    put_text("other", "hf_a\r\nX-Injected: b");
    assert_int_equal(ax_hub_open(&hub), AX_ERR_CONFIG);
    assert_mentions("not a valid hub token");
    unsetenv("HF_TOKEN_PATH");
    setenv("HF_ENDPOINT", "https://hub.example/a//", 1);
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    assert_string_equal(hub.endpoint, "https://hub.example/a");
    ax_hub_close(&hub);
    setenv("HF_ENDPOINT", "ftp://x", 1);
    assert_int_equal(ax_hub_open(&hub), AX_ERR_CONFIG);
    assert_mentions("HF_ENDPOINT: expected https://");
    unsetenv("HF_ENDPOINT");
    unsetenv("HF_HUB_CACHE");
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    assert_string_equal(hub.endpoint, AX_HUB_ENDPOINT);
    assert_string_equal(hub.cache, in_dir("hf/hub"));
    unsetenv("HF_HOME");
}

static void pickles_are_refused(void **state) {
    (void)state;
    hub_add(&s, "config.json", "{}", 2, false);
    hub_add(&s, "pytorch_model.bin", "pickle", 6, true);
    fetches_not(AX_ERR_UNSUPPORTED, "its weights are pickled (pytorch_model.bin)");
    hub_add(&s, "m.Q8_0.gguf", "GGUF", 4, true);
    fetches_not(AX_ERR_UNSUPPORTED, "contains GGUF files but no safetensors");
    assert_int_equal(s.cdn_requests, 0);
}

static void redirects_that_are_not_safe(void **state) {
    (void)state;
    add_model();
    s.redirect = "file:///etc/passwd";
    fetches_not(AX_ERR_IO, "which is not safe to follow");
    s.redirect = "/org/My.Model-1B/resolve/" HUB_COMMIT "/model.safetensors";
    fetches_not(AX_ERR_IO, "redirected more than 8 times");
    s.detours = 8;
    fetches(NULL); /* the last of 8 redirects leads to the file */
    s.redirect = NULL;
    static const int moved[] = {301, 302, 303, 307, 308};
    for (int i = 0; i < 5; i++) {
        s.moved = moved[i];
        assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
        fetches(NULL);
    }
}

static void offline_never_asks(void **state) {
    (void)state;
    add_model();
    hub.offline = true;
    fetches_not(AX_ERR_CONFIG, "HF_HUB_OFFLINE disables the network");
    assert_int_equal(s.connections, 0);
    hub.offline = false;
    fetches(NULL);
    const int before = s.connections;
    hub.offline = true;
    hub.refresh = true;
    fetches(NULL);
    assert_int_equal(ax_unlink(in_dir(SNAP "/model.safetensors")), AX_OK);
    fetches(NULL); /* the reader of the weights will say that they are missing */
    assert_int_equal(ax_unlink(in_dir(SNAP "/config.json")), AX_OK);
    fetches_not(AX_ERR_CONFIG, "has no config.json of it");
    assert_int_equal(s.connections, before);
    ax_hub_close(&hub);
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    assert_true(hub.offline);
}

static void a_proxy_is_asked(void **state) {
    (void)state;
    add_model();
    ax_free(hub.endpoint);
    assert_int_equal(ax_strdup(&hub.endpoint, "https://hub.invalid"), AX_OK);
    setenv("HTTPS_PROXY", s.endpoint, 1);
    fetches_not(AX_ERR_IO, "https://hub.invalid/api/models/");
    assert_true(s.proxied > 0);
    unsetenv("HTTPS_PROXY");
    ax_free(hub.endpoint);
    assert_int_equal(ax_strdup(&hub.endpoint, "http://hub.invalid"), AX_OK);
    setenv("HTTP_PROXY", s.endpoint, 1);
    fetches_not(AX_ERR_CONFIG, "http://hub.invalid has no such model"); /* says the proxy */
    const int before = s.connections;
    setenv("http_proxy", "", 1); /* goes before it */
    fetches_not(AX_ERR_IO, "hub.invalid");
    unsetenv("http_proxy");
    setenv("NO_PROXY", "hub.invalid", 1);
    fetches_not(AX_ERR_IO, "hub.invalid");
    assert_int_equal(s.connections, before);
    unsetenv("NO_PROXY");
    unsetenv("HTTP_PROXY");
}

static void nobody_there(void **state) {
    (void)state;
    add_model();
    ax_free(hub.endpoint); /* a handshake that fails, as one that is reset, is tried again */
    assert_int_equal(ax_sprintf(&hub.endpoint, "https%s", s.endpoint + 4), AX_OK);
    fetches_not(AX_ERR_IO, "org/My.Model-1B: cannot reach the hub: https://127.0.0.1:");
    assert_int_equal(s.connections, 5);
    ax_free(hub.endpoint);
    assert_int_equal(ax_strdup(&hub.endpoint, s.endpoint), AX_OK);
    hub_stop(&s);
    fetches_not(AX_ERR_IO, "org/My.Model-1B: cannot reach the hub: http://127.0.0.1:");
    assert_mentions("run `axtrain fetch CONFIG`");
    hub_start(&s);
}

/* ---- two concurrent downloads ---- */

static enum ax_status fetch_elsewhere(void *arg) {
    (void)arg;
    struct ax_hub_report r;
    char *folder = NULL;
    const enum ax_status st = ax_hub_model(&folder, &hub, s.id, NULL, AX_HUB_WHOLE, &r);
    ax_free(folder);
    return st;
}

static void two_do_not_fetch_the_same(void **state) {
    (void)state;
    struct ax_worker w[3];
    add_model();
    for (int i = 0; i < 3; i++)
        assert_int_equal(ax_worker_start(&w[i], fetch_elsewhere, NULL), AX_OK);
    for (int i = 0; i < 3; i++)
        if (ax_worker_join(&w[i]) != AX_OK)
            fail_msg("%s", ax_error_text());
    assert_true(s.cdn_requests == 1 && s.sent == BIG + 10);
}

/* Four paths with the same bytes, where no lock can be taken. */
static void without_locks_each_has_a_file_of_its_own(void **state) {
    (void)state;
    struct ax_hub_snapshot snapshot;
    const struct ax_hub_repo r = {AX_HUB_MODEL, s.id, NULL};
    const char *paths[] = {"a", "b", "c", "d"};
    char locks[256];
    for (size_t i = 0; i < 4; i++)
        hub_add(&s, paths[i], big, sizeof big, true);
    snprintf(locks, sizeof locks, "cache/.locks/models--org--My.Model-1B/%s.lock", s.files[0].blob);
    assert_int_equal(ax_mkdir_parents(in_dir(locks)), AX_OK); /* a folder in the lock's place */
    assert_int_equal(ax_hub_snapshot_find(&snapshot, hub.cache, &r), AX_OK);
    assert_int_equal(ax_hub_ask(&snapshot, &hub, &r), AX_OK);
    if (ax_hub_pull(&snapshot, &hub, &r, paths, 4, &report) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_file(SNAP "/d", big, sizeof big);
    ax_hub_snapshot_free(&snapshot);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_model_comes_once_in_the_layout_of_the_cache),
        TEST(a_size_need_not_be_said),
        TEST(revisions_have_refs),
        TEST(a_moved_branch_is_followed_when_news_are_wanted),
        TEST(an_index_names_its_shards),
        TEST(weights_of_another_form_are_refused),
        TEST(a_tokenizer_comes_without_weights),
        TEST(pages_of_a_long_list_are_put_together),
        TEST(a_terminal_shows_how_far_it_is),
        TEST(cut_every_64_kib_the_bytes_are_the_same),
        TEST(what_an_earlier_process_left_is_continued),
        TEST(wrong_leftovers_cost_one_more_try),
        TEST(servers_without_ranges_end),
        TEST(servers_that_keep_bytes_back_end),
        TEST(a_wrong_checksum_is_refused_and_removed),
        TEST(paths_that_lead_elsewhere_are_refused),
        TEST(links_in_the_way_are_not_followed),
        TEST(lists_that_contradict_themselves),
        TEST(trouble_that_passes_is_waited_for),
        TEST(other_trouble_is_not_waited_for),
        TEST(pauses_grow),
        TEST(retry_after_is_kept),
        TEST(refusals_say_what_to_do),
        TEST(the_token_stays_at_the_hub),
        TEST(the_stored_token_is_found),
        TEST(pickles_are_refused),
        TEST(redirects_that_are_not_safe),
        TEST(offline_never_asks),
        TEST(a_proxy_is_asked),
        TEST(nobody_there),
        TEST(two_do_not_fetch_the_same),
        TEST(without_locks_each_has_a_file_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
