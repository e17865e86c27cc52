"""Builds a library with many mutants and runs tests on each, in copies of the tree under build-mutate/ (see tools/mutate).

The library is shared here: every test and axtrain, linked once, load it from their own folder, and which mutant it is, if
any, is written into its file before a test starts (mutate_chosen.c).
"""
import concurrent.futures
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import mutate_sites as sites

LIBS = "-ljansson -lyaml -lpcre2-8 -lutf8proc -lzstd -lz -lm -ldl".split()
BESIDE = ["-shared", "-Wl,-rpath,$ORIGIN"]  # finds libaxtrain-gloo.so
MARK = b"ax_mutants here\0"
PROGRAMS = ("tests/goldens/replay", *(f"tests/bench/{name}" for name in ("bench", "plan_score", "sandbox")))  # that tests start
# A test runs in its own process namespace, with its own /tmp and /dev/shm: when it ends, nothing of
# it remains.
BOX = """mount --bind "$1" /tmp && mount -t tmpfs -o size=2g none /dev/shm || exit 125
ulimit -c 0; [ "$2" = 0 ] || ulimit -d "$2"
"$3"; exit $?"""


class Stopped(Exception):
    pass


class Build:
    """One way of building the tree: its make variables, its folder, how it links."""

    def __init__(self, folder, opt, sanitize=""):
        self.folder = folder
        self.make = [f"BUILD=../{folder.name}", "WARN=-w", f"OPT={opt}", f"SANITIZE={sanitize}", "CUDA="]
        self.link_flags = ["-fopenmp", "-pthread", *([f"-fsanitize={sanitize}"] if sanitize else [])]


class Bench:
    def __init__(self, repo, folder, workers, sanitize):
        self.repo, self.folder, self.workers = repo, folder, workers
        self.plain, self.tree = folder / "plain", folder / "tree"  # copies without the mutants, and with them
        self.build = Build(folder / "build", "-O2 -g0")
        if sanitize:
            self.build = Build(folder / sanitize.replace(",", "-"), "-O1 -g1", sanitize)
        self.sanitize = sanitize
        self.stopped = False
        self.running, self.lock = set(), threading.Lock()
        self.caught = {}  # {test: files of the mutants that it has caught}

    # ---- building

    def prepare(self, with_long):
        """Finds sources and tests; `with_long`: with those of `make test-long`, too."""
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=self.repo,
                                check=True, capture_output=True, text=True).stdout.split("\0")
        self.names = {n for n in listed if n and (self.repo / n).is_file()}
        self.copy(self.repo, self.plain, {})
        sources = sorted(p.relative_to(self.plain).as_posix() for p in self.plain.glob("tests/*/test_*.c"))
        tests = [s[len("tests/"):-len(".c")] for s in sources if not s.startswith("tests/cuda/")]
        long = (self.plain / "tests/long.txt").read_text().splitlines()
        self.with_long = with_long
        self.tests = [t for t in tests if with_long or t not in long or self.choice(t)]
        self.sandbox = self.find_sandbox()
        self.commands = self.compile_commands()
        self.sources, self.objects = {}, {}

    def source(self, file):
        """Its Source."""
        if file not in self.sources:
            os.chdir(self.plain)  # libclang reports file names as given
            self.sources[file] = sites.find(self.plain, file, self.clang_flags(file))
        return self.sources[file]

    def build_together(self, mutants):
        """Builds the library with all of them, and all tests. Their numbers are their places in the list."""
        start, files = time.monotonic(), {}
        for number, mutant in enumerate(mutants):
            files.setdefault(mutant.file, {})[number] = mutant
        self.copy(self.plain, self.tree,
                  {"base/mutate_chosen.c": (self.plain / "tools/mutate_chosen.c").read_bytes()} |
                  {f: sites.together(self.source(f), of).encode("latin-1") for f, of in files.items()})
        product = [p for p in sorted(self.tree.rglob("*")) if p.suffix in (".c", ".h", ".cpp")
                   and not p.is_relative_to(self.tree / "tests")]
        self.product_key = digest(product) + hashlib.sha1(" ".join(self.build.make).encode()).hexdigest()[:4]
        self.build_all()
        for worker in range(self.workers):
            self.fresh_worker(worker)
        library = (self.build.folder / "bin/libaxtrain.so").read_bytes()
        self.place = library.index(MARK)
        if library.count(MARK) != 1:
            raise SystemExit("mutate: the library has more than one place for the choice of a mutant")
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)

    def copy(self, origin, to, others):
        """Syncs a copy with the working tree's files, new ones included but not ignored ones, and `others`, {name: content},
        in place of its."""
        names = self.names | others.keys()
        for old in [p for p in to.rglob("*") if p.is_file()]:
            if old.relative_to(to).as_posix() not in names:
                old.unlink()
        for name in names:
            new = to / name
            content = others[name] if name in others else (origin / name).read_bytes()
            if not new.exists() or content != new.read_bytes():
                new.parent.mkdir(parents=True, exist_ok=True)
                new.write_bytes(content)
                if name not in others:
                    shutil.copymode(origin / name, new)

    def build_all(self):
        """Builds library, axtrain and all tests in build.folder/bin; rebuilds only what changed."""
        build = self.build
        print(f"building {build.folder.name} ({' '.join(build.make)})", flush=True)
        helpers = [f"../{build.folder.name}/{p.relative_to(self.tree).with_suffix('.o')}"
                   for p in sorted([*self.tree.glob("tests/*.c"), self.tree / "tests/doubles/far.c"])]
        helpers += [f"../{build.folder.name}/tests/{folder}/lib{folder}.a" for folder in ("goldens", "doubles")]
        mains = {name: f"../{build.folder.name}/{main}.o"
                 for name, main in (("axtrain", "main"), *((p, p) for p in PROGRAMS))}
        mains |= {f"tests/{test}": f"../{build.folder.name}/tests/{test}.o" for test in self.tests}
        stubs = [f"../{build.folder.name}/{p.relative_to(self.tree).with_suffix('.so')}"
                 for p in sorted(self.tree.glob("tests/*/stub_*.c"))]
        library = f"../{build.folder.name}/libaxtrain.a"
        gloo = f"../{build.folder.name}/libaxtrain-gloo.so"
        self.call(["make", "-s", f"-j{os.cpu_count()}", *build.make, library, gloo, *helpers, *stubs, *mains.values()],
                  self.tree)
        out = build.folder / "bin"
        out.mkdir(exist_ok=True)
        shutil.copy(self.tree / gloo, out)
        for stub in (self.tree / s for s in stubs):  # beside the test that loads it
            beside = out / "tests" / stub.parent.name / stub.name
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            shutil.copy(stub, beside)
        self.link(out / "libaxtrain.so", [*BESIDE, "-Wl,--whole-archive", library, "-Wl,--no-whole-archive"])

        def link(name):
            up, more = "/".join(["$ORIGIN", *[".."] * name.count("/")]), [*helpers, "-lcmocka"] if "/" in name else []
            self.link(out / name, [mains[name], *more, f"-L{out}", f"-Wl,-rpath,{up}", "-laxtrain"])

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(link, mains))

    def link(self, out, words):
        inputs = [self.tree / w for w in words if not w.startswith("-")]
        if not out.exists() or any(i.stat().st_mtime > out.stat().st_mtime for i in inputs):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)  # workers have links to it
            self.call(["gcc", *self.build.link_flags, "-o", out, *words, *LIBS], self.tree)

    def compile_commands(self):
        """{source: [command of each of its objects]}, from make's dry run."""
        dry = subprocess.run(["make", "-Bn", *self.build.make, f"../{self.build.folder.name}/libaxtrain.a"], cwd=self.plain,
                             check=True, capture_output=True, text=True).stdout
        commands = {}
        for line in dry.splitlines():
            words = shlex.split(line.split(" 2>")[0]) if " -c -o " in line else []
            if words and words[-1].endswith(".c"):
                commands.setdefault(words[-1], []).append([w for w in words if w not in ("-MMD", "-MP")])
        return commands

    def clang_flags(self, source):
        keep = re.compile(r"-(I|D|std=|m(?!prefer)|fopenmp$)")
        return [[w for w in command if keep.match(w)] for command in self.commands[source]]

    def fresh_worker(self, worker):
        folder = self.folder / f"worker{worker}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.tree, folder / "tree")
        shutil.copytree(self.build.folder / "bin", folder / "bin", copy_function=os.link)
        own = folder / "bin/libaxtrain.so"
        own.unlink()
        shutil.copy(self.build.folder / "bin/libaxtrain.so", own)
        (folder / "tmp").mkdir()

    def compile(self, file, text):
        """What the file's commands make of the text: a list of objects' contents; or why not."""
        objects = []
        with tempfile.TemporaryDirectory() as out:
            source, made = Path(out) / "mutant.c", Path(out) / "mutant.o"
            source.write_text(text, encoding="latin-1")
            for command in self.commands[file]:
                words = [made if w == command[command.index("-o") + 1] else w for w in command[:-1]]
                try:
                    done = subprocess.run([*words, f"-fmacro-prefix-map={out}=.", source], cwd=self.plain, capture_output=True, timeout=300)
                except subprocess.TimeoutExpired:
                    return "does not compile in 300 s"
                if done.returncode != 0:
                    return "does not compile"
                objects.append(made.read_bytes())
        return objects

    def compare(self, mutants):
        """For each, "differs" if its machine code does, or why it does not count."""
        def one(mutant):
            text = self.source(mutant.file).text
            if mutant.file not in self.objects:
                self.objects[mutant.file] = self.compile(mutant.file, text)
            objects = self.compile(mutant.file, mutant.apply(text))
            if isinstance(objects, str):
                return objects
            return "same machine code" if objects == self.objects[mutant.file] else "differs"

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(one, mutants))

    def call(self, words, cwd):
        done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
            raise SystemExit(f"mutate: {' '.join(map(str, words))[:300]} fails")

    # ---- running

    def find_sandbox(self):
        for words in (["unshare"], ["unshare", "-r"]):
            box = [*words, "-mpf", "--kill-child", "--mount-proc", "sh", "-c", BOX, "box", "/var/tmp", "0", "true"]
            if not self.folder.is_relative_to("/tmp") and subprocess.run(box, capture_output=True).returncode == 0:
                return box[:-3]
        print("mutate: namespaces are not available: files that a mutant leaves in /tmp stay there")
        return None

    def choose(self, worker, number, path=""):
        """Makes the worker's library this mutant, or none (−1), and notes what it reaches in the file at `path`."""
        with open(self.folder / f"worker{worker}/bin/libaxtrain.so", "r+b") as library:
            library.seek(self.place + len(MARK))
            library.write(struct.pack("=i492s", number, str(path).encode()))

    def execute(self, test, worker, limit, to_the_end=False):
        """(outcome, seconds, output) of one test: "passed", "failed", "took too long". It is stopped
        at the first failure, unless `to_the_end`."""
        folder = self.folder / f"worker{worker}"
        binary = folder / "bin/tests" / test
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        (folder / "tmp").mkdir()
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "AX_TEST_GOLDENS": str(self.tree / "tests/goldens"),
               "AX_TEST_BIN": str(binary.parents[2] / "axtrain"), "OMP_WAIT_POLICY": "passive", "AX_CHECK_MEMORY": "1",
               "XDG_CACHE_HOME": "/tmp" if self.sandbox else str(folder / "tmp"),  # as in a clone with an empty HOME
               "ASAN_OPTIONS": "hard_rss_limit_mb=8192",
               "TSAN_OPTIONS": f"suppressions={self.tree}/tests/sanitizers.supp", **self.environment(test)}
        memory = "0" if self.sanitize else str(12 << 20)
        words = [*self.sandbox, folder / "tmp", memory, binary] if self.sandbox else [binary]
        start, output, outcome = time.monotonic(), b"", ""
        process = subprocess.Popen([str(w) for w in words], cwd=folder / "tree", env=env, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   preexec_fn=as_in_a_shell)
        with self.lock:
            self.running.add(process)
        try:
            while not outcome:
                left = start + limit - time.monotonic()
                ready = select.select([process.stdout], [], [], max(left, 0))[0]
                chunk = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
                output = output[-(1 << 16):] + chunk
                if not ready:
                    outcome = "took too long"
                elif b"[  FAILED  ]" in output and not to_the_end:
                    outcome = "failed"
                elif not chunk:
                    outcome = "passed" if process.wait(max(left, 1)) == 0 else "failed"
        except subprocess.TimeoutExpired:
            outcome = "took too long"
        finally:
            with self.lock:
                self.running.discard(process)
            end_group(process)
        if self.stopped:
            raise Stopped
        return outcome, time.monotonic() - start, output

    def includes(self, test, header):
        return f'"tests/{header}"' in (self.plain / f"tests/{test}.c").read_text()

    def choice(self, test):
        """Leaves out those of a program's tests that only `make test-long` runs."""
        return {"AXTRAIN_TESTS": "quick"} if not self.with_long and self.includes(test, "long.h") else {}

    def environment(self, test):
        return self.choice(test) | ({"AXTRAIN_SWEEP": "1"} if self.sanitize and self.includes(test, "sweep.h") else {})

    def run(self, worker, test, number):
        """Of a mutant, by a test that passes without it."""
        self.choose(worker, number)
        return self.execute(test, worker, max(10, 5 * self.reached[test]["seconds"]))

    def on_workers(self, work):
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(work, worker) for worker in range(self.workers)]
            try:
                for future in futures:
                    future.result()
            except BaseException as e:
                self.stop()
                if not isinstance(e, (KeyboardInterrupt, Stopped)):
                    raise
        if self.stopped:
            print("stopped")

    def stop(self):
        self.stopped = True
        with self.lock:
            for process in self.running:
                end_group(process, wait=False)

    # ---- what reaches which mutants

    def key(self, test):
        room, name = test.split("/")
        own = [p for p in sorted(self.tree.glob(f"tests/{room}/**/*")) if p.is_file()
               and (p.stem == name or not p.name.startswith("test_"))]
        return self.product_key + digest(own + sorted(self.tree.glob("tests/*.[ch]"))) + "".join(self.choice(test).values())

    def collect(self, mutants):
        """self.reached: {test: {"seconds", "passes" without a mutant, "mutants" reached}}, also by its children, even
        killed ones."""
        path = self.folder / "reached.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        todo = [t for t in self.tests if known.get(t, {}).get("key") != self.key(t)]
        self.reached = {t: known[t] for t in self.tests if t not in todo}
        if todo:
            print(f"{len(todo)} new or changed tests without a mutant, {self.workers} at a time", flush=True)
        start, queue = time.monotonic(), iter(todo)

        def work(worker):
            while not self.stopped:
                with self.lock:
                    test = next(queue, None)
                if test is None:
                    return
                found = self.reach(worker, test, len(mutants))
                with self.lock:
                    self.reached[test] = found
                    path.write_text(json.dumps(self.reached))

        self.on_workers(work)
        if self.stopped:
            raise Stopped
        if todo:
            print(f"that took {time.monotonic() - start:.0f} s", flush=True)

    def observe(self, worker, test, number):
        """(outcome, seconds, output) of a whole test with a mutant or none (−1), and a byte for each mutant: 1 if reached."""
        seen = self.folder / f"worker{worker}/reached"
        seen.write_bytes(bytes(1 << 16))
        self.choose(worker, number, seen)
        return *self.execute(test, worker, 1200, to_the_end=True), seen.read_bytes()

    def reach(self, worker, test, count):
        for _ in range(2):  # a busy machine can fail one
            outcome, seconds, output, reached = self.observe(worker, test, -1)
            if outcome == "passed":
                break
        else:
            print(f"EXCLUDED: {test} {outcome} without a mutant:\n{output.decode(errors='replace')[-1500:]}")
        mutants = [number for number in range(count) if reached[number]]
        return {"key": self.key(test), "seconds": seconds, "passes": outcome == "passed", "mutants": mutants}

    def nearest(self, mutant, tests, seconds):
        """The tests in order: fast, nearby and specific ones first, and those that have caught others near the mutant."""
        room, stem, folder = mutant.file.split("/")[0], Path(mutant.file).stem, str(Path(mutant.file).parent)

        def price(test):
            near = 0.1 if test.split("/test_")[1] in (stem, stem.split("_")[0]) else 1
            near *= 0.3 if test.split("/")[0] == room else 1
            others = self.caught.get(test, [])
            near /= 1 + 4 * others.count(mutant.file) + sum(f.startswith(folder + "/") for f in others)
            return (seconds(test) + 0.1) * near

        return sorted(tests, key=price)

    def reaching(self, number, mutant):
        """Tests that reach the mutant, the nearest first. Where none is known to, as a sandbox keeps its programs from
        saying so, all whose names have a word of its file's."""
        passing = [t for t in self.tests if self.reached[t]["passes"]]
        words = set(Path(mutant.file).with_suffix("").parts[1:])
        nearby = [t for t in passing if t.split("/")[0] == mutant.file.split("/")[0]
                  and words & set(t.split("/test_")[1].split("_"))]
        reach = [t for t in passing if number in self.reached[t]["mutants"]]
        return self.nearest(mutant, reach or nearby, lambda test: self.reached[test]["seconds"])


def as_in_a_shell():
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # under nohup, or behind & in a script
        signal.signal(ignored, signal.SIG_DFL)


def digest(paths):
    whole = hashlib.sha1()
    for path in paths:
        whole.update(str(path.name).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def end_group(process, wait=True):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if wait:
        process.wait()
        process.stdout.close()
