#!/usr/bin/env python3
"""Runs the examples of docs/serving.md as they are written, but for the port, the models and the task: curl, openai-python, an
agent with tools, lm_eval.

    check_serving_page.py AXTRAIN GOLDENS

GOLDENS has models/ and runs/ (build/goldens). Needs: openai, lm_eval[api], transformers. Exit code 1 at the first difference.
"""
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

URL = "http://127.0.0.1:8000/v1"


class Server:
    def __init__(self, axtrain, folder):
        self.process = subprocess.Popen([axtrain, "serve", str(folder), "--dtype", "float32", "--port", "0"], stderr=subprocess.PIPE,
                                        text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r" url=(\S+)", line):
                self.url = found.group(1)
                return
        sys.exit("".join(said))

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0


def blocks(language):
    page = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)


def run(command, url, folder):
    done = subprocess.run(command.replace(URL, url), shell=True, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def execute(block, url):
    """What a block of Python prints, and its variables."""
    assert URL in block
    said, names = io.StringIO(), {}
    with contextlib.redirect_stdout(said):
        exec(compile(block.replace(URL, url), "docs/serving.md", "exec"), names)
    return said.getvalue(), names


def check_curl(url):
    command, = (b for b in blocks("sh") if b.startswith("curl") and "/chat/completions" in b)
    answer = json.loads(run(command, url, "."))
    assert answer["object"] == "chat.completion" and answer["usage"]["completion_tokens"] <= 32


def check_openai(url):
    block, = (b for b in blocks("python") if "stream=True" in b)
    first, names = execute(block, url)
    assert first and first == execute(block, url)[0]  # it has a seed
    assert names["chunk"].choices[0].finish_reason in ("stop", "length")


def check_agent(url):
    block, = (b for b in blocks("python") if "tools" in b)
    _, names = execute(block, url)
    messages = names["messages"]
    call, = messages[1].tool_calls
    given = json.loads(call.function.arguments)
    assert call.function.name == "multiply" and set(given) == {"a", "b"}
    assert messages[2] == {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] * given["b"])}
    assert len(messages) >= 4 and messages[3].role == "assistant"


def check_harness(url, goldens, scratch):
    command, = (b for b in blocks("sh") if b.startswith("lm_eval"))
    folder = goldens / "models" / "llama"
    command = command.replace("lm_eval ", f"{shlex.quote(sys.executable)} -m lm_eval ", 1).replace(
        "arc_easy", f"runs_mc --include_path lm_eval/tasks --output_path {scratch}/out").replace(
        "model=my-model,", "model=llama,").replace("tokenizer=my-model/", f"tokenizer={folder}").replace("max_length=4096", "max_length=256")
    os.environ.update(HF_DATASETS_CACHE=str(scratch), HF_HUB_OFFLINE="1")
    run(command, url, goldens / "runs")
    written, = Path(scratch, "out").rglob("results_*.json")
    got = json.loads(written.read_text())["results"]["runs_mc"]
    want = json.loads((goldens / "runs" / "lm_eval" / "llama" / "mc.json").read_text())["results"]  # of the harness's own model
    assert {key: got[key] for key in want} == want, (got, want)


def main():
    axtrain, goldens = (Path(p).resolve() for p in sys.argv[1:3])
    with Server(axtrain, goldens / "models" / "llama") as url, tempfile.TemporaryDirectory() as scratch:
        check_curl(url)
        check_openai(url)
        check_harness(url, goldens, scratch)
    with Server(axtrain, goldens / "runs" / "models" / "tools_qwen3") as url:
        check_agent(url)
    print("docs/serving.md: curl, openai-python, an agent with tools and lm_eval run as written")


if __name__ == "__main__":
    main()
