"""Modelfiles for ollama: Go must make of their TEMPLATE what the model's own template gives.

usage: check_modelfile.py AXTRAIN MODEL_DIR TEMPLATE.jinja …   (needs go)

Each template takes the place of the model's. Conversations of one to seven messages, with and without
a system message, are rendered by `axtrain template` and by Go's text/template, with the variables that
ollama passes. BOS may be missing in Go's text. Exit code 0: all equal; 1: not; 77: skipped."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

GO = """package main

import (
	"encoding/json"
	"os"
	"text/template"
)

type message struct{ Role, Content string }

func main() {
	var list [][]message
	source, _ := os.ReadFile(os.Args[1])
	t := template.Must(template.New("").Parse(string(source)))
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		panic(err)
	}
	for _, messages := range list {
		if err := t.Execute(os.Stdout, map[string]any{"Messages": messages}); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("\\x00")
	}
}
"""
NAMES = {"s": "system", "u": "user", "a": "assistant"}
FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]


def conversation(roles):
    return [{"role": NAMES[r], "content": f"Message {i}: two\nlines, {{{{ \"quoted\" }}}}"} for i, r in enumerate(roles)]


def make(axtrain, model, template, folder):
    """The model folder with another template; returns the Modelfile's template and what was said."""
    os.mkdir(folder)
    for name in FILES:
        shutil.copy(f"{model}/{name}", folder)
    shutil.copy(template, f"{folder}/chat_template.jinja")
    done = subprocess.run([axtrain, "convert", folder, f"{folder}/m.gguf", "--to", "gguf", "--ollama"],
                          capture_output=True, text=True, check=True)
    found = re.search(r'TEMPLATE """(.*?)"""\n', open(f"{folder}/Modelfile").read(), re.S)
    return found and found[1], done.stderr


def jinja(axtrain, folder, messages):
    done = subprocess.run([axtrain, "template", "--model", folder, "--now", "0"], capture_output=True, text=True,
                          input=json.dumps({"messages": messages, "add_generation_prompt": True}))
    return done.stdout if done.returncode == 0 else None


def check(axtrain, model, template, tmp, render):
    name = os.path.basename(template)
    folder = f"{tmp}/{name}"
    source, said = make(axtrain, model, template, folder)
    if not source:
        reason = [line for line in said.splitlines() if "no TEMPLATE" in line]
        print(f"{name}: not expressed: {reason[0].split('expressed: ')[-1] if reason else said}")
        return 0
    with open(f"{folder}/go.tmpl", "w") as f:
        f.write(source)
    bos = json.load(open(f"{folder}/tokenizer_config.json")).get("bos_token") or ""
    wrong = compared = 0
    for roles in ["u", "uau", "uauau", "uauauau", "su", "suau", "suauau"]:
        messages = conversation(roles)
        want = jinja(axtrain, folder, messages)
        if want is None and roles[0] == "s":
            continue
        got = subprocess.run([render, f"{folder}/go.tmpl"], capture_output=True, text=True, check=True,
                             input=json.dumps([messages])).stdout[:-1]
        compared += 1
        if got not in (want, want.removeprefix(bos)):
            wrong += 1
            print(f"{name}: {roles}:\n  Jinja {want!r}\n  Go    {got!r}")
    print(f"{name}: {compared - wrong} of {compared} equal")
    return wrong


def main():
    axtrain, model, *templates = sys.argv[1:]
    if not shutil.which("go"):
        print("skipped: there is no go")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/main.go", "w") as f:
            f.write(GO)
        subprocess.run(["go", "build", "-o", f"{tmp}/render", f"{tmp}/main.go"], check=True)
        sys.exit(1 if sum(check(axtrain, model, t, tmp, f"{tmp}/render") for t in templates) else 0)


if __name__ == "__main__":
    main()
