/* A program that goes on where earlier ones ended: it first repeats them in silence. The sandbox gives all of an
 * answer's programs the same clock and random numbers, so a repeated one does what it did. */
#include "base/text/json.h"
#include "data/tools/tools.h"

static const char head[] = "def _go_on():\n"
                           "    import io, sys\n"
                           "    names = {'__name__': '__main__'}\n"
                           "    for code in earlier:\n"
                           "        out, err = sys.stdout, sys.stderr\n"
                           "        sys.stdout = sys.stderr = io.StringIO()\n"
                           "        try:\n"
                           "            exec(compile(code, '<earlier call>', 'exec'), names)\n"
                           "        except BaseException:\n"
                           "            pass\n"
                           "        finally:\n"
                           "            sys.stdout, sys.stderr = out, err\n"
                           "    exec(compile(now, '<call>', 'exec'), names)\n";

/* JSON that is Python, too: lists and texts are written alike. */
static enum ax_status put_value(struct ax_buf *out, const char *name, const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a call");
    const enum ax_status st = ax_buf_printf(out, "%s = %s\n", name, text);
    ax_free(text);
    return st;
}

enum ax_status ax_tool_go_on(const json_t *earlier, const json_t *code, struct ax_buf *out) {
    AX_TRY(put_value(out, "earlier", earlier));
    AX_TRY(put_value(out, "now", code));
    AX_TRY(ax_buf_append(out, head, sizeof head - 1));
    return ax_buf_puts(out, "_go_on()\n");
}
