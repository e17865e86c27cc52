"""Small made-up data sets in TRL's formats.  Every row comes from a template,
a word list and a seed, so that nothing is copied from anywhere.

A Lexicon holds the words and templates.
"""
import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Lexicon:
    names: tuple
    things: tuple
    places: tuple
    systems: tuple          # system prompts
    problems: tuple         # functions (rng, lexicon) -> Problem
    refusals: tuple         # bad answers that are not numbers
    closings: tuple         # "The answer is {}."


@dataclasses.dataclass(frozen=True)
class Problem:
    question: str
    steps: tuple            # right steps
    bad_steps: tuple        # the same number of steps, wrong from some step on
    first_bad: int          # index of the first wrong step
    answer: int
    wrong: int


def _near(rng, value):
    return max(0, value + rng.choice([-10, -2, -1, 1, 2, 10]))


def add(rng, lex):
    a, b = rng.randint(3, 40), rng.randint(2, 30)
    n, t = rng.choice(lex.names), rng.choice(lex.things)
    w = _near(rng, a + b)
    return Problem(f"{n} has {a} {t} and gets {b} more. How many {t} now?",
                   (f"{a} + {b} = {a + b}",), (f"{a} + {b} = {w}",), 0, a + b, w)


def times(rng, lex):
    a, b = rng.randint(3, 12), rng.randint(2, 9)
    n, t = rng.choice(lex.names), rng.choice(lex.things)
    w = _near(rng, a * b)
    return Problem(f"{n} packs {b} bags of {a} {t} each. How many {t}?",
                   (f"{b} * {a} = {a * b}",), (f"{b} * {a} = {w}",), 0, a * b, w)


def times_minus(rng, lex):
    a, b, d = rng.randint(4, 12), rng.randint(3, 9), rng.randint(1, 9)
    n, t, p = rng.choice(lex.names), rng.choice(lex.things), rng.choice(lex.places)
    m, w = a * b, _near(rng, a * b)
    first = rng.randint(0, 1)
    bad = (f"{a} * {b} = {w}", f"{w} - {d} = {max(0, w - d)}") if first == 0 else \
          (f"{a} * {b} = {m}", f"{m} - {d} = {_near(rng, m - d)}")
    wrong = int(bad[-1].rsplit("= ", 1)[1])
    return Problem(f"At the {p} there are {b} rows of {a} {t}. {n} takes {d}. How many are left?",
                   (f"{a} * {b} = {m}", f"{m} - {d} = {m - d}"), bad, first, m - d,
                   wrong if wrong != m - d else wrong + 1)


def share(rng, lex):
    k, c = rng.randint(2, 8), rng.randint(2, 12)
    n, t = rng.choice(lex.names), rng.choice(lex.things)
    w = _near(rng, c)
    return Problem(f"{n} shares {k * c} {t} among {k} friends. How many does each get?",
                   (f"{k * c} / {k} = {c}",), (f"{k * c} / {k} = {w}",), 0, c, w)


def french(rng, lex):
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    w = _near(rng, a * b)
    return Problem(f"Combien font {a} \u00d7 {b}\u00a0? R\u00e9ponds bri\u00e8vement.",
                   (f"{a} \u00d7 {b} = {a * b}",), (f"{a} \u00d7 {b} = {w}",), 0, a * b, w)


LEXICON = Lexicon(
    names=("Tom", "Mia", "Omar", "Lena", "Raj", "Zo\u00eb"),
    things=("apples", "pens", "coins", "books", "eggs"),
    places=("farm", "shop", "school"),
    systems=("You are a careful tutor.", "Answer in one line."),
    problems=(add, times, times_minus, share, french),
    refusals=("I do not know.", "Ask me later\u2026", "It could be anything, really; nobody can tell."),
    closings=("The answer is {}.", "So it is {}.", "#### {}"))


def right(rng, lex, p):
    s = ". ".join(p.steps) + ". " if rng.random() < 0.7 else ""
    return s + rng.choice(lex.closings).format(p.answer)


def bad(rng, lex, p):
    if rng.random() < 0.25:
        return rng.choice(lex.refusals)
    s = ". ".join(p.bad_steps) + ". " if rng.random() < 0.6 else ""
    return s + rng.choice(lex.closings).format(p.wrong)


def plain(i, p, completion, answer):
    """Prompt and completion as strings.  In some rows a word is cut by the
    boundary, so that the prompt's tokens are no prefix of the whole's."""
    if i % 11 == 6:
        return "Q: " + p.question + "\nA: t", f"he answer is {answer}."
    return "Q: " + p.question + "\nA:", " " + completion


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def _problem(rng, lex, i):
    return lex.problems[i % len(lex.problems)](rng, lex)


def preference(seed, lex, rows, chat, implicit=False, margin=False):
    """prompt, chosen, rejected (TRL preference format).  implicit: no prompt
    column, the conversations are whole.  margin: a margin column."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i)
        good, poor = right(rng, lex, p), bad(rng, lex, p)
        if chat:
            prompt = [user(p.question)]
            if i % 5 == 1:
                prompt.insert(0, {"role": "system", "content": rng.choice(lex.systems)})
            if i % 7 == 3:                      # an earlier turn
                q = lex.problems[0](rng, lex)
                prompt = [user(q.question), assistant(right(rng, lex, q))] + prompt[-1:]
            row = dict(chosen=prompt + [assistant(good)], rejected=prompt + [assistant(poor)]) if implicit else \
                dict(prompt=prompt, chosen=[assistant(good)], rejected=[assistant(poor)])
        else:
            prompt, chosen = plain(i, p, good, p.answer)
            row = dict(prompt=prompt, chosen=chosen, rejected=plain(i, p, poor, p.wrong)[1])
        if margin:
            row["margin"] = round(rng.choice([0.0, 0.25, 0.5, 1.0, 1.5]), 2)
        out.append(row)
    return out


def unpaired(seed, lex, rows, chat):
    """prompt, completion, label (TRL unpaired preference format)."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i)
        label = (True, False, False, True)[i % 4] if i % 8 < 4 else i % 16 < 8      # some micro-batches of one kind only
        text = right(rng, lex, p) if label else bad(rng, lex, p)
        prompt, completion = plain(i, p, text, p.answer if label else p.wrong)
        out.append(dict(prompt=[user(p.question)], completion=[assistant(text)], label=label) if chat else
                   dict(prompt=prompt, completion=completion, label=label))
    return out


def stepwise(seed, lex, rows):
    """prompt, completions, labels (TRL stepwise supervision format)."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i + 2)
        ok = rng.random() < 0.5
        steps = list(p.steps if ok else p.bad_steps) + [rng.choice(lex.closings).format(p.answer if ok else p.wrong)]
        labels = [ok or k < p.first_bad for k in range(len(steps))]
        if not ok and rng.random() < 0.2:
            steps, labels = steps[:-1], labels[:-1]
        out.append(dict(prompt=p.question, completions=steps, labels=labels))
    return out


def messages(seed, lex, rows):
    """messages (TRL conversational language modelling), one to three turns."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        turns = [{"role": "system", "content": rng.choice(lex.systems)}] if i % 4 == 2 else []
        for k in range(1 + (i % 3 == 1) + (i % 8 == 7)):
            p = _problem(rng, lex, i + k)
            turns += [user(p.question), assistant(right(rng, lex, p))]
        out.append(dict(messages=turns))
    return out


def prompt_completion(seed, lex, rows, chat):
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i)
        answer = right(rng, lex, p)
        prompt, completion = plain(i, p, answer, p.answer)
        out.append(dict(prompt=[user(p.question)], completion=[assistant(answer)]) if chat else
                   dict(prompt=prompt, completion=completion))
    return out


def texts(seed, lex, rows, key="text"):
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i)
        out.append({key: p.question + " " + right(rng, lex, p)})
    return out


def rollouts(seed, lex, rows, generations, none_rewards=False):
    """prompt, texts (completions, one per generation), cut (how many of a
    completion's tokens survive; 0 = all, and it ends with EOS), rewards."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        p = _problem(rng, lex, i)
        completions, cut, correct, form = [], [], [], []
        for k in range(generations):
            good = rng.random() < 0.45
            text = right(rng, lex, p) if good else bad(rng, lex, p)
            long = rng.random() < 0.3
            if long:
                text = text + " " + lex.refusals[-1]
            completions.append(text)
            cut.append(rng.randint(9, 17) if long else 0)
            correct.append(1.0 if good else 0.0)
            form.append(round(0.5 * ("=" in text) - 0.01 * (len(text) % 7), 4))
        if i % 6 == 4:
            correct, form = [1.0] * generations, [0.5] * generations      # no signal in this group
        row = dict(prompt=[user(p.question)], texts=completions, cut=cut, correct=correct, form=form)
        if none_rewards:
            if i % 3 == 1:
                row["correct"] = [None if k == 1 else c for k, c in enumerate(correct)]
                row["form"] = [None if k == 1 else f for k, f in enumerate(form)]
            elif i % 3 == 2:
                row["correct"] = [None] * generations
        out.append(row)
    return out
