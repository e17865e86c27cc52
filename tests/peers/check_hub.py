"""The cache of the hub, in both directions, against the huggingface_hub that is installed.

    python check_hub.py AXTRAIN GOLDENS/models

A hub of this script's own serves a tiny model (large files by LFS) and a data set. What `axtrain
fetch` writes, snapshot_download(local_files_only=True) must find, file by file, and
scan_cache_dir must take without a warning; what snapshot_download and hf_hub_download write,
`axtrain preview` must use offline. The same over TLS: a certificate of our own is refused without
SSL_CERT_FILE and accepted with it. Exit code 0: all hold; 1: not; 77: skipped."""
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading

try:
    import huggingface_hub
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 2


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    repos = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def cdn(self, data):
        """Elsewhere, as the real one is; the certificate is for one host only."""
        tls = isinstance(self.connection, ssl.SSLSocket)
        host = "" if tls else f"http://localhost:{self.server.server_address[1]}"
        return f"{host}/cdn/{sha256(data)}"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0].strip("/")
        for (kind, repo), files in self.repos.items():
            page = repo if kind == "models" else f"{kind}/{repo}"
            if path.startswith(f"api/{kind}/{repo}/revision/"):
                info = {"id": repo, "sha": COMMIT, "siblings": [], "tags": [], "private": False}
                return self.reply(200, json.dumps(info).encode(), Content_Type="application/json")
            if path.startswith(f"api/{kind}/{repo}/tree/"):
                tree = [{"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
                        | ({"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 9}}
                           if large else {}) for name, (data, large) in files.items()]
                return self.reply(200, json.dumps(tree).encode(), Content_Type="application/json")
            for revision in (COMMIT, "main"):
                start = f"{page}/resolve/{revision}/"
                if path.startswith(start) and path[len(start):] in files:
                    data, large = files[path[len(start):]]
                    if large:
                        return self.reply(302, Location=self.cdn(data), X_Repo_Commit=COMMIT,
                                          X_Linked_Etag=f'"{sha256(data)}"', X_Linked_Size=len(data))
                    return self.reply(200, data, ETag=f'"{git_sha1(data)}"', X_Repo_Commit=COMMIT)
        for files in self.repos.values():
            for data, large in files.values():
                if large and path == f"cdn/{sha256(data)}":
                    return self.reply(200, data, ETag=f'"{sha256(data)}"')
        self.reply(404, X_Error_Code="RepoNotFound")


def serve(context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


bad = 0


def expect(holds, what):
    global bad
    print(("ok    " if holds else "WRONG ") + what, flush=True)
    bad += not holds


def run(command, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "SSL_CERT"))}
    return subprocess.run(command, env=clean | env, capture_output=True, text=True)


def main():
    axtrain, models = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    tiny = models / "llama"
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
    Hub.repos = {
        ("models", "org/tiny"): {n: ((tiny / n).read_bytes(), n.endswith("safetensors"))
                                 for n in names},
        ("datasets", "org/rows"): {"README.md": (b"hello", False), "data/train.jsonl": (ROWS, True)},
    }
    work = pathlib.Path(tempfile.mkdtemp())
    config = work / "c.yaml"
    config.write_text("base_model: org/tiny\ndatasets: [{path: org/rows, type: chat_template}]\n"
                      "chat_template: chatml\nsequence_len: 64\nlearning_rate: 1e-4\n"
                      f"dataset_prepared_path: {work}/prepared\noutput_dir: {work}/out\n")
    base = dict(HOME=str(work))
    port = serve()
    plain = base | dict(HF_ENDPOINT=f"http://127.0.0.1:{port}")

    ours = work / "ours"
    r = run([axtrain, "fetch", config], **plain, HF_HUB_CACHE=str(ours))
    expect(r.returncode == 0, f"fetch: {(r.stdout + r.stderr).strip()}")
    finder = ("import sys, huggingface_hub as h\n"
              "print(h.snapshot_download(sys.argv[1], repo_type=sys.argv[2], local_files_only=True))\n")
    for kind, (repo, files) in {"model": ("org/tiny", Hub.repos["models", "org/tiny"]),
                                "dataset": ("org/rows", Hub.repos["datasets", "org/rows"])}.items():
        r = run([sys.executable, "-c", finder, repo, kind], **plain, HF_HUB_CACHE=str(ours))
        folder = pathlib.Path(r.stdout.strip() or "/nowhere")
        expect(r.returncode == 0 and folder.is_dir(), f"snapshot_download finds {repo} {r.stderr[-200:]}")
        expect(all((folder / n).exists() and (folder / n).read_bytes() == d
                   for n, (d, _) in files.items()), f"its files are those of {repo}")
    scan = huggingface_hub.scan_cache_dir(ours)
    expect(not scan.warnings and len(scan.repos) == 2, f"scan_cache_dir: {scan.warnings}")
    for repo in scan.repos:
        for revision in repo.revisions:
            expect(revision.commit_hash == COMMIT and revision.refs == {"main"},
                   f"{repo.repo_id}: main is {COMMIT[:7]}")

    theirs = work / "theirs"
    loader = ("import huggingface_hub as h\n"
              "h.snapshot_download('org/tiny')\n"
              "h.hf_hub_download('org/rows', 'data/train.jsonl', repo_type='dataset')\n")
    r = run([sys.executable, "-c", loader], **plain, HF_HUB_CACHE=str(theirs), HF_HUB_DISABLE_XET="1")
    expect(r.returncode == 0, f"their download {r.stderr[-300:]}")
    r = run([axtrain, "preview", config], **plain, HF_HUB_CACHE=str(theirs), HF_HUB_OFFLINE="1")
    expect(r.returncode == 0, f"preview from their cache, offline {r.stderr.strip()}")
    r = run([axtrain, "fetch", config], **plain, HF_HUB_CACHE=str(theirs))
    expect(r.returncode == 0 and " 0 B downloaded" not in r.stdout and
           r.stdout.count("all here already") == 1, f"fetch over their cache: {r.stdout.strip()}")

    key, cert = work / "key.pem", work / "cert.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                           "-out", cert, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
                           "subjectAltName=IP:127.0.0.1"], capture_output=True)
    if made.returncode == 0:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        safe = base | dict(HF_ENDPOINT=f"https://127.0.0.1:{serve(context)}",
                           HF_HUB_CACHE=str(work / "tls"))
        r = run([axtrain, "fetch", config], **safe)
        expect(r.returncode == 1 and "its certificate is not trusted" in r.stderr,
               f"unknown certificate: {r.stderr.strip()}")
        r = run([axtrain, "fetch", config], **safe, SSL_CERT_FILE=str(cert))
        expect(r.returncode == 0, f"with SSL_CERT_FILE: {r.stderr.strip()}")
    else:
        print("skipped: TLS, there is no openssl")
    shutil.rmtree(work)
    sys.exit(1 if bad else 0)


main()
