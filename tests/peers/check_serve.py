#!/usr/bin/env python3
"""openai-python and litellm as clients of `axtrain serve`: models, chats, streams, completions, errors and their classes, retries,
many at once.

    check_serve.py AXTRAIN MODEL

MODEL is a folder with a chat template. Prints what it has checked; exit code 1 at the first difference.
"""
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

import jsonschema
import openai

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched
import litellm  # noqa: E402

litellm.suppress_debug_info = True
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]


class Server:
    def __init__(self, program, model, *words):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", *words], stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r" model=(\S+) url=(\S+)", line):
                self.name, self.url = found.groups()
                return
        sys.exit("".join(said))

    def close(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def check_models(client, name):
    assert [m.id for m in client.models.list()] == [name]
    assert client.models.retrieve(name).id == name


def check_chat(client, name):
    whole = client.chat.completions.create(model=name, messages=CHAT, temperature=0, max_tokens=24, logprobs=True, top_logprobs=1)
    text = whole.choices[0].message.content
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    stream = client.chat.completions.create(model=name, messages=CHAT, temperature=0, max_tokens=24, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    cut = text[len(text) // 2:][:3]
    with client.chat.completions.stream(model=name, messages=CHAT, temperature=0, max_tokens=24, stop=[cut]) as events:
        for _ in events:
            pass
        final = events.get_final_completion()
    assert final.choices[0].message.content == text.split(cut)[0] and final.choices[0].finish_reason == "stop"
    turns = CHAT + [whole.choices[0].message.model_dump(), {"role": "user", "content": "and?"}]
    client.chat.completions.create(model=name, messages=turns, max_tokens=2)
    return text


def check_completions(client, name):
    given = {"model": name, "prompt": [[1, 2, 3], [4, 5]], "n": 2, "max_tokens": 5, "seed": 3, "logprobs": 1}
    answer = client.completions.create(**given, extra_body={"return_token_ids": True})
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert [c.model_extra["prompt_token_ids"] for c in answer.choices] == [[1, 2, 3]] * 2 + [[4, 5]] * 2
    for choice in answer.choices:
        prompt, ids = choice.model_extra["prompt_token_ids"], choice.model_extra["token_ids"]
        score = client.completions.create(model=name, prompt=[prompt + ids], max_tokens=0, echo=True, logprobs=1)
        assert score.choices[0].logprobs.token_logprobs[len(prompt):] == choice.logprobs.token_logprobs


def check_sampling(client, name):
    given = {"model": name, "messages": CHAT, "max_tokens": 8, "logprobs": True, "top_logprobs": 20}
    answer = client.chat.completions.create(**given, seed=1, logit_bias={"65": 100}, presence_penalty=1, frequency_penalty=-1,
                                            extra_body={"min_tokens": 8, "return_token_ids": True, "prompt_logprobs": 2})
    assert answer.choices[0].model_extra["token_ids"] == [65] * 8
    for token in answer.choices[0].logprobs.content:
        tops = [t.logprob for t in token.top_logprobs]
        assert len(tops) == 20 and tops == sorted(tops, reverse=True)
    assert len(answer.model_extra["prompt_logprobs"]) == answer.usage.prompt_tokens
    turns = CHAT + [{"role": "assistant", "content": "The sky is"}]
    client.chat.completions.create(model=name, messages=turns, max_tokens=2, extra_body={
        "continue_final_message": True, "add_generation_prompt": False, "chat_template_kwargs": {"enable_thinking": False}})


def check_errors(client, name):
    for kind, wrong in ((openai.NotFoundError, {"model": "other"}), (openai.BadRequestError, {"temperature": -1}),
                        (openai.BadRequestError, {"response_format": {"type": "xml"}}),
                        (openai.BadRequestError, {"max_tokens": 1 << 30})):
        try:
            client.chat.completions.create(**{"model": name, "messages": CHAT, **wrong})
        except kind as e:
            assert e.param == next(iter(wrong)) and e.param in e.message
        else:
            sys.exit(f"{wrong} is accepted")


TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}}]
CALLED = [{"role": "user", "content": "hello"},
          {"role": "assistant", "content": None, "tool_calls": [
              {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 2}"}}]},
          {"role": "tool", "tool_call_id": "call_1", "content": "4"}]


def check_tools(client, name):
    given = {"model": name, "messages": CALLED, "tools": TOOLS, "temperature": 0, "max_tokens": 24}
    try:
        whole = client.chat.completions.create(**given).choices[0]
    except openai.BadRequestError as e:
        assert e.param == "tools" and "chat template" in e.message
        return "tools refused"
    with client.chat.completions.stream(**given) as events:
        for _ in events:
            pass
        try:
            final = events.get_final_completion().choices[0]
        except openai.LengthFinishReasonError as e:
            final = e.completion.choices[0]
    assert final.finish_reason == whole.finish_reason
    calls = [[(c.function.name, c.function.arguments) for c in x.message.tool_calls or []] for x in (whole, final)]
    assert calls[0] == calls[1] and (final.message.content or None) == (whole.message.content or None)
    must = client.chat.completions.create(model=name, messages=CALLED, tools=TOOLS, tool_choice="required", n=8, temperature=1, seed=1)
    for choice in must.choices:
        call, = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls" and call.function.name == "add"
        jsonschema.validate(json.loads(call.function.arguments), TOOLS[0]["function"]["parameters"])
    return f"tools ({len(calls[0])} calls, {len(must.choices)} required)"


SCHEMA = {"type": "object", "title": "Person", "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12}, "height": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 2.3},
    "age": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 120}, {"type": "null"}]},
    "friends": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/friend"}}},
    "required": ["name", "age", "friends"], "additionalProperties": False,
    "$defs": {"friend": {"type": "object", "properties": {"kind": {"enum": ["old", "new", 3, True]}, "of": {"$ref": "#/$defs/friend"}},
                         "required": ["kind"], "additionalProperties": False}}}


def check_schema(client, name):
    asked = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}
    answer = client.chat.completions.create(model=name, messages=CHAT, n=64, seed=1, temperature=1, response_format=asked)
    ended = [c for c in answer.choices if c.finish_reason == "stop"]
    for choice in ended:
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    assert len(ended) > 4
    answer = client.chat.completions.create(model=name, messages=CHAT, n=32, seed=1, temperature=1,
                                            response_format={"type": "json_object"})
    for choice in answer.choices:
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
    return f"{len(ended)} values of a schema"


CHOICES = ["positive", "negative", "positively not"]
EXPRESSIONS = [r"^(19|20)\d{2}-(0[1-9]|1[0-2])$", r"(?P<user>\w{1,8})@[a-z]{2,9}\.(?:com|org)", r"[^\W\d_]{3,7}[.!?]?|\[\S{1,5}\]"]


def check_choices(client, name):
    """As vLLM's clients ask, TRL among them."""
    def texts(**held):
        answer = client.chat.completions.create(model=name, messages=CHAT, n=32, seed=1, temperature=1, max_tokens=64, extra_body=held)
        assert all(c.finish_reason == "stop" for c in answer.choices)
        return [c.message.content for c in answer.choices]
    for held in ({"guided_choice": CHOICES}, {"structured_outputs": {"choice": CHOICES}}):
        assert set(texts(**held)) <= set(CHOICES)
    for expression in EXPRESSIONS:
        for held in ({"guided_regex": expression}, {"structured_outputs": {"regex": expression}}):
            for text in texts(**held):
                assert re.fullmatch(expression, text, re.ASCII), (expression, text)
    for wrong in ({"guided_regex": "a(?=b)"}, {"structured_outputs": {"grammar": "root ::= \"a\""}}):
        try:
            texts(**wrong)
        except openai.BadRequestError as e:
            assert e.param == next(iter(wrong))
        else:
            sys.exit(f"{wrong} is accepted")
    return f"{len(EXPRESSIONS)} expressions"


def check_litellm(url, name, text):
    """As a server of OpenAI's API, and as vLLM."""
    given = {"messages": CHAT, "temperature": 0, "max_tokens": 24, "api_base": url, "api_key": "none"}
    for kind in ("openai", "hosted_vllm"):
        whole = litellm.completion(model=f"{kind}/{name}", **given, extra_body={"return_token_ids": True})
        assert whole.choices[0].message.content == text and whole.choices[0].finish_reason in ("stop", "length")
        assert whole.usage.completion_tokens <= 24
        chunks = list(litellm.completion(model=f"{kind}/{name}", **given, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
        try:
            litellm.completion(model=f"{kind}/other", **given)
        except litellm.NotFoundError:
            pass
        else:
            sys.exit("litellm finds a model that is not there")
    return f"litellm {importlib.metadata.version('litellm')}"


def check_retry(program, model):
    """With no room a client is refused; one that tries again is answered."""
    server = Server(program, model, "--parallel", "1", "--queue", "0", "--allow-control")
    root = server.url.removesuffix("/v1")

    def post(path):
        urllib.request.urlopen(urllib.request.Request(root + path, method="POST"), timeout=60).read()

    def ask(retries):
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=retries)
        return client.completions.create(model=server.name, prompt="a", max_tokens=1)
    done = []
    threads = [threading.Thread(target=lambda: done.append(ask(8))) for _ in range(2)]
    try:
        post("/pause?mode=wait")
        for t in threads:  # one waits, the other is refused until then
            t.start()
            time.sleep(0.3)
        try:
            ask(0)
        except openai.RateLimitError as e:
            assert e.response.headers["retry-after"] == "1"
        else:
            sys.exit("a full server takes requests")
        post("/resume")
        for t in threads:
            t.join(60)
        assert len(done) == 2
    finally:
        server.close()


def check_many(client, name, text):
    said = []

    def one():
        answer = client.chat.completions.create(model=name, messages=CHAT, temperature=0, max_tokens=24)
        said.append(answer.choices[0].message.content)
    threads = [threading.Thread(target=one) for _ in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert said == [text] * 32


def main():
    server = Server(*sys.argv[1:3])
    try:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        check_models(client, server.name)
        text = check_chat(client, server.name)
        check_completions(client, server.name)
        check_sampling(client, server.name)
        check_errors(client, server.name)
        tools = check_tools(client, server.name)
        values = check_schema(client, server.name)
        expressions = check_choices(client, server.name)
        proxy = check_litellm(server.url, server.name, text)
        check_many(client, server.name, text)
    finally:
        server.close()
    check_retry(*sys.argv[1:3])
    print(f"openai {openai.__version__}, {proxy}: models, chats, streams, completions, errors, {tools}, {values}, {expressions}, 32 at once")


if __name__ == "__main__":
    main()
