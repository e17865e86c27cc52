"""Renders a template as transformers does, with the clock standing still."""
import copy
import datetime
import functools
import os
import time

os.environ["TZ"] = "UTC"
time.tzset()

from transformers.utils import chat_template_utils  # noqa: E402

NOW = datetime.datetime(2026, 3, 5, 14, 7, 9)
NOW_UNIX = 1772719629


class StoppedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = StoppedClock


@functools.lru_cache(maxsize=64)
def compiled(template):
    return chat_template_utils._cached_compile_jinja_template(template)


def prepare_chat(variables):
    """What apply_chat_template does before it renders."""
    messages = [{k: v for k, v in m.items() if v is not None} for m in variables["messages"]]
    variables["messages"] = chat_template_utils._alias_reasoning_fields(messages)
    for name, value in (("tools", None), ("documents", None), ("add_generation_prompt", False)):
        variables.setdefault(name, value)


def render(template, variables):
    """{"text", "spans"} or {"error"}."""
    try:
        variables = copy.deepcopy(variables)
        if "messages" in variables:
            prepare_chat(variables)
        blocks, spans = [], []
        with compiled(template).environment.activate_tracker(blocks, spans):
            for block in compiled(template).generate(**variables):
                blocks.append(block)
        text = "".join(blocks)
        text.encode("utf-8")
        return {"text": text, "spans": [list(span) for span in spans]}
    except Exception as error:  # whatever a template does wrong
        return {"error": f"{type(error).__name__}: {error}"}
