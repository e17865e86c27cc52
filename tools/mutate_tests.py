"""Builds mutants and runs tests on them, in copies of the tree under build-mutate/ (see tools/mutate).

The library is shared here: a mutant costs one compile and one link, and every test and axtrain,
linked once, load it from their own folder.
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
import subprocess
import sys
import threading
import time
from pathlib import Path

LIBS = "-ljansson -lyaml -lpcre2-8 -lutf8proc -lzstd -lz -lm -ldl".split()
BESIDE = ["-shared", "-Wl,-rpath,$ORIGIN"]  # finds libaxtrain-gloo.so
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

    def __init__(self, folder, cc, opt, link=(), sanitize=""):
        self.folder, self.cc = folder, cc
        self.make = [f"CC={cc}", f"BUILD=../{folder.name}", "WARN=-w", f"OPT={opt}", f"SANITIZE={sanitize}", "CUDA="]
        self.link_flags = ["-fopenmp", "-pthread", *link, *([f"-fsanitize={sanitize}"] if sanitize else [])]


class Bench:
    def __init__(self, repo, folder, workers, sanitize):
        self.repo, self.folder, self.workers = repo, folder, workers
        self.tree = folder / "tree"
        # Counters of static functions are named after their main file's base name: two put_string of two
        # json.c, or one of two instruction sets, would share them. The object's path is unique.
        self.cover = Build(folder / "cover", "clang-16", "-O1 -g0 -fprofile-instr-generate -fcoverage-mapping "
                           "-mllvm -runtime-counter-relocation -Xclang -main-file-name -Xclang $@",
                           ["-fprofile-instr-generate"])
        self.plain = Build(folder / "plain", "gcc", "-O2 -g0")
        self.sanitize, self.under_test = sanitize, self.plain
        if sanitize:
            self.under_test = Build(folder / sanitize.replace(",", "-"), "gcc", "-O1 -g1", sanitize=sanitize)
        self.stopped = False
        self.running, self.lock = set(), threading.Lock()

    # ---- building

    def prepare(self, with_long):
        """`with_long`: with the tests of `make test-long`, too."""
        self.copy_tree()
        start = time.monotonic()
        sources = sorted(p.relative_to(self.tree).as_posix() for p in self.tree.glob("tests/*/test_*.c"))
        tests = [s[len("tests/"):-len(".c")] for s in sources if not s.startswith("tests/cuda/")]
        long = (self.tree / "tests/long.txt").read_text().splitlines()
        self.with_long = with_long
        self.tests = [t for t in tests if with_long or t not in long or self.choice(t)]
        product = [p for p in sorted(self.tree.rglob("*")) if p.suffix in (".c", ".h", ".cpp")
                   and not p.is_relative_to(self.tree / "tests")]
        self.product_key = digest(product) + hashlib.sha1(" ".join(self.cover.make).encode()).hexdigest()[:4]
        self.sandbox = self.find_sandbox()
        for build in (self.cover, self.under_test):
            self.build_all(build)
        self.commands = self.compile_commands(self.under_test)
        for worker in range(self.workers):
            self.fresh_worker(worker)
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)
        self.collect()
        path = self.folder / f"baseline-{self.under_test.folder.name}.json"
        self.baseline_path, self.baselines = path, json.loads(path.read_text()) if path.exists() else {}
        self.baseline_locks = {test: threading.Lock() for test in self.tests}

    def copy_tree(self):
        """Syncs build-mutate/tree with the working tree, including new files but not ignored ones."""
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=self.repo,
                               check=True, capture_output=True, text=True).stdout.split("\0")
        names = {n for n in names if n and (self.repo / n).is_file()}
        for old in [p for p in self.tree.rglob("*") if p.is_file()]:
            if old.relative_to(self.tree).as_posix() not in names:
                old.unlink()
        for name in names:
            old, new = self.repo / name, self.tree / name
            if not new.exists() or old.read_bytes() != new.read_bytes():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(old, new)

    def build_all(self, build):
        """Builds library, axtrain and all tests in build.folder/bin; rebuilds only what changed."""
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
        self.link(build, out / "libaxtrain.so", [*BESIDE, "-Wl,--whole-archive", library, "-Wl,--no-whole-archive"])

        def link(name):
            up, more = "/".join(["$ORIGIN", *[".."] * name.count("/")]), [*helpers, "-lcmocka"] if "/" in name else []
            self.link(build, out / name, [mains[name], *more, f"-L{out}", f"-Wl,-rpath,{up}", "-laxtrain"])

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(link, mains))

    def link(self, build, out, words):
        inputs = [self.tree / w for w in words if not w.startswith("-")]
        if not out.exists() or any(i.stat().st_mtime > out.stat().st_mtime for i in inputs):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)  # workers have links to it
            self.call([build.cc, *build.link_flags, "-o", out, *words, *LIBS], self.tree)

    def compile_commands(self, build):
        """{source: [command of each of its objects]}, from make's dry run."""
        dry = subprocess.run(["make", "-Bn", *build.make, f"../{build.folder.name}/libaxtrain.a"], cwd=self.tree,
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
        shutil.copytree(self.under_test.folder / "bin", folder / "bin", copy_function=os.link)
        (folder / "tmp").mkdir()

    def build(self, worker, mutant):
        """Builds the mutant's library for the worker's tests. "differs", or why it does not count."""
        folder = self.folder / f"worker{worker}"
        source = folder / "tree" / mutant.file
        text = source.read_text(encoding="latin-1")
        source.write_text(mutant.apply(text), encoding="latin-1")
        built = self.under_test.folder
        objects, same = {}, True
        try:
            for i, command in enumerate(self.commands[mutant.file]):
                original = command[command.index("-o") + 1]
                mine = folder / f"{i}.o"
                words = [mine if w == original else w for w in command]
                if subprocess.run(words, cwd=folder / "tree", capture_output=True, timeout=300).returncode != 0:
                    return "does not compile"
                objects[original] = mine
                same = same and mine.read_bytes() == (self.tree / original).read_bytes()
        except subprocess.TimeoutExpired:
            return "does not compile in 300 s"
        finally:
            source.write_text(text, encoding="latin-1")
        if same:
            return "same machine code"
        others = [p for p in sorted(built.rglob("*.o")) if "tests" not in p.parts
                  and (self.tree / p.relative_to(built).parent / f"{p.name.split(chr(46))[0]}.c").exists()
                  and p not in (built / "main.o", built / "cmd/commit.o")]
        mine = {(self.tree / o).resolve(): m for o, m in objects.items()}
        library = folder / "bin/libaxtrain.so"
        library.unlink()
        self.call([self.under_test.cc, *BESIDE, *self.under_test.link_flags, "-o", library,
                   *[mine.get(p.resolve(), p) for p in others], *LIBS], self.tree)
        return "differs"

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

    def execute(self, binary, worker, limit, environment, to_the_end=False):
        """(outcome, seconds, output) of one test: "passed", "failed", "took too long". It is stopped
        at the first failure, unless `to_the_end`."""
        folder = self.folder / f"worker{worker}"
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        (folder / "tmp").mkdir()
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "AX_TEST_GOLDENS": str(self.tree / "tests/goldens"),
               "AX_TEST_BIN": str(binary.parents[2] / "axtrain"), "OMP_WAIT_POLICY": "passive", "AX_CHECK_MEMORY": "1",
               "ASAN_OPTIONS": "hard_rss_limit_mb=8192",
               "TSAN_OPTIONS": f"suppressions={self.tree}/tests/sanitizers.supp", **environment}
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
        return f'"tests/{header}"' in (self.tree / f"tests/{test}.c").read_text()

    def choice(self, test):
        """Leaves out those of a program's tests that only `make test-long` runs."""
        return {"AXTRAIN_TESTS": "quick"} if not self.with_long and self.includes(test, "long.h") else {}

    def environment(self, test):
        return self.choice(test) | ({"AXTRAIN_SWEEP": "1"} if self.sanitize and self.includes(test, "sweep.h") else {})

    def run(self, worker, test, mutated):
        if not mutated:
            binary, limit = self.under_test.folder / "bin/tests" / test, 1200
        else:
            binary = self.folder / f"worker{worker}" / "bin/tests" / test
            limit = max(10, 5 * self.baselines[test]["seconds"])
        return self.execute(binary, worker, limit, self.environment(test))

    def baseline(self, worker, test):
        """True if the test passes on the unmodified tree. Checked once per tree, before its first mutant."""
        with self.baseline_locks[test]:
            key = self.key(test)
            if self.baselines.get(test, {}).get("key") != key:
                outcome, seconds, output = self.run(worker, test, mutated=False)
                if outcome != "passed":
                    print(f"EXCLUDED: {test} {outcome} on the unmodified tree:\n{output.decode(errors='replace')[-1500:]}")
                self.baselines[test] = {"key": key, "passes": outcome == "passed", "seconds": seconds}
                with self.lock:
                    self.baseline_path.write_text(json.dumps(self.baselines))
            return self.baselines[test]["passes"]

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

    # ---- coverage

    def key(self, test):
        room, name = test.split("/")
        own = [p for p in sorted(self.tree.glob(f"tests/{room}/**/*")) if p.is_file()
               and (p.stem == name or not p.name.startswith("test_"))]
        return self.product_key + digest(own + sorted(self.tree.glob("tests/*.[ch]"))) + "".join(self.choice(test).values())

    def collect(self):
        """self.lines: {test: {file: [lines it runs]}}, including the test's children, even killed ones."""
        path = self.folder / "coverage.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        todo = [t for t in self.tests if known.get(t, {}).get("key") != self.key(t)]
        self.lines = {t: known[t] for t in self.tests if t not in todo}
        if todo:
            print(f"coverage: {len(todo)} new or changed tests, {self.workers} at a time", flush=True)
        start, queue = time.monotonic(), iter(todo)

        def work(worker):
            while not self.stopped:
                with self.lock:
                    test = next(queue, None)
                if test is None:
                    return
                found = self.cover_one(worker, test)
                with self.lock:
                    self.lines[test] = found
                    path.write_text(json.dumps(self.lines))

        self.on_workers(work)
        if self.stopped:
            raise Stopped
        if todo:
            print(f"coverage took {time.monotonic() - start:.0f} s", flush=True)
        quickest = min(self.tests, key=lambda t: self.lines[t]["seconds"])
        self.counted = {file: set(lines) for file, lines in self.cover_one(0, quickest, "\\d+")["files"].items()}

    def cover_one(self, worker, test, count="[1-9]"):
        folder = self.folder / f"worker{worker}"
        profile = folder / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        profile.mkdir()
        # %c: counters are mapped into the file, so that even a killed child has written them;
        # %m: the test and every axtrain that it starts share the file.
        outcome, seconds, _ = self.execute(self.cover.folder / "bin/tests" / test, worker, 1200,
                                           self.choice(test) | {"LLVM_PROFILE_FILE": f"{profile}/%c%m.profraw"}, to_the_end=True)
        if outcome != "passed":
            print(f"coverage: {test} {outcome} in the coverage build (clang)")
        files = {}
        raw = list(profile.glob("*.profraw"))
        if raw:
            self.call(["llvm-profdata-16", "merge", "--sparse", "-o", profile / "merged", *raw], folder)
            text = subprocess.run(["llvm-cov-16", "export", "--format=lcov", f"--instr-profile={profile}/merged",
                                   self.cover.folder / "bin/libaxtrain.so"], check=True, capture_output=True,
                                  text=True).stdout
            for record in text.split("end_of_record"):
                name = re.search(r"^SF:(.*)", record, re.M)
                ran = [int(n) for n in re.findall(rf"^DA:(\d+),{count}", record, re.M)]
                if name and ran:
                    files[os.path.relpath(os.path.join(self.tree, name[1]), self.tree)] = ran
        return {"key": self.key(test), "seconds": seconds, "files": files, "complete": outcome == "passed"}

    def before_assertions(self, mutant):
        """The line that says whether the mutant's runs: clang counts none right after an assertion."""
        text, line = (self.tree / mutant.file).read_text(encoding="latin-1").split("\n"), mutant.line
        while line > 1 and text[line - 2].lstrip().startswith("AX_ASSERT("):
            line -= 1
        return line

    def reaching(self, mutant):
        """Tests that run the mutant's line: fast, nearby and specific ones first.

        Where that is not known, tests that run the file: all, if clang counts no line there (a macro made the
        function), else those that failed in the coverage build.
        """
        room, stem = mutant.file.split("/")[0], Path(mutant.file).stem

        def price(test):
            about = self.lines[test]
            near = 0.1 if test.split("/test_")[1] in (stem, stem.split("_")[0]) else 1
            near *= 0.3 if test.split("/")[0] == room else 1
            return (about["seconds"] + 0.1) * near

        line = self.before_assertions(mutant)
        reach = [t for t in self.tests if line in self.lines[t]["files"].get(mutant.file, ())]
        uncounted = line not in self.counted.get(mutant.file, ())
        may_reach = [t for t in self.tests if mutant.file in self.lines[t]["files"]
                     and (uncounted or not self.lines[t].get("complete", True))]
        return sorted(reach or may_reach, key=price)


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
