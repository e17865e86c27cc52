#!/usr/bin/env python3
"""Random requests at `axtrain serve`, and answers that a model of the API in Python says they have.

    serve_random.py AXTRAIN MODEL [--requests 10000] [--clients 8] [--seed 1]

First some prompts and conversations are continued to a length, greedily and with seeds, each alone and without an end. These tokens and
their log-probs are all that is taken from the server: what requests make of them (stops across tokens, ends, lengths, echoes, log-probs,
offsets, the text of bytes, orders, counts, streams, errors) is computed here, from the tokenizer's file. Then clients ask at the same time, and
some leave before they are answered. Prints what it has checked; exit code 1 at the first answer that is another one. Needs nothing but Python.
"""
import argparse
import codecs
import collections
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time

LONGEST = 24  # tokens that continuations are known of
TOPS = 5      # likeliest tokens that are asked for
SAMPLES = 9   # answers to a request: choice i is sample i of its prompt
COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
WORDS = ["the", "train", "went", "on", "Zug", "größer", "日本", "42", "if", "x =", "\n", "so that", "🙂", "a"]
EXPRESSIONS = [r"[a-z]{2,6}", r"(yes|no)[.!]", r"-?[0-9]{1,3}(\.[0-9]{2})?", r"[^\W\d]{1,5} \S{2}"]
CHOICES = [["yes", "no"], ["a", "ab", "abc"], ["größer", "kleiner"]]
SAMPLERS = [{"temperature": 0}, {"seed": 5}, {"seed": 9, "temperature": 1.7, "top_k": 50}, {"seed": -3, "top_p": 0.9, "min_p": 0.01}]

# Mistakes: what is changed, and the key that the error names (status 400, unless another is said).
MISTAKES = [({"temperature": -1}, "temperature"), ({"temperature": "1"}, "temperature"), ({"top_p": 1.01}, "top_p"), ({"min_p": -1}, "min_p"),
            ({"top_k": -2}, "top_k"), ({"n": 0}, "n"), ({"n": 129}, "n"), ({"n": 1.5}, "n"), ({"presence_penalty": 2.1}, "presence_penalty"),
            ({"frequency_penalty": -2.1}, "frequency_penalty"), ({"repetition_penalty": 0}, "repetition_penalty"), ({"seed": "a"}, "seed"),
            ({"stop": ""}, "stop"), ({"stop": ["a", ""]}, "stop"), ({"stop": ["a"] * 65}, "stop"), ({"stop_token_ids": [-1]}, "stop_token_ids"),
            ({"stop_token_ids": [1 << 31]}, "stop_token_ids"), ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"logit_bias": {"1": 101}}, "logit_bias"), ({"min_tokens": 1 << 20}, "min_tokens"), ({"stream": 1}, "stream"),
            ({"ignore_eos": "yes"}, "ignore_eos"), ({"stream_options": {"include_usage": True}, "stream": False}, "stream_options"),
            ({"guided_choice": []}, "guided_choice"), ({"guided_regex": "("}, "guided_regex"), ({"guided_json": {"oneOf": []}}, "guided_json"),
            ({"guided_grammar": "a"}, "guided_grammar"), ({"max_tokens": 1 << 30}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"),
            ({"tempreature": 1}, "tempreature"), ({"priority": "high"}, "priority"), ({"request_id": ""}, "request_id"),
            ({"cache_salt": ""}, "cache_salt"), ({"model": "nobody"}, "model")]
MISTAKES_OF = {COMPLETE: [({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": 1}, "prompt"),
                          ({"prompt": None}, "prompt"), ({"logprobs": 21}, "logprobs"), ({"suffix": "a"}, "suffix"), ({"best_of": 100}, "best_of"),
                          ({"messages": []}, "messages"), ({"echo": "x"}, "echo")],
               CHAT: [({"messages": []}, "messages"), ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
                      ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"), ({"logprobs": 1}, "logprobs"),
                      ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"), ({"max_tokens": 0}, "max_tokens"), ({"prompt": "a"}, "prompt"),
                      ({"max_completion_tokens": 0}, "max_completion_tokens"), ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
                      ({"tool_choice": "required"}, "tool_choice"), ({"response_format": {"type": "x"}}, "response_format")]}


class Wrong(Exception):
    pass


def expect(what, got, want):
    if got != want:
        raise Wrong(f"{what}: got {got!r}, expected {want!r}")


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--dtype", "float32", "--parallel", "8", "--queue", "4000", "--threads", "1"],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"model=(\S+) url=http://127.0.0.1:(\d+)/", line):
                self.name, self.port = found.group(1), int(found.group(2))
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit("the server does not start")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, path, body, connection=None):
        c = connection or self.connect()
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        if not connection:
            c.close()
        return r.status, data

    def get(self, path, body):
        status, data = self.ask(path, body)
        if status != 200:
            sys.exit(f"{path} {body}: {status} {data.decode()}")
        return json.loads(data)

    def pending(self):
        c = self.connect()
        c.request("GET", "/metrics")
        return int(re.search(r"^axtrain_sequences_pending (\d+)", c.getresponse().read().decode(), re.M).group(1))


class Vocabulary:
    """Bytes of tokens, by the tokenizer's file: byte-level BPE."""

    def __init__(self, folder):
        with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:
            t = json.load(f)
        assert t["decoder"]["type"] == "ByteLevel", "expected a byte-level vocabulary"
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [b for b in range(256) if b not in shown]
        letters = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}
        self.bytes = {i: bytes(letters[c] for c in s) for s, i in t["model"]["vocab"].items()}
        self.special = {a["id"]: a["content"] for a in t["added_tokens"] if a["special"]}
        self.bytes |= {a["id"]: a["content"].encode() for a in t["added_tokens"]}
        self.plain = sorted(set(self.bytes) - set(self.special))

    def name(self, token):
        """The token as a text of its own."""
        return self.bytes[token].decode("utf-8", "replace")

    def texts(self, ids):
        """The text after each token, as far as characters are whole, and at the end."""
        decoder, text, out = codecs.getincrementaldecoder("utf-8")("replace"), "", []
        for token in ids:
            text += decoder.decode(b"" if token in self.special else self.bytes[token])
            out.append(text)
        return out, text + decoder.decode(b"", True)


Path = collections.namedtuple("Path", "ids logprobs tops")  # a continuation without an end; tops: ids and log-probs of the likeliest


class Known:
    """What is asked about: prompts, conversations, and how they go on."""

    def __init__(self, server, folder, draw):
        self.words = Vocabulary(folder)
        with open(f"{folder}/generation_config.json", encoding="utf-8") as f:
            ends = json.load(f)["eos_token_id"]
        self.ends = ends if isinstance(ends, list) else [ends]
        with open(f"{folder}/tokenizer_config.json", encoding="utf-8") as f:
            eos = json.load(f)["eos_token"]
        self.eos = next(i for i, name in self.words.special.items() if name == eos)
        self.name = server.name
        self.prompts, self.paths, self.scores = {COMPLETE: [], CHAT: []}, {}, {}
        for i in range(6):
            text = " ".join(draw.choices(WORDS, k=1 + i))
            ids = server.get("/tokenize", {"prompt": text})["tokens"] if i % 2 else draw.choices(self.words.plain, k=1 + 3 * i)
            self.prompts[COMPLETE].append((text if i % 2 else ids, ids))
        for i in range(4):
            turns = [{"role": r, "content": " ".join(draw.choices(WORDS, k=2))} for r in ["system", "user", "assistant", "user"][4 - 1 - i:]]
            self.prompts[CHAT].append((turns, server.get("/tokenize", {"messages": turns})["tokens"]))
        for of in self.prompts.values():
            for _, ids in of:
                self.learn(server, ids)

    def learn(self, server, ids):
        asked = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": TOPS, "prompt": ids}
        score = server.get(COMPLETE, {**asked, "max_tokens": 0, "echo": True})["choices"][0]["logprobs"]
        self.scores[tuple(ids)] = self.path_of(ids, score)
        for k, sampler in enumerate(SAMPLERS):
            choices = server.get(COMPLETE, {**asked, **sampler, "max_tokens": LONGEST, "n": SAMPLES, "ignore_eos": True})["choices"]
            self.paths[tuple(ids), k] = [self.path_of(c["token_ids"], c["logprobs"]) for c in choices]

    def path_of(self, ids, logprobs):
        number = [{int(t.removeprefix("token_id:")): x for t, x in top.items()} if top else None for top in logprobs["top_logprobs"]]
        return Path(ids, logprobs["token_logprobs"], number)


Answer = collections.namedtuple("Answer", "ids text finish reason")


def end_of(known, path, o):
    """The answer that a path becomes by what a request says about its end."""
    words, ids = known.words, path.ids[:o["max_tokens"]]
    ends = set() if o.get("ignore_eos") else set(known.ends)
    least, include = o.get("min_tokens", 0), o.get("include_stop_str_in_output", False)
    stops = [o["stop"]] if isinstance(o.get("stop"), str) else o.get("stop", [])
    texts, flushed = words.texts(ids)
    free = len(texts[least - 1]) if least else 0  # no stop is looked for before
    for i, token in enumerate(ids):
        by_id = token in o.get("stop_token_ids", [])
        ended = by_id or token in ends
        found = [(texts[i].find(s, free), k) for k, s in enumerate(stops) if i >= least and s in texts[i][free:]]
        if found and (include or not ended):
            at, k = min(found)
            return Answer(ids[:i + 1], texts[i][:at] + (stops[k] if include else ""), "stop", stops[k])
        if ended:
            of_eos = token == known.eos and token in ends  # no stop_reason, as in vLLM, even if it is asked for
            return Answer(ids[:i + 1], words.texts(ids[:i + include])[1], "stop", token if by_id and not of_eos else None)
    return Answer(ids, flushed, "length", None)


def draw_stops(draw, known, path, o):
    """Texts of the answer itself, and others; and ids."""
    text = known.words.texts(path.ids)[1]
    stops = []
    for _ in range(draw.choice([0, 0, 1, 3])):
        at = draw.randrange(len(text) + 1)
        piece = text[at:at + draw.randint(1, 5)] if draw.random() < 0.8 else "never this"
        if piece and "\ufffd" not in piece and "\0" not in piece:
            stops.append(piece)
    if stops:
        o["stop"] = stops[0] if len(stops) == 1 and draw.random() < 0.5 else stops
    if draw.random() < 0.25:
        ids = {draw.choice(path.ids) if draw.random() < 0.5 else draw.choice(known.words.plain) for _ in range(2)}
        o["stop_token_ids"] = sorted(ids)
    if stops and draw.random() < 0.3:
        o["include_stop_str_in_output"] = True


def draw_request(draw, known):
    """(path, request, prompts with ids, paths for each)"""
    path = draw.choice([COMPLETE, COMPLETE, CHAT])
    chosen = draw.choices(known.prompts[path], k=1 if path == CHAT else draw.choice([1, 1, 2, 3]))
    if path == COMPLETE and len({type(c[0]) for c in chosen}) > 1:
        chosen = chosen[:1]
    k = draw.randrange(len(SAMPLERS))
    o = {**SAMPLERS[k], "max_tokens": draw.randint(1, LONGEST), "n": draw.choice([1, 1, 2, 3])}
    paths = [known.paths[tuple(ids), k][i * o["n"]:(i + 1) * o["n"]] for i, (_, ids) in enumerate(chosen)]
    draw_stops(draw, known, draw.choice(paths[0]), o)
    o["ignore_eos"] = draw.random() < 0.3
    if k == 0 and draw.random() < 0.4:  # ends are excluded before: the path is the same if it is greedy and they would not have come
        ends = set(o.get("stop_token_ids", [])) | (set() if o["ignore_eos"] else set(known.ends))
        first = min([i for of in paths for p in of for i, t in enumerate(p.ids) if t in ends] + [LONGEST])
        o["min_tokens"] = draw.randint(0, min(first, o["max_tokens"]))
    for key, value in {"user": "me", "return_token_ids": True, "stream": True, "store": False, "priority": draw.randint(-3, 3)}.items():
        if draw.random() < 0.4:
            o[key] = value
    if draw.random() < 0.4:
        if path == CHAT:
            o["logprobs"] = True
            o["top_logprobs"] = draw.randint(0, TOPS)
        else:
            o["logprobs"] = draw.randint(0, TOPS)
            o["return_tokens_as_token_ids"] = draw.random() < 0.5
    if path == CHAT:
        o["messages"] = chosen[0][0]
    else:
        texts = [given for given, _ in chosen]
        o["prompt"] = texts if len(texts) > 1 or draw.random() < 0.3 else texts[0]
        if draw.random() < 0.3 and not ("logprobs" in o and o.get("stream")):
            o["echo"] = True
            if draw.random() < 0.3 and "min_tokens" not in o:
                o["max_tokens"] = 0
    if o.get("stream") and draw.random() < 0.5:
        o["stream_options"] = {"include_usage": True}
    return path, o, [ids for _, ids in chosen], paths


def check_tops(known, o, tops, want, token, logprob):
    """A completion's likeliest tokens: those asked for, and the one that was chosen."""
    if o.get("return_tokens_as_token_ids"):
        likeliest = dict(sorted(want.items(), key=lambda x: -x[1])[:o["logprobs"]])
        expect("top_logprobs", tops, {f"token_id:{t}": x for t, x in {**likeliest, token: logprob}.items()})
    else:
        expect("the token's own log-prob among the likeliest", max(tops.values()) >= logprob and known.words.name(token) in tops, True)


def check_completion_logprobs(known, o, prompt, path, n, got):
    score = known.scores[tuple(prompt)] if o.get("echo") else Path([], [], [])
    ids = [*score.ids, *path.ids[:n]]
    names = [f"token_id:{t}" if o.get("return_tokens_as_token_ids") else known.words.name(t) for t in ids]
    expect("logprobs.tokens", got["tokens"], names)
    values = [*score.logprobs, *path.logprobs[:n]]
    expect("token_logprobs", got["token_logprobs"], values)
    offsets, at = [], 0
    for token, name in zip(ids, names):
        offsets.append(at)
        at += 0 if token in known.words.special else len(name)
    expect("text_offset", got["text_offset"], offsets)
    for token, value, top, want in zip(ids, values, got["top_logprobs"], [*score.tops, *path.tops[:n]]):
        if value is None:
            expect("top_logprobs of the first", top, None)
        else:
            check_tops(known, o, top, want, token, value)


def check_chat_logprobs(known, o, path, n, got):
    expect("the number of log-probs", len(got["content"]), n)
    for i, entry in enumerate(got["content"]):
        token, name = path.ids[i], known.words.name(path.ids[i])
        expect("token", entry["token"], name)
        expect("logprob", entry["logprob"], path.logprobs[i])
        expect("bytes", bytes(entry["bytes"]), known.words.bytes[token])
        likeliest = sorted(path.tops[i].values(), reverse=True)[:o["top_logprobs"]]
        expect("top_logprobs", [t["logprob"] for t in entry["top_logprobs"]], likeliest)


def join(path, body, data):
    """The events of a stream as a whole answer."""
    events = data.decode().split("\n\n")
    expect("the end of the stream", events[-2:], ["data: [DONE]", ""])
    chunks = [json.loads(e.removeprefix("data: ")) for e in events[:-2] if not e.startswith(":")]
    whole, usage = {}, None
    for v in chunks:
        usage = v.get("usage") or usage
        for c in v["choices"]:
            to = whole.setdefault(c["index"], {"index": c["index"], "text": "", "token_ids": [], "content": [], "finish_reason": None, "first": c})
            expect("an end that nothing follows", to["finish_reason"], None)
            to["text"] += (c["delta"].get("content") or "") if path == CHAT else c["text"]
            to["token_ids"] += c.get("token_ids", [])
            if c.get("logprobs"):
                for key, value in c["logprobs"].items():
                    to.setdefault("logprobs", {}).setdefault(key, []).extend(value)
            to["finish_reason"], to["stop_reason"] = c["finish_reason"], c.get("stop_reason")
    for c in whole.values():
        if path == CHAT:
            expect("the first delta", c["first"]["delta"].get("role"), "assistant")
            c["message"] = {"content": c["text"]}
        if c["index"] == 0 and body.get("return_token_ids") and path == COMPLETE and "prompt_token_ids" in c["first"]:
            c["prompt_token_ids"] = c["first"]["prompt_token_ids"]
    wanted = bool(body.get("stream_options"))
    expect("usage in a stream", usage is not None, wanted)
    return {"choices": [whole[i] for i in sorted(whole)], "usage": usage}


def check_answer(known, path, o, prompts, paths, v):
    flat = [(prompt, p) for prompt, of in zip(prompts, paths) for p in of]
    expect("the number of choices", [c["index"] for c in v["choices"]], list(range(len(flat))))
    made = 0
    for c, (prompt, p) in zip(v["choices"], flat):
        want = end_of(known, p, o)
        given = o.get("prompt")
        echo = ""
        if o.get("echo"):
            many = isinstance(given, list) and not isinstance(given[0], int)
            text = given[prompts.index(prompt)] if many else given
            echo = text if isinstance(text, str) else known.words.texts(prompt)[1]
        made += len(want.ids)
        expect("text", c["message"]["content"] if path == CHAT else c["text"], echo + want.text)
        if o["max_tokens"] > 0:
            expect("finish_reason", c["finish_reason"], want.finish)
            expect("stop_reason", c["stop_reason"], want.reason)
        if o.get("return_token_ids"):
            expect("token_ids", c["token_ids"], want.ids)
            if path == COMPLETE and not o.get("stream"):
                expect("prompt_token_ids", c["prompt_token_ids"], prompt)
        if path == CHAT and o.get("logprobs"):
            check_chat_logprobs(known, o, p, len(want.ids), c["logprobs"])
        elif path == COMPLETE and "logprobs" in o and want.ids + (prompt if o.get("echo") else []):
            check_completion_logprobs(known, o, prompt, p, len(want.ids), c["logprobs"])
    if v["usage"]:
        read = sum(len(ids) for ids in prompts)
        got = {k: v["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")}
        expect("usage", got, {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made})


class Client(threading.Thread):
    def __init__(self, server, known, numbers, seed, counts):
        super().__init__()
        self.server, self.known, self.numbers, self.seed, self.counts = server, known, numbers, seed, counts
        self.connection, self.failure, self.lock = server.connect(), None, threading.Lock()

    def run(self):
        for number in self.numbers:
            draw = random.Random(f"{self.seed} {number}")
            try:
                kind = draw.choices([self.ask, self.ask_wrongly, self.ask_held, self.leave], [70, 20, 6, 4])[0]
                self.counts[kind.__name__] += 1
                kind(draw)
            except Exception as e:  # whatever goes wrong is said, with the request
                self.failure = f"request {number} (--seed {self.seed}): {type(e).__name__} {e}\n{self.said}"
                return

    def post(self, path, body):
        self.said = f"{path} {json.dumps(body, ensure_ascii=False)}"
        return self.server.ask(path, body, self.connection)

    def ask(self, draw):
        path, o, prompts, paths = draw_request(draw, self.known)
        status, data = self.post(path, o)
        expect("status", (status, data.decode() if status != 200 else ""), (200, ""))
        self.said += f"\n{data.decode()}"
        v = join(path, o, data) if o.get("stream") else json.loads(data)
        check_answer(self.known, path, o, prompts, paths, v)

    def ask_wrongly(self, draw):
        """One mistake in a request that is right otherwise; or none that is JSON."""
        path, o, _, _ = draw_request(draw, self.known)
        if draw.random() < 0.1:
            text = json.dumps(o)[:draw.randint(0, 20)]
            self.said = f"{path} {text}"
            self.connection.request("POST", path, text, {"Content-Type": "application/json"})
            r = self.connection.getresponse()
            expect("status and error", (r.status, json.loads(r.read())["error"]["type"]), (400, "invalid_request_error"))
            return
        change, param = draw.choice(MISTAKES + MISTAKES_OF[path])
        if param in ("stop", "min_tokens"):
            o.pop("min_tokens", None)
        o.pop("echo", None)
        o["max_tokens"] = max(o["max_tokens"], 1)
        status, data = self.post(path, {**o, **change})
        error = json.loads(data)["error"]
        expect("status and param", (status, error["param"]), (404 if param == "model" else 400, param))
        expect("code", error["code"], {"model": "model_not_found"}.get(param, "context_length_exceeded" if change == {"max_tokens": 1 << 30}
                                                                        else None))

    def ask_held(self, draw):
        """Answers that are held to a choice or an expression."""
        ids = draw.choice(self.known.prompts[COMPLETE])[1]
        choice, expression = draw.choice(CHOICES), draw.choice(EXPRESSIONS)
        by_choice = draw.random() < 0.5
        held = {"choice": choice} if by_choice else {"regex": expression}
        body = {"prompt": ids, "n": 4, "seed": draw.randrange(1000), "max_tokens": 48}
        if draw.random() < 0.5:
            body["structured_outputs"] = held
        else:
            body |= {f"guided_{k}": v for k, v in held.items()}
        status, data = self.post(COMPLETE, body)
        expect("status", status, 200)
        for c in json.loads(data)["choices"]:
            expect("finish_reason", c["finish_reason"], "stop")
            fits = c["text"] in choice if by_choice else re.fullmatch(expression, c["text"], re.ASCII) is not None
            expect(f"an answer of {held}", (c["text"], fits), (c["text"], True))

    def leave(self, draw):
        """Asks for much, and goes: at once, or in the middle."""
        path, o, _, _ = draw_request(draw, self.known)
        body = json.dumps({**o, "max_tokens": LONGEST}).encode()
        self.said = f"{path} {body.decode()}"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port)) as s:
            s.sendall(head.encode() + (body if draw.random() < 0.8 else body[:len(body) // 2]))
            if draw.random() < 0.5:
                time.sleep(draw.random() * 0.01)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("axtrain")
    p.add_argument("model")
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    server = Server(a.axtrain, a.model)
    try:
        known = Known(server, a.model, random.Random(a.seed))
        counts = collections.Counter()
        clients = [Client(server, known, range(i, a.requests, a.clients), a.seed, counts) for i in range(a.clients)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        for c in clients:
            if c.failure:
                sys.exit(c.failure)
        until = time.monotonic() + 60
        while server.pending() and time.monotonic() < until:
            time.sleep(0.01)
        expect("sequences that are pending at the end", server.pending(), 0)
    finally:
        server.process.terminate()
    expect("the server's exit code", server.process.wait(60), 0)
    print(f"{a.requests} requests of {a.clients} clients: {counts['ask']} answers, {counts['ask_held']} held to a choice or an expression, "
          f"{counts['ask_wrongly']} errors, {counts['leave']} left")


if __name__ == "__main__":
    main()
